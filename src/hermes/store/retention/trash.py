"""Trash: deleted conversations that are kept for some time and can be restored.

A session in the trash (`trashed_at`) is in no list, count, search, title lookup, export or prune. It is found
by its id only if the caller includes the trash, and it cannot be written to. Sessions that were trashed
together have the same time and are restored together.

The title of a trashed session can be used by other sessions; it is kept in `state_meta` as
`trashed_title:<id>`. If only one session of a conversation is trashed, its continuations are detached and
become a separate conversation. `trashed_next:<id>` lists these continuations.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import inf, nextafter
from pathlib import Path
from typing import Any

from hermes import clock
from hermes.store import derived, meta
from hermes.store.arguments import check_optional_path
from hermes.store.chats import leases, routing
from hermes.store.chats.telegram_topics import unbind_session
from hermes.store.content import from_json, to_json
from hermes.store.engine import Access, Reader, Row, Writer
from hermes.store.retention.deletion import (
    FORGET_NEXT,
    FORGET_TITLE,
    KEEP_TAGS,
    UNROUTE,
    Retention,
    Units,
    compute_cutoff,
    make_batches,
)
from hermes.store.sessions.lineage import list_with_subagents
from hermes.store.sessions.sessions import LIVE
from hermes.store.sessions.title_notes import BY_STORE
from hermes.store.sessions.titles import find_free_title

KEPT_DAYS = 30

TITLE_KEY, NEXT_KEY = "trashed_title:", "trashed_next:"
TITLE = "SELECT title FROM sessions WHERE id = ?"
PUT_IN = "UPDATE sessions SET trashed_at = ?, title = NULL WHERE id = ?"
CONTINUATIONS = "SELECT id FROM sessions WHERE parent_session_id = ? AND relation = 'compression'"
LET_GO = "UPDATE sessions SET parent_session_id = NULL WHERE id = ?"

ANY_AT = "SELECT 1 FROM sessions WHERE trashed_at = ? LIMIT 1"
WHEN = "SELECT trashed_at FROM sessions WHERE id = ?"
TOGETHER = "SELECT id FROM sessions WHERE trashed_at = ? ORDER BY started_at, id"
TAKE_OUT = "UPDATE sessions SET trashed_at = NULL WHERE id = ?"
UNTITLED = "SELECT owner FROM sessions WHERE id = ? AND title IS NULL"
SET_TITLE = "UPDATE sessions SET title = ?, title_by = coalesce(?, title_by) WHERE id = ?"
JOIN_AGAIN = """UPDATE sessions SET parent_session_id = ?, relation = 'compression'
    WHERE id = ? AND parent_session_id IS NULL"""

IN_TRASH = """SELECT s.id, s.source, m.value, s.preview, s.started_at, s.last_active, s.message_count, s.trashed_at,
    s.parent_session_id, s.kind, s.owner, s.chat_type, s.chat_id, s.thread_id, s.display_name
    FROM sessions s LEFT JOIN state_meta m ON m.key = 'trashed_title:' || s.id
    WHERE s.trashed_at IS NOT NULL ORDER BY s.trashed_at DESC, s.started_at, s.id"""
# A conversation that is still being written to is not deleted.
LAIN_LONG = """SELECT trashed_at, id, coalesce(message_count, 0) FROM sessions WHERE trashed_at <= ?1
    AND NOT EXISTS (SELECT 1 FROM sessions o WHERE o.trashed_at = sessions.trashed_at AND o.last_active > o.trashed_at
        AND o.last_active > ?1)
    ORDER BY trashed_at, started_at, id"""


class Trash:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def trash_session(self, session_id: str, segment: bool = False) -> list[str]:
        """Move a conversation and its subagents to the trash. Return the moved ids. The chats of the
        conversation lose their routes, so their next message starts a new session.

        With `segment`, move only this session. If the session does not exist, return an empty list.
        """
        now = clock.now()
        went: list[str] = []

        def work(writer: Writer) -> list[str]:
            if not writer.repeating:
                went.clear()
            if not writer.value(LIVE, session_id):
                return list(went)
            derived.settle(writer)
            at = now
            while writer.value(ANY_AT, at):  # the time must be unique, because it identifies the group
                at = nextafter(at, inf)
            going = [session_id] if segment else list_with_subagents(writer, session_id)
            went[:] = [member for member in going if writer.value(LIVE, member)]
            for member in went:
                _trash_session(writer, member, at, alone=segment)
            if segment:
                _detach_continuations(writer, session_id)
            return list(went)

        return self._engine.write(work, share=False)

    def restore(self, session_id: str) -> list[str]:
        """Restore the sessions that were trashed together with this one. Return the restored ids.

        A title that another session has taken in the meantime becomes `title (2)`.
        """
        came: list[str] = []

        def work(writer: Writer) -> list[str]:
            restored = restore_group(writer, session_id)
            if restored or not writer.repeating:
                came[:] = restored
            return list(came)

        return self._engine.write(work, share=False)

    def list_contents(self, trash_days: float = KEPT_DAYS) -> list[dict[str, Any]]:
        """Return the contents of the trash, newest first. Each row is a group of sessions that were trashed
        together. `goes_at` is the time at which the group will be deleted permanently."""
        with self._engine.read(settled=True) as reader:
            rows = reader.rows(IN_TRASH)
        thrown = (list(group) for _at, group in groupby(rows, key=lambda row: row[7]))
        return [_make_row(group, trash_days) for group in thrown]

    def empty(
        self,
        retention: Retention,
        older_than_days: float = KEPT_DAYS,
        purge: bool = False,
        sessions_dir: Path | str | None = None,
    ) -> int:
        """Delete the sessions that have been in the trash for `older_than_days`, or all sessions in the trash
        if it is 0. Return the number of deleted sessions."""
        cutoff, folder = compute_cutoff(older_than_days), check_optional_path("sessions_dir", sessions_dir)
        with self._engine.read() as reader:
            rows = reader.rows(LAIN_LONG, cutoff)
        thrown = [(at, list(group)) for at, group in groupby(rows, key=lambda row: row[0])]
        units = [((at, [row[1] for row in group]), sum(row[2] for row in group)) for at, group in thrown]
        purging = retention.begin_purge([row[1] for row in rows], folder) if purge else None
        removed: list[str] = []
        try:
            for batch in make_batches(units):
                removed += retention.remove_units(_select_still_trashed(batch), purging)
        finally:
            retention.remove_files_of(removed, folder)
            if purging is not None:
                purging.finish()
        return len(removed)


def restore_group(writer: Writer, session_id: str) -> list[str]:
    """Restore a session and the sessions that were trashed with it. Return the restored ids, or an empty list
    if the session was not in the trash."""
    at = writer.value(WHEN, session_id)
    together = [] if at is None else _list_group(writer, at)
    for member in together:
        restore_session(writer, member)
    if together:
        derived.refresh(writer)
    return together


def restore_session(writer: Writer, session_id: str) -> bool:
    """Take one session out of the trash. Give it its former title, and attach the continuations that were
    detached from it. Return False if the session was not in the trash.

    The caller must refresh the derived columns of the session.
    """
    if not writer.run(TAKE_OUT, session_id):
        return False
    title, owner = writer.value(meta.GET, TITLE_KEY + session_id), writer.row(UNTITLED, session_id)
    if title is not None and owner is not None:
        free = find_free_title(writer, title, owner[0], session_id)
        writer.run(SET_TITLE, free, None if free == title else BY_STORE, session_id)
    for child in from_json(writer.value(meta.GET, NEXT_KEY + session_id) or "[]", []):
        writer.run(JOIN_AGAIN, session_id, child)
    for forget in (FORGET_TITLE, FORGET_NEXT):
        writer.run(forget, session_id)
    return True


def _trash_session(writer: Writer, session_id: str, at: float, *, alone: bool) -> None:
    title = writer.value(TITLE, session_id)
    if title is not None:
        writer.run(meta.SET, TITLE_KEY + session_id, title)
    if alone:
        routing.move_chats_back(writer, session_id, ())
        leases.hand_on_lease(writer, session_id, ())
    writer.run(PUT_IN, at, session_id)
    writer.run(UNROUTE, session_id)
    unbind_session(writer, session_id)


def _detach_continuations(writer: Writer, session_id: str) -> None:
    following = [row[0] for row in writer.rows(CONTINUATIONS, session_id)]
    if following:
        writer.run(meta.SET, NEXT_KEY + session_id, to_json(following))
        writer.run(KEEP_TAGS, session_id)
        for child in following:
            writer.run(LET_GO, child)
        derived.refresh(writer)


def _list_group(reader: Reader, at: float) -> list[str]:
    return [row[0] for row in reader.rows(TOGETHER, at)]


def _select_still_trashed(thrown: list[tuple[float, list[str]]]) -> Units:
    """Return a function that `remove_units` calls inside the transaction that deletes sessions. `thrown`
    contains pairs (time at which sessions were trashed, their ids). For each pair, the function yields the ids
    of the sessions that are still in the trash since that time."""

    def units(writer: Writer) -> Iterator[list[str]]:
        for at, members in thrown:
            yield [member for member in members if writer.value(WHEN, member) == at]

    return units


def _make_row(group: list[Row], trash_days: float) -> dict[str, Any]:
    """Return a row for the list of the trash. `group` contains the rows of sessions that were trashed together.
    The result has the id of the first session, the newest title and the total number of messages."""
    members = {row[0] for row in group}
    heads = [row for row in group if row[8] not in members]
    first = heads[0] if heads else group[0]
    titles = [row[2] for row in group if row[2] is not None and (row[9] != "child" or row is first)]
    return {
        "id": first[0],
        "source": first[1],
        "title": titles[-1] if titles else None,
        "preview": first[3] or "",
        "started_at": first[4],
        "last_active": max(clock.filter_times(row[5] or row[4] for row in group), default=first[4]),
        "message_count": sum(row[6] or 0 for row in group),
        "trashed_at": first[7],
        "goes_at": first[7] + trash_days * clock.DAY,
        "sessions": [row[0] for row in group],
        **dict(zip(("owner", "chat_type", "chat_id", "thread_id", "display_name"), first[10:], strict=True)),
    }
