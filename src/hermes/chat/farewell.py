"""What a person is told when they leave: how to come back, and what there was."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from hermes.text import make_printable

GOODBYE = "Goodbye."


def farewell(session_id: str, title: str | None, seconds: float, rows: Sequence[dict[str, Any]]) -> list[str]:
    """`rows` are the messages of the conversation; without any there is nothing to come back to."""
    if not rows:
        return [GOODBYE]
    by_person = sum(1 for row in rows if row.get("role") == "user")
    of_tools = sum(1 for row in rows if row.get("role") == "tool" or row.get("tool_calls"))
    lines = ["Resume this session with:", f"  hermes --resume {session_id}"]
    if title:
        lines.append(f"  hermes -c {quoted(make_printable(title))}")
    lines += ["", f"Session:  {session_id}"]
    if title:
        lines.append(f"Title:    {make_printable(title)}")
    lines.append(f"Duration: {duration(seconds)}")
    lines.append(f"Messages: {len(rows)} ({by_person} user, {of_tools} tool calls)")
    return lines


def duration(seconds: float) -> str:
    """`1h 2m 3s`, `2m 3s`, `3s`."""
    whole = max(0, int(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}h {minutes}m {rest}s"
    return f"{minutes}m {rest}s" if minutes else f"{rest}s"


def quoted(title: str) -> str:
    """As a shell takes it; in double quotes, as people write them, where nothing in it means something there."""
    return shlex.quote(title) if any(char in title for char in '"$`\\!') else f'"{title}"'
