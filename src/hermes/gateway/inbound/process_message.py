"""Work on one message of a chat: a command is done, anything else is said to the agent; the answer is posted.

What somebody began with before is gone on with. Who works has the lease of the conversation.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from hermes import clock, errors
from hermes.agent.events import ApprovalAsked
from hermes.gateway.adapter import AdapterError
from hermes.gateway.commands import table
from hermes.gateway.commands.command_context import Command
from hermes.gateway.context import Office
from hermes.gateway.inbound import inbox_recovery, received_files
from hermes.gateway.inbound.chat_approvals import RESTARTED, STOPPED
from hermes.gateway.inbound_events import Event, said_first
from hermes.gateway.outbound.answer import heard
from hermes.gateway.outbound.retry import surely
from hermes.gateway.outbound.streaming import LiveMessage
from hermes.gateway.sessions import incidents
from hermes.gateway.sessions.chat_state import Chat
from hermes.gateway.sessions.prompt_context import speaker
from hermes.recall.tool.prompt_safety import make_name as one_line
from hermes.recall.tool.prompt_safety import neutralise_speech

if TYPE_CHECKING:
    from hermes.store.chats.inbox import InboxEntry

log = logging.getLogger(__name__)

HALF_WAY = (
    "⚠ I was cut off during `{command}`; it may or may not have been done. `/status` shows how things are."
)
LONGEST_REASON = 300
NO_STORE = "⚠ I cannot write anything down just now; my answer follows when I can."


class Work:
    def __init__(self, office: Office, chat: Chat) -> None:
        self._office, self._chat = office, chat

    async def on(self, entry: InboxEntry, event: Event) -> None:
        at = min(event.sent_at, entry.received_at)
        self._chat.note_speaker(event.source)
        found = None if event.edits is not None else table.find(event.text)
        self._chat.talking.expect(found is None)
        if found is not None:
            await self._command(entry, event, *found)
        elif entry.again and (followed := await inbox_recovery.stored(self._chat, entry)) is not None:
            await self._go_on(entry, followed)
        elif event.edits is not None:
            if not await self._is_outdated(entry, event.edits) and await inbox_recovery.taken_back(
                self._chat, event.edits, again=entry.again
            ):
                await self._answer(entry, await self.content(event))
        else:
            await self._chat.resetting.if_due(at)
            await self._answer(entry, await self.content(event))

    async def _is_outdated(self, entry: InboxEntry, message_id: str) -> bool:
        """Whether the message was changed once more since: then that is answered."""
        waiting = await asyncio.to_thread(self._office.db.inbox.waiting, self._chat.key)
        return any(one.id > entry.id and said_first(one.platform_message_id) == message_id for one in waiting)

    async def _command(self, entry: InboxEntry, event: Event, command: Command, words: str) -> None:
        once = f"inbox:{entry.id}:answer"
        if entry.again:  # nothing is posted if its answer was
            await self.post(HALF_WAY.format(command=f"/{command.name}"), once)
            return
        answer = await command.run(self._chat.asked(event.source, words))
        adapter = self._office.adapters.get(event.source.platform)
        if answer.say is None or adapter is None or adapter.can.says_more:
            await self.post(answer.text, once)
        if answer.say is not None:
            await self._answer(entry, answer.say)

    async def _go_on(self, entry: InboxEntry, followed: list[dict[str, Any]]) -> None:
        """A message is in the conversation already: its answer is posted, or made now."""
        answer = inbox_recovery.answer_in(followed)
        if answer is None:
            await self._answer(entry, None)
        else:
            once, preview = f"reply:{answer['id']}", await self._preview_of(entry)
            await self.post(str(answer["content"]), once, edits=preview, reply=True)

    async def content(self, event: Event) -> Any:
        """What is said to the agent; where several people talk, it is told who."""
        if not self._chat.shared:
            return await asyncio.to_thread(received_files.content_of, event)
        mark = speaker(event.source, redact_pii=self._office.settings.redact_pii)
        self._chat.note_speaker(event.source)
        return await asyncio.to_thread(
            lambda: received_files.content_of(event._replace(text=neutralise_speech(event.text)), mark)
        )

    async def _answer(self, entry: InboxEntry, content: Any) -> None:
        """One turn, and its answer on the way to the person."""
        office, began = self._office, clock.now()
        live = await self._live_message(entry)
        talking, approvals = self._chat.talking, self._chat.approvals

        def ask(asked: ApprovalAsked) -> None:
            approvals.ask(asked, talking.decide, live.go_on if live is not None else lambda: None)

        said = talking.say(content, platform_message_id=inbox_recovery.mark(entry))
        try:
            async with aclosing(said) as events:
                answered = await heard(events, live, office.metrics, ask)
        except asyncio.CancelledError:
            approvals.withdraw(RESTARTED)
            raise
        finally:
            approvals.withdraw(STOPPED)
        office.metrics.turns.add(answered.outcome)
        office.metrics.turn_seconds.observe(clock.now() - began)
        if answered.why is not None:
            log.warning("%s got no answer: %s", self._chat.key, one_line(answered.why, LONGEST_REASON))
        for stored, text in answered.before:
            await self.post(text, f"reply:{stored}", reply=True)
        if answered.text:
            once = f"inbox:{entry.id}:reply"
            if answered.message_id is not None and answered.outcome == "answered":
                once = f"reply:{answered.message_id}"
            await self.post(answered.text, once, edits=answered.preview, reply=True)

    async def _live_message(self, entry: InboxEntry) -> LiveMessage | None:
        """Where the answer is seen as it comes: what a crash left of that is gone on with."""
        office, chat = self._office, self._chat
        adapter = office.adapters.get(chat.source.platform)
        if adapter is None:
            return None

        async def sent(preview: str) -> None:
            with suppress(errors.StoreError):
                await asyncio.to_thread(incidents.shown, office.db, chat.key, entry.id, preview)

        return LiveMessage(
            adapter,
            chat.source,
            f"inbox:{entry.id}",
            stream=office.platform(chat.source.platform).stream,
            reply_to=chat.reply_to,
            message=await self._preview_of(entry),
            sent=sent,
            must_wait=lambda: office.is_delivering(chat.key),
        )

    async def _preview_of(self, entry: InboxEntry) -> str | None:
        if not entry.again:
            return None
        return await asyncio.to_thread(incidents.preview, self._office.db, self._chat.key, entry.id) or None

    # ---------------------------------------------------------------- what was done is written down

    async def post(self, text: str, once: str, *, edits: str | None = None, reply: bool = False) -> None:
        await surely(
            lambda: self._chat.post(text, once, edits=edits, reply=reply), trouble=self._tell_beside_the_store
        )

    async def _tell_beside_the_store(self) -> None:
        """What is posted would have to be stored first."""
        to = self._chat.source
        adapter = self._office.adapters.get(to.platform)
        if adapter is not None:
            with suppress(AdapterError):
                await adapter.send(to, NO_STORE, once=f"no-store:{self._chat.key}:{clock.now():.0f}")
