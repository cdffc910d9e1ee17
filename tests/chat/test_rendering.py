"""What is drawn: finished blocks once, the open one again in its place, and nothing that text from outside could do."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hermes.agent import events
from hermes.agent.model import Used
from hermes.chat.recap import recap
from hermes.chat.rendering import Screen, status
from tests.chat.echo import MARKDOWN


def a_screen(width: int = 40, height: int = 10, *, terminal: bool = True) -> tuple[Screen, io.StringIO]:
    shown = io.StringIO()
    colours = "truecolor" if terminal else None
    console = Console(file=shown, width=width, height=height, force_terminal=terminal, color_system=colours)  # type: ignore[arg-type]
    return Screen(console), shown


class Terminal:
    """As much of a terminal as the chat uses: lines, going up, clearing below."""

    def __init__(self, text: str) -> None:
        self.lines = [""]
        for piece in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\n|[^\x1b\n]+", text):
            self._take(piece)

    def _take(self, piece: str) -> None:
        if piece == "\n":
            self.lines.append("")
        elif piece.endswith("F") and piece.startswith("\x1b"):
            up = int(piece[2:-1])
            assert up < len(self.lines), "above the first line"
            self.lines = self.lines[: len(self.lines) - up]
            self.lines[-1] = ""
        elif not piece.startswith("\x1b"):
            self.lines[-1] += piece


def through(screen: Screen, *happened: Any) -> None:
    screen.begin()
    for event in happened:
        screen.event(event)
        screen.tick()
    screen.end()


@pytest.mark.parametrize("terminal", [True, False])
def test_of_a_long_snippet_the_match_is_in_the_line(terminal: bool) -> None:
    screen, shown = a_screen(terminal=terminal)
    screen.snippet("a long way to what was looked for, which is the >>>budget<<< and more words after it")
    (line, rest) = shown.getvalue().split("\n")
    plain = "".join(Terminal(line).lines)
    assert rest == ""
    assert len(plain) <= 40
    assert ("budget" in plain, ">>>" in plain) == (True, not terminal)
    assert ("33m" in line) == terminal


def test_an_answer_ends_up_on_the_screen_as_markdown_however_it_came() -> None:
    whole, shown_whole = a_screen(height=50)
    through(whole, events.TextDelta(MARKDOWN), events.Done(MARKDOWN))
    pieces, shown = a_screen(height=50)
    through(pieces, *(events.TextDelta(char) for char in MARKDOWN), events.Done(MARKDOWN))
    lines = [line.rstrip() for line in Terminal(shown.getvalue()).lines]
    assert [line for line in lines if line] == [
        line.rstrip() for line in Terminal(shown_whole.getvalue()).lines if line.strip()
    ]
    assert any("answer() -> int" in line for line in lines)
    assert not any("```" in line for line in lines)


def test_a_finished_block_is_written_once() -> None:
    screen, shown = a_screen()
    through(screen, events.TextDelta("first block\n\n"), *(events.TextDelta("second ") for _ in range(50)))
    assert shown.getvalue().count("first block") <= 3


def test_a_block_higher_than_the_window_never_reaches_above_it() -> None:
    screen, shown = a_screen(height=6)
    through(screen, *(events.TextDelta(f"- item {number}\n") for number in range(30)), events.Done(""))
    ups = [int(number) for number in re.findall(r"\x1b\[(\d+)F", shown.getvalue())]
    assert max(ups) <= 4
    assert [line.strip() for line in Terminal(shown.getvalue()).lines if "item" in line][-1] == "• item 29"


def test_a_window_that_became_narrower_is_cleared_wholly() -> None:
    screen, shown = a_screen(width=40)
    screen.begin()
    screen.event(events.TextDelta("a word " * 5))
    screen.tick()
    screen.console.width = 20
    screen.event(events.Done(""))
    assert "\x1b[3F" in shown.getvalue()  # one line of 34 cells, now two rows, and the empty one below


def test_tools_are_shown_while_they_run_and_with_their_time() -> None:
    screen, shown = a_screen(width=60)
    running = events.ToolStarted("1", "terminal", {"command": "git status"})
    through(screen, running, events.ToolEnded("1", "terminal", "clean", False, 1.25))
    text = shown.getvalue()
    assert "terminal git status" in text[: text.index("✓")]
    assert any("✓ terminal git status  1.2s" in line for line in Terminal(text).lines)


def test_while_a_person_is_asked_nothing_else_is_drawn() -> None:
    screen, shown = a_screen()
    screen.begin()
    screen.tick()
    screen.pause()
    before = shown.getvalue()
    screen.event(events.ToolEnded("1", "terminal", "", False, 0.1))
    screen.tick()
    assert shown.getvalue() == before
    screen.go_on()
    assert "✓" in shown.getvalue()


def test_what_is_said_aside_stands_above_the_open_block() -> None:
    screen, shown = a_screen()
    screen.begin()
    screen.event(events.TextDelta("half a"))
    screen.aside("removed 3 old sessions")
    screen.event(events.TextDelta(" sentence"))
    screen.event(events.Done(""))
    screen.end()
    lines = [line.strip() for line in Terminal(shown.getvalue()).lines if line.strip()]
    assert lines == ["removed 3 old sessions", "half a sentence"]


def test_an_answer_that_starts_again_leaves_nothing_of_the_first() -> None:
    screen, shown = a_screen()
    again = events.Discarded("the connection was lost", 2.0)
    through(screen, events.TextDelta("half an"), again, events.TextDelta("whole"), events.Done("whole"))
    lines = [line.strip() for line in Terminal(shown.getvalue()).lines if line.strip()]
    assert lines == ["↻ the connection was lost; trying again", "in 2s", "whole"]


@pytest.mark.parametrize("terminal", [True, False])
def test_text_from_outside_cannot_act_on_the_terminal(terminal: bool) -> None:
    screen, shown = a_screen(terminal=terminal)
    evil = "\x1b]0;owned\x07\x1b[2Jtext\x9b31m\u202e"
    through(
        screen,
        events.TextDelta(evil),
        events.Note(evil),
        events.ToolStarted("1", evil, {"x": evil}),
        events.ToolEnded("1", evil, evil, True, 0.0),
        events.Failed(evil, Exception()),
    )
    screen.table(("a", "b"), [(evil, evil)])
    screen.line(evil)
    screen.recap(recap([{"role": "user", "content": evil}]))
    text = shown.getvalue()
    assert "owned" not in text
    assert "\x1b[2J" not in text
    assert "\x9b" not in text
    assert "\u202e" not in text


def test_where_there_is_no_terminal_it_is_plain_text() -> None:
    screen, shown = a_screen(terminal=False)
    through(screen, events.TextDelta("# one\n\ntwo"), events.Done(""))
    assert shown.getvalue() == "# one\n\ntwo\n"


def test_the_recap_is_a_panel_with_gold_and_green_marks() -> None:
    screen, shown = a_screen(width=60)
    rows = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good\nday"}]
    screen.recap(recap([*rows * 11]))
    text = shown.getvalue()
    plain = "\n".join(Terminal(text).lines)
    assert "Previous Conversation" in plain
    assert "... 2 earlier messages ..." in plain
    assert "● You: hello" in plain
    assert "◆ Hermes: good" in plain
    assert "│   day" in plain
    assert "\x1b[1;2;38;2;255;215;0m● You: " in text
    assert "\x1b[1;38;2;95;215;95m◆ Hermes: " in text  # the last one is not dim


@pytest.mark.parametrize(
    ("used", "cost", "told"),
    [
        (Used(1234, 56), 0.001, "m · 1.2K in · 56 out · <$0.01"),
        (Used(), None, "m · tokens unknown · cost unknown"),
        (Used(0, 5), 0.0, "m · 0 in · 5 out · $0.00"),
    ],
)
def test_the_status_says_what_is_unknown(used: Used, cost: float | None, told: str) -> None:
    assert status(events.Counted("m", used, cost)) == told


@given(st.lists(st.text(alphabet="abc *`#|-1.\n>_~[]"), max_size=30), st.integers(10, 60), st.integers(3, 12))
def test_drawing_never_goes_above_its_own_lines(pieces: list[str], width: int, height: int) -> None:
    screen, shown = a_screen(width, height)
    screen.line("what stood there before")
    through(screen, *(events.TextDelta(piece) for piece in pieces), events.Done(""))
    assert Terminal(shown.getvalue()).lines[0].startswith("what stood"[:width])
