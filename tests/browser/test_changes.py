"""The browser renames, pins, archives and deletes conversations, and undoes each change."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes.browser.view_state import View
from hermes_state import SessionDB
from tests.browser.conftest import AddSession, Browsing


class Slow(SessionDB):
    """A store that waits for the test before it moves a session to the trash."""

    may_go = threading.Event()

    def trash_session(self, session_id: str, *, segment: bool = False) -> list[str]:
        assert self.may_go.wait(30)
        return super().trash_session(session_id, segment=segment)


async def test_delete_moves_to_the_trash_at_once_and_can_be_undone(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    for number in range(4):
        add_session(f"s{number}", title=f"number {number}", age=number)
    async with browsing() as screen:
        await screen.press("down", "ctrl+d")
        assert screen.status == "Deleted “number 1” · ^Z to undo"
        assert screen.names == ["number 0", "number 2", "number 3"]
        assert screen.current == "number 2"
        assert [row["id"] for row in db.list_trash()] == ["s1"]
        await screen.press("ctrl+z")
        assert screen.status == "Undone: Deleted “number 1”"
        assert screen.names == ["number 0", "number 1", "number 2", "number 3"]
        assert screen.current == "number 1"
        assert db.list_trash() == []


async def test_a_key_pressed_twice_deletes_two_and_both_can_be_undone(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    for number in range(4):
        add_session(f"s{number}", age=number)
    async with browsing() as screen:
        await screen.press("down", "ctrl+d", "ctrl+d")
        assert screen.names == ["hello from s0", "hello from s3"]
        await screen.press("ctrl+z", "ctrl+z")
        assert len(screen.names) == 4
        assert db.list_trash() == []
        await screen.press("ctrl+z")
        assert screen.status == "There is nothing to undo"


async def test_a_key_acts_on_the_row_under_the_cursor_at_that_time(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    for number in range(4):
        add_session(f"s{number}", age=number)
    with Slow() as store:
        async with browsing(store=store) as screen:
            await screen.pilot.press("ctrl+d", "down", "ctrl+d", "up")
            await screen.wait_for(
                lambda: (
                    (screen.names, screen.current) == (["hello from s1", "hello from s3"], "hello from s1")
                )
            )
            assert db.list_trash() == []
            Slow.may_go.set()
            await screen.settle()
            assert [row["id"] for row in db.list_trash()] == ["s2", "s0"]
            assert screen.current == "hello from s1"


async def test_undo_goes_back_to_where_it_was_done(browsing: Browsing, add_session: AddSession) -> None:
    for number in range(120):
        add_session(f"s{number:03}", age=number * 60)
    async with browsing() as screen:
        await screen.press("end", "ctrl+d", "home")
        assert screen.current == "hello from s000"
        await screen.press("ctrl+z")
        assert screen.current == "hello from s119"
        assert screen.app.list.rows.total == 120


async def test_deleting_a_search_result(browsing: Browsing, add_session: AddSession) -> None:
    add_session("a", "zebra one")
    add_session("b", "zebra two")
    async with browsing(View(query="zebra")) as screen:
        gone = screen.current
        await screen.press("ctrl+d")
        assert len(screen.names) == 1
        await screen.press("ctrl+z")
        assert screen.current == gone


async def test_a_pinned_row_moves_only_when_the_list_is_loaded_again(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("a", age=1)
    add_session("b", age=2)
    async with browsing() as screen:
        await screen.press("down", "ctrl+p")
        assert screen.names == ["hello from a", "hello from b"]
        assert "★ hello from b" in screen.lines[2]
        assert db.list_conversations(pinned_only=True).total == 1
        await screen.press("ctrl+p")
        assert screen.status.startswith("Unpinned “hello from b”")
        await screen.press("ctrl+z")
        assert screen.names == ["hello from b", "hello from a"]
        assert screen.current == "hello from b"


async def test_archive_and_back(browsing: Browsing, add_session: AddSession, db: SessionDB) -> None:
    add_session("a", age=1)
    add_session("b", age=2)
    async with browsing() as screen:
        await screen.press("ctrl+t")
        assert screen.names == ["hello from b"]
        assert screen.status.startswith("Archived “hello from a”")
        assert db.list_conversations(archived=True).total == 1
        await screen.press("ctrl+z")
        assert screen.names == ["hello from a", "hello from b"]
    async with browsing(View(archived=True)) as screen:
        await screen.press("ctrl+t")
        assert "▢ hello from a" in screen.lines[1]
        await screen.press("ctrl+t")
        assert screen.status.startswith("Unarchived")
        assert "▢" not in screen.lines[1]


async def test_rename_and_back(browsing: Browsing, add_session: AddSession, db: SessionDB) -> None:
    add_session("a", title="Old")
    async with browsing() as screen:
        await screen.press("ctrl+r")
        assert "New title: Old" in screen.text
        await screen.press("ctrl+u", *"New", "enter")
        assert screen.names == ["New"]
        assert db.get_session_title("a") == "New"
        assert screen.app.search.has_focus
        await screen.press("ctrl+z")
        assert screen.names == ["Old"]
        await screen.press("ctrl+r", "ctrl+u", "enter")
        assert db.get_session_title("a") is None
        await screen.press("ctrl+z")
        assert db.get_session_title("a") == "Old"


async def test_a_title_in_use_is_refused_and_can_be_changed(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("a", title="Taken", age=2)
    add_session("b", title="Other", age=1)
    async with browsing() as screen:
        await screen.press("ctrl+r", "ctrl+u", *"Taken", "enter")
        assert "already in use" in screen.text
        await screen.press("2", "enter")
        assert db.get_session_title("b") == "Taken2"


async def test_escape_leaves_a_question_and_keys_of_the_list_mean_nothing_there(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("a", title="Old")
    async with browsing() as screen:
        await screen.press("ctrl+r", "x", "ctrl+p", "escape")
        assert screen.app.search.has_focus
        assert db.get_session_title("a") == "Old"
        assert db.list_conversations(pinned_only=True).total == 0
        assert "New title" not in screen.text


@pytest.mark.parametrize("key", ["ctrl+d", "ctrl+p", "ctrl+t"])
async def test_changing_a_deleted_conversation_reports_it(
    browsing: Browsing, add_session: AddSession, key: str
) -> None:
    add_session("a", age=1)
    add_session("b", age=2)
    async with browsing() as screen:
        with SessionDB() as elsewhere:
            elsewhere.delete_session("a")
        await screen.press(key)
        assert screen.status == "“hello from a” is gone: it was deleted elsewhere"
        assert screen.names == ["hello from b"]


async def test_a_read_only_store_is_reported_in_one_line(add_session: AddSession, browsing: Browsing) -> None:
    add_session("a")
    with SessionDB(read_only=True) as store:
        async with browsing(store=store) as screen:
            await screen.press("ctrl+d")
            assert "is open read-only" in " ".join(screen.text.split())
            assert screen.names == ["hello from a"]


async def test_a_closed_store_is_reported_in_one_line(add_session: AddSession, browsing: Browsing) -> None:
    add_session("a")
    store = SessionDB()
    async with browsing(store=store) as screen:
        store.close()
        await screen.type("hel")
        assert "closed" in screen.status
        assert screen.app.is_running


async def test_an_unreadable_conversation_is_reported_in_one_line(
    add_session: AddSession, browsing: Browsing
) -> None:
    add_session("a", age=1)
    add_session("b", age=2)
    store = SessionDB()
    async with browsing(store=store) as screen:
        store.close()
        await screen.press("down")
        assert "closed" in screen.status
        assert screen.current == "hello from b"


async def test_a_refresh_shows_changes_of_other_processes(
    add_session: AddSession, browsing: Browsing, db: SessionDB
) -> None:
    add_session("a", age=5)
    async with browsing() as screen:
        add_session("b")
        db.set_session_title("a", "named elsewhere")
        await screen.press("ctrl+l")
        assert screen.names == ["hello from b", "named elsewhere"]
        assert screen.current == "named elsewhere"


async def test_an_export_needs_a_format_and_a_folder_and_the_question_stays(
    browsing: Browsing, add_session: AddSession
) -> None:
    add_session("a", title="My plan: part 1/2")
    async with browsing() as screen:
        await screen.press("ctrl+e")
        assert "Export to: My-plan-part-1-2.md" in screen.text
        await screen.press("ctrl+u", *"plan", "enter")
        assert "end the name in .jsonl, .md or .html" in screen.text
        await screen.press("ctrl+u", *"/nowhere/at/all.md", "enter")
        assert "there is no folder /nowhere/at" in screen.text
        assert "Export to:" in screen.text
        assert "Exported" not in screen.text


async def test_an_export_is_written_and_replaces_only_an_earlier_one(
    browsing: Browsing, add_session: AddSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add_session("a", "hello there", title="Plan")
    (tmp_path / "mine.md").write_text("mine")
    async with browsing(size=(160, 30)) as screen:
        await screen.press("ctrl+e", "enter")
        assert screen.status == f"Exported “Plan” to {tmp_path / 'Plan.md'}"
        assert "hello there" in (tmp_path / "Plan.md").read_text()
        assert screen.app.search.has_focus
        await screen.press("ctrl+e", "enter")
        assert screen.status.endswith("the previous export is Plan.md~")
        await screen.press("ctrl+e", "ctrl+u", *"mine.md", "enter")
        assert "mine.md exists and is not an earlier export; choose another name" in screen.text
        assert "--force" not in screen.text
        await screen.press("ctrl+u", *".", "enter")
        assert screen.status.endswith(f"to {tmp_path / 'Plan-a.md'}")
    assert (tmp_path / "mine.md").read_text() == "mine"


class SlowExport(SessionDB):
    """A store that waits for the test before it reads a session for an export."""

    reads, may_go = threading.Semaphore(0), threading.Event()

    def export_session(self, session_id: str, *, redact: bool = False) -> dict[str, Any] | None:
        self.reads.release()
        assert self.may_go.wait(30)
        return super().export_session(session_id, redact=redact)


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_an_export_is_stopped_and_leaves_nothing(
    browsing: Browsing, add_session: AddSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    SlowExport.may_go.clear()
    add_session("a", title="Plan")
    with SlowExport() as store:
        async with browsing(store=store) as screen:
            await screen.press("ctrl+e")
            await screen.pilot.press("enter", "enter")
            assert await asyncio.to_thread(SlowExport.reads.acquire, timeout=30)
            while "Esc stops" not in screen.text:
                await screen.pilot.pause(0.01)
            assert len(list(tmp_path.glob(".Plan.md.*"))) == 1
            await screen.pilot.press(key)
            SlowExport.may_go.set()
            if key == "escape":
                await screen.settle()
                assert "Stopped; “Plan” was not exported" in screen.text
                assert "Export to: Plan.md" in screen.text
                await screen.press("escape")
                assert screen.app.search.has_focus
    async with asyncio.timeout(30):  # the program waits for its threads when it ends
        while list(tmp_path.glob(".Plan.md.*")):
            await asyncio.sleep(0.01)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


async def test_exporting_a_deleted_conversation_reports_it(
    browsing: Browsing, add_session: AddSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add_session("a", title="Plan")
    async with browsing() as screen:
        with SessionDB() as elsewhere:
            elsewhere.delete_session("a")
        await screen.press("ctrl+e", "enter")
        assert screen.status == "“Plan” is gone: it was deleted elsewhere"
    assert not (tmp_path / "Plan.md").exists()
