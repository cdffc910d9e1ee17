"""Deletion: single sessions, whole conversations, pruning of unused conversations, and cleanup after crashes.

If a session is deleted but another session carries one of its messages, the message moves to that other
session. Pruning checks each conversation again inside the transaction that deletes it, so that a conversation
used in the meantime is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hermes import clock, errors
from hermes.store import derived
from hermes.store.arguments import check_optional_path
from hermes.store.chats import leases, routing
from hermes.store.chats.telegram_topics import list_linked_conversations, unbind_session
from hermes.store.engine import Engine, Reader, Writer
from hermes.store.processes import may_be_running
from hermes.store.retention.session_files import remove_files
from hermes.store.sessions import blobs, carried_context
from hermes.store.sessions.lineage import list_with_subagents
from hermes.store.sessions.selection import EVERYTHING, Selection, is_selected
from hermes.store.sessions.sessions import END, EXISTS, check_source
from hermes.store.sessions.title_notes import FORGET_FORMER, FORGET_REQUEST

if TYPE_CHECKING:
    from hermes.store.retention.purge import Purge

T = TypeVar("T")

MESSAGES_AT_ONCE, CONVERSATIONS_AT_ONCE = 2_000, 200
"""The most messages and conversations that one transaction of a prune deletes. The limits are high enough to
keep commits few, and low enough to keep waits for the write lock short."""

GHOST_AGE = clock.DAY
"""The age from which `prune_empty_ghost_sessions` deletes an empty session."""
ORPHAN_AGE = 7 * clock.DAY
"""The age and idle time from which `finalize_orphaned_compression_sessions` ends a continuation."""

# The continuation of a deleted session takes over its tags.
KEEP_TAGS = """INSERT INTO tags (session_id, tag) SELECT s.id, t.tag FROM tags t JOIN sessions s
    ON s.parent_session_id = t.session_id WHERE t.session_id = ? AND s.relation = 'compression'
    ON CONFLICT DO NOTHING"""
LEAVE_CHILDREN = "UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id = ?"
UNROUTE = "DELETE FROM routing WHERE session_id = ?"
UNSEND = "DELETE FROM outbox WHERE session_id = ?"
# A queued entry is not yet part of the session and will be processed in another session. A done entry
# contains only its ids.
UNRECEIVE = "DELETE FROM inbox WHERE session_id = ? AND state <> 'done' AND state <> 'queued'"
# The record of a run stays: it says when the job was due. It may quote the conversation, so that text is deleted.
UNLINK_RUNS = "UPDATE job_runs SET session_id = NULL, message_id = NULL, detail = NULL WHERE session_id = ?"
UNLEASE = "DELETE FROM leases WHERE conversation_id = ?"
# The title and the continuations that the trash stored for a restore.
FORGET_TITLE = "DELETE FROM state_meta WHERE key = 'trashed_title:' || ?"
FORGET_NEXT = "DELETE FROM state_meta WHERE key = 'trashed_next:' || ?"
FORGET_MERGE = "DELETE FROM state_meta WHERE key = 'merged:' || ?"
DELETE = "DELETE FROM sessions WHERE id = ?"

# Selects each conversation by its first session. Subagents are not selected (listed = 0), because they are
# deleted with their conversation.
UNUSED = """SELECT id FROM sessions WHERE root_id = id AND listed = 1 AND coalesce(conversation_active, started_at) <= ?
    AND (? IS NULL OR source = ?) ORDER BY conversation_active NULLS FIRST, id"""
# For a session that maintenance closed, the age counts from the time of closing, because the session could
# not be pruned before.
IS_UNUSED = """SELECT 1 FROM sessions WHERE id = ?1 AND root_id = id AND coalesce(conversation_active, started_at) <= ?2
    AND NOT EXISTS (SELECT 1 FROM sessions m WHERE m.root_id = ?1
        AND m.end_reason IN ('orphaned', 'orphaned_compression') AND m.ended_at > ?2
        AND CAST(m.ended_at AS DOUBLE PRECISION) = m.ended_at)"""
ENDED_SINCE = "SELECT 1 FROM sessions WHERE root_id = ? AND ended_at > ? LIMIT 1"
OPEN_IN_TERMINAL = "SELECT process FROM sessions WHERE root_id = ? AND ended_at IS NULL AND source = 'cli'"
# Conversations in the trash are kept, because the trash has its own retention time.
KEPT = """SELECT 1 FROM sessions m LEFT JOIN routing t ON t.session_id = m.id WHERE m.root_id = ?
    AND (m.ended_at IS NULL OR m.pinned_at IS NOT NULL OR m.trashed_at IS NOT NULL OR t.session_id IS NOT NULL)"""
LEASED = "SELECT 1 FROM leases WHERE conversation_id = ? AND expires_at > ?"
MEMBER = """SELECT id, root_id, source, title, preview, model, started_at, ended_at, end_reason, last_active,
    message_count FROM sessions WHERE id = ?"""
ROOT = "SELECT root_id FROM sessions WHERE id = ?"

GHOSTS = """SELECT id FROM sessions s WHERE source = 'tui' AND title IS NULL AND ended_at IS NOT NULL AND started_at < ?
    AND ended_at <= ?
    AND pinned_at IS NULL AND trashed_at IS NULL AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)
    AND NOT EXISTS (SELECT 1 FROM carried_context c WHERE c.session_id = s.id)
    AND NOT EXISTS (SELECT 1 FROM routing t WHERE t.session_id = s.id)
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.conversation_id = s.root_id AND l.expires_at > ?)"""
ORPHANED_CONTINUATIONS = """SELECT s.id, s.process FROM sessions s JOIN sessions p ON p.id = s.parent_session_id
    WHERE p.end_reason = 'compression' AND s.ended_at IS NULL AND s.end_reason IS NULL AND s.trashed_at IS NULL
    AND coalesce(s.api_call_count, 0) = 0 AND s.started_at < ? AND coalesce(s.last_active, s.started_at) < ?
    AND EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)
    AND NOT EXISTS (SELECT 1 FROM routing t WHERE t.session_id = s.id)
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.conversation_id = s.root_id AND l.expires_at > ?)"""
IDLE_CLI = """SELECT s.id, s.root_id, s.process FROM sessions s WHERE s.source = 'cli' AND s.ended_at IS NULL
    AND s.trashed_at IS NULL AND coalesce(s.last_active, s.started_at) < ?
    AND NOT EXISTS (SELECT 1 FROM routing t WHERE t.session_id = s.id)
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.conversation_id = s.root_id AND l.expires_at > ?)"""

FOR_EVER_DAYS = 1e9

Units = Callable[[Writer], Iterable[list[str]]]
"""Returns groups of sessions to delete. It is called inside the deleting transaction. The sessions of a group
are deleted together."""


class Retention:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def delete(self, session_id: str, sessions_dir: Path | str | None = None, purge: bool = False) -> bool:
        """Delete one session. Its children stay. Return whether the session existed.

        With `purge`, also remove every byte of its text from the store and its copies.
        """
        folder = check_optional_path("sessions_dir", sessions_dir)
        purging = self.begin_purge([session_id], folder) if purge else None
        removed = self.remove_units(
            lambda writer: [[session_id]] if writer.value(EXISTS, session_id) else [], purging
        )
        self.remove_files_of(removed, folder)
        if purging is not None:
            purging.finish([session_id])
        return bool(removed)

    def delete_conversations(
        self, session_ids: Iterable[str], sessions_dir: Path | str | None = None, purge: bool = False
    ) -> list[str]:
        """Delete the whole conversations of these sessions, and their subagents. Return the deleted ids. With
        `purge`, also remove every byte of their text from the store and its copies."""
        named, folder = list(session_ids), check_optional_path("sessions_dir", sessions_dir)

        def units(writer: Writer) -> Iterator[list[str]]:
            derived.settle(writer)
            for session_id in named:
                if writer.value(EXISTS, session_id):  # not deleted together with an earlier one
                    yield list_with_subagents(writer, session_id)

        purging = self.begin_purge(self._find_conversations(named), folder) if purge else None
        removed = self.remove_units(units, purging)
        self.remove_files_of(removed, folder)
        if purging is not None:
            purging.finish(named)
        return removed

    def _find_conversations(self, session_ids: Collection[str]) -> list[str]:
        with self._engine.read(settled=True) as reader:
            return [session_id for name in session_ids for session_id in list_with_subagents(reader, name)]

    def prune(
        self,
        older_than_days: float = 90,
        source: str | None = None,
        sessions_dir: Path | str | None = None,
        only: Selection | None = None,
        *,
        ended_by: float | None = None,
    ) -> int:
        """Delete conversations that were not used for `older_than_days`. Return the number of deleted
        sessions.

        With `ended_by`, a conversation is kept if one of its sessions ended after that time.
        """
        cutoff, chosen = compute_cutoff(older_than_days), (only or EVERYTHING).validate()
        folder = check_optional_path("sessions_dir", sessions_dir)
        with self._engine.read(settled=True) as reader:
            sizes = [
                (unit[0]["root_id"], _count_messages(unit))
                for unit in _find_unused(reader, cutoff, source, chosen)
            ]
        removed: list[str] = []
        try:
            for roots in make_batches(sizes):
                removed += self._prune_batch(roots, cutoff, chosen, ended_by)
        finally:
            self.remove_files_of(removed, folder)
        return len(removed)

    def list_prune_candidates(
        self, older_than_days: float = 90, source: str | None = None, only: Selection | None = None
    ) -> list[dict[str, Any]]:
        """Return the sessions that `prune` would delete now, longest unused conversation first."""
        cutoff, chosen = compute_cutoff(older_than_days), (only or EVERYTHING).validate()
        with self._engine.read(settled=True) as reader:
            return [row for unit in _find_unused(reader, cutoff, source, chosen) for row in unit]

    def prune_empty_ghost_sessions(
        self, sessions_dir: Path | str | None = None, *, ended_by: float | None = None
    ) -> int:
        """Delete untitled sessions with the source `tui` that started more than a day ago and ended without
        a message. Pinned sessions, and those that a chat uses, are kept. With `ended_by`, a session that
        ended after that time is kept too. Return how many were deleted."""
        now, folder = clock.now(), check_optional_path("sessions_dir", sessions_dir)
        values = (now - GHOST_AGE, inf if ended_by is None else ended_by, now)
        removed = self.remove_units(lambda writer: [[row[0]] for row in writer.rows(GHOSTS, *values)])
        self.remove_files_of(removed, folder)
        return len(removed)

    def finalize_orphaned_compression_sessions(self, *, spare_running: bool = False) -> int:
        """End continuations in which no model was called and that have been open and unused for a week.
        Return their number.

        With `spare_running`, sessions whose process may still be running stay open.
        """
        now = clock.now()

        def work(writer: Writer) -> int:
            orphans = writer.rows(ORPHANED_CONTINUATIONS, now - ORPHAN_AGE, now - ORPHAN_AGE, now)
            left = [row[0] for row in orphans if not (spare_running and may_be_running(row[1]))]
            return _end_sessions(writer, left, now, "orphaned_compression")

        return self._engine.write(work, share=False)

    def close_orphaned_cli(self, idle_days: float = 7) -> int:
        """End terminal sessions whose process has ended and that were idle for `idle_days`, so that they can
        be pruned. Return their number.

        A process on another host or in another container cannot be checked, so its session stays open.
        """
        now = clock.now()

        def work(writer: Writer) -> int:
            idle = writer.rows(IDLE_CLI, now - idle_days * clock.DAY, now)
            linked = list_linked_conversations(writer) if idle else set()
            left = [row[0] for row in idle if row[1] not in linked and not may_be_running(row[2])]
            return _end_sessions(writer, left, now, "orphaned")

        return self._engine.write(work, share=False)

    # ---------------------------------------------------------------- removing

    def _prune_batch(
        self, roots: list[str], cutoff: float, only: Selection, ended_by: float | None
    ) -> list[str]:
        def find_units(writer: Writer) -> Iterator[list[str]]:
            derived.settle(writer)  # apply changes of other programs first
            linked = list_linked_conversations(writer)
            for root in roots:
                unit = (
                    _find_unit(writer, root, cutoff, linked, ended_by)
                    if is_selected(writer, root, only)
                    else None
                )
                if unit is not None:
                    yield unit

        return self.remove_units(find_units)

    def begin_purge(self, session_ids: Collection[str], sessions_dir: Path | None) -> Purge:
        """Return a `Purge` for these sessions, after it has searched the files for texts of them. The caller
        passes it to `remove_units`, which deletes the sessions, and then calls its method `finish`."""
        from hermes.store.retention.purge import Purge

        purging = Purge(self._engine, sessions_dir)
        purging.scan_files(session_ids)
        return purging

    def remove_units(self, units: Units, purging: Purge | None = None) -> list[str]:
        """Delete sessions in one transaction, and return their ids. `units` is a function that returns groups
        of session ids inside this transaction. With `purging`, a note about the remaining work of the purge is
        written for each group."""
        removed: dict[str, None] = {}

        def work(writer: Writer) -> list[str]:
            if not writer.repeating:
                removed.clear()
            for unit in units(writer):
                going = frozenset(unit)
                if purging is not None and unit:
                    purging.write_note(writer, unit)
                for session_id in unit:
                    self._remove_session(writer, session_id, going)
                removed.update(dict.fromkeys(unit))
            derived.refresh(writer)
            return list(removed)

        return self._engine.write(work, share=False)

    def _remove_session(self, writer: Writer, session_id: str, going: Collection[str]) -> None:
        carried_context.rehome_messages(writer, session_id, going)
        routing.move_chats_back(writer, session_id, going)
        leases.hand_on_lease(writer, session_id, going)
        hashes = blobs.list_hashes(writer, session_id)
        self._engine.delete_messages(writer, session_id)
        blobs.drop_unused(writer, hashes)
        unbind_session(writer, session_id)
        for sql in (
            KEEP_TAGS,
            LEAVE_CHILDREN,
            UNROUTE,
            UNSEND,
            UNLINK_RUNS,
            UNRECEIVE,
            UNLEASE,
            FORGET_TITLE,
            FORGET_NEXT,
            FORGET_MERGE,
            FORGET_FORMER,
            FORGET_REQUEST,
            DELETE,
        ):
            writer.run(sql, session_id)

    def remove_files_of(self, removed: Collection[str], sessions_dir: Path | None) -> None:
        """Remove the files in `sessions_dir` that belong to the deleted sessions `removed`. If `sessions_dir`
        is None, do nothing."""
        if sessions_dir is not None:
            remove_files(self._engine, sessions_dir, removed)


def _find_unused(
    reader: Reader, cutoff: float, source: str | None, only: Selection
) -> Iterator[list[dict[str, Any]]]:
    """Yield, for each conversation that can be pruned, the rows of its sessions and of its subagents. The
    conversations were last used at or before `cutoff`. `only` restricts them and must be the result of
    `Selection.validate`."""
    name = None if source is None else check_source(source)
    linked = list_linked_conversations(reader)
    for (root,) in reader.rows(UNUSED, cutoff, name, name):
        unit = _find_unit(reader, root, cutoff, linked) if is_selected(reader, root, only) else None
        if unit is not None:
            yield [row for member in unit for row in reader.dicts(MEMBER, member)]


def _find_unit(
    reader: Reader, root: str, cutoff: float, linked: Collection[str], ended_by: float | None = None
) -> list[str] | None:
    """Return the ids of the sessions that are pruned together with the session `root`: its conversation and its
    subagents. Return None if the conversation is kept.

    A subagent that was used recently, or that is kept for another reason, is left out. `linked` contains the
    roots of the conversations that are bound to a Telegram topic.
    """

    def can_go(family_root: str) -> bool:
        if ended_by is not None and reader.value(ENDED_SINCE, family_root, ended_by):
            return False
        return bool(reader.value(IS_UNUSED, family_root, cutoff)) and not _is_kept(
            reader, family_root, linked
        )

    if not can_go(root):
        return None
    families = [(member, reader.value(ROOT, member)) for member in list_with_subagents(reader, root)]
    going = {
        family_root: family_root == root or can_go(family_root)
        for family_root in dict.fromkeys(family_root for _member, family_root in families)
    }
    return [member for member, family_root in families if going[family_root]]


def _is_kept(reader: Reader, root: str, linked: Collection[str]) -> bool:
    """Return whether a conversation is kept whatever its age, because it is pinned, open, in the trash, bound
    to a chat or leased."""
    return root in linked or bool(reader.value(KEPT, root) or reader.value(LEASED, root, clock.now()))


def is_open_in_process(reader: Reader, root: str) -> bool:
    """Return whether the conversation has an open terminal session whose process may be running."""
    return any(may_be_running(row[0]) for row in reader.rows(OPEN_IN_TERMINAL, root))


def _count_messages(unit: list[dict[str, Any]]) -> int:
    return sum(row["message_count"] or 0 for row in unit)


def _end_sessions(writer: Writer, ids: list[str], at: float, reason: str) -> int:
    ended = sum(writer.run(END, at, reason, session_id) for session_id in ids)
    if ended:
        derived.refresh(writer)
    return ended


def make_batches(sizes: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Group conversations into batches, each small enough for one short transaction. `sizes` contains pairs
    (conversation, number of its messages). Yield the conversations of each batch."""
    batch: list[T] = []
    messages = 0
    for root, size in sizes:
        if batch and (messages + size > MESSAGES_AT_ONCE or len(batch) == CONVERSATIONS_AT_ONCE):
            yield batch
            batch, messages = [], 0
        batch.append(root)
        messages += size
    if batch:
        yield batch


def compute_cutoff(days: object) -> float:
    """Return the cutoff time: data that was last used at or before it is deleted. The cutoff is `days` ago.
    For 0 days it is infinite, so that even times in the future are included."""
    if isinstance(days, bool) or not isinstance(days, int | float) or not days >= 0:
        raise errors.make_error(
            errors.InvalidArgument, f"older_than_days must be a number of 0 or more, got {days!r:.40}"
        )
    return clock.now() - min(days, FOR_EVER_DAYS) * clock.DAY if days else float("inf")
