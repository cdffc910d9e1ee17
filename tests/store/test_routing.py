"""Each chat has one routing row. A chat follows its conversation. If the row is lost, the session of the chat
is found again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import errors
from hermes.store.chats.routing import Route, move_chats
from hermes.store.people import Principal
from hermes_state import SessionDB
from tests.stored_rows import change_rows
from tests.tiers import scale_examples

DM = ("telegram", "dm", "42", "", "")
GROUP = ("telegram", "group", "-100", "", "")


@pytest.fixture
def sessions(db: SessionDB) -> SessionDB:
    for name in "abc":
        db.create_session(name, "telegram")
    return db


def row(db: SessionDB, session_id: str) -> dict[str, object]:
    found = db.get_session(session_id)
    assert found is not None
    return found


def continued(db: SessionDB, session_id: str, by: str) -> str:
    db.end_session(session_id, "compression")
    return db.create_session(by, "telegram", parent_session_id=session_id)


def found(route: Route | None) -> tuple[str, str]:
    assert route is not None
    return route.session_key, route.session_id


# --- one row per chat


def test_a_chat_is_found_by_its_key_and_by_its_parts(sessions: SessionDB) -> None:
    route = sessions.routing.route("k", *DM, "a", {"display_name": "Ann"})
    assert route[:7] == ("k", *DM, "a")
    assert route.entry == {"display_name": "Ann"}
    assert route.created_at == route.updated_at
    assert sessions.routing.get("k") == route
    assert sessions.routing.find("telegram", "dm", "42") == route
    assert sessions.routing.list_by_session("a") == [route]
    assert sessions.routing.get("other") is None
    assert sessions.routing.find("telegram", "dm", "43") is None


def test_routing_again_moves_the_chat_and_keeps_other_values(sessions: SessionDB) -> None:
    first = sessions.routing.route("k", *DM, "a", {"display_name": "Ann"})
    second = sessions.routing.route("k", *DM, "b")
    assert second == first._replace(session_id="b", updated_at=second.updated_at)
    assert sessions.routing.route("k", *DM, "b", {}).entry == {}
    assert len(sessions.routing.list_routes()) == 1


def test_the_same_chat_under_another_spelling_is_the_same_row(sessions: SessionDB) -> None:
    sessions.routing.route("old:42", *DM, "a", {"n": 1})
    assert found(sessions.routing.route("new%3A42", *DM, "a")) == ("new%3A42", "a")
    assert sessions.routing.get("old:42") is None
    assert [route.entry for route in sessions.routing.list_routes()] == [{"n": 1}]


def test_a_key_never_passes_to_another_chat(sessions: SessionDB) -> None:
    sessions.routing.route("k", *DM, "a")
    with pytest.raises(errors.InvalidArgument, match="another chat"):
        sessions.routing.route("k", *GROUP, "b")
    assert found(sessions.routing.get("k")) == ("k", "a")
    assert sessions.routing.find(*GROUP) is None


def test_numbers_are_ids_and_nothing_is_the_empty_part(sessions: SessionDB) -> None:
    sessions.routing.route("k", "telegram", "group", -100, 7, None, "a")
    assert found(sessions.routing.find("telegram", "group", "-100", "7", "")) == ("k", "a")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda db: db.routing.route("k", *DM, "nobody"),
        lambda db: db.routing.route("k", *DM, None),
        lambda db: db.routing.route(None, *DM, "a"),
        lambda db: db.routing.route("k", None, "dm", "42", "", "", "a"),
        lambda db: db.routing.route("k", "telegram", "dm", 4.2, "", "", "a"),
        lambda db: db.routing.route("k", *DM, "a", ["not", "a", "mapping"]),
        lambda db: db.routing.route("k", *DM, "a", {"when": object()}),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_written(
    sessions: SessionDB, wrong: Callable[[SessionDB], object]
) -> None:
    with pytest.raises(errors.HermesError):
        wrong(sessions)
    assert sessions.routing.list_routes() == []


def test_chats_are_listed_newest_first_and_since_a_moment(sessions: SessionDB) -> None:
    sessions.routing.route("k", *DM, "a")
    last = sessions.routing.route("g", *GROUP, "b")
    assert [route.session_key for route in sessions.routing.list_routes()] == ["g", "k"]
    assert [route.session_key for route in sessions.routing.list_routes(active_since=last.updated_at)] == [
        "g"
    ]
    sessions.routing.change_entry("k", lambda entry: {**entry, "n": 1})
    assert [(route.session_key, route.entry) for route in sessions.routing.list_routes()] == [
        ("k", {"n": 1}),
        ("g", {}),
    ]
    assert sessions.routing.change_entry("nobody", lambda entry: entry) is None


def test_a_removed_row_is_gone(sessions: SessionDB) -> None:
    sessions.routing.route("k", *DM, "a")
    assert sessions.routing.remove("k") is True
    assert sessions.routing.remove("k") is False
    assert sessions.routing.list_routes() == []


CHATS = st.tuples(
    st.sampled_from(["telegram", "discord"]),
    st.sampled_from(["dm", "group"]),
    *(st.sampled_from(["", "1", "1:", "%"]) for _ in range(3)),
)


@settings(max_examples=scale_examples(120), deadline=None)
@given(st.lists(st.tuples(CHATS, st.integers(0, 2), st.sampled_from("abc")), max_size=12))
def test_the_same_five_parts_are_the_same_row_whatever_the_key(
    steps: list[tuple[tuple[str, ...], int, str]],
) -> None:
    with TemporaryDirectory() as folder, SessionDB(Path(folder) / "s.db", durability="normal") as db:
        for name in "abc":
            db.create_session(name, "cli")
        expected: dict[tuple[str, ...], tuple[str, str]] = {}
        spellings = set()
        for chat, spelling, session in steps:
            key = f"{spelling} {chat!r}"
            spellings.add(key)
            platform, kind, *parts = chat
            db.routing.route(key, platform, kind, parts[0], parts[1], parts[2], session)
            expected[chat] = (key, session)
        assert {tuple(route[1:6]): (route[0], route[6]) for route in db.routing.list_routes()} == expected
        assert len(db.routing.list_routes()) == len(expected)
        for chat, known in expected.items():
            assert found(db.routing.find(*chat)) == known
        for key in spellings:
            assert (db.routing.get(key) is not None) == (key in {known[0] for known in expected.values()})


# --- by origin


def test_the_participant_of_a_chat_is_found_by_its_origin(sessions: SessionDB) -> None:
    sessions.routing.route("ann", "telegram", "group", "-100", "", "ann", "a")
    sessions.routing.route("bob", "telegram", "group", "-100", "", "bob", "b")
    by_origin = sessions.routing.find_by_origin
    assert found(by_origin("telegram", "-100", participant="ann")) == ("ann", "a")
    assert by_origin("telegram", "-100") is None
    assert by_origin("telegram", "-100", participant="eve") is None
    assert by_origin("discord", "-100", participant="ann") is None
    assert by_origin("telegram", "-100", "7", "ann") is None


def test_with_one_participant_the_newest_thread_is_used(sessions: SessionDB) -> None:
    sessions.routing.route("one", "telegram", "group", "-100", "1", "", "a")
    sessions.routing.route("two", "telegram", "group", "-100", "2", "", "b")
    assert found(sessions.routing.find_by_origin("telegram", -100)) == ("two", "b")
    assert found(sessions.routing.find_by_origin("telegram", -100, 1)) == ("one", "a")
    assert found(sessions.routing.find_by_origin("telegram", -100, participant="ann")) == ("two", "b")
    assert sessions.routing.find_by_origin("telegram", "-101") is None


def test_the_only_route_in_a_chat_is_not_given_to_another_participant(sessions: SessionDB) -> None:
    sessions.routing.route("ann", "telegram", "group", "-100", "", "ann", "a")
    find = sessions.routing.find_by_origin
    assert find("telegram", "-100", participant="bob") is None
    assert find("telegram", "-100", participant="ann") is not None


# --- switching


def test_switching_ends_the_old_session_and_reopens_the_other(sessions: SessionDB) -> None:
    before = sessions.routing.route("k", *DM, "a", {"n": 1})
    sessions.end_session("b", "session_switch")
    after = sessions.routing.switch("k", "b")
    assert after == before._replace(session_id="b", updated_at=after.updated_at if after else 0)
    assert row(sessions, "a")["end_reason"] == "session_switch"
    assert row(sessions, "b")["ended_at"] is None
    assert sessions.routing.get("k") == after
    assert sessions.verify().ok


def test_a_session_that_another_chat_uses_stays_open(sessions: SessionDB) -> None:
    sessions.set_session_title("a", "Rome")
    sessions.routing.route("k", *DM, "a")
    sessions.routing.route("other", *DM[:2], "43", "", "", "a")
    sessions.routing.switch("k", "b")
    assert (row(sessions, "a")["ended_at"], row(sessions, "a")["title"]) == (None, "Rome")
    sessions.routing.switch("other", "b")
    assert row(sessions, "a")["end_reason"] == "session_switch"


@pytest.mark.parametrize("said", [None, "hello"])
def test_only_a_session_with_messages_keeps_its_title(sessions: SessionDB, said: str | None) -> None:
    sessions.set_session_title("a", "Rome")
    if said is not None:
        sessions.append_message("a", "user", said)
    sessions.routing.route("k", *DM, "a")
    sessions.routing.switch("k", "b")
    assert row(sessions, "a")["title"] == (None if said is None else "Rome")


def test_carried_messages_of_a_branch_count_as_messages(sessions: SessionDB) -> None:
    sessions.append_message("a", "user", "hello")
    branch = sessions.branch("a", title="Rome")
    sessions.routing.route("k", *DM, branch)
    sessions.routing.switch("k", "b")
    assert row(sessions, branch)["title"] == "Rome"


def test_switching_to_the_current_session_changes_nothing(sessions: SessionDB) -> None:
    before = sessions.routing.route("k", *DM, "a")
    assert sessions.routing.switch("k", "a") == before
    assert row(sessions, "a")["ended_at"] is None


def test_switching_to_an_older_segment_leads_to_the_last_session(sessions: SessionDB) -> None:
    sessions.routing.route("k", *DM, "a")
    continued(sessions, "b", by="b2")
    assert found(sessions.routing.switch("k", "b")) == ("k", "b2")
    assert row(sessions, "b")["end_reason"] == "compression"


def test_switching_an_unknown_chat_or_to_an_unknown_session_changes_nothing(sessions: SessionDB) -> None:
    assert sessions.routing.switch("k", "a") is None
    sessions.routing.route("k", *DM, "a")
    with pytest.raises(errors.UnknownSession):
        sessions.routing.switch("k", "nobody")
    assert found(sessions.routing.get("k")) == ("k", "a")
    assert row(sessions, "a")["ended_at"] is None


# --- the live session


def test_the_live_session_is_the_end_of_the_conversation_and_the_row_follows(sessions: SessionDB) -> None:
    sessions.routing.route("k", *DM, "a")
    assert sessions.routing.find_live_session("k") == "a"
    continued(sessions, continued(sessions, "a", by="a2"), by="a3")
    with SessionDB(sessions.db_path, read_only=True) as reading:
        assert reading.routing.find_live_session("k") == "a3"
        assert found(reading.routing.get("k")) == ("k", "a")
    assert sessions.routing.find_live_session("k") == "a3"
    assert found(sessions.routing.get("k")) == ("k", "a3")
    assert sessions.routing.find_live_session("nobody") is None


def test_a_deleted_session_leaves_no_route(sessions: SessionDB) -> None:
    sessions.routing.route("k", *DM, "a")
    sessions.delete_session("a")
    assert sessions.routing.find_live_session("k") is None
    assert sessions.routing.list_routes() == []


def test_a_trashed_session_is_not_live_until_it_is_restored(sessions: SessionDB) -> None:
    route = sessions.routing.route("k", *DM, "a")
    change_rows(sessions, "UPDATE sessions SET trashed_at = 1.0 WHERE id = 'a'")
    assert sessions.routing.find_live_session("k") is None
    assert sessions.routing.get("k") is None
    assert sessions.routing.find(*DM) is None
    assert sessions.routing.find_by_origin("telegram", "42") is None
    assert sessions.routing.list_by_session("a") == sessions.routing.list_routes() == []
    assert sessions.routing.recover(*DM) is None
    with pytest.raises(errors.UnknownSession):
        sessions.routing.route("k2", *GROUP, "a")
    change_rows(sessions, "UPDATE sessions SET trashed_at = NULL WHERE id = 'a'")
    assert sessions.routing.get("k") == route
    assert sessions.routing.find_live_session("k") == "a"


def test_a_chat_whose_session_is_in_the_trash_can_be_switched(sessions: SessionDB) -> None:
    sessions.routing.route("k", *DM, "a")
    change_rows(sessions, "UPDATE sessions SET trashed_at = 1.0 WHERE id = 'a'")
    assert found(sessions.routing.switch("k", "b")) == ("k", "b")


def test_moving_takes_every_chat_of_a_session_along(sessions: SessionDB) -> None:
    sessions.routing.route("k", *DM, "a")
    sessions.routing.route("g", *GROUP, "a")
    sessions.routing.route("other", "discord", "dm", "1", "", "", "b")
    moved = sessions._engine.write(lambda writer: move_chats(writer, "a", "c", 5.0))
    assert moved == 2
    assert {(route.session_key, route.session_id) for route in sessions.routing.list_routes()} == {
        *(("k", "c"), ("g", "c"), ("other", "b"))
    }
    assert [route.updated_at for route in sessions.routing.list_by_session("c")] == [5.0, 5.0]
    assert (row(sessions, "c")["session_key"], row(sessions, "c")["chat_id"]) == ("k", "42")


# --- a lost row


def lose(db: SessionDB) -> None:
    change_rows(db, "DELETE FROM routing")


def chat(db: SessionDB, session_id: str, said_at: float, *, ended: str | None = None) -> str:
    """Create a session of the private chat. It started at 100 and was last used at `said_at`. The chat has no
    routing row."""
    db.create_session(session_id, "telegram", started_at=100.0)
    db.append_message(session_id, "user", "hello", timestamp=said_at)
    db.routing.route("k", *DM, session_id)
    lose(db)
    if ended is not None:
        db.end_session(session_id, ended)
        change_rows(db, "UPDATE sessions SET ended_at = ? WHERE id = ?", said_at + 1, session_id)
    return session_id


def test_a_lost_row_is_recovered_with_the_last_used_session(db: SessionDB) -> None:
    chat(db, "old", 200)
    chat(db, "used", 300)
    db.create_session("begun later, never used", "telegram", started_at=250)
    db.routing.route("k", *DM, "begun later, never used")
    lose(db)
    assert db.routing.recover(*DM) == "used"
    assert db.routing.recover("telegram", "dm", "43") is None
    assert db.routing.recover("discord", "dm", "42") is None
    assert db.routing.list_routes() == []  # the call only returns the session; the caller creates the route


def test_of_two_sessions_used_at_the_same_time_the_newer_is_recovered(db: SessionDB) -> None:
    chat(db, "a", 300)
    chat(db, "b", 300)
    change_rows(db, "UPDATE sessions SET started_at = 120 WHERE id = 'a'")
    assert db.routing.recover(*DM) == "a"


def test_an_open_session_is_recovered_before_an_ended_one(db: SessionDB) -> None:
    chat(db, "left", 300, ended="session_switch")
    chat(db, "open", 200)
    assert db.routing.recover(*DM) == "open"


def test_without_an_open_session_the_last_ended_one_is_recovered(db: SessionDB) -> None:
    chat(db, "older", 200, ended="agent_close")
    chat(db, "newer", 300, ended="session_switch")
    assert db.routing.recover(*DM) == "newer"


@pytest.mark.parametrize("reason", ["session_reset", "idle", "daily"])
def test_nothing_from_before_the_last_reset_is_recovered(db: SessionDB, reason: str) -> None:
    chat(db, "before", 200)
    chat(db, "reset", 300, ended=reason)
    assert db.routing.recover(*DM) is None
    chat(db, "after", 400)
    assert db.routing.recover(*DM) == "after"


def test_a_session_with_a_reset_child_is_never_recovered(db: SessionDB) -> None:
    chat(db, "parent", 300, ended="cli_close")
    db.create_session("child", "telegram", parent_session_id="parent", started_at=400)
    change_rows(db, "UPDATE sessions SET relation = 'reset', kind = 'chat' WHERE id = 'child'")
    assert db.routing.recover(*DM) is None
    db._engine.write(lambda writer: move_chats(writer, "parent", "child", 400.0))
    assert db.routing.recover(*DM) == "child"


def test_recovery_goes_to_the_live_end_of_the_conversation(db: SessionDB) -> None:
    chat(db, "a", 300)
    db.end_session("a", "compression")
    db.create_session("a2", "telegram", parent_session_id="a")
    assert db.routing.recover(*DM) == "a2"


def test_a_deleted_session_is_not_recovered(db: SessionDB) -> None:
    chat(db, "a", 300)
    db.delete_session("a")
    assert db.routing.recover(*DM) is None


def test_the_session_of_another_participant_is_not_recovered(sessions: SessionDB) -> None:
    sessions.routing.route("ann", "telegram", "group", "-100", "", "ann", "a")
    sessions.routing.route("bob", "telegram", "group", "-100", "", "bob", "b")
    lose(sessions)
    recover = sessions.routing.recover
    assert recover("telegram", "group", "-100", "", "ann") == "a"
    assert recover("telegram", "group", "-100", "", "bob") == "b"
    assert recover("telegram", "group", "-100", "", "eve") is None
    assert recover("telegram", "group", "-100", "7", "ann") is None
    assert recover(*GROUP) is None


def test_the_session_of_a_shared_room_is_found_by_its_owner_or_key(db: SessionDB) -> None:
    db.create_session("s", "telegram", user_id="ann")  # the first person who wrote
    db.routing.route("g", *GROUP, "s")
    lose(db)
    assert db.routing.recover(*GROUP) is None
    assert db.routing.recover(*GROUP, session_key="g") == "s"
    change_rows(db, "UPDATE sessions SET owner = ?", Principal("telegram", chat="-100").room)
    assert db.routing.recover(*GROUP) == "s"
    assert db.routing.recover("telegram", "group", "-100", "", "ann") is None


def test_a_resumed_session_belongs_to_its_original_chat(sessions: SessionDB) -> None:
    sessions.create_session("terminal", "cli")
    sessions.routing.route("k", *DM, "a")
    sessions.routing.route("g", *GROUP, "a")
    sessions.routing.route("other", "telegram", "dm", "7", "", "", "terminal")
    lose(sessions)
    assert sessions.routing.recover(*DM) == "a"
    assert sessions.routing.recover(*GROUP) is None
    assert sessions.routing.recover("telegram", "dm", "7") is None


# --- a conversation that is assigned to a person


ANN = Principal("telegram", "7", "42")


def handed_over(db: SessionDB, session_id: str) -> Route:
    return db.routing.hand_over("agent:main:telegram:dm:42", *DM, session_id, ANN.person)


def test_a_conversation_that_is_handed_over_belongs_to_the_person_and_their_chat(db: SessionDB) -> None:
    first = db.create_session("first", "cli")
    db.set_session_title(first, "plans")
    db.append_message(first, "user", "from the terminal")
    second = db.begin_continuation(first, "summary")
    ann = db.scoped(ANN)
    old = ann.create_session()
    ann.route("agent:main:telegram:dm:42", old)

    route = handed_over(db, first)
    assert route.session_id == second == ann.find_live_session(route.session_key)
    assert row(db, old)["end_reason"] == "session_switch"
    assert [one["content"] for one in ann.get_messages(first)] == ["from the terminal"]
    assert ann.tip("plans") == second
    assert db.tip("plans") == second  # an unscoped handle sees all


def test_nobody_else_sees_a_conversation_that_was_handed_over(db: SessionDB) -> None:
    db.create_session("first", "cli")
    handed_over(db, "first")
    assert db.scoped(Principal("telegram", "8", "43")).get_session("first") is None


def test_a_title_that_the_person_already_uses_gets_a_number(db: SessionDB) -> None:
    ann = db.scoped(ANN)
    own = ann.create_session()
    ann.set_session_title(own, "plans")
    db.create_session("first", "cli")
    db.set_session_title("first", "plans")
    handed_over(db, "first")
    assert ann.get_session_title("first") == "plans (2)"
    assert ann.get_session_title(own) == "plans"


def test_subagents_are_handed_over_with_their_conversation(db: SessionDB) -> None:
    db.create_session("first", "cli")
    helper = db.delegate("first")
    handed_over(db, "first")
    assert db.scoped(ANN).get_session(helper) is not None


def test_an_unknown_session_cannot_be_handed_over(sessions: SessionDB) -> None:
    sessions.routing.route("k", *DM, "a")
    with pytest.raises(errors.UnknownSession):
        handed_over(sessions, "no-such-session")
    assert found(sessions.routing.get("k")) == ("k", "a")


def test_the_time_of_the_last_message_of_a_person_is_recorded(sessions: SessionDB) -> None:
    sessions.routing.route("k", *DM, "a")
    sessions.routing.route("l", *GROUP, "b")
    sessions.append_message("a", "user", "hello", timestamp=100.0)
    sessions.append_message("a", "assistant", "hi", timestamp=200.0)
    assert [tuple(clock) for clock in sessions.routing.list_clocks()] == [("k", "telegram", "dm", "", 100.0)]


def test_a_chat_with_another_id_keeps_its_key_its_session_and_its_waiting_messages(db: SessionDB) -> None:
    room, grown = (Principal("telegram", chat=chat, chat_type="group") for chat in ("-100", "-200"))
    session = db.scoped(room).create_session(shared=True)
    db.append_message(session, "user", "hello")
    db.routing.route("old", *GROUP, session)
    db.inbox.accept("old", "telegram", {"text": "waits"}, "1")
    assert db.routing.change_chat_id("telegram", "-100", "-200") == ["old"]
    assert db.routing.find(*GROUP) is None
    found = db.routing.find("telegram", "group", "-200")
    assert found is not None
    assert (found.session_key, found.session_id) == ("old", session)
    assert [entry.session_key for entry in db.inbox.list_waiting()] == ["old"]
    assert (row(db, session)["chat_id"], row(db, session)["owner"]) == ("-200", grown.room)
    assert db.scoped(grown).get_session(session) is not None
    assert db.routing.change_chat_id("telegram", "-100", "-200") == []


@pytest.mark.parametrize("used", [False, True])
def test_a_conversation_that_began_under_the_new_id_is_kept_if_it_has_messages(
    sessions: SessionDB, used: bool
) -> None:
    db = sessions
    db.append_message("a", "user", "before")
    db.routing.route("old", *GROUP, "a")
    db.routing.route("new", "telegram", "group", "-200", "", "", "b")
    db.inbox.accept("new", "telegram", {"text": "waits"}, "1")
    if used:
        db.append_message("b", "user", "since")
    assert db.routing.change_chat_id("telegram", "-100", "-200") == ([] if used else ["old"])
    found = db.routing.find("telegram", "group", "-200")
    assert found is not None
    assert found.session_id == ("b" if used else "a")
    assert [entry.session_key for entry in db.inbox.list_waiting()] == [found.session_key]
