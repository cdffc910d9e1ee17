"""Processes one message of a chat: runs a command or a turn of the agent, and posts the answer.
If the processing of the message was interrupted before, it is resumed. The caller holds the lease of the
conversation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes import clock, errors, secrets
from hermes.agent.answer import collect_answer
from hermes.agent.events import ApprovalAsked
from hermes.agent.models.provider_errors import hide_detail
from hermes.conversation.spending_limit import LimitReached
from hermes.db.store_queue import call_store, call_store_early
from hermes.gateway import incidents
from hermes.gateway.adapter import AdapterError
from hermes.gateway.commands import command_table
from hermes.gateway.commands.command_table import FoundCommand
from hermes.gateway.context import GatewayContext
from hermes.gateway.inbound import inbox_recovery, received_files
from hermes.gateway.inbound.albums import collect_album
from hermes.gateway.inbound.chat_approvals import RESTARTED, STOPPED
from hermes.gateway.inbound.chat_state import Chat
from hermes.gateway.inbound_events import Event, original_message_id
from hermes.gateway.outbound.chat_reply import ChatReply, ReplyView
from hermes.gateway.outbound.retry import until_stored
from hermes.gateway.outbound.streaming import UNSENT, LiveMessage
from hermes.gateway.sessions.prompt_context import format_speaker
from hermes.recall.tool.prompt_safety import neutralise_speech, to_one_line

if TYPE_CHECKING:
    from hermes.store.chats.inbox import InboxEntry

log = logging.getLogger(__name__)

HALF_WAY = (
    "⚠ I was interrupted during `{command}`; it may or may not be done. `/status` shows the current state."
)
LONGEST_REASON = 300
BROKEN = "⚠ An unexpected error occurred. The details are in the log; the conversation is kept."
NO_STORE = "⚠ I cannot store messages at the moment; I will answer as soon as I can."


class MessageProcessor:
    def __init__(self, context: GatewayContext, chat: Chat) -> None:
        self._context, self._chat = context, chat
        self.completed_id: int | None = None
        """The id of the last inbox entry that was completed together with its reply."""
        self.persist = partial(until_stored, trouble=self._notify_without_store)
        """Repeats a post until its message is in the outbox. The text of the message is stored nowhere else."""

    async def process(self, entry: InboxEntry, event: Event) -> None:
        """Process the message `event` of an inbox entry: run its command or answer it in a turn. Store errors are
        raised, and the caller must then process the entry again. Any other error is posted to the chat."""
        at = min(event.sent_at, entry.received_at)
        chat = self._chat
        try:
            chat.note_speaker(event.source)
            command = None if event.edits is not None else command_table.find_command(event.text)
            chat.conversation.expect(command is None and not event.removes)
            if command is not None:
                await self._run_command(entry, event, command)
            elif entry.again and (followed := await inbox_recovery.find_following(chat, entry)) is not None:
                await self._resume(entry, followed)
            elif event.edits is not None and event.removes:
                await inbox_recovery.remove_deleted(chat, event.edits)
            elif event.edits is not None:
                if not await self._is_outdated(entry, event.edits) and await inbox_recovery.take_back_edited(
                    chat, event.edits, again=entry.again
                ):
                    await self._answer(entry, await self.make_content(event))
            else:
                await chat.resets.reset_if_due(at)
                album = await collect_album(self._context.db, entry, event)
                await self._answer(entry, await self.make_content(album))
        except errors.StoreError:
            raise
        except errors.HermesError as problem:
            shown = problem if chat.conversation.scope.machine else hide_detail(problem)
            if shown is not problem:
                log.warning("%s: a message was not answered: %s", chat.key, secrets.redact(str(problem)))
            await self.persist(chat.prepare_post(f"⚠ {shown}", f"inbox:{entry.id}:error"))
        except Exception as problem:
            log.error(
                "%s: a message could not be processed: %s",
                chat.key,
                secrets.redact(repr(problem)),
                exc_info=True,
            )
            await self.persist(chat.prepare_post(BROKEN, f"inbox:{entry.id}:broken"))

    async def _is_outdated(self, entry: InboxEntry, message_id: str) -> bool:
        """Return whether a later inbox entry holds a newer version of the edited message `message_id`. Only the
        newest version is answered."""
        waiting = await call_store_early(self._context.db.inbox.list_waiting, self._chat.key)
        return any(
            other.id > entry.id and original_message_id(other.platform_message_id) == message_id
            for other in waiting
        )

    async def _run_command(self, entry: InboxEntry, event: Event, command: FoundCommand) -> None:
        idempotency_key = f"inbox:{entry.id}:answer"
        if entry.again:  # the key prevents a second post if the answer was posted
            text = HALF_WAY.format(command=f"/{command.name}")
            await self.persist(self._chat.prepare_post(text, idempotency_key))
            return
        answer = await command_table.run_command(command, self._chat.make_command_context(event.source))
        adapter = self._context.adapters.get(event.source.platform)
        asks_again = answer.repeats_last or answer.next_content is not None
        if not asks_again or adapter is None or adapter.capabilities.allows_many_replies:
            await self.persist(self._chat.prepare_post(answer.text, idempotency_key))
        if asks_again:
            await self._answer(entry, answer.next_content)

    async def _resume(self, entry: InboxEntry, followed: list[dict[str, Any]]) -> None:
        """Resume an inbox entry whose message is already in the conversation. `followed` are the messages after it
        in the conversation. If they contain an answer, post the answer; otherwise run a turn."""
        answer = inbox_recovery.find_answer(followed)
        if answer is None:
            await self._answer(entry, None)
        else:
            text, preview = str(answer["content"]), await self._find_preview(entry)
            await self.persist(self._prepare_reply(text, f"reply:{answer['id']}", preview))

    async def make_content(self, event: Event) -> Any:
        """Return the content of a message for the agent. Fetches the files that are still on the platform. In a
        shared chat the content names the speaker."""
        context = self._context
        complete = await received_files.fetch_remote(
            event, context.adapters.get(event.source.platform), context.settings.largest_attachment_mb
        )
        try:
            return await self._build_content(complete)
        finally:
            if event.files:  # the content includes them
                fetched = complete.attachments[len(event.attachments) :]
                await asyncio.to_thread(received_files.remove_files, complete._replace(attachments=fetched))

    async def _build_content(self, event: Event) -> Any:
        if not self._chat.is_shared:
            return await received_files.make_content(event)
        mark = format_speaker(event.source, redact_pii=self._context.settings.redact_pii)
        self._chat.note_speaker(event.source)
        return await received_files.make_content(event._replace(text=neutralise_speech(event.text)), mark)

    async def _answer(self, entry: InboxEntry, content: Any) -> None:
        """Run one turn and post its answer."""
        context, began = self._context, clock.now()
        live = await self._make_live_message(entry)
        conversation, approvals = self._chat.conversation, self._chat.approvals

        def ask(request: ApprovalAsked) -> None:
            approvals.ask(request, conversation.decide, live.resume if live is not None else lambda: None)

        turn = conversation.say(content, platform_message_id=inbox_recovery.message_mark(entry))
        try:
            async with ReplyView(live, ask) as view:
                with context.metrics.turns_running.count_inside():
                    answer = await collect_answer(turn, view.show)
        except asyncio.CancelledError:
            approvals.withdraw(RESTARTED)
            raise
        finally:
            approvals.withdraw(STOPPED)
        if answer.lost_lease is not None:
            raise answer.lost_lease
        reply = ChatReply(answer, view.preview)
        context.metrics.turns.add(answer.outcome)
        context.metrics.turn_seconds.observe(clock.now() - began)
        if answer.failure is not None and not isinstance(answer.failure.error, LimitReached):
            log.warning(
                "%s: the turn failed: %s",
                self._chat.key,
                to_one_line(answer.failure.hidden or answer.failure.why, LONGEST_REASON),
            )
        for message_id, text in answer.completed:
            await self.persist(self._chat.prepare_post(text, f"reply:{message_id}", reply=True))
        if reply.text:
            idempotency_key = f"inbox:{entry.id}:reply"
            if answer.message_id is not None and answer.outcome == "answered":
                idempotency_key = f"reply:{answer.message_id}"
            await self.persist(
                self._prepare_reply(
                    reply.text, idempotency_key, reply.preview, then=partial(self._complete, entry)
                )
            )

    def _complete(self, entry: InboxEntry) -> None:
        self._context.db.inbox.complete(entry.id, entry.epoch)
        self.completed_id = entry.id

    def _prepare_reply(
        self,
        text: str,
        idempotency_key: str,
        preview: str | None,
        then: Callable[[], object] | None = None,
    ) -> Callable[[], Awaitable[bool]]:
        """Return a function that posts an answer to the chat. If the answer had a live preview, the function edits
        the preview message into the answer. `preview` is the platform id of the preview message, None without a
        preview, or `UNSENT`. `UNSENT` means that an earlier process ended while it sent the preview. The preview
        may have arrived, and the chat would then show two answers. Therefore the answer is posted as `doubtful`
        (see `Delivery.post`)."""
        return self._chat.prepare_post(
            text,
            idempotency_key,
            edits=None if preview == UNSENT else preview,
            reply=True,
            doubtful=preview == UNSENT,
            then=then,
        )

    async def _make_live_message(self, entry: InboxEntry) -> LiveMessage | None:
        """Create the live preview of the answer. If a crashed process left a preview, continue to edit it."""
        context, chat = self._context, self._chat
        adapter = context.adapters.get(chat.source.platform)
        if adapter is None:
            return None

        async def sent(preview: str) -> None:
            with suppress(errors.StoreError):
                await call_store(incidents.set_preview, context.db, chat.key, entry.id, preview)

        preview = await self._find_preview(entry)
        return LiveMessage(
            adapter,
            chat.source,
            f"inbox:{entry.id}",
            stream=context.platform(chat.source.platform).stream and preview != UNSENT,
            reply_to=chat.reply_to,
            message=preview,
            sent=sent,
            must_wait=lambda: context.delivery.is_busy(chat.key),
            slot=lambda: context.limits.deliveries(chat.source.platform),
        )

    async def _find_preview(self, entry: InboxEntry) -> str | None:
        if not entry.again:
            return None
        found = await call_store_early(incidents.get_preview, self._context.db, self._chat.key, entry.id)
        adapter = self._context.adapters.get(self._chat.source.platform)
        if found == UNSENT and adapter is not None and adapter.capabilities.idempotent:
            return None  # if it is sent again, the platform returns the id of the same message
        return found or None

    async def _notify_without_store(self) -> None:
        """Tell the person that the store is not available. The notice is sent directly to the platform, because the
        outbox is in the store."""
        to = self._chat.source
        adapter = self._context.adapters.get(to.platform)
        if adapter is not None:
            with suppress(AdapterError):
                await adapter.send(
                    to, NO_STORE, idempotency_key=f"no-store:{self._chat.key}:{clock.now():.0f}"
                )
