"""Pins, the archive, tags and workspaces of conversations."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from hermes import errors
from hermes_state import SessionDB
from tests.stored_rows import change_rows, read_rows


@pytest.fixture
def family(db: SessionDB) -> SessionDB:
    """Create a conversation of three sessions, a branch of it, and an unrelated session."""
    db.create_session("one", "cli")
    for parent, child in (("one", "two"), ("two", "three")):
        db.end_session(parent, "compression")
        db.create_session(child, "cli", parent_session_id=parent)
    db.end_session("three", "branched")
    db.create_session("branch", "cli", parent_session_id="three")
    db.create_session("stranger", "cli")
    return db


def where(db: SessionDB, condition: str) -> set[str]:
    return {row[0] for row in read_rows(db, f"SELECT id FROM sessions WHERE {condition}")}


def column(db: SessionDB, session_id: str, name: str) -> Any:
    found = db.get_session(session_id)
    assert found is not None
    return found[name]


@pytest.mark.parametrize("member", ["one", "two", "three"])
def test_a_pin_is_of_the_whole_conversation(family: SessionDB, member: str) -> None:
    assert family.pin_session(member) is True
    assert where(family, "pinned_at IS NOT NULL") == {"one", "two", "three"}
    assert family.pin_session("two", False) is True
    assert where(family, "pinned_at IS NOT NULL") == set()


def test_a_second_pin_keeps_the_time_of_the_first(family: SessionDB) -> None:
    family.pin_session("one")
    first = column(family, "one", "pinned_at")
    family.pin_session("three")
    assert column(family, "one", "pinned_at") == first


def test_the_archive_takes_the_whole_conversation(family: SessionDB) -> None:
    assert family.set_session_archived("three", True) is True
    assert where(family, "archived = 1") == {"one", "two", "three"}
    assert family.set_session_archived("one", False) is True
    assert where(family, "archived = 1") == set()


def test_a_segment_is_one_session(family: SessionDB) -> None:
    assert family.pin_session("two", segment=True) is True
    assert family.set_session_archived("two", True, segment=True) is True
    assert where(family, "pinned_at IS NOT NULL") == where(family, "archived = 1") == {"two"}
    family.pin_session("one")
    family.pin_session("two", False, segment=True)
    assert where(family, "pinned_at IS NOT NULL") == {"one", "three"}


def test_an_unknown_session_cannot_be_pinned_or_archived(db: SessionDB, tmp_path: Path) -> None:
    assert db.pin_session("nobody") is False
    assert db.set_session_archived("nobody", True) is False
    assert db.set_session_workspace("nobody", tmp_path) is False


def test_a_session_of_another_program_is_pinned_with_its_conversation(family: SessionDB) -> None:
    family.end_session("three", "compression")
    change_rows(
        family,
        "INSERT INTO sessions (id, source, started_at, parent_session_id) VALUES ('theirs', 'cli', 9e9, 'two')",
    )
    assert family.pin_session("theirs") is True
    assert where(family, "pinned_at IS NOT NULL") == {"one", "two", "three", "theirs"}


# ---------------------------------------------------------------- tags


def test_tags_belong_to_the_conversation(family: SessionDB) -> None:
    assert family.add_tags("three", "work", "later") == ["later", "work"]
    for member in ("one", "two", "three"):
        assert family.tags_of(member) == ["later", "work"]
    assert family.tags_of("branch") == family.tags_of("nobody") == []
    assert family.remove_tags("two", "later", "never") == ["work"]
    assert family.tags_of("one") == ["work"]


def test_a_tag_is_kept_in_small_letters(family: SessionDB) -> None:
    assert family.add_tags("one", "  Straße \t 7 ") == ["strasse 7"]
    assert family.add_tags("one", "STRASSE 7") == ["strasse 7"]
    assert family.add_tags("stranger", "strasse 7") == ["strasse 7"]
    assert family.all_tags() == [("strasse 7", 2)]
    assert family.remove_tags("stranger", "STRASSE 7") == []


def test_composed_and_decomposed_letters_are_one_tag(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.add_tags("a", "caf\u00e9")
    assert db.add_tags("a", "CAFE\u0301") == ["caf\u00e9"]


def test_all_tags_are_counted_by_conversation_the_most_used_first(family: SessionDB) -> None:
    family.add_tags("one", "rare", "common")
    family.add_tags("three", "common")
    family.add_tags("stranger", "common")
    assert family.all_tags() == [("common", 2), ("rare", 1)]


@pytest.mark.parametrize("tag", ["", "  \n ", "\x00\x1b\u200b", "x" * 51])
def test_a_tag_has_visible_text_and_at_most_fifty_characters(db: SessionDB, tag: str) -> None:
    db.create_session("a", "cli")
    with pytest.raises(ValueError, match="tag"):
        db.add_tags("a", "fine", tag)
    assert db.tags_of("a") == []


def test_nothing_invisible_is_in_a_tag(db: SessionDB) -> None:
    db.create_session("a", "cli")
    assert db.add_tags("a", "re\x1bd\u202e \n tape", "y" * 50) == ["red tape", "y" * 50]


def test_tagging_an_unknown_session_is_an_error(db: SessionDB) -> None:
    for verb in (db.add_tags, db.remove_tags):
        with pytest.raises(errors.UnknownSession, match="does not exist"):
            verb("nobody", "x")


def test_tags_stay_when_the_first_session_is_deleted(family: SessionDB) -> None:
    family.add_tags("one", "work")
    family.delete_session("one")
    assert family.tags_of("three") == ["work"]
    family.delete_session("two")
    assert family.tags_of("three") == ["work"]
    family.delete_session("three")
    assert family.all_tags() == []


# ---------------------------------------------------------------- workspaces


def test_the_workspace_is_the_git_root_or_the_directory_itself(db: SessionDB, tmp_path: Path) -> None:
    project, plain = tmp_path / "project", tmp_path / "plain"
    (project / "src" / "deep").mkdir(parents=True)
    plain.mkdir()
    (project / ".git").mkdir()
    db.create_session("a", "cli")
    assert db.set_session_workspace("a", project / "src" / "deep", "main") is True
    place = (str(project), str(project / "src" / "deep"), "main")
    assert tuple(column(db, "a", name) for name in ("workspace", "cwd", "git_branch")) == place
    assert db.set_session_workspace("a", str(plain)) is True
    assert (column(db, "a", "workspace"), column(db, "a", "git_branch")) == (str(plain), None)


def test_worktrees_links_and_missing_directories(tmp_path: Path) -> None:
    workspace_of = SessionDB.workspace_of
    worktree = tmp_path / "worktree"
    worktree.mkdir()
    (worktree / ".git").write_text("gitdir: elsewhere")
    (tmp_path / "link").symlink_to(worktree)
    assert workspace_of(worktree / "gone" / "too") == worktree
    assert workspace_of(tmp_path / "link") == worktree
    assert workspace_of("/no/such/place") == Path("/no/such/place")


def test_it_agrees_with_git(tmp_path: Path) -> None:
    inside = tmp_path / "repository" / "inside"
    inside.mkdir(parents=True)
    made = subprocess.run(["git", "init", "-q", str(inside.parent)], capture_output=True)
    if made.returncode:
        pytest.fail(f"git is needed: {made.stderr!r}")
    asked = subprocess.run(
        ["git", "-C", str(inside), "rev-parse", "--show-toplevel"], capture_output=True, text=True
    )
    assert str(SessionDB.workspace_of(inside)) == asked.stdout.strip()


@pytest.mark.parametrize("wrong", ["", None, 5, "nul\0"])
def test_a_directory_is_a_path(db: SessionDB, wrong: Any) -> None:
    db.create_session("a", "cli")
    with pytest.raises(ValueError, match="cwd"):
        db.set_session_workspace("a", wrong)


def test_the_model_with_which_a_session_continues(db: SessionDB) -> None:
    db.create_session("one", "cli", model="small")
    assert db.set_session_model("one", "large") is True
    assert column(db, "one", "model") == "large"
    assert db.set_session_model("nobody", "large") is False
    with pytest.raises(errors.InvalidArgument):
        db.set_session_model("one", None)  # type: ignore[arg-type]
