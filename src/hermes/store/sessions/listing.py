"""Lists of conversations and sessions, read in the order of an SQL index until the page is full.

`preview`, `last_active` and the place in the family are stored on the session row; `derived` maintains them.
The lists that the reference documents (`list_rich`, `list_by_activity`) hide nothing. The list for people
(`list_conversations`) hides jobs, subagents, tool sessions and archived conversations, and counts the hidden
conversations by reason with one query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

from hermes import errors
from hermes.session_kinds import find_job_id
from hermes.store.arguments import check_integer, check_names, check_time, join_names, row_limit
from hermes.store.columns import list_session_names
from hermes.store.engine import Access, Reader, Row
from hermes.store.sessions.lineage import find_tip
from hermes.store.sessions.sessions import SELECT_ROW, check_source
from hermes.store.statements import join_columns
from hermes.store.workspace import IN_WORKSPACE, parse_workspace
from hermes.text import format_count

COLUMNS = list_session_names(lambda column: column.in_lists)
NEVER_NULL: dict[str, LiteralString] = {
    "last_active": "coalesce(last_active, started_at)",
    "preview": "coalesce(preview, '')",
}
# The columns in the order of `COLUMNS`, then one that is true if the session has a continuation.
ROWS = " ".join(
    (
        "SELECT",
        join_columns(NEVER_NULL.get(name, name) for name in COLUMNS),
        """, EXISTS (SELECT 1 FROM sessions child WHERE child.parent_session_id = sessions.id
            AND child.relation = 'compression')
    FROM sessions""",
    )
)
# One statement per order, so that each uses its own index. Lists of one source have separate indexes.
LISTED = "WHERE listed = 1 AND trashed_at IS NULL"
LISTED_OF_SOURCE = "WHERE listed = 1 AND source = ? AND trashed_at IS NULL"
EVERY = "WHERE trashed_at IS NULL AND (? IS NULL OR source = ?)"
BUT = "AND replace(?, '\x1f' || source || '\x1f', '') = ?"  # excluded sources, joined as one value
NEWEST = "ORDER BY started_at DESC, id DESC LIMIT ? OFFSET ?"
MOST_ACTIVE = "ORDER BY conversation_active DESC NULLS LAST, started_at DESC, id DESC LIMIT ? OFFSET ?"
LAST_ACTIVE = "ORDER BY last_active DESC NULLS LAST, started_at DESC, id DESC LIMIT ? OFFSET ?"


def _make_statements(where: LiteralString, order: LiteralString) -> tuple[LiteralString, LiteralString]:
    """Return two SELECT statements for a list of sessions with these WHERE and ORDER BY clauses. The first one
    covers all sources. The second one leaves out the sources in its parameter."""
    return " ".join((ROWS, where, order)), " ".join((ROWS, where, BUT, order))


BY_START = _make_statements(LISTED, NEWEST)
BY_START_OF_SOURCE = _make_statements(LISTED_OF_SOURCE, NEWEST)
BY_ACTIVITY = _make_statements(LISTED, MOST_ACTIVE)
BY_ACTIVITY_OF_SOURCE = _make_statements(LISTED_OF_SOURCE, MOST_ACTIVE)
EVERY_BY_START = _make_statements(EVERY, NEWEST)
EVERY_BY_ACTIVITY = _make_statements(EVERY, LAST_ACTIVE)

# The list for people. Kind, source, workspace, pin and archive of a conversation are those of its first
# session.
CONVERSATIONS = "WHERE listed = 1 AND trashed_at IS NULL"
WITH_SUBAGENTS = "WHERE root_id = id AND trashed_at IS NULL"
KIND_FILTERS = """AND coalesce(replace(?, '\x1f' || source || '\x1f', '') <> ?, TRUE)
    AND coalesce(replace(?, '\x1f' || source || '\x1f', '') = ?, TRUE)
    AND coalesce(replace(?, '\x1f' || kind || '\x1f', '') <> ?, TRUE) AND (? IS NULL OR archived = ?)"""
# 1 if a scheduled job began the conversation, otherwise 0. `find_job` is the same test.
IS_JOB_RUN = """CASE WHEN source = 'cron' AND length(id) BETWEEN 22 AND 61 THEN
    CASE WHEN substr(id, 1, 5) = 'cron_' AND substr(id, 6, 1) <> '-'
        AND ltrim(substr(id, 6, length(id) - 21), 'abcdefghijklmnopqrstuvwxyz0123456789-') = ''
        AND substr(id, length(id) - 15, 1) = '_' AND ltrim(substr(id, length(id) - 14, 8), '0123456789') = ''
        AND substr(id, length(id) - 6, 1) = '_' AND ltrim(substr(id, length(id) - 5, 6), '0123456789') = ''
    THEN 1 ELSE 0 END ELSE 0 END"""
OTHER_FILTERS = " ".join(
    (
        IN_WORKSPACE,
        """AND (? IS NULL OR conversation_active >= ?) AND (? IS NULL OR conversation_active < ?)
    AND (? IS NULL OR id IN (SELECT m.root_id FROM tags t JOIN sessions m ON m.id = t.session_id WHERE t.tag = ?))
    AND (? IS NULL OR pinned_at IS NOT NULL)
    AND (? IS NULL OR""",
        IS_JOB_RUN,
        "= ?)",
    )
)
SHOWN = "AND replace(?, '\x1f' || kind || '\x1f', '') = ? AND (? IS NULL OR archived = 0)"
COUNT = "SELECT kind, archived, source, count(*) FROM sessions"
BY_KIND = "GROUP BY kind, archived, source"
COUNTED = " ".join((COUNT, WITH_SUBAGENTS, KIND_FILTERS, OTHER_FILTERS, BY_KIND))
COUNTED_IN_INDEX = " ".join((COUNT, WITH_SUBAGENTS, KIND_FILTERS, BY_KIND))
"""The statement that counts conversations if no filter of `OTHER_FILTERS` is set. It is the usual case and
reads only an SQL index."""
# A list shows the newest title of a conversation.
TITLE = """(SELECT m.title FROM sessions m WHERE m.root_id = sessions.id AND m.trashed_at IS NULL
    AND m.title IS NOT NULL ORDER BY m.started_at DESC, m.id DESC LIMIT 1)"""
ORDERS = {
    "activity": "conversation_active DESC NULLS LAST, started_at DESC, id DESC LIMIT ? OFFSET ?",
    "started": "started_at DESC, id DESC LIMIT ? OFFSET ?",
    "title": " ".join((TITLE, "IS NULL, lower(", TITLE, "), started_at DESC, id DESC LIMIT ? OFFSET ?")),
}
PAGES = {
    (order, pinned_first, subagents): " ".join(
        (
            ROWS,
            WITH_SUBAGENTS if subagents else CONVERSATIONS,
            KIND_FILTERS,
            OTHER_FILTERS,
            SHOWN,
            "ORDER BY pinned_at IS NULL," if pinned_first else "ORDER BY",
            ORDERS[order],
        )
    )
    for order in ORDERS
    for pinned_first in (False, True)
    for subagents in (False, True)
}
"""One statement per combination of options. The statements without options use an SQL index."""

HIDDEN_KINDS = ("job", "child", "tool")
KINDS = ("chat", *HIDDEN_KINDS)


COUNTED_MESSAGES, COUNTED_CALLS = "conversation_message_count", "conversation_tool_call_count"
"""Names of the counts over all segments in a row of `list_rich`. There, `message_count` and `tool_call_count`
count only the live session, as in the reference."""
PROJECTED = (
    *("id", "ended_at", "end_reason", "message_count", "tool_call_count", "title"),
    *("last_active", "preview", "model", "system_prompt"),
)
"""The columns whose values in a conversation's row come from its live session. All other values come from its
first session."""
# The segments of a conversation, newest first. Only listed conversations are read.
SEGMENTS = """SELECT title, preview, coalesce(message_count, 0), coalesce(tool_call_count, 0) FROM sessions
    WHERE root_id = ? AND trashed_at IS NULL ORDER BY started_at DESC, id DESC"""
CONVERSATION_OF = """SELECT r.id FROM sessions s JOIN sessions r ON r.id = coalesce(s.root_id, s.id)
    WHERE s.id = ? AND s.trashed_at IS NULL AND r.trashed_at IS NULL"""
ONE = " ".join((ROWS, "WHERE id = ?"))


class ConversationFilter(NamedTuple):
    """The filters of a list for people. None means no restriction. `since` and `until` refer to the last
    activity."""

    sources: Sequence[str] | None = None
    exclude_sources: Sequence[str] | None = None
    kinds: Sequence[str] | None = None
    workspace: Path | str | None = None
    since: float | None = None
    until: float | None = None
    tag: str | None = None
    pinned_only: bool = False
    archived: bool | None = None
    job_runs: bool | None = None
    """With True, only conversations that scheduled jobs began. With False, only others."""


class ConversationPage(NamedTuple):
    rows: list[dict[str, Any]]
    total: int
    """The number of matching conversations that are not hidden, on all pages."""
    hidden: dict[str, int]
    """The number of matching hidden conversations by reason: `child`, `tool`, `archived`, or the source of a
    job."""


def find_job(row: Mapping[str, Any]) -> str | None:
    """Return the scheduled job that began the conversation of this row; None if no job began it."""
    return find_job_id(row["root_id"] or row["id"]) if row["source"] == "cron" else None


def group_by_job(
    rows: Iterable[dict[str, Any]],
) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Return the conversations that no scheduled job began, and those of each job by its id. Every list for
    people shows them in this order."""
    others, jobs = list[dict[str, Any]](), dict[str, list[dict[str, Any]]]()
    for row in rows:
        job_id = find_job(row)
        (others if job_id is None else jobs.setdefault(job_id, [])).append(row)
    return others, jobs


def describe_job(job_id: str, conversations: int) -> str:
    """Return the heading of a job's conversations in a list."""
    return f"Job {job_id}: {format_count(conversations, 'conversation')}"


class Listing:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def list_rich(
        self,
        source: str | None = None,
        exclude_sources: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
    ) -> list[dict[str, Any]]:
        limit, offset = row_limit(limit), max(0, check_integer("offset", offset))
        but = join_names(_check_sources("exclude_sources", exclude_sources)) if exclude_sources else None
        name = None if source is None else check_source(source)
        with self._engine.read(settled=True) as reader:
            rows = _select_rows(
                reader, name, but, limit, offset, every=include_children, by_activity=order_by_last_active
            )
            if include_children or not project_compression_tips:
                return _make_rows(rows)
            return _project_tips(reader, rows)

    def list_by_activity(
        self, source: str | None = None, limit: int = 20, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Return all sessions, including children, by last activity, newest first."""
        name = None if source is None else check_source(source)
        page = (row_limit(limit), max(0, check_integer("offset", offset)))
        with self._engine.read(settled=True) as reader:
            return _make_rows(_select_rows(reader, name, None, *page, every=True, by_activity=True))

    def list_conversations(
        self,
        filters: ConversationFilter,
        *,
        limit: int = 20,
        offset: int = 0,
        include_hidden: bool = False,
        order: str = "activity",
        pinned_first: bool = False,
    ) -> ConversationPage:
        """Return a page of conversations, their total number, and the number of hidden conversations by
        reason.

        By default, jobs, subagents, tool sessions and archived conversations are hidden. With
        `filters.sources`, jobs and tool sessions of these sources are shown, but subagents stay hidden. With
        `filters.kinds`, no kind is hidden.
        """
        page = (row_limit(limit), max(0, check_integer("offset", offset)))
        if order not in ORDERS:
            raise errors.make_error(
                errors.InvalidArgument, f"order must be one of {', '.join(ORDERS)}, got {order!r:.40}"
            )
        hidden = _find_hidden_kinds(filters, include_hidden)
        hide_archived = filters.archived is None and not include_hidden
        with self._engine.read(settled=True) as reader:
            named, others = _bind_kind_filters(filters), _bind_other_filters(filters)
            if any(value is not None for value in others):
                groups = reader.rows(COUNTED, *named, *others)
            else:
                groups = reader.rows(COUNTED_IN_INDEX, *named)
            sql = PAGES[order, bool(pinned_first), "child" not in hidden]
            kinds = join_names(hidden)
            page_rows = reader.rows(sql, *named, *others, kinds, kinds, 1 if hide_archived else None, *page)
            rows = _make_conversations(reader, page_rows)
        total, left_out = 0, dict[str, int]()
        for kind, archived, source, count in groups:
            reason = "archived" if archived and hide_archived else None
            if kind in hidden:
                reason = source if kind == "job" else kind
            if reason is None:
                total += count
            else:
                left_out[reason] = left_out.get(reason, 0) + count
        return ConversationPage(rows, total, left_out)

    def get_conversation(self, session_id: str) -> dict[str, Any] | None:
        """Return the conversation of a session as a row of `list_conversations`, or None if it does not exist."""
        with self._engine.read(settled=True) as reader:
            root = reader.value(CONVERSATION_OF, session_id)
            rows = [] if root is None else _make_conversations(reader, reader.rows(ONE, root))
        return rows[0] if rows else None


def _make_conversations(reader: Reader, rows: list[Row]) -> list[dict[str, Any]]:
    """Return the conversations in `rows`, each as a dict with its tags. The counts of messages and tool calls
    in a dict cover all segments of the conversation."""
    from hermes.store.sessions.labels import TAGS_OF

    conversations = _project_tips(reader, rows)
    for row in conversations:
        row["message_count"] = row.pop(COUNTED_MESSAGES)
        row["tool_call_count"] = row.pop(COUNTED_CALLS)
        row["tags"] = [tag for (tag,) in reader.rows(TAGS_OF, row["root_id"])]
    return conversations


def _select_rows(
    reader: Reader,
    source: str | None,
    but: str | None,
    limit: int,
    offset: int,
    *,
    every: bool,
    by_activity: bool,
) -> list[Row]:
    page = (limit, offset) if but is None else (but, but, limit, offset)
    way = but is not None
    if every:
        return reader.rows((EVERY_BY_ACTIVITY if by_activity else EVERY_BY_START)[way], source, source, *page)
    if source is None:
        return reader.rows((BY_ACTIVITY if by_activity else BY_START)[way], *page)
    return reader.rows((BY_ACTIVITY_OF_SOURCE if by_activity else BY_START_OF_SOURCE)[way], source, *page)


def _find_hidden_kinds(filters: ConversationFilter, include_hidden: bool) -> tuple[str, ...]:
    if include_hidden or filters.kinds is not None:
        return ()
    return HIDDEN_KINDS if filters.sources is None else ("child",)


def _bind_kind_filters(filters: ConversationFilter) -> tuple[object, ...]:
    """Return the parameters of the SQL condition `KIND_FILTERS`. Each value of a filter occurs twice in the
    result, because the condition uses it twice."""
    each = (
        None if filters.sources is None else join_names(_check_sources("sources", filters.sources)),
        join_names(_check_sources("exclude_sources", filters.exclude_sources))
        if filters.exclude_sources
        else None,
        None if filters.kinds is None else join_names(_check_kinds(filters.kinds)),
        None if filters.archived is None else int(bool(filters.archived)),
    )
    return tuple(value for value in each for _ in range(2))


def _bind_other_filters(filters: ConversationFilter) -> tuple[object, ...]:
    """Return the parameters of the SQL condition `OTHER_FILTERS`, in the order in which it uses them."""
    tag = filters.tag
    if tag is not None:
        from hermes.store.sessions.labels import clean_tag

        tag = clean_tag(tag)
    each = (
        None if filters.since is None else check_time("since", filters.since),
        None if filters.until is None else check_time("until", filters.until),
        tag,
    )
    workspace = parse_workspace(filters.workspace).bind()
    pinned = 1 if filters.pinned_only else None
    job_runs = None if filters.job_runs is None else int(bool(filters.job_runs))
    return (*workspace, *(value for value in each for _ in range(2)), pinned, job_runs, job_runs)


def _check_sources(parameter: str, values: Sequence[str]) -> list[str]:
    return [check_source(name) for name in check_names(parameter, values)]


def _check_kinds(values: Sequence[str]) -> tuple[str, ...]:
    kinds = check_names("kinds", values)
    for kind in kinds:
        if kind not in KINDS:
            raise errors.make_error(
                errors.InvalidArgument, f"a kind must be one of {', '.join(KINDS)}, got {kind!r:.40}"
            )
    return kinds


def project_tip(reader: Reader, row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a conversation with the values of its live session and the counts of all segments.

    A live session that was just created by a compression has no messages of its own. The row then shows the
    title and preview of an earlier segment.
    """
    row = {**row, COUNTED_MESSAGES: row["message_count"] or 0, COUNTED_CALLS: row["tool_call_count"] or 0}
    live = find_tip(reader, row["id"])
    session = reader.dict(SELECT_ROW, live) if live != row["id"] else None
    if session is None:
        return row
    segments = reader.rows(SEGMENTS, row["id"])
    titles, previews, messages, calls = zip(*segments, strict=True) if segments else ((), (), (), ())
    session["title"] = session["title"] or next(filter(None, titles), None)
    session["preview"] = session["preview"] or next(filter(None, previews), "")
    if session["last_active"] is None:
        session["last_active"] = row["started_at"]
    values = {name: session[name] for name in PROJECTED}
    counts = {COUNTED_MESSAGES: sum(messages), COUNTED_CALLS: sum(calls)}
    return {**row, **values, **counts, "_lineage_root_id": row["id"]}


def _project_tips(reader: Reader, rows: list[Row]) -> list[dict[str, Any]]:
    """Return the session rows of a list as dicts. A conversation that was continued gets the values of its live
    session. Each dict also has the numbers of messages and tool calls in all segments of the conversation."""
    projected = _make_rows(rows)
    for at, row in enumerate(rows):
        if row[-1]:
            projected[at] = project_tip(reader, projected[at])
        else:
            projected[at][COUNTED_MESSAGES] = projected[at]["message_count"]
            projected[at][COUNTED_CALLS] = projected[at]["tool_call_count"]
    return projected


def _make_rows(rows: list[Row]) -> list[dict[str, Any]]:
    """Return the session rows of a list as dicts with the keys `COLUMNS`. The last value of each row is
    internal and is left out."""
    return list(map(dict, map(zip, repeat(COLUMNS), rows)))
