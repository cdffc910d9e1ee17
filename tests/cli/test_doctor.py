"""`hermes doctor`, with its output for people and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes.agent.tools.access import Access
from hermes_state import SessionDB
from tests.cli.conftest import Hermes
from tests.sandboxes import require_sandbox


@pytest.fixture
def stored(home: Path) -> Path:
    with SessionDB() as db:
        db.create_session("kept", "cli")
        db.set_session_title("kept", "Red \x1b[31mlighthouse")
        db.append_message("kept", "user", "remember the lighthouse")
    return home / "state.db"


@pytest.mark.parametrize("deep", [(), ("--deep",)])
def test_an_undamaged_store_has_no_problems(hermes: Hermes, stored: Path, deep: tuple[str, ...]) -> None:
    result = hermes("doctor", *deep)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert (lines[0], lines[-1]) == (str(stored), "Nothing is wrong.")
    assert "lighthouse" in result.stdout
    assert "\x1b" not in result.stdout
    assert ("all intact" in result.stdout) == bool(deep)


def test_a_problem_is_reported_with_a_command_that_fixes_it(hermes: Hermes, stored: Path) -> None:
    stored.write_bytes(b"")
    result = hermes("doctor")
    assert (result.returncode, result.stderr) == (1, "")
    assert "hermes sessions repair" in result.stdout
    assert stored.read_bytes() == b""


def test_another_store_is_named_in_its_commands(hermes: Hermes, tmp_path: Path) -> None:
    result = hermes("doctor", "--store", str(tmp_path / "my store.db"))
    assert result.returncode == 1
    assert f"run `hermes --store '{tmp_path}/my store.db'`" in result.stdout
    assert list(tmp_path.glob("*.db")) == []


def test_json_for_programs(hermes: Hermes, stored: Path) -> None:
    stored.with_name("state.db.damaged").write_text("seen")
    result = hermes("doctor", "--json")
    assert result.returncode == 1
    found = json.loads(result.stdout)
    assert (found["path"], found["ok"]) == (str(stored), False)
    assert {"level", "what", "advice"} == set(found["findings"][0])
    assert [each["level"] for each in found["findings"] if each["what"].startswith("Damage")] == ["error"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def sandbox_findings(hermes: Hermes, *words: str, **environment: str) -> list[dict[str, str]]:
    found = json.loads(hermes("doctor", "--json", *words, **environment).stdout)["findings"]
    return [finding for finding in found if finding["what"].startswith("Sandbox")]


def test_the_sandbox_of_the_directory_is_named(hermes: Hermes, stored: Path, project: Path) -> None:
    require_sandbox(project)
    sandbox = Access().choose_sandbox(project, stored)
    (finding,) = sandbox_findings(hermes)
    assert (finding["level"], finding["what"]) == ("ok", f"Sandbox: {sandbox.describe()}")


def test_the_reason_for_a_missing_sandbox_is_shown(
    hermes: Hermes, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stored.parent)
    (finding,) = sandbox_findings(hermes)
    assert finding["level"] == "note"
    assert "the agent asks about everything except plain reading" in finding["what"]
    assert "the working directory belongs to the agent" in finding["advice"]


def test_a_key_file_of_the_settings_counts_as_it_does_for_the_tools(
    hermes: Hermes, stored: Path, project: Path
) -> None:
    """The doctor and the tools decide in the same way whether a sandbox is possible. Both hide the paths that
    the settings name, such as a key file."""
    assert hermes("config", "set", "store.key_file", str(project)).returncode == 0
    (finding,) = sandbox_findings(hermes)
    assert finding["level"] == "note"
    assert "contains the person's keys" in finding["advice"]


def test_a_sandbox_that_is_turned_off_is_reported(hermes: Hermes, stored: Path) -> None:
    (stored.parent / "config.yaml").write_text("approvals:\n  mode: off\n")
    (finding,) = sandbox_findings(hermes)
    assert finding["what"] == "Sandbox: off, and the agent asks nothing (approvals.mode)"


def test_fallback_models_are_listed_in_order_and_checked(hermes: Hermes, stored: Path) -> None:
    (stored.parent / "config.yaml").write_text(
        """
model:
  default: offline
  fallbacks:
    - {model: near, base_url: "http://user:password@127.0.0.1:1/v1"}
    - {model: far, base_url: "https://far.example/v1", key_env: FAR_KEY}
    - gpt-5
""",
        encoding="utf-8",
    )
    result = hermes("doctor")
    assert result.returncode == 1
    assert "ok       Fallback model 1: near at http://127.0.0.1:1/v1\n" in result.stdout
    assert "password" not in result.stdout
    assert "Fallback model 2: far has no key\n           -> hermes config set FAR_KEY" in result.stdout
    assert "Fallback model 3: gpt-5 cannot be used\n           -> there is no key" in result.stdout


def test_help_names_every_option(hermes: Hermes) -> None:
    result = hermes("doctor", "--help")
    assert result.returncode == 0
    assert {"--deep", "--json", "--store"} <= set(result.stdout.replace(",", " ").split())


def test_asking_for_lists_does_not_load_the_doctor(hermes: Hermes, stored: Path) -> None:
    result = hermes("sessions", "list", PYTHONPROFILEIMPORTTIME="1")
    for name in (
        "diagnosis",
        "content_check",
        "surroundings_check",
        "findings",
        "spool",
        "hermes.cli.doctor",
    ):
        assert name not in result.stderr
