"""Blocks of neighbouring messages always match the rows of `messages`, however the rows are changed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.store.sqlite.search import blocks
from hermes.store.sqlite.search.indexer import BATCH
from hermes_state import SessionDB
from tests.interface.conftest import new_id
from tests.tiers import scale_examples

RANGES = (
    "SELECT session_id, first_id, last_id, size, count, waiting FROM messages_fts_ranges ORDER BY first_id"
)


def settled(db: SessionDB) -> None:
    """Run a search, so that every block is indexed. Check the result."""
    db.search_sessions_ranked("anything")
    assert db.raw().execute(blocks.ANY_WAITING).fetchall() == []
    health = db.verify()
    assert health.ok, health.lines()


def in_blocks(db: SessionDB, word: str) -> bool:
    sql = "SELECT count(*) FROM messages_fts_blocks WHERE messages_fts_blocks MATCH ?"
    return bool(db.raw().execute(sql, (f'"{word}"',)).fetchall()[0][0])


@pytest.fixture
def talk(db: SessionDB) -> tuple[SessionDB, int]:
    """Create a session with the word `marmot` in its middle, and another session."""
    for name in ("a", "b"):
        db.create_session(name, "cli")
        db.append_message(name, "user", f"hello from {name}")
    message_id = db.append_message("a", "user", "the word is marmot")
    db.append_message("a", "assistant", "so it is")
    settled(db)
    assert in_blocks(db, "marmot")
    return db, message_id


def plain_sql(statement: str) -> Callable[[SessionDB, int], Any]:
    return lambda db, said: db.raw().execute(statement, (said,))


CHANGES: dict[str, Callable[[SessionDB, int], Any]] = {
    "updated": plain_sql("UPDATE messages SET content = 'something else' WHERE id = ?"),
    "deleted": plain_sql("DELETE FROM messages WHERE id = ?"),
    "replaced by another program": plain_sql(
        "REPLACE INTO messages (id, session_id, role, content, timestamp) VALUES (?, 'b', 'user', 'x', 1)"
    ),
    "rewound": lambda db, said: db.rewind_to_message("a", said),
    "replaced": lambda db, said: db.replace_messages("a", [{"role": "user", "content": "new"}]),
    "cleared": lambda db, said: db.clear_messages("a"),
    "its session deleted": lambda db, said: db.delete_session("a"),
    "moved and its new session deleted": lambda db, said: (
        db.raw().execute("UPDATE messages SET session_id = 'b' WHERE id = ?", (said,)),
        db.delete_session("b"),
    ),
    "scrubbed": lambda db, said: db.scrub("marmot"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_removed_text_leaves_the_blocks_with_the_next_batch(talk: tuple[SessionDB, int], change: str) -> None:
    db, message_id = talk
    CHANGES[change](db, message_id)
    db.search_messages("anything")  # the search applies the changes, but need not rebuild the blocks
    assert not in_blocks(db, "marmot")
    settled(db)
    assert not in_blocks(db, "marmot")
    assert in_blocks(db, "hello")
    assert [row["session_id"] for row in db.search_sessions_ranked("marmots")] == []


def test_a_moved_message_is_found_in_its_new_session(talk: tuple[SessionDB, int]) -> None:
    db, message_id = talk
    db.raw().execute("UPDATE messages SET session_id = 'b' WHERE id = ?", (message_id,))
    assert [row["session_id"] for row in db.search_sessions_ranked("marmots")] == ["b"]
    settled(db)


def test_messages_that_a_survivor_inherits_stay_in_blocks(db: SessionDB) -> None:
    db.create_session("old", "cli")
    ids = [db.append_message("old", "user", f"about badgers {number}") for number in range(40)]
    settled(db)
    new = db.begin_continuation("old", "summary", ids)
    settled(db)
    assert db.delete_session("old")
    settled(db)
    assert [row["session_id"] for row in db.search_sessions_ranked("badger")] == [new]
    counts = [row[4] for row in db.raw().execute(RANGES).fetchall()]
    assert max(counts) <= blocks.MOST_MESSAGES
    assert sum(counts) == 41


def test_a_block_is_a_few_messages_of_one_session(db: SessionDB) -> None:
    for name in ("a", "b"):
        db.create_session(name, "cli")
    for number in range(100):
        db.append_message("a" if number % 3 else "b", "user", f"message {number} " + "x" * (number * 20))
    db.append_message("a", "user", "very long " * 5_000)
    db.append_message("a", "tool", "tool output " * 5_000)
    settled(db)
    rows = db.raw().execute(RANGES).fetchall()
    assert all(
        size <= blocks.MOST_CHARACTERS and count <= blocks.MOST_MESSAGES for *_, size, count, _ in rows
    )
    for name in ("a", "b"):
        ranges = [(first, last) for session, first, last, *_ in rows if session == name]
        assert all(before[1] < after[0] for before, after in pairwise(ranges))


def test_a_block_that_still_grows_waits_until_it_is_full_quiet_or_asked_for(db: SessionDB) -> None:
    for name in ("a", "b"):
        db.create_session(name, "cli")
    db.append_message("a", "user", "otter")
    db.search_messages("otter", sort="newest")
    for number in range(2 * BATCH):
        db.append_message("b", "user", f"filling {number}")
    assert not in_blocks(db, "otter")
    assert in_blocks(db, "filling")
    for number in range(blocks.QUIET_AFTER + 100):
        db.append_message("b", "user", f"more {number}")
    assert in_blocks(db, "otter")


def test_an_older_store_without_blocks_gets_them_when_it_is_opened(home: Path) -> None:
    with SessionDB() as db:
        db.create_session("a", "cli")
        for number in range(700):
            db.append_message("a", "user", f"gannet {number} " + "word " * 200)
        db.optimize()
        raw = db.raw()
        for table in ("messages_fts_blocks", "messages_fts_ranges", "messages_fts_members"):
            raw.execute(f"DROP TABLE {table}")
        raw.execute("DELETE FROM index_progress WHERE name = 'blocks'")
    with SessionDB(read_only=True) as db:
        assert len(db.search_sessions_ranked("which gannet?")) == 1
        assert db.verify().ok
    with SessionDB() as db:
        db.append_message("a", "user", "a late cormorant")
        assert [row["session_id"] for row in db.search_sessions_ranked("cormorants")] == ["a"]
        db.optimize()
        settled(db)
        assert in_blocks(db, "gannet")


def test_incomplete_tables_of_blocks_are_rebuilt(home: Path) -> None:
    with SessionDB() as db:
        db.create_session("a", "cli")
        db.append_message("a", "user", "gannet")
        settled(db)
        db.raw().execute("DROP TABLE messages_fts_members")
    with SessionDB() as db:
        settled(db)
        assert in_blocks(db, "gannet")


def test_verify_finds_outdated_blocks_and_repair_rebuilds_them(talk: tuple[SessionDB, int]) -> None:
    db, message_id = talk
    raw = db.raw()
    raw.execute(
        "DELETE FROM messages_fts_blocks WHERE rowid = (SELECT min(block_id) FROM messages_fts_ranges)"
    )
    raw.execute("DELETE FROM messages_fts_members WHERE message_id = ?", (message_id,))
    assert len(db.verify().drift) >= 2
    path = db.db_path
    db.close()
    assert SessionDB.repair_file(path).ok
    with SessionDB(path) as mended:
        settled(mended)
        assert in_blocks(mended, "marmot")


def update(db: SessionDB, here: str, picked: int, text: str) -> None:
    db.raw().execute("UPDATE messages SET content = ? WHERE id = ?", (text, picked))


def delete(db: SessionDB, here: str, picked: int, text: str) -> None:
    db.raw().execute("DELETE FROM messages WHERE id = ?", (picked,))


def insert(db: SessionDB, here: str, picked: int, text: str) -> None:
    """Insert a row as another program does: in a gap between message ids or after the last message."""
    values = "VALUES (?, ?, 'user', ?, 1)"
    db.raw().execute(
        f"INSERT OR IGNORE INTO messages (id, session_id, role, content, timestamp) {values}",
        (picked + 2, here, text),
    )


def move(db: SessionDB, here: str, picked: int, text: str) -> None:
    db.raw().execute("UPDATE messages SET session_id = ? WHERE id >= ?", (here, picked))


def append(db: SessionDB, here: str, picked: int, text: str) -> None:
    db.append_message(here, ["user", "assistant", "tool"][len(text) % 3], text)


def rewind(db: SessionDB, here: str, picked: int, text: str) -> None:
    if messages := db.list_recent_user_messages(here, 50):
        db.rewind_to_message(here, messages[picked % len(messages)]["id"])


def restore(db: SessionDB, here: str, picked: int, text: str) -> None:
    db.restore_rewound(here)


def replace(db: SessionDB, here: str, picked: int, text: str) -> None:
    kept = db.get_messages_as_conversation(here)[: picked % 5]
    db.replace_messages(here, [*kept, {"role": "user", "content": text}])


def rank(db: SessionDB, here: str, picked: int, text: str) -> None:
    db.search_sessions_ranked(text)


def search(db: SessionDB, here: str, picked: int, text: str) -> None:
    db.search_messages("filling")


def branch(db: SessionDB, here: str, picked: int, text: str) -> None:
    db.branch(here, end_parent=False)


def remove(db: SessionDB, here: str, picked: int, text: str) -> None:
    if db.session_count() > 1:
        db.delete_session(here)


VERBS = [
    append,
    append,
    append,
    update,
    delete,
    insert,
    move,
    rewind,
    restore,
    replace,
    rank,
    search,
    branch,
    remove,
]


@settings(max_examples=scale_examples(160))
@given(
    st.lists(
        st.tuples(st.sampled_from(VERBS), st.integers(0, 50), st.integers(0, 3)), min_size=5, max_size=40
    )
)
def test_blocks_match_the_rows_after_any_changes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "state.db"
    with SessionDB(path, durability="normal") as db:
        for _ in range(3):
            db.create_session(new_id(), "cli")
        for verb, nth, which in steps:
            sessions = db.raw().execute("SELECT id FROM sessions ORDER BY id").fetchall()
            rows = db.raw().execute("SELECT id FROM messages ORDER BY id").fetchall()
            picked = rows[nth % len(rows)][0] if rows else 0
            verb(db, sessions[which % len(sessions)][0], picked, f"word{nth} " + "filling " * (nth * 20))
        settled(db)
        held = db.raw().execute("SELECT count(*) FROM messages_fts_members").fetchall()[0][0]
        there = "SELECT count(*) FROM messages WHERE active = 1 AND content <> ''"
        assert held == db.raw().execute(there).fetchall()[0][0]
