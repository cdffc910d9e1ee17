"""The filter dialog, and the list after a filter is applied."""

from __future__ import annotations

from hermes.browser.source import list_sources
from hermes.browser.view_state import View, show_everything
from hermes.store.workspace import WorkspaceName
from hermes_state import SessionDB
from tests.browser.conftest import AddSession, Browsing


def some(add_session: AddSession, db: SessionDB) -> None:
    add_session("a", source="cli", age=60)
    add_session("b", source="telegram", age=120)
    add_session("c", source="cron", age=180)
    add_session("d", source="cli", age=240)
    db.set_session_archived("d", True)


def test_all_sources_are_counted(add_session: AddSession, db: SessionDB) -> None:
    assert list_sources(db) == []
    some(add_session, db)
    assert list_sources(db) == [("cli", 2), ("cron", 1), ("telegram", 1)]


async def test_a_source_is_ticked_and_reset(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session, db)
    async with browsing() as screen:
        await screen.press("ctrl+f")
        assert "[ ] cli  2" in screen.text
        await screen.press("down", "space", "enter")
        assert screen.names == ["hello from c"]
        assert "cron" in screen.status
        await screen.press("ctrl+f")
        assert "[x] cron  1" in screen.text
        await screen.press("ctrl+x")
        assert "[ ] cron  1" in screen.text, "the dialog stays, with the defaults"
        assert screen.names == ["hello from c"]
        await screen.press("enter")
        assert screen.names == ["hello from a", "hello from b"]


async def test_a_reset_covers_every_filter_and_can_be_cancelled_or_changed(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session, db)
    everything = show_everything(View(sources=("cli",), workspace=WorkspaceName("/nowhere")))
    async with browsing(everything) as screen:
        await screen.press("ctrl+f", "ctrl+x", "escape")
        assert screen.app.view == everything
        await screen.press("ctrl+f", "ctrl+x", "enter")
        assert screen.app.view == View()
        await screen.press("ctrl+f", "ctrl+x", "space", "enter")
        assert screen.app.view == View(sources=("cli",))


async def test_kinds_and_the_archive_are_ticked(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session, db)
    async with browsing() as screen:
        await screen.press("ctrl+f", "tab", "down", "space", "enter")
        assert screen.names == ["hello from a", "hello from b", "hello from c"]
        assert "chats, jobs" in screen.status
        await screen.press("ctrl+f", "tab", "end", "up", "space", "enter")
        assert screen.names == ["hello from a", "hello from b", "hello from c", "hello from d"]


async def test_escape_changes_nothing(browsing: Browsing, add_session: AddSession, db: SessionDB) -> None:
    some(add_session, db)
    async with browsing() as screen:
        await screen.press("ctrl+f", "space", "escape")
        assert screen.names == ["hello from a", "hello from b"]
        assert screen.app.search.has_focus


async def test_the_view_of_everything_hides_nothing(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session, db)
    async with browsing(show_everything(View())) as screen:
        assert len(screen.names) == 4
        assert "hidden" not in screen.status


async def test_a_source_filter_applies_to_lists_and_searches(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session, db)
    async with browsing(View(sources=("cron",))) as screen:
        assert screen.names == ["hello from c"]
        await screen.type("hello")
        assert screen.names == ["hello from c"]
