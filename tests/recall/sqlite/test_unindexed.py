"""A search includes messages that are not indexed yet, even while another process holds the write lock. If it
cannot include them, it fails with one error."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hermes import errors
from hermes.store.people import Principal
from hermes.store.sqlite.engine import SqliteEngine
from hermes_state import SessionDB
from tests.interface.conftest import new_id, passing
from tests.interface.test_search_exact import EVERYTHING, MESSAGES, QUERIES, append, column
from tests.oracle import oracle_matches
from tests.tiers import scale_examples

ANN = Principal("telegram", "ann", "dm", "dm-ann")
INSERT = """INSERT INTO messages (session_id, role, content, tool_name, tool_calls, timestamp)
    VALUES (?, ?, ?, ?, ?, ?)"""
HOLDER = """
import sys, apsw
connection = None
for line in sys.stdin:
    if line.strip():
        connection = apsw.Connection(line.strip())
        connection.set_busy_timeout(10000)
        connection.execute("BEGIN IMMEDIATE")
    else:
        connection.execute("ROLLBACK")
        connection.close()
    print("done", flush=True)
"""


class Holder:
    """A process that takes and keeps the write lock of a store."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def hold(self, path: Path) -> None:
        self._tell(str(path))

    def release(self) -> None:
        self._tell("")

    def _tell(self, line: str) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()
        assert self._child.stdout.readline() == "done\n"

    def close(self) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait(30)
        self._child.stdout.close()


@pytest.fixture(scope="module")
def holder() -> Iterator[Holder]:
    made = Holder()
    try:
        yield made
    finally:
        made.close()


def insert(db: SessionDB, session_id: str, messages: list[dict[str, Any]]) -> None:
    """Insert rows as another program does."""
    rows = [
        (
            *(session_id, message["role"], column(message["content"]), message.get("tool_name")),
            *(json.dumps(calls) if (calls := message.get("tool_calls")) else None, 1000.0 + number),
        )
        for number, message in enumerate(messages)
    ]
    db.raw().executemany(INSERT, rows)


def insert_texts(db: SessionDB, session_id: str, texts: list[str]) -> None:
    insert(db, session_id, [{"role": "user", "content": text} for text in texts])


def engine(db: SessionDB) -> SqliteEngine:
    return cast(SqliteEngine, db._engine)


def ids(rows: Any) -> list[int]:
    return sorted(row["id"] for row in rows)


FILTERS: list[dict[str, Any]] = [
    {},
    {"role_filter": ["user"]},
    {"source_filter": ["telegram"]},
    {"exclude_sources": ["telegram"], "sort": "newest"},
    {"sort": "oldest", "after": 1001.0},
]
INTERACTIVE = ["*ploy*", "*serN* OR deploy", "role:tool 日本", "(get OR user) NOT tool:terminal", "has:tool"]


@settings(max_examples=scale_examples(40))
@given(
    st.lists(MESSAGES, max_size=4),
    st.lists(MESSAGES, min_size=1, max_size=6),
    st.lists(QUERIES, min_size=1, max_size=4),
    st.sampled_from(FILTERS),
    st.sampled_from(INTERACTIVE),
)
@example(
    [{"role": "user", "content": "getUserName"}],
    [{"role": "tool", "content": "日本語 docker-compose", "tool_name": "terminal"}],
    ["docker-compose", "日本", "user OR compose", "deploy*"],
    {},
    "*serN*",
)
def test_a_partly_indexed_store_gives_the_same_results_as_a_full_index(
    shelf: SessionDB,
    holder: Holder,
    indexed: list[dict[str, Any]],
    tail: list[dict[str, Any]],
    queries: list[str],
    filters: dict[str, Any],
    interactive: str,
) -> None:
    ann = shelf.scoped(ANN)
    with passing(shelf), SessionDB(shelf.db_path, read_only=True) as reader:
        mine, other = ann.create_session(), shelf.create_session(new_id(), "cli")
        for message in indexed:
            append(shelf, other, message)
        shelf._engine.catch_up(5)
        insert(shelf, mine, tail[::2])
        insert(shelf, other, tail[1::2])
        for number in ids(shelf.get_messages(other))[:1]:  # change a message after it was indexed
            shelf.raw().execute("UPDATE messages SET content = 'deploy getUserName' WHERE id = ?", (number,))

        def answers(db: Any) -> list[list[int]]:
            asked = [db.search_messages(query, limit=EVERYTHING, **filters) for query in queries]
            partial.extend(found.partial for found in asked)
            return [ids(found) for found in (*asked, db.search(interactive, limit=EVERYTHING))]

        partial: list[bool] = []
        holder.hold(shelf.db_path)
        try:
            before = [answers(db) for db in (shelf, reader, ann)]
        finally:
            holder.release()
        if not filters:
            rows = [row for session in (mine, other) for row in shelf.get_messages(session)]
            expected = [ids([row for row in rows if oracle_matches(query, row)]) for query in queries]
            # If no message contains a word, parts of words are searched. The oracle does not do this.
            exact = [
                [] if is_partial else found
                for found, is_partial, _ in zip(before[0], partial, queries, strict=False)
            ]
            assert exact == expected
        shelf._engine.catch_up(5)
        assert before == [answers(db) for db in (shelf, reader, ann)]


@pytest.mark.full
def test_a_slow_search_reads_all_unindexed_messages(db: SessionDB, holder: Holder) -> None:
    """The search takes longer than two seconds. It still includes every unindexed row."""
    db.create_session("s", "cli")
    insert_texts(db, "s", ["the needle17", *("hay " * 40 for _ in range(700))])
    query = " OR ".join(f"needle{number}" for number in range(3000, 0, -1))
    engine(db)._connections.deadline = 600.0  # a slow machine must not reach the deadline of the search
    holder.hold(db.db_path)
    try:
        found = db.search_messages(query)
    finally:
        holder.release()
    assert [row["snippet"] for row in found] == ["the >>>needle17<<<"]
    assert found.indexing is None


def test_a_search_past_its_deadline_fails_with_a_hint(db: SessionDB, holder: Holder) -> None:
    db.create_session("s", "cli")
    insert_texts(db, "s", ["the needle", *("hay" for _ in range(700))])
    holder.hold(db.db_path)
    patience, engine(db)._connections.deadline = engine(db)._connections.deadline, 0.0
    try:
        for search in (db.search_messages, db.search, db.search_conversations, db.search_sessions_ranked):
            with pytest.raises(
                errors.SearchTimeout, match=r"701 messages are not indexed yet.*optimize"
            ) as told:
                search("needle")
            assert "\n" not in str(told.value)
    finally:
        engine(db)._connections.deadline = patience
        holder.release()
    assert [row["snippet"] for row in db.search_messages("needle")] == ["the >>>needle<<<"]


def seconds_of_a_search(db: SessionDB, word: str) -> float:
    started = time.monotonic()
    db.search_messages(word, relax=False)
    return time.monotonic() - started


def test_all_attempts_of_a_search_share_one_deadline(db: SessionDB, holder: Holder) -> None:
    """No message matches all words, so the search continues with each word alone. One deadline applies to all
    of these searches together."""
    db.create_session("s", "cli")
    insert_texts(db, "s", ["hay " * 40] * 3000)
    patience = engine(db)._connections.deadline
    holder.hold(db.db_path)
    try:
        engine(db)._connections.deadline = 3 * min(
            seconds_of_a_search(db, f"needle{number}") for number in range(3)
        )
        for search in (db.search_messages, db.search, db.search_conversations, db.search_sessions_ranked):
            with pytest.raises(errors.SearchTimeout):
                search(" ".join(f"needle{number}" for number in range(15)))
    finally:
        engine(db)._connections.deadline = patience
        holder.release()


def test_unindexed_conversations_are_found_without_waiting_for_the_lock(
    db: SessionDB, holder: Holder
) -> None:
    for name in ("first", "second"):
        db.create_session(name, "cli")
    insert_texts(db, "first", ["the needleCase"])
    insert_texts(db, "second", ["hay"] * 1000)
    db.raw().execute("UPDATE sessions SET title = 'haystack title' WHERE id = 'second'")
    holder.hold(db.db_path)
    started = time.monotonic()
    try:
        ranked = [row["session_id"] for row in db.search_sessions_ranked("needle")]
        found = [row["session_id"] for row in db.search_conversations("needle")]
        titled = [row["session_id"] for row in db.search_conversations("haystack title") if row["exact"]]
    finally:
        holder.release()
    assert (ranked, found, titled) == (["first"], ["first"], ["second"])
    assert time.monotonic() - started < 20  # much less than the 30 seconds of a wait for the lock


def test_a_part_is_searched_without_waiting_for_the_lock(db: SessionDB, holder: Holder) -> None:
    """The search does not wait even if a list of terms exists and newer terms must be added to it."""
    db.create_session("s", "cli")
    db.append_message("s", "user", "getUserName")
    db._engine.catch_up(5)
    assert len(db.search("*serNa*")) == 1
    db.append_message("s", "user", "setUserName")
    db._engine.catch_up(5)
    holder.hold(db.db_path)
    started = time.monotonic()
    try:
        assert len(db.search("*serNa*")) == 2
    finally:
        holder.release()
    assert time.monotonic() - started < 20


def test_pages_of_a_half_indexed_store_contain_every_match_once(db: SessionDB, holder: Holder) -> None:
    db.create_session("s", "cli")
    for number in range(40):
        db.append_message("s", "user", f"deploy {'server ' * (number % 5)}{number}")
    db._engine.catch_up(5)
    insert_texts(db, "s", [f"{'server ' * (number % 7)}deploy {number}" for number in range(300)])
    holder.hold(db.db_path)
    try:
        for query in ("deploy", "server deploy", "server OR deploy"):
            for sort in ("relevance", "newest", "oldest"):
                whole = [row["id"] for row in db.search_messages(query, limit=-1, sort=sort)]
                pages = [
                    row["id"]
                    for offset in range(0, 400, 7)
                    for row in db.search_messages(query, limit=7, offset=offset, sort=sort)
                ]
                assert pages == whole
                assert len(set(whole)) == len(whole)
    finally:
        holder.release()


def test_the_best_match_comes_first_indexed_or_not(db: SessionDB, holder: Holder) -> None:
    db.create_session("s", "cli")
    for number in range(300):
        db.append_message("s", "user", f"we speak of a mountain {number}")
    best = db.append_message("s", "user", "heron heron heron heron")
    db._engine.catch_up(5)
    insert_texts(db, "s", [f"one heron among other birds {number}" for number in range(20)])
    holder.hold(db.db_path)
    try:
        found = [row["id"] for row in db.search_messages("heron", limit=50)]
    finally:
        holder.release()
    assert found[0] == best
    assert len(found) == 21
