"""Whatever messages are stored, the request to the model has a sequence of messages that providers accept."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.models.replay import CONTINUED, NOTE, UNKNOWN, replay


def call(call_id: str, name: str = "terminal", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str | None = None, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def tool(call_id: str | None, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text, "tool_name": "terminal"}


def check(messages: list[dict[str, Any]]) -> None:
    """Check that the messages follow the rules of the strictest provider."""
    rest = messages[1:] if messages and messages[0]["role"] == "system" else messages
    assert all(message["role"] != "system" for message in rest)
    expected = {"user"}
    waiting: list[str] = []
    seen: set[str] = set()
    for message in rest:
        role = message["role"]
        if waiting:
            assert (role, message["tool_call_id"]) == ("tool", waiting.pop(0))
            assert isinstance(message["content"], str)
            assert message["content"]
            expected = {"user", "assistant"} if not waiting else {"tool"}
            continue
        assert role in expected
        assert message["content"] or message.get("tool_calls")
        expected = {"assistant"} if role == "user" else {"user"}
        for made in message.get("tool_calls", ()):
            assert made["id"]
            assert made["id"] not in seen
            seen.add(made["id"])
            waiting.append(made["id"])
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", made["function"]["name"])
            assert isinstance(json.loads(made["function"]["arguments"]), dict)
    assert not waiting
    json.dumps(messages).encode()


def test_a_plain_conversation_stays_as_it_is() -> None:
    rows = [user("hello"), assistant("hi"), user("and now?")]
    assert replay(rows, "be kind") == [
        {"role": "system", "content": "be kind"},
        user("hello"),
        {"role": "assistant", "content": "hi"},
        user("and now?"),
    ]


def test_results_follow_their_calls_in_the_order_of_the_calls() -> None:
    rows = [user("go"), assistant(None, call("a"), call("b")), tool("b", "second"), tool("a", "first")]
    sent = replay(rows)
    assert [(one["tool_call_id"], one["content"]) for one in sent[2:]] == [("a", "first"), ("b", "second")]


def test_a_call_that_a_crash_left_open_is_answered_with_what_is_known() -> None:
    rows = [user("go"), assistant("I will", call("a"), call("b")), tool("a", "done"), user("are you there?")]
    sent = replay(rows)
    assert [one["content"] for one in sent[2:]] == ["done", UNKNOWN, "are you there?"]
    check(sent)


def test_a_result_is_given_to_one_call_even_if_ids_repeat() -> None:
    rows = [
        user("go"),
        assistant(None, call("x")),
        tool("x", "first"),
        assistant(None, call("x")),
        tool("x", "second"),
        tool("x", "stray"),
        assistant("ok"),
    ]
    sent = replay(rows)
    assert [one["content"] for one in sent if one["role"] == "tool"] == ["first", "second"]
    check(sent)


def test_a_summary_is_background_and_a_leading_answer_gets_a_prompt() -> None:
    assert replay([{"role": "system", "content": "Summary: x"}, user("go on")]) == [
        user(f"{NOTE}Summary: x\n\ngo on")
    ]
    assert replay([assistant("hello")])[0] == user(CONTINUED)


def test_marks_of_others_and_empty_answers_are_left_out() -> None:
    rows = [
        {"role": "session_meta", "content": "{}"},
        user("a"),
        assistant(""),
        user("b"),
        tool("nobody", "x"),
    ]
    assert replay(rows) == [user("a\n\nb")]


def test_images_stay_with_their_text() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert replay([user([picture]), user("what is it?")]) == [
        user([picture, {"type": "text", "text": "what is it?"}])
    ]


IDS = st.sampled_from(["a", "b", "c", "", None])
ARGUMENTS = st.one_of(
    st.sampled_from(["{}", '{"x": 1}', "", "[1]", "{broken", "null", "\ud800"]),
    st.none(),
    st.just({"x": [1]}),
    st.integers(),
)
CALLS = st.lists(
    st.builds(call, IDS, st.sampled_from(["terminal", "", "bad name!", "x" * 80, "読む"]), ARGUMENTS),
    max_size=3,
)
TEXT = st.one_of(
    st.sampled_from(["", " ", "hello", "\0", "多", "\ud83d"]),
    st.none(),
    st.just([{"type": "text", "text": "x"}]),
)
ROWS = st.lists(
    st.one_of(
        st.builds(user, TEXT),
        st.builds(
            lambda text, calls: {"role": "assistant", "content": text, "tool_calls": calls}, TEXT, CALLS
        ),
        st.builds(lambda i, text: {"role": "tool", "tool_call_id": i, "content": text}, IDS, TEXT),
        st.builds(lambda text: {"role": "system", "content": text}, TEXT),
        st.just({"role": "session_meta", "content": "x"}),
        st.just({"role": "assistant", "content": "x", "tool_calls": {"id": "a", "function": {"name": "f"}}}),
        st.just({"role": "assistant", "content": None, "tool_calls": "broken"}),
    ),
    max_size=12,
)


@given(rows=ROWS, prompt=st.sampled_from([None, "", "be kind"]))
def test_any_rows_give_a_request_that_is_accepted(rows: list[dict[str, Any]], prompt: str | None) -> None:
    before = json.dumps(rows)
    check(replay(rows, prompt))
    assert json.dumps(rows) == before


@given(rows=ROWS, at=st.integers(0, 12))
def test_a_crash_anywhere_gives_a_request_that_is_accepted(rows: list[dict[str, Any]], at: int) -> None:
    check(replay([*rows[:at], user("again")]))


@given(texts=st.lists(st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip), min_size=1))
def test_no_message_is_lost_and_the_order_is_kept(texts: list[str]) -> None:
    rows = [user(text) if number % 3 else assistant(text) for number, text in enumerate(texts)]
    sent = "\n\n".join(message["content"] for message in replay(rows))
    at = 0
    for text in texts:
        at = sent.index(text.strip(), at) + len(text.strip())
