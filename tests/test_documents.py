"""The documents say what is so: their examples run, and the map names every room."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hermes"
LARGER_FOLDERS = ("agent", ".", "agent/tools", "server", "store/sessions", "store/sqlite")
"""Folders of sixteen to eighteen modules, which belong together."""


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


def test_every_folder_says_what_it_owns_and_imports_and_the_map_names_it() -> None:
    rooms = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for init in sorted(SOURCE.rglob("__init__.py")):
        folder = init.parent.relative_to(SOURCE)
        text = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        assert folder == Path() or ("Owns " in text and re.search(r"\b[Ii]mport", text)), f"{init}: {text}"
        if folder.parent != Path("gateway/platforms"):  # the map names them together
            assert folder == Path() or f"`{folder}/`" in rooms, folder


def test_folders_stay_small() -> None:
    for folder in {path.parent for path in SOURCE.rglob("*.py")}:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        name = str(folder.relative_to(SOURCE))
        assert len(modules) <= (18 if name in LARGER_FOLDERS else 15), folder


def test_the_table_of_writers_names_modules() -> None:
    """A plain name in the columns "written by" and "read by" is a module; a dotted one is a function of a module."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
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
    from hermes_state import SessionDB

    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    verbs = {name for kind in (SessionDB, Leases, Routing, Inbox, Outbox) for name in dir(kind)}
    missing = [name for name in verbs if name[0].islower() and not re.search(rf"\b{name}\b", page)]
    assert sorted(missing) == []
