"""The documentation is correct: examples run, tables and diagrams name only things that exist, and links
work."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.cli.io.command_line import insert_chat_command
from hermes.cli.main import COMMANDS, make_parser
from tools import diagrams

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hermes"
LARGER_FOLDERS = ("agent", ".", "agent/tools", "cli", "server", "store/sessions", "store/sqlite")
"""Folders that may have up to eighteen modules instead of fifteen, because their modules belong together."""


def test_the_lines_of_the_readme_run(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert "/tmp/hermes-demo" in block
    program = block.replace("/tmp/hermes-demo", str(tmp_path / "demo"))
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert ">>>retry<<<" in done.stdout
    assert "What did we decide about the retry budget?" in done.stdout
    assert done.stdout.rstrip().endswith("'ok']")


def test_the_readme_shows_no_more_than_fifteen_lines() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in block.splitlines() if line.strip()]) <= 15


def test_the_readme_lists_every_page_once() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| page | content |")[2]
    listed = re.findall(r"\]\((docs/[\w/-]+\.md)\)", table)
    pages = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_commands_of_the_first_pages_exist(page: str) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = [
        line
        for block in blocks
        for line in block.splitlines()
        if re.match(r"(HERMES_HOME=\w+ )?hermes\b", line)
    ]
    assert lines
    for line in lines:
        words = shlex.split(line.partition("<")[0], comments=True)
        words = words[words.index("hermes") + 1 :]
        words = list(insert_chat_command(words, COMMANDS))
        make_parser([word for word in words if not word.startswith("-")]).parse_args(words)


@pytest.mark.parametrize("page", ["index.md", "session-db.md"])
def test_the_first_example_of_a_page_runs(page: str, tmp_path: Path) -> None:
    example = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL
    )[0]
    environment = {**os.environ, "HERMES_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_first_page_opens_with_the_chat_and_the_browser() -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"\(images/(\w+)\.svg\)", page.partition("\n## ")[0]) == ["chat", "browse"]


def test_the_pictures_load_no_fonts_and_show_no_folder_of_a_machine() -> None:
    for picture in (ROOT / "docs" / "images").glob("*.svg"):
        text = picture.read_text(encoding="utf-8")
        assert not re.search(r"url\(\"?http", text), picture
        assert not re.search(r"/(?:tmp|home|Users|root)/", text), picture


def test_every_folder_says_what_it_owns_and_what_it_imports() -> None:
    for init in sorted(SOURCE.rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        assert init.parent == SOURCE or (
            re.search(r"\b[Oo]wns ", text) and re.search(r"\b[Ii]mport", text)
        ), f"{init}: {text}"


def test_the_architecture_names_every_folder() -> None:
    """A folder has its own row in the table, or is named in the row of its parent folder."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("| folder | owns |")[2].partition("\n\n")[0]
    rows = {name: row for row in table.splitlines() for name in re.findall(r"^\| `([\w/]+)/` \|", row)}
    folders = [init.parent.relative_to(SOURCE) for init in SOURCE.rglob("__init__.py")]
    for folder in folders:
        if folder == Path() or str(folder) in rows or folder.parent == Path("gateway/platforms"):
            continue
        assert f"`{folder.name}/`" in rows[str(folder.parent)], folder
    assert {Path(name) for name in rows} <= set(folders)


def test_the_architecture_is_read_in_ten_minutes() -> None:
    """The reader is assumed to read 220 words per minute."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(page.split()) <= 2_200
    assert re.findall(r"!\[[^]]+\]\(images/(\w+\.svg)\)", page) == ["rooms.svg", "message.svg", "append.svg"]


def test_the_diagrams_are_current() -> None:
    """If this test fails, run `python -m tools.diagrams`."""
    for name, drawing in diagrams.draw_all().items():
        assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == drawing, name


def test_the_diagram_of_folders_has_every_folder() -> None:
    folders = {init.parent.name for init in SOURCE.glob("*/__init__.py")}
    assert {name for layer in diagrams.read_layers() for name in layer} == folders == set(diagrams.FOLDERS)


def test_the_diagrams_name_functions_that_exist() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    for step in (*diagrams.MESSAGE_STEPS, *diagrams.APPEND_STEPS):
        for owner, function in re.findall(r"\b([A-Z]\w+|leases|inbox|outbox)\.([a-z_]+)", step.text):
            assert re.search(rf"class {owner}\b", source, re.IGNORECASE), owner
            assert re.search(rf"def {function}\(", source), function


def test_folders_stay_small() -> None:
    for folder in {path.parent for path in SOURCE.rglob("*.py")}:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        name = str(folder.relative_to(SOURCE))
        assert len(modules) <= (18 if name in LARGER_FOLDERS else 15), folder


def test_the_table_of_writers_names_modules() -> None:
    """In the columns "written by" and "read by", a plain name must be that of a module, and a dotted name
    that of a function in a module."""
    page = (ROOT / "docs" / "internals" / "transactions.md").read_text(encoding="utf-8")
    table = page.partition("| table | written by | read by |")[2].partition("\n\n")[0]
    paths = [path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py")]
    names = {"/".join(path.parts[at:]) for path in paths for at in range(len(path.parts))}
    cells = [cell for row in table.splitlines()[2:] for cell in row.split("|")[2:4]]
    assert len(cells) > 40
    for name in re.findall("`([a-z_0-9/]+)`", " ".join(cells)):
        assert name in names, name
    for module, function in re.findall("`([a-z_]+)[.]([a-z_]{5,})`", " ".join(cells)):
        (path,) = SOURCE.rglob(f"{module}.py")
        assert f"def {function}(" in path.read_text(encoding="utf-8")


def test_the_changelog_has_an_entry_for_this_version() -> None:
    from hermes import __version__

    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_verb_is_documented_with_what_is_atomic_and_who_may_call_it() -> None:
    from hermes.store.chats.inbox import Inbox
    from hermes.store.chats.leases import Leases
    from hermes.store.chats.outbox import Outbox
    from hermes.store.chats.routing import Routing
    from hermes.store.jobs.job_runs import JobRuns
    from hermes_state import SessionDB

    page = (ROOT / "docs" / "internals" / "transactions.md").read_text(encoding="utf-8")
    verbs = {name for kind in (SessionDB, Leases, Routing, Inbox, Outbox, JobRuns) for name in dir(kind)}
    missing = [name for name in verbs if name[0].islower() and not re.search(rf"\b{name}\b", page)]
    assert sorted(missing) == []
