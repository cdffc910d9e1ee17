"""Short summaries and diffs of edits."""

from __future__ import annotations

import difflib

MOST_LINES_COMPARED = 3_000
MOST_LINES_SHOWN = 2_000
CONTEXT = 3
SHOWN = 40
LONGEST_LINE = 200


def summarise_edit(before: str, after: str) -> str:
    """Return a text about an edit: the number of added and removed lines, and the first lines of the diff."""
    if before == after:
        return "nothing changed"
    old, new = before.splitlines(), after.splitlines()
    head = _count_common(old, new)
    tail = _count_common(old[head:][::-1], new[head:][::-1])
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(gone) + len(come) > MOST_LINES_COMPARED:
        return f"+{len(come):,} -{len(gone):,} lines, from line {head + 1:,}"
    around = slice(max(0, head - 2), len(old) - tail + 2), slice(max(0, head - 2), len(new) - tail + 2)
    diff = list(difflib.unified_diff(old[around[0]], new[around[1]], lineterm="", n=2))[3:]
    added = sum(line.startswith("+") for line in diff)
    removed = sum(line.startswith("-") for line in diff)
    lines = [line[:LONGEST_LINE] for line in diff[:SHOWN]]
    if len(diff) > SHOWN:
        lines.append(f"[... {len(diff) - SHOWN:,} more lines of the difference ...]")
    summary = "\n".join([f"+{added} -{removed} lines, near line {head + 1:,}", *lines])
    return summary if diff else "only line ends changed"


def make_diff(path: str, before: str, after: str) -> str:
    """Return a unified diff of an edit for an approval request, up to `MOST_LINES_SHOWN` lines; empty if
    nothing changes."""
    old, new = before.splitlines(), after.splitlines()
    head = max(0, _count_common(old, new) - CONTEXT)
    tail = max(0, _count_common(old[head:][::-1], new[head:][::-1]) - CONTEXT)
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(gone) + len(come) > MOST_LINES_COMPARED:
        lines = [f"--- {path}", f"+++ {path}", *(f"-{line}" for line in gone), *(f"+{line}" for line in come)]
    else:
        lines = list(difflib.unified_diff(gone, come, path, path, lineterm="", n=CONTEXT))
    left_out = len(lines) - MOST_LINES_SHOWN
    if left_out > 0:
        lines[MOST_LINES_SHOWN:] = [f"[... {left_out:,} more lines of the difference ...]"]
    return "\n".join(lines)


def _count_common(first: list[str], second: list[str]) -> int:
    for number, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return number
    return min(len(first), len(second))
