"""The command itself: help, version, exit codes, one-line complaints."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

import hermes as package
from tests.cli.conftest import Hermes


def one_complaint(stderr: str) -> str:
    assert stderr.startswith("hermes: ")
    assert stderr.count("\n") == 1
    return stderr


def test_it_shows_its_help(hermes: Hermes) -> None:
    result = hermes("--help")
    assert result.returncode == 0
    assert "usage: hermes" in result.stdout
    assert "sessions" in result.stdout
    assert result.stderr == ""


def test_a_group_alone_shows_its_help(hermes: Hermes) -> None:
    result = hermes("sessions")
    assert result.returncode == 0
    assert "usage: hermes sessions" in result.stdout
    for command in ("list", "verify", "repair", "backup", "restore", "optimize"):
        assert command in result.stdout


def test_it_says_its_version_in_one_voice(hermes: Hermes) -> None:
    result = hermes("--version")
    assert result.returncode == 0
    assert result.stdout == f"hermes {package.__version__}\n"
    assert version("hermes-sessions") == package.__version__


@pytest.mark.parametrize(
    "words",
    [
        ("no-such-command",),
        ("--no-such-option",),
        ("sessions", "no-such-command"),
        ("sessions", "list", "--no-such-option"),
        ("sessions", "list", "--limit", "0"),
        ("sessions", "list", "--limit", "-3"),
        ("sessions", "list", "--limit", "many"),
        ("sessions", "list", "--limit", "9" * 5000),
        ("sessions", "list", "--source"),
        ("sessions", "list", "--source", "\udcff"),
        ("sessions", "restore"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(hermes: Hermes, words: tuple[str, ...]) -> None:
    result = hermes(*words)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "--help" in one_complaint(result.stderr)


def test_a_home_that_cannot_be_made_is_one_line_and_exit_1(hermes: Hermes, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    result = hermes("sessions", "list", HERMES_HOME=str(tmp_path / "file" / "home"))
    assert result.returncode == 1
    assert result.stdout == ""
    one_complaint(result.stderr)
