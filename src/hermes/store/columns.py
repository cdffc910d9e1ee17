"""The columns of `sessions` and `messages`, one line each: type, origin and treatment.

Statements, imports, merges, lists and replays are built from these lines. A new column needs one line in
`schema.sql` and one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, LiteralString, NamedTuple

Kind = Literal["text", "id", "json", "mapping", "integer", "number", "counter"]
"""The type of a column. An `id` can be passed as an integer, a `mapping` is stored as JSON, a `counter` is
never NULL."""
Setter = Literal["caller", "store", "derived"]
"""The origin of a value. `caller`: the caller of `create_session` or `append_message`. `store`: another
operation of the store. `derived`: the module `store.derived`."""


class SessionColumn(NamedTuple):
    name: LiteralString
    kind: Kind = "text"
    set_by: Setter = "store"
    default: Any = None
    """The value of a new row if the caller passes none."""
    in_lists: bool = False
    is_inherited: bool = False
    """Whether a continuation, a branch, a reset or a subagent gets the value of its parent."""
    is_imported: bool = True
    """Whether an import stores the value. False for values that each store computes itself, although an
    export contains them."""
    steers: str = ""
    """A label for import reports if the value controls behaviour. Only a trusted import accepts such a value.
    Empty if the column is only data."""
    merge: Literal["here", "newer", "higher"] = "here"
    """Which value a merge keeps if an import contains another copy of the session: that of this store
    (`here`), that of the newer copy (`newer`), or the higher one (`higher`). Labels have separate rules."""
    in_branch: bool = True
    """Whether a branch that a merge creates gets the value of the imported session."""
    is_scrubbed: bool = True
    """Whether `scrub` removes a secret from the column. False for row keys and for control values such as
    `end_reason`."""


class MessageColumn(NamedTuple):
    name: LiteralString
    kind: Kind = "text"
    set_by: Setter = "store"
    replace: Literal["compared", "completed", "cleared", "own"] = "own"
    """How `replace_messages` treats the column. Rows with equal "compared" columns are kept, and their
    "completed" columns get the caller's values. A "cleared" column is set to NULL if another message
    overwrites the row. An "own" column (id, session, timestamp, uid, active) belongs to the row, and none of
    these rules applies to it."""
    of_answers: bool = False
    """Whether `replace_messages` accepts the column only in answers of the model."""
    replay: Literal["never", "always", "answers", "answers, also empty"] = "never"
    """The messages whose value of this column is sent back to a model."""
    steers: str = ""
    is_scrubbed: bool = True


SESSIONS: tuple[SessionColumn, ...] = (
    SessionColumn("id", in_lists=True, is_scrubbed=False),
    SessionColumn("source", in_lists=True, is_inherited=True, is_scrubbed=False),
    SessionColumn(
        *("user_id", "id", "caller"), in_lists=True, is_inherited=True, steers="user id", is_scrubbed=False
    ),
    SessionColumn("model", "text", "caller", in_lists=True, merge="newer"),
    SessionColumn("model_config", "mapping", "caller", in_lists=True, steers="model setting", merge="newer"),
    SessionColumn("system_prompt", "text", "caller", in_lists=True, steers="system prompt", merge="newer"),
    SessionColumn("parent_session_id", in_lists=True, is_scrubbed=False),
    SessionColumn("started_at", "number", in_lists=True),
    SessionColumn("ended_at", "number", in_lists=True),
    SessionColumn("end_reason", in_lists=True, is_scrubbed=False),
    SessionColumn("message_count", "counter", in_lists=True),
    SessionColumn("tool_call_count", "counter", in_lists=True),
    SessionColumn("input_tokens", "counter", in_lists=True, merge="higher", in_branch=False),
    SessionColumn("output_tokens", "counter", in_lists=True, merge="higher", in_branch=False),
    SessionColumn("cache_read_tokens", "counter", in_lists=True, merge="higher", in_branch=False),
    SessionColumn("cache_write_tokens", "counter", in_lists=True, merge="higher", in_branch=False),
    SessionColumn("reasoning_tokens", "counter", in_lists=True, merge="higher", in_branch=False),
    # Used only in reports. No request is sent to this address.
    SessionColumn("billing_provider", in_lists=True, merge="newer"),
    SessionColumn("billing_base_url", in_lists=True, merge="newer"),
    SessionColumn("billing_mode", in_lists=True, merge="newer"),
    SessionColumn("estimated_cost_usd", "number", in_lists=True, merge="higher", in_branch=False),
    SessionColumn("actual_cost_usd", "number", in_lists=True, merge="higher", in_branch=False),
    SessionColumn("cost_status", in_lists=True, merge="newer"),
    SessionColumn("cost_source", in_lists=True, merge="newer"),
    SessionColumn("pricing_version", in_lists=True, merge="newer"),
    SessionColumn("title", in_lists=True),
    SessionColumn("api_call_count", "counter", in_lists=True, merge="higher", in_branch=False),
    SessionColumn("handoff_state", in_lists=True, steers="handoff", in_branch=False, is_scrubbed=False),
    SessionColumn("handoff_platform", in_lists=True, steers="handoff", in_branch=False, is_scrubbed=False),
    SessionColumn("handoff_error", in_lists=True, steers="handoff", in_branch=False),
    # The columns above are those of the reference.
    SessionColumn("last_active", "number", "derived", in_lists=True, is_imported=False),
    SessionColumn("preview", "text", "derived", in_lists=True, is_imported=False),
    SessionColumn("relation", "text", "derived", in_lists=True, is_scrubbed=False),
    SessionColumn("root_id", "text", "derived", in_lists=True, is_imported=False, is_scrubbed=False),
    SessionColumn("kind", "text", "derived", in_lists=True, is_imported=False, is_scrubbed=False),
    SessionColumn("last_person_at", "number", "derived", is_imported=False),
    SessionColumn("conversation_active", "number", "derived", is_imported=False),
    SessionColumn("listed", "counter", "derived", is_imported=False),
    SessionColumn("title_by", is_scrubbed=False),
    SessionColumn(
        *("owner", "text", "caller"), default="", is_inherited=True, steers="owner", is_scrubbed=False
    ),
    SessionColumn(
        *("session_key", "text", "caller"),
        is_inherited=True,
        steers="chat key",
        in_branch=False,
        is_scrubbed=False,
    ),
    SessionColumn("chat_id", "text", "caller", is_inherited=True, steers="chat origin", is_scrubbed=False),
    SessionColumn("chat_type", "text", "caller", is_inherited=True, steers="chat origin", is_scrubbed=False),
    SessionColumn("thread_id", "text", "caller", is_inherited=True, steers="chat origin", is_scrubbed=False),
    SessionColumn("display_name", "text", "caller", is_inherited=True, steers="chat origin"),
    SessionColumn("origin_json", "json", "caller", is_inherited=True, steers="chat origin"),
    SessionColumn(
        *("workspace", "text", "caller"), in_lists=True, is_inherited=True, steers="directory", merge="newer"
    ),
    SessionColumn("cwd", "text", "caller", is_inherited=True, steers="directory", merge="newer"),
    SessionColumn("git_branch", "text", "caller", is_inherited=True, steers="directory", merge="newer"),
    SessionColumn("process", "json", "caller", is_inherited=True, steers="process", in_branch=False),
    SessionColumn("pinned_at", "number", in_lists=True, steers="pin", in_branch=False),
    SessionColumn("archived", "counter", in_lists=True, in_branch=False),
    SessionColumn("trashed_at", "number", is_imported=False),
    SessionColumn("rewind_count", "counter", merge="higher", in_branch=False),
    SessionColumn("lease_epoch", "counter", is_inherited=True, is_imported=False),
)

PROVIDER_ITEM = "provider item"
"""The value of `steers` for columns that a provider reads instead of the message text. People never see such
a column."""

MESSAGES: tuple[MessageColumn, ...] = (
    MessageColumn("id", "integer", is_scrubbed=False),
    MessageColumn("session_id", is_scrubbed=False),
    MessageColumn("role", replace="compared", is_scrubbed=False),
    MessageColumn("content", replace="compared"),
    MessageColumn("content_kind", replace="compared", is_scrubbed=False),
    MessageColumn("tool_call_id", "id", "caller", "compared", replay="always"),
    MessageColumn("tool_name", "text", "caller", "compared", replay="always"),
    MessageColumn("tool_calls", "json", "caller", "compared", replay="always"),
    MessageColumn("timestamp", "number"),
    MessageColumn("token_count", "integer", "caller", "completed"),
    MessageColumn("finish_reason", "text", "caller", "completed", replay="answers", is_scrubbed=False),
    MessageColumn("reasoning", "text", "caller", "completed", of_answers=True, replay="answers"),
    MessageColumn(
        "reasoning_content", "text", "caller", "completed", of_answers=True, replay="answers, also empty"
    ),
    MessageColumn(
        *("reasoning_details", "json", "caller", "completed"),
        of_answers=True,
        replay="answers",
        steers=PROVIDER_ITEM,
    ),
    MessageColumn(
        *("codex_reasoning_items", "json", "caller", "completed"),
        of_answers=True,
        replay="answers",
        steers=PROVIDER_ITEM,
    ),
    MessageColumn(
        *("codex_message_items", "json", "caller", "completed"),
        of_answers=True,
        replay="answers",
        steers=PROVIDER_ITEM,
    ),
    # The columns above are those of the reference.
    MessageColumn("uid", is_scrubbed=False),
    MessageColumn("active", "counter"),
    MessageColumn("rewound_at", "number", replace="cleared"),
    MessageColumn("thinned_bytes", "integer", replace="cleared"),
    # A gateway considers a message with this id as answered.
    MessageColumn(
        *("platform_message_id", "id", "caller", "cleared"), steers="platform message id", is_scrubbed=False
    ),
)


def list_session_names(choose: Callable[[SessionColumn], object]) -> tuple[LiteralString, ...]:
    """Return the names of the `sessions` columns for which `choose` returns a true value."""
    return tuple(column.name for column in SESSIONS if choose(column))


def list_message_names(choose: Callable[[MessageColumn], object]) -> tuple[LiteralString, ...]:
    """Return the names of the `messages` columns for which `choose` returns a true value."""
    return tuple(column.name for column in MESSAGES if choose(column))
