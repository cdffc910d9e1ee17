"""The chats of an older installation keep their sessions and get owners. They are imported only once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes import errors
from hermes.gateway.inbound_events import Source
from hermes.gateway.sessions.legacy_routing import import_file, import_once
from hermes.gateway.sessions.session_keys import find_owner, make_principal
from hermes.gateway.settings import Keying
from hermes.store.people import Principal
from hermes_state import SessionDB


@pytest.fixture
def file(home: Path) -> Path:
    (home / "sessions").mkdir(parents=True)
    return home / "sessions" / "sessions.json"


def entry(session_id: str, origin: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    values = {"session_id": session_id, "updated_at": "2026-05-01T10:00:00", **more}
    return values if origin is None else {**values, "origin": origin}


def session(db: SessionDB, session_id: str, source: str = "telegram", title: str | None = None) -> str:
    """Create a session without an owner, as older programs do."""
    db.create_session(session_id, source)
    db.append_message(session_id, "user", f"in {session_id}")
    if title is not None:
        db.set_session_title(session_id, title)
    return session_id


ANN = {"platform": "telegram", "chat_id": 42, "chat_type": "dm", "user_id": "42", "user_name": "Ann"}
GROUP = {"platform": "telegram", "chat_id": "-100", "chat_type": "group", "user_id": "42"}
TOPIC = {"platform": "telegram", "chat_id": "-100", "chat_type": "thread", "user_id": "42", "thread_id": "7"}


def test_a_person_continues_in_their_own_session(db: SessionDB, file: Path) -> None:
    session(db, "old", title="Holidays")
    file.write_text(json.dumps({"agent:main:telegram:dm:42": entry("old", ANN, memory_flushed=True)}))
    assert import_once(db, file).chats == 1
    ann = db.scoped(make_principal(Source.from_dict(ANN)))
    assert ann.find_live_session("agent:main:telegram:dm:42") == "old"
    ann.append_message("old", "user", "and on it goes")
    assert [row["content"] for row in ann.get_messages("old")] == ["in old", "and on it goes"]
    route = db.routing.get("agent:main:telegram:dm:42")
    assert route is not None
    assert route.entry["expiry_finalized"] is True
    assert route.entry["origin"]["user_name"] == "Ann"


def test_a_shared_thread_belongs_to_the_room_and_a_group_session_to_a_person(
    db: SessionDB, file: Path
) -> None:
    session(db, "topic")
    session(db, "mine")
    file.write_text(json.dumps({"a": entry("topic", TOPIC), "b": entry("mine", GROUP)}))
    assert import_file(db, file) == (2, [])
    keys = {route.session_key: route.session_id for route in db.routing.list_routes()}
    assert keys == {"agent:main:telegram:group:-100:7": "topic", "agent:main:telegram:group:-100:42": "mine"}
    bob = db.scoped(Principal("telegram", "43", "-100", "7", "group"))
    assert bob.get_session("topic") is not None
    assert bob.get_session("mine") is None


def test_the_whole_conversation_gets_the_owner_and_titles_stay_unique(db: SessionDB, file: Path) -> None:
    theirs = db.scoped(Principal("telegram", "42", "42"))
    theirs.set_session_title(theirs.create_session(), "Plans")
    session(db, "old", title="Plans")
    child = db.begin_continuation("old", "What was planned.", carried=[])
    helper = db.delegate(child)
    file.write_text(json.dumps({"x": entry("old", ANN)}))
    import_file(db, file)
    assert {row["id"] for row in map(theirs.get_session, ("old", child, helper)) if row} == {
        "old",
        child,
        helper,
    }
    assert theirs.find_live_session("agent:main:telegram:dm:42") == child
    assert theirs.get_session_title("old") == "Plans (2)"
    assert db.adopt_conversation("old", theirs.principal.person) == ["old", child, helper]
    assert theirs.get_session_title("old") == "Plans (2)"
    assert db.verify().ok


def test_a_bad_entry_is_reported_and_does_not_affect_others(db: SessionDB, file: Path) -> None:
    session(db, "good")
    bad = {
        "no entry": 7,
        "no origin": entry("good", None),
        "no session": {"origin": ANN},
        "unknown platform": entry("good", {**ANN, "platform": "pigeon"}),
        "bad type": entry("good", {**ANN, "chat_type": "moon"}),
        "gone": entry("never stored", {**ANN, "chat_id": "9"}),
    }
    file.write_text(json.dumps({**bad, "agent:main:telegram:dm:42": entry("good", ANN)}))
    taken = import_file(db, file)
    assert taken.chats == 1
    assert len(taken.left_out) == len(bad)
    assert all(any(name in line for line in taken.left_out) for name in bad)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\x00"])
def test_an_invalid_file_is_reported(db: SessionDB, file: Path, text: str) -> None:
    file.write_text(text)
    assert (import_file(db, file).chats, len(import_file(db, file).left_out)) == (0, 1)


def test_a_chat_that_the_store_knows_is_never_changed(db: SessionDB, file: Path) -> None:
    session(db, "old")
    ann = db.scoped(Principal("telegram", "42", "42"))
    ann.route("agent:main:telegram:dm:42", here := ann.create_session())
    file.write_text(json.dumps({"agent:main:telegram:dm:42": entry("old", ANN)}))
    assert import_once(db, file).chats == 0
    assert ann.find_live_session("agent:main:telegram:dm:42") == here
    row = db.get_session("old")
    assert row is not None
    assert row["owner"] == ""


def test_the_import_runs_once(db: SessionDB, file: Path) -> None:
    import_once(db, file)  # nothing to import
    session(db, "old")
    file.write_text(json.dumps({"agent:main:telegram:dm:42": entry("old", ANN)}))
    assert import_once(db, file).chats == 0
    assert db.routing.list_routes() == []


def test_two_names_of_one_person_are_one_chat_and_the_last_used_counts(
    db: SessionDB, file: Path, home: Path
) -> None:
    known = home / "whatsapp" / "session"
    known.mkdir(parents=True)
    (known / "lid-mapping-999888777666.json").write_text('"49170"')
    for name in ("lid", "phone"):
        session(db, name, "whatsapp")
    lid = {
        "platform": "whatsapp",
        "chat_id": "999888777666@lid",
        "chat_type": "dm",
        "user_id": "999888777666@lid",
    }
    phone = {**lid, "chat_id": "49170@s.whatsapp.net", "user_id": "49170@s.whatsapp.net"}
    file.write_text(
        json.dumps(
            {
                "1": entry("phone", phone, updated_at="2026-01-01T00:00:00"),
                "2": entry("lid", lid, updated_at="2026-02-01T00:00:00+00:00"),
            }
        )
    )
    assert import_file(db, file).chats == 1
    assert [(route.session_key, route.session_id) for route in db.routing.list_routes()] == [
        ("agent:main:whatsapp:dm:49170", "lid")
    ]
    assert db.scoped(Principal("whatsapp", "49170", "49170")).get_session("lid") is not None
    assert find_owner(Source.from_dict(lid)) == find_owner(Source.from_dict(phone))


def test_sharing_follows_the_current_settings(db: SessionDB, file: Path) -> None:
    session(db, "old")
    file.write_text(json.dumps({"agent:main:telegram:group:-100:42": entry("old", GROUP)}))
    import_file(db, file, Keying(group_sessions_per_user=False))
    assert [route.session_key for route in db.routing.list_routes()] == ["agent:main:telegram:group:-100"]
    assert db.scoped(Principal("telegram", None, "-100", None, "group")).get_session("old") is not None


def test_a_session_of_another_person_is_never_reassigned(db: SessionDB, file: Path) -> None:
    bob = db.scoped(Principal("telegram", "43", "43"))
    secret = bob.create_session()
    file.write_text(json.dumps({"k": entry(secret, ANN)}))
    assert (import_file(db, file).chats, len(import_file(db, file).left_out)) == (0, 1)
    assert db.scoped(Principal("telegram", "42", "42")).get_session(secret) is None
    with pytest.raises(errors.InvalidArgument):
        db.adopt_conversation(secret, "telegram:person:42")
    with pytest.raises(errors.UnknownSession):
        db.adopt_conversation("nobody", "telegram:person:42")


def test_a_person_who_is_spelled_as_a_thread_there_is_not_left_out(db: SessionDB, file: Path) -> None:
    session(db, "topic")
    session(db, "mine")
    seven = {**GROUP, "user_id": TOPIC["thread_id"]}
    file.write_text(json.dumps({"a": entry("topic", TOPIC), "b": entry("mine", seven)}))
    assert import_file(db, file) == (2, [])
    assert {route.session_id for route in db.routing.list_routes()} == {"topic", "mine"}
