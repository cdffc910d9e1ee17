"""An import restores everything that was exported. A second import adds nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from hermes.store.people import Principal
from hermes.store.transfer import exporter
from hermes_state import SessionDB
from tests.stored_rows import change_rows, read_rows

PLACES = ("id", "session_id")
"""The columns with row ids, which differ between stores. All other values must be equal after an import."""
BOB = Principal("telegram", "bob", "dm-bob")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[SessionDB]:
    """Open another, empty store."""
    store = SessionDB(tmp_path / "elsewhere" / "state.db")
    yield store
    store.close()


def talk(db: SessionDB, session_id: str, *said: str, started_at: float = 100.0, **more: Any) -> str:
    db.create_session(session_id, more.pop("source", "cli"), started_at=started_at, **more)
    for step, text in enumerate(said):
        db.append_message(session_id, "user", text, timestamp=started_at + 1 + step)
    return session_id


def export(db: SessionDB, session_id: str) -> dict[str, Any]:
    found = db.export_session(session_id)
    assert found is not None
    return found


def through_json(db: SessionDB) -> list[dict[str, Any]]:
    """Return an export after a round trip through JSON."""
    return [json.loads(json.dumps(session)) for session in db.export_each()]


def contents(db: SessionDB, session_id: str) -> list[Any]:
    return [row["content"] for row in db.get_messages(session_id)]


def spoken(db: SessionDB, session_id: str) -> list[Any]:
    return [message["content"] for message in db.get_messages_as_conversation(session_id)]


def timeless(session: dict[str, Any]) -> dict[str, Any]:
    """Return an export without values that differ between stores."""
    messages = [{k: v for k, v in row.items() if k not in PLACES} for row in session["messages"]]
    return {**session, "messages": messages}


# ---------------------------------------------------------------- export


def test_the_export_of_an_unknown_session_is_none(db: SessionDB) -> None:
    assert db.export_session("nobody") is None


def test_an_export_is_the_row_and_its_messages(db: SessionDB) -> None:
    talk(db, "a", "hello", "again", model="m")
    db.append_message("a", "assistant", [{"type": "text", "text": "hi"}], tool_calls=[{"id": "x"}])
    exported = export(db, "a")
    messages = exported.pop("messages")
    assert messages == db.get_messages("a")
    assert exported == db.get_session("a")


def test_rewound_messages_are_exported_too(db: SessionDB) -> None:
    talk(db, "a", "kept", "rewound")
    db.rewind_to_message("a", db.get_messages("a")[1]["id"])
    assert [(row["content"], row["active"]) for row in export(db, "a")["messages"]] == [
        ("kept", 1),
        ("rewound", 0),
    ]


def test_all_sessions_except_trashed_ones_are_exported_newest_first(db: SessionDB) -> None:
    talk(db, "old", "x", started_at=100.0)
    talk(db, "new", "x", started_at=300.0)
    talk(db, "child", "x", started_at=200.0, parent_session_id="old")
    talk(db, "archived", "x", started_at=50.0)
    talk(db, "trash", "x", started_at=60.0)
    db.create_session("empty", "cli", started_at=10.0)
    db.set_session_archived("archived", True)
    db.trash_session("trash")
    everything = db.export_all()
    assert [session["id"] for session in everything] == ["new", "child", "old", "archived", "empty"]
    assert [session["last_active"] for session in everything] == [301.0, 201.0, 101.0, 51.0, 10.0]
    assert db.export_session("trash") is None


def test_a_source_exports_alone_under_either_spelling(db: SessionDB) -> None:
    talk(db, "a", source="cli")
    talk(db, "b", source="api-server")
    assert [session["id"] for session in db.export_all(source="cli")] == ["a"]
    assert [session["id"] for session in db.export_all(source="api_server")] == ["b"]


def test_a_list_of_all_is_complete_at_the_call(db: SessionDB) -> None:
    """A list of exports is complete when the call returns. So a script that exports and then prunes loses
    nothing."""
    talk(db, "a", "first", started_at=1.0)
    talk(db, "b", "kept", started_at=2.0)
    db.end_session("a", "done")
    everything = db.export_all()
    assert type(everything) is list
    assert db.prune_sessions(older_than_days=1) == 1
    db.append_message("b", "user", "later")
    assert [[row["content"] for row in session["messages"]] for session in everything] == [
        ["kept"],
        ["first"],
    ]
    assert json.loads(json.dumps(everything)) == everything
    assert json.loads(json.dumps(db.scoped(BOB).export_all(redact=True))) == []


def test_a_stream_is_of_the_sessions_at_the_call_and_reads_each_at_its_turn(db: SessionDB) -> None:
    for at, name in enumerate(("a", "b", "c")):
        talk(db, name, "x", started_at=100.0 + at)
    stream = db.export_each()
    talk(db, "new", "x", started_at=500.0)
    db.delete_session("b")
    db.append_message("a", "user", "later")
    found = {session["id"]: [row["content"] for row in session["messages"]] for session in stream}
    assert found == {"c": ["x"], "a": ["x", "later"]}
    assert [session["id"] for session in db.export_each(source="telegram")] == []
    with pytest.raises(ValueError, match="source"):
        db.export_each(source=cast("str", 7))


def test_a_session_deleted_during_an_export_is_left_out(db: SessionDB) -> None:
    for name in ("a", "b", "c"):
        talk(db, name, "x")
    stream = db.export_each()
    first = next(stream)["id"]
    db.delete_session("b")
    assert [first, *(session["id"] for session in stream)] == ["c", "a"]


def test_a_long_session_is_read_in_several_snapshots(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "MESSAGES_AT_ONCE", 4)
    talk(db, "a", *(f"n{number}" for number in range(10)))
    engine = db._engine
    read, snapshots = engine.read, []

    def counted(**options: Any) -> Any:
        snapshots.append(options)
        if len(snapshots) == 2:
            db.append_message("a", "user", "later")
        return read(**options)

    monkeypatch.setattr(engine, "read", counted)
    exported = export(db, "a")
    assert [row["content"] for row in exported["messages"]] == [f"n{number}" for number in range(10)]
    assert exported["message_count"] == 10, "the row and its messages are of one moment"
    assert len(snapshots) == 3


# ---------------------------------------------------------------- a round trip


def rich(db: SessionDB) -> None:
    """Create related sessions with all kinds of data that a session can have."""
    talk(db, "root", "one", "two", model="m", model_config={"t": 1}, system_prompt="be kind", user_id="u")
    db.append_message("root", "assistant", None, tool_calls=[{"id": "x"}, {"id": "y"}], reasoning="why")
    db.append_message("root", "tool", "result\0with\u2028odd", tool_name="terminal", tool_call_id="x")
    db.append_message("root", "user", [{"type": "text", "text": "look"}, {"type": "image", "url": "u"}])
    db.append_message(
        *("root", "assistant", "done"),
        finish_reason="stop",
        reasoning_content="",
        reasoning_details=[{"a": 1}],
        codex_reasoning_items=[1],
        codex_message_items=[{"id": "m"}],
        token_count=7,
    )
    db.append_message("root", "user", "\x00json:not really")
    db.update_token_counts("root", 5, 6, estimated_cost_usd=0.25, actual_cost_usd=0.5, billing_provider="p")
    db.set_session_title("root", "My project")
    db.end_session("root", "compression")
    talk(db, "tip", "three", parent_session_id="root", started_at=4_000_000_000.0)
    change_rows(db, "INSERT INTO carried_context VALUES ('tip', 0, 2, 2), ('tip', 1, 4, 5)")
    talk(db, "job", source="cron", parent_session_id="tip")
    change_rows(
        db, "UPDATE sessions SET archived = 1, pinned_at = 5.5, cwd = '/w', chat_id = '7' WHERE id = 'tip'"
    )
    change_rows(db, "UPDATE messages SET active = 0, rewound_at = 6.5 WHERE content = 'one'")
    change_rows(db, "UPDATE sessions SET message_count = message_count - 1 WHERE id = 'root'")
    change_rows(db, "INSERT INTO changed_sessions VALUES ('root')")
    change_rows(
        db,
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('job', 'user', 'foreign', 150)",
    )
    change_rows(db, "UPDATE sessions SET message_count = 1 WHERE id = 'job'")


def test_an_import_restores_everything(db: SessionDB, other: SessionDB) -> None:
    rich(db)
    given = through_json(db)
    done = other.import_sessions(given, trusted=True)
    assert (set(done.added), done.skipped, done.renamed, done.detached) == (
        {"root", "tip", "job"},
        (),
        {},
        (),
    )
    assert done.messages == sum(len(session["messages"]) for session in given)
    for before in given:
        after = timeless(export(other, before["id"]))
        before = timeless(before)
        assert [one["session_id"] for one in after.pop("context", [])] == [
            one["session_id"] for one in before.pop("context", [])
        ]
        assert after == before
    for name in ("root", "tip", "job"):
        assert other.get_messages_as_conversation(name) == db.get_messages_as_conversation(name)
        family = other.get_messages_as_conversation(name, include_ancestors=True)
        assert len(family) == len(db.get_messages_as_conversation(name, include_ancestors=True))
    assert other.get_compression_tip("root") == "tip"
    assert [row["id"] for row in other.list_sessions_rich()] == [row["id"] for row in db.list_sessions_rich()]
    assert [hit["session_id"] for hit in other.search_messages("three")] == ["tip"]


def test_the_second_import_adds_nothing(db: SessionDB, other: SessionDB) -> None:
    rich(db)
    given = through_json(db)
    other.import_sessions(given)
    before = list(other.export_all())
    done = other.import_sessions(given)
    assert (done.added, set(done.skipped), done.messages) == ((), {"root", "tip", "job"}, 0)
    assert list(other.export_all()) == before
    assert db.import_sessions(given).added == (), "nor into the store it came from"


def test_a_session_that_grew_since_its_export_is_skipped(db: SessionDB) -> None:
    talk(db, "a", "one", "two")
    given = through_json(db)
    db.append_message("a", "user", "three")
    assert db.import_sessions(given).skipped == ("a",)
    assert contents(db, "a") == ["one", "two", "three"]


def test_an_import_restores_a_session_from_the_trash(db: SessionDB) -> None:
    talk(db, "a", "one")
    given = through_json(db)
    db.trash_session("a")
    done = db.import_sessions(given, trusted=True)
    assert (done.added, done.restored, done.messages) == ((), ("a",), 0)
    assert [session["id"] for session in db.export_all()] == ["a"]


def test_carried_messages_are_found_whatever_the_order_and_the_ids(db: SessionDB, other: SessionDB) -> None:
    talk(other, "before", *"abcdefg")
    talk(db, "root", "one", "two")
    talk(db, "noise", "x")
    db.append_message("root", "user", "three")
    db.end_session("root", "compression")
    talk(db, "tip", "four", parent_session_id="root")
    change_rows(db, "INSERT INTO carried_context VALUES ('tip', 0, 2, 2), ('tip', 1, 4, 4)")
    assert spoken(db, "tip") == ["two", "three", "four"]
    by_id = {session["id"]: session for session in through_json(db)}
    other.import_sessions([by_id["tip"], by_id["noise"], by_id["root"]])
    assert spoken(other, "tip") == ["two", "three", "four"]
    ranges = read_rows(other, "SELECT first_message_id, last_message_id FROM carried_context")
    assert len(ranges) == 1, "what has come to lie side by side is one range"


def test_a_lone_continuation_finds_the_messages_of_a_parent_that_is_here(
    db: SessionDB, other: SessionDB
) -> None:
    talk(other, "before", "x")
    talk(db, "root", "one", "two")
    db.end_session("root", "compression")
    talk(db, "tip", "three", parent_session_id="root")
    change_rows(db, "INSERT INTO carried_context VALUES ('tip', 0, 2, 2)")
    other.import_sessions([export(db, "root")], trusted=True)
    done = other.import_sessions([export(db, "tip")], trusted=True)
    assert done.detached == ()
    assert spoken(other, "tip") == ["two", "three"]


def test_an_import_that_stopped_before_its_parents_is_completed_by_the_next(
    db: SessionDB, other: SessionDB
) -> None:
    rich(db)
    by_id = {session["id"]: session for session in through_json(db)}
    with pytest.raises(ValueError, match="must be an object"):
        other.import_sessions([by_id["tip"], None])  # type: ignore[list-item]
    assert other.get_session("tip") is not None
    assert export(other, "tip")["parent_session_id"] is None
    done = other.import_sessions(by_id.values())
    assert set(done.added) == {"root", "job"}
    assert export(other, "tip")["parent_session_id"] == "root"
    assert spoken(other, "tip") == spoken(db, "tip")


# ---------------------------------------------------------------- collisions


def test_a_different_session_of_the_same_id_gets_a_new_one_and_its_children_follow(
    db: SessionDB, other: SessionDB
) -> None:
    talk(db, "a", "mine")
    talk(db, "child", "small", parent_session_id="a")
    talk(other, "a", "theirs", started_at=900.0)
    done = other.import_sessions(through_json(db))
    new = done.renamed["a"]
    assert set(done.added) == {new, "child"}
    assert contents(other, "a") == ["theirs"]
    assert contents(other, new) == ["mine"]
    assert export(other, "child")["parent_session_id"] == new


def test_a_session_that_got_a_new_id_is_recognised_the_next_time(db: SessionDB, other: SessionDB) -> None:
    talk(db, "a", "mine")
    talk(db, "child", "small", parent_session_id="a")
    talk(other, "a", "theirs", started_at=900.0)
    new = other.import_sessions(through_json(db)).renamed["a"]
    again = other.import_sessions(through_json(db))
    assert (again.added, again.renamed, set(again.skipped)) == ((), {}, {"a", "child"})
    other.delete_session(new)
    assert list(other.import_sessions(through_json(db)).renamed) == ["a"]


def test_a_title_in_use_gets_a_number_in_brackets(db: SessionDB, other: SessionDB) -> None:
    for name, title in (("a", "Plans"), ("b", "Plans (2)")):
        talk(other, name)
        other.set_session_title(name, title)
    talk(db, "c")
    db.set_session_title("c", "Plans")
    long = "x" * 100
    talk(db, "d")
    db.set_session_title("d", long)
    talk(other, "e")
    other.set_session_title("e", long)
    other.import_sessions(through_json(db))
    assert other.get_session_title("c") == "Plans (3)"
    assert other.get_session_title("d") == "x" * 96 + " (2)"


def test_a_missing_parent_is_reported(db: SessionDB, other: SessionDB) -> None:
    talk(db, "parent")
    talk(db, "child", "x", parent_session_id="parent")
    done = other.import_sessions([export(db, "child")])
    assert (done.added, done.detached) == (("child",), ("child",))
    assert export(other, "child")["parent_session_id"] is None


def test_a_pending_handoff_is_not_imported(db: SessionDB, other: SessionDB) -> None:
    for name in ("pending", "failed"):
        talk(db, name)
        db.request_handoff(name, "telegram")
    db.fail_handoff("failed", "why")
    other.import_sessions(through_json(db), trusted=True)
    assert other.list_pending_handoffs() == []
    assert other.get_handoff_state("failed") == {"state": "failed", "platform": "telegram", "error": "why"}


# ---------------------------------------------------------------- input of any origin


def test_an_export_of_the_reference_is_enough(other: SessionDB) -> None:
    done = other.import_sessions(
        [
            {
                "id": "20250305_091523_a1b2c3",
                "source": "api_server",
                "started_at": 1000,
                "title": "Old",
                "of_a_later_version": {"any": "thing"},
                "messages": [
                    {"id": 5, "role": "user", "content": "hello", "timestamp": 1001.5},
                    {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}], "timestamp": 1002.5},
                    {"content": 7},
                ],
            }
        ]
    )
    assert (done.added, done.messages) == (("20250305_091523_a1b2c3",), 3)
    session = export(other, "20250305_091523_a1b2c3")
    counts = ("source", "message_count", "tool_call_count", "last_active", "preview", "root_id")
    assert [session[name] for name in counts] == ["api-server", 3, 1, 1002.5, "hello", session["id"]]
    assert [row["role"] for row in session["messages"]] == ["user", "assistant", "unknown"]
    assert [row["timestamp"] for row in session["messages"]] == [1001.5, 1002.5, 1002.5]
    assert [row["uid"] for row in session["messages"]] == [None, None, None], "another program wrote them"


def test_only_an_id_is_required(other: SessionDB) -> None:
    assert other.import_sessions([{"id": "a"}]).added == ("a",)
    assert export(other, "a")["source"] == "unknown"
    assert other.import_sessions([{"id": "a"}]).skipped == ("a",)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (None, "must be an object"),
        ("id", "must be an object"),
        ({}, "must have an id"),
        ({"id": ""}, "must have an id"),
        ({"id": 7}, "must have an id"),
        ({"id": "x", "messages": "hello"}, "messages of session 'x' must be a list"),
        ({"id": "x", "messages": {"role": "user"}}, "messages of session 'x' must be a list"),
        ({"id": "x", "messages": ["hello"]}, "a message of session 'x' must be an object"),
        ({"id": "x", "messages": [{"role": ["user"]}]}, "role of a message of session 'x' must be text"),
        (
            {"id": "x", "messages": [{"timestamp": "noon"}]},
            "timestamp of a message of session 'x' must be a number",
        ),
        ({"id": "x", "messages": [{"uid": "no"}]}, "uid of a message of session 'x' must be hexadecimal"),
        ({"id": "x", "started_at": float("nan")}, "started_at of session 'x' must be a number"),
        ({"id": "x", "input_tokens": 2**70}, "input_tokens of session 'x' must be a number"),
        ({"id": "x", "title": ["T"]}, "title of session 'x' must be text"),
        ({"id": "x", "context": [[1, 2]]}, "a range of session 'x' must be an object"),
    ],
)
def test_bad_input_is_one_clear_error_and_earlier_sessions_stay(other: SessionDB, bad: Any, why: str) -> None:
    good = {"id": "good", "source": "cli", "messages": [{"role": "user", "content": "kept"}]}
    with pytest.raises(ValueError, match=why):
        other.import_sessions([good, bad, {"id": "never reached"}])
    assert contents(other, "good") == ["kept"]
    assert other.session_count() == 1


def test_a_deep_chain_given_child_first_is_joined(db: SessionDB) -> None:
    depth = 1000
    given = [{"id": "n0", "source": "cli", "started_at": 0, "ended_at": 0.5, "end_reason": "compression"}]
    for at in range(1, depth):
        ends = {"started_at": at, "ended_at": at + 0.5, "end_reason": "compression"}
        given.append({"id": f"n{at}", "source": "cli", "parent_session_id": f"n{at - 1}", **ends})
    done = db.import_sessions(reversed(given))
    assert (len(done.added), done.detached) == (depth, ())
    assert db.get_compression_tip("n0") == f"n{depth - 1}"
    assert export(db, f"n{depth - 1}")["root_id"] == "n0"


def test_cycles_of_parents_are_imported_unchanged(db: SessionDB) -> None:
    circle = [{"id": "a", "parent_session_id": "b"}, {"id": "b", "parent_session_id": "a"}]
    done = db.import_sessions([*circle, {"id": "self", "parent_session_id": "self"}])
    assert len(done.added) == 3
    assert export(db, "a")["parent_session_id"] == "b"
    assert export(db, "self")["parent_session_id"] == "self"
    assert db.import_sessions(circle).added == ()


def test_tags_and_model_calls_are_imported(db: SessionDB, other: SessionDB) -> None:
    db.create_session("a", "cli")
    db.add_tags("a", "work", "later")
    db.record_usage("a", model="m", provider="p", input_tokens=10, output_tokens=None, actual_cost_usd=0.5)
    db.record_auxiliary_usage("a", model="small", input_tokens=3)
    exported = db.export_session("a")
    assert exported is not None
    other.import_sessions([exported], trusted=True)
    other.import_sessions([exported], trusted=True)
    assert other.tags_of("a") == ["later", "work"]
    assert other.usage_of("a") == db.usage_of("a")
    assert other.export_session("a") == exported


@pytest.mark.parametrize(
    "wrong", [{"tags": "work"}, {"tags": [""]}, {"model_calls": [{"input_tokens": "many"}]}]
)
def test_tags_and_model_calls_are_checked(other: SessionDB, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"tag|input_tokens"):
        other.import_sessions([{"id": "a", "source": "cli", "messages": [], **wrong}])
    assert other.session_count() == 0


def test_an_export_can_be_redacted(db: SessionDB) -> None:
    from hermes.secrets import SECRETS

    secret = next(one.example for one in SECRETS if one.example.isascii() and "\n" not in one.example)
    db.create_session("a", "cli", system_prompt=f"use {secret}")
    db.append_message("a", "user", f"my key is {secret}", tool_calls=[{"function": {"arguments": secret}}])
    assert secret in str(db.export_session("a"))
    for result in (
        db.export_session("a", redact=True),
        *db.export_each(redact=True),
        *db.export_all(redact=True),
    ):
        assert secret not in str(result)
        assert "my key is [redacted" in str(result)


# ---------------------------------------------------------------- message ids, dry runs, invalid entries


def numbered(session_id: str, *ids: Any) -> dict[str, Any]:
    return {"id": session_id, "messages": [{"id": n, "role": "user", "content": f"said {n}"} for n in ids]}


def ids_of(db: SessionDB, session_id: str) -> list[int]:
    return [row["id"] for row in db.get_messages(session_id)]


def test_an_empty_store_gives_messages_the_ids_they_had(other: SessionDB) -> None:
    other.import_sessions([numbered("late", 20, 70, 71), numbered("early", 3, 21), numbered("between", 69)])
    assert [ids_of(other, name) for name in ("late", "early", "between")] == [[20, 70, 71], [3, 21], [69]]
    assert other.append_message("early", "user", "next") == 72


def test_messages_inserted_below_existing_ids_are_found(other: SessionDB) -> None:
    sessions = [numbered(f"s{at}", *range(at, 400, 40)) for at in range(40, 0, -1)]
    other.import_sessions(sessions)
    for number in (1, 38, 39, 40, 399):
        assert [row["id"] for row in other.search_messages(f'"said {number}"')] == [number]
    assert other.verify().ok


@pytest.mark.parametrize(
    "ids", [(5, 5), (9, 8), (0, 1), (-1, 2), ("7", 8), (None, 3), (True, 2), (1, 2**62), (1.0, 2)]
)
def test_message_ids_that_cannot_be_kept_are_replaced(other: SessionDB, ids: tuple[Any, ...]) -> None:
    other.import_sessions([numbered("a", *ids)])
    assert ids_of(other, "a") == [1, 2]
    assert contents(other, "a") == [f"said {n}" for n in ids]


def test_an_id_that_was_another_message_s_here_is_not_used_again(other: SessionDB) -> None:
    talk(other, "mine", "1", "2", "3")
    change_rows(other, "DELETE FROM messages WHERE id = 2")
    other.import_sessions([numbered("a", 2), numbered("b", 10, 11)])
    assert (ids_of(other, "a"), ids_of(other, "b")) == ([4], [10, 11])


def test_writes_during_an_import_are_kept(other: SessionDB) -> None:
    other.create_session("mine", "cli")
    with other.importing() as taking:
        taking.take(numbered("a", 1, 3))
        assert other.append_message("mine", "user", "meanwhile") == 4
        taking.take(numbered("b", 2, 4))
    assert (contents(other, "mine"), contents(other, "b")) == (["meanwhile"], ["said 2", "said 4"])
    assert ids_of(other, "b") == [5, 6]


def test_a_bad_session_in_between_is_refused_alone(other: SessionDB) -> None:
    with other.importing() as taking:
        first = taking.take(numbered("a", 1))
        with pytest.raises(ValueError, match="must have an id"):
            taking.take({"messages": []})
        second = taking.take({**numbered("b", 2), "parent_session_id": "a"})
    assert (first.here, first.messages, second.here, second.messages) == ("a", 1, "b", 1)
    assert taking.make_result().added == ("a", "b")
    assert export(other, "b")["parent_session_id"] == "a"


def test_a_dry_run_reports_what_an_import_would_do(db: SessionDB, other: SessionDB) -> None:
    talk(db, "same", "x")
    talk(db, "clash", "theirs")
    talk(db, "new", "x", "y", parent_session_id="same")
    talk(db, "thrown", "x")
    given = through_json(db)
    other.import_sessions([one for one in given if one["id"] in ("same", "thrown")])
    other.trash_session("thrown")
    talk(other, "clash", "mine", started_at=900.0)
    before = list(other.export_each())
    with other.importing(dry_run=True) as taking:
        for record in [*given, *given]:
            taking.take(record)
    dry = taking.make_result()
    assert list(other.export_each()) == before
    real = other.import_sessions([*given, *given])
    assert (len(dry.added), dry.messages, list(dry.renamed)) == (len(real.added), real.messages, ["clash"])
    assert (dry.detached, list(real.renamed)) == (real.detached, ["clash"])


# ---------------------------------------------------------------- outlines


def test_outlines_are_of_sessions_or_of_their_whole_conversations(db: SessionDB) -> None:
    talk(db, "a", "hello")
    db.begin_continuation("a", "summary", session_id="b", started_at=200.0)
    talk(db, "c", "x")
    talk(db, "gone")
    db.trash_session("gone")
    assert [one.id for one in db.outlines(["b", "c", "gone", "nobody"])] == ["b", "c"]
    assert [one.id for one in db.outlines(["b", "c", "a", "gone"], whole=True)] == ["a", "b", "c"]
    (outline,) = db.outlines(["a"])
    assert (outline.root_id, outline.preview, outline.message_count, outline.last_active) == (
        "a",
        "hello",
        1,
        101.0,
    )


def test_an_imported_title_is_cleaned(db: SessionDB) -> None:
    taken = [
        {"id": "a", "source": "cli", "title": "a\u202eb\x1b[31m\nrow2"},
        {"id": "b", "source": "cli", "title": "t" * 300},
    ]
    db.import_sessions(taken)
    assert db.get_session_title("a") == db.sanitize_title("a\u202eb\x1b[31m\nrow2")
    assert db.get_session_title("b") == "t" * 100
