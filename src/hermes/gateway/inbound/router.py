"""The router: passes a platform's message to the mailbox of its chat.
Messages of people without access reach neither the store nor the model. An accepted message is in the inbox
before the adapter gets its receipt. Some commands are answered at once, without the mailbox. Their answer is in
the outbox before the adapter gets the receipt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from hermes import clock, errors, secrets
from hermes.agent.models.call_limit import Slots
from hermes.clock import RecentEvents
from hermes.conversation.agents import move_person_folder
from hermes.db.store_queue import call_store, call_store_early
from hermes.gateway.adapter import FetchesFiles, Receipt
from hermes.gateway.commands import command_table
from hermes.gateway.commands.command_table import FoundCommand
from hermes.gateway.context import GatewayContext
from hermes.gateway.inbound import received_files
from hermes.gateway.inbound.mailbox import MOST_TRIES, Mailbox
from hermes.gateway.inbound.message_processor import BROKEN
from hermes.gateway.inbound_events import VERSION, Attachment, Event, OfferedFile, RemoteFile, Source
from hermes.gateway.outbound.delivery import OutgoingMessage
from hermes.gateway.sessions.session_keys import make_room
from hermes.gateway.sessions.session_lookup import SessionLookup, restore_source

log = logging.getLogger(__name__)

MOST_IDLE = 1_000
"""How many mailboxes may be added before the idle ones are dropped."""
MOST_RESUMED = 256
"""Maximum number of chats that are resumed at the same time after a restart."""
MOVE_S = 60.0
"""How long the move of a chat to a new id waits for a running turn, in seconds."""
TOO_MANY = "◌ That is more than {most} messages a minute; this one was dropped. Please wait a moment."
WELCOME = "✓ Welcome. You have access now; `/help` lists the commands."


class Router:
    def __init__(self, context: GatewayContext, lookup: SessionLookup) -> None:
        self._context, self._lookup = context, lookup
        self._mailboxes: dict[str, Mailbox] = {}
        self._is_closing = False
        self._sweep_at = MOST_IDLE
        """The number of mailboxes at which idle ones are dropped."""
        self._broken = RecentEvents(clock.HOUR)
        self._albums = RecentEvents(clock.MINUTE)

    async def receive(self, event: Event, offered: Sequence[OfferedFile] = ()) -> Receipt:
        """Accept a message from an adapter, and return its receipt. The parameters are those of `adapter.Receive`."""
        began = clock.now()
        event = event._replace(source=event.source.storable)
        receipt: Receipt | None
        try:
            if event.moves_to is not None:
                receipt = await self._move_chat(event.source, event.moves_to)
            elif event.removes:
                receipt = await self._accept_removal(event)
            elif (receipt := await self._check_admission(event, offered)) is None:
                found = None if event.edits is not None else command_table.find_command(event.text)
                if found is not None and found.at_once:
                    source = await self._lookup.resolve_private_source(event.source)
                    receipt = await self._run_at_once(event._replace(source=source), found)
                elif event.chosen is not None:  # buttons are for commands that are answered at once
                    receipt = Receipt("ignored")
                else:
                    if offered:
                        event = await self._fetch_files(event, offered)
                    async with self._context.limits.receipts:
                        receipt = await self._accept(event, found)
        except (errors.StoreError, OSError):
            raise
        except Exception as problem:  # noqa: BLE001 - raised again or logged
            receipt = await self._handle_failure(event, problem)
        metrics = self._context.metrics
        metrics.received.add(event.source.platform, receipt.state)
        if receipt.state == "accepted":
            metrics.stored_seconds.observe(clock.now() - began)
        return receipt

    async def _check_admission(self, event: Event, offered: Sequence[OfferedFile]) -> Receipt | None:
        """Return None if the message must be processed. Otherwise return the receipt for the adapter. Messages of
        people without access, pairing codes, empty messages and messages over the rate limit are not processed."""
        source = event.source
        access = self._context.access
        if (
            access.may_be_pairing(source, event.text)
            and await asyncio.to_thread(access.try_pairing, source, event.text) is not None
        ):
            return await self._welcome(source)
        if not self._context.access.admit(source):
            return Receipt("unauthorised")  # a stranger gets no reply, and nothing of the message is stored
        if not event.text.strip() and not offered:
            return Receipt("ignored")
        album, now = f"{source.platform}:{source.chat_id}:{event.album}", clock.now()
        if event.album is not None and self._albums.count(album, now):
            return None  # the parts of an album count as one message
        is_allowed, should_notify = self._context.access.check_rate(source)
        if not is_allowed:
            if should_notify:
                most = self._context.settings.messages_per_minute
                await self._notify(source, TOO_MANY.format(most=most), f"limited:{minute_key(source)}")
            return Receipt("limited")
        if event.album is not None:
            self._albums.add(album, now)
        return None

    async def _handle_failure(self, event: Event, problem: Exception) -> Receipt:
        """Handle an unexpected error (`problem`) while a message was accepted. Raise the error again, so that the
        platform delivers the message once more. After `MOST_TRIES` failures of the same message, return a receipt
        instead, so that the message does not block the platform."""
        source, now = event.source, clock.now()
        message = f"{source.platform}:{source.chat_id}:{event.message_id}"
        self._broken.add(message, now)
        if self._broken.count(message, now) < MOST_TRIES:
            raise problem
        log.error(
            "a message from %s failed repeatedly and will not be retried: %s",
            source.platform,
            secrets.redact(repr(problem)),
            exc_info=problem,
        )
        if self._context.access.is_admitted(source):
            with suppress(errors.HermesError):
                await self._notify(source, BROKEN, f"broken:{message}")
        return Receipt("failed")

    async def _fetch_files(self, event: Event, offered: Sequence[OfferedFile]) -> Event:
        """Fetch the offered files that cannot be fetched later. The other files stay on the platform until the
        message is processed."""
        later = isinstance(self._context.adapters.get(event.source.platform), FetchesFiles)
        at_once = [file for file in offered if file.reference is None or not later]
        attachments: tuple[Attachment, ...] = ()
        missing: list[str] = []
        if at_once:
            async with self._context.limits.attachments:
                attachments, missing = await received_files.fetch_files(
                    at_once, self._context.settings.largest_attachment_mb
                )
        return event._replace(
            attachments=attachments,
            files=tuple(
                RemoteFile(*file[:4], file.reference)
                for file in offered
                if file.reference is not None and later
            ),
            text="\n\n".join((event.text, *missing)).strip() if missing else event.text,
        )

    async def _accept(self, event: Event, command: FoundCommand | None) -> Receipt:
        inbox = self._context.db.inbox
        entry = None
        try:
            source, key = await self._lookup.find_chat(event.source)
            event = event._replace(source=source)
            entry = await call_store(inbox.accept, key, source.platform, event.to_dict(), event.message_id)
        finally:
            if entry is None:  # a duplicate, or a failure; after a failure the message is delivered again
                await received_files.discard_files(event)
        if entry is None:
            return Receipt("duplicate", key)
        mailbox = self._mailboxes.get(key)
        if mailbox is not None and not mailbox.is_idle:
            mailbox.handle_arrival(event, command)
        else:
            self._context.limits.turns.call_when_free(key, partial(self._start, key, source))
        return Receipt("accepted", key)

    def _start(self, key: str, source: Source) -> bool:
        """Start the mailbox of a chat for which a turn slot was taken. Return False if the slot is not needed. The
        mailbox object is created only now, so that a chat that waits for a slot needs little memory."""
        return not self._is_closing and self.mailbox(key, source).start()

    async def _accept_removal(self, event: Event) -> Receipt:
        """Accept the deletion of a message by its author. The author needs no access for this. The deletion of
        a message that was never accepted is ignored."""
        db, source, message = self._context.db, event.source, event.edits
        assert message is not None
        known = await asyncio.to_thread(db.inbox.find_key, source.platform, message)
        route = None if known is None else await asyncio.to_thread(db.routing.get, known)
        if route is None:  # the inbox remembers messages for some days only
            route = await asyncio.to_thread(
                lambda: db.routing.find_by_origin(
                    source.platform, source.chat_id, participant=source.participant
                )
            )
        key = known if route is None else route.session_key
        # The platform does not say in which thread the deleted message was. The route does or, if the chat has
        # none yet, its waiting message.
        chat = None if key is None else await call_store_early(self._find_source, key)
        if key is None or chat is None or chat.chat_id != source.chat_id:
            return Receipt("ignored")
        await call_store_early(db.inbox.withdraw, key, message, VERSION)
        event = event._replace(source=chat._replace(message_id=message))
        entry = await asyncio.to_thread(
            db.inbox.accept, key, source.platform, event.to_dict(), event.message_id
        )
        if entry is None:
            return Receipt("duplicate", key)
        self.mailbox(key, event.source).handle_arrival(event, None)
        return Receipt("accepted", key)

    async def _move_chat(self, source: Source, new_id: str) -> Receipt:
        """Route the conversations of a chat to `new_id`, the id by which the platform has replaced the id of the
        chat. Return the receipt for the event that reported the change."""
        context, moved = self._context, source._replace(chat_id=new_id)
        here = [
            mailbox
            for mailbox in self._mailboxes.values()
            if mailbox.chat.is_shared
            and mailbox.chat.source[:2] == source[:2]  # the move changes the owner of their conversations
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(MOVE_S):
                await asyncio.gather(*(mailbox.wait_until_idle() for mailbox in here))
        keys = await asyncio.to_thread(
            context.db.routing.change_chat_id, source.platform, source.chat_id, new_id
        )
        await asyncio.to_thread(move_person_folder, make_room(source).room, make_room(moved).room)
        if context.platform(source.platform).home_channel == source.chat_id:
            key = f"platforms.{source.platform}.home_channel"
            await asyncio.to_thread(context.store_setting, key, new_id)
        self._lookup.forget_chats()
        for key in keys:
            self.forget(key)
        return Receipt("ignored")

    async def _run_at_once(self, event: Event, command: FoundCommand) -> Receipt:
        source = event.source
        key = await self._lookup.find_key(source)
        mailbox = self.mailbox(key, source)
        chat = mailbox.chat
        await chat.refresh(mailbox.is_working)
        answer = await command_table.run_command(command, chat.make_command_context(source, event))
        message_id = event.message_id or f"{clock.now():.3f}"
        message = OutgoingMessage(
            source, answer.text, None if source.chat_type == "dm" else source.message_id
        )
        idempotency_key = f"command:{source.platform}:{key}:{message_id}"
        new = await self._context.delivery.post(key, message, idempotency_key, chat.session_id)
        return Receipt("answered" if new else "duplicate", key)

    async def _welcome(self, source: Source) -> Receipt:
        """Greet a person who has just been paired."""
        log.info("somebody was paired on %s", source.platform)
        await self._notify(
            source, WELCOME, f"paired:{source.platform}:{source.participant}:{clock.now():.0f}"
        )
        return Receipt("answered")

    async def _notify(self, source: Source, text: str, idempotency_key: str) -> None:
        await self._context.delivery.post(
            await self._lookup.find_key(source), OutgoingMessage(source, text), idempotency_key
        )

    # ---------------------------------------------------------------- mailboxes

    def mailbox(self, key: str, source: Source) -> Mailbox:
        known = self._mailboxes.get(key)
        if known is not None and known.is_idle and known.chat.source.chat_id != source.chat_id:
            del self._mailboxes[key]  # the chat has moved, so its scope has changed
        if key not in self._mailboxes:
            if len(self._mailboxes) >= self._sweep_at:
                for old in [name for name, mailbox in self._mailboxes.items() if mailbox.is_idle]:
                    del self._mailboxes[old]
                self._sweep_at = len(self._mailboxes) + MOST_IDLE
            self._mailboxes[key] = Mailbox(self._context, self._lookup, key, source)
        return self._mailboxes[key]

    def forget(self, key: str) -> None:
        """Drop the mailbox of a chat if it is idle. Called when the chat gets another conversation, which may
        have another owner."""
        self._lookup.forget_chats()
        mailbox = self._mailboxes.get(key)
        if mailbox is not None and mailbox.is_idle:
            del self._mailboxes[key]

    async def stop_blocked(self) -> int:
        """Stop the running turns of blocked people. Return the number of turns."""
        working = [mailbox for mailbox in self._mailboxes.values() if mailbox.is_working]
        blocked = [mailbox for mailbox in working if self._context.access.is_blocked(mailbox.chat.source)]
        for mailbox in blocked:
            mailbox.chat.conversation.stop()
        return len(blocked)

    def renew_agents(self) -> None:
        """Make all chats build their agents again before the next turn. Called when settings have changed."""
        for mailbox in self._mailboxes.values():
            mailbox.chat.conversation.renew_agent()

    async def wake(self, key: str) -> None:
        """Wake the mailbox of a chat."""
        mailbox = self._mailboxes.get(key)
        if mailbox is None:
            source = await call_store_early(self._find_source, key)
            if source is None:
                return
            mailbox = self.mailbox(key, source)
        mailbox.wake()

    def _find_source(self, key: str) -> Source | None:
        """Return the source of the chat with the session key `key`. It is built from the route of the chat. If the
        chat has no route yet, it is taken from a waiting inbox message."""
        db = self._context.db
        route = db.routing.get(key)
        if route is None:
            return self._lookup.find_waiting_source(key)
        return restore_source(db, route, self._context.settings.keying)

    async def resume_inbox(self) -> None:
        """Resume the messages that the previous process left in the inbox, a limited number of chats at a
        time."""
        db, after, count = self._context.db, 0, 0
        await asyncio.to_thread(self._remove_leftover_files)
        resuming = Slots(MOST_RESUMED)
        while waiting := await call_store_early(db.inbox.list_waiting_chats, after):
            for key, after in waiting:  # noqa: B007 - the next query begins after the last value of `after`
                await resuming.acquire()
                if self._is_closing:
                    return
                await self.wake(key)
                mailbox = self._mailboxes.get(key)
                if mailbox is None or not mailbox.call_when_done(resuming.release):
                    resuming.release()
                count += 1
        if count:
            log.info("resumed the waiting messages of %d chat(s)", count)

    def _remove_leftover_files(self) -> None:
        """Remove stored attachments that belong to no message of the inbox."""
        if not received_files.has_files():
            return
        needed = []
        for entry in self._context.db.inbox.list_waiting():
            with suppress(errors.InvalidArgument):  # the mailbox reports an invalid message later
                event = Event.from_dict(entry.event)
                if event.attachments:
                    needed.append(event)
        received_files.remove_leftovers(needed, clock.now() - 3600)

    def stop_accepting(self) -> None:
        """Start no new turns from now on. Running turns are finished."""
        self._is_closing = True
        for mailbox in self._mailboxes.values():
            mailbox.stop_accepting()

    async def close(self, seconds: float) -> None:
        """Shut down. Wait up to `seconds` for running turns, then stop them. Waiting messages stay in the
        inbox."""
        self.stop_accepting()
        mailboxes = [mailbox for mailbox in self._mailboxes.values() if not mailbox.is_idle]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(mailbox.wait_until_idle() for mailbox in mailboxes))
        await asyncio.gather(*(mailbox.close() for mailbox in mailboxes), return_exceptions=True)


def minute_key(source: Source) -> str:
    """Return a text for the idempotency key of a notice to the sender in `source`. The text changes every minute,
    so that the notice is sent at most once a minute."""
    return f"{source.platform}:{source.participant or source.chat_id}:{clock.now() // 60:.0f}"
