"""The mailbox of a chat. It processes the messages of the chat one at a time, in the order of arrival.

The mailbox claims a message from the inbox under the lease of the conversation, answers it and completes the
inbox entry. After a crash, the next process resumes a claimed message where it stopped. The mailboxes of
different chats run concurrently.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from hermes import clock, errors, secrets
from hermes.db.store_queue import call_store_early
from hermes.gateway import incidents
from hermes.gateway.commands import command_table
from hermes.gateway.commands.command_table import FoundCommand
from hermes.gateway.context import GatewayContext
from hermes.gateway.inbound import inbox_recovery, received_files
from hermes.gateway.inbound.chat_state import Chat
from hermes.gateway.inbound.message_processor import MessageProcessor
from hermes.gateway.inbound_events import Event, Source, original_message_id
from hermes.gateway.outbound.retry import FIRST_PAUSE_S, LONGEST_PAUSE_S, until_stored
from hermes.gateway.sessions.session_lookup import SessionLookup
from hermes.store.processes import identify_process

if TYPE_CHECKING:
    from hermes.store.chats.inbox import InboxEntry

log = logging.getLogger(__name__)

MOST_TRIES = 3
ELSEWHERE = "◌ This conversation is open elsewhere ({where}). Your message waits until it is closed there."
GIVEN_UP = (
    f"⚠ I was interrupted {MOST_TRIES} times while I worked on this message, so I gave up."
    " The conversation is unchanged; send the message again to try once more."
)
PAUSED = f"A message was left unanswered: I was interrupted {MOST_TRIES} times while I worked on it."


class Mailbox:
    def __init__(self, context: GatewayContext, lookup: SessionLookup, key: str, source: Source) -> None:
        self._has_slot = False
        """Whether this mailbox holds one of the slots that limit the number of concurrent turns."""
        self.chat = Chat(context, lookup, key, source)
        self._worker = MessageProcessor(context, self.chat)
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._requested = self._closing = False
        self._has_arrived = False
        """Whether a message arrived since the inbox was last checked."""
        self._at_rest = asyncio.Event()
        """Set while no message is being processed and no reset is running."""
        self._at_rest.set()
        self._entry: InboxEntry | None = None
        self._taking = asyncio.Lock()
        self._steering: set[asyncio.Task[None]] = set()
        self._in_hand: list[InboxEntry] = []
        """Entries that were claimed but are not done. They are processed before all others."""
        self._notified_elsewhere = False

    # ---------------------------------------------------------------- being woken

    @property
    def is_idle(self) -> bool:
        return self._task is None and not self.chat.conversation.has_background_work

    @property
    def is_working(self) -> bool:
        return self._entry is not None

    def wake(self) -> None:
        """Start the worker of this mailbox if it is not running. The worker looks for messages in the inbox and for
        a reset that is due."""
        self._requested = True
        if self._task is None and not self._closing:
            self._task = asyncio.create_task(self._work(), name=f"mailbox {self.chat.key}")
            self._task.add_done_callback(self._on_done)

    def start(self) -> bool:
        """Start to process the messages of the chat. The caller has taken a turn slot (see `work_limits`) for the
        first message. Return False if the slot is not needed, because the worker is already running or the mailbox
        is closing."""
        is_free = self._task is None and not self._closing
        self._has_slot = self._has_slot or is_free
        self._has_arrived = True
        self.wake()
        return is_free

    def call_when_done(self, callback: Callable[[], None]) -> bool:
        """Call `callback` when the worker ends. Return False if the worker is not running."""
        if self._task is None:
            return False
        self._task.add_done_callback(lambda _: callback())
        return True

    def handle_arrival(self, event: Event, command: FoundCommand | None) -> None:
        """Handle a message that was just stored in the inbox. Depending on `command` and on the platform's `busy`
        setting, stop the running turn, pass the message to the running turn, or only wake the mailbox."""
        busy = self._context.platform(self.chat.source.platform).busy
        working_on = None if self._entry is None else original_message_id(self._entry.platform_message_id)
        if command is not None:
            if command.stops:
                self.chat.conversation.stop()
        elif event.album is not None and self._entry and self._entry.event.get("album") == event.album:
            pass  # a part of the message that is being processed
        elif (busy == "interrupt" and not event.removes) or (
            event.edits is not None and event.edits == working_on
        ):
            self.chat.conversation.stop()
        elif busy == "steer" and event.edits is None and self.chat.working_since is not None:
            self._steering.add(task := asyncio.create_task(self._steer()))
            task.add_done_callback(self._on_steered)
            return
        self._has_arrived = True
        self.wake()

    def _on_steered(self, task: asyncio.Task[None]) -> None:
        self._steering.discard(task)
        self.wake()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error(
                "the mailbox of %s stopped unexpectedly: %s", self.chat.key, secrets.redact(repr(problem))
            )
        elif self._requested and not task.cancelled():
            self.wake()

    def stop_accepting(self) -> None:
        """Process no further messages of the chat after the current one. Called at shutdown."""
        self._closing = True

    async def close(self) -> None:
        """Stop the current answer. Waiting messages stay in the inbox."""
        self._requested = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.chat.approvals.close()
        await self.chat.conversation.close(grace=0)

    async def wait_until_idle(self) -> None:
        """Wait until the current message or reset is done. This does not wait for further messages."""
        await self._at_rest.wait()
        await self.chat.conversation.settle()

    # ---------------------------------------------------------------- working

    async def _work(self) -> None:
        pause = FIRST_PAUSE_S
        try:
            while await self._has_work():
                self._requested = False
                is_first = goes_on = True
                try:
                    while goes_on:
                        # One slot per message, so that other waiting chats get their turn between two messages.
                        async with self._take_slot():
                            self._at_rest.clear()
                            try:
                                goes_on = not self._closing and await self._process_next(is_first)
                            finally:
                                self._at_rest.set()
                        is_first = False
                    pause = FIRST_PAUSE_S
                except (errors.LeaseHeld, errors.LeaseLost) as problem:
                    await self._leave()
                    if await self._notify_waiting(problem):
                        pause = await self._wait_before_retry(pause)
                except errors.StoreError as problem:
                    if pause == FIRST_PAUSE_S:  # the first failure only
                        log.warning("%s: the store is not available, will retry: %s", self.chat.key, problem)
                    if not self._in_hand:  # unfinished claims are processed again under the next lease
                        await self._leave()
                    pause = await self._wait_before_retry(pause)
        finally:
            if self._has_slot:
                self._has_slot = False
                self._context.limits.turns.release()
            await self._leave()

    @asynccontextmanager
    async def _take_slot(self) -> AsyncIterator[None]:
        turns = self._context.limits.turns
        if not self._has_slot:
            await turns.acquire()
        self._has_slot = False
        try:
            yield
        finally:
            turns.release()

    async def _has_work(self) -> bool:
        """Return whether the worker of this mailbox must go on. If not, also release the lease of the conversation.
        Both happen under one lock, so that no message can be claimed in between."""
        async with self._taking:
            goes_on = not self._closing and (self._requested or bool(self._in_hand))
            if not goes_on:
                await self._leave()
            return goes_on

    async def _leave(self) -> None:
        """Release the lease of the conversation. Inbox entries that this mailbox has claimed and not completed are
        claimed again under the next lease."""
        self._in_hand.clear()
        await self.chat.conversation.leave()

    async def _wait_before_retry(self, pause: float) -> float:
        self._requested = True
        await asyncio.sleep(pause)
        return min(2 * pause, LONGEST_PAUSE_S)

    async def _notify_waiting(self, problem: errors.HermesError) -> bool:
        """Handle `LeaseHeld` or `LeaseLost` (`problem`): the conversation is open elsewhere. For `LeaseHeld`, post
        one notice to the chat. Return False if no message of the chat is waiting."""
        with suppress(errors.StoreError):
            if not await call_store_early(self._context.db.inbox.list_waiting, self.chat.key):
                return False
            if isinstance(problem, errors.LeaseHeld) and not self._notified_elsewhere:
                self._notified_elsewhere = True
                await self.chat.post(
                    ELSEWHERE.format(where=describe_holder(problem)),
                    f"elsewhere:{self.chat.key}:{clock.now():.0f}",
                )
        return True

    async def _process_next(self, is_first: bool) -> bool:
        """Process the next message of the chat. Return whether another message is waiting. If `is_first` is set and
        no message is waiting, reset the conversation if a reset is due."""
        if is_first and not await self._has_message():
            # Only a message creates a session. If the conversation was trashed, a check for resets does not.
            if await self.chat.begin(create=False) is not None:
                await self.chat.resets.reset_if_due()
            return False
        async with self._taking:
            ours = bool(self._in_hand)
            if ours:
                await self.chat.begin()
                entry: InboxEntry | None = self._in_hand.pop(0)
            else:
                # The claim sees all messages that have arrived so far.
                self._requested = self._has_arrived = False
                entry = await self.chat.begin_and_claim()
        self._notified_elsewhere = False
        if entry is None:
            if is_first:
                await self._require_no_open_claim()
            return False
        self._entry = entry
        try:
            event = await self._read_event(entry, ours)
            if event is not None:
                await self._worker.process(entry, event)
                await self._complete(entry, event)
        except (errors.LeaseHeld, errors.LeaseLost):
            raise
        except errors.StoreError:
            self._in_hand.insert(0, entry._replace(again=True))
            raise
        finally:
            self._entry = None
            self.chat.conversation.expect(False)
            await self.chat.conversation.close_left()
        return entry.more or bool(self._in_hand)

    async def _has_message(self) -> bool:
        has_arrived, self._has_arrived = self._has_arrived, False
        return (
            has_arrived
            or bool(self._in_hand)
            or bool(await call_store_early(self._context.db.inbox.list_waiting, self.chat.key))
        )

    async def _require_no_open_claim(self) -> None:
        """Raise `StoreBusy` if the store has a claimed entry of which this mailbox does not know.
        This happens if a claim is committed but the call fails. Such an entry would block all later messages.
        """
        async with self._taking:
            waiting = await call_store_early(self._context.db.inbox.list_waiting, self.chat.key)
            if not self._in_hand and any(other.state == "working" for other in waiting):
                raise errors.make_error(
                    errors.StoreBusy, "a message is marked as being processed, but nothing is processing it"
                )

    async def _read_event(self, entry: InboxEntry, ours: bool) -> Event | None:
        """Return the message that is stored in an inbox entry. If it cannot be processed, record the entry as
        failed and return None. `ours` means that this mailbox already held the claimed entry, so that no earlier
        process was interrupted while processing it."""
        inbox = self._context.db.inbox
        try:
            event = Event.from_dict(entry.event)
        except errors.InvalidArgument as problem:
            log.error("a stored message of %s is invalid and will not be retried: %s", self.chat.key, problem)
            await call_store_early(inbox.fail, entry.id, str(problem), entry.epoch)
            return None
        self.chat.source = event.source
        if self._context.access.is_blocked(event.source):  # blocked after the message was accepted
            await asyncio.to_thread(inbox.fail, entry.id, "the person is blocked", entry.epoch)
            await asyncio.to_thread(received_files.remove_files, event)
            return None
        if not entry.again or ours or not await self._is_hopeless(entry):
            return event
        await self._worker.persist(self.chat.prepare_post(GIVEN_UP, f"inbox:{entry.id}:given-up"))
        await call_store_early(incidents.add_incident, self._context.db, self.chat.key, PAUSED)
        await call_store_early(inbox.fail, entry.id, "interrupted too often", entry.epoch)
        await received_files.discard_files(event)
        return None

    async def _complete(self, entry: InboxEntry, event: Event) -> None:
        inbox = self._context.db.inbox
        if self._worker.completed_id != entry.id:
            await until_stored(lambda: call_store_early(inbox.complete, entry.id, entry.epoch))
        await received_files.discard_files(event)
        self._context.notify_chat_changed()

    async def _is_hopeless(self, entry: InboxEntry) -> bool:
        """Count an interruption of this inbox entry, and return whether it was interrupted too often to be
        processed again."""
        times = await call_store_early(
            incidents.count_interruption, self._context.db, self.chat.key, entry.id
        )
        return times >= MOST_TRIES

    async def _steer(self) -> None:
        """Claim the next message of the chat in the inbox and pass it to the running turn. A message that the turn
        does not accept is answered later, in a turn of its own."""
        async with self._taking:
            if self.chat.epoch is None or not all(other.again for other in self._in_hand):
                return  # an earlier message was not passed to the turn either
            entry = None
            with suppress(errors.StoreError):  # the message then gets a turn of its own
                entry = await self.chat.claim(alongside=True)
            if entry is None:
                return
            steered = False
            with suppress(errors.InvalidArgument):  # an invalid message: `_read_event` reports it
                event = Event.from_dict(entry.event)
                is_speech = event.edits is None and command_table.find_command(event.text) is None
                steered = is_speech and self.chat.conversation.steer(
                    await self._worker.make_content(event),
                    platform_message_id=inbox_recovery.message_mark(entry),
                )
            # `again` makes the mailbox check whether the turn has already stored and answered the message.
            self._in_hand.append(entry._replace(again=steered))


def describe_holder(problem: errors.LeaseHeld) -> str:
    """Return where the conversation is open, for example `in another chat`, as text for a person."""
    holder = problem.holder.holder
    if holder[:3] == identify_process():
        return "in another chat"
    return str(holder.surface).partition(",")[0]
