"""From a message of a platform to its conversation: once, in the right one, and only of those who may."""

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
from hermes.gateway.sessions.session_keys import make_session_key
from hermes.gateway.settings import Keying
from tests.gateway.world import (
    ANN,
    BOB,
    World,
    file,
    full_disk,
    in_group,
    in_thread,
    settings_of,
)


async def test_a_hundred_messages_of_a_new_chat_make_one_session() -> None:
    async with World() as world:
        receipts = await asyncio.gather(*(world.says(ANN, f"{number}") for number in range(100)))
        assert {receipt.state for receipt in receipts} == {"accepted"}
        await world.quiet()
        assert len(world.heard(ANN)) == 100
        assert world.db.session_count() == 1


async def test_a_message_that_is_delivered_twice_is_answered_once() -> None:
    async with World() as world:
        assert (await world.says(ANN, "hello", number="5")).state == "accepted"
        assert (await world.says(ANN, "hello", number="5")).state == "duplicate"
        await world.quiet()
        assert (await world.says(ANN, "hello", number="5")).state == "duplicate"
        await world.restart()
        assert (await world.says(ANN, "hello", number="5")).state == "duplicate"
        await world.quiet()
        assert world.heard(ANN) == ["you said: hello"]


async def test_the_same_number_in_another_chat_is_another_message() -> None:
    async with World() as world:
        await world.says(ANN, "hello", number="5")
        assert (await world.says(BOB, "hello", number="5")).state == "accepted"
        await world.quiet()
        assert world.heard(BOB) == ["you said: hello"]


async def test_a_command_that_is_delivered_twice_is_answered_once() -> None:
    async with World() as world:
        await world.asks(ANN, "hello")
        for number in ("6", "7"):
            for _ in range(2):
                await world.says(ANN, "/status" if number == "6" else "/title Rome", number=number)
                await world.quiet()
        assert len(world.heard(ANN)) == 3


async def test_strangers_leave_no_trace() -> None:
    async with World(settings_of(platform={"allow_all": False, "allowed_users": frozenset({"1"})})) as world:
        fetched = file("a.txt", b"mischief")
        for text in ("hello", "/help", "/new", "/pair 123", "/status"):
            receipt = await world.says(BOB, text, offered=[fetched])
            assert receipt.state == "unauthorised"
        assert await world.asks(ANN, "hello") == ["you said: hello"]
        assert world.heard(BOB) == []
        assert world.db.session_count() == 1
        assert "mischief" not in world.brain.told
        assert not received_files.incoming_folder().exists()


async def test_bots_are_strangers() -> None:
    async with World() as world:
        assert (await world.says(ANN._replace(is_bot=True), "hello")).state == "unauthorised"


async def test_too_many_messages_are_left_and_told_once() -> None:
    async with World(settings_of(messages_per_minute=3)) as world:
        states = [(await world.says(ANN, f"{number}")).state for number in range(6)]
        assert states == ["accepted"] * 3 + ["limited"] * 3
        assert (await world.says(BOB, "hello")).state == "accepted"
        await world.quiet()
        assert sum("more than 3 messages" in text for text in world.heard(ANN)) == 1


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("thread", [True, False])
async def test_who_shares_a_conversation(group: bool, thread: bool) -> None:
    keying = Keying(group_sessions_per_user=group, thread_sessions_per_user=thread)
    async with World(settings_of(keying=keying)) as world:
        for place in (in_group, in_thread):
            for who in (ANN, BOB):
                await world.asks(place(who), f"{who.user_name} says so")
        assert (world.session_of(in_group(ANN)) == world.session_of(in_group(BOB))) is not group
        shares_threads = not thread
        assert (world.session_of(in_thread(ANN)) == world.session_of(in_thread(BOB))) is shares_threads
        assert ("Ann" in " ".join(world.talk(in_thread(BOB)))) is shares_threads
        assert world.session_of(in_group(ANN)) != world.session_of(in_thread(ANN))


async def test_what_waits_is_found_again_when_the_settings_of_who_shares_have_changed() -> None:
    async with World(settings_of(drain_seconds=0.01)) as world:
        for who in (ANN, BOB):
            await world.says(in_group(who), "hold on")
        await world.until(lambda: len(world.brain.held) == 2)
        await world.restart(settings_of(keying=Keying(group_sessions_per_user=False)))
        world.let_go("on")
        await world.quiet()
        assert len(world.heard(in_group(ANN))) == 2


async def test_a_message_that_cannot_be_stored_is_not_accepted() -> None:
    async with World() as world:
        await world.asks(ANN, "hello")
        with full_disk():
            with pytest.raises(errors.StoreError):
                await world.says(ANN, "lost?", number="9", offered=[file("a.txt", b"a")])
            assert list(received_files.incoming_folder().iterdir()) == []
        assert await world.asks(ANN, "lost?", number="9") == ["you said: lost?"]


async def test_a_chat_whose_conversation_was_thrown_away_begins_another() -> None:
    async with World() as world:
        await world.asks(ANN, "hello")
        old = world.session_of(ANN)
        world.db.trash_session(old)
        assert await world.asks(ANN, "again") == [REPLACED, "you said: again"]
        new = world.session_of(ANN)
        assert new != old
        assert [row["content"] for row in world.db.get_messages(new)][:1] == ["again"]
        assert await world.asks(ANN, "and again") == ["you said: and again"]
        world.db.restore_session(old)
        assert world.session_of(ANN) == new


@pytest.mark.parametrize("restarted", [False, True])
async def test_commands_tell_that_the_conversation_of_a_chat_is_in_the_trash(restarted: bool) -> None:
    async with World() as world:
        await world.asks(ANN, "hello")
        world.db.trash_session(world.session_of(ANN))
        if restarted:
            await world.restart()
        for command in ("/status", "/why", "/usage"):
            (answer,) = await world.asks(ANN, command)
            assert IN_TRASH in answer
            assert "Nothing was said" not in answer
        (told, _) = await world.asks(ANN, "/title Fresh")
        assert told == REPLACED
        (answer,) = await world.asks(ANN, "/why")
        assert TRASHED in answer
        assert IN_TRASH not in answer


async def test_a_restarted_gateway_tells_that_a_conversation_was_thrown_away() -> None:
    async with World() as world:
        await world.asks(in_group(ANN), "hello")
        world.db.trash_session(world.session_of(in_group(ANN)))
        await world.restart()
        assert await world.asks(in_group(ANN), "again") == [REPLACED, "you said: again"]


async def test_a_conversation_thrown_away_during_an_answer_goes_on_in_another() -> None:
    async with World() as world:
        await world.asks(ANN, "hello")
        old = world.session_of(ANN)
        await world.says(ANN, "hold gate")
        await world.holds("gate")
        world.db.trash_session(old)
        world.brain.gate("gate").set()
        await world.quiet()
        answer, new = world.heard(ANN)[-1], world.session_of(ANN)
        assert new != old
        assert f"continues in a new session, {new}" in answer
        assert "hermes sessions" not in answer  # nobody on a platform can run it
        assert TRASHED in str(await world.asks(ANN, "/why"))
        rows = world.db.get_messages(new)
        assert [row["role"] for row in rows] == ["user", "assistant"]
        assert rows[0]["content"] == "hold gate"
        assert answer.startswith(rows[1]["content"])
        assert await world.asks(ANN, "next") == ["you said: next"]
        assert world.db.inbox.list_waiting(make_session_key(ANN)) == []


async def test_a_private_chat_is_of_one_person_whoever_else_speaks_in_it() -> None:
    """A program may send what several people say under one name of a private chat."""
    ann, bob = (who._replace(chat_id="support") for who in (ANN, BOB))
    async with World() as world:
        await world.asks(ann, "my word is OSTRICH")
        for _ in range(2):
            told = len(world.brain.requests)
            assert (await world.asks(bob, "and mine is HERON"))[-1].endswith("HERON")
            assert "OSTRICH" not in str(world.brain.requests[told:])
            for command in ("/status", "/title", "/why", "/resend"):
                answer = str(await world.asks(bob, command))
                assert "OSTRICH" not in answer
                assert world.session_of(ann) not in answer
            await world.restart()
        told = len(world.brain.requests)
        await world.asks(ann, "and again")
        assert "HERON" not in str(world.brain.requests[told:])
        assert "OSTRICH" in str(world.brain.requests[told:])


async def test_two_people_who_begin_a_private_chat_at_the_same_moment_are_two() -> None:
    people = [who._replace(chat_id="support") for who in (ANN, BOB)]
    async with World() as world:
        await asyncio.gather(*(world.says(who, f"I am {who.user_name}") for who in people))
        await world.quiet()
        for request in world.brain.requests:
            said = str(request.messages)
            assert ("I am Ann" in said) != ("I am Bob" in said)


async def test_halves_of_characters_in_the_names_of_chats_stop_nobody() -> None:
    half = "\ud83d"
    who = Source("telegram", f"{half}1", half, "group", f"{half}2", half, f"{half}3", half)
    async with World() as world:
        receipt = await world.says(who, f"hello {half}", number=half, reply_to=half)
        assert receipt.state == "accepted"
        await world.quiet()
        assert len(world.platform.messages) == 1


async def test_a_message_that_we_always_break_at_is_left_and_told() -> None:
    async def wrong() -> bytes:
        raise ZeroDivisionError

    offered = [file("a.txt", b"a")._replace(fetch=wrong)]
    async with World() as world:
        for _ in range(MOST_TRIES - 1):
            with pytest.raises(ZeroDivisionError):
                await world.says(ANN, "look", number="5", offered=offered)
        assert (await world.says(ANN, "look", number="5", offered=offered)).state == "failed"
        await world.quiet()
        assert world.heard(ANN) == [BROKEN]
        assert await world.asks(ANN, "hello") == ["you said: hello"]
