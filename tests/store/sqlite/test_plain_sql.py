"""`raw()` and `_conn` run plain SQL with the library of the store. Scripts can use them like a connection."""

from __future__ import annotations

import sqlite3

import pytest

from hermes import errors
from hermes_state import SessionDB
from tests.interface.conftest import contents, ids, say


def test_rows_are_read_by_index_and_by_name(db: SessionDB) -> None:
    say(db, "a", "hello")
    row = db.raw().execute("SELECT id, content FROM messages").fetchone()
    assert (row[0], row["content"], tuple(row), list(row.keys())) == (
        1,
        "hello",
        (1, "hello"),
        ["id", "content"],
    )


def test_fetchall_gives_the_rest_and_fetchone_none_at_the_end(db: SessionDB) -> None:
    say(db, "a", "one", "two", "three")
    cursor = db.raw().execute("SELECT id FROM messages ORDER BY id")
    assert cursor.fetchone()[0] == 1
    assert [row[0] for row in cursor.fetchall()] == [2, 3]
    assert cursor.fetchone() is None


def test_a_cursor_can_be_iterated(db: SessionDB) -> None:
    say(db, "a", "one", "two")
    assert [row["content"] for row in db.raw().execute("SELECT content FROM messages ORDER BY id")] == [
        "one",
        "two",
    ]


def test_values_are_bound_by_position_and_by_name(db: SessionDB) -> None:
    assert db.raw().execute("SELECT ?, ?", (1, "x")).fetchone()[1] == "x"
    assert db.raw().execute("SELECT :value", {"value": 5}).fetchone()[0] == 5


def test_scripts_written_for_the_reference_find_it_as_conn(db: SessionDB) -> None:
    say(db, "a", "hello")
    assert db._conn.execute("SELECT COUNT(*) FROM messages").fetchone()[0] == 1


def test_every_statement_commits_by_itself_and_commit_does_no_harm(db: SessionDB) -> None:
    say(db, "a", "hello")
    db.raw().execute("UPDATE messages SET content='changed'")
    with SessionDB() as second:
        assert contents(second.get_messages("a")) == ["changed"]
    db.raw().commit()


def test_a_message_changed_by_plain_sql_is_found_by_its_new_text_only(db: SessionDB) -> None:
    say(db, "a", "before")
    assert ids(db.search_messages("before")) == [1]
    db.raw().execute("UPDATE messages SET content='after'")
    assert (ids(db.search_messages("before")), ids(db.search_messages("after"))) == ([], [1])


def test_a_broken_rule_of_the_schema_is_an_integrity_error(db: SessionDB) -> None:
    with pytest.raises(sqlite3.IntegrityError) as refused:
        db.raw().execute("INSERT INTO sessions (id, started_at) VALUES ('a', 1)")
    assert isinstance(refused.value, errors.HermesError)


def test_a_mistake_in_the_sql_is_an_operational_error(db: SessionDB) -> None:
    with pytest.raises(sqlite3.OperationalError) as refused:
        db.raw().execute("SELECT nothing FROM nowhere")
    assert isinstance(refused.value, errors.HermesError)


def test_a_transaction_of_a_script_can_be_rolled_back(db: SessionDB) -> None:
    say(db, "a", "hello")
    raw = db.raw()
    raw.execute("BEGIN")
    raw.execute("DELETE FROM messages")
    raw.execute("ROLLBACK")
    assert contents(db.get_messages("a")) == ["hello"]


def test_a_write_is_one_transaction_and_gives_what_its_function_gives(db: SessionDB) -> None:
    def work(connection: sqlite3.Connection) -> str:
        connection.execute("INSERT INTO state_meta VALUES ('a', '1')")
        connection.execute("INSERT INTO state_meta VALUES ('b', '2')")
        return "done"

    assert db._execute_write(work) == "done"
    assert (db.get_meta("a"), db.get_meta("b")) == ("1", "2")


@pytest.mark.parametrize("problem", [ValueError("no"), KeyboardInterrupt()])
def test_a_write_that_fails_half_way_leaves_the_state_before(db: SessionDB, problem: BaseException) -> None:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO state_meta VALUES ('a', '1')")
        raise problem

    with pytest.raises(type(problem)):
        db._execute_write(work)
    assert db.get_meta("a") is None
    db.set_meta("a", "2")


def test_a_store_that_is_read_only_refuses_changes(db: SessionDB) -> None:
    say(db, "a", "hello")
    with SessionDB(read_only=True) as reader:
        with pytest.raises(errors.StoreReadOnly) as refused:
            reader.raw().execute("DELETE FROM messages")
        assert isinstance(refused.value, sqlite3.OperationalError)
    assert (db.session_count(), contents(db.get_messages("a"))) == (1, ["hello"])


def test_a_closed_store_says_that_it_is_closed(db: SessionDB) -> None:
    say(db, "a", "hello")
    db.close()
    with pytest.raises(errors.StoreClosed) as refused:
        db.raw().execute("DELETE FROM messages")
    assert isinstance(refused.value, sqlite3.ProgrammingError)
