"""The context of a found message: the message before it, the message itself, and the message after it."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import SessionDB
from tests.interface.conftest import say


@pytest.fixture
def a(db: SessionDB) -> SessionDB:
    db.create_session("a", "cli")
    return db


def context(db: SessionDB, query: str) -> list[tuple[str, Any]]:
    (row,) = db.search_messages(query)
    assert all(set(entry) == {"role", "content"} for entry in row["context"])
    return [(entry["role"], entry["content"]) for entry in row["context"]]


def test_a_message_in_the_middle_has_three_entries(a: SessionDB) -> None:
    for role, text in (
        ("user", "zero"),
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
        ("user", "four"),
    ):
        a.append_message("a", role, text)
    assert context(a, "two") == [("user", "one"), ("assistant", "two"), ("user", "three")]


@pytest.mark.parametrize(("query", "entries"), [("one", ["one", "two"]), ("three", ["two", "three"])])
def test_the_first_and_the_last_have_two(a: SessionDB, query: str, entries: list[str]) -> None:
    say(a, "a", "one", "two", "three")
    assert [text for _, text in context(a, query)] == entries


def test_a_message_alone_has_one(a: SessionDB) -> None:
    say(a, "a", "one")
    assert context(a, "one") == [("user", "one")]


def test_neighbours_are_of_the_same_session(db: SessionDB) -> None:
    for name in ("a", "b"):
        db.create_session(name, "cli")
    for text, name in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b"), ("a3", "a")):
        db.append_message(name, "user", text)
    assert [text for _, text in context(db, "a2")] == ["a1", "a2", "a3"]


def test_neighbours_are_in_the_order_of_writing(a: SessionDB) -> None:
    for text, when in (("one", 300), ("two", 100), ("three", 200)):
        a.append_message("a", "user", text, timestamp=when)
    assert [text for _, text in context(a, "two")] == ["one", "two", "three"]


def test_texts_are_cut_to_200_characters(a: SessionDB) -> None:
    say(a, "a", "b" * 201, "needle " + "x" * 300, "c" * 200)
    assert [text for _, text in context(a, "needle")] == ["b" * 200, ("needle " + "x" * 300)[:200], "c" * 200]


def test_structured_content_is_shown_as_its_text(a: SessionDB) -> None:
    say(a, "a", "needle")
    a.append_message("a", "user", [{"type": "text", "text": "see"}, {"type": "text", "text": "this"}])
    text = context(a, "needle")[1][1]
    assert text.split() == ["see", "this"]


def test_the_address_of_a_picture_is_not_text(a: SessionDB) -> None:
    say(a, "a", "needle")
    picture = {"type": "image_url", "image_url": {"url": "http://img/x.png"}}
    a.append_message("a", "user", [{"type": "text", "text": "see"}, picture, "this"])
    assert context(a, "needle")[1][1].split() == ["see", "this"]


def test_structured_content_without_text_is_called_multimodal(a: SessionDB) -> None:
    a.append_message("a", "user", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}])
    say(a, "a", "needle")
    assert context(a, "needle")[0][1] == "[multimodal content]"


def test_a_neighbour_without_content_is_harmless(a: SessionDB) -> None:
    a.append_message("a", "assistant", None, tool_calls=[{"id": "call_1"}])
    say(a, "a", "needle")
    ((role, text), _) = context(a, "needle")
    assert role == "assistant"
    assert not text
