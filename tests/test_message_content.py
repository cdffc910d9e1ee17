"""The reader of message content handles text, parts, pictures, reasoning and tool calls in every format."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.chat.view.recap import format_row_text as recap_text
from hermes.chat.view.recap import list_call_names
from hermes.export.message_text import list_calls, list_parts
from hermes.message_content import ToolCall, list_tool_calls, read_text

PIXEL = "data:image/png;base64,iVBORw0KGgo="
PARTS: list[Any] = [
    {"type": "text", "text": "look at this"},
    {"type": "image_url", "image_url": {"url": PIXEL}},
    "and this",
    {"type": "audio", "note": "a bird"},
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["type", "text", "image_url", "data"]), inner)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        ("everything", "look at this\nand this\na bird"),
        ("words", "look at this\nand this"),
        ("words and pictures", "look at this\n[image]\nand this"),
    ],
)
def test_structured_content_is_read_in_the_requested_detail(detail: Any, text: str) -> None:
    assert read_text(PARTS, "user", detail=detail) == text


def test_reasoning_is_left_out_of_answers_only() -> None:
    content = "<think>hm</think>\nThe answer."
    assert read_text(content, "assistant").strip() == "The answer."
    assert read_text(content, "user") == content
    assert read_text(content) == content


@pytest.mark.parametrize(
    ("content", "text"), [(None, ""), ("", ""), (b"bytes \xff", "bytes \ufffd"), (12, "12"), ({}, "")]
)
def test_content_that_is_not_text_is_read(content: object, text: str) -> None:
    assert read_text(content, "user", detail="words") == text


@given(JSON, st.sampled_from(["user", "assistant", None]))
def test_any_content_is_read_and_every_detail_contains_the_words(content: Any, role: str | None) -> None:
    words = read_text(content, role, detail="words")
    named = read_text(content, role, detail="words and pictures")
    words.encode()
    assert [line for line in named.splitlines() if line != "[image]"] == [
        line for line in words.splitlines() if line != "[image]"
    ]
    if isinstance(content, list):
        texts = [part.text for part in list_parts(content) if part.kind == "text"]
        assert all(text in words for text in texts if text.isascii())


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
        {"id": "c1", "name": "look", "input": {"at": 1}},
    ],
)
def test_tool_calls_of_every_provider_are_read_in_the_same_way(call: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert [tuple(found) for found in list_calls(message)] == [("c1", "look", {"at": 1})]
    assert list_call_names(message) == ["look"]
    assert [(found.id, found.name) for found in list_tool_calls(call)] == [("c1", "look")]


def test_an_invalid_tool_call_has_no_name() -> None:
    assert list_tool_calls(["text", {}]) == [ToolCall("", "", "text"), ToolCall("", "?", None)]
    assert list_tool_calls(None) == []


@given(JSON)
def test_the_recap_shows_the_words_that_an_export_shows(content: Any) -> None:
    row = {"role": "user", "content": content}
    if isinstance(content, list):
        for part in list_parts(content):
            if part.kind == "text" and part.text.isprintable() and part.text.isascii():
                assert part.text in recap_text(row)
