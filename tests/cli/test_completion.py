"""Completion: what a shell offers, asked for as the scripts ask, and in the shells that are here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Hermes, Told


def offered(hermes: Hermes, *typed: str) -> list[str]:
    result = hermes("completion", "words", "--", *typed)
    assert result.returncode == 0
    return [line.split("\t")[0] for line in result.stdout.splitlines()]


def test_commands_flags_and_choices(hermes: Hermes) -> None:
    assert offered(hermes, "sess") == ["sessions"]
    assert {"list", "search", "show", "trash"} <= set(offered(hermes, "sessions", ""))
    assert offered(hermes, "sessions", "trash", "r") == ["restore"]
    assert offered(hermes, "sessions", "list", "--li") == ["--limit"]
    assert "telegram" in offered(hermes, "sessions", "list", "--source", "tele")
    assert offered(hermes, "sessions", "list", "--limit", "") == []


def test_ids_and_titles(hermes: Hermes, told: Told) -> None:
    assert offered(hermes, "sessions", "show", "") == []
    told("20250305_a", "one", title="garden plans")
    told("20250306_b", "two")
    assert offered(hermes, "sessions", "show", "gar") == ["garden plans"]
    assert offered(hermes, "sessions", "delete", "20250305_a", "202503") == ["20250306_b", "20250305_a"]
    assert offered(hermes, "sessions", "list", "gar") == []


def command_on_path(tmp_path: Path) -> dict[str, str]:
    """An environment in which `hermes` is the command under test."""
    script = tmp_path / "bin" / "hermes"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m hermes.cli.main "$@"\n')
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_and_quotes_titles(told: Told, tmp_path: Path) -> None:
    told("20250305_a", "one", title="garden plans")
    program = (
        'eval "$(hermes completion bash)"; COMP_WORDS=(hermes sessions show gar); COMP_CWORD=3; _hermes;'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, env=command_on_path(tmp_path), timeout=60
    )
    assert (done.stdout, done.stderr) == ("garden\\ plans\n", "")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_takes_the_script(tmp_path: Path) -> None:
    program = (
        'autoload -Uz compinit && compinit -u -d "$HOME/dump"; eval "$(hermes completion zsh)";'
        " print $_comps[hermes]"
    )
    done = subprocess.run(
        ["zsh", "-f", "-c", program],
        capture_output=True,
        text=True,
        env=command_on_path(tmp_path),
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("_hermes\n", "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(told: Told, tmp_path: Path) -> None:
    told("20250305_a", "one", title="garden plans")
    program = "hermes completion fish | source; complete -C 'hermes sessions show gar'"
    done = subprocess.run(
        ["fish", "-N", "-c", program],
        capture_output=True,
        text=True,
        env=command_on_path(tmp_path),
        timeout=60,
    )
    assert done.stdout == "garden plans\t20250305_a\n"
