"""`hermes approvals` lists and revokes stored approvals."""

from __future__ import annotations

import json
import stat
from datetime import datetime
from pathlib import Path

import pytest

from hermes.agent.approvals.grants import Grants
from hermes.agent.approvals.request import Scope
from tests.cli.conftest import Hermes


@pytest.fixture
def projects(home: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Create two projects with four approvals, numbered 1 to 4 in this order."""
    first, second = tmp_path / "first", tmp_path / "second"
    for project in (first, second):
        (project / ".git").mkdir(parents=True)
    grants = Grants()
    grants.add(first, Scope.COMMAND, "make test")
    grants.add(first, Scope.PREFIX, "git commit")
    grants.add(first, Scope.EDITS)
    grants.add(second, Scope.COMMAND, "echo \x1b[31mred")
    return first, second


def test_nothing_is_allowed_at_first(hermes: Hermes, home: Path) -> None:
    for words in (("approvals",), ("approvals", "list")):
        done = hermes(*words)
        assert (done.returncode, done.stdout) == (0, "Nothing is allowed without asking yet.\n")
    assert json.loads(hermes("approvals", "list", "--json").stdout) == []


def test_the_list_shows_each_approval_with_its_project(hermes: Hermes, projects: tuple[Path, Path]) -> None:
    done = hermes("approvals")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == str(projects[0])
    assert lines[1].startswith("  1  the command `make test`, since ")
    assert lines[2].startswith("  2  commands that begin with `git commit`, since ")
    assert lines[3].startswith("  3  edits of files, since ")
    assert lines[4] == str(projects[1])
    assert "\x1b" not in done.stdout


def test_the_list_of_one_project_keeps_its_numbers(hermes: Hermes, projects: tuple[Path, Path]) -> None:
    below = projects[1] / "src"
    below.mkdir()
    (entry,) = json.loads(hermes("approvals", "list", "--workspace", str(below), "--json").stdout)
    assert entry.pop("since") > 0
    assert datetime.fromisoformat(entry.pop("since_iso")).tzinfo is not None
    assert entry == {
        "number": 4,
        "workspace": str(projects[1]),
        "scope": "command",
        "text": "echo \x1b[31mred",
    }


def test_revoked_approvals_are_gone_and_the_others_stay(hermes: Hermes, projects: tuple[Path, Path]) -> None:
    done = hermes("approvals", "revoke", "1", "3")
    assert (done.returncode, done.stdout) == (0, "Revoked 2 approvals; the agent asks again.\n")
    assert [(grant.workspace, grant.text) for grant in Grants().all()] == [
        (str(projects[0]), "git commit"),
        (str(projects[1]), "echo \x1b[31mred"),
    ]
    assert stat.S_IMODE(Grants().path.stat().st_mode) == 0o600
    told = hermes("audit").stdout
    assert told.count("approval granted") == 4
    assert told.count("approval revoked") == 2


def test_all_approvals_of_one_project_are_revoked(hermes: Hermes, projects: tuple[Path, Path]) -> None:
    done = hermes("approvals", "revoke", "--all", "--workspace", str(projects[0]), "--json")
    assert json.loads(done.stdout) == {"revoked": 3}
    assert [grant.workspace for grant in Grants().all()] == [str(projects[1])]
    assert hermes("approvals", "revoke", "--all").returncode == 0
    assert Grants().all() == []


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ((), 2, "name the approvals"),
        (("1", "--all"), 2, "name the approvals"),
        (("5",), 1, "there is no approval 5"),
        (("0",), 1, "there is no approval 0"),
        (("first",), 2, "invalid int value"),
        (("4", "--workspace", "{first}"), 1, "there was nothing to revoke"),
    ],
)
def test_bad_input_revokes_nothing(
    hermes: Hermes, projects: tuple[Path, Path], words: tuple[str, ...], code: int, why: str
) -> None:
    done = hermes("approvals", "revoke", *(word.format(first=projects[0]) for word in words))
    assert done.returncode == code
    assert done.stdout == ""
    assert why in done.stderr
    assert len(Grants().all()) == 4


@pytest.mark.parametrize("data", ["", "{", "[]", '{"version": 2, "workspaces": {}}', '{"version": 1}'])
def test_a_damaged_file_is_named(hermes: Hermes, home: Path, data: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "approvals.json").write_text(data)
    for words in (("list",), ("revoke", "--all")):
        done = hermes("approvals", *words)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert str(home / "approvals.json") in line
    assert (home / "approvals.json").read_text() == data
