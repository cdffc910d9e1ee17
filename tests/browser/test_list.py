"""The list shows its rows and a notice about hidden rows. It reads only a few rows of a large store."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hermes.browser.rows import KEPT, PAGE
from hermes.browser.view_state import View
from hermes.store.sessions.listing import ConversationPage
from hermes_state import SessionDB
from tests.browser.conftest import DAY, HOUR, AddSession, Browsing
from tests.stored_rows import change_each

INSERT = "INSERT INTO sessions (id, source, started_at) VALUES (?, 'cli', ?)"


class Counting(SessionDB):
    """A store that counts the rows that it reads for lists."""

    rows_read = 0

    def list_conversations(self, **asked: Any) -> ConversationPage:
        page = super().list_conversations(**asked)
        self.rows_read += len(page.rows)
        return page


def add_many(store: SessionDB, count: int) -> None:
    """Insert `count` sessions with plain SQL, as another program would. Their start times are one minute apart,
    and `s00000` is the newest."""
    now = time.time()
    change_each(store, INSERT, ((f"s{number:05}", now - number * 60) for number in range(count)))


async def test_conversations_are_shown_newest_first_with_source_and_time(
    browsing: Browsing, add_session: AddSession
) -> None:
    add_session("a", title="Retry budget", age=2 * HOUR)
    add_session("b", "What about the weather?", source="telegram", age=3 * DAY + HOUR)
    async with browsing() as screen:
        assert screen.names == ["Retry budget", "What about the weather?"]
        assert "▌ Retry budget" in screen.lines[1]
        assert screen.lines[1].split("│")[0].split("╭")[0].rstrip().endswith("cli          2h ago")
        assert "telegram     3d ago" in screen.lines[2]
        assert screen.status == "1 of 2 · by last activity"


async def test_an_empty_store_says_what_to_do(browsing: Browsing) -> None:
    async with browsing() as screen:
        assert screen.status == "no conversations · by last activity"
        assert "No conversations yet." in screen.lines[1]
        assert "hermes chat" in screen.text
        await screen.press("enter", "ctrl+d", "ctrl+p", "ctrl+r", "ctrl+z", "down", "end", "tab")
        assert screen.app.is_running


async def test_hidden_conversations_are_counted(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("mine")
    add_session("nightly", source="cron")
    db.set_session_archived(add_session("old"), True)
    async with browsing() as screen:
        assert screen.names == ["hello from mine"]
        assert "1 archived, 1 cron hidden" in screen.status


async def test_pinned_conversations_come_first_and_are_marked(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("new", age=HOUR)
    db.pin_session(add_session("old", age=DAY))
    async with browsing() as screen:
        assert screen.names == ["hello from old", "hello from new"]
        assert "★ hello from old" in screen.lines[1]


@pytest.mark.parametrize("count", [200, 10_000])
async def test_the_number_of_rows_read_does_not_depend_on_the_size_of_the_store(
    browsing: Browsing, count: int
) -> None:
    store = Counting()
    with store:
        add_many(store, count)
        async with browsing(store=store) as screen:
            assert screen.app.list.rows.total == count
            assert store.rows_read == PAGE
            await screen.press("end")
            assert store.rows_read <= 3 * PAGE
            assert screen.app.list.current is not None
            assert screen.app.list.current.id == f"s{count - 1:05}"


async def test_only_a_limited_number_of_rows_is_kept_while_scrolling(browsing: Browsing) -> None:
    with SessionDB() as store:
        add_many(store, 2 * KEPT)
        async with browsing(store=store, size=(60, 250)) as screen:
            while screen.app.list.cursor < 2 * KEPT - 1:
                await screen.press("pagedown")
            assert len(screen.app.list.rows) == KEPT
            await screen.press("home")
            assert screen.app.list.current is not None
            assert screen.app.list.current.id == "s00000"


async def test_arrows_move_while_the_query_keeps_the_focus(
    browsing: Browsing, add_session: AddSession
) -> None:
    for number in range(5):
        add_session(f"s{number}", age=number)
    async with browsing() as screen:
        assert screen.app.search.has_focus
        await screen.press("down", "down")
        assert screen.current == "hello from s2"
        await screen.press("up")
        assert screen.current == "hello from s1"
        await screen.press("end", "down")
        assert screen.current == "hello from s4"
        await screen.press("home", "up")
        assert screen.current == "hello from s0"
        assert screen.app.search.has_focus


async def test_a_limit_is_applied(browsing: Browsing, add_session: AddSession) -> None:
    for number in range(5):
        add_session(f"s{number}", age=number)
    async with browsing(View(limit=3)) as screen:
        assert screen.names == ["hello from s0", "hello from s1", "hello from s2"]


async def test_the_order_can_be_changed(browsing: Browsing, add_session: AddSession, db: SessionDB) -> None:
    add_session("b", title="banana", age=2 * HOUR)
    add_session("a", title="Apple", age=HOUR)
    db.append_message("b", "user", "again")
    async with browsing() as screen:
        assert screen.names == ["banana", "Apple"]
        await screen.press("ctrl+s")
        assert screen.names == ["Apple", "banana"]
        assert screen.status.endswith("by start")
        await screen.press("ctrl+s")
        assert screen.names == ["Apple", "banana"]
        assert screen.status.endswith("by title")
        await screen.press("ctrl+s")
        assert screen.names == ["banana", "Apple"]


async def test_a_click_chooses_a_row_and_a_double_click_resumes_it(
    browsing: Browsing, add_session: AddSession
) -> None:
    add_session("a", age=1)
    add_session("b", age=2)
    async with browsing() as screen:
        await screen.pilot.click("#list", offset=(5, 1))
        await screen.settle()
        assert screen.current == "hello from b"
        await screen.pilot.click("#list", offset=(5, 1), times=2)
        await screen.settle()
    assert screen.app.return_value == "b"


async def test_stored_text_is_not_interpreted_as_markup_or_control_sequences(
    browsing: Browsing, add_session: AddSession
) -> None:
    add_session(
        "a", "see [red]this[/red] \x1b[2J\x07\u202e[link=x]", title="[bold]loud[/bold] [/] [@click=app.quit]x"
    )
    async with browsing() as screen:
        assert "[bold]loud[/bold] [/] [@click=" in screen.lines[1]
        seen = "".join(screen.text.split())
        assert all(part in seen for part in ("see[red]this[/red]", r"\x1b[2J", "[link=x]"))
        assert not {"\x1b", "\x07", "\u202e"} & set(screen.text)
        await screen.press("ctrl+p")
        assert "Pinned “[bold]loud[/bold] [/]…”" in screen.status
