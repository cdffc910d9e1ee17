"""A chat as commands, resets and its mailbox know it: where it is, which conversation it is in, and how to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hermes import clock, errors
from hermes.agent.prompt.participants import SharedRoom
from hermes.agent.prompt.system_prompt import WHO
from hermes.gateway.commands.command_context import Asked, Happening
from hermes.gateway.commands.markdown_format import code
from hermes.gateway.context import Letter, Office
from hermes.gateway.inbound.chat_approvals import Approvals, PendingApproval
from hermes.gateway.inbound_events import Event, Source
from hermes.gateway.sessions import incidents
from hermes.gateway.sessions.agents import Whose
from hermes.gateway.sessions.conversation import Talking
from hermes.gateway.sessions.prompt_context import build_session_context_prompt
from hermes.gateway.sessions.reset_scheduler import Resetting
from hermes.gateway.sessions.session_keys import principal_of, room_of
from hermes.gateway.sessions.session_lookup import Places
from hermes.gateway.sessions.topics import topics_of

if TYPE_CHECKING:
    from hermes.db.scoped_store import ScopedStore

REPLACED = "ⓘ The earlier conversation of this chat was moved to the trash. A new one begins here."
TRASHED = "The conversation before was deleted or moved to the trash, and a new one began."


class Chat:
    """What commands know as `Here`."""

    def __init__(self, office: Office, places: Places, key: str, source: Source) -> None:
        self.key, self.source, self.shared = key, source, places.is_shared(source, key)
        self._office, self._places = office, places
        self._room = SharedRoom() if self.shared else None
        store = office.db.scoped(room_of(source) if self.shared else principal_of(source))
        self.talking = Talking(office.minds, store, self._whose(), self._make_session)
        self.resetting = Resetting(office, self)
        self.approvals = Approvals(office, self)
        self._live: str | None = None
        self._waiting = 0
        self.happened: Sequence[Happening] = ()
        self.was_trashed = False

    def _whose(self) -> Whose:
        source, office = self.source, self._office
        about = build_session_context_prompt(
            source,
            shared=self.shared,
            platforms=list(office.adapters),
            home_channels={
                name: one.home_channel for name, one in office.settings.platforms.items() if one.home_channel
            },
            redact_pii=office.settings.redact_pii,
        )
        who = room_of(source) if self.shared else principal_of(source)
        machine = not self.shared and source.chat_type == "dm" and office.doorkeeper.is_owner(source)
        can_ask = machine and office.doorkeeper.can_approve(source)
        return Whose(who.owners[0], source.platform, machine, about, self._room, can_ask)

    def note_speaker(self, source: Source) -> None:
        """Note who speaks here, where several do: whoever owns the machine may change all notes of the room."""
        if self._room is not None:
            self._room.note_owner(principal_of(source).user, self._office.doorkeeper.is_owner(source))

    # ---------------------------------------------------------------- the conversation

    @property
    def store(self) -> ScopedStore:
        return self.talking.store

    @property
    def session_id(self) -> str | None:
        return self.talking.session_id or self._live

    @property
    def epoch(self) -> int | None:
        return self.talking.epoch

    async def begin(self) -> str:
        """The conversation that the chat is in, under its lease: whose it is, and whether the machine is theirs, may
        have changed since the last time."""
        if self.talking.session_id is None:
            self.talking.whose = self._whose()
        before = self._live
        self._live = await self._places.session(self.key, self.source)
        try:
            await self.talking.enter(self._live)
        except errors.UnknownSession:  # deleted since it was looked up
            self._live = await self._places.session(self.key, self.source)
            await self.talking.enter(self._live)
        await self._tell_if_replaced(before, self._live)
        if self.shared:
            await asyncio.to_thread(self._renew_prompt, self._live)
        return self._live

    async def _make_session(self) -> str:
        """The session in which the chat continues when its own was deleted during a turn."""
        self._live = await self._places.session(self.key, self.source)
        self._places.take_replaced(self.key)  # the turn tells it
        await asyncio.to_thread(incidents.note, self._office.db, self.key, TRASHED)
        return self._live

    async def _tell_if_replaced(self, before: str | None, session_id: str) -> None:
        """Say once that the chat continues in a new session because the earlier one was moved to the trash."""
        replaced = self._places.take_replaced(self.key)
        if not replaced and before not in (None, session_id):
            row = await asyncio.to_thread(lambda: self.store.get_session(before, include_trashed=True))
            replaced = row is not None and row["trashed_at"] is not None
        if replaced:
            await self.post(REPLACED, f"replaced:{session_id}")
            await asyncio.to_thread(incidents.note, self._office.db, self.key, TRASHED)

    def _renew_prompt(self, session_id: str) -> None:
        """Have the prompt of a room made anew if it is one for a single person: earlier versions gave it that."""
        session = self.store.get_session(session_id)
        if session is not None and WHO in (session["system_prompt"] or ""):
            self.store.update_system_prompt(session_id, None)

    async def moved(self, session_id: str) -> None:
        await self.talking.enter(session_id)
        self._live = session_id
        await asyncio.to_thread(incidents.came, self._office.db, self.key)
        await asyncio.to_thread(self._rebind_topic, session_id)

    def _rebind_topic(self, session_id: str) -> None:
        """A topic of Telegram's that is linked to what was left is linked to what it goes on in."""
        topics, thread = topics_of(self._office.db, self.source), self.source.thread_id
        if topics is not None and thread and topics.binding(thread) is not None:
            with suppress(ValueError):  # it is linked to another topic, and stays so
                topics.bind(thread, self.key, session_id)

    async def save(self) -> None:
        await self.talking.save()

    async def compress(self, focus: str | None) -> list[str]:
        return await self.talking.compress(focus)

    @property
    def working_since(self) -> float | None:
        return self.talking.working_since

    def stop(self) -> bool:
        return self.talking.stop()

    @property
    def waiting_approvals(self) -> Sequence[PendingApproval]:
        return self.approvals.waiting

    def answer_approval(self, asked: Asked, *, allowed: bool) -> str:
        return self.approvals.answer(asked, allowed=allowed)

    # ---------------------------------------------------------------- beside the work

    async def look(self, at_work: bool) -> None:
        """Find out where the chat is, for a command that is answered beside the work."""
        inbox = self._office.db.inbox
        self._live = await asyncio.to_thread(self.store.live_session, self.key)
        self.was_trashed = self._live is None and await asyncio.to_thread(
            self._office.db.routing.was_trashed, self.key
        )
        self.happened = [
            *await asyncio.to_thread(incidents.of, self._office.db, self.key),
            *(
                Happening(clock.now(), f"I wait for your approval ({code(one.name)}); nothing was done yet.")
                for one in self.approvals.waiting
            ),
        ]
        self._waiting = len(await asyncio.to_thread(inbox.waiting, self.key)) - at_work

    @property
    def waiting(self) -> int:
        return max(0, self._waiting)

    # ---------------------------------------------------------------- who asks, and what is answered

    def asked(self, source: Source, words: str, event: Event | None = None) -> Asked:
        """`event` is the message, if it is answered at once."""
        office = self._office
        return Asked(
            source,
            words,
            office.db.scoped(principal_of(source)),
            self,
            office.settings,
            office.adapters,
            office.keep_setting,
            topics_of(office.db, source),
            self.resetting.next_at,
            office.doorkeeper.is_owner(source),
            office.doorkeeper.can_approve(source),
            None if event is None else event.sent_at,
            None if event is None else event.message_id,
        )

    async def post(
        self, text: str, once: str, *, edits: str | None = None, reply: bool = False, silent: bool = False
    ) -> None:
        letter = Letter(self.source, text, self.reply_to if reply else None, silent, edits)
        await self._office.post(self.key, letter, once, self.session_id)

    @property
    def reply_to(self) -> str | None:
        """Where others talk, too, an answer says to whom."""
        return None if self.source.chat_type == "dm" else self.source.message_id
