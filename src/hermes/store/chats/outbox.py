"""The outbox: messages for a platform that are not confirmed as delivered.

The entries of one chat are delivered one at a time, in order. An entry records the process that delivers it,
so that entries interrupted by a crash can be found. Such an entry is delivered again only if a duplicate
cannot become visible; otherwise its state becomes `unknown`. A delivered entry keeps only its ids. Its text
is in the conversation. The outbox must not keep the text longer than the conversation exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from hermes import clock
from hermes.store.arguments import (
    check_names,
    check_optional_id,
    check_optional_integer,
    check_optional_text,
    check_time,
    require_text,
)
from hermes.store.chats.inbox import LONGEST_ERROR, ROUTED
from hermes.store.chats.leases import require_epoch
from hermes.store.content import decode_document, encode_document, to_json
from hermes.store.engine import Access, Row, Writer
from hermes.store.processes import identify_process, is_gone
from hermes.store.sessions.sessions import check_new_source, check_source

ATTEMPTS = "attempts"
"""Key in the stored payload that counts failed attempts."""
ELSEWHERE_S = 10 * clock.MINUTE
"""The seconds for which a delivery by a process on another host counts as in progress. This host cannot check
whether that process is running."""

ENTRIES = """SELECT id, session_key, session_id, platform, idempotency_key, payload_json, state, epoch,
    platform_message_id, error, created_at, changed_at FROM outbox"""
BY_ID = " ".join((ENTRIES, "WHERE id = ?"))
BY_KEY = " ".join((ENTRIES, "WHERE idempotency_key = ?"))
# The index of open entries is a partial index WHERE state <> 'sent'. A query uses it only if it repeats that condition
# word for word, even where another condition implies it.
WAITING = " ".join((ENTRIES, "WHERE state <> 'sent' AND state IN ('queued', 'sending') ORDER BY id"))
WAITING_IN_CHAT = " ".join(
    (
        *(ENTRIES, "WHERE session_key = ?"),
        "AND state <> 'sent' AND state IN ('queued', 'sending') ORDER BY id",
    )
)
OLDEST_IN_CHAT = " ".join((WAITING_IN_CHAT, "LIMIT 1"))
UNKNOWN = " ".join((ENTRIES, "WHERE session_key = ? AND state <> 'sent' AND state = 'unknown' ORDER BY id"))
COUNT_WAITING = "SELECT count(*) FROM outbox WHERE state <> 'sent' AND state IN ('queued', 'sending')"
COUNT_BY_STATE = "SELECT state, count(*) FROM outbox WHERE state <> 'sent' GROUP BY state"
WAITING_CHATS = """SELECT session_key, min(id) FROM outbox
    WHERE state <> 'sent' AND state IN ('queued', 'sending') AND platform = ? GROUP BY session_key, platform
    HAVING min(id) > ? ORDER BY min(id) LIMIT ?"""
UNDER_WAY = " ".join((ENTRIES, "WHERE state <> 'sent' AND state = 'sending' ORDER BY id"))
# A retried entry keeps its place in its chat, but the entries of other chats go first.
NEXT = """SELECT o.id FROM outbox o WHERE o.state <> 'sent' AND o.state = 'queued'
    AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.session_key = o.session_key AND e.id < o.id
        AND e.state <> 'sent' AND e.state IN ('queued', 'sending'))
    ORDER BY o.changed_at, o.id LIMIT 1"""
QUEUED_WITH = """SELECT o.id FROM outbox e JOIN outbox o ON o.session_key = e.session_key
    WHERE e.id = ? AND o.state <> 'sent' AND o.state = 'queued' LIMIT 1"""

PUT = """INSERT INTO outbox (session_key, session_id, platform, idempotency_key, payload_json, state, epoch, created_at,
        changed_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
# While an entry is being sent, `error` holds the identity of the sending process.
CLAIM = "UPDATE outbox SET state = 'sending', error = ?, changed_at = ? WHERE id = ?"
SENT = """UPDATE outbox SET state = 'sent', platform_message_id = ?, error = NULL, payload_json = '{}', changed_at = ?
    WHERE id = ? AND state IN ('sending', 'unknown')"""
NOT_SENT = """UPDATE outbox SET state = ?, error = ?, changed_at = ?
    WHERE id = ? AND state = 'sending' AND error = ?"""
SETTLE = "UPDATE outbox SET state = ?, error = NULL, changed_at = ? WHERE id = ?"
# The text is in the conversation; the key stays, so that the message is not queued again.
DROP = """UPDATE outbox SET state = 'failed', error = ?, payload_json = '{}', changed_at = ?
    WHERE session_key = ? AND state <> 'sent' AND state = 'queued' RETURNING idempotency_key"""
PAYLOAD = "SELECT payload_json FROM outbox WHERE id = ?"
COUNT_ATTEMPT = "UPDATE outbox SET payload_json = ? WHERE id = ?"
# Undelivered entries, for operators. Entries that `drop_queued` gave up have no payload and are left out.
OPEN = " ".join(
    (ENTRIES, "WHERE state <> 'sent' AND payload_json <> '{}' AND (? IS NULL OR state = ?) ORDER BY id")
)
# An entry without a payload was stopped by the person.
REQUEUE = """UPDATE outbox SET state = 'queued', changed_at = ?
    WHERE id = ? AND state IN ('unknown', 'failed') AND payload_json <> '{}'"""
# A dropped entry keeps its idempotency key, so that the same message is not posted again.
DROP_ONE = """UPDATE outbox SET state = 'sent', error = ?, payload_json = '{}', changed_at = ?
    WHERE id = ? AND state IN ('queued', 'unknown', 'failed')"""
DROPPED = "dropped by an operator"
FORGET = "DELETE FROM outbox WHERE state IN ('sent', 'unknown', 'failed') AND changed_at < ?"


class OutboxEntry(NamedTuple):
    id: int
    session_key: str
    session_id: str | None
    platform: str
    idempotency_key: str
    payload: dict[str, Any]
    state: str
    """queued, sending, sent, unknown or failed."""
    epoch: int | None
    """The lease epoch under which the entry was written."""
    platform_message_id: str | None
    error: str | None
    created_at: float
    changed_at: float
    attempts: int = 0
    """The number of failed attempts to send the entry."""


class WaitingChat(NamedTuple):
    session_key: str
    oldest: int
    """The id of the oldest entry that is queued or being sent."""


class Outbox:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def enqueue(
        self,
        session_key: str,
        platform: str,
        payload: Mapping[str, Any],
        idempotency_key: str,
        session_id: str | None = None,
        lease_epoch: int | None = None,
        *,
        doubtful: bool = False,
    ) -> OutboxEntry:
        """Add an entry. If an entry with this idempotency key exists, return that entry instead. With
        `doubtful`, the state of the new entry is `unknown`, because it may have been delivered already."""
        key, source = require_text("session_key", session_key), check_new_source(platform, "platform")
        once = require_text("idempotency_key", idempotency_key)
        session, epoch = (
            check_optional_text("session_id", session_id),
            check_optional_integer("lease_epoch", lease_epoch),
        )
        text, at = encode_document("payload", payload), clock.now()

        def work(writer: Writer) -> OutboxEntry:
            if not writer.rows(BY_KEY, once):
                if epoch is not None:
                    require_epoch(writer, session or writer.value(ROUTED, key), epoch)
                state = "unknown" if doubtful else "queued"
                writer.run(PUT, key, session, source, once, text, state, epoch, at, at)
            return _make_entry(writer.rows(BY_KEY, once)[0])

        return self._engine.write(work)

    def claim(self, session_key: str | None = None) -> OutboxEntry | None:
        """Claim the next entry of the chat `session_key` or, if that is None, of any chat. Chats with a
        delivery in progress are skipped. Return None if there is nothing to deliver."""
        key, me = check_optional_text("session_key", session_key), _identify_sender()

        def work(writer: Writer) -> OutboxEntry | None:
            if key is not None:
                return _claim_oldest(writer, key, me)
            entry_id = writer.value(NEXT)
            return None if entry_id is None else _claim(writer, writer.rows(BY_ID, entry_id)[0], me)

        # Not repeatable: after an uncertain commit another process may have claimed the entry.
        return self._engine.write(work, repeatable=False)

    def finish_delivery(self, entry_id: int, platform_message_id: str | int | None = None) -> bool:
        """Mark an entry as delivered, even if its state is `unknown`. Return whether another entry of its chat is
        queued."""
        message, at = check_optional_id("platform_message_id", platform_message_id), clock.now()

        def work(writer: Writer) -> bool:
            writer.run(SENT, message, at, entry_id)
            return writer.value(QUEUED_WITH, entry_id) is not None

        return self._engine.write(work)

    def mark_failed(self, entry_id: int, error: str, retry: bool) -> bool:
        """Record that an entry was not delivered. With `retry`, it is queued again at its old position;
        otherwise its state becomes `failed`. If this process is not sending the entry, change nothing and
        return False."""
        why = require_text("error", error)[:LONGEST_ERROR]
        values = ("queued" if retry else "failed", why, clock.now(), entry_id, _identify_sender())

        def work(writer: Writer) -> bool:
            if not writer.run(NOT_SENT, *values):
                return writer.repeating
            payload = decode_document(writer.value(PAYLOAD, entry_id))
            payload[ATTEMPTS] = payload.get(ATTEMPTS, 0) + 1
            writer.run(COUNT_ATTEMPT, encode_document("payload", payload), entry_id)
            return True

        return self._engine.write(work)

    def mark_doubtful(self, entry_id: int) -> bool:
        """Set the state of an entry to `unknown`, because the platform did not respond. If this process is
        not sending the entry, change nothing and return False."""
        values = ("unknown", "the platform did not answer", clock.now(), entry_id, _identify_sender())
        return self._engine.write(lambda writer: writer.run(NOT_SENT, *values) > 0 or writer.repeating)

    def recover_after_crash(
        self,
        idempotent_platforms: Iterable[str],
        repeatable: Callable[[Mapping[str, Any]], bool] = lambda payload: False,
    ) -> list[OutboxEntry]:
        """Decide the state of entries whose sending process has ended. Return those whose state is now
        `unknown`.

        An entry is queued again if its platform recognises the idempotency key, or if `repeatable(payload)`
        is true. `repeatable` returns true if a second delivery would not be visible, for example because the
        entry edits a message.
        """
        safe = {check_source(name) for name in check_names("idempotent_platforms", idempotent_platforms)}
        doubtful: dict[int, OutboxEntry] = {}

        def work(writer: Writer) -> list[OutboxEntry]:
            at = clock.now()
            for row in writer.rows(UNDER_WAY):
                if not _is_sender_gone(row, at):
                    continue
                entry = _make_entry(row)
                state = "queued" if entry.platform in safe or repeatable(entry.payload) else "unknown"
                writer.run(SETTLE, state, at, entry.id)
                if state == "unknown":
                    doubtful[entry.id] = entry._replace(state=state, changed_at=at)
            return list(doubtful.values())

        return self._engine.write(work)

    def list_waiting(self, session_key: str | None = None) -> list[OutboxEntry]:
        """Return the entries that are queued or being sent, oldest first: those of a chat, or all."""
        with self._engine.read() as reader:
            rows = reader.rows(WAITING) if session_key is None else reader.rows(WAITING_IN_CHAT, session_key)
            return [_make_entry(row) for row in rows]

    def list_unknown(self, session_key: str) -> list[OutboxEntry]:
        """Return the entries of a chat whose state is `unknown`, oldest first."""
        key = require_text("session_key", session_key)
        with self._engine.read() as reader:
            return [_make_entry(row) for row in reader.rows(UNKNOWN, key)]

    def drop_queued(self, session_key: str, error: str) -> list[str]:
        """Give up the queued entries of a chat: set their state to `failed` and delete their text. Return
        their idempotency keys."""
        key, why = require_text("session_key", session_key), require_text("error", error)[:LONGEST_ERROR]
        dropped: set[str] = set()

        def work(writer: Writer) -> list[str]:
            dropped.update(str(row[0]) for row in writer.rows(DROP, why, clock.now(), key))
            return sorted(dropped)

        return self._engine.write(work)

    def list_waiting_chats(self, platform: str, after: int = 0, limit: int = 500) -> list[WaitingChat]:
        """Return the chats of a platform that have entries that are queued or being sent. The chats are
        ordered by their oldest such entry. Return at most `limit` chats, and only those whose oldest entry
        has an id above `after`."""
        with self._engine.read() as reader:
            return [WaitingChat._make(row) for row in reader.rows(WAITING_CHATS, platform, after, limit)]

    def count_waiting(self) -> int:
        """Return the number of entries that are queued or being sent."""
        with self._engine.read() as reader:
            return int(reader.value(COUNT_WAITING))

    def count_by_state(self) -> dict[str, int]:
        """Return the number of entries in each state except `sent`."""
        with self._engine.read() as reader:
            return {str(state): int(count) for state, count in reader.rows(COUNT_BY_STATE)}

    def list_open(self, state: str | None = None) -> list[OutboxEntry]:
        """Return the undelivered entries, oldest first. With `state`, return only the entries in that state.
        Entries that `drop_queued` gave up are left out."""
        with self._engine.read() as reader:
            return [_make_entry(row) for row in reader.rows(OPEN, state, state)]

    def requeue(self, entry_id: int) -> bool:
        """Queue an entry again whose state is `failed` or `unknown`. Return False for any other entry."""
        values = (clock.now(), entry_id)
        return self._engine.write(lambda writer: writer.run(REQUEUE, *values) > 0 or writer.repeating)

    def drop(self, entry_id: int) -> bool:
        """Give up an entry and delete its text. Return False if the entry is being sent or was sent."""
        values = (DROPPED, clock.now(), entry_id)
        return self._engine.write(lambda writer: writer.run(DROP_ONE, *values) > 0 or writer.repeating)

    def forget_sent(self, older_than_seconds: float) -> int:
        """Delete the entries that were sent or given up, or whose state is `unknown`, if they last changed more
        than `older_than_seconds` ago. Return the number of deleted entries. Their idempotency keys can then be
        used again."""
        before = clock.now() - check_time("older_than_seconds", older_than_seconds)
        return self._engine.write(lambda writer: writer.run(FORGET, before))


def _claim_oldest(writer: Writer, key: str, sender: str) -> OutboxEntry | None:
    """Claim the oldest waiting entry of the chat with the session key `key`, for the process `sender`. Return
    None if there is no such entry, or if it is being sent already."""
    row = writer.row(OLDEST_IN_CHAT, key)
    return None if row is None or row[6] != "queued" else _claim(writer, row, sender)


def _claim(writer: Writer, row: Row, sender: str) -> OutboxEntry:
    at = clock.now()
    writer.run(CLAIM, sender, at, row[0])
    return _make_entry((*row[:6], "sending", *row[7:9], sender, row[10], at))


def _identify_sender() -> str:
    return to_json(identify_process()._asdict())


def _is_sender_gone(row: Row, at: float) -> bool:
    sender = decode_document(row[9] or "{}")
    if sender.get("host") == identify_process().host:
        return is_gone(sender.get("host"), sender.get("pid"), sender.get("start"))
    return bool(at - row[11] > ELSEWHERE_S)


def _make_entry(row: Row) -> OutboxEntry:
    error = None if row[6] == "sending" else row[9]
    payload = decode_document(row[5])
    attempts = payload.pop(ATTEMPTS, 0)
    return OutboxEntry._make((*row[:5], payload, *row[6:9], error, *row[10:], attempts))
