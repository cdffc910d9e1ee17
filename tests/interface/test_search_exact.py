"""A search finds exactly what the oracle finds, in every script and after every kind of change."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.interface.conftest import new_id, passing
from tests.oracle import oracle_matches
from tests.stored_rows import change_rows
from tests.tiers import scale_examples

FRAGMENTS = [
    *(
        "deploy",
        "Deploy",
        "deployment",
        "get",
        "user",
        "getUserName",
        "HTTPServer2",
        "my_func_name",
        "docker-compose",
    ),
    *(
        "config.yaml",
        "a/b:c",
        "C++",
        "café",
        "cafe\u0301",
        "STRASSE",
        "straße",
        "İstanbul",
        "ﬁn",
        "Σίσυφος",
        "ΣΊΣΥΦΟΣ",
    ),
    *(
        "ёлка",
        "елка",
        "привет",
        "日本語",
        "日本",
        "語",
        "テスト",
        "ﾃｽﾄ",
        "한국어",
        "국",
        "ภาษาไทย",
        "ไทย",
        "မြန်မာ",
        "ភាសា",
    ),
    *(
        "हिन्दी",
        "हिन्",
        "עברית",
        "שלום",
        "العربية",
        "عرب",
        "👩\u200d💻",
        "🎉",
        "42",
        "3.14",
        "x",
        "大x語",
        "_",
        "--",
        "%",
    ),
    *("two words", "AND", "or", "NOT", "NEAR", "\x00", "\u2028", "line\nbreak", "tab\tbed", "\ufffd"),
]
FRAGMENT = st.sampled_from(FRAGMENTS)
TEXT = st.lists(FRAGMENT, max_size=5).flatmap(
    lambda words: st.sampled_from([" ", "", "-", ", "]).map(lambda between: between.join(words))
)
CONTENT: st.SearchStrategy[Any] = (
    TEXT
    | TEXT
    | st.none()
    | st.lists(TEXT.map(lambda text: {"type": "text", "text": text}), min_size=1, max_size=2)
    | TEXT.map(lambda text: {"title": text, "deep": [{"more": text}]})
)
CALLS = st.none() | TEXT.map(
    lambda text: [{"id": "call_1", "function": {"name": "run", "arguments": json.dumps({"text": text})}}]
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]), "content": CONTENT},
    optional={"tool_name": st.sampled_from(["terminal", "web_search"]), "tool_calls": CALLS},
)
LEAF = (
    FRAGMENT
    | FRAGMENT
    | FRAGMENT.map(lambda text: f'"{text}"')
    | st.tuples(FRAGMENT, FRAGMENT).map(lambda pair: f'"{pair[0]} {pair[1]}"')
    | FRAGMENT.map(lambda text: text[:3] + "*")
    | FRAGMENT.map(lambda text: text[1:3])
)
QUERIES = st.lists(
    st.tuples(st.sampled_from(["", "", "AND", "OR", "NOT"]), LEAF).map(" ".join), min_size=1, max_size=3
).map(" ".join)
CHANGES = st.tuples(
    st.sampled_from(["update", "delete", "insert", "move", "replace", "append", "clear"]),
    st.integers(0, 5),
    MESSAGES,
)

EVERYTHING = 100_000


def column(value: Any) -> str | None:
    """Return `value` as another program would write it into its column."""
    if value is None or isinstance(value, str):
        return value
    return "\x00json:" + json.dumps(value)


def append(db: SessionDB, session_id: str, message: dict[str, Any]) -> None:
    db.append_message(session_id, **message)


def check(db: SessionDB, sessions: list[str], query: str) -> None:
    rows = [row for session_id in sessions for row in db.get_messages(session_id)]
    results = db.search_messages(query, limit=EVERYTHING)
    assert results.indexing is None
    # If nothing matches, a word that no message contains is searched as a part of words.
    found = [] if results.partial else [row["id"] for row in results]
    assert sorted(found) == sorted(row["id"] for row in rows if oracle_matches(query, row))


def apply(db: SessionDB, sessions: list[str], kind: str, nth: int, message: dict[str, Any]) -> None:
    here = sessions[0]
    numbers = [row["id"] for row in db.get_messages(here)]
    picked = numbers[nth % len(numbers)] if numbers else 0
    content, calls = column(message["content"]), message.get("tool_calls")
    if kind == "update":
        change_rows(db, "UPDATE messages SET content=?, content_kind=NULL WHERE id=?", content, picked)
    elif kind == "delete":
        change_rows(db, "DELETE FROM messages WHERE id=?", picked)
    elif kind == "insert":
        values = (here, message["role"], content, calls and json.dumps(calls))
        change_rows(
            db,
            "INSERT INTO messages (session_id, role, content, tool_calls, timestamp) VALUES (?, ?, ?, ?, 1)",
            *values,
        )
    elif kind == "move":
        change_rows(db, "UPDATE messages SET session_id=? WHERE id=?", sessions[1], picked)
    elif kind == "replace":
        kept = db.get_messages_as_conversation(here)[: nth + 1]
        db.replace_messages(here, [*kept, message])
    elif kind == "append":
        append(db, here, message)
    else:
        db.clear_messages(here)


@settings(max_examples=scale_examples(120))
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.lists(QUERIES, min_size=1, max_size=4))
@example(
    [{"role": "user", "content": "getUserName in config.yaml"}], ["user", "config.yaml", "userName", "use*"]
)
@example([{"role": "user", "content": "大规模语言模型"}], ["规模", "模型 NOT 语", "模", '"语言"'])
def test_the_result_set_is_exact(
    shelf: SessionDB, messages: list[dict[str, Any]], queries: list[str]
) -> None:
    with passing(shelf):
        session_id = shelf.create_session(new_id(), "cli")
        for message in messages:
            append(shelf, session_id, message)
        for query in queries:
            check(shelf, [session_id], query)
        shelf._engine.catch_up(5)  # so far the messages were read directly; from here on the index is used
        for query in queries:
            check(shelf, [session_id], query)
        shelf.delete_session(session_id)
        for query in queries:
            check(shelf, [], query)


@settings(max_examples=scale_examples(80))
@given(
    st.lists(MESSAGES, min_size=1, max_size=5),
    st.lists(CHANGES, min_size=1, max_size=5),
    st.lists(QUERIES, min_size=3),
)
def test_the_result_set_stays_exact_when_rows_are_changed(
    shelf: SessionDB,
    messages: list[dict[str, Any]],
    changes: list[tuple[str, int, dict[str, Any]]],
    queries: list[str],
) -> None:
    check_changes(shelf, messages, changes, queries)


def check_changes(
    shelf: SessionDB,
    messages: list[dict[str, Any]],
    changes: list[tuple[str, int, dict[str, Any]]],
    queries: list[str],
    apply: Callable[..., None] = apply,
) -> None:
    with passing(shelf):
        sessions = [shelf.create_session(new_id(), "cli") for _ in range(2)]
        for message in messages:
            append(shelf, sessions[0], message)
        for nth, change in enumerate(changes):
            check(shelf, sessions, queries[nth % len(queries)])
            apply(shelf, sessions, *change)
        for query in queries[:5]:
            check(shelf, sessions, query)
        assert shelf.verify().drift == ()
    check(shelf, [], queries[0])
