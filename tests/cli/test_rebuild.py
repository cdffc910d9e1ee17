"""`hermes sessions rebuild` creates a new store from the transcripts alone. It changes no other file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes.gateway.mirror.sessions_json import IndexFile
from hermes.gateway.mirror.transcripts import Transcripts
from hermes_state import SessionDB
from tests.cli.conftest import Hermes
from tests.gateway.mirror_samples import ANN, ROOM, begun, contexts, everything

REBUILD = ("sessions", "rebuild", "--from-transcripts")


@pytest.fixture
def mirrored(home: Path, db: SessionDB) -> dict[str, str]:
    """Create chats of a person and a room with their mirror files. Return the sessions by key."""
    keys = {"agent:main:telegram:dm:42": ANN, "agent:main:telegram:group:-100:7": ROOM}
    chats = {key: begun(db, who, key=key, display_name="d") for key, who in keys.items()}
    for chat in chats.values():
        kept = db.append_message(chat, "user", f"remember {chat}")
        db.set_session_title(chat, "The same title")
        db.append_message(db.begin_continuation(chat, "In short.", carried=[kept]), "user", "and on")
    Transcripts(db, home / "sessions").catch_up()
    IndexFile(db, home / "sessions").write()
    return chats


def test_a_lost_store_is_rebuilt_with_people_and_chats(
    hermes: Hermes, home: Path, db: SessionDB, mirrored: dict[str, str]
) -> None:
    before, said = everything(db), contexts(db)
    live = {key: db.routing.find_live_session(key) for key in mirrored}
    db.close()
    for file in home.glob("state.db*"):
        file.unlink()
    done = hermes(*REBUILD)
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 sessions (6 messages) and 2 chats" in done.stdout
    assert "hermes sessions restore" in done.stdout
    put = hermes("sessions", "restore", str(home / "state.rebuilt.db"), "--yes")
    assert put.returncode == 0, put.stderr
    with SessionDB() as again:
        assert everything(again) == before
        assert contexts(again) == said
        assert {key: again.routing.find_live_session(key) for key in mirrored} == live
        assert again.verify().ok
        assert again.scoped(ANN).find_live_session("agent:main:telegram:dm:42")


def test_no_file_is_overwritten_and_a_dry_run_creates_nothing(
    hermes: Hermes, home: Path, mirrored: dict[str, str]
) -> None:
    before = sorted(file.name for file in home.iterdir())
    assert "Would rebuild 4 sessions (6 messages)" in hermes(*REBUILD, "--dry-run").stdout
    assert sorted(file.name for file in home.iterdir()) == before
    taken = hermes(*REBUILD, "--into", str(home / "state.db"))
    assert (taken.returncode, taken.stdout) == (1, "")
    assert "exists" in taken.stderr


def test_the_output_names_the_source_files(hermes: Hermes, home: Path) -> None:
    assert hermes("sessions", "rebuild").returncode == 2
    none = hermes(*REBUILD)
    assert (none.returncode, "no transcripts" in none.stderr) == (1, True)
    assert not home.exists() or not list(home.glob("*.rebuilt.db"))


def test_unreadable_lines_are_reported_and_do_not_affect_others(
    hermes: Hermes, home: Path, mirrored: dict[str, str]
) -> None:
    chat = next(iter(mirrored.values()))
    file = home / "sessions" / f"{chat}.jsonl"
    meta, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(meta + b'{"role": "user", "con\n' + b"\xff\xfe\n" + b"".join(rest) + b'{"cut')
    done = hermes(*REBUILD, "--into", str(home / "new.db"))
    assert done.returncode == 1
    assert "3 lines could not be read" in done.stderr
    assert f"{chat}.jsonl:2" in done.stderr
    with SessionDB(home / "new.db") as again, SessionDB() as first:
        assert everything(again) == everything(first)


def test_transcripts_of_the_reference_are_accepted(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    said = [
        {
            "role": "session_meta",
            "tools": [],
            "model": "m",
            "platform": "telegram",
            "timestamp": "2026-05-01T10:00:00",
        },
        {"role": "user", "content": "hello", "timestamp": "2026-05-01T10:00:01"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
        {"role": "tool", "content": "done", "tool_call_id": "1", "timestamp": "2026-05-01T10:00:02"},
    ]
    (folder / "a1b2c3d4.jsonl").write_text("\n".join(map(json.dumps, said)) + "\n")
    (folder / "e5f6a7b8.jsonl").write_text(json.dumps({"role": "user", "content": "no beginning"}) + "\n")
    origin = {"platform": "telegram", "chat_id": "42", "chat_type": "dm", "user_id": "42"}
    entry = {"session_id": "a1b2c3d4", "platform": "telegram", "origin": origin}
    (folder / "sessions.json").write_text(json.dumps({"agent:main:telegram:dm:42": entry}))
    done = hermes(*REBUILD, "--trusted", "--folder", str(folder), "--into", str(tmp_path / "ours.db"))
    assert (done.returncode, done.stderr) == (0, "")
    with SessionDB(tmp_path / "ours.db") as db:
        rows = db.get_messages("a1b2c3d4")
        assert [(row["role"], row["content"]) for row in rows] == [
            ("user", "hello"),
            ("assistant", ""),
            ("tool", "done"),
        ]
        assert rows[0]["timestamp"] < rows[2]["timestamp"]
        row = db.get_session("a1b2c3d4")
        assert row is not None
        assert (row["source"], row["model"]) == ("telegram", "m")
        assert db.scoped(ANN).find_live_session("agent:main:telegram:dm:42") == "a1b2c3d4"
        assert len(db.get_messages("e5f6a7b8")) == 1


def test_deleted_and_trashed_sessions_are_left_out_and_counted(
    hermes: Hermes, home: Path, db: SessionDB, mirrored: dict[str, str]
) -> None:
    first, second = mirrored.values()
    transcripts = Transcripts(db, home / "sessions")
    transcripts.catch_up()
    db.delete_conversations([first])
    db.trash_session(second)
    transcripts.catch_up()
    stays = begun(db)
    transcripts.catch_up()
    done = hermes(*REBUILD)
    assert done.returncode == 0, done.stderr
    assert "2 left out: deleted" in done.stdout
    assert "2 left out: in the trash" in done.stdout
    with SessionDB(home / "state.rebuilt.db") as again:
        assert list(everything(again)) == [stays]


def test_transcripts_of_another_folder_bring_no_chats_and_owners_unless_trusted(
    hermes: Hermes, home: Path, tmp_path: Path, mirrored: dict[str, str]
) -> None:
    theirs = (home / "sessions").rename(tmp_path / "theirs")
    for trust, chats in (((), 0), (("--trusted",), 2)):
        into = tmp_path / f"{chats}.db"
        done = hermes(*REBUILD, "--folder", str(theirs), "--into", str(into), *trust)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"4 sessions (6 messages) and {chats} chats" in done.stdout
        assert ("Left out: 2 chats" in done.stdout) == (not trust)
        with SessionDB(into) as again:
            owners = {session["owner"] for session in again.export_all()}
            assert (len(again.routing.list_routes()), owners == {""}) == (chats, not trust)
