"""Links of imported sessions: their parents and their carried messages.

In a file, a session can come before its parent, or before the session whose messages it carries. Links are
therefore made at the end of an import, when the ids of all sessions and messages are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from hermes.store import derived
from hermes.store.engine import Access, Reader, Writer
from hermes.store.sessions.carried_context import (
    LIVE,
    LOWEST,
    SET_ASIDE,
    carry_messages,
    make_ranges,
    restore_set_aside,
    set_aside_messages,
)
from hermes.store.sessions.sessions import EXISTS
from hermes.store.transfer.import_report import Outcome, Report
from hermes.store.transfer.incoming_session import ACTIVE, IncomingSession

LINKS_AT_ONCE = 100

SET_PARENT = (
    "UPDATE sessions SET parent_session_id = ?, relation = ? WHERE id = ? AND parent_session_id IS NULL"
)
OTHER_CONTINUATIONS = """SELECT id FROM sessions WHERE parent_session_id = ? AND relation = 'compression'
    AND trashed_at IS NULL AND id <> ?"""
HOW_ENDED = "SELECT end_reason FROM sessions WHERE id = ?"
HAS_PARENT = "SELECT parent_session_id IS NOT NULL FROM sessions WHERE id = ?"
SAME_OWNER = """SELECT 1 FROM sessions s, messages m JOIN sessions o ON o.id = m.session_id
    WHERE s.id = ? AND m.id = ? AND o.owner = s.owner"""
IS_OWN = "SELECT 1 FROM messages WHERE id = ? AND session_id = ?"
Run = tuple[int, int, int]
"""Consecutive messages of one session: (first id in the file, first id in this store, count)."""

IDS_BETWEEN = "SELECT id FROM messages WHERE session_id = ? AND id BETWEEN ? AND ? ORDER BY id"
BY_UID = "SELECT id FROM messages WHERE session_id = ? AND uid = ?"
BY_ID = "SELECT id FROM messages WHERE session_id = ? AND id = ?"


class _PendingLink(NamedTuple):
    """The parent and the carried messages of an imported session, which are stored at the end of the import."""

    id: str
    id_in_file: str
    parent: str | None
    relation: str | None
    context: list[Mapping[str, Any]]
    rewound: list[Mapping[str, Any]]
    own: list[int]
    """The ids of all live messages of the session itself, in order, if some of them are stored in other
    sessions. Otherwise empty."""
    is_new: bool
    is_newer: bool
    """Whether the incoming copy is newer than the stored one."""


class Links:
    def __init__(self, engine: Access, report: Report, *, trusted: bool) -> None:
        self._engine = engine
        self._report = report
        self._trusted = trusted
        self._waiting: list[_PendingLink] = []
        self._new: set[str] = set()
        """The sessions that this import created."""
        self._runs: dict[str, list[Run]] = {}
        """The runs of the messages of each incoming session, by the session's id in the file."""
        self.here: dict[str, str] = {}
        """The stored id of each incoming session, by the session's id in the file."""
        self.joinable: set[str] = set()
        """The only sessions that an untrusted import may link, as a parent, as a child, or as the session
        that contains carried messages."""

    def add(self, incoming: IncomingSession, outcome: Outcome) -> None:
        """Record under which ids an incoming session and its messages are stored. Also queue the links of the
        session to its parent and its carried messages."""
        self.here[incoming.id] = outcome.here
        if outcome.kind in ("new", "restored", "branched"):
            self.joinable.add(outcome.here)
        if outcome.kind in ("new", "branched"):
            self._new.add(outcome.here)
        is_joinable = self.can_join(outcome.here)
        pairs = zip(incoming.old_ids, outcome.ids, strict=True)
        self._runs[incoming.id] = _make_runs(pairs) if is_joinable else []
        own: list[int] = []
        if outcome.has_moved and outcome.added + (outcome.kind == "new"):
            messages = zip(outcome.ids, incoming.messages, strict=True)
            own = [message_id for message_id, row in messages if message_id and row[ACTIVE]]
        has_links = incoming.parent is not None or incoming.context or incoming.rewound or own
        if is_joinable and outcome.is_itself and has_links:
            is_newer = outcome.merge is not None and outcome.merge.newer_side == "incoming"
            is_new = outcome.kind in ("new", "restored")
            self._waiting.append(
                _PendingLink(
                    outcome.here,
                    incoming.id,
                    incoming.parent,
                    incoming.relation,
                    incoming.context,
                    incoming.rewound,
                    own,
                    is_new,
                    is_newer,
                )
            )

    def can_join(self, session_id: str) -> bool:
        return self._trusted or session_id in self.joinable

    def find_parent(self, incoming: IncomingSession) -> str | None:
        """Return the stored id of an incoming session's parent. Return None if the parent was not imported
        before the session, or may not be linked."""
        parent = None if incoming.parent is None else self.here.get(incoming.parent)
        return parent if parent is not None and self.can_join(parent) else None

    def make(self, *, dry_run: bool) -> None:
        """Store the queued links of all imported sessions. Report each new session whose parent was not found.
        A dry run stores nothing and only reports these sessions."""
        self._waiting.reverse()  # in a file, most parents come after their children
        for at in range(0, len(self._waiting), LINKS_AT_ONCE):
            batch = self._waiting[at : at + LINKS_AT_ONCE]
            if dry_run:
                with self._engine.read() as reader:
                    self._report.detached += [
                        pending.id for pending in batch if self._is_alone(reader, pending)
                    ]
            else:
                self._report.detached += self._engine.write(partial(self._link, batch), share=False)
        self._waiting = []

    def _is_alone(self, reader: Reader, pending: _PendingLink) -> bool:
        """Return whether the session of a queued link is new, and has a parent in the file that is neither
        stored nor part of the import."""
        is_joined = self._find_parent(reader, pending) is not None or pending.id in self._report.unjoined
        return pending.is_new and pending.parent is not None and not is_joined

    def _find_parent(self, reader: Reader, pending: _PendingLink) -> str | None:
        """Return the stored parent of a session. Return None if there is none, or if it may not be linked. An
        untrusted import links only to the sessions in `joinable`."""
        if pending.parent is None:
            return None
        parent = self.here.get(pending.parent, pending.parent)
        if self.can_join(parent):
            return parent if parent in self.joinable or reader.value(EXISTS, parent) else None
        if reader.value(EXISTS, parent):
            self._report.unjoined.add(pending.id)
        return None

    def _link(self, batch: list[_PendingLink], writer: Writer) -> list[str]:
        alone: list[str] = []
        for pending in batch:
            parent = self._find_parent(writer, pending)
            if parent is not None:
                self._join(writer, pending, parent)
            elif self._is_alone(writer, pending):
                alone.append(pending.id)
            if pending.context or pending.rewound or pending.own:
                self._carry(writer, pending)
        derived.refresh(writer)
        return alone

    def _join(self, writer: Writer, pending: _PendingLink, parent: str) -> None:
        """Set the parent of an imported session, unless it already has one. An imported continuation becomes a
        branch if its parent was already continued in this store, because a session can have only one
        continuation."""
        if writer.value(HAS_PARENT, pending.id):
            return
        relation = pending.relation
        if relation == "compression" or (
            relation is None and writer.value(HOW_ENDED, parent) == "compression"
        ):
            others = [row[0] for row in writer.rows(OTHER_CONTINUATIONS, parent, pending.id)]
            went_on = parent in self._report.newer_here or any(other not in self._new for other in others)
            if went_on and parent not in self._new:
                relation = "branch"
                self._report.branched[pending.id_in_file] = pending.id
        writer.run(SET_PARENT, parent, relation, pending.id)

    def _carry(self, writer: Writer, pending: _PendingLink) -> None:
        """Store which messages an imported session carries. If an earlier import could not find some of these
        messages, they are added now."""
        carried = self._find_ids(writer, pending, pending.context)
        live = [row[0] for row in writer.rows(LIVE, pending.id)]
        is_whole = len(carried) == sum(_count_carried(entry) for entry in pending.context)
        if pending.own:
            carried = _add_own(writer, pending, carried if pending.is_new else [*live, *carried])
        # A person rewound the session in this store.
        is_rewound = not pending.is_new and writer.rows(SET_ASIDE, pending.id)
        if (pending.is_newer and is_whole) or (len(carried) > len(live) and not is_rewound):
            carry_messages(writer, pending.id, carried)
            live = carried
        if not is_whole:
            self._report.incomplete.append(pending.id)
        if pending.is_newer and is_whole:
            restore_set_aside(writer, pending.id, 0)
        if pending.rewound and writer.value(LOWEST, pending.id) in (None, 0):
            aside = self._find_ids(writer, pending, pending.rewound)
            set_aside_messages(
                writer, pending.id, [message_id for message_id in aside if message_id not in live]
            )

    def _find_ids(
        self, reader: Reader, pending: _PendingLink, ranges: Sequence[Mapping[str, Any]]
    ) -> list[int]:
        """Return the ids in this store of the messages in `ranges`, the carried ranges of an imported session.
        Messages that belong to another owner than the session are left out."""
        here = _translate_ranges(reader, self._runs, ranges, only_known=not self._trusted)
        ids = (message_id for first, last in here for message_id in range(first, last + 1))
        return [message_id for message_id in ids if reader.value(SAME_OWNER, pending.id, message_id)]


def _add_own(reader: Reader, pending: _PendingLink, carried: Sequence[int]) -> list[int]:
    """Return the ids of the messages that an imported session must carry. These are the ids in `carried`,
    followed by the ids of those own messages that must be carried too, because they are stored in another
    session or come before such a message. The session's other own messages always follow the carried ones, so
    they are left out."""
    ids = list(dict.fromkeys([*carried, *pending.own]))
    while len(ids) > len(carried) and reader.value(IS_OWN, ids[-1], pending.id):
        ids.pop()
    return ids


# -------------------------------------------------------------------- translation of message ids


def _make_runs(pairs: Iterable[tuple[Any, int]]) -> list[Run]:
    """Return `pairs` of (message id in the file, id in this store) in a compact form. Pairs in which both ids
    increase by one are grouped into one triple: (first id in the file, first id in this store, number of
    messages). A pair with the stored id 0 is skipped, because its message is not stored."""
    result: list[Run] = []
    for there, here in pairs:
        if not isinstance(there, int) or not here:
            continue
        if result and there - result[-1][0] == here - result[-1][1] == result[-1][2]:
            result[-1] = (result[-1][0], result[-1][1], result[-1][2] + 1)
        else:
            result.append((there, here, 1))
    return result


def _translate_ranges(
    reader: Reader,
    known: Mapping[str, list[Run]],
    context: Iterable[Mapping[str, Any]],
    *,
    only_known: bool = False,
) -> list[tuple[int, int]]:
    """Translate the carried ranges of an exported session from the message ids of the file to those of this
    store. Return them as pairs (first id, last id). Adjacent ranges are joined.

    `known` contains the translation of ids for each session that is part of the import. Messages of other
    sessions are looked up in the store or, with `only_known`, left out.
    """
    joined: list[tuple[int, int]] = []
    for entry in context:
        owner = str(entry.get("session_id"))
        if owner in known:
            parts = _translate_range(known[owner], entry.get("first"), entry.get("last"))
        elif only_known:
            parts = []
        else:
            start = _find_message(reader, owner, entry.get("first"), entry.get("first_uid"))
            end = _find_message(reader, owner, entry.get("last"), entry.get("last_uid"))
            # Messages of other sessions can have ids in between, so only the session's own are selected.
            ids = () if start is None or end is None else reader.rows(IDS_BETWEEN, owner, start, end)
            parts = make_ranges(row[0] for row in ids)
        for first, last in parts:
            if joined and joined[-1][1] + 1 == first:
                joined[-1] = (joined[-1][0], last)
            else:
                joined.append((first, last))
    return joined


def _count_carried(entry: Mapping[str, Any]) -> int:
    """Return the number of messages in `entry`, a carried range of an export. Return 1 for the export of an
    older version, which does not contain the number."""
    count = entry.get("count")
    return count if isinstance(count, int) else 1


def _translate_range(known: list[Run], first: Any, last: Any) -> list[tuple[int, int]]:
    if not isinstance(first, int) or not isinstance(last, int):
        return []
    cut = ((max(first, there), min(last, there + count - 1), here - there) for there, here, count in known)
    return [(low + shift, high + shift) for low, high, shift in cut if low <= high]


def _find_message(reader: Reader, session_id: str, message_id: Any, uid: Any) -> int | None:
    """Return the id in this store of a message to which a carried range of the file refers. `session_id` is the
    session of the message, which is in this store but not part of the import. The message is found by its uid
    or, if the file contains no uid, by its id in the file. None if it is not found."""
    if isinstance(uid, str):
        try:
            return reader.value(BY_UID, session_id, bytes.fromhex(uid).hex())  # type: ignore[no-any-return]
        except ValueError:
            return None
    return reader.value(BY_ID, session_id, message_id) if isinstance(message_id, int) else None
