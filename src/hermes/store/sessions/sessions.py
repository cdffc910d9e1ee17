"""Session rows: create, end, reopen and count sessions, and add up the tokens and costs of a session."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from hermes import clock, errors
from hermes.session_kinds import canonical_source, classify_session
from hermes.store import derived
from hermes.store.arguments import (
    check_counter,
    check_integer,
    check_optional_id,
    check_optional_mapping,
    check_optional_number,
    check_optional_text,
    check_time,
    require_text,
)
from hermes.store.columns import SESSIONS
from hermes.store.content import json_or_none
from hermes.store.engine import Access, Writer
from hermes.store.processes import add_current_record, current_record
from hermes.store.statements import make_insert
from hermes.text import replace_surrogates

SELECT_ROW = "SELECT * FROM sessions WHERE id = ?"
EXISTS = "SELECT 1 FROM sessions WHERE id = ?"
SELECT_LIVE = "SELECT * FROM sessions WHERE id = ? AND trashed_at IS NULL"
IS_TRASHED = "SELECT 1 FROM sessions WHERE id = ? AND trashed_at IS NOT NULL"
LIVE = "SELECT 1 FROM sessions WHERE id = ? AND trashed_at IS NULL"
CHECKS: dict[str, Callable[[str, Any], object]] = {
    "text": require_text,
    "id": check_optional_id,
    "json": lambda _name, value: value if isinstance(value, str) else json_or_none(value),
    "mapping": lambda name, value: json_or_none(check_optional_mapping(name, value)),
    "integer": check_integer,
    "number": check_optional_number,
    "counter": check_counter,
}
"""The function that checks and encodes a caller's value, by the kind of the column."""
WRITER_COLUMNS = [
    (column.name, CHECKS[column.kind], column.default) for column in SESSIONS if column.set_by == "caller"
]
WRITER_NAMES = tuple(name for name, _check, _default in WRITER_COLUMNS)
# A new root session sets its place here. `derived.refresh` sets the place of a child in the same transaction.
INSERT = " ".join(
    (
        make_insert(
            "sessions",
            (
                *("id", "source", "parent_session_id", "started_at", "last_active", "relation"),
                *("root_id", "listed", "conversation_active", "kind", *WRITER_NAMES),
            ),
        ),
        "ON CONFLICT (id) DO NOTHING",
    )
)
HAS_CHILDREN = "SELECT 1 FROM sessions WHERE parent_session_id = ? LIMIT 1"
HOW_IT_ENDED = "SELECT end_reason FROM sessions WHERE id = ? AND trashed_at IS NULL"
# Children created before the parent was compressed or branched are its subagents, whatever their timestamps
# are.
SETTLE_CHILDREN = "UPDATE sessions SET relation = 'delegate' WHERE parent_session_id = ? AND relation IS NULL"
END = "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ? AND ended_at IS NULL AND trashed_at IS NULL"
REOPEN = "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ? AND trashed_at IS NULL"
RECORDED_PROCESS = "SELECT process FROM sessions WHERE id = ?"
RECORD_PROCESS = "UPDATE sessions SET process = ? WHERE id = ?"
SET_PROMPT = "UPDATE sessions SET system_prompt = ? WHERE id = ? AND trashed_at IS NULL"
SET_MODEL = "UPDATE sessions SET model = ? WHERE id = ? AND trashed_at IS NULL"
SET_MODEL_CONFIG = "UPDATE sessions SET model_config = ? WHERE id = ? AND trashed_at IS NULL"
COUNT = "SELECT count(*) FROM sessions WHERE trashed_at IS NULL AND (? IS NULL OR source = ?)"
PREFIX = (
    """SELECT id FROM sessions WHERE trashed_at IS NULL AND lower(id) LIKE lower(?) ESCAPE '\\' LIMIT 2"""
)

ADD_USAGE = """UPDATE sessions SET
    input_tokens = coalesce(input_tokens, 0) + ?, output_tokens = coalesce(output_tokens, 0) + ?,
    cache_read_tokens = coalesce(cache_read_tokens, 0) + ?, cache_write_tokens = coalesce(cache_write_tokens, 0) + ?,
    reasoning_tokens = coalesce(reasoning_tokens, 0) + ?, api_call_count = coalesce(api_call_count, 0) + ?,
    estimated_cost_usd = coalesce(estimated_cost_usd, 0) + coalesce(?, 0),
    actual_cost_usd = CASE WHEN ? IS NULL THEN actual_cost_usd ELSE coalesce(actual_cost_usd, 0) + ? END,
    cost_status = coalesce(?, cost_status), cost_source = coalesce(?, cost_source),
    pricing_version = coalesce(?, pricing_version), billing_provider = coalesce(billing_provider, ?),
    billing_base_url = coalesce(billing_base_url, ?), billing_mode = coalesce(billing_mode, ?),
    model = coalesce(model, ?) WHERE id = ? AND trashed_at IS NULL"""
SET_USAGE = """UPDATE sessions SET
    input_tokens = ?, output_tokens = ?, cache_read_tokens = ?, cache_write_tokens = ?,
    reasoning_tokens = ?, api_call_count = ?,
    estimated_cost_usd = coalesce(?, 0),
    actual_cost_usd = CASE WHEN ? IS NULL THEN actual_cost_usd ELSE ? END,
    cost_status = coalesce(?, cost_status), cost_source = coalesce(?, cost_source),
    pricing_version = coalesce(?, pricing_version), billing_provider = coalesce(billing_provider, ?),
    billing_base_url = coalesce(billing_base_url, ?), billing_mode = coalesce(billing_mode, ?),
    model = coalesce(model, ?) WHERE id = ? AND trashed_at IS NULL"""

COUNTERS = (
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("reasoning_tokens", "api_call_count"),
)

LONGEST_PREFIX = 1000
"""The maximum length of a text that is looked up as the beginning of an id or title."""


def check_source(source: str) -> str:
    """Check the name of a source and return its canonical form. Older spellings of a name are replaced."""
    return canonical_source(require_text("source", source))


def check_new_source(source: str, name: str = "source") -> str:
    """Check the source or platform of a new row, and return its canonical name. `name` is the name of the
    argument in error messages. A blank source is refused, because the session would appear in no list."""
    text = require_text(name, source)
    if not text.strip():
        raise errors.make_error(errors.InvalidArgument, f"{name} must not be empty, got {text!r:.40}")
    return canonical_source(text)


def new_session_id() -> str:
    return f"{clock.format_stamp()}_{os.urandom(4).hex()}"


def check_new_id(session_id: object) -> str:
    """Check the id of a session that is to be created, and return it. It must be text and not empty."""
    name = require_text("session_id", session_id)
    if not name:
        raise errors.make_error(errors.InvalidArgument, "session_id must not be empty")
    return name


def make_prefix_pattern(text: str) -> str:
    """Return an SQL LIKE pattern that matches all texts that begin with `text`. The characters `%` and `_` in
    `text` stand for themselves."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


def record_process(writer: Writer, session_id: str) -> None:
    """Record that this process uses the session. Maintenance does not close the session while the process is
    running."""
    value = add_current_record(writer.value(RECORDED_PROCESS, session_id))
    if value is not None:
        writer.run(RECORD_PROCESS, value, session_id)


class NewSession(NamedTuple):
    """A session to be created."""

    session_id: str
    source: str
    columns: Mapping[str, Any] = MappingProxyType({})
    """Further columns that a caller can set, by name."""
    parent_session_id: str | None = None
    started_at: float | None = None

    def bind_values(self, relation: str | None) -> tuple[object, ...]:
        """Return the parameters of the statement `INSERT` for this session. `relation` is its relation to its
        parent. This session must be the result of `validate`."""
        is_root = self.parent_session_id is None
        place = (self.session_id, 1, self.started_at) if is_root else (None, None, None)
        start = (self.session_id, self.source, self.parent_session_id, self.started_at, self.started_at)
        kind = classify_session(self.source, child=not is_root)
        return (*start, relation, *place, kind, *(self.columns[name] for name in WRITER_NAMES))

    def validate(self) -> NewSession:
        """Return a copy of this session in which `columns` has every column that callers can set. Each value is
        checked and encoded for storage."""
        unknown = next((name for name in self.columns if name not in WRITER_NAMES), None)
        if unknown is not None:
            raise TypeError(f"create_session() got an unexpected keyword argument {unknown!r}")
        at = self.started_at
        columns = {
            name: default if (value := self.columns.get(name)) is None else check(name, value)
            for name, check, default in WRITER_COLUMNS
        }
        columns["process"] = columns["process"] or current_record()
        return NewSession(
            check_new_id(self.session_id),
            check_new_source(self.source),
            columns,
            check_optional_text("parent_session_id", self.parent_session_id),
            clock.now() if at is None else check_time("started_at", at),
        )


class Usage(NamedTuple):
    """The tokens and cost of model calls, to be added to the columns of a session."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    api_call_count: int = 0
    estimated_cost_usd: float | None = None
    actual_cost_usd: float | None = None
    cost_status: str | None = None
    cost_source: str | None = None
    pricing_version: str | None = None
    billing_provider: str | None = None
    billing_base_url: str | None = None
    billing_mode: str | None = None
    model: str | None = None

    def bind_values(self) -> tuple[object, ...]:
        """Return this usage as the parameters of the statements `ADD_USAGE` and `SET_USAGE`. Raise an error if
        a value is invalid."""
        actual = check_optional_number("actual_cost_usd", self.actual_cost_usd)
        texts = (
            *("cost_status", "cost_source", "pricing_version"),
            *("billing_provider", "billing_base_url", "billing_mode", "model"),
        )
        return (
            *(check_counter(name, getattr(self, name)) for name in COUNTERS),
            *(check_optional_number("estimated_cost_usd", self.estimated_cost_usd), actual, actual),
            *(check_optional_text(name, getattr(self, name)) for name in texts),
        )


class Sessions:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def create(self, session: NewSession) -> str:
        """Create a session, and return its id. If a session with this id exists already, its row stays as it
        is.

        Raise `SessionInTrash` if that session is in the trash.
        """
        session = session.validate()
        session_id, parent = session.session_id, session.parent_session_id

        def insert(writer: Writer, relation: str | None) -> bool:
            new = writer.run(INSERT, *session.bind_values(relation)) > 0
            if not new:
                if writer.value(IS_TRASHED, session_id):
                    raise errors.make_error(
                        errors.SessionInTrash,
                        f"session {session_id!r} is in the trash: restore it, delete it permanently, or use another id",
                    )
                record_process(writer, session_id)
            return new

        def work(writer: Writer) -> None:
            if parent is None:
                # Another program may have deleted this session earlier and left its children.
                if insert(writer, None) and writer.value(HAS_CHILDREN, session_id):
                    writer.run(derived.NOTE, session_id)
                    derived.refresh(writer)
                return
            above = writer.row(HOW_IT_ENDED, parent)
            if above is None and not writer.value(EXISTS, session_id):
                raise errors.make_error(errors.UnknownSession, f"parent session {parent!r} does not exist")
            if above is not None and insert(writer, derived.find_relation(above[0])):
                derived.refresh(writer)

        self._engine.write(work)
        return session_id

    def end(self, session_id: str, end_reason: str) -> None:
        reason, at = check_optional_text("end_reason", end_reason), clock.now()

        def work(writer: Writer) -> None:
            if writer.run(END, at, reason, session_id):
                if derived.find_relation(reason) is not None:
                    writer.run(SETTLE_CHILDREN, session_id)
                derived.refresh(writer)

        self._engine.write(work)

    def reopen(self, session_id: str) -> None:
        def work(writer: Writer) -> None:
            if writer.run(REOPEN, session_id):
                record_process(writer, session_id)
                derived.refresh(writer)

        self._engine.write(work)

    def set_system_prompt(self, session_id: str, text: str | None) -> None:
        prompt = check_optional_text("system_prompt", text)
        self._engine.write(lambda writer: writer.run(SET_PROMPT, prompt, session_id))

    def set_model(self, session_id: str, model: str) -> bool:
        """Set the model for the next turns. The usage rows still show which models were used before. Return
        whether the session exists."""
        name = require_text("model", model)
        return self._engine.write(lambda writer: writer.run(SET_MODEL, name, session_id) > 0)

    def set_model_config(self, session_id: str, model_config: Mapping[str, Any]) -> bool:
        stored = json_or_none(check_optional_mapping("model_config", model_config))
        return self._engine.write(lambda writer: writer.run(SET_MODEL_CONFIG, stored, session_id) > 0)

    def get(self, session_id: str, *, include_trashed: bool = False) -> dict[str, Any] | None:
        with self._engine.read(settled=True) as reader:
            return reader.dict(SELECT_ROW if include_trashed else SELECT_LIVE, session_id)

    def count(self, source: str | None = None) -> int:
        name = None if source is None else check_source(source)
        with self._engine.read(settled=True) as reader:
            return int(reader.value(COUNT, name, name))

    def resolve_id(self, id_or_prefix: object) -> str | None:
        """Return the id of the session with exactly this id, or of the only session whose id starts with it.
        None if no session matches, or if several match."""
        if not isinstance(id_or_prefix, str):
            return None
        prefix = replace_surrogates(id_or_prefix)
        with self._engine.read() as reader:
            if reader.value(LIVE, prefix):
                return prefix
            if len(prefix) > LONGEST_PREFIX or "\0" in prefix:  # a pattern ends at a NUL
                return None
            matches = reader.rows(PREFIX, make_prefix_pattern(prefix))
        return str(matches[0][0]) if len(matches) == 1 else None

    def update_token_counts(self, session_id: str, usage: Usage, *, absolute: bool = False) -> None:
        """Add `usage` to the counters of a session. With `absolute`, set the counters to these values. The
        session row is created if it does not exist.

        Usage of a session in the trash is ignored.
        """
        values = usage.bind_values()
        blank = NewSession(session_id, "unknown", {"model": values[-1]}).validate().bind_values(None)

        def work(writer: Writer) -> None:
            writer.run(INSERT, *blank)
            writer.run(SET_USAGE if absolute else ADD_USAGE, *values, session_id)

        self._engine.write(work, repeatable=absolute)
