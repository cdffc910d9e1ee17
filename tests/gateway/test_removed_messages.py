"""The author deletes a message on the platform. The message is removed from the context, the store and its
copies.
"""

from __future__ import annotations

from typing import Any

import pytest

from hermes import clock
from hermes.gateway.adapter import Receipt
from hermes.gateway.inbound_events import Event, Source
from hermes.store.sessions.redaction import REMOVED
from tests.gateway.local_gateway import ANN, BOB, LocalGateway, file, in_group, in_thread, settings_of
from tests.stored_rows import read_rows


async def removed(gateway: LocalGateway, who: Source, number: str) -> Receipt:
    """Delete a message on the platform. The platform does not say in which thread the message was."""
    source = Source("telegram", who.chat_id, chat_type="group", user_id=who.user_id, message_id=number)
    receipt = await gateway.platform.hear(Event(source, "", clock.now(), edits=number, removes=True), ())
    await gateway.quiet()
    return receipt


def stored(gateway: LocalGateway) -> str:
    return str(
        [
            read_rows(gateway.db, "SELECT content FROM messages"),
            read_rows(gateway.db, "SELECT event_json FROM inbox"),
            read_rows(gateway.db, "SELECT preview FROM sessions"),
            read_rows(gateway.db, "SELECT hash FROM blobs"),
        ]
    )


@pytest.mark.parametrize("who", [ANN, in_group(ANN), in_thread(ANN)])
async def test_the_last_message_is_gone_with_its_answer(who: Source) -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(who, "first", number="1")
        await gateway.asks(who, "hunter2", number="2")
        assert (await removed(gateway, who, "2")).state == "accepted"
        assert len(gateway.talk(who)) == 2
        assert "hunter2" not in stored(gateway)
        assert gateway.db.search_messages("hunter2") == []
        assert len(await gateway.asks(who, "third", number="3")) == 1
        assert "hunter2" not in str(gateway.brain.requests[-1].messages)
        assert (await removed(gateway, who, "2")).state == "duplicate"


async def test_an_older_message_keeps_its_place_without_its_content() -> None:
    picture = file("a.png", b"x" * 40_000, "image", "image/png")
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hunter2", number="1", offered=[picture])
        await gateway.asks(ANN, "second", number="2")
        before = gateway.talk(ANN)
        await removed(gateway, ANN, "1")
        assert gateway.talk(ANN) == [REMOVED, *before[1:]]
        assert read_rows(gateway.db, "SELECT hash FROM blobs") == []
        assert await gateway.asks(ANN, "/undo") != []
        assert gateway.talk(ANN) == [REMOVED, before[1]]


async def test_every_version_and_earlier_conversations_are_cleaned() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hunter2 one", number="1")
        await gateway.asks(ANN, "hunter2 two", number="1", edits="1")
        await gateway.asks(ANN, "/new")
        await gateway.asks(ANN, "other", number="2")
        await removed(gateway, ANN, "1")
        people = read_rows(gateway.db, "SELECT content FROM messages WHERE role = 'user' ORDER BY id")
        assert [row[0] for row in people] == [REMOVED, REMOVED, "other"]


async def test_a_message_that_waits_or_is_being_answered_is_not_answered() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold it", number="1")
        await gateway.holds("it")
        await gateway.says(ANN, "hunter2", number="2")
        receipt = Source("telegram", "1", chat_type="group", user_id="1")
        for number in ("2", "1"):
            source = receipt._replace(message_id=number)
            await gateway.platform.hear(Event(source, "", clock.now(), edits=number, removes=True), ())
        await gateway.quiet()
        assert "hunter2" not in gateway.brain.request_text
        assert gateway.talk(ANN) == []
        assert await gateway.asks(ANN, "next", number="3") == ["you said: next"]


async def test_nobody_can_remove_the_messages_of_another_chat() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello", number="1")
        await gateway.asks(BOB, "mine", number="2")
        receipt = await removed(gateway, BOB, "1")
        assert receipt.state in ("ignored", "accepted")
        assert gateway.talk(ANN) == ["hello", "you said: hello"]
        assert (await removed(gateway, Source("telegram", "77", user_id="77"), "5")).state == "ignored"


async def test_the_transcript_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LocalGateway(settings_of()) as gateway:
        transcripts: Any = gateway.app.mirrors[0]
        await gateway.asks(ANN, "first", number="1")
        await gateway.asks(ANN, "hunter2", number="2")
        transcripts.catch_up()
        copy = gateway.app.sessions / f"{gateway.session_of(ANN)}.jsonl"
        assert "hunter2" in copy.read_text()
        await removed(gateway, ANN, "2")
        transcripts.catch_up()
        assert "first" in copy.read_text()
        assert "hunter2" not in copy.read_text()
