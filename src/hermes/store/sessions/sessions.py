"""Session rows: create, end, reopen, count, and the documented counters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from hermes import clock, errors
from hermes.session_kinds import canonical_source, classify_session
from hermes.store import derived
from hermes.store.arguments import (
    check_counter,
    check_optional_id,
    check_optional_mapping,
    check_optional_number,
    check_optional_text,
    check_time,
    require_text,
)
from hermes.store.content import json_or_none
from hermes.store.engine import Access, Writer
from hermes.store.people import LOCAL
from hermes.store.processes import add_current_record, current_record
from hermes.text import replace_surrogates

SELECT_ROW = "SELECT * FROM sessions WHERE id = ?"
EXISTS = "SELECT 1 FROM sessions WHERE id = ?"
SELECT_LIVE = "SELECT * FROM sessions WHERE id = ? AND trashed_at IS NULL"
IS_TRASHED = "SELECT 1 FROM sessions WHERE id = ? AND trashed_at IS NOT NULL"
LIVE = "SELECT 1 FROM sessions WHERE id = ? AND trashed_at IS NULL"
# A new root knows its place at once; a child is placed by `derived.refresh`, in the same transaction.
INSERT = """INSERT INTO sessions (id, source, user_id, model, model_config, system_prompt, parent_session_id,
        started_at, root_id, listed, last_active, conversation_active, kind, relation, process)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"""
BELONG = """UPDATE sessions SET owner = ?, session_key = ?, chat_id = ?, chat_type = ?, thread_id = ?,
        display_name = ?, origin_json = ?, workspace = ?, cwd = ?, git_branch = ? WHERE id = ?"""
HAS_CHILDREN = "SELECT 1 FROM sessions WHERE parent_session_id = ? LIMIT 1"
HOW_IT_ENDED = "SELECT end_reason FROM sessions WHERE id = ? AND trashed_at IS NULL"
# Children that were there before their parent was compressed or branched are its subagents, whatever the clocks say.
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


def check_source(source: str) -> str:
    """The documented name of a source; older spellings are accepted on input and in filters."""
    return canonical_source(require_text("source", source))


def check_new_source(source: str, name: str = "source") -> str:
    """A source, or the platform it stands for, under which a row may be made. A blank one would be in no list."""
    text = require_text(name, source)
    if not text.strip():
        raise errors.make_error(errors.InvalidArgument, f"{name} must not be empty, got {text!r:.40}")
    return canonical_source(text)


def new_session_id() -> str:
    return f"{clock.format_stamp()}_{os.urandom(4).hex()}"


def check_new_id(session_id: object) -> str:
    """An id under which a row may be made."""
    name = require_text("session_id", session_id)
    if not name:
        raise errors.make_error(errors.InvalidArgument, "session_id must not be empty")
    return name


def make_prefix_pattern(text: str) -> str:
    """A LIKE pattern for everything that starts with exactly this text."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


def record_process(writer: Writer, session_id: str) -> None:
    """Record that this process uses the session: while it lives, maintenance does not close the session."""
    value = add_current_record(writer.value(RECORDED_PROCESS, session_id))
    if value is not None:
        writer.run(RECORD_PROCESS, value, session_id)


class SessionOrigin(NamedTuple):
    """Whose a new session is, and where it was begun."""

    owner: str = LOCAL
    session_key: str | None = None
    chat_id: str | None = None
    chat_type: str | None = None
    thread_id: str | None = None
    display_name: str | None = None
    origin_json: str | None = None
    workspace: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    process: str | None = None
    """Stored when the row is made; the process that makes it, if none is named."""


class Usage(NamedTuple):
    """What a model call used and cost, as the documented counters take it."""

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
        """In the order of the placeholders of ADD_USAGE and SET_USAGE."""
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

    def create(
        self,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        model_config: dict[str, Any] | None = None,
        system_prompt: str | None = None,
        user_id: str | None = None,
        parent_session_id: str | None = None,
        started_at: float | None = None,
        belonging: SessionOrigin | None = None,
    ) -> str:
        """Insert the row if it is not there; a second call for the same id changes nothing.

        `SessionInTrash` if the id is that of a session in the trash.
        """
        session_id = check_new_id(session_id)
        source = check_new_source(source)
        started = clock.now() if started_at is None else check_time("started_at", started_at)
        parent = check_optional_text("parent_session_id", parent_session_id)
        place: tuple[object, ...] = (session_id, 1, started, started)
        if parent is not None:
            place = (None, None, started, None)
        values = (
            session_id,
            source,
            check_optional_id("user_id", user_id),
            check_optional_text("model", model),
            json_or_none(check_optional_mapping("model_config", model_config)),
            check_optional_text("system_prompt", system_prompt),
            parent,
            started,
            *place,
            classify_session(source, child=parent is not None),
        )

        place_of = (
            None if belonging is None else SessionOrigin(*belonging)
        )  # from the spool it comes as a list
        process = (place_of.process if place_of is not None else None) or current_record()

        def insert(writer: Writer, relation: str | None) -> bool:
            new = writer.run(INSERT, *values, relation, process) > 0
            if not new:
                if writer.value(IS_TRASHED, session_id):
                    raise errors.make_error(
                        errors.SessionInTrash,
                        f"session {session_id!r} is in the trash: bring it back, delete it for good, or use another id",
                    )
                record_process(writer, session_id)
            elif place_of is not None and any(place_of[:-1]):
                writer.run(BELONG, *place_of[:-1], session_id)
            return new

        def work(writer: Writer) -> None:
            if parent is None:
                # Children before their parent: another program had deleted it, and left them behind.
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
        """What a session goes on with; its usage tells with which models it was held."""
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
        """The exact id, else the only one that starts so; None if there is no such one or several."""
        if not isinstance(id_or_prefix, str):
            return None
        prefix = replace_surrogates(id_or_prefix)
        with self._engine.read() as reader:
            if reader.value(LIVE, prefix):
                return prefix
            if len(prefix) > LONGEST_PREFIX or "\0" in prefix:  # where a pattern ends
                return None
            matches = reader.rows(PREFIX, make_prefix_pattern(prefix))
        return str(matches[0][0]) if len(matches) == 1 else None

    def update_token_counts(self, session_id: str, usage: Usage, *, absolute: bool = False) -> None:
        """Add to the counters of a session, or set them; the row is made if it is not there.

        Nothing is counted for a session in the trash.
        """
        session_id = check_new_id(session_id)
        at, values = clock.now(), usage.bind_values()
        model = values[-1]
        blank = (
            session_id,
            "unknown",
            None,
            model,
            None,
            None,
            None,
            at,
            session_id,
            1,
            at,
            at,
            "chat",
            None,
            current_record(),
        )

        def work(writer: Writer) -> None:
            writer.run(INSERT, *blank)
            writer.run(SET_USAGE if absolute else ADD_USAGE, *values, session_id)

        self._engine.write(work, repeatable=absolute)
