"""Families of sessions: who continues whom, and where a conversation is alive.

A continuation is recorded on the child (`relation = 'compression'`). Every walk remembers where it has been, so that
cycles end and chains of any length are followed to their end.
"""

from __future__ import annotations

from hermes.store.engine import Engine, Reader

# Of several continuations the newest counts: a second one exists only if two processes compressed at once.
# What is in the trash is nobody's way on.
NEXT = """SELECT id FROM sessions WHERE parent_session_id = ? AND relation = 'compression' AND id <> ?
    AND trashed_at IS NULL ORDER BY started_at DESC, id DESC LIMIT 1"""
HAS_MESSAGES = "SELECT 1 FROM messages WHERE session_id = ? AND active = 1 LIMIT 1"
NEWEST_CHILD = """SELECT id FROM sessions WHERE parent_session_id = ? AND trashed_at IS NULL
    ORDER BY started_at DESC, id DESC LIMIT 1"""
CONTINUES = "SELECT parent_session_id FROM sessions WHERE id = ? AND relation = 'compression'"
ROOT = "SELECT root_id FROM sessions WHERE id = ?"
MEMBERS = "SELECT id FROM sessions WHERE root_id = ? ORDER BY started_at, id"
# Whoever has a parent and neither continues it nor began a conversation of its own worked for it.
SUBAGENTS = """SELECT root_id FROM sessions WHERE parent_session_id = ? AND id <> ?
    AND (relation IS NULL OR relation = 'delegate')"""


def tip(reader: Reader, session_id: str) -> str:
    """The live end of the conversation that continues this session; itself if nothing does."""
    seen = {session_id}
    at = session_id
    while (following := reader.value(NEXT, at, at)) is not None and following not in seen:
        seen.add(following)
        at = following
    return at


def is_ancestor(reader: Reader, candidate: str, session_id: str) -> bool:
    """Whether the conversation went through `candidate` before it came to this session."""
    seen: set[str] = set()
    at: str | None = session_id
    while at is not None and at not in seen:
        seen.add(at)
        at = reader.value(CONTINUES, at)
        if at == candidate:
            return True
    return False


def conversation_with_subagents(reader: Reader, session_id: str) -> list[str]:
    """Every session of the conversation, and of those that worked for it; branches are conversations of their own."""
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
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def compression_tip(self, session_id: str) -> str:
        if not session_id:
            return session_id
        with self._engine.read(settled=True) as reader:
            return tip(reader, session_id)

    def conversation_root(self, session_id: str) -> str | None:
        """The permanent id of the conversation; None if there is no such session."""
        with self._engine.read(settled=True) as reader:
            found = reader.value(ROOT, session_id)
            return None if found is None else str(found)

    def resume_target(self, session_id: str) -> str:
        """Where to go on: this session, or, if nothing was ever said in it, the first descendant with messages."""
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
