"""The preview of a session: the first message of the person in one line of at most 60 characters."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import SessionDB
from tests.interface.conftest import say
from tests.stored_rows import change_rows


@pytest.fixture
def a(db: SessionDB) -> SessionDB:
    db.create_session("a", "cli")
    return db


def preview(db: SessionDB) -> str:
    (row,) = db.list_sessions_rich()
    text: str = row["preview"]
    return text


def test_the_preview_is_the_first_message_of_the_person(a: SessionDB) -> None:
    a.append_message("a", "system", "be kind")
    a.append_message("a", "assistant", "welcome")
    a.append_message("a", "user", None)
    say(a, "a", "hello", "later")
    assert preview(a) == "hello"


def test_without_a_message_the_preview_is_empty(a: SessionDB) -> None:
    a.append_message("a", "assistant", "welcome")
    assert preview(a) == ""


def test_the_first_message_is_the_one_written_first(a: SessionDB) -> None:
    a.append_message("a", "user", "first", timestamp=200)
    a.append_message("a", "user", "second", timestamp=100)
    assert preview(a) == "first"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 60 + "..."),
        ("x" * 500, "x" * 60 + "..."),
        ("日" * 61, "日" * 60 + "..."),
        ("two\nlines", "two lines"),
        ("carriage\rreturn", "carriage return"),
        ("  around  ", "around"),
        ("\n\nhello\n", "hello"),
        ('it\'s "quoted" 100% <b>', 'it\'s "quoted" 100% <b>'),
    ],
)
def test_the_preview_is_one_line_of_at_most_60_characters(a: SessionDB, said: str, shown: str) -> None:
    say(a, "a", said)
    assert preview(a) == shown


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ([{"type": "text", "text": "look at this"}], "look at this"),
        ([{"type": "image_url", "image_url": {"url": "data:x"}}, {"type": "text", "text": "look"}], "look"),
        ([{"type": "text", "text": "y" * 70}], "y" * 60 + "..."),
    ],
)
def test_structured_content_is_previewed_by_its_text(a: SessionDB, content: Any, shown: str) -> None:
    a.append_message("a", "user", content)
    assert preview(a) == shown


def test_the_preview_follows_replaced_and_deleted_messages(a: SessionDB) -> None:
    say(a, "a", "one", "two")
    change_rows(a, "DELETE FROM messages WHERE content = 'one'")
    assert preview(a) == "two"
    a.replace_messages("a", [{"role": "user", "content": "three"}])
    assert preview(a) == "three"
    a.clear_messages("a")
    assert preview(a) == ""


def test_a_text_with_nul_is_previewed(a: SessionDB) -> None:
    say(a, "a", "before\x00after")
    assert preview(a).startswith("before")
    assert preview(a).endswith("after")
