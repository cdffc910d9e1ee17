"""Text from outside is shown as plain text in an answer, even if it contains markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import clock
from hermes.gateway.outbound.markdown_format import (
    APART,
    describe_policy,
    escape_line,
    format_code,
    format_name,
    format_snippet,
    format_time,
)
from hermes.gateway.settings import ResetPolicy
from hermes_state import SessionDB
from tests.gateway.command_chat import Chat, dm

NASTY = st.text(st.sampled_from(list("ab @/.:`*_[]<>#|\\\n\r\t\u202e\x1b(){}-!")), max_size=40)
AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC).timestamp()


@given(st.one_of(NASTY, st.text(max_size=80)))
def test_a_plain_text_is_one_line_without_markup(text: str) -> None:
    visible = escape_line(text)
    assert visible.splitlines() in ([], [visible])
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_~\[\]<>#|]", visible), "markup is escaped"
    assert not re.search(rf"@(?!{APART})|://|(?<!\w)/\w|\w\.\w", visible), "no name, address or command"
    assert "\u202e" not in visible
    assert "\x1b" not in visible


@given(NASTY)
def test_a_code_span_cannot_be_left(text: str) -> None:
    visible = format_code(text)
    assert visible[0] == visible[-1] == "`"
    assert "`" not in visible[1:-1]
    assert "\n" not in visible


@given(NASTY, NASTY)
def test_only_matches_are_bold_in_a_snippet(before: str, hit: str) -> None:
    visible = format_snippet(f"{before}>>>{hit}<<<{before}")
    assert visible.count("**") in (0, 2) or ">>>" in before + hit
    assert len(visible.splitlines()) <= 1


def test_a_snippet_keeps_the_spaces_around_what_was_found() -> None:
    assert format_snippet("the >>>red<<< and >>>blue<<< car") == "the **red** and **blue** car"


def test_a_conversation_is_called_by_its_title_or_its_beginning() -> None:
    assert format_name({"title": "A *b*", "preview": "x"}) == r"**A \*b\***"
    assert format_name({"title": None, "preview": "hello"}) == "“hello”"
    assert format_name({"title": None, "preview": ""}) == "*untitled*"


async def test_a_title_that_was_copied_from_an_answer_is_understood(db: SessionDB) -> None:
    chat = Chat(db, dm("ann"))
    old = await chat.talks("x", title="node.js @home")
    await chat.types("/new")
    await chat.talks("y")
    visible = escape_line("node.js @home")
    assert visible != "node.js @home"
    await chat.types(f"/resume {visible}")
    assert chat.session_id == old


@pytest.mark.parametrize(
    ("zone", "at", "told"),
    [
        ("UTC", AT, "today 12:00"),
        ("UTC", AT - clock.DAY, "yesterday 12:00"),
        ("UTC", AT + clock.DAY, "tomorrow 12:00"),
        ("UTC", AT - 10 * clock.DAY, "5 Nov 12:00"),
        ("UTC", AT - 400 * clock.DAY, "11 Oct 2025 12:00"),
        ("Pacific/Auckland", AT, "today 01:00"),
        ("Nowhere/Land", AT, "today 07:00"),
        (None, AT, "today 07:00"),
    ],
)
def test_times_are_those_of_the_person(
    zone: str | None, at: float, told: str, in_zone: Callable[[str], None]
) -> None:
    in_zone("America/New_York")
    assert format_time(at, zone, AT) == told


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (ResetPolicy(), "never automatically"),
        (ResetPolicy("idle"), "after 1.0d without a message"),
        (ResetPolicy("daily", at_hour=4), "daily at 4:00"),
        (ResetPolicy("both", idle_minutes=90), "daily at 4:00, and after 1h 30m without a message"),
    ],
)
def test_a_policy_is_described_in_words(rule: ResetPolicy, told: str) -> None:
    assert describe_policy(rule) == told
