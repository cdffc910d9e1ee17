"""Boundaries of a compression: which messages stay and which are summarised. Pure functions.

Invariants: a call and its result are on the same side of every cut. The last message by a person stays. An
earlier summary becomes part of the new one, so a context never contains more than one summary. Every message
is in exactly one part, and the order is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from hermes.agent.context import tokens
from hermes.message_content import read_text

Row = dict[str, Any]

MARK = "[CONTEXT COMPACTION — REFERENCE ONLY]"
MARKS = (MARK, "[CONTEXT SUMMARY]:")
"""The texts with which a summary can begin. Summaries written by older programs begin with the second
text."""

LEAST_TAIL, LEAST_MIDDLE = 3, 2
"""The number of newest messages that are kept regardless of their size, and the minimum number of messages to
summarise."""
SOFT = 1.5
"""The factor by which the head and the tail may exceed their token budget. They may exceed it to keep a
protected message, or to keep a call together with its result."""


class CompressionPlan(NamedTuple):
    head: list[Row]
    """The oldest messages, which are kept before the summary."""
    middle: list[Row]
    """The messages to summarise, including an earlier summary."""
    kept: list[Row]
    """The messages after the summary. These are the newest messages. If the person's last message is older
    than all of them and not in `head`, it is put before them."""


def is_summary(row: Row) -> bool:
    """Return whether a message is a summary. A message by a person that quotes a summary is not one."""
    if row.get("role") not in ("system", "assistant"):
        return False
    return read_text(row.get("content")).lstrip().startswith(MARKS)


def find_last_prompt(rows: Sequence[Row]) -> int | None:
    """Return the index of the last message by a person; None if there is none."""
    return next((at for at in range(len(rows) - 1, -1, -1) if rows[at].get("role") == "user"), None)


def find_cuts(rows: Sequence[Row]) -> list[bool]:
    """Return a list that says where the rows can be cut without separating a tool call from its result. The item at
    index `i` is True if a cut before row `i` is possible. The last item stands for a cut after the last row."""
    depth = [0] * (len(rows) + 1)
    waiting: dict[str, tuple[int, int]] = {}
    for at, row in enumerate(rows):
        if row.get("role") == "assistant":
            for call_id in list_call_ids(row):
                made_at, open_calls = waiting.get(call_id, (at, 0))
                waiting[call_id] = (at, open_calls + 1 if made_at == at else 1)
        elif row.get("role") == "tool":
            made_at, open_calls = waiting.get(str(row.get("tool_call_id")), (at, 0))
            if open_calls:
                waiting[str(row["tool_call_id"])] = (made_at, open_calls - 1)
                depth[made_at + 1] += 1
                depth[at + 1] -= 1
    return [inside == 0 for inside in accumulate(depth)]


def plan_compression(rows: Sequence[Row], *, first: int, last: int, budget: int) -> CompressionPlan | None:
    """Return a plan: which messages a compression keeps and which it summarises.

    About `first` of the oldest and `last` of the newest messages are kept, each group within `budget` tokens. The
    messages between the two groups are summarised. Return None if these are too few.
    """
    earlier = next((at for at, row in enumerate(rows) if is_summary(row)), len(rows))
    start = find_tail_start(rows, last=last, budget=budget)
    end = min(
        start,
        _find_head_end([tokens.count_row(row) for row in rows], find_cuts(rows), earlier, first, budget),
    )
    prompt = find_last_prompt(rows)
    unanswered = [prompt] if prompt is not None and end <= prompt < start else []
    middle = [rows[at] for at in range(end, start) if at not in unanswered]
    if sum(not is_summary(row) for row in middle) < LEAST_MIDDLE:
        return None
    return CompressionPlan(list(rows[:end]), middle, [*(rows[at] for at in unanswered), *rows[start:]])


def find_tail_start(rows: Sequence[Row], *, last: int, budget: int) -> int:
    """Return the index of the first message of the tail, which a compression keeps unchanged.

    The tail has at least `LEAST_TAIL` messages. Up to `last` messages, it may exceed `budget` tokens by the
    factor `SOFT`; beyond that, it stays within `budget`. It never includes an earlier summary.
    """
    sizes, may_cut = [tokens.count_row(row) for row in rows], find_cuts(rows)
    earlier = max((at for at, row in enumerate(rows) if is_summary(row)), default=-1)
    start, total = len(rows), 0
    for at in range(len(rows) - 1, earlier, -1):
        total += sizes[at]
        count = len(rows) - at
        if count > LEAST_TAIL and total > (budget * SOFT if count <= last else budget):
            break
        start = at
    before = next(at for at in range(start, -1, -1) if may_cut[at])
    after = next(at for at in range(start, len(may_cut)) if may_cut[at])
    too_large = sum(sizes[before:]) > budget * SOFT
    return after if before <= earlier or (too_large and after < len(rows)) else before


def take_tail(rows: Sequence[Row], budget: int) -> list[Row]:
    """Return the newest messages that fit into `budget` tokens. A call and its result are either both
    included or both left out."""
    may_cut, room, start = find_cuts(rows), budget, len(rows)
    while start > 0 and room >= tokens.count_row(rows[start - 1]):
        start -= 1
        room -= tokens.count_row(rows[start])
    while not may_cut[start]:
        start += 1
    return list(rows[start:])


def _find_head_end(sizes: list[int], may_cut: list[bool], summary: int, first: int, budget: int) -> int:
    """Return the index of the first message after the head, that is, after the oldest messages that a compression
    keeps.

    The head has about `first` messages within about `budget` tokens. `sizes` are the tokens of each message.
    `may_cut` is the result of `find_cuts`. `summary` is the index of an earlier summary, which the head never
    includes.
    """
    end, total = 0, 0
    for at in range(min(first, summary)):
        total += sizes[at]
        if total > budget:
            break
        end = at + 1
    before = next(at for at in range(end, -1, -1) if may_cut[at])
    after = next(at for at in range(end, len(may_cut)) if may_cut[at])
    fits = after <= summary and sum(sizes[:after]) <= budget * SOFT
    return after if fits else before


def list_call_ids(row: Row) -> list[str]:
    """Return the ids of the tool calls in a message."""
    calls = row.get("tool_calls")
    calls = [calls] if isinstance(calls, dict) else calls if isinstance(calls, list) else []
    found = [call.get("id") for call in calls if isinstance(call, dict)]
    return [call_id for call_id in found if isinstance(call_id, str) and call_id]
