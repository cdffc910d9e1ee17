"""Skills are written, found, changed and archived. No operation reaches a file outside the folder of skills."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.agent.prompt.skill_files import Skill, Skills
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools.skill_tools import NOTICE, SkillManage, SkillsList, SkillView
from hermes.errors import InvalidArgument
from hermes.secrets import SECRETS
from tests.tiers import scale_examples


@pytest.fixture
def skills() -> Skills:
    return Skills()


async def test_a_skill_is_written_listed_read_and_archived(
    skills: Skills, context: ToolContext, home: Path
) -> None:
    manage, view, listed = SkillManage(skills), SkillView(skills), SkillsList(skills)
    assert await listed.run({}, context) == "there are no skills yet"
    await manage.run(
        {"action": "create", "name": "release", "description": "How: a release", "content": "Tag it."},
        context,
    )
    assert await listed.run({}, context) == "```skills\nrelease: How: a release\n```"
    assert await view.run({"name": "release"}, context) == (
        f'{NOTICE}\n```skill\n---\nname: release\ndescription: "How: a release"\n---\n\nTag it.\n```'
    )
    await manage.run(
        {"action": "edit", "name": "release", "file": "more/checks.md", "content": "- all"}, context
    )
    assert (await view.run({"name": "release"}, context)).endswith("\n[files of this skill: more/checks.md]")
    assert (
        await view.run({"name": "release", "file": "more/checks.md"}, context)
        == f"{NOTICE}\n```skill\n- all\n```"
    )
    await manage.run({"action": "edit", "name": "release", "content": "Test it, tag it."}, context)
    await manage.run({"action": "edit", "name": "release", "description": "Releases"}, context)
    assert skills.all() == [Skill("release", "Releases")]
    assert skills.view("release").endswith("---\n\nTest it, tag it.\n")
    for path in (home / "skills").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert await manage.run({"action": "delete", "name": "release"}, context) == "deleted the skill release"
    assert skills.all() == []
    (kept,) = (home / "skills/.deleted").iterdir()
    assert (kept / "SKILL.md").is_file()


async def test_a_missing_or_existing_skill_is_reported(skills: Skills, context: ToolContext) -> None:
    manage = SkillManage(skills)
    with pytest.raises(ToolFailed, match="pass description and content"):
        await manage.run({"action": "create", "name": "a", "content": "x"}, context)
    skills.create("a", "first", "x")
    with pytest.raises(InvalidArgument, match="there is already a skill 'a'"):
        skills.create("a", "second", "y")
    with pytest.raises(ToolFailed, match="pass description, content, or both"):
        await manage.run({"action": "edit", "name": "a"}, context)
    with pytest.raises(InvalidArgument, match="there is no skill 'b'; there are a"):
        await SkillView(skills).run({"name": "b"}, context)
    with pytest.raises(InvalidArgument, match="has no additional file"):
        skills.delete("a", "SKILL.md")


@pytest.mark.parametrize(
    "name", ["../x", "/etc", "a/b", "..", ".", "", "A b", "x" * 65, "a\0", "a\n", ".deleted", "ä"]
)
def test_a_name_cannot_be_a_path(skills: Skills, name: str) -> None:
    for act in (
        lambda: skills.create(name, "d", "c"),
        lambda: skills.view(name),
        lambda: skills.edit(name, content="c"),
        lambda: skills.delete(name),
    ):
        with pytest.raises(InvalidArgument, match="is not a valid skill name"):
            act()


@pytest.mark.parametrize(
    "file", ["../a/SKILL.md", "/etc/passwd", ".hidden", "x/../../y", "a\0b", "out/secret", "x" * 201]
)
def test_no_file_of_a_skill_lies_outside_of_it(skills: Skills, home: Path, tmp_path: Path, file: str) -> None:
    skills.create("a", "d", "c")
    (tmp_path / "secret").write_text("secret")
    (home / "skills/a/out").symlink_to(tmp_path)
    for act in (
        lambda: skills.view("a", file),
        lambda: skills.edit("a", content="c", file=file),
        lambda: skills.delete("a", file),
    ):
        with pytest.raises(InvalidArgument):
            act()
    assert (tmp_path / "secret").read_text() == "secret"


def test_skills_that_people_wrote_are_listed_however_they_wrote_them(skills: Skills, home: Path) -> None:
    for name, text in {
        "folded": "---\nname: folded\ndescription: >\n  one\n  two\n---\nbody",
        "colon": "---\ndescription: Use: when needed\n---\nbody",
        "bare": "just text",
        "broken": "---\ndescription: [\n---\n",
        "list": "---\n- a\n---\n",
    }.items():
        (home / "skills" / name).mkdir(parents=True)
        (home / "skills" / name / "SKILL.md").write_text(text)
    (home / "skills/binary").mkdir()
    (home / "skills/binary/SKILL.md").write_bytes(b"\xff\xfe\0")
    (home / "skills/empty").mkdir()
    assert {skill.name: skill.description for skill in skills.all()} == {
        "folded": "one two",
        "colon": "Use: when needed",
        "bare": "(no description)",
        "broken": "[",
        "list": "(no description)",
        "binary": "(cannot be read)",
    }


def test_secrets_are_refused(skills: Skills) -> None:
    with pytest.raises(InvalidArgument, match="contains a secret"):
        skills.create("a", "d", f"use {SECRETS[3].example}")
    assert skills.all() == []


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=scale_examples(100),
)
@given(description=st.text(max_size=60), content=st.text(max_size=60))
def test_any_description_survives_the_file(tmp_path: Path, description: str, content: str) -> None:
    skills = Skills(tmp_path / str(len(list(tmp_path.iterdir()))))
    try:
        skills.create("a", description, content)
    except InvalidArgument:
        return
    (made,) = skills.all()
    skills.edit("a", content="other")
    assert skills.all() == [made]
    assert made.description.split() == made.description.strip().split()
