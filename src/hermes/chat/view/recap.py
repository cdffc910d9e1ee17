"""What was said before, in short, for somebody who comes back: a pure function from rows to lines of a panel.

An exchange is one message of a person with all that follows it. The last ten are shown, and how much came before;
system messages, tool results and reasoning are not. The last answer is shown in full. Then one line tells what was left
open: an unfinished turn, an error, a list of things to do, a question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hermes.agent.models.finish_reasons import LENGTH, normalize_reason
from hermes.agent.tools.todo import Todo, parse_items
from hermes.reasoning import split_reasoning
from hermes.text import make_printable, spell_controls

Row = dict[str, Any]

MOST_EXCHANGES = 10
MOST_OF_PERSON = 300
MOST_OF_ANSWER, MOST_LINES = 200, 3
MOST_NAMES = 4
MOST_OPEN = 120

_IMAGES = ("image", "image_url", "input_image")


class Entry(NamedTuple):
    role: str
    """`user` or `assistant`."""
    text: str
    is_last: bool = False
    """The last answer, which stands there in full."""


class Recap(NamedTuple):
    earlier: int
    """Messages before those that are shown."""
    entries: list[Entry]
    open: str | None
    """What was left open, in one line."""


def recap(rows: Sequence[Row]) -> Recap:
    exchanges = _exchanges(rows)
    shown = exchanges[-MOST_EXCHANGES:]
    earlier = sum(1 for exchange in exchanges[:-MOST_EXCHANGES] for row in exchange if _is_shown(row))
    spoken = [row for exchange in shown for row in exchange if _is_shown(row)]
    last = next((row for row in reversed(spoken) if row["role"] == "assistant"), None)
    return Recap(earlier, list(_entries(spoken, last)), left_open(rows))


def _exchanges(rows: Sequence[Row]) -> list[list[Row]]:
    """What stands before the first message of a person, if there is something to show, is an exchange, too."""
    made: list[list[Row]] = []
    for row in rows:
        if row.get("role") == "user" or not made:
            made.append([])
        made[-1].append(row)
    return [exchange for exchange in made if any(_is_shown(row) for row in exchange)]


def _is_shown(row: Row) -> bool:
    if row.get("role") == "user":
        return bool(said(row).strip())
    return row.get("role") == "assistant" and bool(said(row).strip() or names_of_calls(row))


def _entries(spoken: Sequence[Row], last: Row | None) -> Iterator[Entry]:
    """Neighbouring answers that only call tools are one."""
    waiting: list[str] = []
    waiting_last = False
    for row in spoken:
        text, names = said(row).strip(), names_of_calls(row)
        if waiting and (row["role"] == "user" or text):
            yield Entry("assistant", collapsed(waiting), waiting_last)
            waiting = []
        if row["role"] == "user":
            yield Entry("user", _cut(text, MOST_OF_PERSON))
        elif text:
            whole = row is last
            shown = text if whole else _cut(_few_lines(text), MOST_OF_ANSWER)
            yield Entry("assistant", "\n".join(filter(None, (shown, collapsed(names)))), whole)
        else:
            waiting, waiting_last = waiting + names, row is last
    if waiting:
        yield Entry("assistant", collapsed(waiting), waiting_last)


def said(row: Row) -> str:
    """The words of a message; pictures are only named, and what a model thought is left out."""
    content = row.get("content")
    if isinstance(content, list):
        content = "\n".join(_part(part) for part in content)
    if not isinstance(content, str):
        return ""
    return spell_controls(split_reasoning(content).answer if row.get("role") == "assistant" else content)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    if part.get("type") in _IMAGES:
        return "[image]"
    text = part.get("text")
    return text if isinstance(text, str) else ""


def names_of_calls(row: Row) -> list[str]:
    calls = row.get("tool_calls")
    if isinstance(calls, dict):
        calls = [calls]
    return [_name(call) for call in calls or () if isinstance(call, dict)]


def _name(call: dict[str, Any]) -> str:
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    return make_printable(str(inner.get("name") or "?"))


def collapsed(names: Sequence[str]) -> str:
    """`[3 tool calls: terminal, web_search]`; nothing for none."""
    if not names:
        return ""
    distinct = list(dict.fromkeys(names))
    shown = ", ".join([*distinct[:MOST_NAMES], *(["..."] if len(distinct) > MOST_NAMES else [])])
    return f"[{len(names)} tool call{'' if len(names) == 1 else 's'}: {shown}]"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _few_lines(text: str) -> str:
    lines = text.splitlines()
    return text if len(lines) <= MOST_LINES else "\n".join(lines[:MOST_LINES]) + " ..."


# What was left open


def left_open(rows: Sequence[Row]) -> str | None:
    spoken = [row for row in rows if row.get("role") in ("user", "assistant", "tool")]
    told = [one for one in (_unfinished(spoken), _failed(spoken), _to_do(spoken)) if one]
    return " · ".join(told) or None


def _unfinished(spoken: Sequence[Row]) -> str | None:
    """How the last turn ended, if it did not end with an answer that asks for nothing."""
    last = spoken[-1] if spoken else {}
    text = make_printable(said(last).strip())
    if last.get("role") == "user":
        return f"not answered yet: {_short(text)}"
    if last.get("role") == "tool":
        return "the last turn ended while it was at work"
    if names_of_calls(last):
        return f"the last turn ended before {', '.join(dict.fromkeys(names_of_calls(last)))} was done"
    if last.get("finish_reason") == "interrupted":
        return "the last answer was stopped"
    reason = normalize_reason(last.get("finish_reason"))
    if reason is not None:
        return "the last answer stopped at " + (
            "the model's length limit" if reason == LENGTH else "the provider's content filter"
        )
    if text.endswith(("?", "\uff1f", "\u061f")):
        question = re.split(r"(?<=[.!?\u3002])\s+", text)[-1]
        return f"Hermes asked: {_short(question)}"
    return None


def _failed(spoken: Sequence[Row]) -> str | None:
    """The last result of a tool, if it is an error."""
    last = next((row for row in reversed(spoken) if row.get("role") == "tool"), None)
    text = make_printable(said(last).strip()) if last is not None else ""
    if last is None or not text.lower().startswith(("error:", "error ", "traceback")):
        return None
    return f"last error ({make_printable(str(last.get('tool_name') or 'tool'))}): {_short(text)}"


def _to_do(spoken: Sequence[Row]) -> str | None:
    """What of the list of things to do is not done; the list is the last result of its tool."""
    last = next((row for row in reversed(spoken) if row.get("tool_name") == Todo.name), {})
    items = parse_items(said(last))
    undone = [item for item in items if item.status != "completed"]
    if not undone:
        return None
    doing = next((item for item in undone if item.status == "in_progress"), undone[0])
    return f"{len(undone)} of {len(items)} to do, at: {_short(doing.content)}"


def _short(text: str) -> str:
    return make_printable(text, width_limit=MOST_OPEN)
