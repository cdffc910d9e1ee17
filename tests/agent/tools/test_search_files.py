"""`search_files` gives the same results with and without ripgrep. The results are limited, and every search
ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from hermes.agent.approvals.request import DENY
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools import search_files
from hermes.agent.tools.access import Access
from hermes.agent.tools.search_files import SearchFiles
from tests.agent.tools.conftest import Person

WAYS = ["", *([found] if (found := shutil.which("rg")) else [])]
"""The paths of ripgrep to test with: an empty path (no ripgrep) and, if it is installed, its real path."""


@pytest.fixture(params=WAYS, ids=lambda way: "ripgrep" if way else "python")
def search(request: pytest.FixtureRequest, access: Access) -> SearchFiles:
    return SearchFiles(access, request.param)


@pytest.fixture
def tree(folder: Path) -> Path:
    for name, text in {
        "README.md": "The retry budget is five.\n",
        "src/upload.py": "import os\nRETRIES = 5\n",
        "src/deep/test_upload.py": "from upload import RETRIES\n",
        "node_modules/x/index.js": "RETRIES\n",
        ".git/config": "RETRIES\n",
        ".gitignore": "node_modules\n",
        ".github/ci.yml": "hidden: yes\n",
    }.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "data.bin").write_bytes(b"\0RETRIES")
    return folder


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"name": "*.py"}, ["src/deep/test_upload.py", "src/upload.py"]),
        ({"name": "*.py", "path": "src/deep"}, ["test_upload.py"]),
        ({"name": "src/**/*.py"}, ["src/deep/test_upload.py", "src/upload.py"]),
        (
            {"content": "RETRIES"},
            ["src/deep/test_upload.py:1:from upload import RETRIES", "src/upload.py:2:RETRIES = 5"],
        ),
        ({"content": r"^RETRIES\s*="}, ["src/upload.py:2:RETRIES = 5"]),
        ({"content": "retr", "ignore_case": True, "name": "*.md"}, ["README.md:1:The retry budget is five."]),
        ({"content": "RETRIES", "path": "src/upload.py"}, ["2:RETRIES = 5"]),
        ({"name": "src/*.{py,js}"}, ["src/upload.py"]),
        ({"name": "[!r]*_upload.*"}, ["src/deep/test_upload.py"]),
        ({"name": "/src/up?oad.py"}, ["src/upload.py"]),
        ({"content": "hidden:"}, [".github/ci.yml:1:hidden: yes"]),
        ({"content": "-n"}, ["nothing was found"]),
        ({"content": "nowhere"}, ["nothing was found"]),
    ],
)
async def test_files_and_lines_are_found(
    search: SearchFiles, context: ToolContext, tree: Path, asked: dict[str, str], answer: list[str]
) -> None:
    output = (await search.run(asked, context)).splitlines()
    prefix = f"{tree}/src/upload.py:" if asked.get("path") == "src/upload.py" else ""
    assert sorted(line.removeprefix(prefix) for line in output) == sorted(answer)


async def test_an_answer_is_bounded_and_says_how_much_more_there_is(
    search: SearchFiles, context: ToolContext
) -> None:
    (context.cwd / "many").write_text("hit " + "x" * 1_000 + "\n" + "hit\n" * 499)
    output = (await search.run({"content": "hit", "limit": 10}, context)).splitlines()
    assert len(output) == 11
    assert output[-1] == "[at least 490 more; narrow it down]"
    assert max(map(len, output)) <= 300


async def test_a_pattern_is_required_and_must_be_valid(search: SearchFiles, context: ToolContext) -> None:
    with pytest.raises(ToolFailed, match="say what to look for"):
        await search.run({}, context)
    with pytest.raises(ToolFailed, match=r"invalid pattern|regex parse error"):
        await search.run({"content": "(unclosed"}, context)
    with pytest.raises(ToolFailed, match="does not exist"):
        await search.run({"name": "*", "path": "nowhere"}, context)


async def test_a_workspace_cannot_put_its_own_modules_into_a_search(
    access: Access, context: ToolContext
) -> None:
    (context.cwd / "json.py").write_text("raise SystemExit('mine')")
    assert await SearchFiles(access, "").run({"name": "*.py"}, context) == "json.py"


async def test_names_with_odd_characters_are_shown_harmlessly(
    search: SearchFiles, context: ToolContext
) -> None:
    (context.cwd / "a\033[31m;rm $(x) '\".txt").write_text("hit")
    assert await search.run({"name": "*.txt"}, context) == "a;rm $(x) '\".txt"


async def test_hidden_files_are_passed_over_by_whatever_name(
    search: SearchFiles, context: ToolContext, home: Path
) -> None:
    (home / ".env").write_text("KEY=findme\n")
    os.link(home / ".env", context.cwd / "hard")
    (context.cwd / "soft").symlink_to(home / ".env")
    (context.cwd / "notes.md").write_text("findme\n")
    assert await search.run({"content": "findme"}, context) == "notes.md:1:findme"
    assert await search.run({"name": "*"}, context) == "notes.md"
    with pytest.raises(ToolFailed, match="belongs to this program"):
        await search.run({"content": "findme", "path": str(home)}, context)
    with pytest.raises(ToolFailed, match="belongs to this program"):
        await search.run({"content": "findme", "path": "soft"}, context)


async def test_a_folder_outside_the_workspace_is_searched_when_the_person_agrees(
    search: SearchFiles, context: ToolContext, person: Person
) -> None:
    other = Path.home() / "other"
    (Path.home() / ".ssh").mkdir()
    other.mkdir()
    (other / "a.txt").write_text("findme\n")
    (Path.home() / ".ssh" / "id").write_text("findme\n")
    assert await search.run({"content": "findme", "path": "~"}, context) == "other/a.txt:1:findme"
    assert person.asked[0].subject == f"read {Path.home()}"
    person.says = DENY
    with pytest.raises(ToolFailed, match="this file was not allowed"):
        await search.run({"content": "findme", "path": "~/other"}, context)


async def test_a_pattern_that_takes_too_long_is_stopped(
    access: Access, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    (context.cwd / "evil").write_text("a" * 200 + "!")
    monkeypatch.setattr(search_files, "SECONDS", 1)
    assert "the search was ended after" in await SearchFiles(access, "").run({"content": "(a+)+$"}, context)


async def test_a_search_is_ended_when_the_person_says_so(access: Access, context: ToolContext) -> None:
    (context.cwd / "evil").write_text("a" * 200 + "!")
    searching = asyncio.create_task(SearchFiles(access, "").run({"content": "(a+)+$"}, context))
    await asyncio.sleep(0.2)
    context.stop.set()
    assert "the search was ended" in await searching
