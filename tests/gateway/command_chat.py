"""A chat for tests of commands: what is typed is found and run; routing and leases are the store's own.

There is no mailbox and no agent. What a command asks of them is counted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from msgspec.structs import asdict

from hermes.agent.components import AgentComponents
from hermes.agent.events import Event, Moved, Note
from hermes.agent.subagents import Subagents
from hermes.gateway.commands.command_context import ChatCommandContext, CommandReply
from hermes.gateway.commands.command_table import find_command
from hermes.gateway.inbound.chat_approvals import NOTHING_WAITS, PendingApproval
from hermes.gateway.inbound_events import Source
from hermes.gateway.incidents import Incident
from hermes.gateway.sessions.session_keys import (
    is_shared_multi_user_session,
    make_principal,
    make_session_key,
)
from hermes.gateway.sessions.topics import UserTopics
from hermes.gateway.settings import GatewaySettings, PlatformSettings
from hermes.store.chats.leases import Lease
from hermes_state import SessionDB
from tests.chat.echo import PARTS

OWNED = GatewaySettings(platforms={"telegram": PlatformSettings("telegram", owners=frozenset({"ann"}))})


def dm(who: str, thread: str | None = None) -> Source:
    return Source("telegram", f"dm-{who}", user_id=who, user_name=who.title(), thread_id=thread)


def group(who: str, chat: str = "room") -> Source:
    """Everybody has a conversation of their own there, and reads those of the others."""
    return Source("telegram", chat, "The Room", "group", who)


def thread(who: str) -> Source:
    """One conversation for all."""
    return Source("telegram", "room", "The Room", "thread", who, thread_id="7")


class Chat:
    """A person at a chat. It is the `CommandChat` of its own commands."""

    def __init__(self, db: SessionDB, source: Source, settings: GatewaySettings = OWNED) -> None:
        self.db, self.source, self.settings = db, source, settings
        self.store = db.scoped(make_principal(source))
        self.is_shared = is_shared_multi_user_session(source, **asdict(settings.keying))
        self.key = make_session_key(source, settings.keying)
        self.working_since: float | None = None
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
        self._lease: Lease | None = None
        self._run_at_once = False

    # What commands use

    @property
    def session_id(self) -> str | None:
        return self.store.find_live_session(self.key)

    @property
    def epoch(self) -> int | None:
        return None if self._run_at_once or self._lease is None else self._lease.epoch

    @property
    def waiting_approvals(self) -> Sequence[PendingApproval]:
        return ()

    def answer_approval(self, context: ChatCommandContext, *, allowed: bool) -> str:
        return NOTHING_WAITS

    def stop(self) -> bool:
        running, self.working_since = self.working_since is not None, None
        return running

    async def begin(self) -> str:
        known = self.session_id
        if known is None:
            known = self.store.create_session(shared=self.is_shared, session_key=self.key)
            alone = not self.is_shared and self.source.chat_type != "dm"
            self.store.route(self.key, known, alone=alone)
        self._hold(known)
        return known

    async def switch_to(self, session_id: str) -> None:
        assert not self._run_at_once, "what is answered at once changes nothing"
        self._hold(session_id)

    async def save(self) -> None:
        self.saved.append(self.session_id)
        if self.compresses_when_saving and self.session_id is not None:
            self._hold(
                self.store.begin_continuation(self.session_id, "what was said", lease_epoch=self.epoch)
            )

    async def compress(self, focus: str | None) -> AsyncGenerator[Event, None]:
        self.focus.append(focus)
        yield Moved("next", 12, 5)
        yield Note("Approx request size: ~900 → ~300 tokens")

    def get_components(self) -> AgentComponents:
        return PARTS._replace(
            memory=lambda: self.memory,
            skills=lambda: [("cook", "makes soup")],
            stop_processes=lambda _store, _session: self.processes,
        )

    # What tests use

    async def types(self, text: str) -> str:
        return (await self.answer(text)).text

    async def answer(self, text: str) -> CommandReply:
        found = find_command(text)
        assert found is not None, f"{text!r} is no command"
        command, words = found
        if self.session_id is not None:
            self._hold(self.session_id)
        self._run_at_once = command.at_once
        try:
            return await command.run(self._asked(words))
        finally:
            self._run_at_once = False
            self._let_go()

    async def talks(self, *said: str, title: str | None = None) -> str:
        """Exchanges: what the person says, and that the agent answers; the session they are in."""
        session = await self.begin()
        for text in said:
            self.store.append_message(session, "user", text, lease_epoch=self.epoch)
            self.store.append_message(session, "assistant", f"Answer to: {text}", lease_epoch=self.epoch)
        if title is not None:
            self.store.set_session_title(session, title)
        self._let_go()
        return session

    def texts(self) -> list[str]:
        """What the model would be given."""
        session = self.session_id
        return [] if session is None else [row["content"] for row in self.store.get_context(session)]

    def row(self, session_id: str | None = None) -> dict[str, Any]:
        wanted = session_id or self.session_id
        found = None if wanted is None else self.db.get_session(wanted)
        assert found is not None
        return found

    def _asked(self, words: str) -> ChatCommandContext:
        return ChatCommandContext(
            self.source,
            words,
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

    def _hold(self, session_id: str) -> None:
        lease = self.store.leases.acquire(session_id, "gateway")
        if self._lease is not None and self._lease.conversation_id != lease.conversation_id:
            self.store.leases.release(self._lease)
        self._lease = lease

    def _let_go(self) -> None:
        """As a mailbox does when there is nothing more to do."""
        if self._lease is not None:
            self.store.leases.release(self._lease)
            self._lease = None
