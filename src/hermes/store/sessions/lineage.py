"""Lineage: the parent and child relations of sessions. The sessions that they connect are a family.

A continuation is recorded on the child (`relation = 'compression'`). The live session of a conversation is
its last continuation. Every walk along the relations remembers the sessions it has visited, and ends if it
meets one of them again (a cycle). There is no limit on the length of a chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hermes.store.engine import Access, Reader

# The newest of several continuations is used. A second one exists only if two processes compressed at the
# same time. Sessions in the trash are skipped.
NEXT = """SELECT id FROM sessions WHERE parent_session_id = ? AND relation = 'compression' AND id <> ?
    AND trashed_at IS NULL ORDER BY started_at DESC, id DESC LIMIT 1"""
HAS_MESSAGES = "SELECT 1 FROM messages WHERE session_id = ? AND active = 1 LIMIT 1"
NEWEST_CHILD = """SELECT id FROM sessions WHERE parent_session_id = ? AND trashed_at IS NULL
    ORDER BY started_at DESC, id DESC LIMIT 1"""
CONTINUES = "SELECT parent_session_id FROM sessions WHERE id = ? AND relation = 'compression'"
ROOT = "SELECT root_id FROM sessions WHERE id = ?"
MEMBERS = "SELECT id FROM sessions WHERE root_id = ? ORDER BY started_at, id"
# A child that neither continues its parent nor started a separate conversation is a subagent.
SUBAGENTS = """SELECT root_id FROM sessions WHERE parent_session_id = ? AND id <> ?
    AND (relation IS NULL OR relation = 'delegate')"""

MEMBER = """SELECT id, parent_session_id, relation, root_id, title, source, kind, started_at, ended_at, end_reason,
    last_active, message_count, preview FROM sessions"""
IS_TRASHED = "SELECT trashed_at IS NOT NULL FROM sessions WHERE id = ?"
ONE = " ".join((MEMBER, "WHERE id = ?"))
CHILDREN = " ".join((MEMBER, "WHERE parent_session_id = ? AND trashed_at IS NULL ORDER BY started_at, id"))


class Relative(NamedTuple):
    """One session of a family tree, with its children and some columns of its row."""

    children: list[Relative]
    id: str
    parent_session_id: str | None
    relation: str | None
    root_id: str | None
    title: str | None
    source: str
    kind: str
    started_at: float
    ended_at: float | None
    end_reason: str | None
    last_active: float | None
    message_count: int
    preview: str | None

    def walk(self) -> Iterator[tuple[int, Relative]]:
        """Yield (depth, session) for this session and all its descendants. A session comes before its children.
        The depth of this session is 0.

        The walk is iterative, because chains can be deeper than the stack allows.
        """
        waiting = [(0, self)]
        while waiting:
            depth, relative = waiting.pop()
            yield depth, relative
            waiting += [(depth + 1, child) for child in reversed(relative.children)]


def find_tip(reader: Reader, session_id: str) -> str:
    """Return the last continuation of a session, or the session itself if it was not continued."""
    at, following = session_id, reader.value(NEXT, session_id, session_id)
    seen = {session_id}
    while following is not None and following not in seen:
        seen.add(following)
        at, following = following, reader.value(NEXT, following, following)
    return at


def is_ancestor(reader: Reader, candidate: str, session_id: str) -> bool:
    """Return whether `session_id` continues `candidate`, directly or through other sessions."""
    seen: set[str] = set()
    at: str | None = session_id
    while at is not None and at not in seen:
        seen.add(at)
        at = reader.value(CONTINUES, at)
        if at == candidate:
            return True
    return False


def list_with_subagents(reader: Reader, session_id: str) -> list[str]:
    """Return the ids of all sessions of a conversation and of its subagents. Branches are left out, because
    they are separate conversations."""
    first = reader.value(ROOT, session_id)
    waiting, seen, found = [] if first is None else [first], {first}, dict[str, None]()
    while waiting:
        members = [row[0] for row in reader.rows(MEMBERS, waiting.pop())]
        found.update(dict.fromkeys(members))
        for member in members:
            for (root,) in reader.rows(SUBAGENTS, member, member):
                if root not in seen:
                    seen.add(root)
                    waiting.append(root)
    return list(found)


class Lineage:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def find_tip(self, session_id: str) -> str:
        if not session_id:
            return session_id
        with self._engine.read(settled=True) as reader:
            return find_tip(reader, session_id)

    def find_root(self, session_id: str) -> str | None:
        """Return the permanent id of the session's conversation, which is the id of its first session. None
        if the session does not exist."""
        with self._engine.read(settled=True) as reader:
            ancestor = None if reader.value(IS_TRASHED, session_id) else reader.value(ROOT, session_id)
            return None if ancestor is None else str(ancestor)

    def find_resume_target(self, session_id: str) -> str:
        """Return the id of the session to resume when a person names `session_id`. If that session has
        messages, return its id. Otherwise follow its newest child, the newest child of that child, and so on,
        and return the first of them that has messages. If none has any, return `session_id`."""
        if not session_id:
            return session_id
        with self._engine.read(settled=True) as reader:
            if reader.value(HAS_MESSAGES, session_id):
                return session_id
            seen, at = {session_id}, session_id
            while (child := reader.value(NEWEST_CHILD, at)) is not None and child not in seen:
                if reader.value(HAS_MESSAGES, child):
                    return str(child)
                seen.add(child)
                at = child
        return session_id

    def read_family(self, session_id: str) -> Relative | None:
        """Return the whole family as a tree, from its first ancestor. None if the session does not exist."""
        with self._engine.read(settled=True) as reader:
            if reader.value(IS_TRASHED, session_id):
                return None
            top = _find_first_ancestor(reader, session_id)
            return None if top is None else _build_tree(reader, top)


def _find_first_ancestor(reader: Reader, session_id: str) -> tuple[Any, ...] | None:
    row = reader.row(ONE, session_id)
    seen = {session_id}
    while row is not None and row[1] is not None and row[1] not in seen:
        seen.add(row[1])
        if reader.value(IS_TRASHED, row[1]):
            break
        above = reader.row(ONE, row[1])
        if above is None:
            break
        row = above
    return row


def _build_tree(reader: Reader, top: tuple[Any, ...]) -> Relative:
    root = Relative([], *top)
    seen, waiting = {root.id}, [root]
    while waiting:
        relative = waiting.pop()
        for row in reader.rows(CHILDREN, relative.id):
            if row[0] not in seen:
                seen.add(row[0])
                child = Relative([], *row)
                relative.children.append(child)
                waiting.append(child)
    return root
