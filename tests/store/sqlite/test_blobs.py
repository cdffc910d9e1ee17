"""Attachments in stores to which other programs write without foreign keys, and attachments in a damaged
file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from hashlib import sha256
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.store.test_blobs import CAT, DOG, REFERENCE, a, contents, held, picture, picture_content, rows, url

__all__ = ["a"]


def as_others_do(db: SessionDB, sql: str, *values: object) -> None:
    """Run plain SQL without foreign keys, as other programs do."""
    raw = db.raw()
    raw.execute("PRAGMA foreign_keys=OFF")
    raw.execute(sql, values)


# -------------------------------------------------------------------- other programs


def test_structured_rows_of_other_programs_are_left_as_they_are(a: SessionDB) -> None:
    stored = "\0json:" + json.dumps(picture_content(CAT))
    as_others_do(
        a, "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', ?, 5)", stored
    )
    assert contents(a) == [picture_content(CAT)]
    assert len(a.search_messages("look")) == 1
    before = rows(a, "SELECT * FROM messages")
    a.replace_messages("a", [{"role": "user", "content": picture_content(CAT)}])
    a.optimize()
    assert rows(a, "SELECT * FROM messages") == before
    assert held(a) == set()


COPY = """INSERT INTO messages (session_id, role, content, timestamp)
    SELECT 'b', role, content, timestamp FROM messages WHERE session_id = 'a'"""


@pytest.mark.parametrize("noticed", [True, False])
def test_a_copy_that_another_program_makes_keeps_its_picture(a: SessionDB, noticed: bool) -> None:
    a.create_session("b", "cli")
    a.append_message("a", "user", picture_content(CAT))
    as_others_do(a, COPY)
    if noticed:
        assert len(a.search_messages("look")) == 2
        a.optimize()
    assert contents(a, "b") == [picture_content(CAT)]
    a.delete_session("a")
    assert a.collect_blobs() == (0, 0)
    assert contents(a, "b") == [picture_content(CAT)]
    a.delete_session("b")
    assert held(a) == set()


def test_a_row_that_another_program_writes_again_keeps_its_picture(a: SessionDB) -> None:
    a.create_session("b", "cli")
    a.append_message("a", "user", picture_content(CAT))
    as_others_do(a, COPY)
    as_others_do(a, "DELETE FROM messages WHERE session_id = 'a'")
    a.collect_blobs()
    assert contents(a, "b") == [picture_content(CAT)]
    assert a.verify().ok


def test_text_of_another_program_that_looks_like_a_reference_is_not_changed(a: SessionDB) -> None:
    content = [REFERENCE, "\0blob::"]
    as_others_do(
        a,
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', ?, 5)",
        "\0json:" + json.dumps(content),
    )
    assert contents(a) == [content]


@pytest.mark.parametrize("keys", ["ON", "OFF"])
def test_blobs_that_other_programs_leave_unreferenced_are_collected(a: SessionDB, keys: str) -> None:
    for data in (CAT, DOG):
        message = a.append_message("a", "user", picture_content(data))
    raw = a.raw()
    raw.execute(f"PRAGMA foreign_keys={keys}")
    raw.execute("DELETE FROM messages WHERE id = ?", (message,))
    health = a.verify()
    assert not health.damage
    assert health.drift
    assert a.collect_blobs() == (1, len(DOG))
    assert a.collect_blobs() == (0, 0)
    assert held(a) == {CAT}
    assert a.verify().ok


def test_many_leftovers_go_in_several_transactions(a: SessionDB) -> None:
    pictures = [picture(number, 3500) for number in range(150)]
    a.append_message("a", "user", [url(data) for data in pictures])
    as_others_do(a, "DELETE FROM messages")
    assert a.collect_blobs() == (150, 150 * 3500)


@pytest.mark.parametrize("upkeep", ["optimize", "vacuum", "repair"])
def test_upkeep_collects(a: SessionDB, upkeep: str) -> None:
    a.append_message("a", "user", picture_content(CAT))
    as_others_do(a, "DELETE FROM messages")
    getattr(a, upkeep)()
    assert held(a) == set()
    assert a.verify().ok


# -------------------------------------------------------------------- while others write


def test_threads_that_write_delete_and_collect_lose_no_picture(home: Path) -> None:
    pictures = [picture(number, 4000) for number in range(3)]
    wrong: list[str] = []
    with SessionDB(home / "state.db", durability="normal") as db:
        stop, plain = threading.Event(), threading.Lock()

        def write(name: str) -> None:
            for turn in range(40):
                session_id = db.create_session(f"{name}-{turn}", "cli")
                content = picture_content(pictures[turn % 3])
                db.append_message(session_id, "user", content)
                if contents(db, session_id) != [content]:
                    wrong.append(session_id)
                if turn % 4:
                    db.delete_session(session_id)
                if turn % 5 == 0:
                    with plain:
                        as_others_do(db, "DELETE FROM messages WHERE session_id = ?", session_id)

        def collect() -> None:
            while not stop.is_set():
                db.collect_blobs()

        writers = [threading.Thread(target=write, args=(name,)) for name in "xyz"]
        collector = threading.Thread(target=collect)
        for thread in (*writers, collector):
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        collector.join()
        db.collect_blobs()
        assert wrong == []
        assert db.verify().ok
        left = {
            json.dumps(content)
            for row in db.search_sessions(limit=1000)
            for content in contents(db, row["id"])
        }
        assert left <= {json.dumps(picture_content(data)) for data in pictures}
        assert len(held(db)) == len(left)


COLLECTOR = """
import os, sys
from hermes_state import SessionDB
gone = 0
with SessionDB(sys.argv[1], durability="normal") as db:
    print("ready", flush=True)
    while not os.path.exists(sys.argv[2]):
        gone += db.collect_blobs().blobs
print(gone)
"""


def test_a_collecting_process_removes_no_blob_that_is_just_written(home: Path) -> None:
    path, enough = home / "state.db", home / "enough"
    with SessionDB(path, durability="normal") as db:
        other = subprocess.Popen(
            [sys.executable, "-c", COLLECTOR, str(path), str(enough)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
        )
        assert other.stdout is not None
        try:
            assert other.stdout.readline() == "ready\n"
            for turn in range(100):
                session_id = db.create_session(f"s{turn}", "cli")
                db.append_message(session_id, "user", picture_content(CAT))
                assert contents(db, session_id) == [picture_content(CAT)]
                # The blob is now unreferenced. The other process removes it, possibly while it is written
                # again.
                as_others_do(db, "DELETE FROM messages WHERE session_id = ?", session_id)
            while held(db):  # wait until the other process has removed the blob
                time.sleep(0.01)
            db.append_message("s0", "user", picture_content(CAT))
            enough.touch()
            collected = int(other.communicate(timeout=30)[0])
        finally:
            other.kill()
            other.wait()
            other.stdout.close()
        assert collected > 0
        db.collect_blobs()
        assert contents(db, "s0") == [picture_content(CAT)]
        assert db.verify().ok


# -------------------------------------------------------------------- damage


def test_a_lost_attachment_is_reported_as_missing_and_as_damage(a: SessionDB) -> None:
    message = a.append_message("a", "user", picture_content(CAT, "look"))
    as_others_do(a, "DELETE FROM blobs")
    name = sha256(CAT).hexdigest()[:12]
    gone = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"[attachment {name} is missing]"}},
    ]
    assert contents(a) == [gone]
    assert [said["content"] for said in a.get_messages_as_conversation("a")] == [gone]
    assert a.verify().damage == (f"attachment {name} of message {message} is missing",)
    report = a.repair()
    assert report.ok
    assert any("blob_refs" in line for line in report.lost)
    assert contents(a) == [gone]
    assert a.verify().ok


def test_a_picture_that_is_sent_again_replaces_a_lost_one(a: SessionDB) -> None:
    a.append_message("a", "user", picture_content(CAT))
    as_others_do(a, "DELETE FROM blobs")
    a.append_message("a", "user", picture_content(CAT))
    assert contents(a) == [picture_content(CAT), picture_content(CAT)]
    assert a.verify().ok


def test_bytes_that_are_not_those_that_were_stored_are_damage(a: SessionDB) -> None:
    a.append_message("a", "user", picture_content(CAT))
    a.append_message("a", "user", picture_content(DOG))
    as_others_do(a, "UPDATE blobs SET bytes = zeroblob(6000) WHERE size = 6000")
    name = sha256(CAT).hexdigest()[:12]
    assert a.verify().damage == (f"the bytes of attachment {name} do not match its hash",)
    report = a.repair()
    assert any("1 attachment," in line for line in report.lost)
    assert contents(a)[1] == picture_content(DOG)
    assert f"[attachment {name} is missing]" in str(contents(a)[0])
    assert a.verify().ok


@pytest.mark.parametrize("lost", ["sessions", "blob_refs", "idx_blob_refs_hash", "sqlite_autoindex_blobs_1"])
def test_a_repair_carries_attachments_over(home: Path, lost: str) -> None:
    path = home / "state.db"
    with SessionDB(path) as db:
        for number in range(3):
            db.create_session(f"s{number}", "cli")
            db.append_message(f"s{number}", "user", picture_content(picture(number), f"picture {number}"))
        (page,) = db.raw().execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (lost,)).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    assert SessionDB.repair_file(path).ok
    with SessionDB(path) as db:
        assert [contents(db, f"s{number}") for number in range(3)] == [
            [picture_content(picture(number), f"picture {number}")] for number in range(3)
        ]
        assert rows(db, "SELECT count(*) FROM blob_refs") == [(3,)]
        assert db.verify().ok


def test_a_repair_says_which_attachments_it_could_not_read(home: Path) -> None:
    path = home / "state.db"
    with SessionDB(path) as db:
        db.create_session("a", "cli")
        for data in (CAT, DOG):
            db.append_message("a", "user", picture_content(data))
    whole = path.read_bytes()
    at = whole.index(DOG[5000:5200])
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(100))
    with SessionDB(path) as db:
        assert len(db.verify().damage) == 1
    report = SessionDB.repair_file(path)
    assert report.ok
    assert "1 attachment, which could not be read completely" in report.lost
    with SessionDB(path) as db:
        assert contents(db)[0] == picture_content(CAT)
        assert "is missing]" in str(contents(db)[1])
        assert held(db) == {CAT}
        assert db.verify().ok
