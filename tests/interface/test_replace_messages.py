"""Replacing the messages of a session leaves exactly the given list. Messages that do not change keep their
rows.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import errors
from hermes_state import SessionDB
from tests.interface.conftest import Row, contents, ids, new_id, say, session

CALL = {"id": "call_1", "function": {"name": "terminal", "arguments": "{}"}}


def user(text: Any) -> Row:
    return {"role": "user", "content": text}


def stamps(db: SessionDB, session_id: str) -> list[tuple[int, float, Any]]:
    return [(row["id"], row["timestamp"], row["content"]) for row in db.get_messages(session_id)]


@pytest.fixture
def three(db: SessionDB) -> SessionDB:
    """Open a store with a session "a" that has three old messages with different times."""
    db.create_session("a", "cli")
    for nth, text in enumerate(["one", "two", "three"]):
        db.append_message("a", "user", text, timestamp=100.0 + nth)
    return db


# The result


def test_the_session_holds_exactly_the_given_list(three: SessionDB) -> None:
    given = [user("zero"), {"role": "assistant", "content": "answer", "tool_calls": [CALL]}, user("one")]
    three.replace_messages("a", given)
    assert three.get_messages_as_conversation("a") == given
    assert ids(three.get_messages("a")) == sorted(ids(three.get_messages("a")))


def test_the_counters_are_recomputed(three: SessionDB) -> None:
    three.replace_messages(
        "a", [{"role": "assistant", "content": "x", "tool_calls": [CALL, CALL]}, user("one")]
    )
    row = session(three, "a")
    assert (row["message_count"], row["tool_call_count"]) == (2, 2)
    three.replace_messages("a", [user("one")])
    row = session(three, "a")
    assert (row["message_count"], row["tool_call_count"], three.message_count("a")) == (1, 0, 1)


def test_tool_calls_of_the_tool_role_do_not_count(three: SessionDB) -> None:
    three.replace_messages("a", [{"role": "tool", "content": "x", "tool_calls": [CALL]}])
    assert session(three, "a")["tool_call_count"] == 0


def test_a_missing_role_is_unknown(three: SessionDB) -> None:
    three.replace_messages("a", [{"content": "who said this?"}])
    assert three.get_messages("a")[0]["role"] == "unknown"


def test_reasoning_is_kept_for_assistants_only(three: SessionDB) -> None:
    thought = {
        "reasoning": "r",
        "reasoning_content": "rc",
        "reasoning_details": [1],
        "codex_reasoning_items": [2],
        "codex_message_items": [3],
    }
    three.replace_messages(
        "a", [{"role": role, "content": "x", **thought} for role in ("assistant", "user", "tool")]
    )
    assistant, *others = three.get_messages("a")
    assert {name: assistant[name] for name in thought} == {
        "reasoning": "r",
        "reasoning_content": "rc",
        "reasoning_details": "[1]",
        "codex_reasoning_items": "[2]",
        "codex_message_items": "[3]",
    }
    for other in others:
        assert {name: other[name] for name in thought} == dict.fromkeys(thought)


def test_tool_rows_keep_their_name_and_call(three: SessionDB) -> None:
    given = {"role": "tool", "content": "done", "tool_name": "terminal", "tool_call_id": "call_1"}
    three.replace_messages("a", [given])
    assert three.get_messages_as_conversation("a") == [given]


def test_structured_content_is_kept(three: SessionDB) -> None:
    parts = [{"type": "text", "text": "look"}]
    three.replace_messages("a", [user(parts)])
    assert contents(three.get_messages("a")) == [parts]


def test_search_and_lists_follow(three: SessionDB) -> None:
    assert len(three.search_messages("two")) == 1
    three.replace_messages("a", [user("four")])
    assert three.search_messages("two") == []
    assert ids(three.search_messages("four")) == ids(three.get_messages("a"))
    assert three.list_sessions_rich()[0]["preview"] == "four"


def test_any_iterable_may_be_given(three: SessionDB) -> None:
    three.replace_messages("a", (user(text) for text in ("x", "y")))
    assert contents(three.get_messages("a")) == ["x", "y"]


# Unchanged messages


def test_the_same_list_changes_no_row(three: SessionDB) -> None:
    before = three.get_messages("a")
    three.replace_messages("a", three.get_messages_as_conversation("a"))
    assert three.get_messages("a") == before


def test_an_agents_own_history_changes_no_row(db: SessionDB) -> None:
    db.create_session("a", "acp")
    db.append_message("a", "user", "hello", timestamp=1)
    db.append_message(
        "a",
        "assistant",
        tool_calls=[CALL],
        finish_reason="tool_calls",
        reasoning="r",
        reasoning_content="",
        reasoning_details=[{"k": 1}],
        timestamp=2,
    )
    db.append_message("a", "tool", "done", tool_name="terminal", tool_call_id="call_1", timestamp=3)
    db.append_message("a", "user", [{"type": "text", "text": "look"}], timestamp=4)
    before = db.get_messages("a")
    db.replace_messages("a", db.get_messages_as_conversation("a"))
    assert db.get_messages("a") == before


def test_new_fields_of_an_unchanged_row_are_stored_and_others_kept(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.append_message(
        "a", "assistant", "yo", finish_reason="stop", token_count=7, reasoning="early", timestamp=5.0
    )
    (before,) = db.get_messages("a")
    db.replace_messages(
        "a", [{"role": "assistant", "content": "yo", "reasoning": "late", "codex_message_items": [{"id": 1}]}]
    )
    (after,) = db.get_messages("a")
    assert after == before | {"reasoning": "late", "codex_message_items": '[{"id":1}]'}


def test_rows_that_were_read_can_be_given_back(three: SessionDB) -> None:
    before = three.get_messages("a")
    three.replace_messages("a", before)
    assert three.get_messages("a") == before


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["one", "two", "three", "four"], {0: 0, 1: 1, 2: 2}),
        (["one", "two"], {0: 0, 1: 1}),
        (["one", "two", "other"], {0: 0, 1: 1}),
        (["one", "other", "three"], {0: 0, 2: 2}),
        (["other", "two", "three"], {1: 1, 2: 2}),
        (["two", "three"], {0: 1, 1: 2}),
        (["one", "three"], {0: 0, 1: 2}),
        (["three"], {0: 2}),
    ],
)
def test_unchanged_rows_keep_their_id_and_time(
    three: SessionDB, texts: list[str], kept: dict[int, int]
) -> None:
    before = stamps(three, "a")
    three.replace_messages("a", [user(text) for text in texts])
    after = stamps(three, "a")
    assert [text for _, _, text in after] == texts
    assert {new: after[new] for new in kept} == {new: before[old] for new, old in kept.items()}


def test_new_rows_get_the_present_time(three: SessionDB) -> None:
    three.replace_messages("a", [user("one"), user("new")])
    assert three.get_messages("a")[1]["timestamp"] > 1_700_000_000


WORDS = st.sampled_from(["a", "b", "c", "ok", ""])


@given(st.lists(WORDS, max_size=8), st.lists(WORDS, min_size=1, max_size=8))
def test_the_result_is_the_given_list_and_a_common_beginning_is_untouched(
    shelf: SessionDB, before: list[str], after: list[str]
) -> None:
    session_id = new_id()
    say(shelf, session_id, *before)
    old = stamps(shelf, session_id)
    shelf.replace_messages(session_id, [user(text) for text in after])
    new = stamps(shelf, session_id)
    assert [text for _, _, text in new] == after
    assert [number for number, _, _ in new] == sorted({number for number, _, _ in new})
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    assert new[:same] == old[:same]
    assert session(shelf, session_id)["message_count"] == shelf.message_count(session_id) == len(after)


@given(st.lists(WORDS, min_size=1, max_size=8), st.data())
def test_rows_that_remain_after_others_are_taken_out_are_untouched(
    shelf: SessionDB, before: list[str], data: st.DataObject
) -> None:
    before = [f"{nth} {text}" for nth, text in enumerate(before)]
    kept = data.draw(st.lists(st.sampled_from(range(len(before))), min_size=1, unique=True).map(sorted))
    session_id = new_id()
    say(shelf, session_id, *before)
    old = stamps(shelf, session_id)
    shelf.replace_messages(session_id, [user(before[nth]) for nth in kept])
    assert stamps(shelf, session_id) == [old[nth] for nth in kept]


# Errors


def test_an_unknown_session_is_an_error_and_nothing_is_stored(db: SessionDB) -> None:
    with pytest.raises(errors.UnknownSession) as refused:
        db.replace_messages("nobody", [user("hello")])
    assert isinstance(refused.value, sqlite3.IntegrityError)
    assert (db.message_count(), db.session_count()) == (0, 0)


def test_an_empty_list_for_an_unknown_session_does_nothing(db: SessionDB) -> None:
    db.replace_messages("nobody", [])
    assert (db.message_count(), db.session_count()) == (0, 0)


@pytest.mark.parametrize("bad", [5, "text", None, {"role": "user", "content": "x", "token_count": "many"}])
def test_one_bad_message_leaves_the_state_before(three: SessionDB, bad: Any) -> None:
    before = three.get_messages("a")
    with pytest.raises(errors.HermesError):
        three.replace_messages("a", [user("new"), bad])
    assert three.get_messages("a") == before
