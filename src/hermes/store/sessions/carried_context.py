"""Carried context: messages of earlier sessions in a session's context, as ranges of message ids.

The live context of a session is what a model receives: the carried messages, then the session's own messages,
without rewound ones.

Messages are not copied. The ranges are in the order in which the model receives the messages. Every id in a
range is carried: a range never includes messages that other sessions wrote in between.

A range with a negative position was set aside by a rewind and can be restored. Its position is the time of
the rewind in microseconds, negated. Negative positions close to zero, from earlier versions and imports,
encode no time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from hermes import clock
from hermes.store.content import count_calls, from_json
from hermes.store.engine import Reader, Writer

LIVE = """SELECT m.id FROM carried_context c JOIN messages m ON m.id BETWEEN c.first_message_id AND c.last_message_id
    WHERE c.session_id = ? AND c.position >= 0 ORDER BY c.position, m.id"""
RANGES = """SELECT first_message_id, last_message_id FROM carried_context
    WHERE session_id = ? AND position >= 0 ORDER BY position"""
SET_ASIDE = """SELECT first_message_id, last_message_id FROM carried_context
    WHERE session_id = ? AND position < 0 ORDER BY position"""
OWN = "SELECT id FROM messages WHERE session_id = ? AND active = 1 ORDER BY id"
CARRY = """INSERT INTO carried_context (session_id, position, first_message_id, last_message_id)
    VALUES (?, ?, ?, ?)"""
DROP_LIVE = "DELETE FROM carried_context WHERE session_id = ? AND position >= 0"
REWOUND = """SELECT position, first_message_id, last_message_id FROM carried_context
    WHERE session_id = ? AND position < 0 ORDER BY position"""
DROP_ONE = "DELETE FROM carried_context WHERE session_id = ? AND position = ?"
LOWEST = "SELECT min(position) FROM carried_context WHERE session_id = ?"

SET_ASIDE_SINCE = """SELECT position, first_message_id, last_message_id FROM carried_context
    WHERE session_id = ?1 AND position < 0 AND (position <= ?2 OR position > ?3) ORDER BY position"""
UNTIMED = -(10**12)
"""Negative positions above this value encode no time."""

SPAN = "SELECT min(id), max(id) FROM messages WHERE session_id = ?"
# The sessions that carry messages of a range. `rehome_messages` moves a message to the first of them. Sessions
# with the message in their live context come first, by start time. Sessions that only keep the message for
# undoing a rewind come last.
CARRIERS = """SELECT c.session_id, c.first_message_id, c.last_message_id, c.position FROM carried_context c
    JOIN sessions s ON s.id = c.session_id
    WHERE c.first_message_id <= ? AND c.last_message_id >= ? AND c.session_id <> ?
    ORDER BY c.position < 0, s.started_at, s.id, c.position"""
REHOME = """UPDATE messages SET session_id = ?, active = ?, rewound_at = ?
    WHERE session_id = ? AND id BETWEEN ? AND ?"""
ELSEWHERE = """SELECT m.id FROM messages m JOIN carried_context c
    ON m.id BETWEEN c.first_message_id AND c.last_message_id AND c.session_id <> m.session_id WHERE m.session_id = ?"""
COUNT_OF = "SELECT count(*) FROM messages WHERE session_id = ? AND active = 1"
CALLS_OF = (
    "SELECT role, tool_calls FROM messages WHERE session_id = ? AND active = 1 AND tool_calls IS NOT NULL"
)
SET_COUNTS = "UPDATE sessions SET message_count = ?, tool_call_count = ? WHERE id = ?"


def list_live_ids(reader: Reader, session_id: str) -> list[int]:
    """Return the message ids of a session's live context, in the order in which the model receives the
    messages."""
    carried = [row[0] for row in reader.rows(LIVE, session_id)]
    seen = set(carried)
    return carried + [row[0] for row in reader.rows(OWN, session_id) if row[0] not in seen]


def make_ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Group consecutive ids into (first, last) ranges, in order."""
    result: list[tuple[int, int]] = []
    for message_id in ids:
        if result and result[-1][1] + 1 == message_id:
            result[-1] = (result[-1][0], message_id)
        else:
            result.append((message_id, message_id))
    return result


def carry_messages(writer: Writer, session_id: str, ids: Sequence[int]) -> None:
    """Replace the carried context of a session by the messages `ids`, in this order."""
    writer.run(DROP_LIVE, session_id)
    for position, (first, last) in enumerate(make_ranges(ids)):
        writer.run(CARRY, session_id, position, first, last)


def set_aside_messages(
    writer: Writer, session_id: str, ids: Sequence[int], rewound_at: float | None = None
) -> None:
    """Store the messages `ids` as ranges that are set aside, because a rewind takes them out of the carried
    context of a session. `rewound_at` is the time of the rewind, or None if it is unknown.

    Each later rewind takes out messages that come earlier in the context, and their ranges get lower positions.
    The order of positions is therefore the order of the context.
    """
    runs = make_ranges(ids)
    highest = 0 if rewound_at is None else encode_rewind_time(rewound_at)
    start = min(highest, writer.value(LOWEST, session_id) or 0) - len(runs)
    for position, (first, last) in enumerate(runs, start=start):
        writer.run(CARRY, session_id, position, first, last)


def encode_rewind_time(rewound_at: float) -> int:
    """Return the position of a range that a rewind sets aside. It encodes the time of the rewind: microseconds,
    negated."""
    return -round(rewound_at * 1_000_000)


def _decode_rewind_time(position: int) -> float | None:
    return -position / 1_000_000 if position <= UNTIMED else None


def list_rewind_times(reader: Reader, session_id: str) -> list[float | None]:
    """Return, for each range of carried messages that a rewind of the session has set aside, the time of that
    rewind. The latest comes first. An unknown time is None."""
    return [_decode_rewind_time(position) for position, _first, _last in reader.rows(REWOUND, session_id)]


def restore_set_aside_since(writer: Writer, session_id: str, rewound_at: float) -> list[int]:
    """Delete the ranges of a session that a rewind set aside at `rewound_at`, later, or at an unknown time.
    Return the ids of the messages in these ranges, which the caller adds to the carried context again."""
    back: list[int] = []
    rows = writer.rows(SET_ASIDE_SINCE, session_id, encode_rewind_time(rewound_at), UNTIMED)
    for position, first, last in rows:
        writer.run(DROP_ONE, session_id, position)
        back += range(first, last + 1)
    return back


def restore_set_aside(writer: Writer, session_id: str, since_id: int) -> list[int]:
    """Remove all message ids of `since_id` or higher from the ranges of a session that rewinds have set aside.
    Return these ids, which the caller adds to the carried context again."""
    back: list[int] = []
    for position, first, last in writer.rows(REWOUND, session_id):
        if last >= since_id:
            writer.run(DROP_ONE, session_id, position)
            if first < since_id:
                writer.run(CARRY, session_id, position, first, since_id - 1)
            back += range(max(first, since_id), last + 1)
    return back


def find_carried_elsewhere(reader: Reader, session_id: str) -> set[int]:
    """Return the ids of the session's own messages that another session carries."""
    return {row[0] for row in reader.rows(ELSEWHERE, session_id)}


def rehome_messages(
    writer: Writer, session_id: str, going: Collection[str], span: tuple[int, int] | None = None
) -> None:
    """Move messages of a session to the sessions that carry them, before the session's own rows are deleted.

    `going` lists other sessions that are about to be deleted; no message moves to them. `span` limits the
    move to a range of ids.
    """
    first, last = span or writer.row(SPAN, session_id) or (None, None)
    if first is None or last is None:
        return
    heirs: dict[str, None] = {}
    for carrier, start, end, position in writer.rows(CARRIERS, last, first, session_id):
        if carrier in going:
            continue
        start, end = max(start, first), min(end, last)
        state = (1, None) if position >= 0 else (0, _decode_rewind_time(position) or clock.now())
        if writer.run(REHOME, carrier, *state, session_id, start, end):
            heirs[carrier] = None
    for heir in heirs:
        recount_messages(writer, heir)


def recount_messages(writer: Writer, session_id: str) -> None:
    """Set `message_count` and `tool_call_count` of a session from its own messages that are not rewound."""
    rows = writer.rows(CALLS_OF, session_id)
    calls = sum(count_calls(role, from_json(text, text)) for role, text in rows)
    writer.run(SET_COUNTS, writer.value(COUNT_OF, session_id), calls, session_id)
