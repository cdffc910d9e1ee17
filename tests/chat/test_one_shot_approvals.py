"""`hermes -q` asks for approvals if it runs in a terminal. Otherwise it refuses every action that needs an
approval."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hermes.agent.approvals.grants import Grants
from tests import warm_command
from tests.sandboxes import require_sandbox
from tests.terminal import ENTER, INTERRUPT, Terminal

WORDS = ["-q", "run touch made"]
QUESTION = [sys.executable, "-m", "hermes.cli.main", *WORDS]
ASKED, REFUSED = "Allow it?", "was not allowed"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HERMES_MODEL", "offline")
    return folder


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_yes_runs_the_command_once(project: Path, term: str) -> None:
    with Terminal(QUESTION, term=term) as terminal:
        terminal.sees(ASKED, "touch made")
        terminal.is_raw()
        if term == "xterm":
            terminal.is_asked_behind(ASKED)
            terminal.types("y")
        else:  # keys are ignored for 400 ms, so the first of these may be lost
            while terminal.process.poll() is None:
                terminal.types("y")
                try:
                    terminal.process.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
        assert terminal.ends() == 0
    assert (project / "made").exists()
    assert Grants().all() == []


@pytest.mark.parametrize("key", ["n", ENTER, "x" + ENTER, "\x1b"])
def test_no_refuses(project: Path, key: str) -> None:
    with Terminal(QUESTION) as terminal:
        terminal.sees(ASKED)
        terminal.is_asked_behind(ASKED)
        terminal.types(key)
        assert terminal.ends() == 0
        assert REFUSED in terminal.output
    assert not (project / "made").exists()


def test_keys_typed_before_the_question_do_not_answer_it(project: Path) -> None:
    with Terminal(QUESTION, typed_before="y\ny\n", answers=False) as terminal:
        terminal.sees(ASKED)
        terminal.is_asked_behind(ASKED)
        terminal.answer()
        terminal.types("n")
        assert terminal.ends() == 0
        assert REFUSED in terminal.output
    assert not (project / "made").exists()


def test_a_choice_for_the_project_is_kept(project: Path) -> None:
    require_sandbox(project)
    with Terminal(QUESTION) as terminal:
        terminal.sees(ASKED)
        terminal.is_asked_behind(ASKED)
        terminal.types("a")
        assert terminal.ends() == 0
    assert [(grant.workspace, grant.text) for grant in Grants().all()] == [(str(project), "touch made")]
    (project / "made").unlink()
    assert warm_command.run(WORDS).returncode == 0
    assert (project / "made").exists()


def test_ctrl_c_at_the_question_stops_the_turn(project: Path) -> None:
    with Terminal(QUESTION) as terminal:
        terminal.sees(ASKED)
        terminal.is_asked_behind(ASKED)
        terminal.types(INTERRUPT)
        assert terminal.ends() == 130
        assert "interrupted" in terminal.output
    assert not (project / "made").exists()


def test_the_question_is_not_part_of_the_answer(project: Path, tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    with Terminal(QUESTION, redirection=f">{answer}") as terminal:
        terminal.sees(ASKED)
        terminal.is_asked_behind(ASKED)
        terminal.types("n")
        assert terminal.ends() == 0
    assert REFUSED in answer.read_text()
    assert ASKED not in answer.read_text()


def test_without_a_terminal_the_action_is_refused_with_a_notice(project: Path) -> None:
    done = warm_command.run(WORDS)
    assert "refused, because nobody can be asked for approval here: touch made" in done.stderr
    assert REFUSED in done.stdout
    assert not (project / "made").exists()
