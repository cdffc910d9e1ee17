"""`hermes doctor`, as a person and as a program runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import Hermes


@pytest.fixture
def stored(home: Path) -> Path:
    with SessionDB() as db:
        db.create_session("kept", "cli")
        db.set_session_title("kept", "Red \x1b[31mlighthouse")
        db.append_message("kept", "user", "remember the lighthouse")
    return home / "state.db"


@pytest.mark.parametrize("deep", [(), ("--deep",)])
def test_a_sound_store_is_well(hermes: Hermes, stored: Path, deep: tuple[str, ...]) -> None:
    result = hermes("doctor", *deep)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert (lines[0], lines[-1]) == (str(stored), "Nothing is wrong.")
    assert "lighthouse" in result.stdout
    assert "\x1b" not in result.stdout
    assert ("all whole" in result.stdout) == bool(deep)


def test_what_is_wrong_comes_with_a_command_that_helps(hermes: Hermes, stored: Path) -> None:
    stored.write_bytes(b"")
    result = hermes("doctor")
    assert (result.returncode, result.stderr) == (1, "")
    assert "hermes sessions repair" in result.stdout
    assert stored.read_bytes() == b""


def test_another_store_is_named_in_its_commands(hermes: Hermes, tmp_path: Path) -> None:
    result = hermes("doctor", "--store", str(tmp_path / "my store.db"))
    assert result.returncode == 1
    assert f"--store '{tmp_path}/my store.db'" in result.stdout
    assert list(tmp_path.glob("*.db")) == []


def test_json_for_programs(hermes: Hermes, stored: Path) -> None:
    stored.with_name("state.db.damaged").write_text("seen")
    result = hermes("doctor", "--json")
    assert result.returncode == 1
    found = json.loads(result.stdout)
    assert (found["path"], found["ok"]) == (str(stored), False)
    assert {"level", "what", "advice"} == set(found["findings"][0])
    assert [each["level"] for each in found["findings"] if each["what"].startswith("Damage")] == ["error"]


def test_help_names_every_option(hermes: Hermes) -> None:
    result = hermes("doctor", "--help")
    assert result.returncode == 0
    assert {"--deep", "--json", "--store"} <= set(result.stdout.replace(",", " ").split())


def test_asking_for_lists_does_not_load_the_doctor(hermes: Hermes, stored: Path) -> None:
    result = hermes("sessions", "list", PYTHONPROFILEIMPORTTIME="1")
    for name in ("diagnosis", "checkup", "surroundings", "findings", "spool", "hermes.cli.doctor"):
        assert name not in result.stderr
