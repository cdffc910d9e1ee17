"""Lists of sessions have one row for each conversation, newest first, with a preview and the last activity."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import SessionDB
from tests.interface.conftest import compress, ids, say, session
from tests.stored_rows import change_rows

PROJECTED = (
    *("id", "ended_at", "end_reason", "message_count", "tool_call_count", "title"),
    *("last_active", "preview", "model", "system_prompt"),
)


@pytest.fixture
def chain(db: SessionDB) -> SessionDB:
    """Create the sessions root → c1 → c2, joined by compression. The last one is open."""
    say(db, "root", "in the root", model="m0", system_prompt="p0", user_id="u", started_at=10)
    db.update_token_counts("root", 7, 7)
    compress(db, "root", "c1", "in c1", model="m1", system_prompt="p1")
    compress(db, "c1", "c2", "in c2", "again", model="m2", system_prompt="p2")
    db.set_session_title("c2", "project #3")
    return db


def three(db: SessionDB) -> None:
    """Create three conversations one after another. The first one was used last."""
    for nth, (name, source) in enumerate([("a", "cli"), ("b", "telegram"), ("c", "discord")]):
        db.create_session(name, source, started_at=100.0 + nth)
        db.append_message(name, "user", name, timestamp=300.0 - nth)


# Rows


def test_an_empty_store_has_an_empty_list(db: SessionDB) -> None:
    assert (db.list_sessions_rich(), db.search_sessions()) == ([], [])


def test_a_row_is_the_session_with_preview_and_last_active(db: SessionDB) -> None:
    db.create_session("a", "cli", started_at=10)
    db.append_message("a", "user", "hello", timestamp=20)
    documented = list(session(db, "a"))[:30]
    (row,) = db.list_sessions_rich()
    assert {name: row[name] for name in documented} == {name: session(db, "a")[name] for name in documented}
    assert (row["preview"], row["last_active"]) == ("hello", 20.0)
    assert "_lineage_root_id" not in row


def test_without_messages_the_last_activity_is_the_start(db: SessionDB) -> None:
    db.create_session("a", "cli", started_at=10)
    (row,) = db.list_sessions_rich()
    assert (row["last_active"], row["preview"]) == (10.0, "")


def test_the_last_activity_is_the_newest_time_of_any_message(db: SessionDB) -> None:
    db.create_session("a", "cli", started_at=10)
    for role, when in (("user", 50), ("assistant", 90), ("tool", 70)):
        db.append_message("a", role, "x", timestamp=when)
    assert db.list_sessions_rich()[0]["last_active"] == 90.0
    assert db.search_sessions()[0]["last_active"] == 90.0


def test_the_last_activity_is_right_after_another_program_deleted_messages(db: SessionDB) -> None:
    say(db, "a", "one", started_at=100)
    change_rows(db, "DELETE FROM messages")
    assert db.list_sessions_rich()[0]["last_active"] == 100.0
    db.append_message("a", "user", "two", timestamp=50)
    assert db.list_sessions_rich()[0]["last_active"] == 50.0
    assert db.search_sessions()[0]["last_active"] == 50.0


# Order, filters and pages


def test_newest_start_first(db: SessionDB) -> None:
    three(db)
    assert ids(db.list_sessions_rich()) == ["c", "b", "a"]


def test_or_newest_activity_first(db: SessionDB) -> None:
    three(db)
    assert ids(db.list_sessions_rich(order_by_last_active=True)) == ["a", "b", "c"]


def test_equal_activity_is_ordered_by_start_and_then_by_id(db: SessionDB) -> None:
    for name, start in (("x", 1), ("z", 1), ("y", 2)):
        db.create_session(name, "cli", started_at=start)
        db.append_message(name, "user", "x", timestamp=50)
    assert ids(db.list_sessions_rich(order_by_last_active=True)) == ["y", "z", "x"]


def test_a_conversation_is_as_active_as_its_most_active_session(chain: SessionDB) -> None:
    chain.create_session("other", "cli", started_at=20)
    chain.append_message("other", "user", "x", timestamp=9e9)
    chain.append_message("c1", "user", "late in the middle", timestamp=9.5e9)
    assert ids(chain.list_sessions_rich(order_by_last_active=True)) == ["c2", "other"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"source": "telegram"}, ["b"]),
        ({"source": "signal"}, []),
        ({"exclude_sources": ["telegram", "discord"]}, ["a"]),
        ({"exclude_sources": []}, ["c", "b", "a"]),
        ({"source": "cli", "exclude_sources": ["telegram"]}, ["a"]),
        ({"source": "cli", "exclude_sources": ["cli"]}, []),
        ({"limit": 2}, ["c", "b"]),
        ({"limit": 2, "offset": 1}, ["b", "a"]),
        ({"limit": 2, "offset": 2}, ["a"]),
        ({"offset": 3}, []),
        ({"limit": 0}, []),
        ({"exclude_sources": ["discord"], "limit": 1, "offset": 1}, ["a"]),
    ],
)
@pytest.mark.parametrize("by_activity", [False, True])
def test_filters_and_pages(
    db: SessionDB, wanted: dict[str, Any], found: list[str], by_activity: bool
) -> None:
    three(db)
    if by_activity:
        change_rows(
            db, "UPDATE messages SET timestamp = (SELECT started_at FROM sessions WHERE id = session_id)"
        )
    assert ids(db.list_sessions_rich(**wanted, order_by_last_active=by_activity)) == found


def test_twenty_rows_unless_more_are_asked_for(db: SessionDB) -> None:
    for nth in range(25):
        db.create_session(f"s{nth:02}", "cli", started_at=nth)
    assert len(db.list_sessions_rich()) == len(db.search_sessions()) == 20
    assert len(db.list_sessions_rich(limit=100)) == len(db.search_sessions(limit=100)) == 25


# One row per conversation


def test_a_conversation_is_one_row_that_stands_for_its_tip(chain: SessionDB) -> None:
    (row,) = chain.list_sessions_rich()
    (tip,) = [one for one in chain.list_sessions_rich(include_children=True) if one["id"] == "c2"]
    assert {name: row[name] for name in PROJECTED} == {name: tip[name] for name in PROJECTED}
    assert (row["id"], row["title"], row["message_count"], row["preview"]) == ("c2", "project #3", 2, "in c2")
    assert row["_lineage_root_id"] == "root"


def test_everything_else_is_the_roots(chain: SessionDB) -> None:
    (row,) = chain.list_sessions_rich()
    assert (row["started_at"], row["parent_session_id"], row["user_id"], row["input_tokens"]) == (
        10.0,
        None,
        "u",
        7,
    )


def test_without_projection_the_root_is_shown_as_it_is(chain: SessionDB) -> None:
    (row,) = chain.list_sessions_rich(project_compression_tips=False)
    assert (row["id"], row["end_reason"], row["preview"]) == ("root", "compression", "in the root")
    assert "_lineage_root_id" not in row


def test_with_children_every_row_is_shown_as_it_is(chain: SessionDB) -> None:
    rows = chain.list_sessions_rich(include_children=True)
    assert [(row["id"], row["parent_session_id"]) for row in rows] == [
        ("c2", "c1"),
        ("c1", "root"),
        ("root", None),
    ]
    assert not any("_lineage_root_id" in row for row in rows)


def test_a_page_is_cut_before_the_projection(chain: SessionDB) -> None:
    chain.create_session("between", "cli", started_at=20)
    assert ids(chain.list_sessions_rich(limit=1)) == ["between"]
    assert ids(chain.list_sessions_rich(limit=1, offset=1)) == ["c2"]


def test_subagents_are_hidden(db: SessionDB) -> None:
    say(db, "root", "x")
    say(db, "subagent", "y", parent_session_id="root")
    assert ids(db.list_sessions_rich()) == ["root"]
    db.end_session("root", "cli_close")
    say(db, "late", "z", parent_session_id="root")
    assert ids(db.list_sessions_rich()) == ["root"]
    assert set(ids(db.list_sessions_rich(include_children=True))) == {"root", "subagent", "late"}


def test_branches_are_shown_beside_their_parent(db: SessionDB) -> None:
    say(db, "root", "x", started_at=1)
    db.end_session("root", "branched")
    say(db, "branch", "y", parent_session_id="root")
    assert ids(db.list_sessions_rich()) == ["branch", "root"]


def test_a_branch_that_was_compressed_is_one_row_of_its_own(db: SessionDB) -> None:
    say(db, "root", "x", started_at=1)
    db.end_session("root", "branched")
    say(db, "branch", "y", parent_session_id="root")
    compress(db, "branch", "tip", "z")
    rows = db.list_sessions_rich()
    assert [(row["id"], row.get("_lineage_root_id")) for row in rows] == [("tip", "branch"), ("root", None)]


@pytest.mark.parametrize("source", ["cron", "batch", "tool", "subagent"])
def test_nothing_is_hidden_for_its_source(db: SessionDB, source: str) -> None:
    db.create_session("a", source)
    assert ids(db.list_sessions_rich()) == ["a"]


def test_a_filter_by_source_looks_at_the_root(db: SessionDB) -> None:
    say(db, "root", "x", source="telegram")
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root")
    assert ids(db.list_sessions_rich(source="telegram")) == ["tip"]
    assert db.list_sessions_rich(source="cli") == []


# Every session by activity


def test_search_sessions_shows_children_too_by_activity(chain: SessionDB) -> None:
    chain.append_message("root", "user", "late", timestamp=9e9)
    assert ids(chain.search_sessions()) == ["root", "c2", "c1"]
    assert chain.search_sessions()[0]["last_active"] == 9e9


def test_search_sessions_orders_equals_by_start_and_then_by_id(db: SessionDB) -> None:
    for name, start in (("x", 1), ("z", 1), ("y", 2)):
        db.create_session(name, "cli", started_at=start)
        db.append_message(name, "user", "x", timestamp=50)
    assert ids(db.search_sessions()) == ["y", "z", "x"]


def test_search_sessions_filters_by_source_and_pages(db: SessionDB) -> None:
    three(db)
    assert ids(db.search_sessions(source="telegram")) == ["b"]
    assert ids(db.search_sessions(limit=1, offset=1)) == ["b"]
    assert ids(db.search_sessions(None, 2, 2)) == ["c"]
