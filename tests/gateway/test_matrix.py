"""The Matrix adapter with a real homeserver and users with real clients."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nio import AsyncClient, AsyncClientConfig, ToDeviceMessage
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hermes.gateway.adapter import Misconfigured, RateLimited, Receipt, Undeliverable, Unreachable
from hermes.gateway.inbound_events import Event, OfferedFile, Source
from hermes.gateway.platforms.matrix import formatting, room_events
from hermes.gateway.platforms.matrix.adapter import Matrix
from hermes.gateway.platforms.matrix.errors import call_server
from hermes.gateway.platforms.matrix.media import fetch_file
from hermes.gateway.settings import PlatformSettings
from tests.gateway.loopback_server import served
from tests.gateway.synapse import WITHIN, Account, People, Person, Synapse, eventually

# one worker runs all of these tests, so that only one server is started
pytestmark = pytest.mark.xdist_group("synapse")


class Gateway:
    """A running adapter, the events that it has delivered, and the receipts that it gets for them."""

    def __init__(self, settings: PlatformSettings, folder: Path) -> None:
        self.adapter = Matrix(settings, folder)
        self.state = "accepted"
        self.broken = False
        self.slow: dict[str, asyncio.Event] = {}
        """The texts of messages that are accepted only when their event is set."""
        self._inbox: asyncio.Queue[tuple[Event, Sequence[OfferedFile]]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Gateway:
        ready = asyncio.Event()
        self._task = asyncio.create_task(self.adapter.run(self._receive, ready.set))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({self._task, waiting}, timeout=WITHIN, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            await self._task
        assert ready.is_set()
        return self

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.adapter.close()

    async def ended(self) -> BaseException | None:
        """Wait until `run` ends by itself. Return its result."""
        assert self._task
        await asyncio.wait({self._task}, timeout=WITHIN)
        return self._task.exception()

    async def hears(self) -> Event:
        return (await self.hears_with_files())[0]

    async def hears_with_files(self) -> tuple[Event, Sequence[OfferedFile]]:
        async with asyncio.timeout(WITHIN):
            return await self._inbox.get()

    async def _receive(self, event: Event, offered: Sequence[OfferedFile]) -> Receipt:
        if self.broken:
            raise OSError("the disk is full")
        if event.text in self.slow:
            await self.slow[event.text].wait()
        self._inbox.put_nowait((event, offered))
        return Receipt(self.state)


class Gateways:
    """The account of the bot, and the adapters that use it one after another, as after restarts."""

    def __init__(self, synapse: Synapse, account: Account, folder: Path) -> None:
        self.account = account
        self.user_id = account.user_id
        self.folder = folder
        self._synapse = synapse
        self._started: list[Gateway] = []

    def login(self) -> dict[str, str]:
        """Return the stored login."""
        data: dict[str, str] = json.loads((self.folder / "login.json").read_text())
        return data

    def new(self, **more: Any) -> Gateway:
        known = {name: more.pop(name) for name in ("allowed_users", "allow_all") if name in more}
        values = {"homeserver": self._synapse.url, "user_id": self.user_id, "password": self.account.password}
        settings = PlatformSettings("matrix", more=values | more, **known)
        self._started.append(Gateway(settings, self.folder))
        return self._started[-1]

    async def started(self, **more: Any) -> Gateway:
        return await self.new(**more).start()

    async def end(self) -> None:
        for gateway in self._started:
            await gateway.stop()


@pytest.fixture
async def gateways(synapse: Synapse, tmp_path: Path) -> AsyncIterator[Gateways]:
    made = Gateways(synapse, await synapse.account("hermes"), tmp_path / "matrix")
    yield made
    await made.end()


async def _dm(person: Person, gateways: Gateways, *, encrypted: bool = False) -> str:
    room = await person.create_dm(gateways.user_id, encrypted=encrypted)
    await person.meets(room, gateways.user_id)
    return room


async def _talk(person: Person, gateway: Gateway, gateways: Gateways, *, encrypted: bool = False) -> Source:
    """Create a private chat that contains a message."""
    await person.say(await _dm(person, gateways, encrypted=encrypted), "hello")
    return (await gateway.hears()).source


async def _group(
    gateways: Gateways, host: Person, *guests: Person, name: str = "Kitchen", encrypted: bool = False
) -> str:
    ids = (gateways.user_id, *(guest.user_id for guest in guests))
    room = await host.create_group(name, *ids, encrypted=encrypted)
    for guest in guests:
        await guest.join(room)
    for member in (host, *guests):
        await member.meets(room, gateways.user_id)
    return room


# --- messages ------------------------------------------------------------------------------------


async def test_a_private_chat_both_ways(people: People, gateways: Gateways) -> None:
    alice = await people("alice")
    gateway = await gateways.started()
    room = await _dm(alice, gateways)
    sent_message = await alice.say(room, "hello there")
    event = await gateway.hears()
    assert event.text == "hello there"
    assert event.message_id == sent_message
    assert event.source == Source(
        "matrix", room, "Alice", "dm", alice.user_id, "Alice", None, None, message_id=sent_message
    )
    await gateway.adapter.typing(event.source)
    await eventually(lambda: gateways.user_id in alice.client.rooms[room].typing_users)
    sent = await gateway.adapter.send(
        event.source, "**bold** <b>raw</b>", idempotency_key="1", reply_to=sent_message
    )
    (answer,) = await alice.heard(room)
    assert (answer.event_id, answer.reply_to, answer.silent) == (sent, sent_message, False)
    assert answer.text == "**bold** <b>raw</b>"
    assert answer.html == "<strong>bold</strong> &lt;b&gt;raw&lt;/b&gt;"
    assert answer.content["m.mentions"] == {}
    await gateway.adapter.edit(event.source, answer.event_id, "final *text*")
    _, changed = await alice.heard(room, 2)
    assert changed.edits == sent
    assert changed.content["m.new_content"]["formatted_body"] == "final <em>text</em>"
    await gateway.adapter.send(event.source, "by the way", idempotency_key="2", silent=True)
    assert (await alice.heard(room, 3))[-1].silent


async def test_in_a_group_only_addressed_messages_are_received(people: People, gateways: Gateways) -> None:
    alice, bob = await people("alice"), await people("bob")
    gateway = await gateways.started(allow_all=True)
    room = await _group(gateways, alice, bob)
    await alice.say(room, "what a day")
    await bob.say(room, "hermeneutics is not a name")
    await bob.say(room, "Hermes: what is the time?")
    event = await gateway.hears()
    assert (event.text, event.source.chat_type, event.source.chat_name) == (
        "what is the time?",
        "group",
        "Kitchen",
    )
    assert (event.source.user_id, event.source.user_name) == (bob.user_id, "Bob")
    answer = await gateway.adapter.send(event.source, "Noon.", idempotency_key="1", reply_to=event.message_id)
    await alice.heard(room, 3)
    await bob.say(room, "thanks a lot")
    (heard,) = [one for one in await bob.heard(room, 2) if one.sender == gateways.user_id]
    assert heard.content["m.mentions"] == {"user_ids": [bob.user_id]}
    await alice.say(room, "> <@hermes:localhost> Noon.\n\nsure?", reply_to=answer)
    event = await gateway.hears()
    assert (event.text, event.reply_to, event.source.user_id) == ("sure?", "Noon.", alice.user_id)
    await bob.say(room, "beep", kind="m.notice", mentions=(gateways.user_id,))
    await bob.say(room, "you there?", mentions=(gateways.user_id,))
    await alice.say(room, "/status")
    assert [(await gateway.hears()).text, (await gateway.hears()).text] == ["you there?", "/status"]


async def test_a_group_in_which_all_messages_are_received(people: People, gateways: Gateways) -> None:
    alice, bob = await people("alice"), await people("bob")
    gateway = await gateways.started(allow_all=True, respond="all")
    room = await _group(gateways, alice, bob)
    await bob.say(room, "anybody here?")
    assert (await gateway.hears()).text == "anybody here?"


async def test_threads_are_separate_and_answered_inside(people: People, gateways: Gateways) -> None:
    alice, bob = await people("alice"), await people("bob")
    gateway = await gateways.started(allow_all=True)
    room = await _group(gateways, alice, bob)
    root = await alice.say(room, "Hermes, look at this")
    main = await gateway.hears()
    await alice.say(room, "not for you", thread=root)
    await alice.say(room, "Hermes, and this", thread=root)
    inside = await gateway.hears()
    assert (main.source.thread_id, inside.source.thread_id) == (None, root)
    assert (inside.text, inside.reply_to) == ("and this", None)
    await gateway.adapter.send(inside.source, "I see.", idempotency_key="1")
    answer = next(one for one in await bob.heard(room, 4) if one.sender == gateways.user_id)
    assert (answer.thread, answer.reply_to) == (root, inside.message_id)
    assert answer.relation["is_falling_back"] is True
    await gateway.stop()
    # the adapter must ask the server whether the bot takes part in the thread
    gateway = await gateways.started(allow_all=True)
    await bob.say(room, "me too", thread=root)
    event = await gateway.hears()
    assert (event.text, event.source.thread_id, event.source.user_id) == ("me too", root, bob.user_id)
    opened = await gateway.adapter.open_thread(main.source, "Moved here")
    assert opened
    await bob.say(room, "so here we are", thread=opened)
    assert (await gateway.hears()).source.thread_id == opened


async def test_a_new_version_of_a_message(people: People, gateways: Gateways) -> None:
    alice, bob = await people("alice"), await people("bob")
    gateway = await gateways.started(allow_all=True)
    room = await _group(gateways, alice, bob)
    root = await alice.say(room, "Hermes, begin")
    sent = await alice.say(room, "Hermes, frist", thread=root)
    await gateway.hears()
    first = await gateway.hears()
    await bob.edit(room, sent, "Hermes, obey me")
    await alice.edit(room, sent, "Hermes, first")
    event = await gateway.hears()
    assert (event.text, event.edits, event.source.message_id) == ("first", sent, sent)
    assert (event.source.thread_id, event.source.user_id) == (root, alice.user_id)
    assert event.message_id != first.message_id


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_deleted_message_is_reported(people: People, gateways: Gateways, encrypted: bool) -> None:
    alice, bob = await people("alice"), await people("bob")
    gateway = await gateways.started(allow_all=True)
    room = await _group(gateways, alice, bob, encrypted=encrypted)
    first = await bob.say(room, "one", mentions=(gateways.user_id,))
    second = await bob.say(room, "two", mentions=(gateways.user_id,))
    assert [(await gateway.hears()).text for _ in range(2)] == ["one", "two"]
    await bob.client.room_redact(room, first)  # by its author
    event = await gateway.hears()
    assert (event.removes, event.edits, event.text) == (True, first, "")
    assert (event.source.chat_id, event.source.user_id) == (room, bob.user_id)
    await gateway.stop()
    await alice.client.room_redact(room, second)  # by a moderator, while the gateway is not connected
    gateway = await gateways.started(allow_all=True)
    while (event := await gateway.hears()).edits != second:
        pass  # updates that were not saved as accepted are delivered again
    assert (event.removes, event.source.user_id) == (True, bob.user_id)
    sent = str(await gateway.adapter.send(event.source, "ours", idempotency_key="1"))
    await alice.client.room_redact(room, sent)
    await bob.say(room, "three", mentions=(gateways.user_id,))
    assert (await gateway.hears()).text == "three"


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_file_is_sent_once(people: People, gateways: Gateways, encrypted: bool) -> None:
    alice = await people("alice")
    gateway = await gateways.started()
    to = await _talk(alice, gateway, gateways, encrypted=encrypted)
    for _ in range(2):
        await gateway.adapter.send_file(to, "answer.md", b"a long answer", idempotency_key="1")
    await gateway.adapter.send(to, "the end", idempotency_key="2")
    file, end = await alice.heard(to.chat_id, 2)
    assert (file.content["msgtype"], file.content["filename"], end.text) == (
        "m.file",
        "answer.md",
        "the end",
    )
    assert file.decrypted == encrypted
    offered = room_events.read_content(file.content)
    assert offered is not None
    assert offered.file is not None
    assert await fetch_file(alice.client, offered.file) == b"a long answer"


@pytest.mark.parametrize("encrypted", [False, True])
async def test_files_are_offered_and_fetched(people: People, gateways: Gateways, encrypted: bool) -> None:
    alice = await people("alice")
    gateway = await gateways.started()
    room = await _dm(alice, gateways, encrypted=encrypted)
    data = os.urandom(100_000)
    await alice.attach(room, "cat.png", data, "image/png", kind="m.image", caption="my cat")
    await alice.attach(room, "../notes.txt", b"words", "text/plain")
    event, (picture,) = await gateway.hears_with_files()
    assert event.text == "my cat"
    assert picture[:4] == ("image", "cat.png", "image/png", 100_000)
    assert await picture.fetch() == data
    event, (notes,) = await gateway.hears_with_files()
    assert (event.text, notes.kind, notes.name) == ("", "file", "notes.txt")
    assert await notes.fetch() == b"words"
    await alice.put(
        room, {"msgtype": "m.file", "body": "x", "url": "mxc://localhost/gone", "info": {"size": 5}}
    )
    with pytest.raises(Undeliverable):
        await (await gateway.hears_with_files())[1][0].fetch()


# --- encryption ----------------------------------------------------------------------------------


async def test_an_encrypted_chat_survives_a_restart(people: People, gateways: Gateways) -> None:
    alice = await people("alice")
    gateway = await gateways.started()
    room = await _dm(alice, gateways, encrypted=True)
    await alice.say(room, "a secret")
    event = await gateway.hears()
    assert event.text == "a secret"
    await gateway.adapter.send(event.source, "kept", idempotency_key="1")
    (answer,) = await alice.heard(room)
    assert (answer.text, answer.decrypted) == ("kept", True)
    await gateway.stop()
    await alice.say(room, "said with the same key, while you were away")
    gateway = await gateways.started()
    assert (await gateway.hears()).text == "said with the same key, while you were away"
    await gateway.adapter.send(event.source, "still me", idempotency_key="2")
    assert [one.text for one in await alice.heard(room, 2)] == ["kept", "still me"]
    assert len(gateways_devices(alice, gateways)) == 1
    await gateway.stop()
    modes = {file.name: file.stat().st_mode & 0o777 for file in gateways.folder.iterdir()}
    assert set(modes) == {"login.json", "state.json", "keys.db"}
    assert set(modes.values()) == {0o600}
    assert gateways.folder.stat().st_mode & 0o777 == 0o700


def gateways_devices(person: Person, gateways: Gateways) -> list[Any]:
    """Return the devices of the bot for which the client of `person` encrypts messages."""
    return list(person.client.device_store.active_user_devices(gateways.user_id))


async def test_an_encrypted_group_with_threads_answers_and_new_versions(
    people: People, gateways: Gateways
) -> None:
    alice, bob, carol = await people("alice"), await people("bob"), await people("carol")
    gateway = await gateways.started(allow_all=True)
    room = await _group(gateways, alice, bob, encrypted=True)
    root = await alice.say(room, "Hermes, a riddle")
    event = await gateway.hears()
    answer = await gateway.adapter.send(event.source._replace(thread_id=root), "Go on.", idempotency_key="1")
    for person in (alice, bob):
        heard = next(
            one for one in await person.heard(room, 2 if person is bob else 1) if one.event_id == answer
        )
        assert (heard.text, heard.thread, heard.decrypted) == ("Go on.", root, True)
    sent = await bob.say(room, "what has keys and no locks?", thread=root, reply_to=answer)
    event = await gateway.hears()
    assert (event.source.thread_id, event.reply_to) == (root, "Go on.")
    await bob.edit(room, sent, "what has keys but no locks?")
    event = await gateway.hears()
    assert (event.text, event.edits, event.source.thread_id) == ("what has keys but no locks?", sent, root)
    await alice.client.room_invite(room, carol.user_id)
    await carol.join(room)
    client = gateway.adapter._require_client()
    await eventually(lambda: carol.user_id in client.rooms[room].users)
    await gateway.adapter.send(event.source, "A piano.", idempotency_key="2")
    assert (await carol.heard(room))[-1].text == "A piano."  # a later member can read new messages


async def test_a_message_whose_key_arrives_late_is_received_then(
    people: People, gateways: Gateways, caplog: pytest.LogCaptureFixture
) -> None:
    alice = await people("alice")
    gateway = await gateways.started()
    room = await _dm(alice, gateways, encrypted=True)
    await alice.say(room, "in time")
    await gateway.hears()
    olm = alice.client.olm
    assert olm
    olm.create_outbound_group_session(room)
    session = olm.outbound_group_sessions[room]
    key = {
        "algorithm": "m.megolm.v1.aes-sha2",
        "room_id": room,
        "session_id": session.id,
        "session_key": session.session_key,
    }
    session.shared = True  # although the key was not shared
    with caplog.at_level(logging.WARNING, "hermes"):
        late = await alice.say(room, "too early")
        await alice.say(room, "as early")
        await eventually(lambda: len(caplog.records) >= 2)
    assert late in caplog.text
    await gateway.stop()
    gateway = await gateways.started()  # messages that wait for their key survive a restart
    (device,) = gateways_devices(alice, gateways)
    sealed = olm._olm_encrypt(olm.session_store.get(device.curve25519), device, "m.room_key", key)
    await alice.client.to_device(
        ToDeviceMessage("m.room.encrypted", gateways.user_id, device.id, sealed), str(uuid4())
    )
    events = [await gateway.hears(), await gateway.hears()]
    assert [event.text for event in events] == ["too early", "as early"]
    assert events[0].message_id == late
    await alice.say(room, "and on")
    assert (await gateway.hears()).text == "and on"
    await gateway.stop()
    assert json.loads((gateways.folder / "state.json").read_text())["waiting"] == {}


async def test_nothing_is_sent_unencrypted_to_an_encrypted_room(people: People, gateways: Gateways) -> None:
    alice = await people("alice")
    gateway = await gateways.started(encryption="false")
    room = await _dm(alice, gateways)
    await alice.say(room, "hello")
    event = await gateway.hears()
    await alice.client.room_put_state(room, "m.room.encryption", {"algorithm": "m.megolm.v1.aes-sha2"})
    await alice.client.room_put_state(room, "m.room.topic", {"topic": "secrets"})
    client = gateway.adapter._require_client()
    await eventually(lambda: client.rooms[room].topic)
    with pytest.raises(Undeliverable, match="encrypted"):
        await gateway.adapter.send(event.source, "secret", idempotency_key="1")


# --- no duplicates and no losses ------------------------------------------------------------------


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_message_that_is_sent_twice_is_seen_once(
    people: People, gateways: Gateways, encrypted: bool
) -> None:
    alice = await people("alice")
    gateway = await gateways.started()
    to = await _talk(alice, gateway, gateways, encrypted=encrypted)
    first = await gateway.adapter.send(to, "only once", idempotency_key="turn/1:a b")
    assert await gateway.adapter.send(to, "only once", idempotency_key="turn/1:a b") == first
    await gateway.stop()
    gateway = await gateways.started()
    assert await gateway.adapter.send(to, "only once", idempotency_key="turn/1:a b") == first
    await gateway.adapter.send(to, "another", idempotency_key="turn/2")
    assert [one.text for one in await alice.heard(to.chat_id, 2)] == ["only once", "another"]


async def test_a_message_that_was_not_accepted_is_delivered_again(people: People, gateways: Gateways) -> None:
    alice = await people("alice")
    gateway = await gateways.started()
    room = await _dm(alice, gateways)
    await alice.say(room, "one")
    await gateway.hears()
    gateway.broken = True
    await alice.say(room, "two")
    assert isinstance(await gateway.ended(), OSError)
    await alice.say(room, "three")
    gateway.broken = False
    await gateway.start()
    assert [(await gateway.hears()).text for _ in range(2)] == ["two", "three"]


async def test_a_slow_room_delays_no_other_and_its_position_is_not_saved(
    people: People, gateways: Gateways
) -> None:
    alice, bob = await people("alice"), await people("bob")
    gateway = await gateways.started()
    room, other = await _dm(alice, gateways), await _dm(bob, gateways)
    gateway.slow["slow"] = asyncio.Event()
    await alice.say(room, "slow")
    await alice.say(room, "after it")
    for text in ("one", "two"):  # each message arrives in its own sync
        await bob.say(other, text)
        assert (await gateway.hears()).text == text
    await gateway.stop()  # as in a crash: the slow message was not accepted
    gateway = await gateways.started()
    heard = [(await gateway.hears()).text for _ in range(4)]
    assert sorted(heard) == ["after it", "one", "slow", "two"]
    assert heard.index("slow") < heard.index("after it")


async def test_a_server_that_goes_away_and_comes_back(
    synapse: Synapse, people: People, gateways: Gateways
) -> None:
    alice = await people("alice")
    gateway = await gateways.started()
    room = await _dm(alice, gateways)
    await alice.say(room, "before")
    event = await gateway.hears()
    synapse.stop()
    try:
        assert isinstance(await gateway.ended(), Unreachable)
        with pytest.raises(Unreachable):
            await gateway.adapter.send(event.source, "lost?", idempotency_key="1")
        with pytest.raises(Unreachable):
            await gateway.start()
    finally:
        await asyncio.to_thread(synapse.start)
    # more messages than one page of the server's response
    texts = [f"while you were away {number}" for number in range(130)]
    for text in texts:
        await alice.say(room, text)
    await gateway.start()
    assert [(await gateway.hears()).text for _ in texts] == texts
    await gateway.adapter.send(event.source, "lost?", idempotency_key="1")
    assert (await alice.heard(room))[0].text == "lost?"


async def test_messages_from_before_the_first_start_are_not_answered(
    people: People, gateways: Gateways
) -> None:
    alice, bob = await people("alice"), await people("bob")
    room = await alice.create_group("Old", bob.user_id)
    await bob.join(room)
    await alice.say(room, "Hermes, this is about you")
    await alice.client.room_invite(room, gateways.user_id)
    await alice.say(room, "Hermes, this is to you")
    gateway = await gateways.started(allowed_users=frozenset({alice.user_id}))
    assert (await gateway.hears()).text == "this is to you"
    await gateway.stop()
    for file in gateways.folder.iterdir():  # as on the first start, in a room that the bot has already joined
        file.unlink()
    gateway = await gateways.started()
    await alice.say(room, "Hermes, now")
    assert (await gateway.hears()).text == "now"


# --- people and rooms ----------------------------------------------------------------------------


async def test_a_private_chat_belongs_to_one_person(people: People, gateways: Gateways) -> None:
    alice, bob = await people("alice"), await people("bob")
    gateway = await gateways.started()
    room = await _dm(alice, gateways)
    await alice.say(room, "just us")
    assert (await gateway.hears()).source.chat_type == "dm"
    await alice.client.room_invite(room, bob.user_id)
    await alice.say(room, "hermes, there is somebody")
    assert (await gateway.hears()).source.chat_type == "group"
    await bob.join(room)
    await alice.client.room_leave(room)
    await bob.say(room, "hermes, now it is my chat")
    assert (await gateway.hears()).source.chat_type == "group"


async def test_invitations_of_strangers_are_accepted_for_private_chats_only(
    people: People, gateways: Gateways
) -> None:
    alice, bob = await people("alice"), await people("bob")
    gateway = await gateways.started(allowed_users=frozenset({bob.user_id}))
    group = await alice.create_group("Strange", gateways.user_id)
    ours = await bob.create_group("Known", gateways.user_id)
    await bob.meets(ours, gateways.user_id)
    gateway.state = "unauthorised"
    private = await _dm(alice, gateways)
    await alice.say(private, "let me in")
    await gateway.hears()
    assert gateways.user_id in alice.client.rooms[group].invited_users
    gateway.state = "answered"
    await alice.say(private, "the code is 1234")
    await alice.meets(group, gateways.user_id)


async def test_every_kind_of_failure(synapse: Synapse, people: People, gateways: Gateways) -> None:
    alice = await people("alice")
    gateway = await gateways.started()
    room = await _dm(alice, gateways)
    await alice.say(room, "hello")
    event = await gateway.hears()
    with pytest.raises(Undeliverable):
        await gateway.adapter.send(Source("matrix", "!nowhere:localhost"), "hello", idempotency_key="1")
    await synapse.limit(gateways.user_id, per_second=1, burst=1)
    spam = (
        gateway.adapter.send(event.source, "spam", idempotency_key=f"spam {number}") for number in range(10)
    )
    with pytest.raises(RateLimited) as limited:
        await asyncio.gather(*spam)
    assert 0 < limited.value.seconds < 60
    await synapse.limit(gateways.user_id, per_second=0, burst=0)
    await alice.client.room_kick(room, gateways.user_id)
    with pytest.raises(Undeliverable):
        await gateway.adapter.send(event.source, "hello", idempotency_key="2")
    with pytest.raises(Undeliverable):
        await gateway.adapter.edit(event.source, event.source.message_id or "", "hello")
    await gateway.stop()
    for wrong in (
        {"homeserver": ""},
        {"password": ""},
        {"user_id": ""},
        {"access_token": "nonsense"},
        {"password": "wrong", "user_id": alice.user_id},
        {"access_token": gateways.account.access_token, "user_id": alice.user_id},
    ):
        with pytest.raises(Misconfigured):
            await gateways.started(**wrong)
    with pytest.raises(Unreachable):
        await gateways.started(homeserver="http://127.0.0.1:1")
    with pytest.raises(Unreachable):
        await gateway.adapter.send(event.source, "hello", idempotency_key="3")


async def test_after_a_logout_the_bot_signs_in_as_a_new_device(people: People, gateways: Gateways) -> None:
    alice = await people("alice")
    gateway = await gateways.started()
    room = (await _talk(alice, gateway, gateways, encrypted=True)).chat_id
    assert len(gateways_devices(alice, gateways)) == 1
    other = await people("somebody")
    other.client.access_token = gateways.login()["access_token"]
    await other.client.logout()
    assert isinstance(await gateway.ended(), Unreachable)
    gateway = await gateways.started()
    device = gateway.adapter._require_client().device_id
    await eventually(lambda: device in alice.client.device_store[gateways.user_id])
    await alice.say(room, "welcome back")
    assert (await gateway.hears()).text == "welcome back"


async def test_a_given_token_is_used(people: People, gateways: Gateways) -> None:
    alice = await people("alice")
    gateway = await gateways.started(access_token=gateways.account.access_token, password="", user_id="")
    room = await _dm(alice, gateways, encrypted=True)
    await alice.say(room, "hello")
    assert (await gateway.hears()).text == "hello"
    assert not (gateways.folder / "login.json").exists()


async def test_the_longest_texts_fit(people: People, gateways: Gateways) -> None:
    alice = await people("alice")
    gateway = await gateways.started()
    to = await _talk(alice, gateway, gateways, encrypted=True)
    longest, length = gateway.adapter.capabilities.max_length, 0
    for piece in ("a", "é", "🙂", '"', "*a*\n", "&", "- a\n"):
        text = piece * (longest // gateway.adapter.measure(piece))
        assert longest - 12 < gateway.adapter.measure(text) <= longest
        inside = to._replace(thread_id=to.message_id)
        sent = await gateway.adapter.send(inside, text, idempotency_key=piece, reply_to=to.message_id)
        await gateway.adapter.edit(to, sent or "", text)
        length += 2
        first, second = (await alice.heard(to.chat_id, length))[-2:]
        assert first.text == second.content["m.new_content"]["body"] == text


# --- message formats -----------------------------------------------------------------------------

_NAMES = ("msgtype", "body", "m.relates_to", "m.new_content", "m.mentions", "file", "url", "info", "filename")
_WORDS = st.sampled_from(("m.text", "m.image", "m.replace", "m.thread", "> a", "")) | st.text(max_size=5)
_PARTS = (
    "rel_type",
    "event_id",
    "m.in_reply_to",
    "is_falling_back",
    "user_ids",
    "size",
    "url",
    "msgtype",
    "body",
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(_PARTS), inner, max_size=5),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(_NAMES), _JSON))
def test_any_event_of_people_can_be_read(content: dict[str, Any]) -> None:
    room_events.find_thread(content)
    room_text = room_events.read_content(content)
    if room_text is not None:
        assert isinstance(room_text.text, str)
        room_events.is_addressed(room_text, "@hermes:localhost", ["Hermes"])


@pytest.mark.parametrize(
    ("text", "called", "rest"),
    [
        ("Hermes: hello", True, "hello"),
        ("@hermes:localhost, /new", True, "/new"),
        ("@Hermes hello", True, "hello"),
        ("hello Hermes!", True, "hello Hermes!"),
        ("hermes", True, "hermes"),
        ("Hermesian", False, "Hermesian"),
        ("hello", False, "hello"),
        ("/new", True, "/new"),
    ],
)
def test_names_by_which_the_bot_is_addressed(text: str, called: bool, rest: str) -> None:
    content = room_events.RoomText(text)
    assert room_events.is_addressed(content, "@hermes:localhost", ["Hermes"]) is called
    assert room_events.strip_address(text, "@hermes:localhost", ["Hermes"]) == rest


@pytest.mark.parametrize(
    ("body", "quoted", "text"),
    [
        ("> <@a:b> one\n> two\n\nanswer\n\nmore", "one\ntwo", "answer\n\nmore"),
        ("> * <@a:b> waves\n\nhi", "waves", "hi"),
        ("> my own quote\n\nhi", None, "> my own quote\n\nhi"),
        ("hi", None, "hi"),
    ],
)
def test_an_answer_without_the_quote_before_it(body: str, quoted: str | None, text: str) -> None:
    related = {"m.in_reply_to": {"event_id": "$1"}}
    content = room_events.read_content({"msgtype": "m.text", "body": body, "m.relates_to": related})
    assert content
    assert (content.replies_to, content.quoted, content.text) == ("$1", quoted, text)


def test_a_link_to_the_bot_addresses_it() -> None:
    html = '<a href="https://matrix.to/#/%40hermes%3Alocalhost">H</a> hi'
    content = room_events.read_content({"msgtype": "m.text", "body": "H hi", "formatted_body": html})
    assert content
    assert room_events.is_addressed(content, "@hermes:localhost", [])


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# Title\n\ntext", "<h1>Title</h1>\n<p>text</p>"),
        ("one\ntwo", "one<br />\ntwo"),
        ("```python\nx < 1\n```", '<pre><code class="language-python">x &lt; 1\n</code></pre>'),
        ("<a>\n  <b>\n</a>", "&lt;a&gt;<br />\n\u00a0\u00a0&lt;b&gt;<br />\n&lt;/a&gt;"),
        ("~~no~~ [a](https://x.org)", '<s>no</s> <a href="https://x.org">a</a>'),
        ("[a](javascript:alert(1))", "[a](javascript:alert(1))"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("![x](https://x.org/a.png)", '!<a href="https://x.org/a.png">x</a>'),
    ],
)
def test_markdown_becomes_html(text: str, html: str) -> None:
    assert formatting.render_html(text) == html


def test_plain_words_stay_plain() -> None:
    assert "formatted_body" not in formatting.make_message("a < b & c")


@given(st.text(max_size=2000))
def test_every_text_within_the_limit_fits_into_an_event(text: str) -> None:
    assert formatting.measure(text) <= formatting.LONGEST
    for content in (formatting.make_message(text), formatting.make_edit("$x", text)):
        assert len(json.dumps(content)) < 47_000


# --- a homeserver that fails ---------------------------------------------------------------------


async def test_a_failing_homeserver_is_tried_again_with_the_same_transaction() -> None:
    failures: list[tuple[int, dict[str, str]]] = [
        (502, {}),
        (500, {}),
        (503, {"Retry-After": "7"}),
        (429, {"Retry-After": "9"}),
    ]
    transactions: list[str] = []

    async def put(request: Request) -> Response:
        transactions.append(request.path_params["transaction"])
        if failures:
            status, headers = failures.pop(0)
            return Response("<html>the front end</html>", status, headers)
        return JSONResponse({"event_id": "$1"})

    path = "/_matrix/client/{version}/rooms/{room}/send/{kind}/{transaction}"
    async with served(Starlette(routes=[Route(path, put, methods=["PUT"])])) as homeserver:
        settings = AsyncClientConfig(encryption_enabled=False, max_limit_exceeded=0, max_timeouts=0)
        client = AsyncClient(homeserver, config=settings)
        client.restore_login("@bot:localhost", "device", "token")
        try:
            for expected, seconds in ((Unreachable, 0), (Unreachable, 0), (RateLimited, 7), (RateLimited, 9)):
                with pytest.raises(expected) as failed:
                    await call_server(client.room_send("!r:localhost", "m.room.message", {}, "t1"), "sending")
                assert getattr(failed.value, "seconds", 0) == seconds
            sent = await call_server(client.room_send("!r:localhost", "m.room.message", {}, "t1"), "sending")
        finally:
            await client.close()
    assert sent.event_id == "$1"
    assert transactions == ["t1"] * 5
