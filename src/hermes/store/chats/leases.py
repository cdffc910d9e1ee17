"""Leases: which process is working in a conversation.

A conversation is known by its first session, so that a continuation is under the same lease. Each new holder gets a
higher epoch, written to every session of the conversation in the same transaction: whoever still writes with an older
one is refused inside its own transaction, however long it was asleep. Liveness only decides who may come next without
being rude; it is the epoch that keeps two writers apart.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from hermes import clock, errors
from hermes.store import derived
from hermes.store.arguments import check_integer, check_time, require_text
from hermes.store.engine import Access, Reader, Writer
from hermes.store.processes import identify_process, is_gone
from hermes.store.sessions.messages import decode_row
from hermes.store.sessions.sessions import IS_TRASHED

# A row that another program has just inserted has no root yet: it stands for itself.
ROOT = "SELECT coalesce(root_id, id) FROM sessions WHERE id = ?"
# Both are asked, because another program may have replaced a session's row, and with it the fence.
HIGHEST = """SELECT max(known.epoch) FROM (SELECT lease_epoch AS epoch FROM sessions WHERE root_id = ?
    UNION ALL SELECT epoch FROM leases WHERE conversation_id = ?) AS known"""
HELD = """SELECT epoch, holder_host, holder_pid, holder_start, holder_surface, since, expires_at FROM leases
    WHERE conversation_id = ?"""
HOLD = """INSERT INTO leases (conversation_id, epoch, holder_host, holder_pid, holder_start, holder_surface, since,
        expires_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (conversation_id) DO UPDATE SET epoch = excluded.epoch, holder_host = excluded.holder_host,
        holder_pid = excluded.holder_pid, holder_start = excluded.holder_start,
        holder_surface = excluded.holder_surface, since = excluded.since, expires_at = excluded.expires_at"""
FENCE = "UPDATE sessions SET lease_epoch = ? WHERE root_id = ? AND lease_epoch <> ?"
# The row stays, for the epoch in it. An epoch is given once, so that it alone says whose the lease is.
RELEASE = """UPDATE leases SET holder_host = NULL, holder_pid = NULL, holder_start = NULL, holder_surface = NULL,
        since = NULL, expires_at = NULL
    WHERE conversation_id = ? AND epoch = ? AND holder_host IS NOT NULL"""
FOLLOWING = """SELECT id FROM sessions WHERE parent_session_id = ? AND relation = 'compression'
    ORDER BY started_at DESC, id DESC LIMIT 1"""
MOVE = "UPDATE leases SET conversation_id = ? WHERE conversation_id = ?"
NEWER = """SELECT m.* FROM sessions s JOIN messages m ON m.session_id = s.id
    WHERE s.root_id = ? AND m.id > ? AND m.active = 1 AND s.trashed_at IS NULL ORDER BY m.id"""


class Holder(NamedTuple):
    """A surface (terminal, gateway, editor) in a process."""

    host: str
    pid: int
    start: str | None
    surface: str


class Lease(NamedTuple):
    conversation_id: str
    session_id: str
    """The session it was asked for; any of the conversation."""
    epoch: int
    holder: Holder
    since: float
    expires_at: float


class Leases:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def acquire(self, session_id: str, surface: str, seconds: float = 60.0) -> Lease:
        """Begin to work in a conversation. `LeaseHeld` says who does already; one's own lease is renewed.

        After a compression, ask again for the new session: it is the same lease.
        """
        return self._take(session_id, surface, seconds, ask=True)

    def take_over(self, session_id: str, surface: str, seconds: float = 60.0) -> Lease:
        """Work in a conversation whoever does; what they still try to write is refused from now on."""
        return self._take(session_id, surface, seconds, ask=False)

    def renew(self, lease: Lease, seconds: float = 60.0) -> Lease:
        """Keep it for so much longer. `LeaseLost` if somebody else has it, or if it was released."""
        span = _check_span(seconds)

        def work(writer: Writer) -> Lease:
            root = _find_settled_root(writer, lease.session_id)
            # Without a row the first session was deleted, and the lease with it: the conversation goes on, and so
            # does who works in it, if nobody has come since.
            row = None if root is None else writer.row(HELD, root)
            ours = row is None or (row[0] == lease.epoch and row[1:5] == lease.holder)
            if root is None or not ours or _find_highest_epoch(writer, root) != lease.epoch:
                raise build_lease_lost(lease.session_id)
            return _store_lease(writer, lease._replace(conversation_id=root, expires_at=clock.now() + span))

        return self._engine.write(work)

    def release(self, lease: Lease) -> bool:
        """Leave the conversation to others; False if it was not ours any more."""

        def work(writer: Writer) -> bool:
            root = _find_settled_root(writer, lease.session_id)
            return root is not None and writer.run(RELEASE, root, lease.epoch) > 0

        return self._engine.write(work)

    def find_holder(self, session_id: str) -> Lease | None:
        """Who is working in the conversation; None if it is free, or if who held it has expired or died."""
        with self._engine.read(settled=True) as reader:
            return find_live_lease(reader, session_id)

    def follow(self, session_id: str, after_message_id: int = 0) -> list[dict[str, Any]]:
        """What was said in the conversation since then, whatever segment it is in now, for who only watches."""
        after = check_integer("after_message_id", after_message_id)
        with self._engine.read(settled=True) as reader:
            root = reader.value(ROOT, session_id)
            return [decode_row(reader, row) for row in reader.dicts(NEWER, root, after)]

    def _take(self, session_id: str, surface: str, seconds: float, *, ask: bool) -> Lease:
        session, span = require_text("session_id", session_id), _check_span(seconds)
        me = Holder(*identify_process(), require_text("surface", surface))

        def work(writer: Writer) -> Lease:
            root = _find_settled_root(writer, session)
            if root is None or writer.value(IS_TRASHED, session):
                raise errors.make_error(errors.UnknownSession, f"session {session!r} does not exist")
            lease, highest, now = (
                _read_lease(writer, root, session),
                _find_highest_epoch(writer, root),
                clock.now(),
            )
            if ask and lease is not None:
                if lease.holder == me and lease.epoch == highest:
                    return _store_lease(writer, lease._replace(expires_at=now + span))
                if lease.holder != me and _is_live(lease, now):
                    raise errors.LeaseHeld(_describe_holder(lease), lease)
            # Never one that was given before, also to a session that was deleted and is back from an import or a
            # backup: what a clock says is above all that it said earlier, and never below what is known here.
            epoch = max(highest + 1, int(now * 1000))
            return _store_lease(writer, Lease(root, session, epoch, me, now, now + span))

        return self._engine.write(work)


def find_live_lease(reader: Reader, session_id: str) -> Lease | None:
    """The lease of a session's conversation, if it has not expired and its holder is not known to be dead."""
    root = reader.value(ROOT, session_id)
    lease = None if root is None else _read_lease(reader, root, session_id)
    return lease if lease is not None and _is_live(lease, clock.now()) else None


def find_epoch(reader: Reader, session_id: str) -> int | None:
    """The epoch that a writer in this conversation must have now; None if there is no such session."""
    root = reader.value(ROOT, session_id)
    return None if root is None else _find_highest_epoch(reader, root)


def require_epoch(reader: Reader, session_id: str | None, epoch: int) -> None:
    """For verbs that name their lease: `LeaseLost` unless its epoch is still the one of the conversation."""
    if session_id is None:
        raise errors.make_error(
            errors.InvalidArgument, "an epoch says nothing without a session it is the lease of"
        )
    if find_epoch(reader, session_id) != epoch:
        raise build_lease_lost(session_id)


def build_lease_lost(session_id: str | None) -> errors.HermesError:
    return errors.LeaseLost(
        f"the conversation of session {session_id!r} is not ours to work in any more: it was taken over, released"
        " or deleted; nothing was changed"
    )


def hand_on_lease(writer: Writer, session_id: str, going: Collection[str]) -> None:
    """The first session of a conversation goes: its lease is that of what continues it."""
    following = writer.value(FOLLOWING, session_id)
    if following is not None and following not in going:
        writer.run(MOVE, following, session_id)


def _find_settled_root(writer: Writer, session_id: str) -> str | None:
    """The conversation as it is now, with what other programs have just done to the family taken in."""
    derived.settle(writer)
    root = writer.value(ROOT, session_id)
    return None if root is None else str(root)


def _find_highest_epoch(reader: Reader, root: str) -> int:
    return int(reader.value(HIGHEST, root, root) or 0)


def _read_lease(reader: Reader, root: str, session_id: str) -> Lease | None:
    """The lease as its row tells it; None if nobody holds it."""
    row = reader.row(HELD, root)
    if row is None or row[1] is None:
        return None
    epoch, host, pid, start, surface, since, expires_at = row
    return Lease(root, session_id, epoch, Holder(host, pid, start, surface), since, expires_at)


def _is_live(lease: Lease, now: float) -> bool:
    return lease.expires_at > now and not is_gone(*lease.holder[:3])


def _store_lease(writer: Writer, lease: Lease) -> Lease:
    writer.run(HOLD, lease.conversation_id, lease.epoch, *lease.holder, lease.since, lease.expires_at)
    writer.run(FENCE, lease.epoch, lease.conversation_id, lease.epoch)
    return lease


def _check_span(seconds: float) -> float:
    span = check_time("seconds", seconds)
    if span <= 0:
        raise errors.make_error(errors.InvalidArgument, f"a lease lasts more than {seconds!r} seconds")
    return span


def _describe_holder(lease: Lease) -> str:
    holder = lease.holder
    return f"{holder.surface} (process {holder.pid} on {holder.host}) is working in this conversation"
