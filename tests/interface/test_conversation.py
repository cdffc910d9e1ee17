"""The messages of a session in the form that a model receives: in OpenAI's format, without injected
memory."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import SessionDB
from tests.interface.conftest import compress, contents, say
from tests.stored_rows import change_rows

CALL = {"id": "call_1", "function": {"name": "terminal", "arguments": "{}"}}
THOUGHTS: dict[str, Any] = {
    "finish_reason": "stop",
    "reasoning": "Let me think",
    "reasoning_content": "hm",
    "reasoning_details": [{"type": "summary", "text": "ü"}],
    "codex_reasoning_items": [{"id": 1}],
    "codex_message_items": [{"id": 2}],
}
PARSED = ("reasoning_details", "codex_reasoning_items", "codex_message_items")


@pytest.fixture
def a(db: SessionDB) -> SessionDB:
    db.create_session("a", "cli")
    return db


def only(db: SessionDB) -> dict[str, Any]:
    (message,) = db.get_messages_as_conversation("a")
    return message


# The format


def test_a_message_is_its_role_and_content_and_no_more(a: SessionDB) -> None:
    a.append_message("a", "user", "hello", token_count=3)
    a.append_message("a", "assistant", "hi")
    assert a.get_messages_as_conversation("a") == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
    ]


def test_missing_content_is_none(a: SessionDB) -> None:
    a.append_message("a", "assistant", tool_calls=[CALL])
    assert only(a) == {"role": "assistant", "content": None, "tool_calls": [CALL]}


def test_a_tool_result_carries_its_call_and_name(a: SessionDB) -> None:
    a.append_message("a", "tool", "done", tool_name="terminal", tool_call_id="call_1")
    assert only(a) == {"role": "tool", "content": "done", "tool_call_id": "call_1", "tool_name": "terminal"}


def test_an_assistant_message_has_its_parsed_reasoning(a: SessionDB) -> None:
    a.append_message("a", "assistant", "x", **THOUGHTS)
    assert only(a) == {"role": "assistant", "content": "x", **THOUGHTS}


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_other_messages_have_no_reasoning(a: SessionDB, role: str) -> None:
    a.append_message("a", role, "x", **THOUGHTS)
    assert only(a) == {"role": role, "content": "x"}


def test_an_empty_reasoning_content_is_kept_but_an_empty_reasoning_is_not(a: SessionDB) -> None:
    a.append_message("a", "assistant", "x", reasoning="", reasoning_content="")
    assert only(a) == {"role": "assistant", "content": "x", "reasoning_content": ""}


@pytest.mark.parametrize("column", PARSED)
def test_reasoning_that_is_not_json_is_none(a: SessionDB, column: str) -> None:
    a.append_message("a", "assistant", "x")
    change_rows(a, f"UPDATE messages SET {column}='{{not json'")
    assert only(a).get(column) is None


def test_tool_calls_that_are_not_json_do_not_stop_the_conversation(a: SessionDB) -> None:
    a.append_message("a", "assistant", "x", tool_calls=[CALL])
    change_rows(a, "UPDATE messages SET tool_calls='{not json'")
    assert not only(a).get("tool_calls")


def test_an_unknown_session_has_no_conversation(db: SessionDB) -> None:
    assert db.get_messages_as_conversation("nobody") == []
    assert db.get_messages_as_conversation("nobody", include_ancestors=True) == []


# Injected memory


@pytest.mark.parametrize(
    ("said", "replayed"),
    [
        ("<memory-context>\nlikes tea\n</memory-context>\n\nhello", "hello"),
        ("a <memory-context>x</memory-context> b <memory-context>y</memory-context>", "a  b"),
        ("hello </memory-context>", "hello"),
        ("<memory-context> hello", "hello"),
        ("  spaces around  \n", "spaces around"),
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_injected_memory_is_removed_from_user_and_assistant_messages(
    a: SessionDB, role: str, said: str, replayed: str
) -> None:
    a.append_message("a", role, said)
    assert only(a)["content"] == replayed


@pytest.mark.parametrize("role", ["tool", "system"])
def test_tool_and_system_messages_are_not_changed(a: SessionDB, role: str) -> None:
    text = " <memory-context>x</memory-context> "
    a.append_message("a", role, text)
    assert only(a)["content"] == text


def test_structured_content_is_left_alone(a: SessionDB) -> None:
    parts = [{"type": "text", "text": " <memory-context>x</memory-context> "}]
    a.append_message("a", "user", parts)
    assert only(a)["content"] == parts


def test_stored_messages_are_not_changed(a: SessionDB) -> None:
    text = "<memory-context>x</memory-context> hello"
    a.append_message("a", "user", text)
    assert contents(a.get_messages("a")) == [text]


# With ancestors


def family(db: SessionDB, session_id: str) -> list[Any]:
    return contents(db.get_messages_as_conversation(session_id, include_ancestors=True))


def test_ancestors_come_first_and_every_message_once(db: SessionDB) -> None:
    say(db, "root", "one", "two")
    compress(db, "root", "middle", "three")
    compress(db, "middle", "tip", "four")
    assert family(db, "tip") == ["one", "two", "three", "four"]
    assert contents(db.get_messages_as_conversation("tip")) == ["four"]


def test_the_order_is_that_of_writing_across_sessions(db: SessionDB) -> None:
    say(db, "root", "one")
    compress(db, "root", "tip", "two")
    db.append_message("root", "user", "three", timestamp=1)
    assert family(db, "tip") == ["one", "two", "three"]


def test_messages_of_other_branches_are_not_included(db: SessionDB) -> None:
    say(db, "root", "one")
    say(db, "subagent", "something else", parent_session_id="root")
    compress(db, "root", "tip", "two")
    assert family(db, "tip") == ["one", "two"]


def test_equal_messages_are_all_kept(db: SessionDB) -> None:
    say(db, "root", *["ok"] * 6)
    compress(db, "root", "tip", *["ok"] * 6)
    assert family(db, "tip") == ["ok"] * 12


def test_a_session_without_parents_is_its_own_family(db: SessionDB) -> None:
    say(db, "a", "one", "one")
    assert family(db, "a") == ["one", "one"]


@pytest.mark.parametrize("parents", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}])
def test_a_circle_of_parents_ends(db: SessionDB, parents: dict[str, str]) -> None:
    for name in parents:
        say(db, name, f"in {name}")
    for child, parent in parents.items():
        change_rows(db, "UPDATE sessions SET parent_session_id=? WHERE id=?", parent, child)
    assert sorted(family(db, "a")) == [f"in {name}" for name in sorted(parents)]


def test_a_long_family_is_complete(db: SessionDB) -> None:
    say(db, "s0", "0")
    for nth in range(1, 130):
        compress(db, f"s{nth - 1}", f"s{nth}", str(nth))
    assert family(db, "s129") == [str(nth) for nth in range(130)]
