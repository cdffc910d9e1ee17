"""A live conversation behaves the same in a terminal and in a chat. Covers turns, stops, changes of the
session, undo and redo.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import AsyncGeneratorType
from typing import Any

import pytest

import hermes
from hermes import errors
from hermes.agent.agent import Agent
from hermes.agent.components import AgentComponents, ModelChoice
from hermes.agent.context.message_size import MessageTooLarge
from hermes.agent.events import Done, Event, Failed, Interrupted, Note, Stored, TextDelta
from hermes.agent.models.model import Model
from hermes.agent.models.openai import OpenAIModel
from hermes.agent.transcript import LEASE_S
from hermes.conversation.agents import AgentScope
from hermes.conversation.conversation import Conversation
from hermes.conversation.local_conversation import LocalAgentProvider, open_local_conversation
from hermes.conversation.model_choice import ModelSelector
from hermes.conversation.surface import ChatRoute, Surface
from hermes.db.scoped_store import ScopedLeases
from hermes.store.chats.leases import Lease
from hermes.store.people import Principal
from hermes_state import SessionDB
from tests.agent.openai_server import ModelServer, says
from tests.chat.echo import PARTS, make_roomy

KEY = "agent:main:telegram:dm:7"


@pytest.fixture(params=["terminal", "chat"])
async def conversation(
    request: pytest.FixtureRequest, db: SessionDB, tmp_path: Path
) -> AsyncIterator[Conversation[Any]]:
    opened = open_in_chat(db) if request.param == "chat" else open_local_conversation(db, PARTS, cwd=tmp_path)
    if request.param == "chat":
        await opened.enter(find_routed(db))
    yield opened
    await opened.close()


def open_in_chat(db: SessionDB, parts: AgentComponents = PARTS) -> Conversation[Any]:
    """Open a conversation in a private chat with its own session."""
    store = db.scoped(Principal("telegram", "7", chat="7", chat_type="dm"))
    store.route(KEY, store.create_session())

    async def make_session() -> str:
        return store.create_session()

    async def open_session() -> None:
        await opened.enter(find_routed(db))

    async def handle_move(session_id: str) -> None:
        assert (find_routed(db), opened.session_id) == (session_id, session_id)
        assert opened.epoch is not None

    route = ChatRoute(KEY, open_session, handle_move)
    surface = Surface("gateway", stores_unanswered=True, make_session=make_session, route=route)
    scope = AgentScope(store.principal.owners[0], "telegram", False)
    opened = Conversation(store, LocalAgentProvider(parts, ModelSelector(parts)), scope, surface)
    return opened


def find_routed(db: SessionDB) -> str:
    route = db.routing.get(KEY)
    assert route is not None
    return route.session_id


def find_end(db: SessionDB, session_id: str) -> str | None:
    row = db.get_session(session_id)
    assert row is not None
    assert (row["ended_at"] is None) == (row["end_reason"] is None)
    return None if row["end_reason"] is None else str(row["end_reason"])


async def hear(conversation: Conversation[Any], content: str | None) -> list[Event]:
    return [event async for event in conversation.say(content)]


async def contents(conversation: Conversation[Any]) -> list[Any]:
    return [row["content"] for row in await conversation.load_rows() if row["role"] == "user"]


async def take_back_last(conversation: Conversation[Any]) -> None:
    last = [row["id"] for row in await conversation.load_rows() if row["role"] == "user"][-1]
    await conversation.take_back(last)


async def test_a_turn_is_stored_under_the_lease(db: SessionDB, conversation: Conversation[Any]) -> None:
    events = await hear(conversation, "hello")
    assert isinstance(events[0], Stored)
    assert events[-1] == Done("you said: hello", "stop")
    rows = db.get_messages(conversation.session_id)
    assert [row["content"] for row in rows] == ["hello", "you said: hello"]
    holder = db.leases.find_holder(conversation.session_id)
    assert holder is not None
    assert holder.epoch == conversation.epoch
    assert conversation.total.used.output_tokens == 3


async def test_a_lost_lease_fails_the_turn(db: SessionDB, conversation: Conversation[Any]) -> None:
    await hear(conversation, "hello")
    db.leases.take_over(conversation.session_id, "somebody else", LEASE_S)
    (failed,) = await hear(conversation, "again")
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, errors.LeaseLost)


async def test_a_turn_that_is_stopped_before_it_begins_stores_the_prompt(
    conversation: Conversation[Any],
) -> None:
    conversation.expect(True)
    assert conversation.stop()
    conversation.expect(False)
    assert not conversation.stop()
    turn = conversation.say("slow 100")
    beginning = asyncio.ensure_future(anext(turn))
    await asyncio.sleep(0)
    assert conversation.stop(), "the agent is being built"
    events = [await beginning, *[event async for event in turn]]
    assert not any(isinstance(event, TextDelta) for event in events)
    assert events[-1] == Interrupted("")
    assert await contents(conversation) == ["slow 100"]
    assert not conversation.stop()


async def test_closing_the_iteration_ends_the_turn(conversation: Conversation[Any]) -> None:
    turn = conversation.say("slow 100")
    async for event in turn:
        if isinstance(event, TextDelta):
            break
    await turn.aclose()
    assert conversation.turn is None
    assert await contents(conversation) == ["slow 100"]
    await take_back_last(conversation)
    assert (await hear(conversation, "hello"))[-1] == Done("you said: hello", "stop")


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ("+A +B - =", "A B"),
        ("+A +B - - =", "A B"),
        ("+A +B - +C - =", "A C"),
        ("+A +B - +C - = =", "A C"),
        ("+A +B - = - +C =", "A C"),
        ("+A =", "A"),
    ],
)
async def test_redo_restores_what_was_undone_since_the_last_turn(
    conversation: Conversation[Any], steps: str, left: str
) -> None:
    for step in steps.split():
        if step == "-":
            await take_back_last(conversation)
        elif step == "=":
            await conversation.bring_back()
        else:
            await hear(conversation, step[1:])
    assert await contents(conversation) == left.split()


async def test_a_new_session_leaves_the_old_one_behind(
    db: SessionDB, conversation: Conversation[Any]
) -> None:
    await hear(conversation, "hello")
    old = conversation.session_id
    await conversation.begin("another")
    await hear(conversation, "something else")
    await conversation.settle()
    assert conversation.session_id != old
    assert db.get_session_title(conversation.session_id) == "another"
    row = db.get_session(old)
    assert row is not None
    assert row["ended_at"] is not None
    assert await contents(conversation) == ["something else"]


async def test_a_branch_has_the_context_and_the_old_session_is_reopened(
    db: SessionDB, conversation: Conversation[Any]
) -> None:
    await hear(conversation, "hello")
    old = conversation.session_id
    child = await conversation.branch("elsewhere")
    assert (conversation.session_id, db.get_session_title(child)) == (child, "elsewhere")
    await hear(conversation, "in the branch")
    assert await contents(conversation) == ["hello", "in the branch"]
    await conversation.switch_to(old)
    assert await contents(conversation) == ["hello"]
    assert find_end(db, old) is None
    await hear(conversation, "in the old one")
    with pytest.raises(errors.UnknownSession):
        await conversation.switch_to("nowhere")


async def test_a_session_that_is_still_being_saved_is_entered_again(db: SessionDB, tmp_path: Path) -> None:
    async def save(agent: Agent, least: int = 0) -> bool:
        await asyncio.sleep(30)
        return True

    conversation = open_local_conversation(db, PARTS._replace(save=save), cwd=tmp_path)
    await hear(conversation, "hello")
    old = conversation.session_id
    await conversation.begin()
    await asyncio.sleep(0)
    await conversation.switch_to(old)
    await hear(conversation, "again")
    row, holder = db.get_session(old), db.leases.find_holder(old)
    assert row is not None
    assert row["ended_at"] is None
    assert holder is not None
    assert holder.epoch == conversation.epoch
    await conversation.close()


async def test_a_session_that_was_compressed_while_it_was_saved_is_entered_again(
    db: SessionDB, tmp_path: Path
) -> None:
    compressed = asyncio.Event()

    async def save(agent: Agent, least: int = 0) -> bool:
        await agent.record.continue_with("they said hello", head=[], carried=[], prompt="")
        compressed.set()
        await asyncio.sleep(30)
        return True

    conversation = open_local_conversation(db, PARTS._replace(save=save), cwd=tmp_path)
    await hear(conversation, "hello")
    old = conversation.session_id
    await conversation.begin()
    await compressed.wait()
    assert await conversation.undo_start() is not None
    assert conversation.session_id == db.get_compression_tip(old) != old
    await conversation.settle()
    assert find_end(db, conversation.session_id) is None
    assert db.leases.find_holder(old) is not None
    await conversation.close()


async def test_the_lease_of_a_session_that_was_left_is_kept_until_it_is_closed(db: SessionDB) -> None:
    conversation = open_in_chat(db)
    first = find_routed(db)
    await conversation.enter(first)
    await hear(conversation, "hello")
    second = conversation.store.create_session()
    await conversation.enter(second)
    assert db.leases.find_holder(first) is not None, "what was begun under it can be finished"
    await conversation.close_left()
    assert db.leases.find_holder(first) is None
    await conversation.leave()
    assert db.leases.find_holder(second) is None
    assert (conversation.session_id, conversation.epoch) == (second, None), (
        "what is asked about it is answered"
    )


async def test_a_request_stores_a_new_session_at_once_and_leaves_an_old_one_open(db: SessionDB) -> None:
    store = db.scoped(Principal("api_server", "7", chat="7", chat_type="dm"))
    first, other = store.create_session(), store.create_session()
    scope = AgentScope(store.principal.owners[0], "api_server", False)
    agents = LocalAgentProvider(PARTS, ModelSelector(PARTS))
    conversation = Conversation(store, agents, scope, Surface("request", is_per_request=True))
    await conversation.enter(first)
    assert await conversation.switch_to(other) == []
    assert (conversation.session_id, find_end(db, first)) == (other, None)
    assert db.leases.find_holder(first) is None
    await conversation.begin("a plan")
    assert conversation.exists
    assert conversation.get_title() == "a plan"
    assert find_end(db, other) == "session_reset"
    with pytest.raises(errors.UnknownSession):
        await conversation.switch_to("nowhere")
    await conversation.close()


async def test_an_undone_start_leaves_no_trace(db: SessionDB, conversation: Conversation[Any]) -> None:
    await hear(conversation, "hello")
    old = conversation.session_id
    await conversation.begin("Rome")
    assert await conversation.undo_start() is not None
    assert (conversation.session_id, find_end(db, old)) == (old, None)
    assert conversation.queued_title is None
    assert db.get_session_by_title("Rome") is None
    await hear(conversation, "more")
    assert await contents(conversation) == ["hello", "more"]
    assert await conversation.undo_start() is None, "it is no new start"


async def test_a_start_that_had_a_turn_is_not_undone(db: SessionDB, conversation: Conversation[Any]) -> None:
    await hear(conversation, "hello")
    await conversation.begin("Rome")
    await hear(conversation, "something else")
    await take_back_last(conversation)
    new = conversation.session_id
    assert await conversation.undo_start() is None
    assert (conversation.session_id, db.get_session_title(new)) == (new, "Rome")


async def test_a_chat_does_not_move_to_a_session_in_use(
    db: SessionDB, conversation: Conversation[Any]
) -> None:
    await hear(conversation, "hello")
    old = conversation.session_id
    await conversation.begin()
    await hear(conversation, "something else")
    await conversation.close_left()
    await conversation.settle()
    new, old_end = conversation.session_id, find_end(db, old)
    lease = db.leases.acquire(old, "editor")
    with pytest.raises(errors.LeaseHeld):
        await conversation.switch_to(old)
    with pytest.raises(errors.LeaseHeld):
        await conversation.check_free(old)
    assert (conversation.session_id, find_end(db, new), find_end(db, old)) == (new, None, old_end)
    if conversation.surface.route is not None:
        assert find_routed(db) == new
    db.leases.release(lease)
    await conversation.check_free(old)
    await conversation.switch_to(old)
    assert conversation.session_id == old


async def test_a_chat_whose_lease_was_lost_does_not_move(db: SessionDB) -> None:
    conversation = open_in_chat(db)
    first = find_routed(db)
    await conversation.enter(first)
    await hear(conversation, "hello")
    await conversation.begin()
    await conversation.close_left()
    new = conversation.session_id
    db.leases.take_over(new, "somebody else", LEASE_S)
    for move in (conversation.undo_start, lambda: conversation.switch_to(first), conversation.branch):
        with pytest.raises(errors.LeaseLost):
            await move()
    assert (find_routed(db), conversation.session_id) == (new, new)
    assert db.leases.find_holder(first) is None, "its lease was given back"
    await conversation.close()


async def test_cancelling_while_a_session_is_entered_leaves_no_lease(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire, begun = ScopedLeases.acquire, threading.Event()

    def acquire_slowly(leases: ScopedLeases, session_id: str, surface: str, seconds: float) -> Lease:
        begun.set()
        time.sleep(0.1)
        return acquire(leases, session_id, surface, seconds)

    monkeypatch.setattr(ScopedLeases, "acquire", acquire_slowly)
    conversation = open_in_chat(db)
    entering = asyncio.create_task(conversation.enter(find_routed(db)))
    await asyncio.to_thread(begun.wait)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert db.leases.find_holder(find_routed(db)) is None
    assert conversation.epoch is None


async def test_sessions_of_one_conversation_are_under_one_lease(db: SessionDB) -> None:
    conversation = open_in_chat(db)
    first = find_routed(db)
    await conversation.enter(first)
    await hear(conversation, "hello")
    second = conversation.store.begin_continuation(first, "they said hello", lease_epoch=conversation.epoch)
    epoch = conversation.epoch
    await conversation.enter(second)
    await conversation.close_left()
    assert (conversation.session_id, conversation.epoch) == (second, epoch)
    assert db.leases.find_holder(second) is not None
    await conversation.close()


async def test_a_viewed_session_is_reopened_by_the_next_turn(db: SessionDB, tmp_path: Path) -> None:
    db.create_session("one", "cli")
    db.append_message("one", "user", "hello")
    db.end_session("one", "branched")
    conversation = open_local_conversation(db, PARTS, cwd=tmp_path)
    await conversation.switch_to("one", reopen=False)
    assert find_end(db, "one") == "branched"
    await hear(conversation, "more")
    assert find_end(db, "one") is None
    await conversation.close()


async def test_without_a_model_a_chat_keeps_the_message_and_a_terminal_gives_it_back(
    db: SessionDB, tmp_path: Path
) -> None:
    def make_model(_wish: ModelChoice) -> Model:
        raise errors.HermesError("there is no model")

    parts = PARTS._replace(make_model=make_model)
    chat = open_in_chat(db, parts)
    await chat.enter(find_routed(db))
    stored, failed = await hear(chat, "hello")
    assert isinstance(stored, Stored)
    assert isinstance(failed, Failed)
    assert await contents(chat) == ["hello"]
    await chat.close()
    terminal = open_local_conversation(db, parts, cwd=tmp_path)
    with pytest.raises(errors.HermesError, match="there is no model"):
        await hear(terminal, "hello")
    assert not terminal.exists
    await terminal.close()


async def test_a_message_that_is_too_large_for_a_request_is_not_stored(db: SessionDB, tmp_path: Path) -> None:
    parts, text = make_roomy(1_000), "word " * 1_000
    chat = open_in_chat(db, parts)
    await chat.enter(find_routed(db))
    (failed,) = await hear(chat, text)
    assert isinstance(failed, Failed)
    assert failed.why.startswith(
        "the message is too large: about 1,260 tokens, and echo takes 500 (its context"
    )
    assert await contents(chat) == []
    assert isinstance((await hear(chat, "hello"))[-1], Done)
    await chat.close()
    terminal = open_local_conversation(db, parts, cwd=tmp_path)
    with pytest.raises(MessageTooLarge):
        await hear(terminal, text)
    assert not terminal.exists
    await terminal.close()


async def test_a_conversation_that_cannot_be_compressed_says_so(conversation: Conversation[Any]) -> None:
    await hear(conversation, "hello")
    assert [event async for event in conversation.compress()] == [Note("Compression is not available here.")]


async def test_a_delta_passes_three_generators(
    db: SessionDB, model_server: ModelServer, tmp_path: Path
) -> None:
    model = OpenAIModel("small-model", base_url=model_server.base_url)
    parts = PARTS._replace(make_model=lambda _wish: model)
    conversation = open_local_conversation(db, parts, cwd=tmp_path)
    model_server.will(says("one two three"))
    alive: list[set[str]] = []
    async for event in conversation.say("count"):
        if isinstance(event, TextDelta):
            alive += [list_generators()]
    await conversation.close()
    assert len(alive) == 3
    for names in alive:
        assert names <= {"OpenAIModel.stream", "Turn.events", "Conversation.say"}


def list_generators() -> set[str]:
    """Return the names of the program's async generators that have started and not ended."""
    source = str(Path(hermes.__file__).parent)
    return {
        generator.__qualname__
        for generator in gc.get_objects()
        if type(generator) is AsyncGeneratorType
        and generator.ag_code.co_filename.startswith(source)
        and generator.ag_frame is not None
        and generator.ag_frame.f_lasti > 0
    }
