"""Transcripts match the store, however the store or the files are changed. A store can be rebuilt from
transcripts alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import stat
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.cli.sessions import rebuild
from hermes.gateway.mirror.transcript_lines import TranscriptState
from hermes.gateway.mirror.transcripts import ALL, OFF, Transcripts, choose_transcripts
from hermes.store.transfer import incoming_session
from hermes.store.transfer.mirror_source import LARGE_COLUMNS, SMALL_COLUMNS
from hermes_state import SessionDB
from tests import warm_command
from tests.gateway.mirror_samples import ANN, ROOM, begun, contexts, everything
from tests.gateway.story import STEPS, Story
from tests.survival.processes import Worker
from tests.tiers import scale_examples

WORKER = Path(__file__).with_name("transcript_worker.py")


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "sessions"


@pytest.fixture
def transcripts(db: SessionDB, folder: Path) -> Transcripts:
    return Transcripts(db, folder)


def lines(folder: Path, session_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{session_id}.jsonl").read_text("utf-8").splitlines()]


def again(home: Path, folder: Path, into: str = "again.db") -> SessionDB:
    """Return a store rebuilt from the transcripts. `rebuild` runs in this process, which is faster than the
    command."""
    target = home / into
    values = {"from_transcripts": True, "folder": folder, "into": target, "dry_run": False, "store": None}
    values["trusted"] = True
    assert rebuild.rebuild_store(argparse.Namespace(**values)) == 0
    return SessionDB(target)


def same_again(home: Path, folder: Path, db: SessionDB) -> None:
    with again(home, folder) as other:
        assert everything(other) == everything(db)
        assert contexts(other) == contexts(db)


# --- format


def test_a_transcript_has_the_session_and_then_its_messages(
    db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    chat = begun(db, key="agent:main:telegram:dm:42", model="m")
    db.append_message(chat, "user", "hello", platform_message_id="9", timestamp=1_700_000_000.123456)
    db.append_message(chat, "assistant", None, tool_calls=[{"id": "c", "function": {"name": "f"}}])
    transcripts.catch_up()
    meta, stored_lines, called = lines(folder, chat)
    assert (meta["role"], meta["platform"], meta["model"], meta["tools"]) == (
        "session_meta",
        "telegram",
        "m",
        [],
    )
    assert meta["timestamp"][-6] in "+-"
    assert meta["session"]["owner"] == ANN.person
    assert meta["session"]["session_key"] == "agent:main:telegram:dm:42"
    assert (stored_lines["role"], stored_lines["content"], stored_lines["platform_message_id"]) == (
        "user",
        "hello",
        "9",
    )
    assert stored_lines["at"] == 1_700_000_000.123456
    assert stored_lines["uid"]
    assert called["tool_calls"] == [{"id": "c", "function": {"name": "f"}}]


def test_a_file_is_private_and_only_added_to(db: SessionDB, transcripts: Transcripts, folder: Path) -> None:
    chat = begun(db)
    db.append_message(chat, "user", "one")
    transcripts.catch_up()
    file = folder / f"{chat}.jsonl"
    before, inode = file.read_bytes(), file.stat().st_ino
    db.append_message(chat, "user", "two")
    assert transcripts.catch_up_new() == 1
    assert file.read_bytes().startswith(before)
    assert file.stat().st_ino == inode
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_without_changes_nothing_is_written(db: SessionDB, transcripts: Transcripts, folder: Path) -> None:
    chat = begun(db)
    db.append_message(chat, "user", "one")
    assert transcripts.catch_up() > 0
    assert transcripts.catch_up() == transcripts.catch_up_new() == 0
    assert Transcripts(db, folder).catch_up() == 0
    (folder / ".transcripts.json").unlink()
    assert Transcripts(db, folder).catch_up() == 0


def test_only_conversations_with_a_chat_have_one_unless_all_are_asked_for(
    db: SessionDB, folder: Path, transcripts: Transcripts
) -> None:
    db.create_session("mine", "cli")
    db.append_message("mine", "user", "at home")
    db.create_session("moved", "cli")
    db.append_message("moved", "user", "to the telephone")
    db.routing.route("k", "telegram", "dm", "42", "", "", "moved")
    transcripts.catch_up()
    assert [file.stem for file in folder.glob("*.jsonl")] == ["moved"]
    Transcripts(db, folder, OFF).catch_up()
    Transcripts(db, folder, ALL).catch_up_session("mine")
    assert sorted(file.stem for file in folder.glob("*.jsonl")) == ["mine", "moved"]


def test_an_encrypted_store_has_no_transcripts_by_default(home: Path) -> None:
    home.mkdir()
    assert choose_transcripts(None, home / "state.db") == "gateway"
    (home / "state.db.key.json").write_text("{}")
    assert choose_transcripts(None, home / "state.db") == "off"
    assert choose_transcripts("all", home / "state.db") == "all"


@pytest.mark.parametrize(("said", "files"), [("all", 1), ("gateway", 0), ("off", 0)])
def test_the_terminal_writes_transcripts_if_all_are_requested(
    home: Path, folder: Path, said: str, files: int
) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(f"model:\n  default: offline\nsessions:\n  transcripts: {said}\n")
    done = warm_command.run(["-q", "hello"])
    assert done.returncode == 0, done.stderr
    found = list(folder.glob("*.jsonl"))
    assert len(found) == files
    for file in found:
        stored_lines = lines(folder, file.stem)
        assert [line.get("content") for line in stored_lines if line["role"] == "user"] == ["hello"]
        assert stored_lines[-1]["session"]["end_reason"] == "cli_close"


def test_a_transcript_has_every_column_that_an_import_restores() -> None:
    mirrored = {name.strip().removeprefix("s.") for name in f"{SMALL_COLUMNS}, {LARGE_COLUMNS}".split(",")}
    restored = {
        *incoming_session.REST,
        "source",
        "started_at",
        "title",
        "owner",
        "parent_session_id",
        "relation",
    }
    assert mirrored == restored | {"trashed_at"}


def test_an_id_is_never_a_path(db: SessionDB, transcripts: Transcripts, folder: Path, home: Path) -> None:
    for name in ("../evil", "a/b", "x" * 400):
        db.create_session(name, "telegram")
        db.routing.route(name, "telegram", "dm", name[:9], "", "", name)
        db.append_message(name, "user", "hi")
    transcripts.catch_up()
    assert list(folder.glob("*.jsonl")) == []
    assert not (home / "evil.jsonl").exists()


async def test_a_follower_writes_behind_and_once_more_at_the_end(
    db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    chat = begun(db)
    stop = asyncio.Event()
    following = asyncio.create_task(transcripts.follow(stop))
    db.append_message(chat, "user", "while it runs")
    while not (folder / f"{chat}.jsonl").exists():
        await asyncio.sleep(0.01)
    db.set_session_title(chat, "At the end")
    stop.set()
    await following
    assert lines(folder, chat)[-1]["session"]["title"] == "At the end"


# --- changes of a session


def test_changes_of_a_conversation_are_written_and_rebuilt(
    home: Path, db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    key = "agent:main:telegram:dm:42"
    chat = begun(db, key=key, display_name="Ann", origin={"platform": "telegram", "chat_id": "42"})
    first = db.append_message(chat, "user", [{"type": "text", "text": "look"}, _picture()])
    db.append_message(chat, "assistant", "a picture", reasoning="hm", finish_reason="stop")
    transcripts.catch_up()
    db.set_session_title(chat, "Pictures")
    db.add_tags(chat, "art")
    db.pin_session(chat)
    db.record_usage(chat, model="m", input_tokens=10, output_tokens=5)
    transcripts.catch_up()
    second = db.append_message(chat, "user", "another one")
    db.append_message(chat, "assistant", "no")
    transcripts.catch_up_new()
    db.rewind_to_message(chat, second)
    db.append_message(chat, "user", "another one, please")
    transcripts.catch_up_new()
    db.restore_rewound(chat)
    third = db.append_message(chat, "user", "enough")
    child = db.begin_continuation(chat, "They looked at pictures.", carried=[third], head=[first])
    transcripts.catch_up()
    db.append_message(child, "user", "and then?")
    db.rewind_to_message(child, third)
    twig = db.branch(child, end_parent=False, title="A twig")
    db.append_message(twig, "user", "elsewhere")
    fresh = db.reset(child, reason="session_reset")
    db.append_message(fresh, "user", "anew")
    room = begun(db, ROOM, key="agent:main:telegram:group:-100:7")
    db.append_message(room, "user", "hello all")
    transcripts.catch_up()
    same_again(home, folder, db)
    events = [line["event"] for line in lines(folder, chat) if line["role"] == "session_event"]
    assert {"changed", "tagged", "called", "rewound", "restored"} <= set(events)


def _picture() -> dict[str, Any]:
    import base64

    data = base64.b64encode(random.Random(1).randbytes(6000)).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def test_a_deleted_session_is_not_written_again_and_does_not_come_back(
    home: Path, db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    gone, left, stays = (begun(db) for _ in range(3))
    for chat in (gone, left, stays):
        db.append_message(chat, "user", f"said in {chat}")
    transcripts.catch_up()
    db.delete_session(gone, folder)
    db.delete_session(left)  # without the folder of its file
    transcripts.catch_up()
    transcripts.catch_up_session(gone)
    Transcripts(db, folder).catch_up()
    assert sorted(file.stem for file in folder.glob("*.jsonl")) == sorted((left, stays))
    assert lines(folder, left)[-1]["event"] == "deleted"
    same_again(home, folder, db)


def test_a_deletion_during_writes_leaves_no_file(
    db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    """Sessions are deleted again and again while a writer creates files for them."""
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            transcripts.catch_up_new()

    writing = threading.Thread(target=write)
    writing.start()
    for _ in range(60):
        chat = begun(db)
        db.append_message(chat, "user", "for a moment")
        db.delete_session(chat, folder)
    ended.set()
    writing.join()
    transcripts.catch_up()
    assert list(folder.glob("*.jsonl")) == []


def test_messages_that_a_continuation_inherits_are_in_its_transcript(
    home: Path, db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    chat = begun(db)
    kept = db.append_message(chat, "user", "keep this")
    db.append_message(chat, "assistant", "not this")
    child = db.begin_continuation(chat, "A summary.", carried=[kept])
    twig = db.branch(child, end_parent=False)
    transcripts.catch_up()
    db.delete_session(chat, folder)
    transcripts.catch_up()
    assert "keep this" in [line.get("content") for line in lines(folder, child)]
    same_again(home, folder, db)
    assert twig


def test_replaced_messages_have_their_current_text(
    home: Path, db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    chat = begun(db)
    for text in ("one", "two", "three"):
        db.append_message(chat, "user", text)
    transcripts.catch_up()
    db.replace_messages(chat, [{"role": "user", "content": "one"}, {"role": "user", "content": "2"}])
    transcripts.catch_up()
    same_again(home, folder, db)


def test_trashed_sessions_are_not_rebuilt_and_restored_ones_are(
    home: Path, db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    thrown, rescued = begun(db), begun(db)
    for chat in (thrown, rescued):
        db.append_message(chat, "user", chat)
        db.set_session_title(chat, f"title of {chat}")
        db.trash_session(chat)
    transcripts.catch_up()
    db.restore_session(rescued)
    transcripts.catch_up()
    same_again(home, folder, db)


def test_another_store_in_its_place_does_not_count_as_a_deletion_of_everything(
    home: Path, db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    chat = begun(db)
    db.append_message(chat, "user", "do not forget me")
    transcripts.catch_up()
    before = (folder / f"{chat}.jsonl").read_bytes()
    with SessionDB(home / "empty.db") as other:
        Transcripts(other, folder).catch_up()
    assert (folder / f"{chat}.jsonl").read_bytes() == before
    same_again(home, folder, db)


def test_a_store_that_went_back_in_time_marks_nothing_as_deleted(
    home: Path, db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    old = begun(db)
    db.append_message(old, "user", "old")
    transcripts.catch_up()
    db.backup(home / "copy.db")
    new = begun(db)
    db.append_message(new, "user", "new")
    transcripts.catch_up()
    db.restore(home / "copy.db")
    Transcripts(db, folder).catch_up()
    assert "deleted" not in [line.get("event") for line in lines(folder, new)]


# --- crashes


def test_a_truncated_line_is_written_again_and_nothing_is_duplicated(
    home: Path, db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    chat = begun(db)
    for number in range(5):
        db.append_message(chat, "user", f"number {number} ✓")
    transcripts.catch_up()
    file = folder / f"{chat}.jsonl"
    whole = file.read_bytes()
    for cut in range(0, len(whole), 61):
        file.write_bytes(whole[:cut])
        Transcripts(db, folder).catch_up()
        ids = [line["id"] for line in lines(folder, chat) if "id" in line]
        assert len(ids) == len(set(ids)) == 5
    same_again(home, folder, db)


def test_a_damaged_line_is_written_again(
    home: Path, db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    chat = begun(db)
    db.append_message(chat, "user", "before")
    db.append_message(chat, "user", "the second")
    transcripts.catch_up()
    file = folder / f"{chat}.jsonl"
    meta, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"\0" * (len(meta) - 1) + b"\n" + b"".join(rest))
    Transcripts(db, folder).catch_up()
    file.write_bytes(file.read_bytes().replace(b"the second", b'the"second', 1))
    (folder / ".transcripts.json").unlink()
    Transcripts(db, folder).catch_up()
    copy = TranscriptState.from_lines(file.read_bytes().splitlines())
    assert len(copy.marks) == 2
    assert copy.columns is not None


def test_a_process_killed_while_it_writes_loses_nothing(home: Path, db: SessionDB, folder: Path) -> None:
    chats = [begun(db) for _ in range(3)]
    for round_ in range(6):
        with Worker(WORKER) as worker:
            worker.start("write", chats=chats, seed=round_)
            worker.wait_for("round")
            worker.kill()
    Transcripts(db, folder).catch_up()
    for chat in chats:
        ids = [line["id"] for line in lines(folder, chat) if "id" in line]
        assert len(ids) == len(set(ids))
        assert ids == [row["id"] for row in db.get_messages(chat)]
    same_again(home, folder, db)


def test_two_processes_that_write_the_same_files_write_nothing_twice(
    home: Path, db: SessionDB, folder: Path
) -> None:
    chats = [begun(db) for _ in range(2)]
    with Worker(WORKER) as one, Worker(WORKER) as other:
        for worker in (one, other):
            worker.start("write", chats=chats, seed=1, rounds=10)
        for worker in (one, other):
            worker.result()
    Transcripts(db, folder).catch_up()
    for chat in chats:
        assert len(lines(folder, chat)) == len({json.dumps(line) for line in lines(folder, chat)})
    same_again(home, folder, db)


# --- any history


def test_a_replaced_message_is_detected_without_other_changes(
    home: Path, db: SessionDB, transcripts: Transcripts, folder: Path
) -> None:
    """A replaced message is detected although the number of messages and the newest timestamp stay the
    same."""
    chat = begun(db)
    for text in ("one", "two"):
        db.append_message(chat, "user", text, timestamp=1_700_000_000.0)
    transcripts.catch_up()
    db.append_message(chat, "user", "three", timestamp=1_700_000_000.0)
    db.replace_messages(chat, [row for row in db.get_messages(chat) if row["content"] != "two"])
    transcripts.catch_up()
    same_again(home, folder, db)


@settings(max_examples=scale_examples(40))
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2**16)), max_size=40))
def test_after_any_history_the_rebuilt_store_is_the_first_one(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as place:
        home, folder = Path(place), Path(place) / "sessions"
        with SessionDB(home / "state.db", durability="normal") as db:
            story = Story(db, folder)
            for step, choice in steps:
                story.do(step, random.Random(choice))
            story.transcripts.catch_up()
            if story.sessions():
                same_again(home, folder, db)
