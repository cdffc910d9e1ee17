"""A rewind removes messages from the context and from searches. It does not delete them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes import clock, errors
from hermes.store.sessions.sessions import new_session_id
from hermes_state import SessionDB
from tests.tiers import scale_examples


def read_context(db: SessionDB, session_id: str) -> list[Any]:
    return [row["content"] for row in db.get_messages_as_conversation(session_id)]


@pytest.fixture
def talked(db: SessionDB) -> tuple[SessionDB, list[int]]:
    db.create_session("a", "cli")
    ids = [db.append_message("a", "user", "apple"), db.append_message("a", "assistant", "pear")]
    ids.append(db.append_message("a", "user", "cherry"))
    ids.append(db.append_message("a", "assistant", "plum", tool_calls=[{"id": "1"}]))
    return db, ids


def test_a_rewind_removes_a_message_and_all_later_ones_from_context_counts_and_search(
    talked: tuple[SessionDB, list[int]],
) -> None:
    db, ids = talked
    result = db.rewind_to_message("a", ids[2])
    assert (result["rewound_count"], result["new_head_id"]) == (2, ids[1])
    assert result["target_message"]["content"] == "cherry"
    row = db.get_session("a")
    assert row is not None
    assert (row["message_count"], row["tool_call_count"], row["rewind_count"]) == (2, 0, 1)
    assert read_context(db, "a") == ["apple", "pear"]
    assert db.message_count("a") == db.message_count() == 2
    assert db.search_messages("cherry OR plum") == []
    assert db.search_sessions_ranked("cherry plums") == []
    assert [row["message_id"] for row in db.search_sessions_ranked("cherry apples")] == [ids[0]]
    assert db.verify().ok


def test_a_rewind_can_be_undone(talked: tuple[SessionDB, list[int]]) -> None:
    db, ids = talked
    before = db.get_messages("a")
    db.rewind_to_message("a", ids[0])
    assert read_context(db, "a") == []
    assert db.restore_rewound("a", ids[2]) == 2
    assert read_context(db, "a") == ["cherry", "plum"]
    assert db.restore_rewound("a") == 2
    assert db.get_messages("a") == before
    assert [hit["id"] for hit in db.search_messages("cherry")] == [ids[2]]
    assert [row["message_id"] for row in db.search_sessions_ranked("cherries")] == [ids[2]]
    assert db.verify().ok
    row = db.get_session("a")
    assert row is not None
    assert (row["message_count"], row["tool_call_count"], row["preview"]) == (4, 1, "apple")


def test_a_carried_message_is_rewound_here_and_stays_in_its_session(
    talked: tuple[SessionDB, list[int]],
) -> None:
    db, ids = talked
    child = db.begin_continuation("a", "fruit", ids[2:], head=ids[:1])
    db.append_message(child, "user", "fig")
    assert db.rewind_to_message(child, ids[2])["rewound_count"] == 3
    assert read_context(db, child) == ["apple", "fruit"]
    assert read_context(db, "a") == ["apple", "pear", "cherry", "plum"]
    assert db.rewind_to_message(child, ids[0])["new_head_id"] is None
    assert read_context(db, child) == []
    assert db.restore_rewound(child) == 5
    assert read_context(db, child) == ["apple", "fruit", "cherry", "plum", "fig"]


def test_rewound_messages_survive_the_deletion_of_their_session(
    talked: tuple[SessionDB, list[int]],
) -> None:
    db, ids = talked
    child = db.begin_continuation("a", "fruit", ids[2:])
    db.rewind_to_message(child, ids[2])
    db.delete_session("a")
    assert read_context(db, child) == ["fruit"]
    assert db.search_messages("cherry") == []
    assert db.restore_rewound(child) == 2
    assert read_context(db, child) == ["fruit", "cherry", "plum"]


def test_export_and_import_keep_a_rewind(talked: tuple[SessionDB, list[int]], tmp_path_factory: Any) -> None:
    db, ids = talked
    db.rewind_to_message("a", ids[2])
    exported = db.export_session("a")
    assert exported is not None
    with SessionDB(db_path=tmp_path_factory.mktemp("other") / "state.db") as other:
        other.import_sessions([exported])
        assert read_context(other, "a") == ["apple", "pear"]
        assert other.restore_rewound("a") == 2
        assert read_context(other, "a") == ["apple", "pear", "cherry", "plum"]


@pytest.mark.parametrize("which", [1, 99])
def test_only_a_message_of_a_person_can_be_the_target(
    talked: tuple[SessionDB, list[int]], which: int
) -> None:
    db, ids = talked
    with pytest.raises(ValueError, match="not a user message"):
        db.rewind_to_message("a", ids[which] if which < len(ids) else which)
    with pytest.raises(errors.UnknownSession):
        db.rewind_to_message("nobody", ids[0])
    assert len(read_context(db, "a")) == 4


def test_the_last_messages_of_a_person_are_listed(talked: tuple[SessionDB, list[int]]) -> None:
    db, ids = talked
    db.append_message("a", "user", "x" * 200)
    recent = db.list_recent_user_messages("a", limit=2)
    assert [one["preview"] for one in recent] == ["x" * 80 + "...", "cherry"]
    assert recent[1]["id"] == ids[2]


# The last rewind

STEPS = st.lists(
    st.one_of(
        st.just(("say", 0)),
        st.tuples(st.just("undo"), st.integers(1, 3)),
        st.just(("redo", 0)),
        st.just(("branch", 0)),
        st.just(("compress", 0)),
    ),
    max_size=14,
)


def undo(db: SessionDB, session: str, exchanges: int = 1) -> None:
    recent = db.list_recent_user_messages(session, exchanges)
    if recent:
        db.rewind_to_message(session, recent[-1]["id"])


def exchange(db: SessionDB, session: str, text: str) -> list[int]:
    return [db.append_message(session, "user", text), db.append_message(session, "assistant", "yes")]


def test_only_the_last_rewind_is_undone(db: SessionDB) -> None:
    db.create_session("a", "cli")
    first = exchange(db, "a", "A")
    exchange(db, "a", "B")
    undo(db, "a")
    third = exchange(db, "a", "C")
    assert db.restore_last_rewind("a") == 0
    undo(db, "a")
    assert db.restore_last_rewind("a") == 2
    assert [row["id"] for row in db.get_context("a")] == first + third
    assert db.restore_last_rewind("a") == 0


def test_an_earlier_rewind_between_the_messages_of_the_last_one_stays_away(db: SessionDB) -> None:
    db.create_session("a", "cli")
    for text in "ABC":
        exchange(db, "a", text)
    undo(db, "a")
    exchange(db, "a", "D")
    undo(db, "a", 2)
    assert db.restore_last_rewind("a") == 4
    assert [text for text in read_context(db, "a") if text != "yes"] == ["A", "B", "D"]


def test_a_clock_that_goes_back_does_not_change_the_order_of_rewinds(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.create_session("a", "cli")
    exchange(db, "a", "A")
    exchange(db, "a", "B")
    undo(db, "a")
    exchange(db, "a", "C")
    monkeypatch.setattr(clock, "now", lambda: 1_000_000_000.0)
    undo(db, "a")
    assert db.restore_last_rewind("a") == 2
    assert [text for text in read_context(db, "a") if text != "yes"] == ["A", "C"]


@settings(max_examples=scale_examples(240), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_undoing_rewinds_works_like_redo_in_an_editor(db: SessionDB, steps: list[tuple[str, int]]) -> None:
    """A restore brings back the same messages as "redo" in an editor. This is also true in branches and
    continuations, where some messages belong to another session."""
    session = new_session_id()
    db.create_session(session, "cli")
    live: list[int] = []
    taken: list[int] = []
    persons: set[int] = set()
    for step, many in steps:
        match step:
            case "say":
                ids = exchange(db, session, "x")
                persons.add(ids[0])
                live, taken = live + ids, []
            case "undo":
                starts = [place for place, row_id in enumerate(live) if row_id in persons][-many:]
                undo(db, session, many)
                if starts:
                    live, taken = live[: starts[0]], live[starts[0] :] + taken
            case "redo":
                assert db.restore_last_rewind(session) == len(taken)
                live, taken = live + taken, []
            case "branch" if live:
                session, taken = db.branch(session), []
            case "compress" if len(live) > 2:
                session = db.begin_continuation(session, "summary", live[-2:], head=live[:2][: len(live) - 2])
                live, taken = [row["id"] for row in db.get_context(session)], []
        assert [row["id"] for row in db.get_context(session)] == live
    assert db.verify().ok
