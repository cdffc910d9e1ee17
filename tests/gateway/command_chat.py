"""A chat for tests of commands. Text is parsed and run on a real conversation, with routing and leases.

There is no mailbox and no model. The requests that commands make to the agent are only counted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from hermes.agent.agent import Agent
from hermes.agent.components import AgentComponents
from hermes.agent.events import Event, Moved, Note
from hermes.agent.models.model import Used
from hermes.agent.subagents import Subagents
from hermes.agent.transcript import StoredRecord
from hermes.conversation.agents import AgentScope, LiveRecord, PreparedAgent, build_agent
from hermes.conversation.conversation import Conversation
from hermes.conversation.surface import ChatRoute, Surface
from hermes.db.session_db import AnyStore
from hermes.gateway.commands.command_context import ChatCommandContext, CommandReply, RememberedLists
from hermes.gateway.commands.command_table import find_command, run_command
from hermes.gateway.inbound.chat_approvals import NOTHING_WAITS, PendingApproval
from hermes.gateway.inbound_events import Source
from hermes.gateway.incidents import Incident
from hermes.gateway.sessions.session_keys import (
    is_shared_multi_user_session,
    make_principal,
    make_room,
)
from hermes.gateway.sessions.topics import UserTopics
from hermes.gateway.settings import GatewaySettings, PlatformSettings
from hermes_state import SessionDB
from tests.chat.echo import PARTS, EchoModel
from tests.gateway.documented_key import make_session_key

OWNED = GatewaySettings(platforms={"telegram": PlatformSettings("telegram", owners=frozenset({"ann"}))})


def dm(who: str, thread: str | None = None) -> Source:
    return Source("telegram", f"dm-{who}", user_id=who, user_name=who.title(), thread_id=thread)


def group(who: str, chat: str = "room") -> Source:
    """Return a group chat. Each person in it has their own conversation but can read the messages of the
    others."""
    return Source("telegram", chat, "The Room", "group", who)


def thread(who: str) -> Source:
    """Return a thread in which all people share one conversation."""
    return Source("telegram", "room", "The Room", "thread", who, thread_id="7")


class Counting:
    """A compressor that counts its calls."""

    def __init__(self, focus: list[str | None]) -> None:
        self._focus = focus

    async def is_due(self, _rows: Sequence[dict[str, Any]], _used: Used | None) -> bool:
        return False

    def fit_rows(self, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        return rows

    def compress(self, *, overflow: bool) -> AsyncIterator[Event]:
        return self.compress_by_hand(str(overflow))

    async def compress_by_hand(self, focus: str | None = None) -> AsyncIterator[Event]:
        self._focus.append(focus)
        yield Moved("next", 12, 5)
        yield Note("Approx request size: ~900 → ~300 tokens")


class Chat:
    """A person in a chat. The object serves as the `CommandChat` of the commands and as the agent provider of
    the conversation."""

    def __init__(self, db: SessionDB, source: Source, settings: GatewaySettings = OWNED) -> None:
        self.db, self.source, self.settings = db, source, settings
        self.store = db.scoped(make_principal(source))
        self.is_shared = is_shared_multi_user_session(source, **asdict(settings.keying))
        self.key = make_session_key(source, settings.keying)
        self.lists = RememberedLists()
        self.waiting = 0
        self.incidents: Sequence[Incident] = ()
        self.topics: UserTopics | None = None
        self.was_trashed = False
        self.subagents = Subagents(3)
        self.due: float | None = None
        self.kept: dict[str, object] = {}
        self.saved: list[str | None] = []
        self.compresses_when_saving = False
        self.focus: list[str | None] = []
        self.memory = ""
        self.processes = 0
        self.moves: list[str] = []
        principal = make_room(source) if self.is_shared else make_principal(source)
        self.conversation = Conversation(
            db.scoped(principal),
            self,
            AgentScope(principal.owners[0], source.platform, False),
            Surface("gateway", stores_unanswered=True, route=ChatRoute(self.key, self.begin, self._move)),
        )

    # For the commands

    @property
    def session_id(self) -> str | None:
        return self.store.find_live_session(self.key)

    @property
    def working_since(self) -> float | None:
        return self.conversation.working_since

    @working_since.setter
    def working_since(self, began: float | None) -> None:
        self.conversation.working_since = began
        self.conversation.expect(began is not None)

    @property
    def waiting_approvals(self) -> Sequence[PendingApproval]:
        return ()

    def answer_approval(self, context: ChatCommandContext, words: str, *, allowed: bool) -> str:
        return NOTHING_WAITS

    async def resend_unknown(self) -> int:
        return 0

    async def drop_queued(self) -> int:
        return 0

    # For the conversation

    async def begin(self) -> str:
        known = self.session_id
        if known is None:
            known = self.store.create_session(shared=self.is_shared, session_key=self.key)
            alone = not self.is_shared and self.source.chat_type != "dm"
            self.store.route(self.key, known, alone=alone)
        await self.conversation.enter(known)
        return known

    async def _move(self, session_id: str) -> None:
        self.moves.append(session_id)

    def get_components(self, _scope: AgentScope) -> AgentComponents:
        return PARTS._replace(
            save=self._save,
            make_compressor=lambda _record, _inputs: Counting(self.focus),
            memory=lambda: self.memory,
            skills=lambda: [("cook", "makes soup")],
            stop_processes=lambda _store, _session: self.processes,
        )

    async def prepare_agent(self, scope: AgentScope, store: AnyStore, record: LiveRecord) -> PreparedAgent:
        return build_agent(self.get_components(scope), scope, store, record, EchoModel(), (), Path.home())

    async def close(self) -> None: ...

    async def _save(self, agent: Agent, least: int = 0) -> bool:
        record = agent.record
        assert isinstance(record, StoredRecord)
        self.saved.append(record.session_id)
        if self.compresses_when_saving:
            await record.continue_with("what was said", head=[], carried=[], prompt="")
        return True

    # For the tests

    @property
    def epoch(self) -> int | None:
        return self.conversation.epoch

    async def types(self, text: str) -> str:
        return (await self.answer(text)).text

    async def answer(self, text: str) -> CommandReply:
        command = find_command(text)
        assert command is not None, f"{text!r} is no command"
        session_id, moves = self.session_id, len(self.moves)
        if session_id is not None and not command.at_once:
            await self.conversation.enter(session_id)
        self.conversation.observe(session_id)
        try:
            return await run_command(command, self._make_context())
        finally:
            assert not command.at_once or len(self.moves) == moves, "what is answered at once changes nothing"
            await self.conversation.leave()

    async def talks(self, *said: str, title: str | None = None) -> str:
        """Store each text as a message of the person, followed by an answer. Return the current session."""
        session = await self.begin()
        for text in said:
            self.store.append_message(session, "user", text, lease_epoch=self.epoch)
            self.store.append_message(session, "assistant", f"Answer to: {text}", lease_epoch=self.epoch)
        if title is not None:
            self.store.set_session_title(session, title)
        await self.conversation.leave()
        return session

    def texts(self) -> list[str]:
        """The texts of the context that a model would receive."""
        session = self.session_id
        return [] if session is None else [row["content"] for row in self.store.get_context(session)]

    def row(self, session_id: str | None = None) -> dict[str, Any]:
        wanted = session_id or self.session_id
        found = None if wanted is None else self.db.get_session(wanted)
        assert found is not None
        return found

    def _make_context(self) -> ChatCommandContext:
        return ChatCommandContext(
            self.source,
            self.store,
            self,
            self.settings,
            {},
            self.kept.__setitem__,
            self.topics,
            lambda: self.due,
            self._is_owner(),
        )

    def _is_owner(self) -> bool:
        platform = self.settings.platforms.get(self.source.platform)
        return platform is not None and self.source.user_id in platform.owners
