"""Activity since a time, for reports: sessions with their cost, messages and tool calls.

All figures come from one snapshot. Rows are streamed and counted in SQL where possible, and message texts are
not read. A large store therefore takes time but little memory. The window begins at the given time. It
contains the sessions that started since then. Sessions in the trash are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from hermes.store.arguments import check_names, check_time, join_names
from hermes.store.engine import Access, Reader, Row
from hermes.store.reports.usage import SUMS, UsageLine
from hermes.store.sessions.lineage import list_with_subagents
from hermes.store.sessions.sessions import check_source

ACTUAL, ESTIMATED, INCLUDED, UNKNOWN = "actual", "estimated", "included", "unknown"
"""Certainty of a cost: billed, estimated, none (because the model ran locally or is part of a subscription),
or unknown."""

SESSION = """SELECT s.id, s.root_id, s.source, s.model, s.title, s.started_at, s.ended_at, s.cost_status,
    coalesce(s.message_count, 0), coalesce(s.tool_call_count, 0), coalesce(s.api_call_count, 0),
    coalesce(s.input_tokens, 0), coalesce(s.output_tokens, 0), coalesce(s.cache_read_tokens, 0),
    coalesce(s.cache_write_tokens, 0), coalesce(s.reasoning_tokens, 0), coalesce(s.estimated_cost_usd, 0.0),
    s.actual_cost_usd FROM sessions s"""
IN_WINDOW = """s.started_at >= ? AND s.trashed_at IS NULL
    AND coalesce(replace(?, '\x1f' || s.source || '\x1f', '') <> ?, TRUE)"""
SESSIONS = " ".join((SESSION, "WHERE", IN_WINDOW, "ORDER BY s.started_at, s.id"))
IDS = " ".join(("SELECT s.id FROM sessions s WHERE", IN_WINDOW))
ONE = " ".join((SESSION, "WHERE s.id = ? AND s.trashed_at IS NULL"))

# An actual cost takes precedence over an estimate. Calls included in a subscription cost nothing. An estimate
# of zero with the status "unknown" is no estimate.
SPENT = " ".join(
    (
        """SELECT u.session_id, u.model, u.purpose,
        CASE WHEN u.actual_cost_usd IS NOT NULL THEN 'actual' WHEN u.cost_status = 'included' THEN 'included'
            WHEN u.estimated_cost_usd > 0 THEN 'estimated'
            WHEN u.estimated_cost_usd IS NOT NULL AND coalesce(u.cost_status, '') <> 'unknown' THEN 'estimated'
            ELSE 'unknown' END,""",
        SUMS,
    )
)
BY_SESSION = "GROUP BY 1, 2, 3, 4"
SPENT_IN_WINDOW = " ".join((SPENT, "WHERE u.session_id IN (", IDS, ")", BY_SESSION))
SPENT_IN = " ".join((SPENT, "WHERE u.session_id = ?", BY_SESSION))
WAS_ANSWERED = "SELECT 1 FROM messages WHERE session_id = ? AND role = 'assistant' LIMIT 1"

EMPLOYER = """SELECT p.root_id FROM sessions s JOIN sessions p ON p.id = s.parent_session_id
    WHERE s.id = ? AND p.id <> s.id AND p.trashed_at IS NULL AND (s.relation IS NULL OR s.relation = 'delegate')"""
NAMES = """SELECT title, preview, source FROM sessions WHERE root_id = ? AND trashed_at IS NULL
    ORDER BY started_at DESC, id DESC"""

# With a subquery instead of a join, the messages of a short window are looked up by session. The time does
# not depend on the number of messages in the store.
SAID_IN_WINDOW = " ".join(("FROM messages m WHERE m.active = 1 AND m.session_id IN (", IDS, ")"))
ROLES = " ".join(
    (
        "SELECT m.role, CASE WHEN m.role = 'tool' THEN m.tool_name END, count(*)",
        SAID_IN_WINDOW,
        "GROUP BY 1, 2",
    )
)
CALLS = " ".join(
    (
        "SELECT m.timestamp, m.tool_calls",
        SAID_IN_WINDOW,
        "AND m.role = 'assistant' AND m.tool_calls IS NOT NULL",
    )
)

# Rewound messages are counted, because their time was spent.
TIMES = " ".join(
    (
        "SELECT m.session_id, m.timestamp FROM messages m WHERE m.session_id IN (",
        IDS,
        ") ORDER BY m.session_id",
    )
)


class Spent(NamedTuple):
    """The usage of one model for one purpose, and how certain its cost is."""

    model: str | None
    purpose: str
    cost_status: str
    used: UsageLine

    @property
    def cost(self) -> float | None:
        """The cost of this usage in dollars. None if the cost is unknown."""
        if self.cost_status == ACTUAL:
            return self.used.actual_cost_usd
        if self.cost_status == ESTIMATED:
            return self.used.estimated_cost_usd
        return 0.0 if self.cost_status == INCLUDED else None


class SessionActivity(NamedTuple):
    id: str
    conversation: str
    """The first session of the conversation. For a subagent, the first session of the conversation that it
    worked for."""
    source: str
    model: str | None
    title: str | None
    started_at: float
    ended_at: float | None
    messages: int
    tool_calls: int
    used: UsageLine
    """The usage in the columns of the session. `spent` lists the usage rows and, in addition, the usage that
    is in the columns but in no row."""
    spent: tuple[Spent, ...]


class MessageCounts(NamedTuple):
    """The number of messages by role, and the number of tool messages by name of the tool."""

    roles: dict[str, int]
    tools: dict[str, int]


class WholeConversation(NamedTuple):
    """The name, the source and the usage of a conversation and its subagents. The usage includes that of
    sessions that started before the window of the report."""

    name: str | None
    source: str | None
    spent: tuple[Spent, ...]


class Activity:
    """The activity since a time, read from one snapshot. It can be used only inside the `with` block of
    `open_since`."""

    def __init__(self, reader: Reader, since: float, sources: str | None) -> None:
        self._reader = reader
        self._window = (since, sources, sources)
        self._employers: dict[str, str | None] = {}

    def list_sessions(self) -> Iterator[SessionActivity]:
        """Yield each session that started in the window of the report, in order of its start."""
        recorded: dict[str, list[Spent]] = {}
        for row in self._reader.each(SPENT_IN_WINDOW, *self._window):
            recorded.setdefault(row[0], []).append(_make_spent(row))
        for row in self._reader.each(SESSIONS, *self._window):
            if isinstance(row[5], int | float):  # another program may have written another type
                yield self._make_session(row, recorded.pop(row[0], []))

    def count_messages(self) -> MessageCounts:
        counts = MessageCounts({}, {})
        for role, tool, count in self._reader.rows(ROLES, *self._window):
            counts.roles[role] = counts.roles.get(role, 0) + count
            if isinstance(tool, str) and tool:
                counts.tools[tool] = count
        return counts

    def list_calls(self) -> Iterator[tuple[float, str]]:
        """Yield (time, stored tool calls) of each message in the window of the report that has tool calls. The
        calls are JSON unless another program wrote them."""
        return self._reader.each(CALLS, *self._window)

    def list_message_times(self) -> Iterator[tuple[str, object]]:
        """Yield (session id, time) of each message in the window of the report, grouped by session. A time is a
        number unless another program wrote it."""
        return self._reader.each(TIMES, *self._window)

    def read_whole(self, conversation: str) -> WholeConversation:
        """Return the name, source and usage of a whole conversation, including its usage before the window of
        the report. `conversation` is the root of the conversation, as in the results of `list_sessions`."""
        rows = self._reader.rows(NAMES, conversation)
        names = [row[0] for row in rows if row[0]] or [row[1] for row in reversed(rows) if row[1]]
        spent: list[Spent] = []
        for member in list_with_subagents(self._reader, conversation):
            row = self._reader.row(ONE, member)
            if row is not None:
                recorded = [_make_spent(line) for line in self._reader.rows(SPENT_IN, member)]
                spent += self._make_session(row, recorded).spent
        return WholeConversation(names[0] if names else None, rows[-1][2] if rows else None, tuple(spent))

    def _make_session(self, row: Row, recorded: list[Spent]) -> SessionActivity:
        session_id, root, source, model, title, started, ended, status, messages, tool_calls, *sums = row
        used = UsageLine(*sums)
        total = UsageLine()
        for line in recorded:
            total = total.add(line.used)
        more = used.subtract(total)
        if more != UsageLine():
            recorded.append(Spent(model, "main", _classify_cost(more, status), more))
        elif not recorded and self._reader.value(WAS_ANSWERED, session_id):
            # A model answered, but no usage was recorded.
            recorded.append(Spent(model, "main", UNKNOWN, more))
        return SessionActivity(
            *(session_id, self._find_conversation(root or session_id), source, model, title, started, ended),
            *(messages, tool_calls, used, tuple(recorded)),
        )

    def _find_conversation(self, root: str) -> str:
        seen = {root}
        while (above := self._find_employer(root)) is not None and above not in seen:
            seen.add(above)
            root = above
        return root

    def _find_employer(self, root: str) -> str | None:
        if root not in self._employers:
            self._employers[root] = self._reader.value(EMPLOYER, root)
        return self._employers[root]


class Activities:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    @contextmanager
    def open_since(self, since: float, sources: Sequence[str] | None = None) -> Iterator[Activity]:
        """Open a snapshot of the activity in sessions that started at `since` or later. With `sources`, only
        sessions of these sources are included."""
        start = check_time("since", since)
        source_names = (
            None if sources is None else [check_source(source) for source in check_names("sources", sources)]
        )
        with self._engine.read(settled=True) as reader:
            yield Activity(reader, start, None if source_names is None else join_names(source_names))


def _make_spent(row: Row) -> Spent:
    _session_id, model, purpose, status, *sums = row
    return Spent(model, purpose, status, UsageLine._make(sums))


def _classify_cost(used: UsageLine, status: str | None) -> str:
    """Return how certain the cost of a session is: actual, included, estimated or unknown. `used` contains the
    sums in the columns of the session. If the estimated cost is zero, `status` (the column `cost_status`)
    decides, because zero can mean that no cost was recorded."""
    if used.actual_cost_usd is not None:
        return ACTUAL
    if status == INCLUDED:
        return INCLUDED
    if used.estimated_cost_usd > 0 or status in (ESTIMATED, ACTUAL):
        return ESTIMATED
    return UNKNOWN
