"""The session of a chat is found, recovered or created, once."""

from __future__ import annotations

import asyncio

import pytest

from hermes.gateway.inbound_events import Event, Source
from hermes.gateway.sessions.session_keys import make_chat
from hermes.gateway.sessions.session_lookup import SessionLookup, restore_source
from hermes.gateway.settings import Keying
from hermes_state import SessionDB
from tests.gateway.documented_key import make_session_key
from tests.gateway.local_gateway import ANN, BOB, in_group, in_thread

EVERYWHERE = [ANN, in_group(ANN), in_thread(ANN), ANN._replace(thread_id="3")]


async def open_chat(places: SessionLookup, who: Source) -> tuple[str, str]:
    """Return the key and the session of a chat."""
    source, key = await places.find_chat(who)
    return key, places.open_session(key, source)


@pytest.mark.parametrize("who", EVERYWHERE)
async def test_concurrent_messages_are_in_one_chat_and_one_session(db: SessionDB, who: Source) -> None:
    places = SessionLookup(db, Keying())
    chats = await asyncio.gather(*(places.find_chat(who) for _ in range(20)))
    assert set(chats) == {(who, make_session_key(who))}
    assert db.session_count() == 0
    opened = await open_chat(places, who)
    assert opened == await open_chat(SessionLookup(db, Keying()), who)
    assert db.session_count() == 1


async def test_new_chats_with_the_same_documented_key_get_different_keys(db: SessionDB) -> None:
    """A thread of a group and a person in the group have the same key if their ids are equal."""
    in_thread_7 = Source("telegram", "-100", chat_type="group", thread_id="7", user_id="1")
    person_7 = Source("telegram", "-100", chat_type="group", user_id="7")
    places = SessionLookup(db, Keying())
    found = await asyncio.gather(places.find_chat(in_thread_7), places.find_chat(person_7))
    keys = {key for _, key in found}
    assert len(keys) == 2
    assert make_session_key(in_thread_7) == make_session_key(person_7)
    assert make_session_key(person_7) in keys


async def test_a_key_belongs_to_the_chat_whose_message_waits(db: SessionDB) -> None:
    """The chat has no session yet. Its message was accepted by a process that has ended."""
    in_thread_7 = Source("telegram", "-100", chat_type="group", thread_id="7", user_id="1")
    person_7 = Source("telegram", "-100", chat_type="group", user_id="7")
    _, key = await SessionLookup(db, Keying()).find_chat(in_thread_7)
    db.inbox.accept(key, "telegram", Event(in_thread_7, "hello", 1.0).to_dict(), "m1")
    assert (await SessionLookup(db, Keying()).find_chat(person_7))[1] != key
    assert (await SessionLookup(db, Keying()).find_chat(in_thread_7))[1] == key


@pytest.mark.parametrize("who", EVERYWHERE)
async def test_a_lookup_by_key_creates_no_session(db: SessionDB, who: Source) -> None:
    assert await SessionLookup(db, Keying()).find_key(who) == make_session_key(who)
    assert db.session_count() == 0


@pytest.mark.parametrize("who", EVERYWHERE)
async def test_a_chat_whose_row_was_lost_continues_in_its_session(db: SessionDB, who: Source) -> None:
    key, session = await open_chat(SessionLookup(db, Keying()), who)
    db.append_message(session, "user", "hello")
    db.routing.remove(key)
    assert await open_chat(SessionLookup(db, Keying()), who) == (key, session)


async def test_the_session_of_another_person_is_not_recovered(db: SessionDB) -> None:
    places = SessionLookup(db, Keying())
    _, anns = await open_chat(places, in_group(ANN))
    db.append_message(anns, "user", "hello")
    db.routing.remove(make_session_key(in_group(ANN)))
    _, bobs = await open_chat(places, in_group(BOB))
    assert bobs != anns


@pytest.mark.parametrize("who", EVERYWHERE)
@pytest.mark.parametrize("keying", [Keying(), Keying(False), Keying(True, True)])
async def test_the_chat_of_a_session_is_found_in_the_store(
    db: SessionDB, who: Source, keying: Keying
) -> None:
    key, _ = await open_chat(SessionLookup(db, keying), who)
    route = db.routing.get(key)
    assert route is not None
    assert make_chat(restore_source(db, route, keying), keying) == make_chat(who, keying)


async def test_a_session_from_another_chat_is_found_by_its_row(db: SessionDB) -> None:
    """The origin of the session names another chat. Only the routing row shows that the session belongs to
    this chat."""
    places = SessionLookup(db, Keying())
    key, _ = await open_chat(places, ANN)
    _, other = await open_chat(places, in_group(ANN))
    db.routing.switch(key, other)
    route = db.routing.get(key)
    assert route is not None
    result = restore_source(db, route, Keying())
    assert (result.chat_type, result.chat_id, result.user_id) == ("dm", "1", "1")
