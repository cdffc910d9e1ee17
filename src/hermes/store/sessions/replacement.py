"""Replacement of a session's messages. Unchanged messages keep their rows.

The order of messages is the order of ids, and a new id is always the highest. A changed message therefore
overwrites the row at its position. If messages are inserted, the rows after them are written again with their
old times. If another session carries a message, the id of that message is never reused for another message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hermes import clock
from hermes.store.arguments import check_integer, check_time
from hermes.store.columns import MESSAGES, MessageColumn, list_message_names
from hermes.store.content import count_calls, from_json, json_or_none
from hermes.store.engine import Writer
from hermes.store.sessions import attachments, blobs, carried_context
from hermes.store.statements import make_completion, make_insert, make_update
from hermes.text import replace_surrogates

REPLACED = tuple(column for column in MESSAGES if column.replace in ("compared", "completed"))
COLUMNS = tuple(column.name for column in REPLACED)
COMPLETED = list_message_names(lambda column: column.replace == "completed")
CLEARED = list_message_names(lambda column: column.replace == "cleared")
PLAIN = tuple(column for column in REPLACED if column.set_by == "caller")

INSERT = make_insert("messages", (*COLUMNS, "timestamp", "uid", "session_id"))
OVERWRITE = make_update("messages", (*COLUMNS, "timestamp", "uid"), clear=CLEARED)
# These columns are updated if the caller passes a value. Otherwise they keep their value.
COMPLETE = make_completion("messages", COMPLETED)
DELETE = "DELETE FROM messages WHERE id = ?"


def encode_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message that a caller passes as a dict of column values for `messages`. The dict has no id. It
    also contains the attachments of the message and the number of its tool calls."""
    role = replace_surrogates(str(message.get("role") or "unknown"))
    content, kind, attached = attachments.encode(message.get("content"))
    at = message.get("timestamp")
    return {
        "role": role,
        "content": content,
        "content_kind": kind,
        "attachments": attached,
        **{column.name: _encode_value(column, role, message) for column in PLAIN},
        "timestamp": check_time("timestamp", at) if isinstance(at, int | float) else None,
        "calls": count_calls(role, message.get("tool_calls")),
    }


def _encode_value(column: MessageColumn, role: str, message: Mapping[str, Any]) -> Any:
    value = message.get(column.name)
    if value is None or (column.of_answers and role != "assistant"):
        return None
    if column.kind == "json":
        return json_or_none(value)
    if column.kind == "integer":
        return check_integer(column.name, value)
    return replace_surrogates(str(value))


def replace_rows(
    writer: Writer, session_id: str, have: list[dict[str, Any]], messages: list[dict[str, Any]]
) -> None:
    had, want = [_make_comparable(row) for row in have], [_make_comparable(row) for row in messages]
    times = dict(zip(had, (row["timestamp"] for row in have), strict=True))
    hashes = blobs.list_hashes(writer, session_id)
    now = clock.now()
    pairs = list(_pair_rows(had, want))
    carried = carried_context.find_carried_elsewhere(writer, session_id)
    if any(
        old is not None and have[old]["id"] in carried and _is_different(had, want, old, new)
        for old, new in pairs
    ):
        pairs = list(_pair_anew(had, want))
    for old, new in pairs:
        if new is None:
            assert old is not None
            if have[old]["id"] in carried:
                carried_context.rehome_messages(writer, session_id, (), (have[old]["id"], have[old]["id"]))
                continue
            writer.run(DELETE, have[old]["id"])
            continue
        if old is not None and had[old] == want[new]:
            _complete_row(writer, have[old], messages[new])
            continue
        row, at = messages[new], messages[new]["timestamp"]
        if at is None:
            at = times.get(want[new], now + new * 1e-6)
        values = (*(row[name] for name in COLUMNS), at, clock.make_uid())
        if old is None:
            message_id = writer.insert(INSERT, *values, session_id)
        else:
            message_id = have[old]["id"]
            writer.run(OVERWRITE, *values, message_id)
            blobs.detach_blobs(writer, message_id)
        blobs.attach_blobs(writer, message_id, row["attachments"])
    blobs.drop_unused(writer, hashes)


def _complete_row(writer: Writer, have: Mapping[str, Any], messages: Mapping[str, Any]) -> None:
    if any(messages[name] is not None and messages[name] != have[name] for name in COMPLETED):
        writer.run(COMPLETE, *(messages[name] for name in COMPLETED), have["id"])


def _is_different(had: list[Any], want: list[Any], old: int, new: int | None) -> bool:
    return new is None or had[old] != want[new]


def _pair_anew(had: list[Any], want: list[Any]) -> Iterator[tuple[int | None, int | None]]:
    """Pair stored rows with new messages as `_pair_rows` does, but never overwrite a row with another message.
    The equal rows and messages at the beginning are paired. All later rows are to be deleted, and all later
    messages are new. Used if another session carries a row that would be overwritten or deleted."""
    same = 0
    while same < min(len(had), len(want)) and had[same] == want[same]:
        same += 1
    yield from ((at, at) for at in range(same))
    yield from ((old, None) for old in range(same, len(had)))
    yield from ((None, new) for new in range(same, len(want)))


def remove_carried(
    carried: list[dict[str, Any]], own: list[dict[str, Any]], messages: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the session's own messages from `messages`, a context that a caller passes back. The messages at
    its beginning that the session carries are removed."""
    at, own_messages = 0, []
    own_ids = {row["id"] for row in own}
    live = carried + [row for row in own if row["id"] not in {row["id"] for row in carried}]
    for row in live:
        if at == len(messages) or _make_comparable(messages[at]) != _make_comparable(row):
            break
        if row["id"] in own_ids:
            own_messages.append(messages[at])
        at += 1
    return own_messages + messages[at:]


def _pair_rows(had: list[Any], want: list[Any]) -> Iterator[tuple[int | None, int | None]]:
    """Yield pairs (index of a stored row, index of a message) in order. The row is kept for the message, or is
    overwritten with it. If the message index is None, the row is to be deleted. If the row index is None, the
    message is new.

    `had` contains one comparable key for each stored row of a session, and `want` one for each message that the
    session is to have.
    """
    from difflib import SequenceMatcher

    start, end = 0, 0
    while start < min(len(had), len(want)) and had[start] == want[start]:
        start += 1
    while end < min(len(had), len(want)) - start and had[-1 - end] == want[-1 - end]:
        end += 1
    yield from ((at, at) for at in range(start))
    middle = SequenceMatcher(None, had[start : len(had) - end], want[start : len(want) - end], autojunk=False)
    steps = [(start + a, start + b, start + c, start + d) for _tag, a, b, c, d in middle.get_opcodes()]
    steps.append((len(had) - end, len(had), len(want) - end, len(want)))
    for low, high, first, last in steps:
        # More messages are inserted than rows are removed, so all rows after this step are written again.
        if last - first > high - low:
            yield from _pair_ranges(range(low, high), range(first, first + high - low))
            yield from ((old, None) for old in range(high, len(had)))
            yield from ((None, new) for new in range(first + high - low, len(want)))
            return
        yield from _pair_ranges(range(low, high), range(first, last))


def _pair_ranges(rows: range, messages: range) -> Iterator[tuple[int | None, int | None]]:
    yield from zip(rows, messages, strict=False)
    yield from ((None, new) for new in messages[len(rows) :])
    yield from ((old, None) for old in rows[len(messages) :])


def _make_comparable(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a key by which two messages are compared. It is equal for equal messages, even if another program
    formatted their JSON differently.

    Counters and finish reasons are left out, because callers that pass a conversation back often lack them.
    """
    calls = row["tool_calls"]
    return (
        row["role"],
        attachments.make_comparable(row["content"], row["content_kind"]),
        row["tool_call_id"],
        None if calls is None else repr(from_json(calls, calls)),
        row["tool_name"],
    )
