"""Keys that arrive in one burst have the same effect as slow ones, even before a dialog or a question is
drawn."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual import events

from hermes.browser.dialogs import FilterDialog, HelpScreen
from hermes.browser.lines import Question
from hermes.browser.view_state import View
from hermes_state import SessionDB
from tests.browser.conftest import HOUR, AddSession, Browsing, Screen
from tests.browser.test_list import add_many


def send(screen: Screen, *keys: str) -> None:
    """Send all keys at once, as a terminal does with keys that were typed ahead."""
    characters = {"enter": "\r", "space": " "}
    for key in keys:
        screen.app.post_message(events.Key(key, characters.get(key, key if len(key) == 1 else None)))


async def test_filters_are_ticked_and_applied(browsing: Browsing, add_session: AddSession) -> None:
    add_session("s1", title="one", source="cli", age=60)
    add_session("s2", title="two", source="telegram", age=120)
    async with browsing() as screen:
        send(screen, "ctrl+f", "down", "space", "enter", "ctrl+p")
        await screen.settle()
        assert screen.app.view.sources == ("telegram",)
        assert screen.names == ["two"]
        assert screen.status.startswith("Pinned “two”")


async def test_a_title_is_typed_and_the_next_key_moves(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("s1", title="one", age=60)
    add_session("s2", title="two", age=120)
    async with browsing() as screen:
        send(screen, "ctrl+r", "ctrl+u", *"New", "enter", "down", "ctrl+r", *"!", "enter")
        await screen.settle()
        assert not screen.app.query_one(Question).is_open
    assert (db.get_session_title("s1"), db.get_session_title("s2")) == ("New", "two!")


async def test_an_export_is_written_before_the_next_key(
    browsing: Browsing, add_session: AddSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add_session("s1", title="one", age=60)
    add_session("s2", title="two", age=120)
    async with browsing() as screen:
        send(screen, "ctrl+e", "enter", "down", "ctrl+e", "enter")
        await screen.settle()
    assert sorted(file.name for file in tmp_path.glob("*.md")) == ["one.md", "two.md"]


async def test_the_help_is_opened_and_closed(browsing: Browsing, add_session: AddSession) -> None:
    add_session("s1", title="one")
    async with browsing() as screen:
        send(screen, "f1", "enter", *"on")
        await screen.settle()
        assert not isinstance(screen.app.screen, HelpScreen)
        assert screen.app.search.value == "on"


async def test_a_search_is_done_before_the_key_that_follows_it(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    for name in ("zebra", "horse", "mouse"):
        for number in (1, 2):
            add_session(
                f"{name}{number}", f"the {name} of today", title=f"{name} {number}", age=number * HOUR
            )
    async with browsing(View(found_order="title")) as screen:
        send(screen, *"zebra", "down", "ctrl+d", "escape", *"horse", "ctrl+p", "escape", "end", "ctrl+t")
        await screen.settle()
        assert [row["id"] for row in db.list_trash()] == ["zebra2"]
        pinned = db.list_conversations(pinned_only=True).rows
        assert [row["id"] for row in pinned] == ["horse1"]
        archived = db.list_conversations(archived=True).rows
        assert [row["id"] for row in archived] == ["horse2"]


async def test_the_next_key_acts_after_an_undo_is_complete(
    browsing: Browsing, add_session: AddSession
) -> None:
    add_session("s1", title="one", age=60)
    add_session("s2", title="two", age=120)
    async with browsing() as screen:
        send(screen, "ctrl+d", "ctrl+z", "enter")
        await screen.settle()
    assert screen.app.return_value == "s1"


async def test_a_row_that_is_not_loaded_yet_is_loaded_for_the_next_key(browsing: Browsing) -> None:
    with SessionDB() as store:
        add_many(store, 1_000)
        async with browsing(store=store) as screen:
            send(screen, "end", "enter")
            await screen.settle()
    assert screen.app.return_value == "s00999"


class SlowTrash(SessionDB):
    """A store that waits for the test before it moves a session to the trash."""

    may_go = threading.Event()

    def trash_session(self, session_id: str, *, segment: bool = False) -> list[str]:
        assert self.may_go.wait(30)
        return super().trash_session(session_id, segment=segment)


@pytest.mark.parametrize("key", ["escape", "ctrl+c", "enter"])
async def test_leaving_waits_for_pending_changes(
    browsing: Browsing, add_session: AddSession, db: SessionDB, key: str
) -> None:
    for number in range(3):
        add_session(f"s{number}", age=60 * number)
    SlowTrash.may_go.clear()
    with SlowTrash() as store:
        async with browsing(store=store) as screen:
            send(screen, "ctrl+d", "ctrl+d", key)
            await screen.pilot.pause()
            SlowTrash.may_go.set()
            await screen.settle()
            assert not screen.app.is_running
    assert sorted(row["id"] for row in db.list_trash()) == ["s0", "s1"]


async def test_ctrl_c_always_leaves(browsing: Browsing, add_session: AddSession) -> None:
    add_session("s1", title="one")
    async with browsing() as screen:
        send(screen, "ctrl+f", "ctrl+c")
        await screen.settle()
        assert not screen.app.is_running


async def test_escape_cancels_the_dialog_that_was_opened(browsing: Browsing, add_session: AddSession) -> None:
    add_session("s1", title="one")
    async with browsing() as screen:
        send(screen, "ctrl+f", "space", "escape")
        await screen.settle()
        assert not isinstance(screen.app.screen, FilterDialog)
        assert screen.app.view.sources is None
        assert screen.app.is_running
