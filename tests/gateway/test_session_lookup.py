"""The session of a chat is found, recovered or created, once."""

from __future__ import annotations

import asyncio

import pytest

from hermes.gateway.inbound_events import Source
from hermes.gateway.sessions.session_keys import make_chat
from hermes.gateway.sessions.session_lookup import SessionLookup, restore_source
from hermes.gateway.settings import Keying
from hermes_state import SessionDB
from tests.gateway.documented_key import make_session_key
from tests.gateway.local_gateway import ANN, BOB, in_group, in_thread

EVERYWHERE = [ANN, in_group(ANN), in_thread(ANN), ANN._replace(thread_id="3")]


@pytest.mark.parametrize("who", EVERYWHERE)
async def test_concurrent_messages_create_one_session(db: SessionDB, who: Source) -> None:
    places = SessionLookup(db, Keying())
    keys = await asyncio.gather(*(places.ensure_key(who) for _ in range(20)))
    assert set(keys) == {make_session_key(who)}
    assert db.session_count() == 1
    assert await SessionLookup(db, Keying()).ensure_key(who) == keys[0]
    assert db.session_count() == 1


@pytest.mark.parametrize("who", EVERYWHERE)
async def test_a_lookup_by_key_creates_no_session(db: SessionDB, who: Source) -> None:
    assert await SessionLookup(db, Keying()).find_key(who) == make_session_key(who)
    assert db.session_count() == 0


@pytest.mark.parametrize("who", EVERYWHERE)
async def test_a_chat_whose_row_was_lost_continues_in_its_session(db: SessionDB, who: Source) -> None:
    key = await SessionLookup(db, Keying()).ensure_key(who)
    session = db.routing.find_live_session(key)
    assert session is not None
    db.append_message(session, "user", "hello")
    db.routing.remove(key)
    places = SessionLookup(db, Keying())
    assert await places.ensure_key(who) == key
    assert await places.ensure_session(key, who) == session


async def test_the_session_of_another_person_is_not_recovered(db: SessionDB) -> None:
    places = SessionLookup(db, Keying())
    anns = await places.ensure_session(await places.ensure_key(in_group(ANN)), in_group(ANN))
    db.append_message(anns, "user", "hello")
    db.routing.remove(make_session_key(in_group(ANN)))
    bobs = await places.ensure_session(await places.ensure_key(in_group(BOB)), in_group(BOB))
    assert bobs != anns


@pytest.mark.parametrize("who", EVERYWHERE)
@pytest.mark.parametrize("keying", [Keying(), Keying(False), Keying(True, True)])
async def test_the_chat_of_a_session_is_found_in_the_store(
    db: SessionDB, who: Source, keying: Keying
) -> None:
    key = await SessionLookup(db, keying).ensure_key(who)
    route = db.routing.get(key)
    assert route is not None
    assert make_chat(restore_source(db, route, keying), keying) == make_chat(who, keying)


async def test_a_session_from_another_chat_is_found_by_its_row(db: SessionDB) -> None:
    """The origin of the session names another chat. Only the routing row shows that the session belongs to
    this chat."""
    places = SessionLookup(db, Keying())
    key = await places.ensure_key(ANN)
    other = await places.ensure_session(await places.ensure_key(in_group(ANN)), in_group(ANN))
    db.routing.switch(key, other)
    route = db.routing.get(key)
    assert route is not None
    result = restore_source(db, route, Keying())
    assert (result.chat_type, result.chat_id, result.user_id) == ("dm", "1", "1")
