"""Finished blocks are drawn once, and the open block is redrawn in place. Untrusted text has no effect on the
terminal.
"""

from __future__ import annotations

import io
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from hermes.agent import events
from hermes.agent.models.model import Used
from hermes.chat.view.recap import make_recap
from hermes.chat.view.screen import Screen, format_usage
from hermes.chat.view.status_line import TypedText
from tests.chat.echo import MARKDOWN


def a_screen(width: int = 40, height: int = 10, *, terminal: bool = True) -> tuple[Screen, io.StringIO]:
    shown = io.StringIO()
    colours = "truecolor" if terminal else None
    console = Console(file=shown, width=width, height=height, force_terminal=terminal, color_system=colours)  # type: ignore[arg-type]
    return Screen(console), shown


class Terminal:
    """The features of a terminal that the chat uses: lines, cursor up, clear below."""

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
        screen.handle_event(event)
        screen.tick()
    screen.end()


@pytest.mark.parametrize("terminal", [True, False])
def test_the_line_of_a_long_snippet_contains_the_match(terminal: bool) -> None:
    screen, shown = a_screen(terminal=terminal)
    screen.print_snippet(
        "a long way to what was looked for, which is the >>>budget<<< and more words after it"
    )
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
    screen.handle_event(events.TextDelta("a word " * 5))
    screen.tick()
    screen.console.width = 20
    screen.handle_event(events.Done(""))
    # One line of 34 cells, now two rows, the empty one below, and the status.
    assert "\x1b[4F" in shown.getvalue()


def test_tools_are_shown_while_they_run_and_with_their_time() -> None:
    screen, shown = a_screen(width=60)
    running = events.ToolStarted("1", "terminal", {"command": "git status"})
    through(screen, running, events.ToolEnded("1", "terminal", "clean", False, 1.25))
    text = shown.getvalue()
    assert "terminal git status" in text[: text.index("✓")]
    assert any("✓ terminal git status  1.2s" in line for line in Terminal(text).lines)


def ended(screen: Screen, name: str, arguments: dict[str, Any], output: str, *, failed: bool = False) -> None:
    through(
        screen,
        events.ToolStarted("1", name, arguments),
        events.ToolEnded("1", name, output, failed, 0.5),
    )


def test_a_long_command_is_whole_in_lines_and_folded_in_its_middle() -> None:
    screen, shown = a_screen(height=60)
    command = "\n".join(f"step {number} of what is to be done here, in many words" for number in range(50))
    through(screen, events.ToolStarted("1", "terminal", {"command": command}))
    lines = [line.rstrip() for line in Terminal(shown.getvalue()).lines]
    assert "  $ step 0 of what is to be done here," in lines
    assert "    in many words" in lines
    assert "    … 31 more lines (Ctrl-O opens)" in lines
    assert "  > step 49 of what is to be done here," in lines
    assert not any("step 20 " in line for line in lines)


def test_the_end_of_a_command_in_one_very_long_line_can_be_seen() -> None:
    screen, shown = a_screen(height=60)
    ended(screen, "terminal", {"command": f"echo {'x' * 19_000}; rm -rf build"}, "[exit code 0]")
    lines = [line.rstrip() for line in Terminal(shown.getvalue()).lines if line.strip()]
    text = " ".join(" ".join(lines).split())
    assert "rm -rf build" in text
    assert re.search(r"\[… [\d,]+ characters …\]", text)
    assert len(lines) < 20


def test_output_is_folded_to_its_first_and_last_lines() -> None:
    screen, shown = a_screen(width=60, height=30)
    output = "\n".join(f"line {number}" for number in range(42)) + "\n[exit code 1]"
    ended(screen, "terminal", {"command": "make"}, output)
    assert [line.rstrip() for line in Terminal(shown.getvalue()).lines if line.strip()] == [
        "✗ terminal make  exit code 1 · 0.5s",
        "  │ line 0",
        "  │ line 1",
        "  │ … 37 more lines (Ctrl-O opens)",
        "  │ line 39",
        "  │ line 40",
        "  │ line 41",
    ]


def test_an_endless_line_of_output_takes_a_few_rows() -> None:
    screen, shown = a_screen(height=30)
    ended(screen, "session_search", {"query": "x"}, "word " * 9_000)
    lines = [line.rstrip() for line in Terminal(shown.getvalue()).lines if line.strip()]
    assert len(lines) < 8
    assert lines[-1] == "  │ … long lines are cut (Ctrl-O opens)"


def test_an_edit_is_a_diff_in_colour_and_folded() -> None:
    screen, shown = a_screen(width=60, height=60)
    diff = "\n".join([" before", "-old", *(f"+new {number}" for number in range(30))])
    output = f"src/a.py: +30 -1 lines, near line 7\n{diff}"
    ended(screen, "patch", {"path": "src/a.py", "old_text": "old", "new_text": "new"}, output)
    text = shown.getvalue()
    lines = [line.rstrip() for line in Terminal(text).lines if line.strip()]
    assert lines[0] == "✓ patch src/a.py  +30 −1 · 0.5s"
    assert lines[1:4] == ["  │  before", "  │ -old", "  │ +new 0"]
    assert lines[-1] == "  │ … 12 more lines (Ctrl-O opens)"
    assert "\x1b[31m-old" in text
    assert "\x1b[32m+new 0" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_without_colour_a_diff_has_its_marks(terminal: bool) -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=60, force_terminal=terminal, no_color=True)
    ended(Screen(console), "write_file", {"path": "a", "content": "b\n"}, "a: created, 2 bytes")
    assert "  │ +b" in [line.rstrip() for line in Terminal(shown.getvalue()).lines]
    assert "\x1b[32m" not in shown.getvalue()


def test_a_call_whose_end_is_never_reported_is_shown() -> None:
    screen, shown = a_screen(width=80)
    command = {"command": "make install"}
    through(screen, events.ToolStarted("1", "terminal", command), events.Failed("taken over", Exception()))
    lines = [line.rstrip() for line in Terminal(shown.getvalue()).lines if line.strip()]
    assert lines[-1] == "? terminal make install  no result recorded; effect unknown"


def test_calls_with_the_same_id_keep_their_own_arguments() -> None:
    screen, shown = a_screen(width=60)
    started = [events.ToolStarted("1", "terminal", {"command": word}) for word in ("one", "two")]
    through(screen, *started, *(events.ToolEnded("1", "terminal", "", False, 0.0) for _ in started))
    lines = [line.rstrip() for line in Terminal(shown.getvalue()).lines if line.strip()]
    assert lines == ["✓ terminal one  0.0s", "✓ terminal two  0.0s"]


def test_a_long_running_call_is_drawn_quickly() -> None:
    screen, _ = a_screen(width=100, height=50)
    command = "\n".join("x" * 5_000 for _ in range(4_000))
    screen.begin()
    screen.handle_event(events.ToolStarted("1", "terminal", {"command": command}))
    began = time.process_time()
    for _ in range(10):
        screen.tick()
    assert time.process_time() - began < 2.0


def test_while_a_person_is_asked_nothing_else_is_drawn() -> None:
    screen, shown = a_screen()
    screen.begin()
    screen.tick()
    screen.pause()
    before = shown.getvalue()
    screen.handle_event(events.ToolEnded("1", "terminal", "", False, 0.1))
    screen.tick()
    assert shown.getvalue() == before
    screen.resume()
    assert "✓" in shown.getvalue()


def test_notices_are_shown_above_the_open_block() -> None:
    screen, shown = a_screen()
    screen.begin()
    screen.handle_event(events.TextDelta("half a"))
    screen.print_aside("removed 3 old sessions")
    screen.handle_event(events.TextDelta(" sentence"))
    screen.handle_event(events.Done(""))
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
    screen.print_table(("a", "b"), [(evil, evil)])
    screen.print_line(evil)
    screen.print_recap(make_recap([{"role": "user", "content": evil}]))
    text = shown.getvalue()
    assert "\x1b]" not in text
    assert "\x07" not in text
    assert "\x1b[2J" not in text
    assert "\x9b" not in text
    assert "\u202e" not in text


def test_without_a_terminal_the_output_is_plain_text() -> None:
    screen, shown = a_screen(terminal=False)
    through(screen, events.TextDelta("# one\n\ntwo"), events.Done(""))
    assert shown.getvalue() == "# one\n\ntwo\n"


def test_the_recap_is_a_panel_with_gold_and_green_marks() -> None:
    screen, shown = a_screen(width=60)
    rows = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good\nday"}]
    screen.print_recap(make_recap([*rows * 11]))
    text = shown.getvalue()
    plain = "\n".join(Terminal(text).lines)
    assert "Previous Conversation" in plain
    assert "... 2 earlier messages ..." in plain
    assert "● You: hello" in plain
    assert "◆ Hermes: good" in plain
    assert "│   day" in plain
    assert "\x1b[1;2;38;2;255;215;0m● You: " in text
    assert "\x1b[1;38;2;95;215;95m◆ Hermes: " in text  # the last answer is not dimmed


@pytest.mark.parametrize(
    ("used", "cost", "told"),
    [
        (Used(1234, 56), 0.001, "m · 1.2K in · 56 out · <$0.01"),
        (Used(), None, "m · tokens unknown · cost unknown"),
        (Used(0, 5), 0.0, "m · 0 in · 5 out · $0.00"),
    ],
)
def test_the_status_shows_unknown_values(used: Used, cost: float | None, told: str) -> None:
    assert format_usage(events.Counted("m", used, cost)) == told


@given(st.lists(st.text(alphabet="abc *`#|-1.\n>_~[]"), max_size=30), st.integers(10, 60), st.integers(3, 12))
def test_drawing_never_goes_above_its_own_lines(pieces: list[str], width: int, height: int) -> None:
    screen, shown = a_screen(width, height)
    screen.print_line("what stood there before")
    through(screen, *(events.TextDelta(piece) for piece in pieces), events.Done(""))
    assert Terminal(shown.getvalue()).lines[0].startswith("what stood"[:width])


def test_a_running_answer_has_a_status_below_it() -> None:
    screen, shown = a_screen()
    screen.begin()
    screen.handle_event(events.TextDelta("the answer"))
    screen.show_typed(TypedText(("first",), "then this"))
    lines = Terminal(shown.getvalue()).lines
    assert lines[0] == "the answer"
    assert lines[2].endswith(" 0s · Ctrl-C stops")
    assert lines[3:] == ["next ❯ first", "❯ then this", ""]
    screen.handle_event(events.TextDelta(" goes on\n\nbehind a finished block"))
    lines = Terminal(shown.getvalue()).lines
    assert lines[0] == "the answer goes on"
    assert lines[-2] == "❯ then this"
    screen.show_stopping()
    assert Terminal(shown.getvalue()).lines[-4].endswith(" 0s · stopping …")
    screen.handle_event(events.Done(""))
    screen.end()
    assert Terminal(shown.getvalue()).lines == ["the answer goes on", "", "behind a finished block", "", ""]
    assert shown.getvalue().rindex("\x1b[?25h") > shown.getvalue().rindex("\x1b[?25l")


@given(
    st.lists(st.text("ab ❯漢字🙂\n\x1b\t", max_size=40), max_size=6),
    st.text("ab 漢字🙂\n\x1b\t", max_size=90),
    st.integers(4, 60),
    st.integers(3, 12),
)
def test_each_line_of_the_status_takes_one_row(sent: list[str], line: str, width: int, height: int) -> None:
    screen, shown = a_screen(width, height)
    screen.begin()
    screen.show_typed(TypedText(tuple(sent), line))
    screen.tick()
    drawn = Terminal(shown.getvalue()).lines
    assert all(cell_len(text) <= width for text in drawn)
    assert len(drawn) <= max(2, height - 1)
    screen.end()
    assert Terminal(shown.getvalue()).lines == [""]


def test_the_end_of_a_long_input_is_shown() -> None:
    screen, shown = a_screen(width=20)
    screen.begin()
    screen.show_typed(TypedText((), "a beginning and then the end"))
    assert Terminal(shown.getvalue()).lines[1] == "❯ …and then the end"
