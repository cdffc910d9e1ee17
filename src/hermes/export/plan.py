"""What is to be exported: conversations as lists of their sessions, before any message is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hermes import clock
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.store.sessions.lineage import Relative
    from hermes.store.sessions.selection import Outline, Selection

Session = dict[str, Any]
"""A session with its messages, as `export_session` gives it."""

Load = Callable[[str], Session | None]
"""Reads a session by its id; None if there is nothing to write of it, or it is gone meanwhile."""

UNTITLED = "Untitled conversation"
LONGEST_NAME = 100
"""Bytes of a title, and of an id, in a file's name. File systems take 255 for the whole."""


class Conversation(NamedTuple):
    name: str
    """The id it goes by."""
    segments: list[Outline]

    @property
    def title(self) -> str | None:
        """That of its newest session which has one: what lists show."""
        return next(
            (make_printable(segment.title) for segment in reversed(self.segments) if segment.title), None
        )

    @property
    def heading(self) -> str:
        """Its title, else the first words that a person said, else that there are none."""
        previews = (make_printable(segment.preview) for segment in self.segments if segment.preview)
        return self.title or next(previews, UNTITLED)

    @property
    def started_at(self) -> float:
        return self.segments[0].started_at

    @property
    def last_active(self) -> float:
        return max(
            clock.filter_times(segment.last_active for segment in self.segments), default=self.started_at
        )

    @property
    def messages(self) -> int:
        return sum(segment.message_count for segment in self.segments)


class Plan(NamedTuple):
    """Which conversations an export holds, and how to read their sessions."""

    conversations: list[Conversation]
    read: Load

    @property
    def total(self) -> int:
        """How many sessions and messages there are, to measure the progress by."""
        return sum(len(found.segments) + found.messages for found in self.conversations)


class SessionSource(Protocol):
    """The verbs of `SessionDB` and `ScopedStore` that a plan needs."""

    def export_session(self, session_id: str, *, redact: bool = False) -> Session | None: ...

    def outlines(self, session_ids: Iterable[str], *, whole: bool = False) -> list[Outline]: ...

    def select_sessions(self, selection: Selection, *, subagents: bool = False) -> list[str]: ...

    def family(self, session_id: str) -> Relative | None: ...


def plan_session(db: SessionSource, session_id: str) -> Plan:
    """One session, without the others of its conversation."""
    return _make_plan(db, db.outlines([session_id]), session_id)


def plan_conversation(db: SessionSource, session_id: str, *, lineage: bool = False) -> Plan:
    """All sessions of a conversation; with `lineage` also its branches, resets and subagents."""
    found = db.outlines([session_id], whole=True)
    return _make_plan(db, _add_relatives(db, found) if lineage else found, session_id)


def plan_selection(db: SessionSource, selection: Selection, *, lineage: bool = False) -> Plan:
    """The conversations that filters select. Without any filter that is everything but the trash."""
    found = db.outlines(db.select_sessions(selection))
    return _make_plan(db, _add_relatives(db, found) if lineage else found)


def _make_plan(db: SessionSource, outlines: list[Outline], name: str | None = None) -> Plan:
    return Plan(group_conversations(outlines, name), db.export_session)


def _add_relatives(db: SessionSource, found: Sequence[Outline]) -> list[Outline]:
    """With everything that came out of the first session of each family; each family is read once."""
    related: dict[str, None] = {}
    for outline in found:
        if outline.id not in related:
            family = db.family(outline.id)
            related.update({} if family is None else {member.id: None for _, member in family.walk()})
            related[outline.id] = None
    return db.outlines(related, whole=True)


def group_conversations(outlines: Iterable[Outline], name: str | None = None) -> list[Conversation]:
    """Sessions put together by conversation, in the order in which the first of each comes.

    One goes by its newest session, as in lists, or by `name` if that is one of its sessions.
    """
    grouped: dict[str, list[Outline]] = {}
    for outline in outlines:
        grouped.setdefault(outline.root_id or outline.id, []).append(outline)
    return [
        Conversation(next((outline.id for outline in members if outline.id == name), members[-1].id), members)
        for members in grouped.values()
    ]


def keep_prompts(session: Session) -> Session | None:
    """What people said in a session and nothing else; None if they said nothing."""
    prompts = [row for row in session["messages"] if row["role"] == "user" and row.get("active", 1)]
    left_out = ("system_prompt", "context", "rewound_context", "model_calls")
    kept = {name: value for name, value in session.items() if name not in left_out}
    return {**kept, "messages": prompts} if prompts else None


def make_file_stem(conversation: Conversation, titled: bool) -> str:
    """A name for a file that every file system takes: the id, behind the title where people will read it."""
    name = make_safe_name(conversation.name)
    if not titled or conversation.title is None:
        return name
    return f"{make_safe_name(conversation.title)}-{name}"


def make_safe_name(text: str) -> str:
    """Letters and digits of every script stay; what a path, a shell or a file system may act on becomes a hyphen."""
    name = re.sub(r"[^\w.]+", "-", make_printable(text)).strip("-.")
    return name.encode()[:LONGEST_NAME].decode(errors="ignore").strip("-.") or "session"
