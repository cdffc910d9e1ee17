"""The schema versions of the reference: one named step for each, with its reason.

The reference adds missing columns at any time and raises the version only later, so a store may already have
columns of a higher version. Every step therefore checks whether a column is missing before it adds it. The
columns are declared once, in `schema.sql`.
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
        "`length` and `tool_calls` must be distinguished from `stop` when a conversation is replayed.",
        messages=("finish_reason",),
    ),
    Step(3, "titles", "People name their sessions.", sessions=("title",)),
    Step(
        4,
        "unique titles",
        "A title names one session. The documented index does not include the owner. The Hermes index of the same name"
        " does, and is created with the rest of the schema, after duplicate titles were made distinct.",
    ),
    Step(
        5,
        "billing",
        "The cost of a session by provider, and the price list it is based on.",
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
        "Providers that return reasoning expect it in the next request.",
        messages=("reasoning", "reasoning_details", "codex_reasoning_items"),
    ),
    Step(
        7,
        "reasoning as content",
        "Some providers send reasoning in a separate field and reject a replay without it, even if it is empty.",
        messages=("reasoning_content",),
    ),
    Step(
        8,
        "calls counted",
        "Requests are billed and limited separately from tokens.",
        sessions=("api_call_count",),
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
        "The reference built a second full-text table, with trigrams of every message, for scripts without spaces. It"
        " was larger than the text. The Hermes index splits such scripts itself, so this step builds nothing.",
    ),
    Step(
        11,
        "search over tool calls",
        "The reference rebuilt both tables to cover tool calls, with a copy of all text in each. The Hermes index"
        " stores no copy, so this step only drops the old tables and their triggers, even damaged ones.",
        drops_search=True,
    ),
)


def run_step(connection: apsw.Connection, step: Step, want: Shape) -> bool:
    """Run one migration step in one transaction.

    Return whether the search tables of the reference could not be dropped, so that only their names were deleted from
    the schema.
    """

    def work(connection: apsw.Connection, strike: bool) -> None:
        for table, names in (("messages", step.messages), ("sessions", step.sessions)):
            for name in names:
                add_column(connection, table, want.tables[table][name])
        if step.drops_search:
            reference_search.remove(connection, strike)
        set_version(connection, step.version)

    return reference_search.in_transaction(connection, work)[1]


def set_version(connection: apsw.Connection, version: int) -> None:
    """Store `version` in the table `schema_version`, as its only row. Create the table if it is missing."""
    run(connection, CREATE_VERSION)
    run(connection, CLEAR_VERSION)
    run(connection, SET_VERSION, version)
