"""A confirmation in a terminal accepts only keys that were pressed after it appeared."""

from __future__ import annotations

import signal
import sys
import termios
import time
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import COMMAND, AddSession, Hermes
from tests.terminal import ENTER, INTERRUPT, LEAVE, Terminal, until

DELETE = [*COMMAND, "sessions", "delete", "mine"]
SILENCE_S = 1.5
PATIENT_DELETE = [
    sys.executable,
    "-c",
    (
        f"import sys; from hermes import terminal_input as terminal; terminal.SILENCE_S = {SILENCE_S};"
        "from hermes.cli.main import main; sys.exit(main())"
    ),
    *DELETE[-3:],
]
"""The delete command with a longer wait for terminals that do not answer a cursor-position request. The wait
is far longer than any other step of the command."""
QUESTION = "Delete session 'mine' and all its messages? [y/N] "


@pytest.fixture(autouse=True)
def mine(add_session: AddSession) -> None:
    add_session("mine", "hello")


def is_there(db: SessionDB) -> bool:
    return bool(db.search_sessions())


def test_keys_typed_before_the_question_do_not_answer_it(db: SessionDB) -> None:
    with Terminal(DELETE, answers=False, typed_before=f"y{ENTER}yes{ENTER}") as terminal:
        terminal.sees(QUESTION)
        terminal.types(f"y{ENTER}y")
        terminal.answer()
        terminal.types("n")
        assert terminal.ends() == 1
        assert f"{QUESTION}n\n" in terminal.output
        assert terminal.mode == terminal.before
    assert is_there(db)


@pytest.mark.parametrize(("keys", "code"), [("y", 0), ("xqY", 0), ("\x1b[Ay", 0), ("\x1bOPäy", 0)])
def test_y_answers_at_once_and_other_keys_do_nothing(db: SessionDB, keys: str, code: int) -> None:
    with Terminal(DELETE, answers=False) as terminal:
        terminal.sees(QUESTION)
        terminal.answer()
        terminal.types(keys)
        assert terminal.ends() == code
        assert f"{QUESTION}y\n" in terminal.output
        assert "Deleted session 'mine'." in terminal.output
        assert terminal.mode == terminal.before
    assert not is_there(db)


@pytest.mark.parametrize(
    ("keys", "code"), [(ENTER, 1), ("n", 1), ("xN", 1), ("\x1b", 1), (LEAVE, 1), (INTERRUPT, 130)]
)
def test_enter_n_esc_and_the_end_of_input_mean_no_and_ctrl_c_interrupts(
    db: SessionDB, keys: str, code: int
) -> None:
    with Terminal(DELETE, answers=False) as terminal:
        terminal.sees(QUESTION)
        terminal.answer()
        terminal.types(keys)
        assert terminal.ends() == code
        assert ("hermes: interrupted" if code == 130 else "hermes: Cancelled.") in terminal.output
        assert terminal.mode == terminal.before
    assert is_there(db)


def test_a_modified_function_key_is_not_an_answer_of_the_terminal(db: SessionDB) -> None:
    with Terminal(DELETE, answers=False) as terminal:
        terminal.sees(QUESTION)
        terminal.types("\x1b[1;2Ry")  # Shift-F3
        terminal.answer()
        terminal.types("n")
        assert terminal.ends() == 1
    assert is_there(db)


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_terminal_that_does_not_answer_gets_time_to_show_the_question(db: SessionDB, term: str) -> None:
    began = time.monotonic()
    with Terminal(PATIENT_DELETE, answers=False, term=term, typed_before=f"y{ENTER}") as terminal:
        terminal.sees(QUESTION)
        while terminal.process.poll() is None:
            terminal.types("y")
            time.sleep(0.02)
        assert time.monotonic() - began >= SILENCE_S
        assert terminal.ends() == 0
        assert terminal.requests == (0 if term == "dumb" else 1)
        assert terminal.mode == terminal.before
    assert not is_there(db)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal(db: SessionDB, number: signal.Signals) -> None:
    with Terminal(DELETE) as terminal:
        terminal.sees(QUESTION)
        until(lambda: terminal.mode != terminal.before, lambda: "the terminal was never quiet")
        terminal.process.send_signal(number)
        assert terminal.ends() == -number
        assert terminal.mode == terminal.before
    assert is_there(db)


def test_after_a_suspension_the_question_is_asked_again(db: SessionDB) -> None:
    with Terminal(["sh", "-c", f"set -m; {' '.join(DELETE)}; fg; echo end $?"]) as terminal:
        terminal.sees(QUESTION)
        terminal.types("\x1a")
        until(lambda: terminal.output.count(QUESTION) == 2, lambda: terminal.output)
        until(lambda: terminal.requests == 2, lambda: terminal.output)
        terminal.types("y")
        terminal.sees("Deleted session 'mine'.", "end 0")
    assert not is_there(db)


def test_the_question_is_on_the_terminal_where_stdout_is_a_file(db: SessionDB, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Terminal(DELETE, redirection=f">{out}") as terminal:
        terminal.sees(QUESTION)
        terminal.is_asked(1)
        terminal.types("y")
        assert terminal.ends() == 0
    assert QUESTION not in out.read_text()
    assert "Deleted session 'mine'." in out.read_text()
    assert not is_there(db)


@pytest.mark.parametrize(
    ("typed", "code"), [("y\n", 0), ("yes\n", 0), ("y", 0), ("n\n", 1), ("\n", 1), ("", 1)]
)
def test_if_stdin_is_not_a_terminal_a_line_answers(hermes: Hermes, typed: str, code: int) -> None:
    assert hermes("sessions", "delete", "mine", stdin=typed).returncode == code


def test_a_number_typed_before_the_list_was_shown_chooses_nothing(home: Path) -> None:
    with Terminal(COMMAND, answers=False, typed_before="2\n") as terminal:
        terminal.sees("Number [1]")
        terminal.is_asked(1)
        terminal.types("2\n")
        terminal.answer()
        # from now on, the terminal passes on whole lines
        until(lambda: bool(terminal.mode[3] & termios.ECHO), lambda: "there is no echo")
        terminal.types("7\n")
        terminal.sees("Type a number from 1 to 3.")
    assert not (home / "config.yaml").exists()


@pytest.mark.usefixtures("home")
def test_browsing_by_number_takes_no_earlier_number(db: SessionDB) -> None:
    browse = [*COMMAND, "sessions", "browse"]
    with Terminal(browse, term="dumb", typed_before=f"1{ENTER}") as terminal:
        terminal.sees("Number (1-1")
        until(lambda: terminal.mode != terminal.before, lambda: "")
        until(lambda: terminal.mode == terminal.before, lambda: "")
        terminal.types(ENTER)
        assert terminal.ends() == 1
        assert "Cancelled." in terminal.output
