"""The messages of a chat are processed in order, one at a time. This includes messages during an answer,
edits and deleted messages.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes.conversation.agents import AgentScope, LiveRecord, PreparedAgent, StandardAgentProvider
from hermes.db.session_db import AnyStore
from hermes.gateway.adapter import Capabilities, Unreachable
from hermes.gateway.inbound import received_files
from hermes.gateway.inbound.message_processor import NO_STORE
from hermes.gateway.inbound_events import OfferedFile, Source
from tests.gateway.local_gateway import (
    ANN,
    BOB,
    WORKS_IN,
    LocalGateway,
    Platform,
    WithBrain,
    another_program,
    file,
    full_disk,
    in_group,
    in_thread,
    settings_of,
)

# ---------------------------------------------------------------- order


async def test_within_a_chat_in_order_and_one_at_a_time() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold first")
        await gateway.holds("first")
        for number in range(5):
            await gateway.says(ANN, f"then {number}")
        assert gateway.talk(ANN) == ["hold first"]
        gateway.let_go("first")
        await gateway.quiet()
        assert gateway.heard(ANN) == [
            "well, you said: hold first",
            *(f"you said: then {number}" for number in range(5)),
        ]


async def test_chats_do_not_wait_for_each_other() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold ann")
        await gateway.holds("ann")
        await gateway.says(BOB, "hello")
        await gateway.until(lambda: gateway.heard(BOB) == ["you said: hello"])
        assert gateway.heard(ANN) == []


async def test_two_chats_in_one_conversation_wait_for_each_other() -> None:
    """A topic can continue the conversation of its private chat. The two chats then take turns."""
    topic = ANN._replace(thread_id="3")
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        there = gateway.session_of(ANN)
        assert "Back in" in (await gateway.asks(topic, f"/resume {there}"))[0]
        await gateway.says(ANN, "hold ann")
        await gateway.holds("ann")
        await gateway.says(topic, "me, too")
        await gateway.until(lambda: any("in another chat" in text for text in gateway.heard(topic)))
        assert gateway.talk(ANN)[-1] == "hold ann"
        gateway.let_go("ann")
        await gateway.quiet()
        assert gateway.talk(ANN)[-4:] == [
            "hold ann",
            "well, you said: hold ann",
            "me, too",
            "you said: me, too",
        ]


async def test_waiting_messages_are_processed_after_a_restart() -> None:
    async with LocalGateway(settings_of(drain_seconds=0.05)) as gateway:
        await gateway.says(ANN, "hold first")
        await gateway.holds("first")
        await gateway.says(ANN, "second")
        gateway.brain.gates["first"] = asyncio.Event()
        await gateway.restart()
        await gateway.until(lambda: gateway.brain.held.count("first") == 2)
        gateway.let_go("first")
        await gateway.quiet()
        assert gateway.heard(ANN) == ["well, you said: hold first", "you said: second"]
        assert gateway.talk(ANN) == [
            "hold first",
            "well, you said: hold first",
            "second",
            "you said: second",
        ]


# ---------------------------------------------------------------- messages during an answer


async def test_a_command_is_answered_while_an_answer_is_made() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        await gateway.says(ANN, "waits")
        receipt = await gateway.says(ANN, "/status")
        assert receipt.state == "answered"
        await gateway.until(lambda: len(gateway.heard(ANN)) == 1)
        assert "1 message" in gateway.heard(ANN)[0]
        gateway.let_go("on")


async def test_stop_ends_the_answer_and_keeps_its_text() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        await gateway.says(ANN, "/stop")
        await gateway.quiet()
        assert sorted(gateway.heard(ANN)) == sorted(["⏹ Stopped.", "well, \n\n_(stopped)_"])
        assert gateway.talk(ANN)[0] == "hold on"
        assert await gateway.asks(ANN, "next") == ["you said: next"]


async def test_new_does_not_wait_for_the_answer() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        old = gateway.session_of(ANN)
        await gateway.says(ANN, "/new")
        await gateway.quiet()
        assert gateway.session_of(ANN) != old


async def test_with_interrupt_the_newest_message_is_answered_first() -> None:
    async with LocalGateway(settings_of(platform={"busy": "interrupt"})) as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        await gateway.says(ANN, "rather this")
        await gateway.quiet()
        assert gateway.heard(ANN) == ["well, \n\n_(stopped)_", "you said: rather this"]


async def test_with_steer_a_message_is_passed_to_the_answer() -> None:
    async with LocalGateway(settings_of(platform={"busy": "steer"})) as gateway:
        gateway.brain.gate("b").set()
        await gateway.says(ANN, "twice a todo {}")
        await gateway.holds("a")
        await gateway.says(ANN, "but briefly")
        await gateway.until(lambda: len(gateway.db.inbox.list_waiting()) == 2)
        gateway.let_go("a")
        await gateway.quiet()
        assert "but briefly" in gateway.talk(ANN)
        assert sum(text == "but briefly" for text in gateway.talk(ANN)) == 1
        assert await gateway.asks(ANN, "next") == ["you said: next"]


async def test_a_message_passed_to_an_answer_loses_no_answer() -> None:
    async with LocalGateway(settings_of(platform={"busy": "steer"})) as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        await gateway.says(ANN, "one more")
        await gateway.says(ANN, "/title Named")
        await gateway.says(ANN, "and another")
        gateway.let_go("on")
        await gateway.quiet()
        assert gateway.heard(ANN) == [
            "well, you said: hold on",
            "you said: one more",
            "Session title set: Named",
            "you said: and another",
        ]


async def test_an_edit_is_not_passed_to_an_answer() -> None:
    async with LocalGateway(settings_of(platform={"busy": "steer"})) as gateway:
        await gateway.asks(ANN, "older", number="m")
        await gateway.asks(ANN, "newer")
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        await gateway.says(ANN, "changed", edits="m")
        await gateway.says(ANN, "one more")
        gateway.let_go("on")
        await gateway.quiet()
        assert "changed" not in gateway.talk(ANN)
        assert gateway.heard(ANN)[-1] == "you said: one more"


# ---------------------------------------------------------------- edits


async def test_an_edit_of_the_last_message_takes_its_place() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "first")
        await gateway.asks(ANN, "secnd", number="m")
        assert await gateway.asks(ANN, "second", edits="m") == ["you said: second"]
        assert gateway.talk(ANN) == ["first", "you said: first", "second", "you said: second"]
        assert await gateway.asks(ANN, "second!", edits="m", sent_at=4e9) == ["you said: second!"]
        assert gateway.talk(ANN)[2:] == ["second!", "you said: second!"]


async def test_an_edit_of_the_message_that_is_answered_begins_the_answer_again() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold on", number="m")
        await gateway.holds("on")
        await gateway.says(ANN, "rather this", edits="m")
        await gateway.quiet()
        assert gateway.heard(ANN)[-1] == "you said: rather this"
        assert gateway.talk(ANN) == ["rather this", "you said: rather this"]


async def test_only_the_last_of_several_edits_is_answered() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "first")
        await gateway.says(ANN, "hold on", number="m")
        await gateway.holds("on")
        await gateway.says(ANN, "hold that", edits="m")
        await gateway.says(ANN, "this", edits="m", sent_at=4e9)
        await gateway.quiet()
        assert gateway.heard(ANN)[-1] == "you said: this"
        assert gateway.talk(ANN)[2:] == ["this", "you said: this"]
        assert gateway.brain.request_text.count("hold that") == 0


class LateGateway(LocalGateway):
    """A gateway in which the agent is created slowly. Before the agent exists, there is no answer to stop."""

    def agents(self) -> StandardAgentProvider:
        self.asked, self.known = asyncio.Event(), asyncio.Event()
        gateway = self

        class Late(StandardAgentProvider):
            async def prepare_agent(
                self, whose: AgentScope, store: AnyStore, record: LiveRecord
            ) -> PreparedAgent:
                gateway.asked.set()
                await gateway.known.wait()
                return await super().prepare_agent(whose, store, record)

        return Late(WithBrain(self.brain))


@pytest.mark.parametrize(
    ("busy", "text", "edits", "answer"),
    [
        ("queue", "rather this", "m", "you said: rather this"),
        ("interrupt", "rather this", None, "you said: one\n\nrather this"),
        ("queue", "/stop", None, "⏹ Stopped."),
    ],
    ids=["edit", "interrupt", "stop"],
)
async def test_an_answer_can_be_stopped_before_it_has_begun(
    busy: str, text: str, edits: str | None, answer: str
) -> None:
    gateway = LateGateway(settings_of(platform={"busy": busy}))
    async with gateway:
        await gateway.says(ANN, "one", number="m")
        await gateway.asked.wait()
        await gateway.says(ANN, text, edits=edits)
        gateway.known.set()
        await gateway.until(lambda: answer in gateway.heard(ANN))
        await gateway.quiet()
        assert "you said: one" not in gateway.heard(ANN)


async def test_an_edit_of_an_older_message_is_ignored() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "first", number="m")
        await gateway.asks(ANN, "second")
        assert await gateway.asks(ANN, "the first", edits="m") == []
        assert gateway.talk(ANN) == ["first", "you said: first", "second", "you said: second"]


async def test_in_a_room_an_edit_does_not_replace_the_last_message_of_another() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(in_thread(ANN), "ann's", number="m")
        await gateway.asks(in_thread(BOB), "bob's")
        assert await gateway.asks(in_thread(ANN), "changed", edits="m") == []


# ---------------------------------------------------------------- files


async def test_a_text_file_is_in_the_conversation_and_gone_afterwards() -> None:
    async with LocalGateway() as gateway:
        answer = await gateway.asks(ANN, "look", offered=[file("a.txt", b"all of it")])
        assert "all of it" in answer[0]
        await gateway.until(lambda: list(received_files.incoming_folder().iterdir()) == [])
        assert "a.txt" in gateway.talk(ANN)[0]


async def test_a_picture_is_shown_to_the_model() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "look", offered=[file("a.png", b"\x89PNG", "image", "image/png")])
        last = gateway.brain.requests[-1].messages[-1]["content"]
        assert last[1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="


async def test_a_file_that_is_too_large_or_unavailable_is_reported() -> None:
    async def breaks() -> bytes:
        raise Unreachable("gone")

    async def lies() -> bytes:
        return b"x" * 2_000_000

    offered = [
        OfferedFile("file", "big.bin", "application/zip", 3_000_000, breaks),
        OfferedFile("file", "lost.txt", "text/plain", 3, breaks),
        OfferedFile("file", "liar.txt", "text/plain", 3, lies),
    ]
    async with LocalGateway(settings_of(largest_attachment_mb=1.0)) as gateway:
        answer = (await gateway.asks(ANN, "look", offered=offered))[0]
        assert "[file big.bin: larger than 1 MB, not fetched]" in answer
        assert "[file lost.txt: could not be fetched" in answer
        assert "[file liar.txt: larger than 1 MB, not kept]" in answer
        assert (
            not received_files.incoming_folder().is_dir()
            or list(received_files.incoming_folder().iterdir()) == []
        )


async def test_a_file_that_never_arrives_uses_the_time_limit_of_all_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All files of a message share one time limit."""
    monkeypatch.setattr(received_files, "FETCH_S", 0.1)

    async def never() -> bytes:
        return await asyncio.Future()

    async def at_once() -> bytes:
        return b"here"

    async def soon() -> bytes:
        await asyncio.sleep(0.01)
        return b"here"

    names = {"first.txt": at_once, "never.txt": never, "last.txt": soon}
    offered = [OfferedFile("file", name, "text/plain", 4, fetch) for name, fetch in names.items()]
    async with LocalGateway() as gateway:
        answer = (await gateway.asks(ANN, "look", offered=offered))[0]
        assert "[file first.txt]" in answer
        for name in ("never.txt", "last.txt"):
            assert f"[file {name}: could not be fetched (TimeoutError)]" in answer


async def test_a_message_that_is_only_a_file_is_a_message() -> None:
    async with LocalGateway() as gateway:
        receipt = await gateway.says(ANN, "", offered=[file("a.txt", b"hello")])
        assert receipt.state == "accepted"
        assert (await gateway.says(ANN, "  ")).state == "ignored"


# ---------------------------------------------------------------- other processes


async def test_a_message_waits_for_an_open_terminal_with_one_notice() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        with another_program(WORKS_IN, gateway.session_of(ANN)) as leave:
            await gateway.says(ANN, "and now?")
            await gateway.until(lambda: len(gateway.heard(ANN)) == 2)
            await gateway.says(ANN, "still there?")
            await asyncio.sleep(0.7)
            replies = gateway.heard(ANN)[1:]
            assert len(replies) == 1
            assert "open elsewhere (terminal)" in replies[0]
            await asyncio.to_thread(leave)
            await gateway.quiet()
        assert gateway.heard(ANN)[2:] == ["you said: and now?", "you said: still there?"]


async def test_an_answer_interrupted_by_a_terminal_is_generated_later() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        with another_program(WORKS_IN, gateway.session_of(ANN)) as leave:
            gateway.let_go("on")
            await gateway.until(lambda: gateway.heard(ANN))
            assert "open elsewhere (terminal)" in gateway.heard(ANN)[0]
            await asyncio.to_thread(leave)
            await gateway.quiet()
        assert gateway.heard(ANN)[1:] == ["well, you said: hold on"]
        assert gateway.talk(ANN) == ["hold on", "well, you said: hold on"]


# ---------------------------------------------------------------- failures


async def test_a_failure_of_the_model_is_reported_and_can_be_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with LocalGateway() as gateway:
        replies = await gateway.asks(ANN, "fail")
        assert "the turn failed: nobody answers" in caplog.text
        assert replies[0].startswith("⚠ The model is not available just now.")
        assert "/retry" in replies[0]
        assert gateway.talk(ANN) == ["fail"]
        assert "well?" in (await gateway.asks(ANN, "well?"))[0]


async def test_in_a_group_the_answer_answers_the_message(home: Path) -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(in_group(ANN), "hello", number="m5")
        assert gateway.platform.calls_of("send")[-1].message_id == "m5"
        await gateway.asks(ANN, "hello")
        assert gateway.platform.calls_of("send")[-1].message_id is None


@pytest.mark.parametrize("where", [ANN, in_group(ANN), in_thread(ANN)])
async def test_a_quoted_message_is_passed_to_the_model(where: Source) -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(where, "yes", reply_to="shall we?")
        assert "shall we?" in gateway.talk(where)[0]


async def test_a_full_disk_is_reported_in_the_same_turn_and_nothing_is_lost() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        with full_disk():
            gateway.let_go("on")
            await gateway.until(lambda: len(gateway.heard(ANN)) == 2)
            assert gateway.heard(ANN)[1] == NO_STORE
        await gateway.quiet()
        assert gateway.heard(ANN)[2].startswith("well, you said: hold on")
        assert "was not stored" in gateway.heard(ANN)[2]
        assert await gateway.asks(ANN, "again") == ["you said: again"]
        assert gateway.talk(ANN)[2:] == ["hold on", "well, you said: hold on", "again", "you said: again"]


async def test_a_turn_waits_while_the_disk_is_full() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        await gateway.says(ANN, "second")
        await gateway.says(ANN, "/title Third")
        with full_disk():
            gateway.let_go("on")
            await gateway.until(lambda: gateway.heard(ANN))
        await gateway.quiet()
        assert gateway.heard(ANN)[-2:] == ["you said: second", "Session title set: Third"]


# ---------------------------------------------------------------- retry, undo, compress


@pytest.mark.parametrize("where", [ANN, in_thread(ANN)])
async def test_retry_asks_the_same_again(where: Source) -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(where, "hello")
        before = gateway.talk(where)
        replies = await gateway.asks(where, "/retry")
        assert len(replies) == 2
        assert replies[1].endswith("hello")
        assert gateway.talk(where) == before
        assert (await gateway.asks(where, "/retry"))[1] == replies[1]


async def test_a_compressed_conversation_continues_and_its_last_message_can_be_edited() -> None:
    async with LocalGateway() as gateway:
        for number in range(12):
            await gateway.asks(ANN, f"fact {number} " + "and so on " * 50, number=f"m{number}")
        old = gateway.session_of(ANN)
        assert "Compressed" in (await gateway.asks(ANN, "/compress"))[0]
        assert gateway.session_of(ANN) != old
        assert await gateway.asks(ANN, "next", number="n") == ["you said: next"]
        assert await gateway.asks(ANN, "rather this", edits="n") == ["you said: rather this"]
        assert gateway.talk(ANN)[-2:] == ["rather this", "you said: rather this"]


# ---------------------------------------------------------------- streamed answers


def streaming(**more: object) -> LocalGateway:
    return LocalGateway(settings_of(platform={"stream": True, **more}))


async def test_a_streamed_answer_is_one_message_at_the_end() -> None:
    async with streaming() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        await gateway.until(lambda: gateway.heard(ANN))
        assert gateway.heard(ANN)[0].startswith("well,")
        assert "you said" not in gateway.heard(ANN)[0]
        await gateway.until(lambda: gateway.platform.calls_of("typing"))
        gateway.let_go("on")
        await gateway.quiet()
        assert gateway.heard(ANN) == ["well, you said: hold on"]


async def test_an_answer_that_is_stopped_says_so_in_its_message() -> None:
    async with streaming() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.until(lambda: gateway.heard(ANN))
        await gateway.says(ANN, "/stop")
        await gateway.quiet()
        assert sorted(gateway.heard(ANN)) == sorted(["well, \n\n_(stopped)_", "⏹ Stopped."])


async def test_if_the_preview_is_deleted_the_answer_is_a_new_message() -> None:
    async with streaming() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.until(lambda: gateway.heard(ANN))
        gateway.platform.messages.clear()
        gateway.let_go("on")
        await gateway.quiet()
        assert gateway.heard(ANN) == ["well, you said: hold on"]


async def test_no_preview_is_shown_before_earlier_answers() -> None:
    async with streaming() as gateway:
        gateway.platform.fail("send", Unreachable("no net"), times=1)
        await gateway.says(ANN, "first")
        await gateway.until(lambda: gateway.platform.calls_of("send"))
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        await gateway.until(lambda: len(gateway.heard(ANN)) == 2)
        assert gateway.heard(ANN)[0] == "you said: first"


async def test_a_preview_that_cannot_be_shown_changes_nothing() -> None:
    async with streaming() as gateway:
        for verb in ("send", "edit", "typing"):
            gateway.platform.fail(verb, Unreachable("no net"), times=2)
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        await gateway.until(lambda: gateway.platform.calls_of("send"))
        gateway.let_go("on")
        await gateway.until(lambda: not gateway.db.inbox.list_waiting())
        gateway.app.delivery.retry_now("telegram")
        await gateway.quiet()
        assert gateway.heard(ANN) == ["well, you said: hold on"]


@pytest.mark.parametrize("says_more", [True, False])
async def test_a_platform_with_one_answer_per_message_gets_the_final_one(says_more: bool) -> None:
    async with LocalGateway(platform=Platform(can=Capabilities(allows_many_replies=says_more))) as gateway:
        await gateway.asks(ANN, "hello")
        replies = await gateway.asks(ANN, "/retry")
        assert replies[-1] == "you said: hello"
        assert len(replies) == (2 if says_more else 1)


async def test_a_message_whose_claim_was_not_confirmed_is_answered() -> None:
    """The store fails after the commit of the claim and before it responds. So the gateway does not know that
    it has claimed the message."""
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        key = (await gateway.says(ANN, "and this")).session_key
        (first, *_) = gateway.db.inbox.list_waiting(key)
        gateway.db.inbox.claim(first.session_key, first.epoch, first.session_id, alongside=True)
        gateway.let_go("on")
        await gateway.quiet()
        assert gateway.heard(ANN) == ["well, you said: hold on", "you said: and this"]


@pytest.mark.parametrize("begin", ["/new", "/branch"])
async def test_a_conversation_started_in_a_private_chat_is_private(begin: str) -> None:
    """In a private chat, a person resumes a conversation of a group and then starts a new one. The new
    session does not belong to the group."""
    group = in_group(ANN)
    async with LocalGateway() as gateway:
        await gateway.asks(group, "said to all")
        old = gateway.session_of(group)
        await gateway.asks(ANN, f"/resume {old}")
        assert gateway.session_of(ANN) == old
        await gateway.asks(ANN, begin)
        await gateway.asks(ANN, "between us")
        assert gateway.session_of(group) == old != gateway.session_of(ANN)
        for command in ("/sessions", "/search between", "/resume"):
            [replies] = await gateway.asks(group, command)
            assert "between us" not in replies
            assert gateway.session_of(ANN) not in replies
        assert await gateway.asks(group, "go on") == ["you said: go on"]
        assert gateway.talk(group) == ["said to all", "you said: said to all", "go on", "you said: go on"]
