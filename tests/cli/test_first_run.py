"""The first run asks the person to choose a model. It never chooses one silently."""

from __future__ import annotations

import os
from pathlib import Path

from hermes.cli.demo import HINT
from tests.cli.conftest import COMMAND, Hermes
from tests.terminal import Terminal


def test_without_a_terminal_the_first_run_shows_the_demo(hermes: Hermes, home: Path) -> None:
    shown = hermes()
    assert shown.returncode == 0
    assert "sample sessions" in shown.stdout
    assert "Hermes Insights" in shown.stdout
    assert not (home / "config.yaml").exists()


def test_json_output_is_not_replaced_by_the_demo(hermes: Hermes) -> None:
    refused = hermes("--json")
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", "hermes: --json needs -q\n")


def test_with_a_model_the_error_says_that_a_chat_needs_a_terminal(hermes: Hermes) -> None:
    hermes("setup", "--offline")
    refused = hermes()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "hermes: the chat needs a terminal; use -q to ask one question without one\n"


def in_a_terminal(typed: str, until: str) -> str:
    """Start `hermes` in a terminal. Type `typed` when it asks for a choice. Wait for the text `until` and
    return the output."""
    with Terminal(COMMAND) as terminal:
        terminal.sees("Number [1]")
        terminal.is_asked(1)
        terminal.types(typed)
        terminal.sees(until)
        return terminal.output


def test_in_a_terminal_the_person_chooses_from_the_detected_models(home: Path) -> None:
    shown = in_a_terminal("2\n", "/help lists the commands")
    assert "keeps every conversation" in shown
    assert "No model is set up yet. Found here: " in shown
    assert "The offline model answers from now on." in shown
    assert "default: offline" in (home / "config.yaml").read_text()


def test_an_existing_key_is_mentioned_and_not_shown() -> None:
    os.environ["OPENAI_API_KEY"] = "sk-very-secret-value-1234567890"
    try:
        shown = in_a_terminal("2\n", "/help lists the commands")
    finally:
        del os.environ["OPENAI_API_KEY"]
    assert "a key in OPENAI_API_KEY" in shown
    assert "very-secret" not in shown


def test_after_the_tour_the_person_chooses_again(home: Path) -> None:
    with Terminal(COMMAND) as terminal:
        terminal.answers = True
        terminal.sees("Number [1]")
        terminal.is_asked_behind("Number [1]")
        terminal.types("3\n")
        terminal.sees(HINT)
        terminal.is_asked_behind(HINT)
        terminal.types("q")
        terminal.sees("To start your first conversation")
        terminal.sees_behind("To start your first conversation", "Number [1]")
        terminal.is_asked_behind("Number [1]")
        terminal.types("2\n")
        terminal.sees_behind("To start your first conversation", "/help lists the commands")
    assert "default: offline" in (home / "config.yaml").read_text()


def test_no_line_breaks_within_a_word_at_ninety_columns() -> None:
    os.environ["COLUMNS"] = "90"
    os.environ["OPENAI_BASE_URL"] = "https://a-long-name-of-a-host.example.org/some/longer/path/v1"
    try:
        with Terminal(COMMAND) as terminal:
            terminal.sees("Number [1]")
            terminal.is_asked(1)
            terminal.types("1\n")
            terminal.sees_behind("Which model should answer?", "Number [1]")
            lines = terminal.output.splitlines()
    finally:
        del os.environ["COLUMNS"], os.environ["OPENAI_BASE_URL"]
    assert max(map(len, lines)) <= 90
    words = " ".join(" ".join(lines).split())
    assert "keeps every conversation: searchable, resumable, private." in words
