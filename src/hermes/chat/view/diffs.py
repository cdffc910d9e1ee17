"""Unified diffs as text: classify lines, count changes, compare two texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum

from hermes.text import reveal

MOST_LINES_COMPARED = 3_000

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class Kind(Enum):
    FILE = "file"
    HUNK = "hunk"
    ADDED = "added"
    REMOVED = "removed"
    CONTEXT = "context"


def classify_lines(diff: str) -> Iterator[tuple[Kind, str]]:
    """Yield each line of a unified diff with its kind, and with hidden characters made visible. Lines within a
    hunk are never classified as file headings."""
    lines = reveal(diff).split("\n") if diff else []
    if lines and not lines[-1]:
        lines.pop()
    old = new = 0  # remaining lines of the hunk, according to its heading
    for number, line in enumerate(lines):
        if old <= 0 and new <= 0 and _is_file_heading(lines, number):
            yield Kind.FILE, line
        elif found := _HUNK.match(line):
            old, new = (int(count) if count else 1 for count in found.groups())
            yield Kind.HUNK, line
        elif line.startswith("+"):
            new -= 1
            yield Kind.ADDED, line
        elif line.startswith("-"):
            old -= 1
            yield Kind.REMOVED, line
        else:
            old, new = old - 1, new - 1
            yield Kind.CONTEXT, line


def _is_file_heading(lines: list[str], number: int) -> bool:
    """Return whether the line with the index `number` is one of the two lines before a hunk that name the file
    (`---` and `+++`)."""
    first = number if lines[number].startswith("--- ") else number - 1
    if first < 0 or first + 2 >= len(lines):
        return False
    marks = ("--- ", "+++ ", "@@ ")
    return all(line.startswith(mark) for line, mark in zip(lines[first : first + 3], marks, strict=True))


def count_changes(diff: str) -> tuple[int, int]:
    """Return the number of added lines and the number of removed lines of a unified diff."""
    kinds = [kind for kind, _ in classify_lines(diff)]
    return kinds.count(Kind.ADDED), kinds.count(Kind.REMOVED)


def compare(before: str, after: str) -> str:
    """Return the hunks of a unified diff from `before` to `after`. If the two texts are very long, they are not
    compared: return all lines of `before` as removed, then all lines of `after` as added."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > MOST_LINES_COMPARED:
        return "\n".join([*(f"-{line}" for line in old), *(f"+{line}" for line in new)])
    from difflib import unified_diff

    return "\n".join(list(unified_diff(old, new, lineterm="", n=2))[3:])


def format_counts(added: int, removed: int) -> str:
    """Format the numbers of added and removed lines: `+40 −12`."""
    return f"+{added:,} −{removed:,}"
