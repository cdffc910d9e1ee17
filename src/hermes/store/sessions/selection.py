"""Selection of conversations: the filters that export, prune and similar commands share.

The filters apply to a conversation as a whole. A filter by title matches if one session of the conversation
has the title. The message count is the sum over its sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hermes import errors
from hermes.store.arguments import check_names, check_optional_integer, check_time, join_names, require_text
from hermes.store.engine import Access, Reader
from hermes.store.sessions.lineage import list_with_subagents
from hermes.store.sessions.sessions import check_source
from hermes.store.workspace import IN_WORKSPACE, WorkspaceName, parse_workspace

FILTERS = " ".join(
    (
        """AND trashed_at IS NULL
    AND coalesce(replace(?, '\x1f' || source || '\x1f', '') <> ?, TRUE)""",
        IN_WORKSPACE,
        """AND (? IS NULL OR coalesce(conversation_active, started_at) >= ?)
    AND (? IS NULL OR coalesce(conversation_active, started_at) < ?)""",
    )
)
NEWEST = "ORDER BY coalesce(conversation_active, started_at) DESC, started_at DESC, id DESC"
FOUND = " ".join(("SELECT id FROM sessions WHERE root_id = id", FILTERS, NEWEST))
IS_FOUND = " ".join(("SELECT 1 FROM sessions WHERE id = ? AND root_id = id", FILTERS))
PARTS = (
    "SELECT title, model, coalesce(message_count, 0) FROM sessions WHERE root_id = ? AND trashed_at IS NULL"
)
MEMBERS = "SELECT id FROM sessions WHERE root_id = ? AND trashed_at IS NULL ORDER BY started_at, id"

OUTLINE = """SELECT id, root_id, title, coalesce(preview, ''), source, kind, relation, parent_session_id, started_at,
    coalesce(last_active, started_at), coalesce(message_count, 0) FROM sessions"""
OUTLINE_OF = " ".join((OUTLINE, "WHERE id = ? AND trashed_at IS NULL"))
OUTLINES_OF_CONVERSATION = " ".join(
    (
        OUTLINE,
        """WHERE root_id = (SELECT c.root_id FROM sessions c WHERE c.id = ?) AND trashed_at IS NULL
    ORDER BY started_at, id""",
    )
)


class Outline(NamedTuple):
    """A session without its messages, for planning an operation."""

    id: str
    root_id: str | None
    title: str | None
    preview: str
    source: str
    kind: str
    relation: str | None
    parent_session_id: str | None
    started_at: float
    last_active: float
    message_count: int


class Selection(NamedTuple):
    """Conditions on a conversation. None means no restriction. `since` and `until` refer to the last activity
    of the conversation."""

    sources: Sequence[str] | None = None
    title: str | None = None
    """Part of a title, case-insensitive."""
    model: str | None = None
    """Part of a model name, case-insensitive."""
    min_messages: int | None = None
    max_messages: int | None = None
    workspace: Path | str | WorkspaceName | None = None
    since: float | None = None
    until: float | None = None

    def validate(self) -> Selection:
        """Return a copy of these conditions with each value checked and converted for the SQL statements. Raise
        an error if a value is invalid."""
        for name in ("min_messages", "max_messages"):
            if (check_optional_integer(name, getattr(self, name)) or 0) < 0:
                raise errors.make_error(errors.InvalidArgument, f"{name} must be 0 or more")
        return Selection(
            sources=None
            if self.sources is None
            else [check_source(source) for source in check_names("sources", self.sources)],
            title=None if self.title is None else require_text("title", self.title).casefold(),
            model=None if self.model is None else require_text("model", self.model).casefold(),
            min_messages=self.min_messages,
            max_messages=self.max_messages,
            workspace=parse_workspace(self.workspace),
            since=None if self.since is None else check_time("since", self.since),
            until=None if self.until is None else check_time("until", self.until),
        )


EVERYTHING = Selection()


class Selector:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def list_sessions(self, selection: Selection, subagents: bool = False) -> list[str]:
        """Return the ids of all sessions of the selected conversations. The conversation with the newest
        activity comes first.

        The sessions of a conversation are in order of their start. With `subagents`, the sessions of its
        subagents are included.
        """
        selected = selection.validate()
        with self._engine.read(settled=True) as reader:
            session_ids: dict[str, None] = {}
            for (root,) in reader.rows(FOUND, *_bind_values(selected)):
                if not _is_matching(reader, root, selected):
                    continue
                rows = reader.rows(MEMBERS, root)
                members = list_with_subagents(reader, root) if subagents else [row[0] for row in rows]
                session_ids.update(dict.fromkeys(members))
        return list(session_ids)

    def list_outlines(self, session_ids: Iterable[str], whole: bool = False) -> list[Outline]:
        """Return the outlines of the sessions with these ids. Each outline occurs once, and sessions in the
        trash are left out. With `whole`, include all sessions of the conversations to which these sessions
        belong."""
        sql = OUTLINES_OF_CONVERSATION if whole else OUTLINE_OF
        with self._engine.read(settled=True) as reader:
            rows = [row for session_id in session_ids for row in reader.rows(sql, session_id)]
        return list({row[0]: Outline(*row) for row in rows}.values())


def is_selected(reader: Reader, root: str, checked: Selection) -> bool:
    """Return whether the conversation whose first session is `root` matches the conditions in `checked`. These
    must be the result of `Selection.validate`."""
    return reader.value(IS_FOUND, root, *_bind_values(checked)) is not None and _is_matching(
        reader, root, checked
    )


def _bind_values(selected: Selection) -> tuple[object, ...]:
    sources = None if selected.sources is None else join_names(selected.sources)
    workspace = parse_workspace(selected.workspace).bind()
    return (
        sources,
        sources,
        *workspace,
        *(edge for edge in (selected.since, selected.until) for _ in range(2)),
    )


def _is_matching(reader: Reader, root: str, selected: Selection) -> bool:
    """Return whether the conversation whose first session is `root` meets the conditions on title, model and
    number of messages. SQL cannot compare these correctly for every script and on every engine."""
    if (selected.title, selected.model, selected.min_messages, selected.max_messages) == (
        None,
        None,
        None,
        None,
    ):
        return True
    rows = reader.rows(PARTS, root)
    messages = sum(row[2] for row in rows)
    return (
        _has_text(selected.title, (row[0] for row in rows))
        and _has_text(selected.model, (row[1] for row in rows))
        and (selected.min_messages is None or messages >= selected.min_messages)
        and (selected.max_messages is None or messages <= selected.max_messages)
    )


def _has_text(part: str | None, texts: Iterable[object]) -> bool:
    return part is None or any(part in str(text).casefold() for text in texts if text is not None)
