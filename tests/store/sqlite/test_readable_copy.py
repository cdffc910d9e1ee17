"""A store of another version is read through a copy. The store is not changed, and all of its data can be
read.
"""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import errors
from hermes.store.sqlite import opener
from hermes.store.sqlite.upkeep.readable_copy import _Message, find_repeated
from hermes_state import SessionDB
from tests.store.sqlite.reference_databases import PLANTED_CJK, PLANTED_WORD, build, build_newer

RAISE_VERSION = "UPDATE schema_version SET version = 22"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere" / "state.db"


@pytest.fixture(autouse=True)
def folder(path: Path) -> None:
    path.parent.mkdir(mode=0o700)


def files_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


def copies(home: Path) -> list[Path]:
    return sorted((home / "cache").glob("*.db"))


def run_import(path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "hermes.cli.main", "sessions", "import", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def by_reference(path: Path, *statements: str) -> None:
    """Change the file as a newer release of the reference does."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.executescript(statement)


def test_a_newer_store_is_read_whole_and_left_untouched(path: Path) -> None:
    expected = build(path, 11)
    by_reference(path, RAISE_VERSION)
    before = files_of(path)
    with SessionDB(path, read_only=True) as db:
        expected.check(db.raw(), ignore=("schema_version",))
        assert len(db.search_messages(PLANTED_WORD)) == 1
        assert len(db.search_messages(PLANTED_CJK)) == 1
        assert len(list(db.export_all())) == expected.total_sessions
    assert files_of(path) == before


def test_a_newer_store_cannot_be_written(path: Path) -> None:
    build_newer(path)
    before = files_of(path)
    with pytest.raises(errors.StoreTooNew, match="hermes sessions import"):
        SessionDB(path)
    with SessionDB(path, read_only=True) as db, pytest.raises(errors.StoreReadOnly):
        db.create_session("new", "cli")
    assert {name for name in files_of(path) if not name.endswith(".lock")} == set(before)
    assert path.read_bytes() == before[path.name]


def test_a_store_that_a_newer_reference_opened_keeps_its_history(path: Path) -> None:
    with SessionDB(path) as db:
        db.create_session("first", "cli")
        db.set_session_title("first", "my project")
        db.append_message("first", "user", "the ferry leaves at nine")
        db.add_tags("first", "travel")
    by_reference(
        path,
        RAISE_VERSION,
        "ALTER TABLE messages ADD COLUMN api_content TEXT",
        "CREATE TABLE compression_locks (session_id TEXT PRIMARY KEY, until REAL)",
        "CREATE TRIGGER of_a_later_version AFTER INSERT ON messages BEGIN SELECT unknown_function(1); END",
        "INSERT INTO sessions (id, source, started_at) VALUES ('second', 'cli', 1750000000)",
    )
    opener._checked_schemas.clear()  # forget the cached check, as if this were another process
    with SessionDB(path, read_only=True) as db:
        assert [row["id"] for row in db.list_sessions_rich()] == ["first", "second"]
        assert db.resolve_session_by_title("my project") == "first"
        assert [hit["session_id"] for hit in db.search_messages("ferry")] == ["first"]
        assert db.tags_of("first") == ["travel"]


def test_an_older_store_that_may_only_be_read_is_not_migrated_in_place(path: Path) -> None:
    expected = build(path, 7)
    before = files_of(path)
    with SessionDB(path, read_only=True) as db:
        expected.check(db.raw(), ignore=("schema_version", "sessions.message_count"))
        assert len(db.search_messages(PLANTED_WORD)) == 1
    assert files_of(path) == before


def test_the_copy_is_private_and_follows_the_file(path: Path, home: Path) -> None:
    build_newer(path)
    SessionDB(path, read_only=True).close()
    (first,) = copies(home)
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    made = first.stat().st_mtime_ns
    SessionDB(path, read_only=True).close()
    assert [copy.stat().st_mtime_ns for copy in copies(home)] == [made]

    with SessionDB(path, read_only=True) as earlier:
        by_reference(
            path, "INSERT INTO sessions (id, source, started_at) VALUES ('fresh', 'cli', 1750000000)"
        )
        with SessionDB(path, read_only=True) as db:
            assert db.get_session("fresh")
        assert earlier.get_session("fresh") is None  # an open handle continues to read its copy
        assert earlier.list_sessions_rich()
    assert len(copies(home)) == 1
    assert copies(home) != [first]


WRITER = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA journal_mode=WAL")
connection.execute("INSERT INTO sessions (id, source, started_at) VALUES ('in the log', 'cli', 1750000000)")
connection.commit()
print("written", flush=True)
sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("log", ["in use", "of a killed program", "without its index"])
def test_rows_that_are_only_in_the_log_are_read(path: Path, log: str) -> None:
    build_newer(path)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdout
    assert writer.stdout.readline() == b"written\n"
    if log != "in use":
        writer.communicate()
    if log == "without its index":
        path.with_name("state.db-shm").unlink()
    before = files_of(path)
    try:
        with SessionDB(path, read_only=True) as db:
            assert db.get_session("in the log")
        after = files_of(path)
        assert after.keys() == before.keys()
        assert (after["state.db"], after["state.db-wal"]) == (before["state.db"], before["state.db-wal"])
    finally:
        writer.communicate()


def test_another_database_is_refused(path: Path) -> None:
    by_reference(
        path, "CREATE TABLE schema_version (version INTEGER); INSERT INTO schema_version VALUES (22)"
    )
    with pytest.raises(errors.StoreFailed, match="not a session store"):
        SessionDB(path, read_only=True)


# --- conversations that the reference compacted in place


def test_messages_hidden_by_a_compaction_are_shown_and_repeated_ones_are_not(path: Path) -> None:
    build(path, 11, fresh=True, with_later_columns=True)
    add = (
        "INSERT INTO messages (session_id, role, content, timestamp, active, compacted) VALUES ('c', 'user', "
    )
    by_reference(
        path,
        RAISE_VERSION,
        "ALTER TABLE messages ADD COLUMN compacted INTEGER DEFAULT 0;"
        "INSERT INTO sessions (id, source, started_at) VALUES ('c', 'cli', 1750000000)",
        *(f"{add}'{text}', 1, 0, 1)" for text in ("one", "two", "three", "four")),
        *(f"{add}'{text}', 2, 1, 0)" for text in ("summary", "three", "four", "yes")),
        f"{add}'taken back', 3, 0, 0)",
    )
    with SessionDB(path, read_only=True) as db:
        texts = [message["content"] for message in db.get_messages("c")]
        assert texts == ["one", "two", "three", "four", "summary", "yes"]
        assert db.search_messages("two")
        assert not db.search_messages('"taken back"')


texts = st.lists(st.text("ab", min_size=1, max_size=2), max_size=8)


def numbered(said: Sequence[str]) -> list[_Message]:
    return [_Message(number, (text,)) for number, text in enumerate(said)]


@given(st.integers(3, 12), st.integers(0, 2), st.integers(2, 6), st.integers(0, 3))
def test_messages_repeated_by_a_compaction_are_recognised(
    length: int, first: int, last: int, later: int
) -> None:
    texts = [f"message {number}" for number in range(length)]
    kept_last = texts[max(first, length - last) :]
    again = [*texts[:first], "summary", *kept_last]
    afterwards = [f"later {number}" for number in range(later)]
    hidden = set(find_repeated(numbered([*texts, *again, *afterwards])))
    expected = {length + at for at in range(len(again)) if at != first}
    assert hidden == (expected if len(kept_last) > 1 or (first and kept_last) else set())


@given(texts)
def test_only_exact_repetitions_are_hidden(said: list[str]) -> None:
    """A message is hidden only if it repeats an earlier message exactly."""
    for number in find_repeated(numbered(said)):
        assert said[number] in said[:number]


def test_an_imported_store_leaves_no_copy(path: Path, home: Path) -> None:
    build_newer(path)
    run_import(path)
    assert list((home / "cache").iterdir()) == []


def test_a_copy_is_removed_when_its_original_is_gone(path: Path, home: Path, tmp_path: Path) -> None:
    build_newer(path)
    SessionDB(path, read_only=True).close()
    (first,) = copies(home)
    path.unlink()
    other = tmp_path / "other" / "state.db"
    other.parent.mkdir(mode=0o700)
    build_newer(other)
    SessionDB(other, read_only=True).close()
    assert copies(home) != [first]
    assert len(copies(home)) == 1
    assert {file.name.partition(".db")[0] for file in (home / "cache").iterdir()} == {copies(home)[0].stem}


READER = """
import sys
from hermes_state import SessionDB
with SessionDB(sys.argv[1], read_only=True) as db:
    print(len(db.export_all()), flush=True)
    sys.stdin.readline()
    print(len(db.export_all()), flush=True)
"""


@pytest.mark.parametrize("way", ["import", "outdated", "purge", "scrub", "optimize"])
def test_a_copy_that_another_process_reads_stays_until_it_is_closed(path: Path, home: Path, way: str) -> None:
    build_newer(path)
    command = [sys.executable, "-c", READER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        count = reader.stdout.readline()
        (copy,) = copies(home)
        if way == "import":
            run_import(path)
        elif way == "outdated":
            by_reference(
                path, "INSERT INTO sessions (id, source, started_at) VALUES ('x', 'cli', 1750000000)"
            )
            SessionDB(path, read_only=True).close()
        else:
            with SessionDB() as db:
                db.create_session("a", "cli")
                if way == "purge":
                    with pytest.raises(errors.StoreBusy, match=copy.name):
                        db.delete_session("a", purge=True)
                elif way == "scrub":
                    assert any(copy.name in line for line in db.scrub("a secret text").left)
                else:
                    db.optimize()
        assert copy in copies(home)
        print(file=reader.stdin, flush=True)
        assert reader.stdout.readline() == count
    assert reader.returncode == 0
    if way == "outdated":
        assert copy not in copies(home), "its last reader removes it"


@pytest.mark.parametrize("way", ["purge", "scrub", "optimize"])
def test_a_text_that_is_removed_stays_in_no_copy(path: Path, home: Path, way: str) -> None:
    with SessionDB(path) as db:
        db.create_session("private", "cli")
        db.append_message("private", "user", "the code is xylophone-4711")
    by_reference(path, RAISE_VERSION)
    with SessionDB(path, read_only=True) as db:
        given = db.export_all()
    assert len(copies(home)) == 1
    with SessionDB() as db:
        db.import_sessions(given)
        if way == "purge":
            db.delete_session("private", purge=True)
        elif way == "scrub":
            found = db.scrub("xylophone-4711", dry_run=True)
            assert any(copies(home)[0].name in place.place for place in found.places)
            assert len(copies(home)) == 1
            db.scrub("xylophone-4711")
        else:
            db.optimize()
    held = [file for file in home.rglob("*") if file.is_file() and b"xylophone" in file.read_bytes()]
    assert [file.name for file in held] == (["state.db"] if way == "optimize" else [])
    assert list((home / "cache").iterdir()) == []


def test_doctor_names_the_copies(path: Path) -> None:
    build_newer(path)
    SessionDB(path, read_only=True).close()
    with SessionDB() as db:
        found = [line for line in db.diagnose().lines() if "Cache" in line]
    assert len(found) == 1
    assert str(path) in found[0]
