"""Message content: any text and any structure is returned unchanged."""

from __future__ import annotations

import datetime
import json
import logging
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.interface.conftest import contents, ids, new_id, say
from tests.stored_rows import change_rows, read_value

ANY_TEXT = st.text(st.characters(exclude_categories=()))
CLEAN_TEXT = st.text()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | CLEAN_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(CLEAN_TEXT, inner, max_size=4),
    max_leaves=8,
)
STRUCTURES = st.lists(JSON, max_size=4) | st.dictionaries(CLEAN_TEXT, JSON, max_size=4)

MULTIMODAL = [
    {"type": "text", "text": "What is on this picture?"},
    {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
]


@pytest.fixture
def a(db: SessionDB) -> SessionDB:
    db.create_session("a", "cli")
    return db


def stored(db: SessionDB, content: Any) -> Any:
    """Store `content` in a message and return what is read back."""
    session_id = db.create_session(new_id(), "cli")
    db.append_message(session_id, "user", content)
    (read,) = contents(db.get_messages(session_id))
    return read


# Text


@given(ANY_TEXT)
@example("\x00")
@example("\x00json:")
@example('\x00json:["looks like ours"]')
@example("a\x00b\x1b[31m\u2028\u2029\x85\ufeff\r\n")
@example("half \ud83d of an emoji \ude00")
def test_any_text_is_read_back_as_it_was_given_but_for_lone_surrogates(shelf: SessionDB, text: str) -> None:
    clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert stored(shelf, text) == clean


def test_lone_surrogates_become_the_replacement_character_everywhere(a: SessionDB) -> None:
    a.append_message(
        "a", "assistant", ["x\ud800"], tool_calls=[{"k": "\udfff"}], reasoning="\ud800", tool_name="\ud800"
    )
    (message,) = a.get_messages("a")
    assert (message["content"], message["tool_calls"]) == (["x\ufffd"], [{"k": "\ufffd"}])
    assert (message["reasoning"], message["tool_name"]) == ("\ufffd", "\ufffd")


def test_a_very_long_text_is_stored_whole_and_found_to_its_last_word(a: SessionDB) -> None:
    text = "lorem ipsum " * 100_000 + "lastword"
    number = a.append_message("a", "user", text)
    assert contents(a.get_messages("a")) == [text]
    assert ids(a.search_messages("lastword")) == [number]


@pytest.mark.parametrize("scalar", [0, 5, -1.5])
def test_a_scalar_passes_through(a: SessionDB, scalar: float) -> None:
    assert str(stored(a, scalar)) == str(scalar)


# Structures


@given(STRUCTURES)
@example({})
@example([])
@example([10**30, -(10**30), 2**63, 1e308])
@example({"": None, "\x00": ["\u2028"]})
def test_any_structure_is_read_back_as_it_was_given(shelf: SessionDB, content: Any) -> None:
    assert stored(shelf, content) == content


def test_structured_content_is_stored_as_marked_json(a: SessionDB) -> None:
    a.append_message("a", "user", MULTIMODAL)
    column = read_value(a, "SELECT content FROM messages")
    assert column.startswith("\x00json:")
    assert json.loads(column.removeprefix("\x00json:")) == MULTIMODAL


def test_structured_content_is_the_same_in_the_conversation(a: SessionDB) -> None:
    a.append_message("a", "user", MULTIMODAL)
    assert a.get_messages_as_conversation("a") == [{"role": "user", "content": MULTIMODAL}]


def test_the_text_inside_structured_content_is_found(a: SessionDB) -> None:
    number = a.append_message("a", "user", MULTIMODAL)
    assert ids(a.search_messages("picture")) == [number]


@pytest.mark.parametrize(
    "content",
    [
        [object],
        {"when": datetime.datetime(2026, 5, 2, tzinfo=datetime.UTC)},
        [{1}],
        [b"bytes"],
        {"number": 1 + 2j},
    ],
    ids=["class", "datetime", "set", "bytes", "complex"],
)
def test_values_that_json_cannot_represent_are_stored_as_text(a: SessionDB, content: Any) -> None:
    assert stored(a, content) == str(content)


def test_a_structure_that_contains_itself_is_stored_as_text(a: SessionDB) -> None:
    content: list[Any] = ["loop"]
    content.append(content)
    assert stored(a, content) == str(content)


@pytest.mark.parametrize("number", [math.inf, -math.inf])
def test_infinity_is_not_silently_lost(a: SessionDB, number: float) -> None:
    assert stored(a, [number]) in ([number], str([number]))


def test_tuples_and_number_keys_become_what_json_has(a: SessionDB) -> None:
    assert stored(a, [("x", 1), {1: "one"}]) == [["x", 1], {"1": "one"}]


# Rows of other programs


@pytest.mark.parametrize("broken", ["\x00json:{not json", "\x00json:"])
def test_content_that_cannot_be_decoded_is_returned_raw_with_a_warning(
    a: SessionDB, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    say(a, "a", "x")
    change_rows(a, "UPDATE messages SET content=?, uid=NULL, content_kind=NULL", broken)
    with caplog.at_level(logging.WARNING):
        assert contents(a.get_messages("a")) == [broken]
    assert any(record.levelno == logging.WARNING for record in caplog.records)


def test_structured_content_of_another_program_is_decoded(a: SessionDB) -> None:
    change_rows(
        a,
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', ?, 1)",
        "\x00json:" + json.dumps(MULTIMODAL),
    )
    assert contents(a.get_messages("a")) == [MULTIMODAL]
    assert len(a.search_messages("picture")) == 1
    assert a.list_sessions_rich()[0]["preview"].startswith("What is on this picture?")
