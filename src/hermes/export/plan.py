"""Export plans: conversations as lists of their sessions, before any message is read."""

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
"""A session with its messages, as returned by `export_session`."""

Load = Callable[[str], Session | None]
"""Loads a session by its id. Returns None if the session was deleted in the meantime or contains nothing to
export."""

UNTITLED = "Untitled conversation"
LONGEST_NAME = 100
"""Maximum length of a title, and of an id, in a file name, in bytes. File systems allow 255 bytes
in total."""


class Conversation(NamedTuple):
    name: str
    """The id under which the conversation is exported. It is the id of the requested session or, if none was
    requested by id, of the newest session."""
    segments: list[Outline]

    @property
    def title(self) -> str | None:
        """The title of the conversation, as lists show it: that of the newest session that has one. None if no
        session has a title."""
        return next(
            (make_printable(segment.title) for segment in reversed(self.segments) if segment.title), None
        )

    @property
    def heading(self) -> str:
        """The heading of the conversation in an export: its title. If there is none, the first words of a
        person. If there are none either, `UNTITLED`."""
        previews = (make_printable(segment.preview) for segment in self.segments if segment.preview)
        return self.title or next(previews, UNTITLED)

    @property
    def started_at(self) -> float:
        return self.segments[0].started_at

    @property
    def last_active(self) -> float:
        """The time of the newest message of the conversation. 0 if another program stored values that are not
        valid times."""
        times = clock.filter_times(segment.last_active for segment in self.segments)
        return max(times or clock.filter_times([self.started_at]), default=0.0)

    @property
    def messages(self) -> int:
        return sum(segment.message_count for segment in self.segments)


class Plan(NamedTuple):
    """The conversations of an export, and the function that loads their sessions."""

    conversations: list[Conversation]
    read: Load

    @property
    def total(self) -> int:
        """The number of sessions of the plan plus the number of their messages, for progress reports."""
        return sum(len(found.segments) + found.messages for found in self.conversations)


class SessionSource(Protocol):
    """The methods of `SessionDB` and `ScopedStore` that a plan needs."""

    def export_session(self, session_id: str, *, redact: bool = False) -> Session | None: ...

    def outlines(self, session_ids: Iterable[str], *, whole: bool = False) -> list[Outline]: ...

    def select_sessions(self, selection: Selection, *, subagents: bool = False) -> list[str]: ...

    def family(self, session_id: str) -> Relative | None: ...


def plan_session(db: SessionSource, session_id: str) -> Plan:
    """Plan the export of one session, without the other sessions of its conversation."""
    return _make_plan(db, db.outlines([session_id]), session_id)


def plan_conversation(db: SessionSource, session_id: str, *, lineage: bool = False) -> Plan:
    """Plan the export of all sessions of a conversation. With `lineage`, include its branches, resets and
    subagents."""
    found = db.outlines([session_id], whole=True)
    return _make_plan(db, _add_relatives(db, found) if lineage else found, session_id)


def plan_selection(db: SessionSource, selection: Selection, *, lineage: bool = False) -> Plan:
    """Plan the export of the conversations that the filters select. Without a filter, everything except the
    trash is selected."""
    found = db.outlines(db.select_sessions(selection))
    return _make_plan(db, _add_relatives(db, found) if lineage else found)


def _make_plan(db: SessionSource, outlines: list[Outline], name: str | None = None) -> Plan:
    return Plan(group_conversations(outlines, name), db.export_session)


def _add_relatives(db: SessionSource, found: Sequence[Outline]) -> list[Outline]:
    """Return the sessions `found` together with all other sessions of their families. Each family is read only
    once."""
    related: dict[str, None] = {}
    for outline in found:
        if outline.id not in related:
            family = db.family(outline.id)
            related.update({} if family is None else {member.id: None for _, member in family.walk()})
            related[outline.id] = None
    return db.outlines(related, whole=True)


def group_conversations(outlines: Iterable[Outline], name: str | None = None) -> list[Conversation]:
    """Group sessions into conversations. The conversations are in the order of their first sessions in
    `outlines`.

    A conversation is exported under the id of its newest session, as in lists. If it contains the session with
    the id `name`, it is exported under that id.
    """
    grouped: dict[str, list[Outline]] = {}
    for outline in outlines:
        grouped.setdefault(outline.root_id or outline.id, []).append(outline)
    return [
        Conversation(next((outline.id for outline in members if outline.id == name), members[-1].id), members)
        for members in grouped.values()
    ]


def keep_prompts(session: Session) -> Session | None:
    """Return the session with only the messages of people, or None if it has no such messages."""
    prompts = [row for row in session["messages"] if row["role"] == "user" and row.get("active", 1)]
    left_out = ("system_prompt", "context", "rewound_context", "model_calls")
    kept = {name: value for name, value in session.items() if name not in left_out}
    return {**kept, "messages": prompts} if prompts else None


def make_file_stem(conversation: Conversation, titled: bool) -> str:
    """Return the name of a conversation's export file without its suffix, valid on every file system. The name
    is the id of the conversation, with `titled` preceded by its title."""
    name = make_safe_name(conversation.name)
    if not titled or conversation.title is None:
        return name
    return f"{make_safe_name(conversation.title)}-{name}"


def make_safe_name(text: str) -> str:
    """Return a text for use in a file name. Letters and digits of every script are kept; all other characters
    become hyphens."""
    name = re.sub(r"[^\w.]+", "-", make_printable(text)).strip("-.")
    return name.encode()[:LONGEST_NAME].decode(errors="ignore").strip("-.") or "session"
