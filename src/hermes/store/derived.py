"""Derived columns: values that are stored on each session row, so that lists need no aggregation.

Each operation of the store updates them in its own transaction. If another program changes a row, triggers
note the session in `changed_sessions`, and `refresh` recomputes its derived columns. Once the relation of a
session to its parent is recorded, it is never inferred again, even if timestamps or the end reason of the
parent change later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hermes import clock
from hermes.message_content import make_prompt_preview
from hermes.session_kinds import SOURCE_ALIASES, classify_session
from hermes.store.content import decode
from hermes.store.engine import Reader, Writer

AT_ONCE = 1000
"""Maximum number of noted sessions that one transaction recomputes. The same limit applies to the further
sessions that depend on them."""

NOTED = "SELECT session_id FROM changed_sessions LIMIT ?"
ANY_NOTED = "SELECT 1 FROM changed_sessions LIMIT 1"
CLEAR_NOTE = "DELETE FROM changed_sessions WHERE session_id = ?"
NOTE = "INSERT INTO changed_sessions (session_id) VALUES (?) ON CONFLICT DO NOTHING"

# Finds a session whose derived columns lag behind its messages. Another program copied messages into it with
# their uids, so the triggers did not detect them. The preview comes from the first message of a person only.
UNTOLD = """SELECT 1 FROM sessions s WHERE s.id = ?1 AND (
    s.last_active IS DISTINCT FROM (SELECT max(timestamp) FROM messages
        WHERE session_id = ?1 AND CAST(timestamp AS DOUBLE PRECISION) = timestamp)
    OR EXISTS (SELECT 1 FROM messages m WHERE m.session_id = ?1 AND m.id > ?2 AND m.role = 'user' AND m.active = 1
        AND (s.last_person_at IS NULL OR m.timestamp > s.last_person_at OR s.preview IS NULL AND m.id =
            (SELECT f.id FROM messages f WHERE f.session_id = ?1 AND f.role = 'user' AND f.content IS NOT NULL
                AND f.active = 1 ORDER BY f.id LIMIT 1))))"""

LINK = """SELECT source, parent_session_id, started_at, ended_at, end_reason, relation, root_id, listed, kind
    FROM sessions WHERE id = ?"""
CHILDREN = "SELECT id FROM sessions WHERE parent_session_id = ?"
ANY_CHILD = "SELECT 1 FROM sessions WHERE parent_session_id = ? LIMIT 1"
ROOTED_AT = "SELECT id FROM sessions WHERE root_id = ?"

# Another program may have stored text in a time column. The comparison with a cast excludes it.
LAST_MESSAGE = """SELECT max(timestamp) FROM messages
    WHERE session_id = ? AND CAST(timestamp AS DOUBLE PRECISION) = timestamp"""
LAST_PERSON = """SELECT max(timestamp) FROM messages
    WHERE session_id = ? AND CAST(timestamp AS DOUBLE PRECISION) = timestamp AND role = 'user' AND active = 1"""
FIRST_SAID = """SELECT content, content_kind FROM messages
    WHERE session_id = ? AND role = 'user' AND content IS NOT NULL AND active = 1 ORDER BY id LIMIT 1"""

# Replaces another program's name of a source with the canonical name.
SET_SOURCE = "UPDATE sessions SET source = ? WHERE id = ? AND source = ?"
SET_FAMILY = "UPDATE sessions SET relation = ?, root_id = ?, listed = ?, kind = ? WHERE id = ?"
# A session that joins a conversation gets the fence of the conversation, so that a writer that lost the lease
# is refused in this session too.
JOIN_FENCE = """UPDATE sessions SET lease_epoch = (SELECT r.lease_epoch FROM sessions r WHERE r.id = sessions.root_id)
    WHERE id = ? AND lease_epoch < (SELECT r.lease_epoch FROM sessions r WHERE r.id = sessions.root_id)"""
# A child gets the owner of its parent, unless that owner already uses the title of the child.
SAME_OWNER = """UPDATE sessions SET owner = (SELECT p.owner FROM sessions p WHERE p.id = sessions.parent_session_id)
    WHERE id = ? AND owner = '' AND EXISTS (SELECT 1 FROM sessions p WHERE p.id = sessions.parent_session_id
        AND p.owner <> '' AND NOT EXISTS
            (SELECT 1 FROM sessions o WHERE o.title = sessions.title AND o.owner = p.owner))"""
SET_ACTIVITY = "UPDATE sessions SET last_active = ?, last_person_at = ?, preview = ? WHERE id = ?"
SET_CONVERSATION = """UPDATE sessions SET conversation_active =
    CASE WHEN root_id = id THEN (SELECT max(member.last_active) FROM sessions member WHERE member.root_id = sessions.id)
         ELSE NULL END
    WHERE id = ?"""


def settle(writer: Writer) -> None:
    """Recompute the derived columns for all changes that other programs have made. Used by operations that
    depend on derived columns."""
    while refresh(writer):
        pass


def refresh(writer: Writer) -> bool:
    """Recompute the derived columns of up to `AT_ONCE` sessions that are noted in `changed_sessions`, and
    remove them from that table. Return whether more sessions are noted."""
    noted = [row[0] for row in writer.rows(NOTED, AT_ONCE)]
    for session_id in noted:
        for spelled, name in SOURCE_ALIASES.items():
            writer.run(SET_SOURCE, name, session_id, spelled)
        writer.run(CLEAR_NOTE, session_id)
    if noted:
        Family(writer).refresh(noted)
    return writer.value(ANY_NOTED) is not None


def note_outdated(writer: Writer, sessions: Iterable[str], after: int) -> None:
    """Add each session of `sessions` to `changed_sessions` if its derived columns are out of date: its last
    activity, or the time and preview of messages that a person wrote. Of these messages, only those with an id
    above `after` are compared."""
    for session_id in sessions:
        if writer.value(UNTOLD, session_id, after) is not None:
            writer.run(NOTE, session_id)


def find_activity(
    reader: Reader, session_id: str, started_at: Any
) -> tuple[float | None, float | None, str | None]:
    """Compute (last_active, last_person_at, preview) of a session from its messages. An unknown value is
    None."""
    first_prompt = reader.row(FIRST_SAID, session_id)
    newest = reader.value(LAST_MESSAGE, session_id)
    return (
        newest if newest is not None else started_at if clock.is_time(started_at) else None,
        reader.value(LAST_PERSON, session_id),
        None if first_prompt is None else make_prompt_preview(decode(first_prompt[0], first_prompt[1])),
    )


def infer_relation(parent_end: tuple[Any, Any], started_at: Any) -> str | None:
    """Infer the relation of a child session to its parent, by the rule of the reference. Used if no relation
    is recorded. `parent_end` is the parent's (end time, end reason), and `started_at` is the child's start.
    Return None if the relation cannot be inferred."""
    ended_at, reason = parent_end
    if not clock.is_time(ended_at) or not clock.is_time(started_at) or started_at < ended_at:
        return None
    return find_relation(reason)


def find_relation(end_reason: str | None) -> str | None:
    """Return the relation of a new session to its parent. `end_reason` says why the parent has ended. Return
    None if it does not determine the relation."""
    return {"compression": "compression", "branched": "branch"}.get(end_reason or "")


def iterate_growing(queue: dict[str, None]) -> Iterator[str]:
    """Yield the keys of `queue` in order, including keys that the caller adds during the iteration."""
    done = 0
    while done < len(queue):
        fresh = list(queue)[done:]
        done = len(queue)
        yield from fresh


class Family:
    """Computes the relations and roots of sessions. Each row is read once. The walks are iterative, so deep
    families and cycles are harmless."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._links: dict[str, tuple[Any, ...] | None] = {}
        self._roots: dict[str, str] = {}
        self._below: dict[str, bool] = {}

    def refresh(self, noted: list[str]) -> None:
        """Recompute the noted sessions, and all descendants whose relation, root, listing or kind changes
        with them."""
        conversations: dict[str, None] = {}
        queue = dict.fromkeys(noted)
        for session_id in iterate_growing(queue):
            link = self._read_link(session_id)
            if link is None:
                self._note_orphans(session_id)
                continue
            started_at, old_root = link[2], link[6]
            _relation, root, *_ = place = self._compute_place(session_id, link)
            self._writer.run(SET_FAMILY, *place, session_id)
            if self._has_parent(session_id):
                self._writer.run(SAME_OWNER, session_id)
            if root not in (session_id, old_root):
                self._writer.run(JOIN_FENCE, session_id)
            self._writer.run(SET_ACTIVITY, *find_activity(self._writer, session_id, started_at), session_id)
            conversations.update(dict.fromkeys((old_root or session_id, root, session_id)))
            for misplaced in self._find_misplaced_children(session_id):
                if len(queue) < len(noted) + AT_ONCE:
                    queue[misplaced] = None
                else:
                    self._writer.run(NOTE, misplaced)
        for session_id in conversations:
            self._writer.run(SET_CONVERSATION, session_id)

    def _find_misplaced_children(self, session_id: str) -> Iterator[str]:
        for (child,) in self._writer.rows(CHILDREN, session_id):
            link = self._read_link(child)
            if link is not None and self._compute_place(child, link) != link[5:9]:
                yield child

    def _note_orphans(self, session_id: str) -> None:
        for (other,) in self._writer.rows(CHILDREN, session_id) + self._writer.rows(ROOTED_AT, session_id):
            self._writer.run(NOTE, other)

    def _compute_place(self, session_id: str, link: tuple[Any, ...]) -> tuple[str | None, str, int, str]:
        """Return the correct (relation, root_id, listed, kind) of a session."""
        relation, root = self._find_relation(session_id), self._find_root(session_id)
        starts = relation in ("branch", "reset") or (relation == "compression" and root == session_id)
        kind = classify_session(link[0], child=self._is_subagent(root))
        return relation, root, 1 if starts or not self._is_below(session_id) else 0, kind

    def _read_link(self, session_id: str) -> tuple[Any, ...] | None:
        if session_id not in self._links:
            self._links[session_id] = self._writer.row(LINK, session_id)
        return self._links[session_id]

    def _has_parent(self, session_id: str) -> bool:
        link = self._read_link(session_id)
        return (
            link is not None
            and link[1] is not None
            and link[1] != session_id
            and self._read_link(link[1]) is not None
        )

    def _is_below(self, session_id: str) -> bool:
        """Return whether a session has a parent. Return False for a member of a cycle of parents, so that lists
        show it. Also return False for a session without a parent."""
        if session_id not in self._below:
            # A session without children is in no cycle, however many ancestors it has.
            if self._writer.value(ANY_CHILD, session_id) is None:
                return self._has_parent(session_id)
            line: dict[str, None] = {}
            at: str | None = session_id
            while at is not None and at not in line and at not in self._below:
                line[at] = None
                at = self._find_parent(at)
            self._below.update(dict.fromkeys(line, True))
            if at is None:
                self._below[next(reversed(line))] = False
            elif at in line:
                self._below.update(dict.fromkeys(list(line)[list(line).index(at) :], False))
        return self._below[session_id]

    def _find_parent(self, session_id: str) -> str | None:
        link = self._read_link(session_id)
        return link[1] if link is not None and self._has_parent(session_id) else None

    def _is_subagent(self, root: str) -> bool:
        """Return whether the conversation whose first session is `root` belongs to a subagent."""
        relation = self._find_relation(root)
        return relation == "delegate" or (relation is None and self._is_below(root))

    def _find_relation(self, session_id: str) -> str | None:
        link = self._read_link(session_id)
        if link is None or not self._has_parent(session_id):
            return "delegate" if link is not None and link[5] == "delegate" else None
        if link[5] is not None:
            return str(link[5])
        parent = self._read_link(link[1])
        assert parent is not None
        return infer_relation((parent[3], parent[4]), link[2])

    def _find_root(self, session_id: str) -> str:
        walked: dict[str, None] = {}
        at = session_id
        while at not in self._roots and self._find_relation(at) == "compression":
            walked[at] = None
            link = self._read_link(at)
            assert link is not None
            if link[1] in walked:  # a cycle: each member is its own root
                self._roots.update((member, member) for member in walked)
                return session_id
            at = link[1]
        root = self._roots.get(at, at)
        self._roots.update(dict.fromkeys(walked, root))
        self._roots[session_id] = root
        return root
