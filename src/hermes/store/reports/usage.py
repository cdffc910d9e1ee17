"""Usage: one row per model call, and the sums in the token and cost columns of the session.

The columns contain the total cost of a session, including auxiliary calls (titles, summaries). The rows add
the model and the purpose. A caller that uses only `update_token_counts` writes no rows. If the columns
contain more than the sum of the rows, reports attribute the difference to the session's own model and to the
session's start time. A value that a provider did not report is NULL in the row and counts as zero in the
sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import add, sub
from typing import Any, NamedTuple

from hermes import clock, errors
from hermes.store.arguments import (
    check_counter,
    check_optional_number,
    check_optional_text,
    check_time,
    require_text,
)
from hermes.store.engine import Access, Reader, Row, Writer
from hermes.store.sessions.lineage import list_with_subagents
from hermes.store.sessions.sessions import ADD_USAGE, LIVE, Usage

PURPOSES = ("main", "auxiliary")
MOST_TOKENS = 2**40
"""The highest token count that is accepted. No call uses more, and with this limit sums stay exact
integers."""
ROUNDING = 1e-9
"""If two sums of costs differ by less than this number of dollars, the difference is ignored. Such
differences come from the order of addition."""

INSERT = """INSERT INTO model_usage (session_id, at, model, provider, base_url, purpose, input_tokens, output_tokens,
        cache_read_tokens, cache_write_tokens, reasoning_tokens, estimated_cost_usd, actual_cost_usd, cost_status,
        cost_source, pricing_version)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
RECORDED = """SELECT session_id, at, model, provider, base_url, purpose, input_tokens, output_tokens,
    cache_read_tokens, cache_write_tokens, reasoning_tokens, estimated_cost_usd, actual_cost_usd, cost_status,
    cost_source, pricing_version FROM model_usage WHERE id = ?"""

# Sums in the order of `UsageLine`. The actual cost is NULL if no row has one.
SUMS = """count(*), coalesce(sum(u.input_tokens), 0), coalesce(sum(u.output_tokens), 0),
    coalesce(sum(u.cache_read_tokens), 0), coalesce(sum(u.cache_write_tokens), 0),
    coalesce(sum(u.reasoning_tokens), 0), coalesce(sum(u.estimated_cost_usd), 0.0), sum(u.actual_cost_usd)
    FROM model_usage u"""
BY_MODEL = " ".join(("SELECT u.model, u.provider, u.purpose,", SUMS))
OF_SESSION = " ".join((BY_MODEL, "WHERE u.session_id = ? GROUP BY u.model, u.provider, u.purpose"))
IN_WINDOW = " ".join(
    (
        BY_MODEL,
        """JOIN sessions s ON s.id = u.session_id
        WHERE (? IS NULL OR u.at >= ?) AND (? IS NULL OR u.at < ?) AND s.trashed_at IS NULL
        GROUP BY u.model, u.provider, u.purpose""",
    )
)
ROWS_OF_EACH = " ".join(("SELECT u.session_id,", SUMS, "GROUP BY u.session_id"))
COLUMNS = """SELECT id, model, billing_provider, coalesce(api_call_count, 0), coalesce(input_tokens, 0),
    coalesce(output_tokens, 0), coalesce(cache_read_tokens, 0), coalesce(cache_write_tokens, 0),
    coalesce(reasoning_tokens, 0), coalesce(estimated_cost_usd, 0.0), actual_cost_usd FROM sessions"""
COLUMNS_OF = " ".join((COLUMNS, "WHERE id = ?"))
COLUMNS_IN_WINDOW = " ".join(
    (
        COLUMNS,
        """WHERE (? IS NULL OR started_at >= ?) AND (? IS NULL OR started_at < ?) AND trashed_at IS NULL
        AND (input_tokens <> 0 OR output_tokens <> 0 OR cache_read_tokens <> 0 OR cache_write_tokens <> 0
             OR reasoning_tokens <> 0 OR api_call_count <> 0 OR estimated_cost_usd <> 0 OR actual_cost_usd <> 0)""",
    )
)
# The usage of the calls for one owner since a time, in the order of `Spending`. Conversations in the trash
# are included.
SPENT = """SELECT count(*), coalesce(sum(coalesce(u.input_tokens, 0) + coalesce(u.output_tokens, 0)
        + coalesce(u.cache_read_tokens, 0) + coalesce(u.cache_write_tokens, 0)), 0),
    coalesce(sum(coalesce(u.actual_cost_usd, u.estimated_cost_usd, 0.0)), 0.0)
    FROM sessions s JOIN model_usage u ON u.session_id = s.id
    WHERE s.owner = ? AND s.owner <> '' AND u.at >= ?"""
IS_TRASHED = "SELECT trashed_at IS NOT NULL FROM sessions WHERE id = ?"


class ModelCall(NamedTuple):
    """A model call. None means that the provider did not report the value."""

    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    purpose: str = "main"
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated_cost_usd: float | None = None
    actual_cost_usd: float | None = None
    cost_status: str | None = None
    cost_source: str | None = None
    pricing_version: str | None = None

    def validate(self) -> ModelCall:
        if self.purpose not in PURPOSES:
            raise errors.make_error(
                errors.InvalidArgument, f"purpose must be main or auxiliary, got {self.purpose!r:.40}"
            )
        values: dict[str, Any] = {}
        for name in ("model", "provider", "base_url", "cost_status", "cost_source", "pricing_version"):
            values[name] = check_optional_text(name, getattr(self, name))
        for name in self._fields:
            if name.endswith("_tokens"):
                values[name] = _check_tokens(name, getattr(self, name))
        for name in ("estimated_cost_usd", "actual_cost_usd"):
            values[name] = check_optional_number(name, getattr(self, name))
        return self._replace(**values)

    def make_usage(self) -> Usage:
        """Return the tokens and costs of this model call in the form in which they are added to the columns of
        its session."""
        return Usage(
            **{name: getattr(self, name) for name in self._fields if name in Usage._fields},
            api_call_count=1,
            billing_provider=self.provider,
            billing_base_url=self.base_url,
        )


class UsageLine(NamedTuple):
    """The summed tokens and costs of several model calls. `actual_cost_usd` is None if no call has an actual
    cost."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated_cost_usd: float = 0.0
    actual_cost_usd: float | None = None

    def add(self, other: UsageLine) -> UsageLine:
        costs = [cost for cost in (self.actual_cost_usd, other.actual_cost_usd) if cost is not None]
        return UsageLine._make((*map(add, self[:-1], other[:-1]), sum(costs) if costs else None))

    def subtract(self, other: UsageLine) -> UsageLine:
        """Return these sums minus the sums in `other`. A count that would be negative becomes zero."""
        *counts, estimated = (max(0, more) for more in map(sub, self[:-1], other[:-1]))
        actual = (self.actual_cost_usd or 0.0) - (other.actual_cost_usd or 0.0)
        is_known_here_only = self.actual_cost_usd is not None and other.actual_cost_usd is None
        cost = (
            estimated if estimated > ROUNDING else 0.0,
            actual if is_known_here_only or actual > ROUNDING else None,
        )
        return UsageLine._make((*counts, *cost))


class ModelUsage(NamedTuple):
    model: str | None
    provider: str | None
    purpose: str
    used: UsageLine


class UsageTotals(NamedTuple):
    """Usage by model, provider and purpose, highest cost first. The lines add up to `total`."""

    total: UsageLine
    by_model: tuple[ModelUsage, ...]


class Spending(NamedTuple):
    """The usage of the model calls for one person or room, including titles, summaries and subagents."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    """The actual or estimated cost. A call whose cost is unknown counts as 0."""


class UsageRecords:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def record(self, session_id: str, call: ModelCall, at: float | None = None) -> int:
        """Store a model call and add it to the session's columns, in one transaction. Return the id of the
        row."""
        session_id, call = require_text("session_id", session_id), call.validate()
        when = clock.now() if at is None else check_time("at", at)
        row = (session_id, when, *call)
        columns = call.make_usage().bind_values()
        call_id: list[int] = []

        def work(writer: Writer) -> int:
            # On a repeat, a row with the same id and values is the row that the first attempt wrote.
            if writer.repeating and call_id and writer.row(RECORDED, call_id[-1]) == row:
                return call_id[-1]
            if not writer.value(LIVE, session_id):
                raise errors.make_error(errors.UnknownSession, f"session {session_id!r} does not exist")
            writer.run(ADD_USAGE, *columns, session_id)
            call_id.append(writer.insert(INSERT, *row))
            return call_id[-1]

        return self._engine.write(work)

    def read(self, session_id: str, family: bool = False) -> UsageTotals:
        """Return the usage of a session. With `family`, return the usage of its whole conversation and of its
        subagents.

        Branches are separate conversations. Sessions in the trash are not counted.
        """
        with self._engine.read(settled=True) as reader:
            if reader.value(IS_TRASHED, session_id):
                return _make_totals(())
            if not family:
                return _make_totals(_read_lines(reader, session_id))
            members = list_with_subagents(reader, session_id)
            listed = [member for member in members if not reader.value(IS_TRASHED, member)]
            return _make_totals(line for member in listed for line in _read_lines(reader, member))

    def sum_of_owner(self, owner: str, since: float) -> Spending:
        """Return the usage of all conversations of a person or a room, for calls at or after `since`."""
        owner, start = require_text("owner", owner), check_time("since", since)
        with self._engine.read() as reader:
            row = reader.row(SPENT, owner, start)
        return Spending() if row is None else Spending._make(row)

    def sum_by_model(self, since: float | None = None, until: float | None = None) -> UsageTotals:
        """Return the usage of all conversations, for calls at or after `since` and before `until`."""
        start = None if since is None else check_time("since", since)
        end = None if until is None else check_time("until", until)
        window = (start, start, end, end)
        with self._engine.read(settled=True) as reader:
            lines = [_make_line(row) for row in reader.rows(IN_WINDOW, *window)]
            recorded = {row[0]: UsageLine(*row[1:]) for row in reader.rows(ROWS_OF_EACH)}
            lines += [
                _find_unrecorded(row, recorded.get(row[0], UsageLine()))
                for row in reader.each(COLUMNS_IN_WINDOW, *window)
            ]
        return _make_totals(lines)


def _read_lines(reader: Reader, session_id: str) -> list[ModelUsage]:
    lines = [_make_line(row) for row in reader.rows(OF_SESSION, session_id)]
    columns = reader.row(COLUMNS_OF, session_id)
    if columns is not None:
        lines.append(_find_unrecorded(columns, _add_lines(line.used for line in lines)))
    return lines


def _make_line(row: Row) -> ModelUsage:
    return ModelUsage(row[0], row[1], row[2], UsageLine._make(row[3:]))


def _find_unrecorded(columns: Row, recorded: UsageLine) -> ModelUsage:
    """Return the part of a session's usage that no usage row contains. `columns` are the token and cost columns
    of the session, and `recorded` is the sum of its usage rows. The part is attributed to the session's own
    model."""
    _id, model, provider, *sums = columns
    return ModelUsage(model, provider, "main", UsageLine(*sums).subtract(recorded))


def _add_lines(lines: Iterable[UsageLine]) -> UsageLine:
    total = UsageLine()
    for line in lines:
        total = total.add(line)
    return total


def _make_totals(lines: Iterable[ModelUsage]) -> UsageTotals:
    joined: dict[tuple[str | None, str | None, str], UsageLine] = {}
    for model, provider, purpose, used in lines:
        if used != UsageLine():
            key = (model, provider, purpose)
            joined[key] = joined.get(key, UsageLine()).add(used)
    by_model = [ModelUsage(*key, used) for key, used in joined.items()]
    by_model.sort(key=lambda line: (-_compute_cost(line.used), -sum(line.used[1:6]), str(line[:3])))
    return UsageTotals(_add_lines(line.used for line in by_model), tuple(by_model))


def _compute_cost(used: UsageLine) -> float:
    return used.estimated_cost_usd if used.actual_cost_usd is None else used.actual_cost_usd


def _check_tokens(name: str, value: object) -> int | None:
    if value is None:
        return None
    tokens = check_counter(name, value)
    if not 0 <= tokens <= MOST_TOKENS:
        raise errors.make_error(
            errors.InvalidArgument, f"{name} must be from 0 to {MOST_TOKENS}, got {tokens}"
        )
    return tokens
