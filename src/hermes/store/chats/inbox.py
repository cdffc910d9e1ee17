"""The inbox: what a platform gave us and nobody has worked on yet.

A message is durable before the platform is told that it was accepted, and accepted once. Within a chat messages are
worked on one at a time, in order; chats do not wait for each other. Who works on one is known by the epoch of its
lease, so that what a crash left half-way comes again. Of what is done only the ids are kept, against doing it twice:
its text is in the conversation, and must not outlive it here.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from hermes.store.sessions.sessions import check_new_source

LONGEST_ERROR = 500
WHY = "hermes:error"
"""Where the event of a failed entry says what went wrong."""

ENTRIES = """SELECT id, session_key, session_id, platform, platform_message_id, event_json, state, epoch, received_at,
    changed_at FROM inbox"""
BY_ID = " ".join((ENTRIES, "WHERE id = ?"))
# The index of open entries is a partial index WHERE state <> 'done'. A query uses it only if it repeats that condition
# word for word, even where another condition implies it.
OPEN = "state <> 'done' AND state IN ('queued', 'working') ORDER BY id"
WAITING = " ".join((ENTRIES, "WHERE (? IS NULL OR session_key = ?) AND", OPEN))
COUNT_WAITING = "SELECT count(*) FROM inbox WHERE state <> 'done' AND state IN ('queued', 'working')"
OLDEST = " ".join((ENTRIES, "WHERE session_key = ? AND", OPEN, "LIMIT 1"))
OLDEST_QUEUED = " ".join(
    (ENTRIES, "WHERE session_key = ? AND state <> 'done' AND state = 'queued' ORDER BY id LIMIT 1")
)
BEGUN = " ".join((ENTRIES, "WHERE session_key = ? AND state <> 'done' AND state = 'working'"))
KEYS_WAITING = """SELECT session_key FROM inbox WHERE state <> 'done' AND state IN ('queued', 'working')
    GROUP BY session_key ORDER BY min(id)"""
ROUTED = "SELECT session_id FROM routing WHERE session_key = ?"

ACCEPT = """INSERT INTO inbox (session_key, session_id, platform, platform_message_id, event_json, state, received_at,
        changed_at)
    VALUES (?, ?, ?, ?, ?, 'queued', ?, ?) ON CONFLICT DO NOTHING RETURNING id"""
ACCEPTED_ALREADY = """SELECT id FROM inbox WHERE session_key = ? AND platform = ? AND received_at = ?
    AND event_json = ?"""
CLAIM = """UPDATE inbox SET state = 'working', epoch = ?, session_id = coalesce(?, session_id), changed_at = ?
    WHERE id = ?"""
FINISH = "UPDATE inbox SET state = ?, event_json = ?, changed_at = ? WHERE id = ?"
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
    """The lease of who works on it, or did; None for somebody without one."""
    received_at: float
    changed_at: float
    error: str | None
    again: bool = False
    """Whether somebody had begun with it before, and was gone before it was done."""


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
        """Take a message in for good; None if this one was taken in before."""
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
        """The next message of a chat, to be worked on by the caller alone; None while somebody is at work.

        What was begun under a lease that is gone comes again, before what is newer. With `alongside` whoever is at work
        under this lease takes the next one in as well.
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
                begun = [entry for entry in begun if entry.epoch != epoch]
                oldest = writer.row(OLDEST_QUEUED, key)
            if oldest is None or any(_is_at_work(writer, entry, session, epoch) for entry in begun):
                return None
            writer.run(CLAIM, epoch, session, clock.now(), oldest[0])
            return _make_entry(writer.rows(BY_ID, oldest[0])[0])._replace(again=oldest[6] == "working")

        # Not repeatable: after a lost commit somebody else may have been told that it is theirs.
        return self._engine.write(work, repeatable=False)

    def complete(self, entry_id: int, lease_epoch: int | None = None) -> bool:
        """It was worked on; False if there is no such entry, or if nobody had claimed it."""
        return self._finish(entry_id, "done", None, lease_epoch)

    def fail(self, entry_id: int, error: str, lease_epoch: int | None = None) -> bool:
        """It cannot be worked on, and is not tried again."""
        return self._finish(entry_id, "failed", require_text("error", error)[:LONGEST_ERROR], lease_epoch)

    def list_waiting(self, session_key: str | None = None) -> list[InboxEntry]:
        """What is queued or being worked on, oldest first."""
        with self._engine.read() as reader:
            return [_make_entry(row) for row in reader.rows(WAITING, session_key, session_key)]

    def count_waiting(self) -> int:
        """How much that is, without looking into it."""
        with self._engine.read() as reader:
            return int(reader.value(COUNT_WAITING))

    def list_waiting_keys(self) -> list[str]:
        """The chats in which something waits or is being worked on, longest waiting first."""
        with self._engine.read() as reader:
            return [row[0] for row in reader.rows(KEYS_WAITING)]

    def forget_done(self, older_than_seconds: float) -> int:
        """Forget what was done or has failed; a platform that delivers it again after that is believed."""
        before = clock.now() - check_time("older_than_seconds", older_than_seconds)
        return self._engine.write(lambda writer: writer.run(FORGET, before))

    def _finish(self, entry_id: int, state: str, why: str | None, lease_epoch: int | None) -> bool:
        epoch, at = check_optional_integer("lease_epoch", lease_epoch), clock.now()

        def work(writer: Writer) -> bool:
            row = writer.row(BY_ID, entry_id)
            entry = None if row is None else _make_entry(row)
            if entry is None or entry.state not in ("working", state):
                return False
            # Begun under a lease, it is finished under that lease: whoever was overtaken has not done it.
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
    """Whether who claimed an entry is still at it, as seen by somebody who wants the next one.

    Who works without a lease is believed to be at work until somebody with a lease comes.
    """
    if entry.epoch is None or entry.session_id is None:
        return epoch is None
    if entry.epoch == epoch and reader.value(ROOT, entry.session_id) == reader.value(ROOT, session):
        return True  # the caller itself
    lease = find_live_lease(reader, entry.session_id)
    return lease is not None and lease.epoch == entry.epoch


def _make_entry(row: Row) -> InboxEntry:
    event = decode_document(row[5])
    why = event.pop(WHY, None)
    return InboxEntry._make((*row[:5], event, *row[6:], why, False))
