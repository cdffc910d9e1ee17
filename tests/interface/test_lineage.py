"""A continuation is recorded when it is created. Following the continuations leads to the last session of a
conversation.
"""

from __future__ import annotations

import pytest

from hermes_state import SessionDB
from tests.interface.conftest import compress, ids, say, session
from tests.stored_rows import change_rows


def branch(db: SessionDB, parent: str, child: str, *texts: str) -> str:
    db.end_session(parent, "branched")
    say(db, child, *texts, parent_session_id=parent)
    return child


# The last session


def test_the_tip_of_a_chain_is_its_last_session_from_everywhere(db: SessionDB) -> None:
    say(db, "root", "x")
    compress(db, "root", "c1", "y")
    compress(db, "c1", "c2", "z")
    assert [db.get_compression_tip(name) for name in ("root", "c1", "c2")] == ["c2", "c2", "c2"]


def test_a_session_that_nothing_continues_is_its_own_tip(db: SessionDB) -> None:
    say(db, "a", "x")
    db.end_session("a", "compression")
    assert db.get_compression_tip("a") == "a"


@pytest.mark.parametrize("unknown", ["nobody", ""])
def test_an_unknown_id_is_returned_unchanged(db: SessionDB, unknown: str) -> None:
    assert db.get_compression_tip(unknown) == unknown


def test_a_subagent_does_not_continue(db: SessionDB) -> None:
    say(db, "root", "x")
    say(db, "subagent", "y", parent_session_id="root")
    db.end_session("root", "compression")
    assert db.get_compression_tip("root") == "root"


def test_a_branch_does_not_continue(db: SessionDB) -> None:
    say(db, "root", "x")
    branch(db, "root", "branch", "y")
    assert db.get_compression_tip("root") == "root"


def test_the_newest_of_several_continuations_counts(db: SessionDB) -> None:
    say(db, "root", "x")
    compress(db, "root", "first", "y")
    say(db, "second", "z", parent_session_id="root")
    assert db.get_compression_tip("root") == "second"


def test_deleting_the_root_makes_its_continuation_a_root(db: SessionDB) -> None:
    say(db, "root", "x")
    compress(db, "root", "c1", "y")
    compress(db, "c1", "c2", "z")
    assert db.delete_session("root")
    assert session(db, "c1")["parent_session_id"] is None
    assert db.get_compression_tip("c1") == "c2"
    assert [(row["id"], row["_lineage_root_id"]) for row in db.list_sessions_rich()] == [("c2", "c1")]


# Recorded, not guessed


def test_reopening_the_parent_does_not_lose_the_continuation(db: SessionDB) -> None:
    say(db, "root", "x")
    compress(db, "root", "tip", "y")
    db.reopen_session("root")
    assert db.get_compression_tip("root") == "tip"
    assert ids(db.list_sessions_rich()) == ["tip"]


def test_reopening_and_ending_with_another_reason_does_not_lose_the_continuation(db: SessionDB) -> None:
    say(db, "root", "x")
    compress(db, "root", "tip", "y")
    db.reopen_session("root")
    db.end_session("root", "cli_close")
    assert db.get_compression_tip("root") == "tip"


def test_a_continuation_counts_even_if_the_clock_went_back(db: SessionDB) -> None:
    say(db, "root", "x")
    db.end_session("root", "compression")
    earlier = session(db, "root")["ended_at"] - 1
    say(db, "tip", "y", parent_session_id="root", started_at=earlier)
    assert db.get_compression_tip("root") == "tip"
    assert ids(db.list_sessions_rich()) == ["tip"]


def test_a_branch_counts_even_if_the_clock_went_back(db: SessionDB) -> None:
    say(db, "root", "x")
    db.end_session("root", "branched")
    say(db, "branch", "y", parent_session_id="root", started_at=session(db, "root")["ended_at"] - 1)
    assert set(ids(db.list_sessions_rich())) == {"root", "branch"}


@pytest.mark.parametrize("reason", ["compression", "branched"])
def test_a_subagent_stays_one_even_if_the_clock_went_back(db: SessionDB, reason: str) -> None:
    say(db, "root", "x")
    say(db, "subagent", "y", parent_session_id="root", started_at=session(db, "root")["started_at"] + 1000)
    db.end_session("root", reason)
    assert db.get_compression_tip("root") == "root"
    assert ids(db.list_sessions_rich()) == ["root"]
    db.reopen_session("root")
    assert ids(db.list_sessions_rich()) == ["root"]


def test_a_continuation_that_another_program_wrote_is_known_by_the_documented_rule(
    db: SessionDB,
) -> None:
    say(db, "root", "x", started_at=10)
    change_rows(db, "UPDATE sessions SET ended_at = 20, end_reason = 'compression' WHERE id = 'root'")
    insert = "INSERT INTO sessions (id, source, started_at, parent_session_id) VALUES (?, 'cli', ?, 'root')"
    change_rows(db, insert, "sub", 15)
    change_rows(db, insert, "tip", 20)
    assert db.get_compression_tip("root") == "tip"
    assert [(row["id"], row["_lineage_root_id"]) for row in db.list_sessions_rich()] == [("tip", "root")]


# The session to resume


def test_a_session_with_messages_is_resumed_itself(db: SessionDB) -> None:
    say(db, "root", "x")
    compress(db, "root", "tip", "y")
    assert db.resolve_resume_session_id("root") == "root"


def test_an_empty_head_leads_to_the_first_descendant_with_messages(db: SessionDB) -> None:
    db.create_session("root", "cli")
    db.create_session("middle", "cli", parent_session_id="root")
    say(db, "child", "x", parent_session_id="middle")
    say(db, "grandchild", "y", parent_session_id="child")
    assert db.resolve_resume_session_id("root") == "child"


def test_the_newest_started_child_is_followed(db: SessionDB) -> None:
    db.create_session("root", "cli", started_at=1)
    say(db, "old", "x", parent_session_id="root", started_at=2)
    say(db, "new", "y", parent_session_id="root", started_at=3)
    assert db.resolve_resume_session_id("root") == "new"


@pytest.mark.parametrize("asked", ["root", "nobody", ""])
def test_without_any_messages_the_id_is_returned_unchanged(db: SessionDB, asked: str) -> None:
    db.create_session("root", "cli")
    db.create_session("child", "cli", parent_session_id="root")
    assert db.resolve_resume_session_id(asked) == asked


# Cycles


@pytest.mark.parametrize("parents", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "a"}])
def test_circles_of_parents_end(db: SessionDB, parents: dict[str, str]) -> None:
    for name in parents:
        db.create_session(name, "cli", started_at=10)
    for child, parent in parents.items():
        change_rows(
            db,
            "UPDATE sessions SET parent_session_id=?, ended_at=5, end_reason='compression' WHERE id=?",
            parent,
            child,
        )
    assert db.get_compression_tip("a") in parents
    assert db.resolve_resume_session_id("a") == "a"
    assert len(db.list_sessions_rich(include_children=True)) == len(parents)
    assert len(db.search_sessions()) == len(parents)
    assert set(ids(db.list_sessions_rich())) <= set(parents)
