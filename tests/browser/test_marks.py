"""Conversations are marked, counted, changed together and restored together."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from hermes.browser import source
from hermes.browser.view_state import View
from hermes_state import SessionDB
from tests.browser.conftest import AddSession, Browsing
from tests.browser.test_list import add_many


def some(add_session: AddSession, count: int = 5) -> None:
    for number in range(count):
        add_session(f"s{number}", f"the zebra number {number}", title=f"number {number}", age=60 * number)


async def test_a_mark_is_set_counted_shown_and_removed(browsing: Browsing, add_session: AddSession) -> None:
    some(add_session)
    async with browsing() as screen:
        await screen.press("ctrl+x", "ctrl+x")
        assert screen.status.startswith("2 marked · 3 of 5")
        assert [line[:13] for line in screen.lines[1:4]] == [
            " ✓ number 0  ",
            " ✓ number 1  ",
            "▌  number 2  ",
        ]
        await screen.press("up", "insert")
        assert screen.status.startswith("1 marked")
        await screen.press("escape")
        assert screen.status.startswith("3 of 5")
        assert screen.app.is_running


async def test_one_key_marks_a_range_and_one_marks_all(browsing: Browsing, add_session: AddSession) -> None:
    some(add_session, 8)
    async with browsing() as screen:
        await screen.press("down", "ctrl+x", "down", "down", "ctrl+y")
        assert list(screen.app.list.marks) == ["s1", "s2", "s3", "s4"]
        await screen.press("ctrl+a")
        assert screen.status.startswith("8 marked")
        await screen.press("ctrl+a")
        assert screen.app.list.marks == {}
        await screen.press("home", "shift+down", "shift+down", "down", "down", "shift+up")
        assert sorted(screen.app.list.marks) == ["s0", "s1", "s2", "s3", "s4"]


async def test_all_and_ranges_include_rows_that_are_not_loaded(browsing: Browsing) -> None:
    with SessionDB() as store:
        add_many(store, 1_200)
        async with browsing(store=store) as screen:
            await screen.press("ctrl+a")
            assert screen.status.startswith("1,200 marked")
            await screen.press("escape", "home", "down", "ctrl+x", *["pagedown"] * 20, "end", "ctrl+y")
            assert screen.status.startswith("1,199 marked")


async def test_marks_stay_while_the_query_changes(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("a", "the zebra", title="stripes")
    add_session("b", "the horse", title="mane")
    async with browsing() as screen:
        await screen.type("zebra")
        await screen.press("ctrl+x", "escape")
        await screen.type("horse")
        await screen.press("ctrl+x")
        assert screen.status.startswith("2 marked · 1 of 1 found")
        await screen.press("ctrl+p")
        assert screen.status.startswith("Pinned 2 conversations")
    assert db.list_conversations(pinned_only=True).total == 2


@pytest.mark.parametrize(("key", "done"), [("ctrl+d", "Deleted"), ("ctrl+t", "Archived")])
async def test_marked_conversations_are_changed_and_restored_together(
    browsing: Browsing, add_session: AddSession, db: SessionDB, key: str, done: str
) -> None:
    some(add_session)
    async with browsing() as screen:
        await screen.press("ctrl+x", "down", "ctrl+x", key)
        assert screen.status == f"{done} 2 conversations · ^Z to undo"
        assert screen.names == ["number 1", "number 3", "number 4"]
        assert screen.app.list.marks == {}
        assert db.list_conversations().total == 3
        await screen.press("ctrl+z")
        assert screen.status == f"Undone: {done} 2 conversations"
        assert len(screen.names) == 5
    assert db.list_trash() == []
    assert db.list_conversations().total == 5


@pytest.mark.parametrize(
    ("key", "verb", "done"), [("ctrl+d", "Delete", "Deleted"), ("ctrl+t", "Archive", "Archived")]
)
async def test_deleting_many_conversations_needs_a_confirmation(
    browsing: Browsing, add_session: AddSession, db: SessionDB, key: str, verb: str, done: str
) -> None:
    some(add_session, 21)
    async with browsing() as screen:
        for answer in (("enter",), ("n", "enter"), ("x", "y", "enter"), ("y", "escape")):
            await screen.press("ctrl+a", key)
            assert f"{verb} 21 conversations? [y/N]" in screen.text
            await screen.press(*answer)
            assert "[y/N]" not in screen.text
            assert len(screen.app.list.marks) == db.list_conversations().total == 21
            await screen.press("ctrl+a")
        await screen.press("ctrl+a", key, "Y", "enter")
        assert screen.status == f"{done} 21 conversations · ^Z to undo"
        assert db.list_conversations().total == 0
        await screen.press("ctrl+z", "ctrl+a", "ctrl+x", key)
        assert screen.status == f"{done} 20 conversations · ^Z to undo", "20 need no question"


class Gated(SessionDB):
    """A store that moves only as many sessions to the trash as the test allows."""

    permits = threading.Semaphore(0)

    def trash_session(self, session_id: str, *, segment: bool = False) -> list[str]:
        assert self.permits.acquire(timeout=30)
        return super().trash_session(session_id, segment=segment)


@pytest.mark.parametrize("kept", [0, 1])
async def test_conversations_that_are_being_deleted_do_not_reappear(
    browsing: Browsing, add_session: AddSession, db: SessionDB, kept: int
) -> None:
    some(add_session, 60)  # ten of them are not loaded
    with Gated() as store:
        async with browsing(store=store) as screen:
            await screen.press("ctrl+a", *["ctrl+x"] * kept, "ctrl+d", "y")
            await screen.pilot.press("enter")
            await screen.wait_for(lambda: screen.app.list.rows.total == kept)
            Gated.permits.release(30)
            await screen.wait_for(lambda: len(db.list_trash()) == 30)
            await screen.pilot.press("n", "u", "m")
            await screen.wait_for(lambda: screen.app.view.query == "num")
            await screen.wait_for(lambda: screen.app.list.rows.of_search)
            assert screen.app.list.rows.total == kept
            await screen.pilot.press("ctrl+u", "end")
            await screen.wait_for(lambda: not screen.app.list.rows.of_search)
            assert screen.app.list.rows.total == kept
            assert "elsewhere" not in screen.text
            Gated.permits.release(30 - kept)
            await screen.settle()
            assert screen.status == f"Deleted {60 - kept} conversations · ^Z to undo"
            assert screen.app.list.rows.total == kept


async def test_pinning_several_pins_the_others_and_undo_unpins_only_those(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session)
    db.pin_session("s0")
    async with browsing() as screen:
        await screen.press("ctrl+x", "ctrl+x", "ctrl+x", "ctrl+p")
        assert screen.status.startswith("Pinned 2 conversations")
        await screen.press("ctrl+z")
        assert [row["id"] for row in db.list_conversations(pinned_only=True).rows] == ["s0"]
        await screen.press("ctrl+p", "ctrl+p")
        assert screen.status.startswith("Unpinned 3 conversations")


async def test_tags_in_common_are_edited_and_the_others_stay(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session, 2)
    db.add_tags("s0", "work", "old")
    db.add_tags("s1", "work")
    async with browsing(size=(160, 30)) as screen:
        assert "number 0  #old #work" in screen.lines[1]
        await screen.press("ctrl+a", "ctrl+g")
        assert "Tags of 2 conversations: work" in screen.text
        await screen.press("ctrl+u", *"New Project,", *" #x", "enter")
        assert screen.status == "Tagged 2 conversations · ^Z to undo"
        assert (db.tags_of("s0"), db.tags_of("s1")) == (["new project", "old", "x"], ["new project", "x"])
        assert "#new project #old #x" in screen.text
        await screen.press("ctrl+z")
        assert (db.tags_of("s0"), db.tags_of("s1")) == (["old", "work"], ["work"])
        await screen.press("escape", "home", "ctrl+g")
        assert "Tags of “number 0”: old, work" in screen.text
        await screen.press("ctrl+u", *"t" * 51, "enter")
        assert "at most 50 characters" in screen.text
        assert "Tags of" in screen.text


async def test_several_are_exported_to_one_file_or_a_folder(
    browsing: Browsing, add_session: AddSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    some(add_session)
    (tmp_path / "folder").mkdir()
    async with browsing(size=(160, 30)) as screen:
        await screen.press("ctrl+x", "ctrl+x", "ctrl+e")
        assert "Export 2 conversations to: 2-conversations.md" in screen.text
        await screen.press("ctrl+u", *"two.jsonl", "enter")
        assert screen.status == f"Exported 2 conversations to {tmp_path / 'two.jsonl'}"
        await screen.press("ctrl+e", "ctrl+u", *"folder", "enter")
        assert screen.status == f"Exported 2 conversations to {tmp_path / 'folder'}"
    lines = (tmp_path / "two.jsonl").read_text().splitlines()
    assert {json.loads(line)["id"] for line in lines} == {"s0", "s1"}
    assert len(list((tmp_path / "folder").iterdir())) == 2


async def test_a_marked_conversation_that_is_gone_is_reported_and_the_others_are_changed(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session, 3)
    async with browsing() as screen:
        await screen.press("ctrl+a")
        with SessionDB() as elsewhere:
            elsewhere.delete_session("s1")
        await screen.press("ctrl+p")
        assert screen.status == "“number 1” is gone: it was deleted elsewhere"
        assert db.list_conversations(pinned_only=True).total == 2
        await screen.press("ctrl+z")
        assert db.list_conversations(pinned_only=True).total == 0


class Failing(SessionDB):
    """A store in which the second attempt to pin a conversation fails."""

    count = 0

    def pin_session(self, session_id: str, pinned: bool = True, *, segment: bool = False) -> bool:
        self.count += pinned
        if self.count > 1 and pinned:
            raise OSError("no more pins")
        return super().pin_session(session_id, pinned, segment=segment)


async def test_changes_before_an_error_can_be_undone(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session, 3)
    with Failing() as store:
        async with browsing(store=store) as screen:
            await screen.press("ctrl+a", "ctrl+p")
            assert "no more pins" in screen.text
            assert db.list_conversations(pinned_only=True).total == 1
            await screen.press("ctrl+z")
            assert db.list_conversations(pinned_only=True).total == 0


async def test_all_results_of_a_search_are_counted_reached_and_marked(
    browsing: Browsing, add_session: AddSession, db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MOST_FOUND", 10)
    some(add_session, 25)
    async with browsing(View(query="zebra")) as screen:
        assert screen.status == "1 of 25 found · best first"
        assert len(set(screen.names)) == 25
        first = screen.names[:10]
        await screen.press("end")
        assert screen.status.startswith("25 of 25 found")
        await screen.press("ctrl+d")
        assert screen.app.list.cursor == 23, "still at the end"
        assert screen.app.list.rows.total == 24
        assert screen.names[:10] == first
        await screen.press("ctrl+a", "ctrl+t", "y", "enter")
        assert screen.status.startswith("Archived 24 conversations")
    assert db.list_conversations(archived=True).total == 24
