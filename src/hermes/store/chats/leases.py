"""Leases: which process works in a conversation.

The key of a lease is the first session of the conversation, so continuations share the lease. Each new holder
gets a higher epoch. The epoch is a fencing token: it is written to every session of the conversation in the
same transaction. A write with an older epoch is refused inside its transaction, however long the writing
process was paused. The epoch alone prevents two processes from writing. Expiry, and whether the holder is
running, only decide when another process may take the lease without `take_over`.
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

# Another program may have just inserted the row without a root. The session is then its own root.
ROOT = "SELECT coalesce(root_id, id) FROM sessions WHERE id = ?"
# Both tables are read, because another program may have replaced a session row and its fence.
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
# The row of a released lease stays, to keep the epoch, because no epoch is issued twice for a conversation.
RELEASE = """UPDATE leases SET holder_host = NULL, holder_pid = NULL, holder_start = NULL, holder_surface = NULL,
        since = NULL, expires_at = NULL
    WHERE conversation_id = ? AND epoch = ? AND holder_host IS NOT NULL"""
FOLLOWING = """SELECT id FROM sessions WHERE parent_session_id = ? AND relation = 'compression'
    ORDER BY started_at DESC, id DESC LIMIT 1"""
MOVE = "UPDATE leases SET conversation_id = ? WHERE conversation_id = ?"
NEWER = """SELECT m.* FROM sessions s JOIN messages m ON m.session_id = s.id
    WHERE s.root_id = ? AND m.id > ? AND m.active = 1 AND s.trashed_at IS NULL ORDER BY m.id"""


class Holder(NamedTuple):
    """The holder of a lease: a surface (terminal, gateway, editor) in a process."""

    host: str
    pid: int
    start: str | None
    surface: str


class Lease(NamedTuple):
    conversation_id: str
    session_id: str
    """The session that the lease was requested for. It can be any session of the conversation."""
    epoch: int
    holder: Holder
    since: float
    expires_at: float


class Leases:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def acquire(self, session_id: str, surface: str, seconds: float = 60.0) -> Lease:
        """Take the lease of a conversation, or renew it if the caller holds it. If another process holds it,
        raise `LeaseHeld` with the holder.

        After a compression, call this again for the new session; the lease stays the same.
        """
        return self._take(session_id, surface, seconds, ask=True)

    def take_over(self, session_id: str, surface: str, seconds: float = 60.0) -> Lease:
        """Take the lease even if another process holds it. Later writes of that process are refused."""
        return self._take(session_id, surface, seconds, ask=False)

    def renew(self, lease: Lease, seconds: float = 60.0) -> Lease:
        """Extend the lease. Raise `LeaseLost` if another process has taken it or if it was released."""
        span = _check_span(seconds)

        def work(writer: Writer) -> Lease:
            root = _find_settled_root(writer, lease.session_id)
            # If there is no row, the first session was deleted together with its lease. The conversation
            # continues under the same lease, unless another process has taken it.
            row = None if root is None else writer.row(HELD, root)
            ours = row is None or (row[0] == lease.epoch and row[1:5] == lease.holder)
            if root is None or not ours or _find_highest_epoch(writer, root) != lease.epoch:
                raise build_lease_lost(lease.session_id)
            return _store_lease(writer, lease._replace(conversation_id=root, expires_at=clock.now() + span))

        return self._engine.write(work)

    def release(self, lease: Lease) -> bool:
        """Release a lease of the caller. Return False if the caller no longer held it."""

        def work(writer: Writer) -> bool:
            root = _find_settled_root(writer, lease.session_id)
            return root is not None and writer.run(RELEASE, root, lease.epoch) > 0

        return self._engine.write(work)

    def find_holder(self, session_id: str) -> Lease | None:
        """Return the lease of a conversation. None if nobody holds it, if it has expired or if its holder is
        known to be dead."""
        with self._engine.read(settled=True) as reader:
            return find_live_lease(reader, session_id)

    def follow(self, session_id: str, after_message_id: int = 0) -> list[dict[str, Any]]:
        """Return the messages with an id above `after_message_id` from all sessions of the conversation.
        Programs that only watch a conversation use this."""
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
            # An epoch is never issued twice, not even for a session that was deleted and imported again: it
            # is at least the time in milliseconds, and higher than every epoch known here.
            epoch = max(highest + 1, int(now * 1000))
            return _store_lease(writer, Lease(root, session, epoch, me, now, now + span))

        return self._engine.write(work)


def find_live_lease(reader: Reader, session_id: str) -> Lease | None:
    """Return the lease of a session's conversation. None if there is none, if it has expired, or if its
    holder is known to be dead."""
    root = reader.value(ROOT, session_id)
    lease = None if root is None else _read_lease(reader, root, session_id)
    return lease if lease is not None and _is_live(lease, clock.now()) else None


def find_epoch(reader: Reader, session_id: str) -> int | None:
    """Return the epoch that a write to this conversation must have now. None if the session does not
    exist."""
    root = reader.value(ROOT, session_id)
    return None if root is None else _find_highest_epoch(reader, root)


def require_epoch(reader: Reader, session_id: str | None, epoch: int) -> None:
    """Raise `LeaseLost` unless `epoch` is still the current epoch of the conversation."""
    if session_id is None:
        raise errors.make_error(errors.InvalidArgument, "epoch is allowed only together with a session")
    if find_epoch(reader, session_id) != epoch:
        raise build_lease_lost(session_id)


def build_lease_lost(session_id: str | None) -> errors.HermesError:
    return errors.LeaseLost(
        f"this process has lost the lease of session {session_id!r}: the conversation was taken over, released"
        " or deleted; nothing was changed"
    )


def hand_on_lease(writer: Writer, session_id: str, going: Collection[str]) -> None:
    """Move the lease of a conversation from its first session, which is about to be deleted, to the
    continuation. `going` lists all sessions that are about to be deleted. If it contains the continuation,
    nothing moves."""
    following = writer.value(FOLLOWING, session_id)
    if following is not None and following not in going:
        writer.run(MOVE, following, session_id)


def _find_settled_root(writer: Writer, session_id: str) -> str | None:
    """Bring the derived columns up to date, and return the root of the session's conversation. Return None if
    the session does not exist."""
    derived.settle(writer)
    root = writer.value(ROOT, session_id)
    return None if root is None else str(root)


def _find_highest_epoch(reader: Reader, root: str) -> int:
    return int(reader.value(HIGHEST, root, root) or 0)


def _read_lease(reader: Reader, root: str, session_id: str) -> Lease | None:
    """Return the lease of the conversation whose first session is `root`. None if nobody holds it. `session_id`
    is the session that the caller uses, and is a field of the result."""
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
        raise errors.make_error(
            errors.InvalidArgument, f"a lease must last more than 0 seconds, got {seconds!r}"
        )
    return span


def _describe_holder(lease: Lease) -> str:
    holder = lease.holder
    return f"{holder.surface} (process {holder.pid} on {holder.host}) is working in this conversation"
