"""Opening and closing: the location of the file, read-only handles, and calls after closing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes import errors
from hermes_state import SessionDB
from tests.interface.conftest import contents, say

Verb = Callable[[SessionDB], Any]

WRITES: dict[str, Verb] = {
    "create_session": lambda db: db.create_session("new", "cli"),
    "end_session": lambda db: db.end_session("a", "cli_close"),
    "append_message": lambda db: db.append_message("a", "user", "more"),
    "replace_messages": lambda db: db.replace_messages("a", [{"role": "user", "content": "other"}]),
    "clear_messages": lambda db: db.clear_messages("a"),
    "set_session_title": lambda db: db.set_session_title("a", "name"),
    "update_token_counts": lambda db: db.update_token_counts("a", 1, 1),
    "set_meta": lambda db: db.set_meta("key", "value"),
    "delete_session": lambda db: db.delete_session("a"),
}
READS: dict[str, Verb] = {
    "get_session": lambda db: db.get_session("a"),
    "get_messages": lambda db: db.get_messages("a"),
    "list_sessions_rich": lambda db: db.list_sessions_rich(),
    "search_sessions": lambda db: db.search_sessions(),
    "search_messages": lambda db: db.search_messages("hello"),
    "session_count": lambda db: db.session_count(),
    "get_meta": lambda db: db.get_meta("key"),
}


def test_the_store_is_state_db_in_the_home(home: Path) -> None:
    with SessionDB() as db:
        assert db.db_path == home / "state.db"
        assert (home / "state.db").is_file()


@pytest.mark.parametrize("kind", [str, Path])
def test_another_path_may_be_given_and_its_folders_are_made(
    tmp_path: Path, kind: Callable[[Path], Any]
) -> None:
    path = tmp_path / "deep" / "down" / "other.db"
    SessionDB(db_path=kind(path)).close()
    assert path.is_file()


def test_folder_and_files_are_private(home: Path) -> None:
    with SessionDB() as db:
        say(db, "a", "hello")
        modes = {
            name: (home / name).stat().st_mode & 0o777 for name in os.listdir(home) if "state.db" in name
        }
    assert home.stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) == {0o600}


def test_what_was_stored_is_there_after_reopening(home: Path) -> None:
    with SessionDB() as db:
        say(db, "a", "hello")
    with SessionDB() as db:
        assert contents(db.get_messages("a")) == ["hello"]


def test_two_stores_on_one_file_see_each_other(db: SessionDB) -> None:
    with SessionDB() as second:
        say(db, "a", "from the first")
        second.append_message("a", "user", "from the second")
        assert contents(db.get_messages("a")) == ["from the first", "from the second"]
        assert len(second.search_messages("from")) == 2


def test_read_only_reads(db: SessionDB) -> None:
    say(db, "a", "hello")
    db.set_meta("key", "value")
    with SessionDB(read_only=True) as reader:
        assert {name: verb(reader) for name, verb in READS.items()} == {
            name: verb(db) for name, verb in READS.items()
        }


@pytest.mark.parametrize("verb", WRITES.values(), ids=WRITES.keys())
def test_read_only_writes_nothing_and_says_so(db: SessionDB, verb: Verb) -> None:
    say(db, "a", "hello")
    with SessionDB(read_only=True) as reader:
        with pytest.raises(errors.StoreReadOnly) as refused:
            verb(reader)
        assert isinstance(refused.value, sqlite3.OperationalError)
    assert (db.session_count(), contents(db.get_messages("a")), db.get_meta("key")) == (1, ["hello"], None)


def test_read_only_makes_no_file(home: Path) -> None:
    with pytest.raises(errors.HermesError):
        SessionDB(read_only=True)
    assert not (home / "state.db").exists()


def test_closing_twice_is_safe(home: Path) -> None:
    db = SessionDB()
    db.close()
    db.close()


def test_leaving_the_context_closes(home: Path) -> None:
    with SessionDB() as db:
        assert db.session_count() == 0
    with pytest.raises(errors.StoreClosed):
        db.session_count()


@pytest.mark.parametrize("verb", [*READS.values(), *WRITES.values()], ids=[*READS.keys(), *WRITES.keys()])
def test_a_closed_store_says_that_it_is_closed(db: SessionDB, verb: Verb) -> None:
    say(db, "a", "hello")
    db.close()
    with pytest.raises(errors.StoreClosed) as refused:
        verb(db)
    assert isinstance(refused.value, sqlite3.ProgrammingError)


def test_a_path_that_cannot_be_a_store_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(errors.HermesError) as refused:
        SessionDB(tmp_path)
    assert "\n" not in str(refused.value)
