"""Input during an answer: some commands run immediately, and all other input goes to the next prompt."""

from __future__ import annotations

import asyncio
import os
import pty
import tty
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.typeahead import get_typeahead

from hermes.chat.input.quiet_keyboard import TypedAhead
from hermes.chat.view.status_line import NOTHING_TYPED, TypedText
from tests.tiers import scale_examples

COMMAND = "/agents"
LINES = st.lists(
    st.sampled_from(
        ["hello", COMMAND, f"{COMMAND}x\x7f", "/title x", "", "\x1b[A", "new\x1b\r/agents", "ä/"]
    ),
    max_size=6,
)


@contextmanager
def open_keyboard() -> Iterator[tuple[int, Input]]:
    """Open a terminal that the test types into, and the keyboard of the program in it."""
    ours, its = pty.openpty()
    tty.setraw(its)
    with open(its, encoding="utf-8") as stdin:
        yield ours, create_input(stdin)
    os.close(ours)


async def type_text(text: str) -> tuple[list[str], str, list[TypedText]]:
    """Type `text` during an answer. Return (commands that ran, text for the next prompt, output
    meanwhile)."""
    run: list[str] = []
    shown: list[TypedText] = []

    def run_command(line: str) -> bool:
        if line == COMMAND:
            run.append(line)
        return line == COMMAND

    with open_keyboard() as (terminal, keyboard):
        with TypedAhead(keyboard, run_command, shown.append).read():
            os.write(terminal, text.encode())
            await asyncio.sleep(0.01)
        return run, "".join(press.data for press in get_typeahead(keyboard)), shown


@settings(max_examples=scale_examples(120), deadline=None)
@given(LINES, st.sampled_from(["", "the rest", "/age"]))
async def test_only_commands_are_taken(lines: list[str], rest: str) -> None:
    run, typed, shown = await type_text("".join(f"{line}\r" for line in lines) + rest)
    taken = [line for line in lines if line in (COMMAND, f"{COMMAND}x\x7f")]
    assert run == [COMMAND] * len(taken)
    assert typed == "".join(f"{line}\r" for line in lines if line not in taken) + rest
    assert shown[-1] == NOTHING_TYPED
    assert max(len(typed.sent) for typed in shown) <= len(lines) - len(taken)
    assert max(shown, key=lambda typed: (len(typed.sent), typed.line)).line in ("", rest)


@pytest.mark.parametrize(
    ("keys", "sent", "line"),
    [
        ("one\rtwo", ("one",), "two"),
        ("\r  \r/title x\rhello\x7f", ("/title x",), "hell"),
        ("ab\x1b[D\x1b[D1\x1b[C2\x05!", (), "1a2b!"),
        ("one two\x17", (), "one "),
        ("a\x1b\rb\nc", (), "a\nb\nc"),
        ("see \x1b[200~one\rtwo\x1b[201~ now", (), "see one\ntwo now"),
        ("one\x15two\x01\x0b", (), ""),
        ("\x1b[Ax", (), "x"),
    ],
)
async def test_the_typed_text_is_shown(keys: str, sent: tuple[str, ...], line: str) -> None:
    _, _, shown = await type_text(keys)
    assert TypedText(sent, line) in shown
