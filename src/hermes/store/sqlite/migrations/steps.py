"""The documented versions, one named step each, with the reason it existed.

The reference adds columns whenever it finds them missing and raises the number later, so the number may lag behind the
columns: every step looks before it adds. The columns are declared once, in `schema.sql`.
"""

from __future__ import annotations

from typing import NamedTuple

import apsw

from hermes.store.sqlite.connection import run
from hermes.store.sqlite.migrations import reference_search
from hermes.store.sqlite.migrations.shape import Shape, add_column

CREATE_VERSION = "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"
CLEAR_VERSION = "DELETE FROM schema_version"
SET_VERSION = "INSERT INTO schema_version (version) VALUES (?)"


class Step(NamedTuple):
    version: int
    name: str
    reason: str
    messages: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    drops_search: bool = False


STEPS = (
    Step(
        2,
        "why the model stopped",
        "`length` and `tool_calls` must be told from `stop` when a conversation is replayed.",
        messages=("finish_reason",),
    ),
    Step(3, "titles", "People name their sessions.", sessions=("title",)),
    Step(
        4,
        "unique titles",
        "A title names one session. The documented index knows no owner; ours, of the same name, does, and is made"
        " with the rest of our schema, after titles that an older program let in twice have been told apart.",
    ),
    Step(
        5,
        "billing",
        "What a session cost, by provider, and which price list said so.",
        sessions=(
            "cache_read_tokens",
            "cache_write_tokens",
            "reasoning_tokens",
            "billing_provider",
            "billing_base_url",
            "billing_mode",
            "estimated_cost_usd",
            "actual_cost_usd",
            "cost_status",
            "cost_source",
            "pricing_version",
        ),
    ),
    Step(
        6,
        "reasoning",
        "Providers that expose reasoning want it back in the next request.",
        messages=("reasoning", "reasoning_details", "codex_reasoning_items"),
    ),
    Step(
        7,
        "reasoning as content",
        "Some providers send reasoning in a field of its own and refuse a replay without it, even when empty.",
        messages=("reasoning_content",),
    ),
    Step(
        8, "calls counted", "Requests are billed and limited apart from tokens.", sessions=("api_call_count",)
    ),
    Step(
        9,
        "message items",
        "Replays through the Responses interface need the id and phase of each message.",
        messages=("codex_message_items",),
    ),
    Step(
        10,
        "substrings",
        "The reference built a second full-text table, of trigrams over every message, for scripts without spaces. It"
        " took more room than the text. Ours splits such scripts itself, so this step builds nothing.",
    ),
    Step(
        11,
        "search over tool calls",
        "The reference rebuilt both tables to cover tool calls, with a copy of all text inside each. Ours reads the"
        " text where it is, so this step only drops the old tables and their triggers, damaged ones too.",
        drops_search=True,
    ),
)


def run_step(connection: apsw.Connection, step: Step, want: Shape) -> bool:
    """One step in one transaction; whether a search table was too damaged to be dropped and had to be struck."""

    def work(connection: apsw.Connection, strike: bool) -> None:
        for table, names in (("messages", step.messages), ("sessions", step.sessions)):
            for name in names:
                add_column(connection, table, want.tables[table][name])
        if step.drops_search:
            reference_search.remove(connection, strike)
        set_version(connection, step.version)

    return reference_search.in_transaction(connection, work)[1]


def set_version(connection: apsw.Connection, version: int) -> None:
    """Exactly one row, whatever was there."""
    run(connection, CREATE_VERSION)
    run(connection, CLEAR_VERSION)
    run(connection, SET_VERSION, version)
