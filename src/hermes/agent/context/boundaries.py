"""Where a conversation may be cut: which messages stay as they are, and which go into a summary. Pure functions.

The invariant: a call and its result are on the same side of every cut; the last thing that a person said stays; an
earlier summary goes into the next one, so that there is never more than one; and every message is in one part, in its
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from hermes.agent.context import tokens
from hermes.text import extract_text

Row = dict[str, Any]

MARK = "[CONTEXT COMPACTION — REFERENCE ONLY]"
MARKS = (MARK, "[CONTEXT SUMMARY]:")
"""How a summary begins, ours and what older programs wrote."""

LEAST_TAIL, LEAST_MIDDLE = 3, 2
SOFT = 1.5
"""How far over its budget a part may go to keep the messages that were asked for, or a group whole."""


class CompressionPlan(NamedTuple):
    head: list[Row]
    middle: list[Row]
    """What is summarised, an earlier summary included."""
    kept: list[Row]
    """Behind the summary: the person's last message, if it is older than the rest, and the newest messages."""


def is_summary(row: Row) -> bool:
    """A person may quote one; that is not a summary."""
    return row.get("role") in ("system", "assistant") and extract_text(
        row.get("content")
    ).lstrip().startswith(MARKS)


def find_last_prompt(rows: Sequence[Row]) -> int | None:
    """The place of the last message by a person."""
    return next((at for at in range(len(rows) - 1, -1, -1) if rows[at].get("role") == "user"), None)


def find_cuts(rows: Sequence[Row]) -> list[bool]:
    """For each place, the end included, whether a cut before it leaves every call with its result."""
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
    """Keep about so many messages at each end, within so many tokens each; None if there is little between."""
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
    """Where the newest messages begin that stay as they are, behind an earlier summary."""
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
    """The newest messages that fit, cut where no call loses its result."""
    may_cut, room, start = find_cuts(rows), budget, len(rows)
    while start > 0 and room >= tokens.count_row(rows[start - 1]):
        start -= 1
        room -= tokens.count_row(rows[start])
    while not may_cut[start]:
        start += 1
    return list(rows[start:])


def _find_head_end(sizes: list[int], may_cut: list[bool], summary: int, first: int, budget: int) -> int:
    """Where the oldest messages end, before an earlier summary."""
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
    """The ids of the calls that a message makes."""
    calls = row.get("tool_calls")
    calls = [calls] if isinstance(calls, dict) else calls if isinstance(calls, list) else []
    found = [call.get("id") for call in calls if isinstance(call, dict)]
    return [call_id for call_id in found if isinstance(call_id, str) and call_id]
