"""A scrub removes every byte of a secret from all files of the home. It changes nothing else."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import errors
from hermes.atomic_files import replace_file
from hermes.store.retention.secret_spellings import INSTEAD, Spellings
from hermes_state import SessionDB
from tests.store.sqlite import reference_databases as reference

SECRET = 'sk-madeup-Quetzalcoatlus/Northropi#99 "é\\n'
TERM = b"quetzalcoatlu"
"""A word that occurs only in the secret, in the form in which the indexes store it. The index that ranks
conversations keeps only these characters of the word."""


def held(home: Path, *needles: bytes) -> set[str]:
    """Return the names of the files below `home` that contain one of these byte strings. Case is ignored."""
    wanted = [needle.lower() for needle in needles or (SECRET.encode(), TERM)]
    files = [file for file in home.rglob("*") if file.is_file()]
    return {file.name for file in files if any(one in file.read_bytes().lower() for one in wanted)}


def spellings(secret: str) -> list[str]:
    once = json.dumps(secret)[1:-1]
    return [
        secret,
        once,
        json.dumps(once)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1].replace("/", "\\/"),
        "".join(f"\\u{ord(char):04X}" for char in secret),
        quote(secret, safe=""),
        quote(secret, safe="").lower() if secret.islower() else quote(secret),
        b64encode(secret.encode()).decode(),
    ]


@pytest.fixture
def full(db: SessionDB, home: Path) -> SessionDB:
    """Create a store and a home that contain the secret in every possible place."""
    db.create_session(
        "a", "cli", system_prompt=f"use {SECRET}", model_config={"key": SECRET, "temperature": 1}
    )
    db.create_session("b", "telegram")
    db.create_session("clean", "cli")
    db.append_message("clean", "user", "the word is pelican")
    db.append_message("a", "user", f"my key is {SECRET}, keep it")
    db.append_message("a", "assistant", [{"type": "text", "text": f"I keep {SECRET}"}, {"n": 1.5}])
    calls = [{"id": "1", "function": {"name": "run", "arguments": json.dumps({"key": SECRET, "n": 1})}}]
    db.append_message("b", "assistant", None, tool_calls=calls, reasoning=f"think {SECRET}")
    db.append_message("b", "tool", "\n".join(spellings(SECRET)), tool_name=SECRET, tool_call_id="1")
    db.append_message("b", "assistant", "x", reasoning_details=[{"t": SECRET}], codex_message_items=[SECRET])
    db.set_session_title("a", f"about {SECRET}")
    db.set_session_title("b", f"about {INSTEAD}")
    db.set_meta("note", f"{SECRET} and {SECRET}")
    raw = db.raw()
    raw.execute(
        "UPDATE sessions SET display_name = ?, origin_json = ? WHERE id = 'b'", (SECRET, json.dumps([SECRET]))
    )
    raw.execute(
        "INSERT INTO inbox (session_key, session_id, platform, event_json, received_at, changed_at)"
        " VALUES ('k', 'b', 'telegram', ?, 1, 1)",
        (json.dumps({"text": SECRET}),),
    )
    raw.execute(
        "INSERT INTO outbox (session_key, platform, idempotency_key, payload_json, error, created_at, changed_at)"
        " VALUES ('k', 'telegram', 'once', ?, ?, 1, 1)",
        (json.dumps({"text": SECRET}), SECRET),
    )
    raw.execute(
        "INSERT INTO routing (session_key, platform, chat_type, session_id, created_at, updated_at, entry_json)"
        " VALUES ('k', 'telegram', 'dm', 'b', 1, 1, ?)",
        (json.dumps({"who": SECRET}),),
    )
    raw.execute("INSERT INTO tags VALUES ('a', ?), ('a', ?)", (SECRET, INSTEAD))
    raw.execute(
        "INSERT INTO blobs VALUES (x'01', 'image/png', 60, ?, 1)", (b"\xff\xfe" + SECRET.encode() + b"\xff",)
    )
    raw.execute("INSERT INTO blob_refs SELECT min(id), x'01' FROM messages WHERE session_id = 'a'")
    assert db.search_messages("quetzalcoatlus")
    assert len(db.search_sessions_ranked("quetzalcoatlus")) == 2
    db.append_message("clean", "user", "not indexed yet")
    sessions, spool = home / "sessions", home / "spool"
    (sessions / "saved").mkdir(parents=True)
    spool.mkdir()
    lines = [{"role": "user", "content": SECRET}, {"role": "assistant", "content": "no"}]
    (sessions / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (sessions / "saved" / "b.json").write_text(json.dumps({"messages": lines}, indent=2), encoding="utf-8")
    (sessions / "request_dump_a_1.json").write_text(json.dumps({"body": json.dumps(lines)}), encoding="utf-8")
    (sessions / "picture.bin").write_bytes(b"\xff\x00" + SECRET.encode() + b"\xff")
    (spool / "1.jsonl").write_text(json.dumps(lines[0]) + "\n" + json.dumps(lines[1])[:-5], encoding="utf-8")
    db.backup()
    db.backup(home / "mine.db")
    return db


def everything(db: SessionDB) -> str:
    tables = ("messages", "sessions", "state_meta", "inbox", "outbox", "tags", "blobs", "routing")
    return str(
        [[tuple(row) for row in db.raw().execute(f"SELECT * FROM {table}").fetchall()] for table in tables]
    )


def test_no_file_of_the_home_contains_the_secret_afterwards(full: SessionDB, home: Path) -> None:
    assert len(held(home)) >= 8
    receipt = full.scrub(SECRET)
    assert receipt.ok, receipt.left
    assert held(home) == set()
    full.close()
    assert held(home) == set()


@pytest.mark.parametrize("spelling", spellings(SECRET))
def test_escaped_and_encoded_spellings_are_removed(full: SessionDB, spelling: str) -> None:
    assert spelling in "\n".join(
        row["content"] or "" for row in full.get_messages("b") if row["role"] == "tool"
    )
    full.scrub(SECRET)
    assert spelling not in everything(full)
    assert full.scrub(SECRET).occurrences == 0


def test_everything_else_stays_as_it_was(full: SessionDB, home: Path) -> None:
    kept = ("id", "session_id", "role", "timestamp", "uid", "token_count", "active")
    before = {name: full.get_messages(name) for name in ("a", "b", "clean")}
    rows = {row["id"]: row for row in full.search_sessions()}
    full.scrub(SECRET)
    for name, messages in before.items():
        after = full.get_messages(name)
        assert [[row[key] for key in kept] for row in after] == [
            [row[key] for key in kept] for row in messages
        ]
    assert full.get_messages("clean") == before["clean"]
    assert [hit["session_id"] for hit in full.search_messages("pelican")] == ["clean"]
    for row in full.search_sessions():
        for key in ("message_count", "tool_call_count", "started_at", "last_active", "source"):
            assert row[key] == rows[row["id"]][key]
    assert full.verify().ok
    for copy in (home / "mine.db", *(home / "state.db.backups").glob("*.db")):
        with SessionDB(copy) as store:
            assert store.message_count() == full.message_count()
            assert store.verify().ok
            assert len(store.search_messages("pelican")) == 1
            assert not store.search_messages("quetzalcoatlus")


def test_json_stays_valid_and_keeps_the_rest(full: SessionDB, home: Path) -> None:
    full.scrub(SECRET)
    assert full.get_messages("a")[1]["content"] == [{"type": "text", "text": f"I keep {INSTEAD}"}, {"n": 1.5}]
    (call,) = full.get_messages("b")[0]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"key": INSTEAD, "n": 1}
    session = full.get_session("a")
    assert session is not None
    assert json.loads(session["model_config"]) == {"key": INSTEAD, "temperature": 1}
    lines = (home / "sessions" / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["content"] for line in lines] == [INSTEAD, "no"]
    saved = json.loads((home / "sessions" / "saved" / "b.json").read_text(encoding="utf-8"))
    assert [line["content"] for line in saved["messages"]] == [INSTEAD, "no"]
    dump = json.loads((home / "sessions" / "request_dump_a_1.json").read_text(encoding="utf-8"))
    assert json.loads(dump["body"])[0]["content"] == INSTEAD


def test_titles_and_tags_that_become_equal_are_made_different(full: SessionDB) -> None:
    full.scrub(SECRET)
    assert full.get_session_title("a") == f"about {INSTEAD} (2)"
    assert full.get_session_title("b") == f"about {INSTEAD}"
    assert {row[0] for row in full.raw().execute("SELECT tag FROM tags")} == {INSTEAD, f"{INSTEAD} (2)"}


def test_a_preview_that_was_cut_inside_the_secret_is_recomputed(db: SessionDB, home: Path) -> None:
    db.create_session("a", "cli")
    db.append_message("a", "user", "x" * 40 + " " + SECRET)
    assert "Quetzal" in db.list_sessions_rich()[0]["preview"]
    db.backup()
    db.scrub(SECRET)
    assert db.list_sessions_rich()[0]["preview"] == "x" * 40 + f" {INSTEAD}"
    db.close()
    assert held(home, b"Quetzal") == set()


def test_pictures_keep_their_size(full: SessionDB, home: Path) -> None:
    size = (home / "sessions" / "picture.bin").stat().st_size
    (before,) = full.raw().execute("SELECT length(bytes) FROM blobs").fetchone()
    full.scrub(SECRET)
    assert (home / "sessions" / "picture.bin").stat().st_size == size
    assert full.raw().execute("SELECT length(bytes) FROM blobs").fetchone()[0] == before


def test_files_are_private_afterwards(full: SessionDB, home: Path) -> None:
    os.chmod(home / "sessions" / "a.jsonl", 0o644)
    os.chmod(home / "mine.db", 0o644)
    full.scrub(SECRET)
    assert {oct(f.stat().st_mode & 0o777) for f in home.rglob("*") if f.is_file()} == {"0o600"}


def test_a_dry_run_counts_the_same_and_changes_nothing(full: SessionDB, home: Path) -> None:
    def files() -> dict[str, tuple[bytes, int]]:
        live = {f"state.db{ending}" for ending in ("", "-wal", "-shm", ".lock")}
        found = [file for file in home.rglob("*") if file.is_file() and file.name not in live]
        return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in found}

    rows, before = everything(full), files()
    dry = full.scrub(SECRET, dry_run=True)
    assert dry.dry_run
    assert (everything(full), files()) == (rows, before)
    real = full.scrub(SECRET)
    assert real == dry._replace(dry_run=False)
    assert real.occurrences > 30
    assert real.sessions == ("a", "b")


def test_the_receipt_names_places_and_sessions_but_not_the_secret(
    full: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        receipt = full.scrub(SECRET)
    places = {place.place: place for place in receipt.places}
    assert places["messages.content"].sessions == ("a", "b")
    assert places["state_meta.value"].occurrences == 2
    assert places["sessions/a.jsonl"].occurrences == 1
    assert places["blobs.bytes"].sessions == ("a",)
    assert places["mine.db"].sessions == ("a", "b")
    text = repr(receipt) + "\n".join(receipt.lines()) + caplog.text + repr(Spellings(SECRET))
    assert "Quetzal" not in text


def test_a_secret_in_an_id_stays_and_is_reported(db: SessionDB) -> None:
    db.create_session("20260101_hunter22-xy", "cli")
    db.append_message("20260101_hunter22-xy", "user", "hunter22-xy")
    receipt = db.scrub("hunter22-xy")
    assert not receipt.ok
    assert [line.split(":")[0] for line in receipt.left] == [
        "messages.session_id",
        "sessions.id",
        "sessions.root_id",
    ]
    assert "hunter22" not in repr(receipt)
    assert db.get_messages("20260101_hunter22-xy")[0]["content"] == INSTEAD


@pytest.mark.parametrize(
    "secret", ["", "short", "     \n  ", "  abc  ", "******", "scrubbed", None, b"bytes-secret", 12345678]
)
def test_an_invalid_secret_is_refused_and_not_shown(db: SessionDB, secret: Any) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        db.scrub(secret)
    if secret and secret != "scrubbed":
        assert str(secret).strip() == "" or str(secret) not in str(caught.value)


def test_a_store_that_is_open_for_reading_only_counts(full: SessionDB) -> None:
    full.close()
    with SessionDB(full.db_path, read_only=True) as reader:
        assert reader.scrub(SECRET, dry_run=True).occurrences
        with pytest.raises(errors.StoreReadOnly):
            reader.scrub(SECRET)


def test_files_of_other_kinds_are_named_and_left_alone(full: SessionDB, home: Path) -> None:
    (home / "config.yaml").write_text(f"key: {SECRET}", encoding="utf-8")
    elsewhere = home.parent / "elsewhere.jsonl"
    elsewhere.write_text(SECRET, encoding="utf-8")
    (home / "sessions" / "link.jsonl").symlink_to(elsewhere)
    (home / "stranger.db").write_bytes(b"no database " + SECRET.encode())
    left = [line.split(":")[0] for line in full.scrub(SECRET).left]
    assert left == ["stranger.db", "sessions/link.jsonl", "config.yaml"]
    assert SECRET in elsewhere.read_text(encoding="utf-8")
    assert held(home) == {"config.yaml", "stranger.db", "link.jsonl"}


def test_damaged_files_kept_aside_are_overwritten_in_place(full: SessionDB, home: Path) -> None:
    (copy,) = (home / "state.db.backups").glob("*.db")
    aside = [
        copy.with_name(f"{copy.name}.damaged"),
        home / "state.db.damaged-20260101_000000",
        copy.with_name("state-20250101_000000-backup.db"),
    ]
    for file in aside:
        file.write_bytes(b"\xff" * 600 + SECRET.encode() + b"\x00end")
    receipt = full.scrub(SECRET)
    assert len([line for line in receipt.left if "damaged" in line]) == 3
    assert held(home) == set()
    assert {file.read_bytes()[-4:] for file in aside} == {b"\x00end"}


def test_files_of_a_killed_backup_are_removed(full: SessionDB, home: Path) -> None:
    (home / "state.db.backups" / ".state.00.hermes-partial").write_bytes(SECRET.encode())
    (home / "sessions" / ".a.jsonl.00.hermes-partial").write_bytes(SECRET.encode())
    assert full.scrub(SECRET).ok
    assert held(home) == set()


@pytest.mark.parametrize("version", [1, 6, 11])
def test_copies_from_before_a_migration_are_rewritten_too(home: Path, version: int) -> None:
    home.mkdir(mode=0o700)
    path = home / "state.db"
    reference.build(path, version)
    with SessionDB(path) as db:
        (backup,) = path.with_name("state.db.backups").glob("*before-migration*.db")
        texts = [
            str(row["content"]) for s in db.search_sessions(limit=99) for row in db.get_messages(s["id"])
        ]
        words = {word for text in texts for word in text.split() if 8 <= len(word) < 40 and word.isalnum()}
        word = max(word for word in words if word.isascii() and backup.name in held(home, word.encode()))
        count = db.message_count()
        receipt = db.scrub(word)
        assert receipt.ok, receipt.left
        assert db.message_count() == count
    assert held(home, word.encode()) == set()


def test_deleted_rows_are_removed_from_free_pages(db: SessionDB, home: Path) -> None:
    db.create_session("a", "cli")
    for n in range(50):
        db.append_message("a", "user", f"{n} {SECRET}")
    db.search_messages("quetzalcoatlus")
    db.delete_session("a")
    assert db.scrub(SECRET).occurrences == 0
    assert held(home) == set()


def test_rows_that_another_program_deleted_are_removed_from_the_free_pages_of_a_copy(
    full: SessionDB, home: Path
) -> None:
    copy = sqlite3.connect(home / "mine.db")
    copy.execute("PRAGMA secure_delete=OFF")
    copy.execute("DELETE FROM messages WHERE session_id IN ('a', 'b')")
    copy.commit()
    copy.close()
    assert "mine.db" in held(home, SECRET.encode())
    assert full.scrub(SECRET).ok
    assert held(home) == set()


def test_a_file_that_changed_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("new line", encoding="utf-8")
    assert not replace_file(file, b"old", unless=lambda: True)
    assert [f.name for f in tmp_path.glob(".*")] == []
    assert file.read_text(encoding="utf-8") == "new line"


CHILD = """
import os, sys
from hermes_state import SessionDB
secret = sys.stdin.readline().rstrip("\\n")
with SessionDB() as db:
    print("ready", flush=True)
    db.scrub(secret)
print("done", flush=True)
"""


def test_a_second_run_finishes_a_killed_scrub(full: SessionDB, home: Path) -> None:
    for n in range(600):
        full.append_message("a", "user", f"{n} {SECRET} " + "filler " * 50)
    full.backup()
    full.close()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    holding = "SELECT count(*) FROM messages WHERE instr(content, ?)"
    half_way = 0
    for _round in range(3):
        with (
            SessionDB(read_only=True) as looking,
            subprocess.Popen(
                [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            ) as child,
        ):
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(f"{SECRET}\n".encode())
            child.stdin.flush()
            assert child.stdout.readline() == b"ready\n"
            before = left = looking.raw().execute(holding, (SECRET,)).fetchone()[0]
            while left == before and child.poll() is None:
                left = looking.raw().execute(holding, (SECRET,)).fetchone()[0]
            child.kill()
            half_way += 0 < left < before
    assert half_way
    with SessionDB() as db:
        receipt = db.scrub(SECRET)
        assert receipt.ok, receipt.left
        assert db.message_count("a") == 602
        assert db.verify().ok
        assert held(home) == set()
    assert held(home) == set()
    assert [
        file for file in home.rglob("*") if "partial" in file.name or file.name.endswith("-journal")
    ] == []


# ------------------------------------------------------------------------------------------------ spellings

chars = st.sampled_from(list('abn/"\\ é\n€😀%u0[]}{:,1'))
secrets = st.text(chars, min_size=6, max_size=12).filter(
    lambda s: len(s.strip()) >= 6 and len(set(s.strip())) > 1
)


@given(secrets, st.text(chars, max_size=10), st.text(chars, max_size=10), st.integers(0, 6))
def test_no_spelling_is_left_and_a_second_scrub_finds_nothing(
    secret: str, before: str, after: str, which: int
) -> None:
    secret = secret.strip()
    wanted = Spellings(secret)
    spelled = spellings(secret)[which] if secret.isascii() or which != 4 else secret
    cleaned, count = wanted.remove_from_text(f"{before}{spelled}{after}")
    assert count
    assert secret not in cleaned
    assert wanted.remove_from_text(cleaned) == (cleaned, 0)


@given(secrets, st.text(chars, max_size=10), st.text(chars, max_size=10), st.booleans())
def test_json_stays_valid_at_every_level(secret: str, before: str, after: str, ascii_only: bool) -> None:
    secret = secret.strip()
    inner = json.dumps({"a": before + secret + after, "n": [1.5, None]}, ensure_ascii=ascii_only)
    document = json.dumps({"arguments": inner, "text": before + secret + after}, ensure_ascii=ascii_only)
    cleaned, count = Spellings(secret).remove_from_text(document)
    assert count
    assert secret not in cleaned
    value = json.loads(cleaned)
    if value != INSTEAD:
        assert secret not in value["text"]
        assert json.loads(value["arguments"])


@given(st.text(chars, max_size=60), secrets)
def test_text_without_the_secret_is_left_byte_for_byte(text: str, secret: str) -> None:
    wanted = Spellings(secret)
    cleaned, count = wanted.remove_from_text(text)
    assert count or cleaned == text
    assert secret.strip() not in cleaned


def test_a_number_that_is_the_secret_goes_too() -> None:
    cleaned, count = Spellings("48151623").remove_from_text('{"pin": 48151623, "at": 1.5}')
    assert (json.loads(cleaned), count) == ({"pin": INSTEAD, "at": 1.5}, 1)


def test_an_escape_that_looks_like_the_secret_keeps_its_meaning() -> None:
    document = json.dumps({"text": "first\never-tell"})
    cleaned, _ = Spellings("never-tell").remove_from_text(document)
    assert "never-tell" not in cleaned
    assert json.loads(cleaned) == {"text": "first\never-tell"}


def test_an_attachment_without_the_secret_is_still_the_attachment_of_its_messages(db: SessionDB) -> None:
    data = b"\x89PNG" + bytes(5000) + SECRET.encode() + b"end"
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(data).decode()}"}}
    for name in ("a", "b"):
        db.create_session(name, "cli")
        db.append_message(name, "user", [{"type": "text", "text": "look"}, picture])
    db.scrub(SECRET)
    for name in ("a", "b"):
        [message] = db.get_messages(name)
        visible = b64decode(message["content"][1]["image_url"]["url"].partition(",")[2])
        assert len(visible) == len(data)
        assert visible.startswith(b"\x89PNG")
        assert SECRET.encode() not in visible
    assert db.raw().execute("SELECT count(*) FROM blobs").fetchone()[0] == 1
    assert db.verify().ok
