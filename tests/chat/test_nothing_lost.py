"""Answers on the screen lose no visible character. HTML is shown as text, line breaks are kept, and reasoning
is folded.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from hermes.agent import events
from hermes.chat.view.markdown_blocks import Blocks
from hermes.chat.view.recap import Entry, Recap, format_row_text
from hermes.chat.view.screen import Screen
from hermes_state import SessionDB
from tests import warm_command
from tests.chat.conftest import Typing
from tests.chat.test_rendering import Terminal, through
from tests.rendered_texts import PROSE, TEXTS, WORDS, assert_in_order, assert_shows

_HYPERLINK = re.compile(r"\x1b\]8;[^\x1b]*\x1b\\")


def drawn(*happened: Any, width: int = 300, terminal: bool = True) -> list[str]:
    """Return the lines that stay on the screen."""
    written = io.StringIO()
    colours: Any = "truecolor" if terminal else None
    console = Console(file=written, width=width, height=50, force_terminal=terminal, color_system=colours)
    through(Screen(console), *happened)
    return [line.rstrip() for line in Terminal(_HYPERLINK.sub("", written.getvalue())).lines]


def answered(text: str, cuts: int = 7, **given: Any) -> str:
    pieces = [text[start : start + cuts] for start in range(0, len(text), cuts)]
    return "\n".join(drawn(*map(events.TextDelta, pieces), events.Done(text), **given))


def marks_of_links(text: str) -> str:
    """Return the characters that mark reference links if the text may contain link definitions."""
    return "[]" if "]:" in text else ""


@given(TEXTS, st.integers(1, 40))
def test_an_answer_is_shown_whole(text: str, cuts: int) -> None:
    assert_shows(text, answered(text, cuts), marks=marks_of_links(text))


@given(PROSE, st.integers(24, 80))
@example("- a\n\n  ```py\n  0 0 0 <config>on</config> 👩\u200d👧\n  ```", 33)
def test_an_answer_is_shown_whole_in_a_narrow_window(text: str, width: int) -> None:
    assert_shows(text, answered(text, width=width), marks=marks_of_links(text))


@given(TEXTS)
def test_an_answer_is_shown_whole_without_a_terminal(text: str) -> None:
    assert "".join(text.split()) in "".join(answered(text, terminal=False).split())


def test_a_streamed_reference_link_leads_to_its_definition() -> None:
    links = "[1]: https://x.example/a\n[2]: https://x.example/b"
    text = f"see [it][1] and [that][2].\n\n- more\n\n{links}\n\n[it][1] again\n"
    shown = answered(text)
    assert "see it[1] (https://x.example/a) and that[2] (https://x.example/b)." in shown
    assert "it[1] (https://x.example/a) again" in shown
    assert "it[1]" not in answered("[it][1]\n")  # the next answer has its own definitions


def test_a_long_answer_does_not_wait_for_definitions() -> None:
    blocks = Blocks()
    assert blocks.add("[it][1]\n\n" + "word\n\n" * 100) == ""
    assert blocks.add("word\n\n" * 1000).startswith("[it][1]")


def test_one_empty_line_stands_between_blocks() -> None:
    text = "one\n\n| a | b |\n|---|---|\n| c | d |\n\n- two\n\n> three\n\n1. four\n\n---\n\n# five\n\nsix"
    shown = answered(text, width=20)
    assert "\n\n\n" not in shown.strip("\n")
    words = [word for word in shown.split() if word.isalpha()]
    assert words == ["one", "a", "b", "c", "d", "two", "three", "four", "five", "six"]


def test_the_indentation_of_lines_stays() -> None:
    text = "<config>\n  <name>x</name>\n\t<list>\n</config>\n\n- item\n  goes on\n    further"
    shown = answered(text).split("\n")
    assert [line for line in shown if line][:7] == [
        *("<config>", "  <name>x</name>", "    <list>", "</config>"),
        *(" • item", "   goes on", "     further"),
    ]


@given(st.lists(st.lists(WORDS, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=6))
def test_a_line_of_an_answer_is_a_line_on_the_screen(lines: list[str]) -> None:
    shown = [line for line in drawn(events.TextDelta("\n".join(lines)), events.Done("")) if line]
    assert shown == lines


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Use List<String> here.", ["Use List<String> here."]),
        ("<config>\n<a>1</a>\n</config>", ["<config>", "<a>1</a>", "</config>"]),
        ("a <!-- b --> c", ["a <!-- b --> c"]),
        ("&lt;b&gt; and &amp;", ["&lt;b&gt; and &amp;"]),
        ("[1]: https://x.example", ["[1]: https://x.example"]),
        ("```rust ignore\nlet a;\n```", [" rust ignore", "", " let a;"]),
        ("3. c\n7. d", [" 3 c", " 7 d"]),
        ("|a|b|\n|-|-|\n|1|2|3|", ["|a|b|", "|-|-|", "|1|2|3|"]),
        ("see ![alt](https://x.example/i) now", ["see 🌆 alt (https://x.example/i) now"]),
        ("a\x1b[31mred\x07\u202eb", ["a\\x1b[31mred\\x07\\u202eb"]),
        ("a\x9dhidden\x9cb", ["a\\x9dhidden\\x9cb"]),
        ("one\x0ctwo\n\nthree", ["one", "two", "", "three"]),
        (f"{'>' * 90} deep", [f"{'>' * 90} deep"]),
    ],
)
def test_text_is_shown_as_text(text: str, seen: list[str]) -> None:
    lines = drawn(events.TextDelta(text), events.Done(text))
    assert "\n".join(lines).strip("\n") == "\n".join(seen)


# Reasoning


def test_reasoning_is_dim_folded_and_apart_from_the_answer() -> None:
    written = io.StringIO()
    console = Console(file=written, width=60, height=30, force_terminal=True, color_system="truecolor")
    thoughts = [events.ThoughtDelta(f"step {number}\n") for number in range(9)]
    through(Screen(console), *thoughts, events.TextDelta("It is 42."), events.Done("It is 42."))
    text = written.getvalue()
    assert [line.rstrip() for line in Terminal(text).lines if line.strip()] == [
        "∴ reasoning  9 lines",
        "  │ step 0",
        "  │ … 6 more lines (Ctrl-O opens)",
        "  │ step 7",
        "  │ step 8",
        "It is 42.",
    ]
    assert "\x1b[2m∴ reasoning" in text
    assert "\x1b[2mstep 8" in text


def test_text_that_turns_out_to_be_reasoning_is_folded() -> None:
    steps = "".join(f"step {number}\n" for number in range(9))
    happened = [events.TextDelta(steps), events.Recast(steps), events.TextDelta("It is 42."), events.Done("")]
    assert [line for line in drawn(*happened) if line] == [
        "∴ reasoning  9 lines",
        "  │ step 0",
        "  │ … 6 more lines (Ctrl-O opens)",
        "  │ step 7",
        "  │ step 8",
        "It is 42.",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_blocks_that_turn_out_to_be_reasoning_are_called_so(terminal: bool) -> None:
    text = "first\n\nsecond\n\nthi"
    happened = [
        events.TextDelta(text),
        events.Recast("first\n\nsecond\n\nthird"),
        events.TextDelta("It is 42."),
    ]
    lines = [line for line in drawn(*happened, events.Done(""), terminal=terminal) if line]
    assert lines[:3] == ["first", "second", "∴ the text above is reasoning; the answer follows"]
    assert lines[3].startswith("∴ reasoning")
    assert lines[-1] == "It is 42."


def test_reasoning_that_never_becomes_an_answer_stays_on_the_screen() -> None:
    lines = drawn(events.ThoughtDelta("only this"), events.Note("told"), events.Done(""))
    assert [line for line in lines if line] == ["∴ reasoning  1 line", "  │ only this", "told"]


def test_reasoning_of_an_answer_that_starts_again_is_dropped_with_it() -> None:
    again = events.Discarded("lost", 0.0)
    shown = drawn(events.ThoughtDelta("first"), again, events.ThoughtDelta("second"), events.TextDelta("a"))
    assert [line for line in shown if line.startswith("  │")] == ["  │ second"]


@given(TEXTS)
def test_reasoning_can_do_nothing_to_the_screen(text: str) -> None:
    lines = drawn(events.ThoughtDelta(text), events.TextDelta("answer"), events.Done(""))
    assert "answer" in lines
    inside = [line for line in lines if line not in ("answer", "") and not line.startswith("∴ reasoning")]
    assert all(line.startswith(("  │", "    ")) for line in inside)


async def test_folded_reasoning_opens(typing: Typing) -> None:
    shown = await typing("think", "/reasoning", "/reasoning 2", "/reasoning x")
    assert "∴ reasoning  5 lines" in shown
    folded, whole = shown.split("the List<String>\nof it", 1)
    assert "… 2 more lines (Ctrl-O opens)" in folded
    assert "three" not in folded
    assert whole.count("│ three") == 1
    assert "Usage: /reasoning" in whole
    assert "There is reasoning of 1 answer in this conversation." in whole


async def test_a_truncated_answer_is_reported_and_marked(db: SessionDB, typing: Typing) -> None:
    shown = await typing("/title cut", "think length")
    assert shown.count("The answer stopped at the model's length limit.") == 1
    session_id = db.resolve_session_by_title("cut")
    assert session_id is not None
    shown = await typing(resuming=session_id)
    assert "◆ Hermes: the List<String>" in shown
    assert "Left open: the last answer stopped at the model's length limit" in shown
    assert "five" not in shown


@pytest.mark.parametrize(
    ("question", "stdout", "stderr", "code"),
    [
        ("think length", "the List<String>\nof it\n", "The answer stopped at the model's length limit", 0),
        ("ponder", "", "reached its length limit before the answer began", 1),
    ],
)
def test_one_question_gets_the_answer_alone(
    home: Path, question: str, stdout: str, stderr: str, code: int
) -> None:
    ran = warm_command.run(["-q", question], module="tests.chat.echo")
    assert (ran.stdout, ran.returncode) == (stdout, code)
    assert stderr in ran.stderr


# Earlier messages


@given(TEXTS, st.sampled_from(["user", "assistant"]))
def test_the_recap_shows_the_last_answer_whole(text: str, role: str) -> None:
    written = io.StringIO()
    # Rich caches the first spelling of each style for all consoles.
    console = Console(file=written, width=300, height=50, force_terminal=True, color_system="truecolor")
    shown = format_row_text({"role": role, "content": text})
    Screen(console).print_recap(Recap(0, [Entry(role, shown, is_last=True)], None))
    seen = "\n".join(Terminal(written.getvalue()).lines)
    assert "".join(text.split()) == "".join(shown.split())
    assert_in_order(text, seen, text)
