"""A message of a platform reaches the right conversation, once, and only if its sender has access."""

from __future__ import annotations

import asyncio

import pytest

from hermes import errors
from hermes.gateway.commands.visible_conversations import IN_TRASH
from hermes.gateway.inbound import received_files
from hermes.gateway.inbound.chat_state import REPLACED, TRASHED
from hermes.gateway.inbound.mailbox import MOST_TRIES
from hermes.gateway.inbound.message_processor import BROKEN
from hermes.gateway.inbound_events import Source
from hermes.gateway.settings import Keying
from tests.gateway.documented_key import make_session_key
from tests.gateway.local_gateway import (
    ANN,
    BOB,
    LocalGateway,
    file,
    full_disk,
    in_group,
    in_thread,
    settings_of,
)


async def test_a_hundred_messages_of_a_new_chat_make_one_session() -> None:
    async with LocalGateway() as gateway:
        receipts = await asyncio.gather(*(gateway.says(ANN, f"{number}") for number in range(100)))
        assert {receipt.state for receipt in receipts} == {"accepted"}
        await gateway.quiet()
        assert len(gateway.heard(ANN)) == 100
        assert gateway.db.session_count() == 1


async def test_a_message_that_is_delivered_twice_is_answered_once() -> None:
    async with LocalGateway() as gateway:
        assert (await gateway.says(ANN, "hello", number="5")).state == "accepted"
        assert (await gateway.says(ANN, "hello", number="5")).state == "duplicate"
        await gateway.quiet()
        assert (await gateway.says(ANN, "hello", number="5")).state == "duplicate"
        await gateway.restart()
        assert (await gateway.says(ANN, "hello", number="5")).state == "duplicate"
        await gateway.quiet()
        assert gateway.heard(ANN) == ["you said: hello"]


async def test_the_same_number_in_another_chat_is_another_message() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hello", number="5")
        assert (await gateway.says(BOB, "hello", number="5")).state == "accepted"
        await gateway.quiet()
        assert gateway.heard(BOB) == ["you said: hello"]


async def test_a_command_that_is_delivered_twice_is_answered_once() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        for number in ("6", "7"):
            for _ in range(2):
                await gateway.says(ANN, "/status" if number == "6" else "/title Rome", number=number)
                await gateway.quiet()
        assert len(gateway.heard(ANN)) == 3


async def test_strangers_leave_no_trace() -> None:
    async with LocalGateway(
        settings_of(platform={"allow_all": False, "allowed_users": frozenset({"1"})})
    ) as gateway:
        fetched = file("a.txt", b"mischief")
        for text in ("hello", "/help", "/new", "/pair 123", "/status"):
            receipt = await gateway.says(BOB, text, offered=[fetched])
            assert receipt.state == "unauthorised"
        assert await gateway.asks(ANN, "hello") == ["you said: hello"]
        assert gateway.heard(BOB) == []
        assert gateway.db.session_count() == 1
        assert "mischief" not in gateway.brain.request_text
        assert not received_files.incoming_folder().exists()


async def test_bots_are_strangers() -> None:
    async with LocalGateway() as gateway:
        assert (await gateway.says(ANN._replace(is_bot=True), "hello")).state == "unauthorised"


async def test_messages_over_the_rate_limit_are_dropped_with_one_notice() -> None:
    async with LocalGateway(settings_of(messages_per_minute=3)) as gateway:
        states = [(await gateway.says(ANN, f"{number}")).state for number in range(6)]
        assert states == ["accepted"] * 3 + ["limited"] * 3
        assert (await gateway.says(BOB, "hello")).state == "accepted"
        await gateway.quiet()
        assert sum("more than 3 messages" in text for text in gateway.heard(ANN)) == 1


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("thread", [True, False])
async def test_who_shares_a_conversation(group: bool, thread: bool) -> None:
    keying = Keying(group_sessions_per_user=group, thread_sessions_per_user=thread)
    async with LocalGateway(settings_of(keying=keying)) as gateway:
        for place in (in_group, in_thread):
            for who in (ANN, BOB):
                await gateway.asks(place(who), f"{who.user_name} says so")
        assert (gateway.session_of(in_group(ANN)) == gateway.session_of(in_group(BOB))) is not group
        shares_threads = not thread
        assert (gateway.session_of(in_thread(ANN)) == gateway.session_of(in_thread(BOB))) is shares_threads
        assert ("Ann" in " ".join(gateway.talk(in_thread(BOB)))) is shares_threads
        assert gateway.session_of(in_group(ANN)) != gateway.session_of(in_thread(ANN))


async def test_waiting_messages_are_found_after_a_change_of_sharing() -> None:
    async with LocalGateway(settings_of(drain_seconds=0.01)) as gateway:
        for who in (ANN, BOB):
            await gateway.says(in_group(who), "hold on")
        await gateway.until(lambda: len(gateway.brain.held) == 2)
        await gateway.restart(settings_of(keying=Keying(group_sessions_per_user=False)))
        gateway.let_go("on")
        await gateway.quiet()
        assert len(gateway.heard(in_group(ANN))) == 2


async def test_a_message_that_cannot_be_stored_is_not_accepted() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        with full_disk():
            with pytest.raises(errors.StoreError):
                await gateway.says(ANN, "lost?", number="9", offered=[file("a.txt", b"a")])
            assert list(received_files.incoming_folder().iterdir()) == []
        assert await gateway.asks(ANN, "lost?", number="9") == ["you said: lost?"]


async def test_a_chat_whose_conversation_is_in_the_trash_begins_another() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        old = gateway.session_of(ANN)
        gateway.db.trash_session(old)
        assert await gateway.asks(ANN, "again") == [REPLACED, "you said: again"]
        new = gateway.session_of(ANN)
        assert new != old
        assert [row["content"] for row in gateway.db.get_messages(new)][:1] == ["again"]
        assert await gateway.asks(ANN, "and again") == ["you said: and again"]
        gateway.db.restore_session(old)
        assert gateway.session_of(ANN) == new


@pytest.mark.parametrize("restarted", [False, True])
async def test_commands_report_that_the_conversation_is_in_the_trash(restarted: bool) -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        gateway.db.trash_session(gateway.session_of(ANN))
        if restarted:
            await gateway.restart()
        for command in ("/status", "/why", "/usage"):
            (answer,) = await gateway.asks(ANN, command)
            assert IN_TRASH in answer
            assert "Nothing was said" not in answer
        (replies, _) = await gateway.asks(ANN, "/title Fresh")
        assert replies == REPLACED
        (answer,) = await gateway.asks(ANN, "/why")
        assert TRASHED in answer
        assert IN_TRASH not in answer


async def test_a_restarted_gateway_reports_that_a_conversation_is_in_the_trash() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(in_group(ANN), "hello")
        gateway.db.trash_session(gateway.session_of(in_group(ANN)))
        await gateway.restart()
        assert await gateway.asks(in_group(ANN), "again") == [REPLACED, "you said: again"]


async def test_only_a_message_begins_another_conversation() -> None:
    """The router wakes a chat for a reset, and also after the last message of the chat. Waking a chat does
    not begin a new conversation."""
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        gateway.db.trash_session(gateway.session_of(ANN))
        key = make_session_key(ANN)
        await gateway.app.router.wake(key)
        await gateway.until(lambda: gateway.app.router.mailbox(key, ANN).is_idle)
        assert gateway.db.routing.find_live_session(key) is None
        assert await gateway.asks(ANN, "again") == [REPLACED, "you said: again"]


async def test_a_conversation_trashed_during_an_answer_continues_in_another() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        old = gateway.session_of(ANN)
        await gateway.says(ANN, "hold gate")
        await gateway.holds("gate")
        gateway.db.trash_session(old)
        gateway.brain.gate("gate").set()
        await gateway.quiet()
        answer, new = gateway.heard(ANN)[-1], gateway.session_of(ANN)
        assert new != old
        assert f"continues in a new session, {new}" in answer
        assert "hermes sessions" not in answer  # people on a platform cannot run it
        assert TRASHED in str(await gateway.asks(ANN, "/why"))
        rows = gateway.db.get_messages(new)
        assert [row["role"] for row in rows] == ["user", "assistant"]
        assert rows[0]["content"] == "hold gate"
        assert answer.startswith(rows[1]["content"])
        assert await gateway.asks(ANN, "next") == ["you said: next"]
        assert gateway.db.inbox.list_waiting(make_session_key(ANN)) == []


async def test_a_private_chat_belongs_to_one_person() -> None:
    """A program may send messages of several people under the id of one private chat. Each person still has a
    separate conversation."""
    ann, bob = (who._replace(chat_id="support") for who in (ANN, BOB))
    async with LocalGateway() as gateway:
        await gateway.asks(ann, "my word is OSTRICH")
        for _ in range(2):
            count = len(gateway.brain.requests)
            assert (await gateway.asks(bob, "and mine is HERON"))[-1].endswith("HERON")
            assert "OSTRICH" not in str(gateway.brain.requests[count:])
            for command in ("/status", "/title", "/why", "/resend"):
                answer = str(await gateway.asks(bob, command))
                assert "OSTRICH" not in answer
                assert gateway.session_of(ann) not in answer
            await gateway.restart()
        count = len(gateway.brain.requests)
        await gateway.asks(ann, "and again")
        assert "HERON" not in str(gateway.brain.requests[count:])
        assert "OSTRICH" in str(gateway.brain.requests[count:])


async def test_two_people_who_begin_a_private_chat_at_the_same_moment_are_two() -> None:
    people = [who._replace(chat_id="support") for who in (ANN, BOB)]
    async with LocalGateway() as gateway:
        await asyncio.gather(*(gateway.says(who, f"I am {who.user_name}") for who in people))
        await gateway.quiet()
        for request in gateway.brain.requests:
            text = str(request.messages)
            assert ("I am Ann" in text) != ("I am Bob" in text)


async def test_lone_surrogates_in_names_of_chats_are_accepted() -> None:
    half = "\ud83d"
    who = Source("telegram", f"{half}1", half, "group", f"{half}2", half, f"{half}3", half)
    async with LocalGateway() as gateway:
        receipt = await gateway.says(who, f"hello {half}", number=half, reply_to=half)
        assert receipt.state == "accepted"
        await gateway.quiet()
        assert len(gateway.platform.messages) == 1


async def test_a_message_that_always_fails_is_given_up_and_reported() -> None:
    async def wrong() -> bytes:
        raise ZeroDivisionError

    offered = [file("a.txt", b"a")._replace(fetch=wrong)]
    async with LocalGateway() as gateway:
        for _ in range(MOST_TRIES - 1):
            with pytest.raises(ZeroDivisionError):
                await gateway.says(ANN, "look", number="5", offered=offered)
        assert (await gateway.says(ANN, "look", number="5", offered=offered)).state == "failed"
        await gateway.quiet()
        assert gateway.heard(ANN) == [BROKEN]
        assert await gateway.asks(ANN, "hello") == ["you said: hello"]
