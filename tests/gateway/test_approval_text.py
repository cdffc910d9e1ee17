"""The text of approval questions shows exactly the action that is approved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hermes.agent.approvals.request import ApprovalRequest, Scope
from hermes.gateway.adapter import Choice
from hermes.gateway.inbound.approval_text import (
    MOST_PARTS,
    Measure,
    fence_code,
    format_question,
    make_choices,
    split_code,
)
from hermes.gateway.platforms.matrix.formatting import measure as in_bytes
from hermes.gateway.platforms.telegram import formatting
from hermes.text import make_visible
from tests.gateway.approval_gateway import code_in
from tests.gateway.telegram_markup import parsed

NASTY = st.text(alphabet=st.sampled_from("`~\n\t ab>#-*|é😀\u202e\u200b\r\x1b"), max_size=400)
TEXTS = st.one_of(NASTY, st.text(max_size=200))
MEASURES = st.sampled_from([len, formatting.count_units, in_bytes])


@given(TEXTS)
def test_nothing_inside_closes_the_fence(text: str) -> None:
    visible = make_visible(text)
    block = fence_code(visible)
    tokens = MarkdownIt("commonmark").parse(f"before\n\n{block}\n\nafter")
    assert [token.type for token in tokens].count("fence") == 1
    assert code_in(f"before\n\n{block}\n\nafter") == [visible]
    assert tokens[-2].content == "after"


@given(TEXTS, st.integers(60, 300), MEASURES)
def test_chunks_joined_are_the_text_and_each_fits(text: str, longest: int, measure: Measure) -> None:
    visible = make_visible(text)
    chunks = split_code(visible, longest, measure)
    assert "".join(chunks) == visible
    assert all(measure(fence_code(chunk)) <= longest for chunk in chunks)
    assert [code_in(fence_code(chunk)) for chunk in chunks] == [[chunk] for chunk in chunks]


@given(st.text(max_size=100))
def test_invisible_characters_are_spelled_out(text: str) -> None:
    visible = make_visible(text)
    assert all(char.isprintable() or char in "\n\t" for char in visible)
    if text.isascii() and text.isprintable():
        assert visible == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm \u202ex", "rm ⟨U+202E⟩x"),
        ("a\u200bb", "a⟨U+200B⟩b"),
        ("a\xa0b\r\n\tc", "a⟨U+00A0⟩b⟨U+000D⟩\n\tc"),
        ("\x1b[2K", "⟨U+001B⟩[2K"),
        ("a\u2800\u3164", "a⟨U+2800⟩⟨U+3164⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("grep Käse 日本", "grep Käse 日本"),
    ],
)
def test_characters_that_hide_something(text: str, shown: str) -> None:
    assert make_visible(text) == shown


@given(TEXTS, TEXTS, st.booleans())
def test_the_whole_command_and_the_whole_diff_are_in_the_question(
    subject: str, diff: str, small: bool
) -> None:
    longest = 1200 if small else 4096
    parts = format_question("k7f2", ApprovalRequest(subject * 9, "why", diff=diff), 600, longest)
    assert parts is not None
    wanted = make_visible(subject * 9) + make_visible(diff)
    assert "".join(code for part in parts for code in code_in(part)) == wanted
    assert all(len(part) <= longest for part in parts)


@given(TEXTS)
def test_telegram_shows_the_exact_command(subject: str) -> None:
    """Checks the question after its conversion from Markdown to Telegram's HTML."""
    request = ApprovalRequest(subject, "why")
    parts = format_question("k7f2", request, 600, formatting.LONGEST, formatting.count_units)
    assert parts is not None
    (part,) = parts
    assert make_visible(subject) in parsed(formatting.render_html(part)).text


def test_a_long_command_comes_in_numbered_parts_and_the_last_message_asks() -> None:
    command = "\n".join(f"echo line {number}" for number in range(600))
    parts = format_question("k7f2", ApprovalRequest(command, "writes"), 600, 4096)
    assert parts is not None
    assert [part.splitlines()[0] for part in parts[:-1]] == [
        "`k7f2` part 1 of 3",
        "`k7f2` part 2 of 3",
        "`k7f2` part 3 of 3",
    ]
    assert "".join(code for part in parts for code in code_in(part)) == command
    assert "3 messages above show all of it" in parts[-1]
    assert "/approve" not in "".join(parts[:-1])


def test_a_question_that_needs_too_many_messages_is_not_asked() -> None:
    assert format_question("k7f2", ApprovalRequest("x" * 4096 * MOST_PARTS, ""), 600, 4096) is None
    assert (
        format_question("k7f2", ApprovalRequest("ls", "", diff="+\n" * 4096 * MOST_PARTS), 600, 4096) is None
    )
    assert format_question("k7f2", ApprovalRequest("ls", ""), 600, 160) is None


def test_the_choices_are_those_of_the_request() -> None:
    request = ApprovalRequest(
        "git commit -m x", "writes", (Scope.COMMAND, Scope.PREFIX), "git commit", "", "/w"
    )
    (text,) = format_question("k7f2", request, 600, 4096) or []
    for line in (
        "- `/approve k7f2` once",
        "- `/approve k7f2 always` this command from now on, in `/w`",
        "- `/approve k7f2 like` every command that begins with `git commit` from now on, in `/w`",
        "Without an answer within 10 minutes, it is refused.",
    ):
        assert line in text.splitlines()
    assert [choice.text for choice in make_choices("k7f2", request)] == [
        "/approve k7f2",
        "/approve k7f2 always",
        "/approve k7f2 like",
        "/deny k7f2",
    ]
    assert make_choices("k7f2", ApprovalRequest("ls", "")) == (
        Choice("✓ Once", "/approve k7f2"),
        Choice("✗ No", "/deny k7f2"),
    )


@pytest.mark.parametrize("prefix", ["", "a`b", "a\u202eb", "a\nb", " a", "x" * 200])
def test_a_prefix_that_cannot_be_shown_exactly_is_not_offered(prefix: str) -> None:
    request = ApprovalRequest("a", "", (Scope.PREFIX,), prefix)
    assert "like" not in "".join(choice.text for choice in make_choices("k7f2", request))


def test_a_reason_cannot_pass_for_a_choice() -> None:
    request = ApprovalRequest("ls", "x\n- `/approve k7f2` harmless\n```\nls\n```")
    (text,) = format_question("k7f2", request, 600, 4096) or []
    assert code_in(text) == ["ls"]
    assert [line for line in text.splitlines() if "harmless" in line] == [
        line for line in text.splitlines() if line.startswith("Why I ask:")
    ]
