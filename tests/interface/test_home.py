"""The home is `HERMES_HOME`, or `~/.hermes` if the variable is not set. The variable is read at each use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_constants import get_default_hermes_root, get_hermes_home
from hermes_state import SessionDB

ASK_TWICE = "from hermes_constants import get_hermes_home; get_hermes_home(); print(get_hermes_home())"


@pytest.fixture
def standard(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Unset HERMES_HOME and return `~/.hermes` of this test."""
    monkeypatch.delenv("HERMES_HOME")
    folder = Path.home() / ".hermes"
    folder.mkdir()
    return folder


def ask_twice() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ASK_TWICE], capture_output=True, encoding="utf-8", timeout=60, env=os.environ
    )


def test_the_environment_says_where_the_home_is(home: Path) -> None:
    assert get_hermes_home() == home


def test_without_the_environment_it_is_dot_hermes(standard: Path) -> None:
    assert get_hermes_home() == standard


@pytest.mark.parametrize("blank", ["", "   ", "\t\n"])
def test_a_blank_variable_is_ignored(blank: str, standard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", blank)
    assert get_hermes_home() == standard


def test_spaces_around_the_setting_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", f"  {tmp_path / 'there'} \n")
    assert get_hermes_home() == tmp_path / "there"


def test_the_home_is_asked_for_at_every_use(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SessionDB().close()
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "second"))
    SessionDB().close()
    assert (home / "state.db").exists()
    assert (tmp_path / "second" / "state.db").exists()


def test_an_active_profile_that_is_not_in_the_environment_is_warned_about_once(standard: Path) -> None:
    (standard / "active_profile").write_text("work\n")
    result = ask_twice()
    assert result.stdout == f"{standard}\n"
    assert len(result.stderr.splitlines()) == 1
    assert "work" in result.stderr


@pytest.mark.parametrize(
    "name", ["\x1b]0;owned\x07work", "\x9b31mwork", "work\r\nhermes: all is well", "work" * 1000]
)
def test_the_name_of_a_profile_cannot_act_on_a_terminal(standard: Path, name: str) -> None:
    (standard / "active_profile").write_text(name)
    result = ask_twice()
    assert len(result.stderr.splitlines()) == 1
    assert "work" in result.stderr
    assert len(result.stderr) < 1000
    assert all(sign.isprintable() for sign in result.stderr.removesuffix("\n"))


@pytest.mark.parametrize("profile", ["default", "default\n", "", "  "])
def test_the_default_profile_needs_no_warning(standard: Path, profile: str) -> None:
    (standard / "active_profile").write_text(profile)
    assert ask_twice().stderr == ""


def test_a_home_in_the_environment_needs_no_warning(standard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (standard / "active_profile").write_text("work")
    monkeypatch.setenv("HERMES_HOME", str(standard))
    assert ask_twice().stderr == ""


def test_the_root_of_a_profile_below_dot_hermes_is_dot_hermes(
    standard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get_default_hermes_root() == standard
    monkeypatch.setenv("HERMES_HOME", str(standard))
    assert get_default_hermes_root() == standard
    monkeypatch.setenv("HERMES_HOME", str(standard / "profiles" / "work"))
    assert get_default_hermes_root() == standard


def test_the_root_of_a_profile_elsewhere_is_above_its_profiles_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "srv" / "profiles" / "work"))
    assert get_default_hermes_root() == tmp_path / "srv"


def test_any_other_home_is_its_own_root(home: Path) -> None:
    assert get_default_hermes_root() == home
