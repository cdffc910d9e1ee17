"""Messages are appended, counted, read back in order, and cleared."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import errors
from hermes_state import SessionDB
from tests.interface.conftest import contents, ids, new_id, say, session
from tests.stored_rows import change_rows, read_rows

CALL = {"id": "call_1", "function": {"name": "terminal", "arguments": "{}"}}
EMPTY = {
    **dict.fromkeys(["tool_call_id", "tool_calls", "tool_name", "token_count", "finish_reason", "reasoning"]),
    **dict.fromkeys(
        ["reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items"]
    ),
}


@pytest.fixture
def a(db: SessionDB) -> SessionDB:
    """Open a store with the empty session "a"."""
    db.create_session("a", "cli")
    return db


def only(db: SessionDB) -> dict[str, Any]:
    (message,) = db.get_messages("a")
    return message


# Appending


def test_appending_gives_the_id_of_the_row(a: SessionDB) -> None:
    first = a.append_message("a", "user", "one")
    second = a.append_message("a", "assistant", "two")
    assert ids(a.get_messages("a")) == [first, second]
    assert first < second


def test_a_plain_message_is_stored_with_the_time_and_nothing_else(a: SessionDB) -> None:
    before = time.time()
    number = a.append_message("a", "user", "hello")
    message = only(a)
    assert before <= message["timestamp"] <= time.time()
    assert {name: message[name] for name in EMPTY} == EMPTY
    assert (message["id"], message["session_id"], message["role"], message["content"]) == (
        number,
        "a",
        "user",
        "hello",
    )


def test_the_documented_call_keeps_everything(a: SessionDB) -> None:
    a.append_message(
        session_id="a",
        role="assistant",
        content="Here's the answer...",
        tool_calls=[CALL],
        token_count=150,
        finish_reason="stop",
        reasoning="Let me think about this...",
    )
    message = only(a)
    assert (message["content"], message["tool_calls"]) == ("Here's the answer...", [CALL])
    assert (message["token_count"], message["finish_reason"]) == (150, "stop")
    assert message["reasoning"] == "Let me think about this..."


def test_arguments_may_be_given_by_position_in_the_documented_order(a: SessionDB) -> None:
    a.append_message("a", "tool", "done", "terminal", None, "call_1", 7, "stop", "r", "rc", [1], [2], [3])
    message = only(a)
    assert (message["tool_name"], message["tool_call_id"], message["token_count"]) == (
        "terminal",
        "call_1",
        7,
    )
    assert (message["finish_reason"], message["reasoning"], message["reasoning_content"]) == (
        "stop",
        "r",
        "rc",
    )
    assert (message["reasoning_details"], message["codex_reasoning_items"]) == ("[1]", "[2]")
    assert message["codex_message_items"] == "[3]"


def test_content_may_be_missing(a: SessionDB) -> None:
    a.append_message("a", "assistant", tool_calls=[CALL])
    assert only(a)["content"] is None


def test_an_empty_text_stays_an_empty_text(a: SessionDB) -> None:
    a.append_message("a", "user", "")
    assert only(a)["content"] == ""


def test_a_time_may_be_given(a: SessionDB) -> None:
    a.append_message("a", "user", "then", timestamp=1234.5)
    assert only(a)["timestamp"] == 1234.5


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool", "session_meta"])
def test_any_role_can_be_stored(a: SessionDB, role: str) -> None:
    a.append_message("a", role, "x")
    assert only(a)["role"] == role


@pytest.mark.parametrize("empty", [None, [], {}, ""])
def test_empty_json_fields_are_stored_as_null(a: SessionDB, empty: Any) -> None:
    a.append_message(
        "a",
        "assistant",
        "x",
        tool_calls=empty,
        reasoning_details=empty,
        codex_reasoning_items=empty,
        codex_message_items=empty,
    )
    columns = "tool_calls, reasoning_details, codex_reasoning_items, codex_message_items"
    assert read_rows(a, f"SELECT {columns} FROM messages") == [(None, None, None, None)]


# Errors


def test_an_unknown_session_is_an_error_and_nothing_is_stored(db: SessionDB) -> None:
    with pytest.raises(errors.UnknownSession) as refused:
        db.append_message("nobody", "user", "hello")
    assert isinstance(refused.value, sqlite3.IntegrityError)
    assert "nobody" in str(refused.value)
    assert (db.message_count(), db.session_count()) == (0, 0)


def test_a_role_of_none_is_an_error_and_nothing_is_stored(a: SessionDB) -> None:
    with pytest.raises(sqlite3.IntegrityError) as refused:
        a.append_message("a", None, "hello")  # type: ignore[arg-type]
    assert isinstance(refused.value, errors.HermesError)
    assert (a.message_count(), session(a, "a")["message_count"]) == (0, 0)


# Counting


@pytest.mark.parametrize(
    ("role", "tool_calls", "counted"),
    [
        ("assistant", None, 0),
        ("assistant", [], 0),
        ("assistant", [CALL], 1),
        ("assistant", [CALL, CALL, CALL], 3),
        ("assistant", CALL, 1),
        ("tool", [CALL, CALL], 0),
        ("tool", None, 0),
    ],
)
def test_tool_calls_are_counted_but_not_those_of_the_tool_role(
    a: SessionDB, role: str, tool_calls: Any, counted: int
) -> None:
    a.append_message("a", role, "x", tool_calls=tool_calls)
    assert (session(a, "a")["message_count"], session(a, "a")["tool_call_count"]) == (1, counted)


def test_counts_add_up(a: SessionDB) -> None:
    for calls in ([CALL], None, [CALL, CALL]):
        a.append_message("a", "assistant", "x", tool_calls=calls)
    assert (session(a, "a")["message_count"], session(a, "a")["tool_call_count"]) == (3, 3)


# Reading


def test_an_unknown_session_has_no_messages(db: SessionDB) -> None:
    assert db.get_messages("nobody") == []


def test_messages_are_the_sessions_own(db: SessionDB) -> None:
    say(db, "root", "in the root")
    say(db, "child", "in the child", parent_session_id="root")
    assert contents(db.get_messages("child")) == ["in the child"]
    assert contents(db.get_messages("root")) == ["in the root"]


def test_tool_calls_are_parsed_and_other_json_columns_stay_text(a: SessionDB) -> None:
    a.append_message("a", "assistant", "x", tool_calls=CALL, reasoning_details=[{"k": "ü"}])
    assert only(a)["tool_calls"] == CALL
    assert isinstance(only(a)["reasoning_details"], str)


@pytest.mark.parametrize("broken", ["{not json", "", "[1, 2", "\x00json:"])
def test_tool_calls_that_are_not_json_are_read_as_an_empty_list(a: SessionDB, broken: str) -> None:
    a.append_message("a", "assistant", "x", tool_calls=[CALL])
    change_rows(a, "UPDATE messages SET tool_calls=?", broken)
    assert only(a)["tool_calls"] == []


def test_the_order_is_by_id_and_not_by_time(a: SessionDB) -> None:
    for text, when in (("first", 300.0), ("second", 100.0), ("third", 200.0), ("fourth", 200.0)):
        a.append_message("a", "user", text, timestamp=when)
    assert contents(a.get_messages("a")) == ["first", "second", "third", "fourth"]
    assert contents(a.get_messages_as_conversation("a")) == ["first", "second", "third", "fourth"]


TIMES = st.floats(min_value=0, max_value=4e9) | st.sampled_from([0.0, 1.0])


@given(st.lists(st.tuples(st.sampled_from("abc"), TIMES), max_size=12))
def test_every_session_keeps_its_messages_in_the_order_they_came(
    shelf: SessionDB, came: list[tuple[str, float]]
) -> None:
    group = new_id()
    for name in "abc":
        shelf.create_session(group + name, "cli")
    numbers = [
        shelf.append_message(group + name, "user", str(nth), timestamp=when)
        for nth, (name, when) in enumerate(came)
    ]
    assert numbers == sorted(set(numbers))
    for name in "abc":
        expected = [(str(nth), when) for nth, (to, when) in enumerate(came) if to == name]
        found = [(row["content"], row["timestamp"]) for row in shelf.get_messages(group + name)]
        assert found == expected
        assert (
            session(shelf, group + name)["message_count"]
            == shelf.message_count(group + name)
            == len(expected)
        )


# Clearing


def test_clearing_deletes_the_rows_and_zeroes_both_counters_but_keeps_the_session(db: SessionDB) -> None:
    say(db, "a", "one", "two")
    say(db, "b", "three")
    db.append_message("a", "assistant", "x", tool_calls=[CALL])
    db.set_session_title("a", "kept")
    db.clear_messages("a")
    row = session(db, "a")
    assert (row["message_count"], row["tool_call_count"], row["title"]) == (0, 0, "kept")
    assert (db.get_messages("a"), contents(db.get_messages("b"))) == ([], ["three"])


def test_cleared_messages_are_not_found_any_more(db: SessionDB) -> None:
    say(db, "a", "secret words")
    assert len(db.search_messages("secret")) == 1
    db.clear_messages("a")
    assert db.search_messages("secret") == []
    assert db.list_sessions_rich()[0]["preview"] == ""


def test_clearing_an_unknown_session_does_nothing(db: SessionDB) -> None:
    say(db, "a", "one")
    db.clear_messages("nobody")
    assert db.message_count() == 1
