"""Going back in a conversation: out of context and search, never gone."""

from __future__ import annotations

from typing import Any

import pytest

from hermes import errors
from hermes_state import SessionDB


def said(db: SessionDB, session_id: str) -> list[Any]:
    return [row["content"] for row in db.get_messages_as_conversation(session_id)]


@pytest.fixture
def talked(db: SessionDB) -> tuple[SessionDB, list[int]]:
    db.create_session("a", "cli")
    ids = [db.append_message("a", "user", "apple"), db.append_message("a", "assistant", "pear")]
    ids.append(db.append_message("a", "user", "cherry"))
    ids.append(db.append_message("a", "assistant", "plum", tool_calls=[{"id": "1"}]))
    return db, ids


def test_it_takes_the_message_and_all_after_it_out_of_context_counts_and_search(
    talked: tuple[SessionDB, list[int]],
) -> None:
    db, ids = talked
    told = db.rewind_to_message("a", ids[2])
    assert (told["rewound_count"], told["new_head_id"]) == (2, ids[1])
    assert told["target_message"]["content"] == "cherry"
    row = db.get_session("a")
    assert row is not None
    assert (row["message_count"], row["tool_call_count"], row["rewind_count"]) == (2, 0, 1)
    assert said(db, "a") == ["apple", "pear"]
    assert db.message_count("a") == db.message_count() == 2
    assert db.search_messages("cherry OR plum") == []
    assert db.search_sessions_ranked("cherry plums") == []
    assert [row["message_id"] for row in db.search_sessions_ranked("cherry apples")] == [ids[0]]
    assert db.verify().ok


def test_it_comes_back(talked: tuple[SessionDB, list[int]]) -> None:
    db, ids = talked
    before = db.get_messages("a")
    db.rewind_to_message("a", ids[0])
    assert said(db, "a") == []
    assert db.restore_rewound("a", ids[2]) == 2
    assert said(db, "a") == ["cherry", "plum"]
    assert db.restore_rewound("a") == 2
    assert db.get_messages("a") == before
    assert [hit["id"] for hit in db.search_messages("cherry")] == [ids[2]]
    assert [row["message_id"] for row in db.search_sessions_ranked("cherries")] == [ids[2]]
    assert db.verify().ok
    row = db.get_session("a")
    assert row is not None
    assert (row["message_count"], row["tool_call_count"], row["preview"]) == (4, 1, "apple")


def test_a_carried_message_is_taken_back_here_and_stays_where_it_was_said(
    talked: tuple[SessionDB, list[int]],
) -> None:
    db, ids = talked
    child = db.begin_continuation("a", "fruit", ids[2:], head=ids[:1])
    db.append_message(child, "user", "fig")
    assert db.rewind_to_message(child, ids[2])["rewound_count"] == 3
    assert said(db, child) == ["apple", "fruit"]
    assert said(db, "a") == ["apple", "pear", "cherry", "plum"]
    assert db.rewind_to_message(child, ids[0])["new_head_id"] is None
    assert said(db, child) == []
    assert db.restore_rewound(child) == 5
    assert said(db, child) == ["apple", "fruit", "cherry", "plum", "fig"]


def test_what_was_taken_back_survives_the_deletion_of_the_session_that_said_it(
    talked: tuple[SessionDB, list[int]],
) -> None:
    db, ids = talked
    child = db.begin_continuation("a", "fruit", ids[2:])
    db.rewind_to_message(child, ids[2])
    db.delete_session("a")
    assert said(db, child) == ["fruit"]
    assert db.search_messages("cherry") == []
    assert db.restore_rewound(child) == 2
    assert said(db, child) == ["fruit", "cherry", "plum"]


def test_export_and_import_keep_it(talked: tuple[SessionDB, list[int]], tmp_path_factory: Any) -> None:
    db, ids = talked
    db.rewind_to_message("a", ids[2])
    exported = db.export_session("a")
    assert exported is not None
    with SessionDB(db_path=tmp_path_factory.mktemp("other") / "state.db") as other:
        other.import_sessions([exported])
        assert said(other, "a") == ["apple", "pear"]
        assert other.restore_rewound("a") == 2
        assert said(other, "a") == ["apple", "pear", "cherry", "plum"]


@pytest.mark.parametrize("which", [1, 99])
def test_only_a_persons_message_can_be_gone_back_to(talked: tuple[SessionDB, list[int]], which: int) -> None:
    db, ids = talked
    with pytest.raises(ValueError, match="not a person's message"):
        db.rewind_to_message("a", ids[which] if which < len(ids) else which)
    with pytest.raises(errors.UnknownSession):
        db.rewind_to_message("nobody", ids[0])
    assert len(said(db, "a")) == 4


def test_what_a_person_said_last_can_be_chosen_from(talked: tuple[SessionDB, list[int]]) -> None:
    db, ids = talked
    db.append_message("a", "user", "x" * 200)
    recent = db.list_recent_user_messages("a", limit=2)
    assert [one["preview"] for one in recent] == ["x" * 80 + "...", "cherry"]
    assert recent[1]["id"] == ids[2]
