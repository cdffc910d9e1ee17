"""A purge removes every byte of a session from all copies beside the store. It changes nothing else."""

from __future__ import annotations

import json
import logging
import random
import shutil
import sqlite3
from base64 import b64encode
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from hermes import errors
from hermes.atomic_files import open_partial_file
from hermes_state import SessionDB
from tests.store.sqlite import reference_databases as reference
from tests.survival.processes import Refused, Worker

SECRET = "quetzalcoatlus"
WORDS = {"secret": SECRET, "other": "pelican"}
STEM = "quetzalcoatlu"
"""The secret word, shortened as it is in the index that ranks conversations."""


def held(folder: Path, text: str | bytes) -> set[str]:
    wanted = text if isinstance(text, bytes) else text.encode()
    return {file.name for file in folder.rglob("*") if file.is_file() and wanted in file.read_bytes()}


@pytest.fixture
def talk(db: SessionDB) -> SessionDB:
    for name, word in WORDS.items():
        db.create_session(name, "cli")
        db.append_message(name, "user", f"the word is {word}")
    return db


def test_copies_are_rewritten_without_the_session_and_keep_the_others(
    talk: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    home = talk.db_path.parent
    # so that blocks are indexed as well
    assert talk.search_sessions_ranked(SECRET)[0]["session_id"] == "secret"
    own, named = talk.backup().path, talk.backup(home / "mine.db").path
    with caplog.at_level(logging.WARNING):
        assert talk.delete_session("secret", purge=True)
    talk.close()
    assert held(home, SECRET) == held(home, STEM) == set()
    assert own.exists()
    assert named.exists()
    assert [line for line in caplog.messages if "rewritten without the session" in line]
    for copy in (own, named):
        with SessionDB(copy) as kept:
            assert [row["id"] for row in kept.list_sessions_rich()] == ["other"]
            assert len(kept.search_messages("pelican")) == 1
            assert [row["session_id"] for row in kept.search_sessions_ranked("pelicans")] == ["other"]
            assert kept.verify().ok


def test_a_copy_from_before_a_migration_is_rewritten_too(home: Path) -> None:
    path = home / "state.db"
    home.mkdir(mode=0o700, exist_ok=True)
    expected = reference.build(path, 11)
    with SessionDB(path) as db:
        backups = list(path.with_name("state.db.backups").glob("*before-migration*.db"))
        assert len(backups) == 1
        doomed = max(expected.message_counts, key=lambda name: expected.message_counts[name])
        others = {row["id"] for row in db.search_sessions(limit=1000)} - {doomed}
        elsewhere = str([db.export_session(name) for name in others])  # prompts and titles as well
        whole_text = " ".join(str(message["content"]) for message in db.get_messages(doomed))
        words = {
            word for word in whole_text.split() if len(word) > 5 and word.isalnum() and word not in elsewhere
        }
        words = {word for word in words if backups[0].name in held(home, word)}
        assert words
        assert db.delete_session(doomed, purge=True)
        assert {row["id"] for row in db.search_sessions(limit=1000)} == others
    assert {word: held(home, word) for word in words if held(home, word)} == {}
    assert backups[0].exists()


def test_a_copy_that_cannot_be_rewritten_is_removed(talk: SessionDB) -> None:
    path = talk.db_path
    copy = talk.backup().path
    aside = [
        copy.with_name(f"{copy.name}.damaged"),
        copy.with_name(".state.00.hermes-partial"),
        path.with_name(f"{path.name}.damaged-20260101_000000-abcd"),
    ]
    for file in aside:
        file.write_bytes(SECRET.encode())
    (copy.parent / "notes.txt").write_text("mine", encoding="utf-8")
    talk.delete_session("secret", purge=True)
    assert [file for file in aside if file.exists()] == []
    assert (copy.parent / "notes.txt").exists()


def test_other_databases_in_the_home_are_not_changed(talk: SessionDB) -> None:
    stranger = talk.db_path.with_name("stranger.db")
    stranger.write_bytes(b"no database at all")
    talk.delete_session("secret", purge=True)
    assert stranger.read_bytes() == b"no database at all"


def test_no_byte_of_an_attachment_is_left_that_only_the_purged_session_showed(talk: SessionDB) -> None:
    home = talk.db_path.parent
    own, shared, replaced = (random.Random(seed).randbytes(20_000) for seed in "osr")

    def picture_content(data: bytes) -> list[Any]:
        return [{"type": "image", "mimeType": "image/png", "data": b64encode(data).decode()}]

    talk.append_message("secret", "user", picture_content(replaced))
    before = talk.backup().path
    talk.replace_messages(
        "secret", [{"role": "user", "content": picture_content(data)} for data in (own, shared)]
    )
    talk.append_message("other", "user", picture_content(shared))
    after = talk.backup().path
    for data in (own, shared, replaced):
        assert (before if data is replaced else after).name in held(home, data[:64])
    assert talk.delete_session("secret", purge=True)
    assert talk.get_messages("other")[-1]["content"] == picture_content(shared)
    talk.close()
    for data in (own, replaced):
        for at in range(0, len(data), 1000):
            part = data[at : at + 30]
            assert held(home, part) == set()
            assert held(home, b64encode(part)) == set()
    for copy, pictures in ((before, 0), (after, 1)):
        with SessionDB(copy) as kept:
            assert kept.raw().execute("SELECT count(*) FROM blobs").fetchone()[0] == pictures
            assert kept.verify().ok


# ---------------------------------------------------------------- the store that a file belongs to


def test_copies_are_found_by_their_contents_in_any_folder(talk: SessionDB) -> None:
    home = talk.db_path.parent
    (home / "kept" / "deep").mkdir(parents=True)
    copies = [home / "mine.sqlite", home / "kept" / "deep" / "copy", home / "kept" / "with-its-log.db"]
    for copy in copies[:2]:
        talk.backup(copy)
    for ending in ("", "-wal"):  # the files are copied while the rows are only in the log
        shutil.copy(f"{talk.db_path}{ending}", f"{copies[2]}{ending}")
    assert held(home, SECRET) >= {"mine.sqlite", "copy", "with-its-log.db-wal"}
    assert talk.delete_session("secret", purge=True)
    assert held(home, SECRET) == held(home, STEM) == set()
    for copy in copies:
        with SessionDB(copy) as kept:
            assert [row["id"] for row in kept.list_sessions_rich()] == ["other"]
            assert kept.verify().ok


@pytest.mark.parametrize("version", reference.VERSIONS)
def test_a_copy_that_another_program_made_is_recognised_by_its_rows(home: Path, version: int) -> None:
    home.mkdir(mode=0o700)
    path, copy = home / "state.db", home / "as-it-was.db"
    expected = reference.build(path, version)
    shutil.copy(path, copy)
    doomed = max(expected.message_counts, key=lambda name: expected.message_counts[name])
    with SessionDB(path) as db:
        others = {row["id"] for row in db.search_sessions(limit=1000)} - {doomed}
        assert db.delete_session(doomed, purge=True)
    with SessionDB(copy) as kept:
        assert {row["id"] for row in kept.search_sessions(limit=1000)} == others
        assert kept.verify().ok


@pytest.mark.parametrize("is_open", [False, True])
def test_another_store_with_a_session_of_the_same_id_keeps_it(
    db: SessionDB, home: Path, caplog: pytest.LogCaptureFixture, is_open: bool
) -> None:
    """The session in the other store has the same id, the same start time and the same first message."""
    private = SessionDB(home / "private.db")
    for store, letters in ((db, "about work"), (private, "love letters")):
        store.create_session("main", "cli", started_at=1000.0)
        store.append_message("main", "user", "hello", timestamp=1000.0)
        store.append_message("main", "user", letters, timestamp=1001.0)
    if not is_open:
        private.close()
    assert db.delete_session("main", purge=True)
    assert [line for line in caplog.messages if "private.db has a session with the same id" in line]
    with SessionDB(home / "private.db") as kept:
        assert [row["content"] for row in kept.get_messages("main")] == ["hello", "love letters"]
    private.close()


def test_a_copy_that_is_open_as_a_store_is_not_rewritten_under_its_reader(talk: SessionDB) -> None:
    copy = talk.backup(talk.db_path.with_name("mine.db")).path
    with SessionDB(copy) as reading:
        with pytest.raises(errors.StoreBusy, match=r"mine\.db"):
            talk.delete_session("secret", purge=True)
        assert len(reading.get_messages("secret")) == 1
        reading.append_message("other", "user", "goes on")
    assert talk.delete_session("secret", purge=True) is False  # the second call finishes the purge
    assert held(talk.db_path.parent, SECRET) == set()
    with SessionDB(copy) as kept:
        assert [row["content"] for row in kept.get_messages("other")][-1] == "goes on"


def foreign_database(file: Path) -> bytes:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE invoices (text)")
        connection.executemany("INSERT INTO invoices VALUES (?)", [("x" * 500,)] * 200)
        connection.commit()
    return file.read_bytes()


def test_a_database_in_use_is_named_and_all_others_are_rewritten(talk: SessionDB) -> None:
    home = talk.db_path.parent
    file, backup = home / "bookkeeping.db", talk.backup().path
    before = foreign_database(file)
    with Worker() as other:
        other.start("hold_half_a_change", path=str(file))
        other.wait_for("held")
        with pytest.raises(errors.StoreBusy, match=r"bookkeeping\.db.*hermes sessions optimize"):
            talk.delete_session("secret", purge=True)
        other.kill()
    assert file.read_bytes() == before
    assert backup.exists()
    assert held(home, SECRET) == set()
    file.with_name("bookkeeping.db-journal").unlink()
    talk.optimize()
    assert pending(talk) == []


def test_a_broken_database_of_another_program_is_kept_and_named(
    talk: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    file = talk.db_path.with_name("broken.db")
    data = bytearray(foreign_database(file))
    data[100:200] = b"\xff" * 100
    file.write_bytes(data)
    assert talk.delete_session("secret", purge=True)
    assert file.read_bytes() == data
    assert [line for line in caplog.messages if "broken.db is damaged" in line]


def test_links_are_not_followed_out_of_the_home(talk: SessionDB, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    copy = talk.backup(outside / "copy.db").path
    (talk.db_path.parent / "copy.db").symlink_to(copy)
    (talk.db_path.parent / "linked").symlink_to(outside)
    before = copy.read_bytes()
    assert talk.delete_session("secret", purge=True)
    assert copy.read_bytes() == before


def test_a_running_backup_is_reported(talk: SessionDB) -> None:
    folder = talk.backup().path.parent
    with open_partial_file(folder, "state") as (partial, _):
        shutil.copy(talk.backup().path, partial)
        with pytest.raises(errors.StoreBusy, match="another program is writing it"):
            talk.delete_session("secret", purge=True)
        assert partial.exists()
    talk.optimize()
    assert held(folder.parent, SECRET) == set()


# ---------------------------------------------------------------- files that are not databases


def test_saved_conversations_are_removed_with_their_session(
    talk: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    saved = talk.db_path.parent / "sessions" / "saved"
    saved.mkdir(parents=True)
    messages = {name: [{"role": "user", "content": f"the word is {word}"}] for name, word in WORDS.items()}
    contents: dict[str, Any] = {
        "named.json": {"session_id": "secret", "messages": messages["secret"]},
        "nameless.json": {"model": "m", "messages": messages["secret"]},
        "exported.json": talk.export_session("secret"),
        "others.json": {"session_id": "other", "messages": messages["other"]},
        "more.json": {"messages": [*messages["secret"], *messages["other"]]},
        "list.json": [1, 2],
    }
    for name, result in contents.items():
        (saved / f"hermes_conversation_{name}").write_text(json.dumps(result), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert talk.delete_session("secret", purge=True)
    left = {file.name.removeprefix("hermes_conversation_") for file in saved.iterdir()}
    assert left == {"others.json", "nameless.json", "more.json", "list.json"}
    for name in ("nameless", "more"):  # another session may contain the same text, so a person must decide
        assert [
            line for line in caplog.messages if f"{name}.json contains words of a deleted session" in line
        ]


def test_files_of_a_session_whose_id_is_longer_are_kept(talk: SessionDB, tmp_path: Path) -> None:
    talk.create_session("session_other", "cli")
    for name in ("session_other.json", "session_session_other.json", "session_other.jsonl"):
        (tmp_path / name).touch()
    assert talk.delete_session("session_other", sessions_dir=tmp_path)
    assert {file.name for file in tmp_path.iterdir() if file.suffix.startswith(".json")} == {
        "session_other.json"
    }


@pytest.mark.parametrize("since", ["another prompt", "another source", "other messages", "no messages"])
def test_a_session_that_changed_since_is_recognised_in_a_backup(talk: SessionDB, since: str) -> None:
    talk.backup()
    talk.update_system_prompt("secret", "be brief")
    if since == "another source":
        talk.raw().execute("UPDATE sessions SET source = 'api_server' WHERE id = 'secret'")
        talk.list_sessions_rich()
    elif since == "other messages":
        talk.replace_messages("secret", [{"role": "user", "content": "nothing of it"}])
    elif since == "no messages":
        talk.clear_messages("secret")
    assert talk.delete_session("secret", purge=True)
    home = talk.db_path.parent
    talk.close()
    assert held(home, SECRET) == set()


def test_concurrent_purges_do_not_damage_backups(talk: SessionDB) -> None:
    home = talk.db_path.parent
    for number in range(6):
        talk.create_session(f"s{number}", "cli")
        talk.append_message(f"s{number}", "user", f"{SECRET} {number} " * 2000)
    for _ in range(3):
        talk.backup()
    talk.close()
    with Worker() as first, Worker() as second:
        for worker in (first, second):
            worker.ask("open_store", path=str(talk.db_path))
        for number in range(0, 6, 2):
            first.start("purge", session=f"s{number}")
            second.start("purge", session=f"s{number + 1}")
            for worker in (first, second):
                with suppress(Refused):  # a busy copy is reported and remains pending
                    worker.result()
    assert len(list((home / "state.db.backups").glob("*.db"))) == 3
    with SessionDB(talk.db_path) as again:
        again.delete_session("secret", purge=True)
    assert held(home, SECRET) == set()
    for copy in (home / "state.db.backups").glob("*.db"):
        with SessionDB(copy) as kept:
            assert [row["id"] for row in kept.list_sessions_rich()] == ["other"]


@pytest.mark.parametrize("kind", ["md", "json", "html", "jsonl"])
def test_files_of_a_person_in_the_home_are_named_and_kept(
    talk: SessionDB, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    text = f"the word is {SECRET}"
    documents = {
        "md": f"# Notes\n\n{text}\n",
        "json": json.dumps({"a": f"\u00e9\n{text}"}),
        "html": f"<p>{text}</p>",
        "jsonl": json.dumps({"content": text}) + "\n",
    }
    exports = talk.db_path.parent / "exports"
    exports.mkdir()
    mine, other = exports / f"mine.{kind}", exports / f"other.{kind}"
    mine.write_text(documents[kind], encoding="utf-8")
    other.write_text(documents[kind].replace(SECRET, "pelican"), encoding="utf-8")
    assert talk.delete_session("secret", purge=True)
    assert mine.read_text(encoding="utf-8") == documents[kind]
    named = [line for line in caplog.messages if "contains words of a deleted session" in line]
    assert len(named) == 1
    assert f"exports/mine.{kind}" in named[0]


def test_a_key_in_somebodys_notes_is_named(talk: SessionDB, caplog: pytest.LogCaptureFixture) -> None:
    talk.append_message("secret", "user", "and: XYZZYplugh42, keep it")
    talk.db_path.with_name("notes.txt").write_text("XYZZYplugh42", encoding="utf-8")
    talk.delete_session("secret", purge=True)
    assert [line for line in caplog.messages if "notes.txt contains words of a deleted session" in line]


# ---------------------------------------------------------------- repeated purges


def pending(db: SessionDB) -> list[str]:
    found = db.raw().execute("SELECT key FROM state_meta WHERE key LIKE 'purging:%'").fetchall()
    return [row[0] for row in found]


def held_up(db: SessionDB, copy: Path) -> None:
    """Run a purge while a copy is in use."""
    with SessionDB(copy), pytest.raises(errors.StoreBusy):
        db.delete_session("secret", purge=True)
    assert len(pending(db)) == 1
    assert copy.name in held(db.db_path.parent, SECRET)


@pytest.mark.parametrize("by", ["again", "another", "trash", "optimize", "maintenance"])
def test_a_delayed_purge_is_finished_later(talk: SessionDB, by: str) -> None:
    held_up(talk, talk.backup(talk.db_path.with_name("mine.db")).path)
    finish: dict[str, Any] = {
        "again": lambda: talk.delete_session("secret", purge=True),
        "another": lambda: talk.delete_session("other", purge=True),
        "trash": lambda: talk.empty_trash(0, purge=True),
        "optimize": talk.optimize,
        "maintenance": lambda: talk.maybe_auto_prune_and_vacuum(min_interval_hours=0),
    }
    finish[by]()
    assert held(talk.db_path.parent, SECRET) == set()
    assert pending(talk) == []


def test_a_new_session_with_the_same_id_keeps_its_data(talk: SessionDB, home: Path) -> None:
    held_up(talk, talk.backup(home / "mine.db").path)
    talk.create_session("secret", "cli")
    talk.append_message("secret", "user", "a new beginning")
    (home / "sessions").mkdir()
    (home / "sessions" / "secret.jsonl").write_text("a new beginning", encoding="utf-8")
    backup = talk.backup().path
    talk.optimize()
    assert held(home, SECRET) == set()
    assert (home / "sessions" / "secret.jsonl").exists()
    for store in (talk.db_path, backup):
        with SessionDB(store) as kept:
            assert [row["content"] for row in kept.get_messages("secret")] == ["a new beginning"]


def test_a_deleted_session_can_still_be_purged(talk: SessionDB, home: Path) -> None:
    talk.backup()
    (home / "sessions").mkdir()
    (home / "sessions" / "secret.jsonl").write_text(SECRET, encoding="utf-8")
    assert talk.delete_session("secret")
    assert len(held(home, SECRET)) > 1
    assert talk.delete_session("secret", purge=True) is False
    assert held(home, SECRET) == held(home, STEM) == set()


def test_a_restored_session_stays_in_the_copies(talk: SessionDB, home: Path) -> None:
    exported = talk.export_session("secret")
    assert exported is not None
    held_up(talk, talk.backup(home / "mine.db").path)
    talk.import_sessions([exported])
    talk.optimize()
    assert pending(talk) == []
    with SessionDB(home / "mine.db") as kept:
        assert len(kept.get_messages("secret")) == 1


def test_text_that_is_not_text_can_be_purged_too(talk: SessionDB) -> None:
    talk.raw().execute("UPDATE messages SET content = CAST(x'ff6f' AS TEXT) WHERE session_id = 'secret'")
    assert talk.delete_session("secret", purge=True)
