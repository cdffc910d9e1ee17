"""A key limits the browser to the conversations of the current project."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.browser.view_state import View
from hermes.store.workspace import WorkspaceName, parse_workspace
from hermes_state import SessionDB
from tests.browser.conftest import AddSession, Browsing


@pytest.fixture
def projects(add_session: AddSession, db: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create two projects, and set the working directory to a folder of the first."""
    for age, name in enumerate(("ours", "theirs", "empty")):
        (tmp_path / name / ".git").mkdir(parents=True)
        (tmp_path / name / "src").mkdir()
        if name != "empty":
            db.set_session_workspace(
                add_session(name, f"the zebra of {name}", title=f"about {name}", age=age),
                tmp_path / name / "src",
            )
    add_session("nowhere", "the zebra of nobody", title="about nothing", age=9)
    monkeypatch.chdir(tmp_path / "ours" / "src")
    return tmp_path


@pytest.mark.usefixtures("projects")
async def test_a_key_shows_only_this_project_in_lists_and_searches(browsing: Browsing) -> None:
    async with browsing() as screen:
        assert len(screen.names) == 3
        await screen.press("ctrl+n")
        assert screen.names == ["about ours"]
        assert screen.status == "1 of 1 · only in ours · by last activity"
        await screen.type("zebra")
        assert screen.names == ["about ours"]
        await screen.press("ctrl+n")
        assert len(screen.names) == 3


@pytest.mark.usefixtures("projects")
async def test_the_filters_show_the_project_and_can_change_it(browsing: Browsing) -> None:
    async with browsing() as screen:
        await screen.press("ctrl+f")
        assert "[ ] only in ours" in screen.text
        await screen.press("tab", "end", "space", "enter")
        assert screen.names == ["about ours"]
        await screen.press("ctrl+f")
        assert "[x] only in ours" in screen.text


async def test_a_project_can_be_chosen_and_an_empty_one_shows_a_hint(
    browsing: Browsing, projects: Path
) -> None:
    for workspace in (parse_workspace(projects / "theirs"), WorkspaceName("/elsewhere", "theirs")):
        async with browsing(View(workspace=workspace)) as screen:
            assert screen.names == ["about theirs"]
            await screen.type("zebra")
            assert screen.names == ["about theirs"]
    async with browsing(View(workspace=parse_workspace(projects / "empty"))) as screen:
        assert "No conversations in" in screen.lines[1]
        assert "^N shows the other projects again." in screen.text
        await screen.press("ctrl+n")
        assert len(screen.names) == 3
