"""The inbox: messages that a platform has delivered and the gateway has not processed yet.

A message is stored durably, and only once, before the gateway acknowledges it to the platform. The messages
of one chat are processed one at a time, in order; chats are independent of each other. An entry records the
lease epoch of the process that works on it, so that an entry interrupted by a crash is processed again. A
finished entry keeps only its ids, to reject duplicates. Its text is in the conversation. The inbox must not
keep the text longer than the conversation exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hermes import clock
from hermes.store.arguments import (
    check_optional_id,
    check_optional_integer,
    check_optional_text,
    check_time,
    require_text,
)
from hermes.store.chats.leases import ROOT, build_lease_lost, find_live_lease, require_epoch
from hermes.store.content import decode_document, encode_document
from hermes.store.engine import Access, Reader, Row, Writer
from hermes.store.sessions.sessions import check_new_source, check_source

LONGEST_ERROR = 500
WHY = "hermes:error"
"""The key under which the error of a failed entry is stored in its event."""

ENTRIES = """SELECT id, session_key, session_id, platform, platform_message_id, event_json, state, epoch, received_at,
    changed_at FROM inbox"""
BY_ID = " ".join((ENTRIES, "WHERE id = ?"))
# The index of open entries is a partial index WHERE state <> 'done'. A query uses it only if it repeats that condition
# word for word, even where another condition implies it.
OPEN = "state <> 'done' AND state IN ('queued', 'working') ORDER BY id"
WAITING = " ".join((ENTRIES, "WHERE", OPEN))
WAITING_IN_CHAT = " ".join((ENTRIES, "WHERE session_key = ? AND", OPEN))
COUNT_WAITING = "SELECT count(*) FROM inbox WHERE state <> 'done' AND state IN ('queued', 'working')"
COUNT_BY_STATE = "SELECT state, count(*) FROM inbox WHERE state <> 'done' GROUP BY state"
OLDEST = " ".join((WAITING_IN_CHAT, "LIMIT 1"))
OLDEST_QUEUED = " ".join(
    (ENTRIES, "WHERE session_key = ? AND state <> 'done' AND state = 'queued' ORDER BY id LIMIT 1")
)
QUEUED = "SELECT id FROM inbox WHERE session_key = ? AND state <> 'done' AND state = 'queued' LIMIT 1"
WAITING_CHATS = """SELECT session_key, min(id) FROM inbox
    WHERE state <> 'done' AND state IN ('queued', 'working') GROUP BY session_key HAVING min(id) > ?
    ORDER BY min(id) LIMIT ?"""
BEGUN = " ".join((ENTRIES, "WHERE session_key = ? AND state <> 'done' AND state = 'working'"))
ROUTED = "SELECT session_id FROM routing WHERE session_key = ?"

ACCEPT = """INSERT INTO inbox (session_key, session_id, platform, platform_message_id, event_json, state, received_at,
        changed_at)
    VALUES (?, ?, ?, ?, ?, 'queued', ?, ?) ON CONFLICT DO NOTHING RETURNING id"""
ACCEPTED_ALREADY = """SELECT id FROM inbox WHERE session_key = ? AND platform = ? AND received_at = ?
    AND event_json = ?"""
CLAIM = """UPDATE inbox SET state = 'working', epoch = ?, session_id = coalesce(?, session_id), changed_at = ?
    WHERE id = ?"""
FINISH = "UPDATE inbox SET state = ?, event_json = ?, changed_at = ? WHERE id = ?"
KEY_OF_MESSAGE = (
    "SELECT session_key FROM inbox WHERE platform = ? AND platform_message_id = ? ORDER BY id DESC LIMIT 1"
)
# The ids stay, so that the message is recognised if it is delivered again.
ABSORB = """UPDATE inbox SET state = 'done', event_json = '{}', changed_at = ?
    WHERE id = ? AND session_key = ? AND state = 'queued'"""
SET_EVENT = "UPDATE inbox SET event_json = ?, changed_at = ? WHERE id = ?"
FORGET = "DELETE FROM inbox WHERE state IN ('done', 'failed') AND changed_at < ?"


class InboxEntry(NamedTuple):
    id: int
    session_key: str
    session_id: str | None
    platform: str
    platform_message_id: str | None
    event: dict[str, Any]
    state: str
    """queued, working, done or failed."""
    epoch: int | None
    """The lease epoch of the process that works on the entry or has finished it. None for a process without a
    lease."""
    received_at: float
    changed_at: float
    error: str | None
    again: bool = False
    """Whether another process started work on the entry and ended before the entry was done."""
    more: bool = False
    """Whether another entry of the chat was waiting when this one was claimed."""


class Inbox:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def accept(
        self,
        session_key: str,
        platform: str,
        event: Mapping[str, Any],
        platform_message_id: str | int | None = None,
        session_id: str | None = None,
    ) -> InboxEntry | None:
        """Store a message durably. Return None if the message is already stored."""
        key, source = require_text("session_key", session_key), check_new_source(platform, "platform")
        message = check_optional_id("platform_message_id", platform_message_id)
        text, at = encode_document("event", event), clock.now()
        values = (key, check_optional_text("session_id", session_id), source, message, text, at, at)

        def work(writer: Writer) -> InboxEntry | None:
            stored = writer.value(ACCEPTED_ALREADY, key, source, at, text) if writer.repeating else None
            entry_id = writer.value(ACCEPT, *values) if stored is None else stored
            return None if entry_id is None else _make_entry(writer.rows(BY_ID, entry_id)[0])

        return self._engine.write(work)

    def claim(
        self,
        session_key: str,
        lease_epoch: int | None = None,
        session_id: str | None = None,
        *,
        alongside: bool = False,
    ) -> InboxEntry | None:
        """Claim the next message of a chat. Return None if there is none, or while another process works on a
        message of the chat.

        An entry that was begun under a lease that has ended comes before newer entries. With `alongside`, a
        process that already works on an entry under this lease can claim the next entry in addition.
        """
        key, epoch = (
            require_text("session_key", session_key),
            check_optional_integer("lease_epoch", lease_epoch),
        )
        named = check_optional_text("session_id", session_id)

        def work(writer: Writer) -> InboxEntry | None:
            oldest = writer.row(OLDEST, key)
            session = named or writer.value(ROUTED, key) or (oldest[2] if oldest is not None else None)
            if epoch is not None:
                require_epoch(writer, session, epoch)
            begun = [_make_entry(row) for row in writer.rows(BEGUN, key)]
            if alongside and epoch is not None:
                begun = [entry for entry in begun if not _is_of_lease(writer, entry, session, epoch)]
                oldest = writer.row(OLDEST_QUEUED, key)
            if oldest is None or any(_is_at_work(writer, entry, session, epoch) for entry in begun):
                return None
            at = clock.now()
            writer.run(CLAIM, epoch, session, at, oldest[0])
            more = writer.value(QUEUED, key) is not None
            claimed = (
                oldest[0],
                oldest[1],
                session or oldest[2],
                *oldest[3:6],
                "working",
                epoch,
                oldest[8],
                at,
            )
            return _make_entry(claimed)._replace(again=oldest[6] == "working", more=more)

        # Not repeatable: after an uncertain commit another process may have claimed the entry.
        return self._engine.write(work, repeatable=False)

    def find_key(self, platform: str, platform_message_id: str) -> str | None:
        """Return the session key of the chat in which a message was accepted. None if the message was never
        accepted, or if `forget_done` has deleted its entry."""
        source, message = check_source(platform), require_text("platform_message_id", platform_message_id)
        with self._engine.read() as reader:
            key = reader.value(KEY_OF_MESSAGE, source, message)
        return None if key is None else str(key)

    def withdraw(self, session_key: str, platform_message_id: str, separator: str) -> int:
        """Withdraw a message that is still queued, and its edited versions. The id of an edited version is
        the id of the message, followed by `separator` and any suffix. Return the number of withdrawn
        entries."""
        key, message = (
            require_text("session_key", session_key),
            require_text("platform_message_id", platform_message_id),
        )

        def work(writer: Writer) -> int:
            rows = [_make_entry(row) for row in writer.rows(WAITING_IN_CHAT, key)]
            return sum(
                writer.run(ABSORB, clock.now(), entry.id, key)
                for entry in rows
                if (entry.platform_message_id or "").partition(separator)[0] == message
            )

        return self._engine.write(work, repeatable=False)

    def absorb(
        self,
        entry_id: int,
        event: Mapping[str, Any],
        others: Iterable[int],
        lease_epoch: int | None = None,
    ) -> bool:
        """Combine a claimed entry with the queued entries whose ids are `others`. `event` is the combined
        message, and replaces the message of the claimed entry. The other entries are marked as done. Return
        False, and change nothing, if the entry `entry_id` is not claimed."""
        text, at, absorbed = encode_document("event", event), clock.now(), list(others)
        epoch = check_optional_integer("lease_epoch", lease_epoch)

        def work(writer: Writer) -> bool:
            row = writer.row(BY_ID, entry_id)
            entry = None if row is None else _make_entry(row)
            if entry is None or entry.state != "working":
                return False
            if epoch != entry.epoch:
                raise build_lease_lost(entry.session_id)
            if epoch is not None:
                require_epoch(writer, entry.session_id, epoch)
            writer.run(SET_EVENT, text, at, entry_id)
            for other in absorbed:
                writer.run(ABSORB, at, other, entry.session_key)
            return True

        return self._engine.write(work)

    def complete(self, entry_id: int, lease_epoch: int | None = None) -> bool:
        """Mark an entry as done. Return False if the entry does not exist or was not claimed."""
        return self._finish(entry_id, "done", None, lease_epoch)

    def fail(self, entry_id: int, error: str, lease_epoch: int | None = None) -> bool:
        """Mark an entry as failed, so that it is not tried again. Return False if the entry does not exist or
        was not claimed."""
        return self._finish(entry_id, "failed", require_text("error", error)[:LONGEST_ERROR], lease_epoch)

    def list_waiting(self, session_key: str | None = None) -> list[InboxEntry]:
        """Return the entries that are queued or in work, oldest first: those of a chat, or all."""
        with self._engine.read() as reader:
            rows = reader.rows(WAITING) if session_key is None else reader.rows(WAITING_IN_CHAT, session_key)
            return [_make_entry(row) for row in rows]

    def list_waiting_chats(self, after: int = 0, limit: int = 500) -> list[tuple[str, int]]:
        """Return (session key, id of the oldest entry) of each chat with entries that are queued or in work,
        ordered by that id. Return at most `limit` chats, and only those whose id is above `after`."""
        with self._engine.read() as reader:
            return [(row[0], row[1]) for row in reader.rows(WAITING_CHATS, after, limit)]

    def count_waiting(self) -> int:
        """Return the number of entries that are queued or in work."""
        with self._engine.read() as reader:
            return int(reader.value(COUNT_WAITING))

    def count_by_state(self) -> dict[str, int]:
        """Return the number of entries in each state except `done`."""
        with self._engine.read() as reader:
            return {str(state): int(count) for state, count in reader.rows(COUNT_BY_STATE)}

    def forget_done(self, older_than_seconds: float) -> int:
        """Delete finished and failed entries that are older than `older_than_seconds`. Return their number.
        If a platform delivers one of these messages again, it counts as new."""
        before = clock.now() - check_time("older_than_seconds", older_than_seconds)
        return self._engine.write(lambda writer: writer.run(FORGET, before))

    def _finish(self, entry_id: int, state: str, why: str | None, lease_epoch: int | None) -> bool:
        epoch, at = check_optional_integer("lease_epoch", lease_epoch), clock.now()

        def work(writer: Writer) -> bool:
            row = writer.row(BY_ID, entry_id)
            entry = None if row is None else _make_entry(row)
            if entry is None or entry.state not in ("working", state):
                return False
            # An entry begun under a lease is finished under the same lease. A process that lost its lease has
            # not finished it.
            if epoch != entry.epoch:
                raise build_lease_lost(entry.session_id)
            if epoch is not None:
                require_epoch(writer, entry.session_id, epoch)
            if entry.state == "working":
                event = {} if why is None else {**entry.event, WHY: why}
                writer.run(FINISH, state, encode_document("event", event), at, entry_id)
            return True

        return self._engine.write(work)


def _is_at_work(reader: Reader, entry: InboxEntry, session: str | None, epoch: int | None) -> bool:
    """Return whether the process that claimed `entry` still works on it. `session` and `epoch` are the session
    and the epoch of the caller's own lease, or None if the caller has no lease.

    If the entry was claimed without a lease, the process that claimed it cannot be checked. That process then
    counts as working, unless the caller has a lease.
    """
    if entry.epoch is None or entry.session_id is None:
        return epoch is None
    if _is_of_lease(reader, entry, session, epoch):
        return True  # the caller itself
    lease = find_live_lease(reader, entry.session_id)
    return lease is not None and lease.epoch == entry.epoch


def _is_of_lease(reader: Reader, entry: InboxEntry, session: str | None, epoch: int | None) -> bool:
    """Return whether an entry was claimed under the lease of `session` with this epoch. The epoch alone is
    not enough, because leases of two conversations can have the same epoch."""
    return entry.epoch == epoch and reader.value(ROOT, entry.session_id) == reader.value(ROOT, session)


def _make_entry(row: Row) -> InboxEntry:
    event = decode_document(row[5])
    why = event.pop(WHY, None)
    return InboxEntry._make((*row[:5], event, *row[6:], why, False, False))
