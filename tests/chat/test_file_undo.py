"""`/undo` and `/redo` of exchanges in which the agent edited files: the files can be restored too."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hermes.agent.edit_journal import EditJournal
from hermes_state import SessionDB
from tests.chat.conftest import SEEN, Typing
from tests.chat.tool_chat import call, calls, with_tools

CLEAR = "\x03"
"""Ctrl-C. It clears the text that an undo has put into the prompt."""


def list_states(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (path.read_text(), path.stat().st_mode & 0o777)
        for path in folder.rglob("*")
        if path.is_file() and "home" not in path.parts[len(folder.parts) :]
    }


@pytest.fixture
def folder(tmp_path: Path, home: Path) -> Path:
    (home / "config.yaml").write_text("approvals:\n  destructive_slash_confirm: false\n  mode: 'off'\n")
    (tmp_path / "old.txt").write_text("old\n")
    (tmp_path / "old.txt").chmod(0o640)
    return tmp_path


EDITS = calls(
    ["write_file", {"path": "old.txt", "content": "new\n"}],
    ["write_file", {"path": "made/here.txt", "content": "made\n"}],
)
AGAIN = call("patch", path="old.txt", old_text="new", new_text="newer")


@pytest.mark.parametrize("incognito", [False, True])
async def test_files_are_restored_and_edited_again(typing: Typing, folder: Path, incognito: bool) -> None:
    before = list_states(folder)
    shown = await typing(
        *(EDITS, AGAIN), keys=f"/undo 2\r{SEEN}y{CLEAR}", parts=with_tools(), incognito=incognito
    )
    assert "These files were edited since that message:" in shown
    assert "old.txt restore its old content" in " ".join(shown.split())
    assert "here.txt delete it" in " ".join(shown.split())
    assert list_states(folder) == before
    assert not (folder / "made").exists()


async def test_redo_edits_the_files_again(typing: Typing, folder: Path, db: SessionDB) -> None:
    await typing(EDITS, AGAIN, parts=with_tools())
    edited = list_states(folder)
    (row,) = db.list_sessions_rich()
    await typing("/undo", keys=f"{SEEN}y{CLEAR}", parts=with_tools(), resuming=row["id"])
    assert (folder / "old.txt").read_text() == "new\n"
    await typing("/undo", keys=f"{SEEN}y{CLEAR}", parts=with_tools(), resuming=row["id"])
    assert (folder / "old.txt").read_text() == "old\n"
    shown = await typing("/redo", keys=f"{SEEN}y{CLEAR}", parts=with_tools(), resuming=row["id"])
    assert "Brought back" in shown
    assert list_states(folder) == edited
    await typing("/undo 2", keys=f"{SEEN}y{CLEAR}", parts=with_tools(), resuming=row["id"])
    assert (folder / "old.txt").read_text() == "old\n"


async def test_the_answer_no_keeps_the_files(typing: Typing, folder: Path) -> None:
    shown = await typing(EDITS, "/undo", keys=f"{SEEN}n{CLEAR}", parts=with_tools())
    assert "Left unchanged:" in shown
    assert (folder / "old.txt").read_text() == "new\n"


async def test_a_file_that_was_changed_since_is_left_alone(
    typing: Typing, folder: Path, db: SessionDB
) -> None:
    await typing(EDITS, parts=with_tools())
    (folder / "old.txt").write_text("mine\n")
    (row,) = db.list_sessions_rich()
    shown = await typing("/undo", keys=f"{SEEN}y{CLEAR}", parts=with_tools(), resuming=row["id"])
    assert "(changed since)" in " ".join(shown.split())
    assert (folder / "old.txt").read_text() == "mine\n"
    assert not (folder / "made").exists()


async def test_nothing_is_deleted_through_a_link(typing: Typing, folder: Path, db: SessionDB) -> None:
    await typing(EDITS, parts=with_tools())
    elsewhere = folder / "elsewhere"
    (folder / "made").rename(elsewhere)
    (folder / "made").symlink_to(elsewhere)
    (row,) = db.list_sessions_rich()
    shown = await typing("/undo", keys=f"{SEEN}y{CLEAR}", parts=with_tools(), resuming=row["id"])
    assert "(changed since)" in " ".join(shown.split())
    assert (elsewhere / "here.txt").read_text() == "made\n"
    assert (folder / "old.txt").read_text() == "old\n"


async def test_a_mode_that_was_changed_since_is_kept(typing: Typing, folder: Path, db: SessionDB) -> None:
    await typing(EDITS, parts=with_tools())
    (folder / "old.txt").chmod(0o755)
    (row,) = db.list_sessions_rich()
    await typing("/undo", keys=f"{SEEN}y{CLEAR}", parts=with_tools(), resuming=row["id"])
    assert list_states(folder)["old.txt"] == ("old\n", 0o755)


async def test_a_change_between_two_edits_is_not_lost(typing: Typing, folder: Path, db: SessionDB) -> None:
    await typing(EDITS, parts=with_tools())
    (row,) = db.list_sessions_rich()
    (folder / "old.txt").write_text("new\nmine\n")
    await typing(AGAIN, parts=with_tools(), resuming=row["id"])
    shown = await typing("/undo 2", keys=f"{SEEN}y{CLEAR}", parts=with_tools(), resuming=row["id"])
    assert "(changed by someone else between the edits)" in " ".join(shown.split())
    assert (folder / "old.txt").read_text() == "newer\nmine\n"
    assert not (folder / "made").exists()


async def test_without_edited_files_nothing_is_asked(typing: Typing, folder: Path) -> None:
    shown = await typing(EDITS, "hello", "/undo", CLEAR + "more", parts=with_tools())
    assert "edited these files" not in shown
    assert (folder / "old.txt").read_text() == "new\n"


async def test_old_contents_go_with_the_conversation(
    typing: Typing, folder: Path, db: SessionDB, home: Path
) -> None:
    await typing(EDITS, parts=with_tools())
    kept = home / "sessions" / "edits"
    assert b"old\n" in [file.read_bytes() for file in kept.rglob("*.before")]
    assert all(file.stat().st_mode & 0o077 == 0 for file in kept.rglob("*"))
    (row,) = db.list_sessions_rich()
    db.delete_session(row["id"], sessions_dir=home / "sessions")
    assert list(kept.rglob("*.*")) == []


def fill_journal(home: Path) -> Path:
    """Create edits of three conversations: one with expired edits, and two with 300 MB of edits each."""
    kept = home / "sessions" / "edits"
    for name, age_days, size in (("expired", 31, 1), ("older", 2, 300_000_000), ("newer", 1, 300_000_000)):
        (kept / name).mkdir(parents=True)
        with (kept / name / "1.before").open("wb") as file:
            file.truncate(size)  # a sparse file, which takes no space
        changed_at = time.time() - age_days * 86_400
        os.utime(kept / name, (changed_at, changed_at))
    return kept


def test_the_first_edit_of_a_conversation_removes_old_contents_beyond_the_limits(
    tmp_path: Path, home: Path
) -> None:
    kept = fill_journal(home)
    EditJournal().add(home / "sessions", "other", tmp_path / "made.txt", b"new")
    assert not {"expired", "older"} & set(os.listdir(kept))
    assert (kept / "newer" / "1.before").exists()
    assert len(os.listdir(kept)) == 2


async def test_starting_a_chat_removes_old_contents_beyond_the_limits(typing: Typing, home: Path) -> None:
    kept = fill_journal(home)
    shown = await typing("slow 3")
    assert os.listdir(kept) == ["newer"]
    assert "Maintenance" not in shown
