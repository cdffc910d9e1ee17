"""The router: from a message of a platform to the mailbox of its conversation.

Who may not talk to us reaches neither the store nor the model. What is accepted is in the inbox before the platform is
told; a command that changes nothing is answered at once, and its answer is in the outbox by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from hermes import clock, errors, secrets
from hermes.gateway.adapter import Receipt
from hermes.gateway.commands import table
from hermes.gateway.commands.command_context import Command
from hermes.gateway.context import Letter, Office
from hermes.gateway.inbound import received_files
from hermes.gateway.inbound.mailbox import BROKEN, MOST_TRIES, Mailbox
from hermes.gateway.inbound_events import Event, Offered, Source
from hermes.gateway.rate_limit import Recently
from hermes.gateway.sessions.session_lookup import Places, source_of

log = logging.getLogger(__name__)

MOST_IDLE = 2_000
"""How many mailboxes with nothing to do are remembered."""
TOO_MANY = "◌ That is more than {most} messages a minute; I have left this one. Please wait a moment."
WELCOME = "✓ Welcome. You can talk to me here now; `/help` shows what I understand."


class Router:
    def __init__(self, office: Office, places: Places) -> None:
        self._office, self._places = office, places
        self._mailboxes: dict[str, Mailbox] = {}
        self._broken = Recently(clock.HOUR)

    async def receive(self, event: Event, offered: Sequence[Offered] = ()) -> Receipt:
        """Take a message in; see `adapter.Receive`."""
        began = clock.now()
        event = event._replace(source=event.source.storable)
        try:
            receipt = await self._received(event, offered)
        except (errors.StoreError, OSError):
            raise
        except Exception as problem:  # noqa: BLE001 - it is raised again, or told in the log
            receipt = await self._broke(event, problem)
        metrics = self._office.metrics
        metrics.received.add(event.source.platform, receipt.state)
        if receipt.state == "accepted":
            metrics.stored_seconds.observe(clock.now() - began)
        return receipt

    async def _received(self, event: Event, offered: Sequence[Offered]) -> Receipt:
        source = event.source
        if await asyncio.to_thread(self._office.doorkeeper.pairs, source, event.text) is not None:
            return await self._welcome(source)
        if not self._office.doorkeeper.admits(source):
            return Receipt("unauthorised")  # a stranger is told nothing, and nothing of them is kept
        if not event.text.strip() and not offered:
            return Receipt("ignored")
        may, tell = self._office.doorkeeper.may_speak(source)
        if not may:
            if tell:
                most = self._office.settings.messages_per_minute
                await self._tell(source, TOO_MANY.format(most=most), f"limited:{began_minute(source)}")
            return Receipt("limited")
        event = event._replace(source=await self._places.seen(source))
        found = None if event.edits is not None else table.find(event.text)
        if found is not None and found[0].at_once:
            return await self._at_once(event, *found)
        if event.chosen is not None:  # buttons are for commands that are answered at once
            return Receipt("ignored")
        return await self._accept(event, offered, found and found[0])

    async def _broke(self, event: Event, problem: Exception) -> Receipt:
        """A mistake of ours. A message at which it is made each time must not keep its platform from going on."""
        source, now = event.source, clock.now()
        message = f"{source.platform}:{source.chat_id}:{event.message_id}"
        self._broken.add(message, now)
        if self._broken.count(message, now) < MOST_TRIES:
            raise problem
        log.error(
            "a message of %s is left: %s", source.platform, secrets.redact(repr(problem)), exc_info=problem
        )
        if self._office.doorkeeper.admits(source):
            with suppress(errors.HermesError):
                await self._tell(source, BROKEN, f"broken:{message}")
        return Receipt("failed")

    async def _accept(self, event: Event, offered: Sequence[Offered], command: Command | None) -> Receipt:
        source, inbox = event.source, self._office.db.inbox
        kept, missing = await received_files.fetched(offered, self._office.settings.largest_attachment_mb)
        event = event._replace(
            attachments=kept, text="\n\n".join((event.text, *missing)).strip() if missing else event.text
        )
        entry = None
        try:
            key = await self._places.key(source)
            entry = await asyncio.to_thread(
                inbox.accept, key, source.platform, event.to_dict(), event.message_id
            )
        finally:
            if entry is None:  # it is there already, or it comes again
                await asyncio.to_thread(received_files.forget, event)
        if entry is None:
            return Receipt("duplicate", key)
        self.mailbox(key, source).arrived(event, command)
        return Receipt("accepted", key)

    async def _at_once(self, event: Event, command: Command, words: str) -> Receipt:
        source = event.source
        key = await self._places.known_key(source)
        mailbox = self.mailbox(key, source)
        chat = mailbox.chat
        await chat.look(mailbox.at_work)
        answer = await command.run(chat.asked(source, words, event))
        said = event.message_id or f"{clock.now():.3f}"
        letter = Letter(source, answer.text, None if source.chat_type == "dm" else source.message_id)
        once = f"command:{source.platform}:{key}:{said}"
        new = await self._office.post(key, letter, once, chat.session_id)
        return Receipt("answered" if new else "duplicate", key)

    async def _welcome(self, source: Source) -> Receipt:
        """They sent the right code, in private."""
        log.info("somebody was paired on %s", source.platform)
        await self._tell(source, WELCOME, f"paired:{source.platform}:{source.participant}:{clock.now():.0f}")
        return Receipt("answered")

    async def _tell(self, source: Source, text: str, once: str) -> None:
        await self._office.post(await self._places.known_key(source), Letter(source, text), once)

    # ---------------------------------------------------------------- mailboxes

    def mailbox(self, key: str, source: Source) -> Mailbox:
        if key not in self._mailboxes:
            if len(self._mailboxes) >= MOST_IDLE:
                for old in [name for name, one in self._mailboxes.items() if one.idle][: MOST_IDLE // 2]:
                    del self._mailboxes[old]
            self._mailboxes[key] = Mailbox(self._office, self._places, key, source)
        return self._mailboxes[key]

    def forget(self, key: str) -> None:
        """The chat is in another conversation, of perhaps another owner: its mailbox is made anew."""
        self._places.forget_owners()
        known = self._mailboxes.get(key)
        if known is not None and known.idle:
            del self._mailboxes[key]

    async def wake(self, key: str) -> None:
        """Let a chat look whether there is something to do."""
        known = self._mailboxes.get(key)
        if known is None:
            route = await asyncio.to_thread(self._office.db.routing.get, key)
            if route is None:
                return
            known = self.mailbox(
                key, await asyncio.to_thread(source_of, self._office.db, route, self._office.settings.keying)
            )
        known.wake()

    async def take_up(self) -> int:
        """Go on with what the last process left in the inbox; in how many chats."""
        waiting = await asyncio.to_thread(self._office.db.inbox.waiting)
        known: list[Event] = []
        keys = dict.fromkeys(entry.session_key for entry in waiting)
        for entry in waiting:
            with suppress(errors.InvalidArgument):  # the mailbox tells, when its turn comes
                known.append(event := Event.from_dict(entry.event))
                self.mailbox(entry.session_key, event.source)
        await asyncio.to_thread(received_files.tidy, known, clock.now() - 3600)
        for key in keys:
            await self.wake(key)
        return len(keys)

    def begin_no_more(self) -> None:
        """What is being answered may come to its end, and nothing else is begun."""
        for one in self._mailboxes.values():
            one.begin_no_more()

    async def close(self, seconds: float) -> None:
        """Let what is being answered come to its end, for so long; what waits stays in the inbox."""
        mailboxes = list(self._mailboxes.values())
        self.begin_no_more()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(one.drained() for one in mailboxes))
        await asyncio.gather(*(one.close() for one in mailboxes), return_exceptions=True)


def began_minute(source: Source) -> str:
    """Once a minute is enough to be told."""
    return f"{source.platform}:{source.participant or source.chat_id}:{clock.now() // 60:.0f}"
