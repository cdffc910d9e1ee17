"""The mailbox of a chat: its messages are worked on one at a time, in the order in which they came.

A message is taken from the inbox under the lease of the conversation, answered, and done; what a crash left half-way
comes again and is gone on with, never begun a second time. Mailboxes do not wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from hermes import clock, errors, secrets
from hermes.gateway.commands import table
from hermes.gateway.commands.command_context import Command
from hermes.gateway.context import Office
from hermes.gateway.inbound import inbox_recovery, received_files
from hermes.gateway.inbound.process_message import Work
from hermes.gateway.inbound_events import Event, Source, said_first
from hermes.gateway.outbound.retry import FIRST_PAUSE_S, LONGEST_PAUSE_S, surely
from hermes.gateway.sessions import incidents
from hermes.gateway.sessions.chat_state import Chat
from hermes.gateway.sessions.session_lookup import Places

if TYPE_CHECKING:
    from hermes.store.chats.inbox import InboxEntry

log = logging.getLogger(__name__)

MOST_TRIES = 3
ELSEWHERE = "◌ This conversation is open elsewhere ({where}). Your message waits until it is closed there."
GIVEN_UP = (
    f"⚠ I was cut off {MOST_TRIES} times while I worked on this message, so I leave it."
    " The conversation is as it was; send the message again to have another try."
)
PAUSED = f"A message was left unanswered: I was cut off {MOST_TRIES} times while I worked on it."
BROKEN = "⚠ Something went wrong here that should not have. It is in the log; the conversation is kept."


class Mailbox:
    def __init__(self, office: Office, places: Places, key: str, source: Source) -> None:
        self.chat = Chat(office, places, key, source)
        self._worker = Work(office, self.chat)
        self._office = office
        self._task: asyncio.Task[None] | None = None
        self._asked = self._closing = False
        self._at_rest = asyncio.Event()
        """Nothing is being worked on, and no reset is under way."""
        self._at_rest.set()
        self._entry: InboxEntry | None = None
        self._taking = asyncio.Lock()
        self._steering: set[asyncio.Task[None]] = set()
        self._in_hand: list[InboxEntry] = []
        """Taken from the inbox and not done, before anything else."""
        self._told_elsewhere = False

    # ---------------------------------------------------------------- being woken

    @property
    def idle(self) -> bool:
        return self._task is None and not self.chat.talking.goes_on_behind

    @property
    def at_work(self) -> bool:
        return self._entry is not None

    def wake(self) -> None:
        """There is something in the inbox, or it may be time for a reset."""
        self._asked = True
        if self._task is None and not self._closing:
            self._task = asyncio.create_task(self._work(), name=f"mailbox {self.chat.key}")
            self._task.add_done_callback(self._ended)

    def arrived(self, event: Event, command: Command | None) -> None:
        """A message is in the inbox. What runs now may have to make way for it, or to take it in."""
        busy = self._office.platform(self.chat.source.platform).busy
        working_on = None if self._entry is None else said_first(self._entry.platform_message_id)
        if command is not None:
            if command.stops:
                self.chat.stop()
        elif busy == "interrupt" or (event.edits is not None and event.edits == working_on):
            self.chat.stop()
        elif busy == "steer" and event.edits is None and self.chat.working_since is not None:
            self._steering.add(task := asyncio.create_task(self._steer()))
            task.add_done_callback(self._steered)
            return
        self.wake()

    def _steered(self, task: asyncio.Task[None]) -> None:
        self._steering.discard(task)
        self.wake()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("the mailbox of %s broke off: %s", self.chat.key, secrets.redact(repr(problem)))
        elif self._asked and not task.cancelled():
            self.wake()

    def begin_no_more(self) -> None:
        """The program ends: what is worked on now may come to its end, and nothing else is begun."""
        self._closing = True

    async def close(self) -> None:
        """The end of the program: what is being answered is stopped, and what waits stays in the inbox."""
        self._asked = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.chat.approvals.close()
        await self.chat.talking.close()

    async def drained(self) -> None:
        """Wait until the message that is worked on now, or the reset, is done; the next ones are left."""
        await self._at_rest.wait()
        await self.chat.talking.settle()

    # ---------------------------------------------------------------- working

    async def _work(self) -> None:
        pause = FIRST_PAUSE_S
        try:
            while await self._goes_on():
                self._asked = False
                self._at_rest.clear()
                try:
                    await self._drain()
                    pause = FIRST_PAUSE_S
                except (errors.LeaseHeld, errors.LeaseLost) as problem:
                    await self._leave()
                    if await self._somebody_waits(problem):
                        pause = await self._later(pause)
                except errors.StoreError as problem:
                    log.warning("%s waits for the store: %s", self.chat.key, problem)
                    if not self._in_hand:  # what was claimed and is not comes again under the next lease
                        await self._leave()
                    pause = await self._later(pause)
        finally:
            self._at_rest.set()
            await self._leave()

    async def _goes_on(self) -> bool:
        """Whether there is something to do; if there is not, nothing can be taken in any more."""
        async with self._taking:
            goes_on = not self._closing and (self._asked or bool(self._in_hand))
            if not goes_on:
                await self._leave()
            return goes_on

    async def _leave(self) -> None:
        """Let others work in the conversation. What is in hand comes again under the next lease."""
        self._in_hand.clear()
        await self.chat.talking.leave()

    async def _later(self, pause: float) -> float:
        self._asked = True
        self._at_rest.set()
        await asyncio.sleep(pause)
        return min(2 * pause, LONGEST_PAUSE_S)

    async def _somebody_waits(self, problem: errors.HermesError) -> bool:
        """Another program works in the conversation. Whoever waits for it here is told once; a reset can wait."""
        with suppress(errors.StoreError):
            if not await asyncio.to_thread(self._office.db.inbox.waiting, self.chat.key):
                return False
            if isinstance(problem, errors.LeaseHeld) and not self._told_elsewhere:
                self._told_elsewhere = True
                await self.chat.post(
                    ELSEWHERE.format(where=self.chat.talking.where(problem)),
                    f"elsewhere:{self.chat.key}:{clock.now():.0f}",
                )
        return True

    async def _drain(self) -> None:
        """Work on everything that waits; if nothing does, it may be time for a reset."""
        while not self._closing:
            await self.chat.begin()
            self._told_elsewhere = False
            async with self._taking:
                ours = bool(self._in_hand)
                entry = self._in_hand.pop(0) if ours else await self._claimed()
            if entry is None:
                await self._demand_nothing_begun()
                await self.chat.resetting.if_due()
                return
            self._entry = entry
            try:
                await self._one(entry, ours)
            except (errors.LeaseHeld, errors.LeaseLost):
                raise
            except errors.StoreError:
                self._in_hand.insert(0, entry._replace(again=True))
                raise
            finally:
                self._entry = None
                self.chat.talking.expect(False)
                await self.chat.talking.let_go()

    async def _claimed(self, *, alongside: bool = False) -> InboxEntry | None:
        claim, chat = self._office.db.inbox.claim, self.chat
        return await asyncio.to_thread(
            lambda: claim(chat.key, chat.epoch, chat.talking.session_id, alongside=alongside)
        )

    async def _demand_nothing_begun(self) -> None:
        """A claim that was made and never heard of, because the store broke off, would keep everything else waiting."""
        async with self._taking:
            waiting = await asyncio.to_thread(self._office.db.inbox.waiting, self.chat.key)
            if not self._in_hand and any(one.state == "working" for one in waiting):
                raise errors.make_error(errors.StoreBusy, "a message is claimed, and in nobody's hand")

    async def _one(self, entry: InboxEntry, ours: bool) -> None:
        inbox = self._office.db.inbox
        try:
            event = Event.from_dict(entry.event)
        except errors.InvalidArgument as problem:
            log.error("a message of %s is left: %s", self.chat.key, problem)
            await asyncio.to_thread(inbox.fail, entry.id, str(problem), entry.epoch)
            return
        self.chat.source = event.source
        if entry.again and not ours and await self._is_hopeless(entry):
            await self._worker.post(GIVEN_UP, f"inbox:{entry.id}:given-up")
            await asyncio.to_thread(incidents.note, self._office.db, self.chat.key, PAUSED)
            await asyncio.to_thread(inbox.fail, entry.id, "cut off too often", entry.epoch)
            await asyncio.to_thread(received_files.forget, event)
            return
        try:
            await self._worker.on(entry, event)
        except errors.StoreError:
            raise
        except errors.HermesError as problem:
            await self._worker.post(f"⚠ {problem}", f"inbox:{entry.id}:error")
        except Exception as problem:
            log.error(
                "%s broke on a message: %s", self.chat.key, secrets.redact(repr(problem)), exc_info=True
            )
            await self._worker.post(BROKEN, f"inbox:{entry.id}:broken")
        await surely(lambda: asyncio.to_thread(inbox.complete, entry.id, entry.epoch))
        await asyncio.to_thread(received_files.forget, event)
        self._office.changed()

    async def _is_hopeless(self, entry: InboxEntry) -> bool:
        """Whether whoever works on this message is cut off each time: that is not tried for ever."""
        times = await asyncio.to_thread(incidents.cut_off, self._office.db, self.chat.key, entry.id)
        return times >= MOST_TRIES

    async def _steer(self) -> None:
        """Take the next message into the answer that is being made; what comes too late is worked on by itself."""
        async with self._taking:
            if self.chat.epoch is None or not all(one.again for one in self._in_hand):
                return  # one that came before it is not in the answer either
            entry = None
            with suppress(errors.StoreError):  # then it is worked on by itself
                entry = await self._claimed(alongside=True)
            if entry is None:
                return
            steered = False
            with suppress(errors.InvalidArgument):  # nor can it be worked on: whoever tries next tells
                event = Event.from_dict(entry.event)
                is_said = event.edits is None and table.find(event.text) is None
                steered = is_said and self.chat.talking.steer(
                    await self._worker.content(event), platform_message_id=inbox_recovery.mark(entry)
                )
            # What was said into an answer was answered with it, if it was stored.
            self._in_hand.append(entry._replace(again=steered))
