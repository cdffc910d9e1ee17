"""A question in the chat accepts only keys that were pressed after it appeared. Keys pressed earlier go to
the next prompt.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import DummyCompleter
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.output import DummyOutput

from hermes.chat.input import prompt_line as prompting_module
from hermes.chat.input.approval import describe_length
from hermes.chat.input.prompt_line import PromptLine
from hermes.chat.input.question import Option, Stopped, keep_text
from hermes.terminal_input import AnswerReader, is_answer
from hermes_state import SessionDB
from tests.chat.conftest import POSITION, SEEN, Typing
from tests.terminal import DOWN, ENTER, INTERRUPT, LEAVE, Terminal

ECHO = [sys.executable, "-m", "tests.chat.echo"]
SILENCE_S = 1.5
PATIENT_ECHO = [
    sys.executable,
    "-c",
    (
        f"import runpy; from hermes import terminal_input as terminal; terminal.SILENCE_S = {SILENCE_S};"
        "runpy.run_module('tests.chat.echo', run_name='__main__', alter_sys=True)"
    ),
]
"""The echo chat with a longer wait for terminals that do not answer a cursor-position request. The wait is
far longer than any other step of a question."""
ASKS = f"use shout may I{ENTER}"
QUESTION = "Allow it? (it deletes)"
PASTE = "\x1b[200~{}\x1b[201~"
ESC, UP = "\x1b", "\x1b[A"
OPTIONS: list[Option[object]] = [
    Option("once", "yes", "y"),
    Option("always", "yes, always", "a"),
    Option("project", "yes, in this project", "p"),
    Option("no", "no", "n"),
]


# ---------------------------------------------------------------- the chat, key by key


async def test_text_typed_ahead_is_not_an_answer_and_goes_to_the_next_prompt(typing: Typing) -> None:
    shown = await typing("use shout may I", keys=f"no{ENTER}always{ENTER}{SEEN}n{ENTER}{ENTER}")
    assert "the tool said: refused" in shown
    assert "you said: no\nalways" in shown


async def test_enter_typed_ahead_is_not_an_answer_and_sends_nothing(typing: Typing) -> None:
    shown = await typing("use shout may I", keys=f"{ENTER}1{ENTER}y{ENTER}{SEEN}n and{ENTER}")
    assert "the tool said: refused" in shown
    assert "you said: 1\ny and" in shown


async def test_typed_ahead_text_passes_all_questions_before_the_next_prompt(
    db: SessionDB, typing: Typing
) -> None:
    shown = await typing("one", "/undo", keys=f"yes{ENTER}{SEEN}n{ENTER}{ENTER}")
    assert "Took back" not in shown
    assert [row["content"] for row in db.get_messages(db.search_sessions()[0]["id"])][::2] == [
        "one",
        "yes",
    ]


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (ENTER, "refused"),
        (ESC, "refused"),
        (LEAVE, "refused"),
        ("n", "refused"),
        ("3", "refused"),
        ("xqz59y", "allowed"),
        ("Y", "allowed"),
        ("1", "allowed"),
        ("a", "allowed"),
        (f"{UP}{ENTER}", "allowed"),
        (f"{DOWN}{DOWN}{ENTER}", "allowed"),
        (f"{UP}{UP}{ENTER}", "allowed"),
        (f"w{SEEN}not on a Friday{ENTER}", "refused, not on a Friday"),
        (f"{PASTE.format('y')}{ENTER}{ENTER}", "refused"),
    ],
)
async def test_keys_of_a_question(typing: Typing, keys: str, answer: str) -> None:
    shown = await typing("use shout may I", keys=f"{SEEN}{keys}")
    assert f"the tool said: {answer}" in shown


@pytest.mark.parametrize(("length", "is_said"), [(50, False), (1_500, True)])
def test_a_question_about_a_long_command_says_how_long_it_is(length: int, is_said: bool) -> None:
    """The question states the length of the command, because the beginning may have scrolled off the
    screen."""
    assert ("read it from the beginning" in describe_length("x" * length)) is is_said
    assert ("read it from the beginning" in describe_length("rm x" + "\n" * (length // 10) + "ls")) is is_said


@pytest.mark.parametrize(
    "keys", [INTERRUPT, f"{SEEN}{INTERRUPT}", f"typed{INTERRUPT}", f"{SEEN}x{INTERRUPT}"]
)
async def test_ctrl_c_at_a_question_stops_the_turn(typing: Typing, keys: str) -> None:
    shown = await typing("use shout may I", keys=f"{keys}{INTERRUPT}")
    assert "■ stopped" in shown
    assert "the tool said" not in shown


# ---------------------------------------------------------------- a question by itself


class Screen(DummyOutput):
    """An invisible terminal that answers a cursor-position request only when the test asks for the answer."""

    responds_to_cpr = True

    def __init__(self, pipe: PipeInput) -> None:
        self.pipe = pipe
        self.asked = asyncio.Event()

    def ask_for_cpr(self) -> None:
        if get_app().is_running:
            self.asked.set()


@asynccontextmanager
async def prompting() -> AsyncIterator[tuple[PromptLine, Screen]]:
    with create_pipe_input() as pipe:
        screen = Screen(pipe)
        yield PromptLine(DummyCompleter(), str, incognito=True, keyboard=pipe, output=screen), screen


async def answered(screen: Screen, question: Awaitable[object], before: str, after: str) -> object:
    screen.asked.clear()
    asking = asyncio.ensure_future(question)
    await screen.asked.wait()
    screen.pipe.send_text(f"{before}{POSITION}{after}")
    try:
        return await asyncio.wait_for(asking, 60)
    except Stopped:
        return Stopped


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "y", "once"),
        ("", "a", "always"),
        ("", "p", "project"),
        ("", "3", "project"),
        ("y", ENTER, "no"),
        ("1a", "n", "no"),
        ("", LEAVE, None),
        ("", INTERRUPT, Stopped),
        (INTERRUPT, "", Stopped),
        # the key Shift-F3 has the same form as the answer to a cursor-position request
        ("\x1b[1;2Ry", "n", "no"),
    ],
)
async def test_four_options(before: str, after: str, expected: str | type[Stopped] | None) -> None:
    async with prompting() as (asking, screen):
        chosen = asking.choose("Allow it?", OPTIONS, default=3)
        assert await answered(screen, chosen, before, after) == expected


async def test_a_line_takes_nothing_that_was_typed_before_it() -> None:
    async with prompting() as (asking, screen):
        assert await answered(screen, asking.choose("?", OPTIONS, default=3), "for the prompt", "n") == "no"
        line = await answered(screen, asking.ask_line("Why?"), f" later{ENTER}", f"not today{ENTER}")
        assert line == "not today"
        screen.pipe.send_text(ENTER)
        assert await asking.ask() == "for the prompt later"


@pytest.mark.parametrize(("keys", "expected"), [(ENTER, None), (LEAVE, None), (INTERRUPT, Stopped)])
async def test_a_line_can_be_left(keys: str, expected: type[Stopped] | None) -> None:
    async with prompting() as (asking, screen):
        assert await answered(screen, asking.ask_line("Why?"), "", keys) == expected


async def test_an_enter_out_of_habit_does_not_send_the_next_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompting_module, "SILENCE_S", 60.0)  # independent of the speed of the machine
    async with prompting() as (asking, screen):
        assert await answered(screen, asking.choose("?", OPTIONS, default=3), "ahead", "y") == "once"
        prompt = asyncio.create_task(asking.ask("prefilled"))
        await asking.wait_until_drawn()
        screen.pipe.send_text(f"{ENTER}!{ENTER}")
        assert await asyncio.wait_for(prompt, 60) == "prefilled\nahead!"


async def test_a_paste_typed_ahead_stands_whole_in_the_next_prompt() -> None:
    long = "\n".join(["a line"] * 30)
    async with prompting() as (asking, screen):
        chosen = asking.choose("?", OPTIONS, default=3)
        assert await answered(screen, chosen, PASTE.format(long), "n") == "no"
        screen.pipe.send_text(f"!{ENTER}")
        assert await asking.ask() == f"{long}!"


# ---------------------------------------------------------------- a real terminal


def test_keys_are_ignored_until_a_slow_terminal_answers(home: Path) -> None:
    with Terminal(ECHO) as terminal:
        terminal.sees("❯")
        terminal.is_raw()
        terminal.answers = False
        terminal.types(ASKS, "no", ENTER)
        terminal.sees(QUESTION, "> 3. no (n)")
        terminal.is_asked_behind(QUESTION)
        terminal.types("y", ENTER)
        terminal.answer()
        terminal.types("xn")
        terminal.sees("the tool said: refused", "❯ no")
        terminal.types("!", ENTER)
        terminal.sees("you said: no\ny!")
        terminal.types(ASKS)
        terminal.sees_behind("you said: no\ny!", QUESTION)
        terminal.is_asked_behind(QUESTION)
        terminal.types("xy")
        terminal.sees("the tool said: allowed")
        terminal.types(ASKS)
        terminal.sees_behind("the tool said: allowed", QUESTION)
        terminal.types(INTERRUPT)
        terminal.sees("■ stopped")
        terminal.types(LEAVE)
        assert terminal.ends() == 0


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_terminal_that_never_answers_gets_time_to_show_the_question(home: Path, term: str) -> None:
    with Terminal(PATIENT_ECHO, answers=False, term=term) as terminal:
        terminal.sees("❯")
        terminal.is_raw()
        began = time.monotonic()
        terminal.types(ASKS, "no", ENTER)
        terminal.sees(QUESTION, "1. yes, once (y)", "> 3. no (n)")
        while "the tool said" not in terminal.output:
            terminal.types("y")
            time.sleep(0.02)
        assert time.monotonic() - began >= SILENCE_S
        terminal.sees("the tool said: allowed", "❯ no")
        assert term != "dumb" or not terminal.requests
        terminal.is_raw()
        terminal.types(INTERRUPT, ASKS)
        terminal.sees_behind("the tool said: allowed", QUESTION)
        terminal.types(INTERRUPT)
        terminal.sees("■ stopped")


def test_undo_on_a_dumb_terminal_shows_what_is_in_the_prompt(home: Path) -> None:
    """If the prompt were not shown, Enter would send text that the person cannot see."""
    with Terminal(ECHO, term="dumb") as terminal:
        terminal.sees("❯")
        terminal.is_raw()
        terminal.types(f"first words{ENTER}")
        terminal.sees("you said: first words")
        terminal.types(f"/undo{ENTER}")
        terminal.sees("Take back “first words”")
        while "Took back" not in terminal.output:
            terminal.types("y")
            time.sleep(0.02)
        terminal.sees("❯ first words")


def test_keys_typed_before_a_list_of_conversations_choose_nothing(db: SessionDB) -> None:
    for name in ("alpha", "alpine"):
        db.create_session(f"id_{name}", "cli")
        db.append_message(f"id_{name}", "user", "hello")
        db.set_session_title(f"id_{name}", name)
    with Terminal([*ECHO, "-c", "alp"], answers=False) as terminal:
        terminal.sees("could be any of these", "> 1. ", "  2. ")
        terminal.is_asked(1)
        terminal.types(f"2{ENTER}")
        terminal.answer()
        terminal.types(ENTER)
        terminal.sees("↻ Resumed session", "❯ 2")
        first = terminal.output.split("> 1. ")[1].split("\n")[0]
        assert terminal.output.split("Resumed session ")[1].split()[0] in first


# ---------------------------------------------------------------- keys and answers in separate reads

bits = st.lists(
    st.sampled_from(
        ["\x1b", "[", ";", "1", "20", "R", "y", "\r", "\x1b[A", "\x1bOR", "\x1b[1;2R", "\x1b[200~"]
    )
    | st.text(max_size=3)
).map("".join)


def has_answer(text: str) -> bool:
    reader = AnswerReader()
    return any(reader.feed(bytes([byte])) for byte in text.encode())


@given(bits.filter(lambda text: not has_answer(text)), st.integers(1, 9999), st.integers(17, 9999), bits)
def test_the_answer_is_found_exactly_where_it_ends(before: str, row: int, column: int, after: str) -> None:
    answer = f"\x1b[{row};{column}R"
    assert is_answer(answer)
    reader = AnswerReader()
    found = [
        place
        for place, byte in enumerate((before + answer + after).encode(), 1)
        if reader.feed(bytes([byte]))
    ]
    assert found[0] == len((before + answer).encode())


def parsed(text: str) -> list[KeyPress]:
    presses: list[KeyPress] = []
    Vt100Parser(presses.append).feed_and_flush(text)
    return presses


@given(bits)
def test_only_text_is_kept_of_keys_typed_ahead(text: str) -> None:
    kept = keep_text(parsed(text))
    assert not {press.key for press in kept} & {"c-m", "c-c", "c-d", "escape", "<cursor-position-response>"}
    assert keep_text(kept) == kept
    assert not kept or "c-j" not in (kept[0].key, kept[-1].key)


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "Zs"])))
def test_all_text_is_kept(text: str) -> None:
    assert "".join(press.data for press in keep_text(parsed(text))) == text
