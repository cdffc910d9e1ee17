"""`hermes memory` and `hermes skills` show and edit files. The tests use a real editor program."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.agent.prompt.memory_files import Memory
from hermes.agent.prompt.skill_files import Skills
from hermes.conversation.agents import make_person_folder
from tests.cli.conftest import Hermes


def editor(tmp_path: Path, script: str) -> dict[str, str]:
    """Return environment variables that set an editor. The editor runs `script` on the edited file, `$1`."""
    program = tmp_path / "editor.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return {"EDITOR": str(program), "VISUAL": ""}


def left_by_editors(home: Path) -> list[Path]:
    return list(home.glob(".editing-*"))


def test_memory_is_shown(hermes: Hermes) -> None:
    Memory().add("user", "Likes tea.")
    done = hermes("memory", "show")
    assert done.stdout == (
        "# memory: 0 of 2,200 characters, 0 %\n# user: 10 of 1,400 characters, 0 %\nLikes tea.\n"
    )
    assert hermes("memory", "show", "memory").stdout.count("\n") == 1


def test_memory_is_edited(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    Memory().add("user", "Likes tea.")
    done = hermes("memory", "edit", "user", **editor(tmp_path, 'echo "Likes coffee." > "$1"'))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("user is saved: 13 of")
    assert Memory().read("user").entries == ["Likes coffee."]
    assert left_by_editors(home) == []
    done = hermes("memory", "edit", "user", **editor(tmp_path, "true"))
    assert done.stdout.startswith("user is unchanged")


def test_an_editor_that_fails_changes_nothing(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    Memory().add("user", "Likes tea.")
    done = hermes("memory", "edit", "user", **editor(tmp_path, 'echo half > "$1"; exit 3'))
    assert done.returncode == 1
    assert done.stderr.endswith("failed (3); nothing was changed\n")
    assert Memory().read("user").entries == ["Likes tea."]
    assert left_by_editors(home) == []


def test_a_change_of_the_agent_meanwhile_is_not_overwritten(
    hermes: Hermes, home: Path, tmp_path: Path
) -> None:
    Memory().add("user", "Likes tea.")
    meanwhile = f'echo "By the agent." > {home}/memories/USER.md; echo "By the person." > "$1"'
    done = hermes("memory", "edit", "user", **editor(tmp_path, meanwhile))
    assert done.returncode == 1
    assert "another program changed" in done.stderr
    assert Memory().read("user").entries == ["By the agent."]
    (folder,) = left_by_editors(home)
    assert (folder / "USER.md").read_text() == "By the person.\n"
    assert folder.stat().st_mode & 0o077 == 0


def test_skills_are_listed_shown_and_edited(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    assert hermes("skills", "list").stdout == "No skills yet.\n"
    Skills().create("release", "How to release", "Tag it.")
    assert hermes("skills", "list").stdout == "release  How to release\n"
    done = hermes("skills", "edit", "release", "notes/a.md", **editor(tmp_path, 'echo "Sign it." > "$1"'))
    assert done.returncode == 0
    assert hermes("skills", "show", "release", "notes/a.md").stdout == "Sign it.\n"
    assert "Tag it." in hermes("skills", "show", "release").stdout


def test_the_memory_and_skills_of_a_person_on_a_platform(hermes: Hermes) -> None:
    folder = make_person_folder("someone")
    Memory(folder / "memories").add("memory", "Meets on Mondays.")
    Skills(folder / "skills").create("greet", "How to greet", "Wave.")
    assert "Meets on Mondays." in hermes("memory", "show", "--person", folder.name).stdout
    assert hermes("skills", "list", "--person", folder.name).stdout == "greet  How to greet\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("memory", "show", "--person", "../x"), "there is no folder '../x'"),
        (("memory", "show", "--person", "nobody"), "there is no folder 'nobody'"),
        (("skills", "show", "absent"), "there is no skill 'absent'"),
        (("skills", "edit", "absent"), "there is no skill 'absent'"),
        (("memory", "edit", "user"), "no editor is set, and the default (vi) needs a terminal"),
    ],
)
def test_an_error_is_one_line(hermes: Hermes, words: tuple[str, ...], why: str) -> None:
    done = hermes(*words, EDITOR="", VISUAL="")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert why in done.stderr
