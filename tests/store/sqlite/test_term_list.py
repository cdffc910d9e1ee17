"""The list of terms serves `*part*` queries. The tests cover when it is kept, when it is removed and how it
is created again.
"""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from hermes_state import SessionDB
from tests.recall.test_parts import found, said

TERMS = "SELECT term FROM messages_fts_words_terms"
PROGRESS = "SELECT value FROM index_progress WHERE name = 'parts mark'"


def listed(db: SessionDB) -> set[str]:
    is_there = (
        db.raw().execute("SELECT 1 FROM sqlite_master WHERE name = 'messages_fts_words_terms'").fetchone()
    )
    return {row[0] for row in db.raw().execute(TERMS)} if is_there else set()


def test_appends_do_not_update_the_list_and_searches_do(db: SessionDB) -> None:
    said(db, "s", "firstTerm")
    assert len(db.search_messages("firstterm")) == 1
    assert listed(db) == set()
    assert len(found(db, "*rstte*")) == 1
    assert listed(db) == {"firstterm", "first", "term"}
    said(db, "s", "secondTerm", "with a firstTerm again")
    assert listed(db) == {"firstterm", "first", "term"}
    assert len(found(db, "*rstte*")) == 2
    assert listed(db) == {"firstterm", "first", "term", "secondterm", "second", "with", "again"}
    assert db.raw().execute(PROGRESS).fetchone()[0] == 3


@pytest.mark.parametrize("how", ["delete", "clear", "foreign update", "foreign delete", "replace"])
def test_a_term_without_rows_is_removed_by_the_next_search(db: SessionDB, how: str) -> None:
    said(db, "s", "the hunter2secret")
    said(db, "t", "the other")
    assert len(found(db, "*ter2s*")) == 1
    if how == "delete":
        db.delete_session("s")
    elif how == "clear":
        db.clear_messages("s")
    elif how == "foreign update":
        db.raw().execute("UPDATE messages SET content = 'the harmless' WHERE session_id = 's'")
    elif how == "foreign delete":
        db.raw().execute("DELETE FROM messages WHERE session_id = 's'")
    else:
        db.replace_messages("s", [{"role": "user", "content": "the harmless"}])
    assert found(db, "*ter2s*") == []
    db._engine.catch_up(5)
    assert found(db, "*the*")
    assert listed(db) >= {"the", "other"}
    assert "hunter2secret" not in listed(db)


@pytest.mark.parametrize("how", ["vacuum", "optimize", "shrink", "purge", "scrub"])
def test_no_byte_of_a_removed_term_is_left(home: Path, how: str) -> None:
    with SessionDB() as db:
        said(db, "s", "the hunter2secret")
        said(db, "t", "the other")
        db.backup()
        assert len(found(db, "*ter2s*")) == 1
        db.backup()
        if how == "purge":
            db.delete_session("s", purge=True)
        elif how == "scrub":
            db.scrub("hunter2secret")
        else:
            db.delete_session("s")
            {"vacuum": db.vacuum, "optimize": db.optimize, "shrink": db._engine.shrink}[how]()
        path = db.db_path
        assert db.verify().ok
    copies = [path, *home.rglob("*.db")] if how in ("purge", "scrub") else [path]
    for file in copies:
        assert b"hunter2secret" not in file.read_bytes()
        assert b"unter2secre" not in file.read_bytes()


def test_a_damaged_list_is_removed_and_nothing_else_is_lost(home: Path) -> None:
    with SessionDB() as db:
        said(db, "s", *(f"term{number}x" for number in range(50)))
        assert len(found(db, "*erm4*")) == 11
        path = db.db_path
    connection = apsw.Connection(str(path))
    size = connection.pragma("page_size")
    pages = [
        row[0]
        for row in connection.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name LIKE '%words_terms'")
    ]
    connection.pragma("wal_checkpoint")
    connection.close()
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * size)
            file.write(b"\xde\xad" * (size // 2))
    with SessionDB() as db:
        assert len(found(db, "*erm4*")) == 11
        assert len(found(db, "term49x")) == 1
        said(db, "s", "term50x")
        assert len(found(db, "*erm5*")) == 2
        assert "term50x" in listed(db)
        assert db.verify().ok


def test_an_index_that_another_program_dropped_starts_a_new_list(home: Path) -> None:
    edit = "UPDATE messages SET content = content || ?"
    with SessionDB() as db:
        said(db, "s", "alphaTerm", "betaTerm")
        assert len(found(db, "*hate*")) == 1
        db.raw().execute(edit, (" firstEdit",))
        db._engine.catch_up(5)  # records the change for the list
        db.raw().execute("DROP TABLE messages_fts_words")
    with SessionDB() as db:
        db._engine.catch_up(5)
        db.raw().execute(edit, (" secondEdit",))
        db._engine.catch_up(5)
        for query in ("*rstedi*", "*condedi*"):
            assert len(found(db, query)) == 2
        assert listed(db) >= {"alphaterm", "betaterm", "firstedit", "secondedit"}
        assert db.verify().ok


def test_an_index_in_the_older_format_is_rebuilt(home: Path) -> None:
    """The older index split text only at spaces. It would treat a text such as `alpha-beta` as one word."""
    older = """CREATE VIRTUAL TABLE messages_fts_words USING fts5(words, parts, content='', contentless_delete=1,
        tokenize="ascii tokenchars '-.|'")"""
    with SessionDB() as db:
        said(db, "s", "alpha-beta")
        db._engine.catch_up(5)
        db.raw().execute("DROP TABLE messages_fts_words")
        db.raw().execute(older)
        db.raw().execute("INSERT INTO messages_fts_words (rowid, words, parts) VALUES (1, 'alpha beta', '')")
    with SessionDB(read_only=True) as db:
        assert len(found(db, "beta")) == 1
    with SessionDB() as db:
        said(db, "t", "gamma-delta")
        db._engine.catch_up(5)
        for query in ("beta", "delta", '"gamma delta"'):
            assert len(found(db, query)) == 1
        assert db.verify().ok
