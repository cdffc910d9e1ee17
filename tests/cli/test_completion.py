"""Shell completion offers the right words. It is tested with requests in the form of the completion scripts,
and in the installed shells.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import AddSession, Hermes


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


def test_fields_of_json(hermes: Hermes, add_session: AddSession) -> None:
    add_session("20250305_a", "one", title="garden plans")
    assert offered(hermes, "sessions", "list", "--json", "id,tit") == ["id,title"]
    assert offered(hermes, "sessions", "show", "--json", "gar") == ["garden plans"]


def test_tags(hermes: Hermes, add_session: AddSession, db: SessionDB) -> None:
    add_session("20250305_a", "one", title="garden plans")
    db.add_tags("20250305_a", "home", "later")
    assert offered(hermes, "sessions", "tag", "add", "gar") == ["garden plans"]
    assert offered(hermes, "sessions", "tag", "add", "20250305_a", "h") == ["home"]
    assert offered(hermes, "sessions", "list", "--tag", "") == ["home", "later"]


def test_ids_and_titles(hermes: Hermes, add_session: AddSession) -> None:
    assert offered(hermes, "sessions", "show", "") == []
    add_session("20250305_a", "one", title="garden plans")
    add_session("20250306_b", "two")
    assert offered(hermes, "sessions", "show", "gar") == ["garden plans"]
    assert offered(hermes, "sessions", "delete", "20250305_a", "202503") == ["20250306_b", "20250305_a"]
    assert offered(hermes, "sessions", "list", "gar") == []
    assert offered(hermes, "sessions", "show", "") == ["garden plans", "20250306_b"]


def test_words_that_begin_with_quotes_or_contain_escaped_spaces(
    hermes: Hermes, add_session: AddSession
) -> None:
    add_session("20250305_a", "one", title="garden plans")
    for begun in ("garden\\ p", "'garden p", '"garden p'):
        assert offered(hermes, "sessions", "show", begun) == ["garden plans"]


def test_conversations_in_the_trash(hermes: Hermes, add_session: AddSession, db: SessionDB) -> None:
    add_session("20250305_a", "one", title="garden plans")
    add_session("20250306_b", "two", title="garden party")
    db.trash_session("20250305_a")
    assert offered(hermes, "sessions", "trash", "restore", "gar") == ["garden plans"]
    assert offered(hermes, "sessions", "show", "gar") == ["garden party"]


def test_settings_and_their_values(hermes: Hermes) -> None:
    assert offered(hermes, "config", "set", "model.def") == ["model.default"]
    assert "TELEGRAM_BOT_TOKEN" in offered(hermes, "config", "set", "TELE")
    assert offered(hermes, "config", "set", "session_reset.mode", "") == ["none", "idle", "daily", "both"]
    assert offered(hermes, "config", "set", "agent.auto_title", "t") == ["true"]
    assert offered(hermes, "config", "set", "model.default", "") == []
    assert offered(hermes, "config", "get", "session_reset.mode", "") == []


def test_sessions_of_a_named_store(hermes: Hermes, add_session: AddSession, tmp_path: Path) -> None:
    add_session("20250305_a", "one", title="garden plans")
    with SessionDB(tmp_path / "other.db") as other:
        other.create_session("garage", "cli")
    typed = ("sessions", "show", "--store", str(tmp_path / "other.db"), "gar")
    assert offered(hermes, *typed) == ["garage"]
    assert offered(hermes, "sessions", "show", "--store", str(tmp_path / "none.db"), "gar") == []


def test_sessions_of_a_store_that_is_named_before_the_command(hermes: Hermes, tmp_path: Path) -> None:
    with SessionDB(tmp_path / "other.db") as other:
        other.create_session("garage", "cli")
    assert offered(hermes, "--store", str(tmp_path / "other.db"), "sessions", "show", "gar") == ["garage"]
    assert offered(hermes, "--store", str(tmp_path / "other.db"), "sess") == ["sessions"]


def command_on_path(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which `hermes` is the command under test."""
    script = tmp_path / "bin" / "hermes"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m hermes.cli.main "$@"\n')
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("begun", "split", "replies"),
    [
        ("gar", ["gar"], ["garden\\ plans"]),
        ("garden\\ p", ["garden\\ p"], ["garden\\ plans"]),
        ('"gar', ['"gar'], ["garden plans"]),
        ("Re:", ["Re", ":"], ["\\ invoice"]),
        ("Re:\\ in", ["Re", ":", "\\ in"], ["\\ invoice"]),
        ("hos", ["hos"], ["hostile\\ \\$\\(reboot\\)"]),
        ("'hos", ["'hos"], []),
        ('"hos', ['"hos'], []),
    ],
)
def test_bash_completes_what_is_quoted_and_quotes_what_it_completes(
    add_session: AddSession, tmp_path: Path, begun: str, split: list[str], replies: list[str]
) -> None:
    """Bash passes the whole line and its words. It also splits words at colons, so a reply contains only the
    part after the last colon."""
    for number, title in enumerate(("garden plans", "Re: invoice", "hostile $(reboot)")):
        add_session(f"20250305_{number}", "one", title=title)
    words = " ".join(map(shlex.quote, ("hermes", "sessions", "show", *split)))
    program = (
        f'eval "$(hermes completion bash)"; COMP_LINE={shlex.quote(f"hermes sessions show {begun}")};'
        f" COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _hermes;"
        ' ((${#COMPREPLY[@]})) && printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, env=command_on_path(tmp_path), timeout=60
    )
    assert (done.stdout.splitlines(), done.stderr) == (replies, "")


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
def test_fish_completes(add_session: AddSession, tmp_path: Path) -> None:
    add_session("20250305_a", "one", title="garden plans")
    program = "hermes completion fish | source; complete -C 'hermes sessions show gar'"
    done = subprocess.run(
        ["fish", "-N", "-c", program],
        capture_output=True,
        text=True,
        env=command_on_path(tmp_path),
        timeout=60,
    )
    assert done.stdout == "garden plans\t20250305_a\n"
