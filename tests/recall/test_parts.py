"""`*part*` and groups find exactly what the oracle finds, for every person. A search leaves no data behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.interface.conftest import new_id, passing
from tests.interface.test_search_exact import CHANGES, EVERYTHING, FRAGMENTS, MESSAGES, append, apply
from tests.oracle import fields_of, fold, kind, leaf_matches, part_matches
from tests.stored_rows import change_rows, hold_transaction
from tests.tiers import scale_examples

Row = dict[str, Any]


class Asked(NamedTuple):
    """A query, and a function that returns whether the fields of a message match it."""

    text: str
    holds: Callable[[list[str]], bool]


def word(text: str) -> Asked:
    return Asked(text, lambda fields: leaf_matches((text, False), fields))


def a_part(text: str) -> Asked:
    folded = fold(text)
    if len(folded) < 3 and not any(kind(char) == "spaceless" for char in folded):
        text = f"{text}deploy"
    return Asked(f"*{text}*", lambda fields: part_matches(text, fields))


def both(first: Asked, second: Asked) -> Asked:
    return Asked(
        f"({first.text} AND {second.text})", lambda fields: first.holds(fields) and second.holds(fields)
    )


def either(first: Asked, second: Asked) -> Asked:
    return Asked(
        f"({first.text} OR {second.text})", lambda fields: first.holds(fields) or second.holds(fields)
    )


def without(first: Asked, second: Asked) -> Asked:
    return Asked(
        f"({first.text} NOT {second.text})", lambda fields: first.holds(fields) and not second.holds(fields)
    )


SINGLE = [
    text
    for text in FRAGMENTS
    if text.split() == [text]
    and text not in ("AND", "or", "NOT")
    and not text.startswith("*")
    and fold(text).strip()
]
PIECES = st.sampled_from(SINGLE).flatmap(
    lambda text: st.tuples(st.integers(0, len(text) - 1), st.integers(1, len(text))).map(
        lambda cut: text[min(cut) : max(cut) + 1] or text
    )
)
LEAVES = st.sampled_from(SINGLE).map(word) | PIECES.filter(lambda text: bool(fold(text).strip())).map(a_part)
QUERIES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.sampled_from([both, either, without]), inner, inner).map(
        lambda made: made[0](made[1], made[2])
    ),
    max_leaves=4,
)


def expected(db: SessionDB, sessions: list[str], asked: Asked) -> list[int]:
    rows = [row for session_id in sessions for row in db.get_messages(session_id) if row["active"]]
    return sorted(row["id"] for row in rows if asked.holds(fields_of(row)))


def found(db: Any, query: str) -> list[int]:
    results = db.search(query, limit=EVERYTHING)
    assert results.indexing is None
    if results.partial:  # nothing matched, so the words were searched as parts of words
        return []
    assert results.cut == ()
    return sorted(row["id"] for row in results)


@settings(max_examples=scale_examples(100))
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.lists(QUERIES, min_size=1, max_size=4))
@example(
    [{"role": "user", "content": "getUserName in my_func_name"}],
    [a_part("serN"), a_part("c_na"), a_part("func")],
)
@example(
    [{"role": "user", "content": "修改youer服务端 에러코드ab확인"}],
    [a_part("oue"), a_part("er服"), a_part("改")],
)
def test_the_result_set_is_exact(shelf: SessionDB, messages: list[Row], queries: list[Asked]) -> None:
    with passing(shelf), SessionDB(shelf.db_path, read_only=True) as reader:
        session_id = shelf.create_session(new_id(), "cli")
        for message in messages:
            append(shelf, session_id, message)
        for asked in queries:
            assert found(reader, asked.text) == expected(shelf, [session_id], asked)
            shelf._engine.catch_up(5)  # now with the index; at first there is no list of terms
            assert found(reader, asked.text) == expected(shelf, [session_id], asked)
            assert found(shelf, asked.text) == expected(shelf, [session_id], asked)
            assert found(reader, asked.text) == expected(shelf, [session_id], asked)


UPKEEP = st.tuples(
    st.sampled_from(["rewind", "restore", "prune", "trash", "vacuum"]), st.integers(0, 5), MESSAGES
)


@settings(max_examples=scale_examples(80))
@given(
    st.lists(MESSAGES, min_size=1, max_size=5),
    st.lists(CHANGES | UPKEEP, min_size=1, max_size=5),
    st.lists(QUERIES, min_size=2, max_size=4),
)
def test_the_result_stays_exact_when_rows_are_changed(
    shelf: SessionDB, messages: list[Row], changes: list[tuple[str, int, Row]], queries: list[Asked]
) -> None:
    check_changes(shelf, messages, changes, queries)


def check_changes(
    shelf: SessionDB,
    messages: list[Row],
    changes: list[tuple[str, int, Row]],
    queries: list[Asked],
    apply: Callable[..., None] = apply,
) -> None:
    with passing(shelf), SessionDB(shelf.db_path) as other:
        sessions = [shelf.create_session(new_id(), "cli") for _ in range(2)]
        for message in messages:
            append(shelf, sessions[0], message)
        for nth, (change, number, message) in enumerate(changes):
            asked = queries[nth % len(queries)]
            assert found(other, asked.text) == expected(shelf, sessions, asked)
            change_store(shelf, sessions, change, number, message, apply)
            if number % 2:
                shelf._engine.catch_up(5)
            assert found(shelf, asked.text) == expected(shelf, sessions, asked)
        shelf._engine.catch_up(5)
        for asked in queries:
            assert found(other, asked.text) == expected(shelf, sessions, asked)
            # The documented query syntax finds the same words after the same changes.
            plain = word(SINGLE[len(asked.text) % len(SINGLE)])
            rows = other.search_messages(plain.text, limit=EVERYTHING, relax=False)
            assert sorted(row["id"] for row in rows) == expected(shelf, sessions, plain)
        assert shelf.verify().drift == ()


def change_store(
    db: SessionDB,
    sessions: list[str],
    change: str,
    number: int,
    message: Row,
    apply: Callable[..., None] = apply,
) -> None:
    here = sessions[0]
    spoken = [row["id"] for row in db.list_recent_user_messages(here)]
    if change == "rewind":
        if spoken:
            db.rewind_to_message(here, spoken[number % len(spoken)])
    elif change == "restore":
        db.restore_rewound(here)
    elif change == "prune":
        old = db.create_session(new_id(), "cli", started_at=1.0)
        append(db, old, message)
        change_rows(db, "UPDATE messages SET timestamp = 1 WHERE session_id = ?", old)
        db.end_session(old, "done")
        db.prune_sessions(older_than_days=90)
        assert db.get_session(old) is None
    elif change == "trash":
        thrown = db.create_session(new_id(), "cli")
        append(db, thrown, message)
        db.trash_session(thrown)
    elif change == "vacuum":
        db.vacuum()
    else:
        apply(db, sessions, change, number, message)


# Scopes


CHILD = """
import json, sys
from hermes_state import SessionDB
from tests.interface.test_search_exact import append, apply
from tests.recall.test_parts import change_store
with SessionDB(sys.argv[1], durability="normal") as db:
    for line in sys.stdin:
        what, *given = json.loads(line)
        if what == "search":
            print(json.dumps(sorted(row["id"] for row in db.search(given[0], limit=100000))), flush=True)
        else:
            change_store(db, given[0], what, *given[1:])
            print("true", flush=True)
"""


@contextmanager
def another_process(path: Path) -> Iterator[Callable[..., Any]]:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def ask(*what: Any) -> Any:
            child.stdin.write(json.dumps(what) + "\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            return json.loads(child.stdout.readline())  # type: ignore[union-attr]

        yield ask
        child.stdin.close()
        assert child.wait(30) == 0


def test_two_processes_find_the_same_while_both_change_rows(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    queries = [
        a_part("serNam"),
        a_part("unc_n"),
        word("語"),
        both(a_part("deplo"), word("日本")),
        word("docker-compose"),
    ]
    with SessionDB(path, durability="normal") as db, another_process(path) as ask:
        sessions = [db.create_session(name, "cli") for name in ("one", "two")]
        changes = [
            "append",
            "update",
            "insert",
            "replace",
            "rewind",
            "restore",
            "delete",
            "append",
            "move",
            "clear",
        ]
        for nth, change in enumerate(changes * 2):
            content = " ".join(FRAGMENTS[(nth + step * 7) % len(FRAGMENTS)] for step in range(5))
            message = {"role": "user", "content": f"{content} getUserName{nth} my_func_name"}
            if nth % 2:
                ask(change, sessions, nth % 6, message)
            else:
                change_store(db, sessions, change, nth % 6, message)
            if nth % 3:
                db._engine.catch_up(5)
            for asked in queries:
                here = expected(db, sessions, asked)
                assert ask("search", asked.text) == found(db, asked.text) == here


def test_a_read_only_or_locked_store_gives_the_same_results(db: SessionDB) -> None:
    db.create_session("s", "cli")
    (first, second) = (db.append_message("s", "user", text) for text in ("getUserName", "my_func_name"))
    with SessionDB(db.db_path) as other:
        with hold_transaction(other):
            assert found(db, "*serna*") == [first]
        db.optimize()
        with hold_transaction(other):
            assert found(db, "*unc*") == [second]
    with SessionDB(db.db_path, read_only=True) as reader:
        assert found(reader, "*unc*") == [second]
        assert found(db, "*unc*") == [second]  # now a list of terms exists
        third = db.append_message("s", "user", "the funcTwo")
        db.optimize()
        assert found(db, "*unc*") == found(reader, "*unc*") == [second, third]


# When the list is kept and when it is removed


def said(db: SessionDB, session_id: str, *texts: str) -> None:
    """Append messages and index them."""
    if db.get_session(session_id) is None:
        db.create_session(session_id, "cli")
    for text in texts:
        db.append_message(session_id, "user", text)
    db._engine.catch_up(5)


def test_deep_groups_and_many_parts(db: SessionDB) -> None:
    said(db, "s", "alpha beta gamma")
    nested = "alpha"
    for number in range(40):
        nested = f"({nested} {'OR' if number % 2 else 'AND'} *bet*)"
    assert len(found(db, nested)) == 1
    assert len(found(db, " OR ".join(f"*zz{number}*" for number in range(300)) + " OR *lph*")) == 1
    assert len(found(db, "(" * 500 + "alpha")) == 1
