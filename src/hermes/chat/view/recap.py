"""The recap of a resumed conversation, and the farewell. Pure functions of message rows.

An exchange is a message of a person with all messages that follow it. The recap shows the last ten exchanges
and the number of earlier messages. It omits system messages, tool results and reasoning. The last answer is
shown in full. A final line lists open matters: an unfinished turn, an error, to-do items, a question.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hermes.agent.models.finish_reasons import LENGTH, normalize_reason
from hermes.agent.tools.todo import Todo, parse_items
from hermes.message_content import INTERRUPTED, PARTIAL, list_tool_calls, omit_attached, read_text
from hermes.text import make_printable, spell_controls

Row = dict[str, Any]

MOST_EXCHANGES = 10
MOST_OF_PERSON = 300
MOST_OF_ANSWER, MOST_LINES = 200, 3
"""The length limits of all answers except the last one, in characters and in lines."""
MOST_NAMES = 4
"""The maximum number of tool names in a list."""
MOST_OPEN = 120
"""The width limit of each quotation in the line of open matters."""


class Entry(NamedTuple):
    role: str
    """`user` or `assistant`."""
    text: str
    is_last: bool = False
    """Whether this is the last answer, which is shown in full."""


class Recap(NamedTuple):
    earlier: int
    """The number of messages before the first message shown."""
    entries: list[Entry]
    open: str | None
    """The open matters, in one line. None if there are none."""


def make_recap(rows: Sequence[Row]) -> Recap:
    exchanges = _split_exchanges(rows)
    recent = exchanges[-MOST_EXCHANGES:]
    earlier = sum(1 for exchange in exchanges[:-MOST_EXCHANGES] for row in exchange if _is_visible(row))
    spoken = [row for exchange in recent for row in exchange if _is_visible(row)]
    last = next((row for row in reversed(spoken) if row["role"] == "assistant"), None)
    return Recap(earlier, list(_make_entries(spoken, last)), describe_open(rows))


def _split_exchanges(rows: Sequence[Row]) -> list[list[Row]]:
    """Split the messages of a conversation into exchanges. Visible messages before the person's first message
    form an exchange of their own."""
    exchanges: list[list[Row]] = []
    for row in rows:
        if row.get("role") == "user" or not exchanges:
            exchanges.append([])
        exchanges[-1].append(row)
    return [exchange for exchange in exchanges if any(_is_visible(row) for row in exchange)]


def _is_visible(row: Row) -> bool:
    if row.get("role") == "user":
        return bool(format_row_text(row).strip())
    return row.get("role") == "assistant" and bool(format_row_text(row).strip() or list_call_names(row))


def _make_entries(spoken: Sequence[Row], last: Row | None) -> Iterator[Entry]:
    """Yield what the recap shows for the messages `spoken`. Consecutive answers that only call tools are shown
    together as one entry. `last` is the last answer of the conversation, which is shown in full."""
    waiting: list[str] = []
    waiting_last = False
    for row in spoken:
        text, names = format_row_text(row).strip(), list_call_names(row)
        if waiting and (row["role"] == "user" or text):
            yield Entry("assistant", format_call_names(waiting), waiting_last)
            waiting = []
        if row["role"] == "user":
            yield Entry("user", _cut(text, MOST_OF_PERSON))
        elif text:
            whole = row is last
            excerpt = text if whole else _cut(_limit_lines(text), MOST_OF_ANSWER)
            yield Entry("assistant", "\n".join(filter(None, (excerpt, format_call_names(names)))), whole)
        else:
            waiting, waiting_last = waiting + names, row is last
    if waiting:
        yield Entry("assistant", format_call_names(waiting), waiting_last)


def format_row_text(row: Row) -> str:
    """Return the text of a message for the screen. A placeholder replaces each picture. Reasoning and the
    content of attached files are omitted."""
    content = omit_attached(row.get("content")) if row.get("role") == "user" else row.get("content")
    return spell_controls(read_text(content, row.get("role"), detail="words and pictures"))


def list_call_names(row: Row) -> list[str]:
    return [make_printable(call.name) for call in list_tool_calls(row.get("tool_calls")) if call.name]


def format_call_names(names: Sequence[str]) -> str:
    """Format the names of tool calls: `[3 tool calls: terminal, web_search]`. Empty if there are none."""
    if not names:
        return ""
    distinct = list(dict.fromkeys(names))
    listed = ", ".join([*distinct[:MOST_NAMES], *(["..."] if len(distinct) > MOST_NAMES else [])])
    return f"[{len(names)} tool call{'' if len(names) == 1 else 's'}: {listed}]"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _limit_lines(text: str) -> str:
    lines = text.splitlines()
    return text if len(lines) <= MOST_LINES else "\n".join(lines[:MOST_LINES]) + " ..."


# Open matters


def describe_open(rows: Sequence[Row]) -> str | None:
    spoken = [row for row in rows if row.get("role") in ("user", "assistant", "tool")]
    notes = [
        note
        for note in (_describe_unfinished(spoken), _describe_failure(spoken), _describe_to_do(spoken))
        if note
    ]
    return " · ".join(notes) or None


def _describe_unfinished(spoken: Sequence[Row]) -> str | None:
    """Return a text that says how the last turn in the messages `spoken` ended, if the person should react to
    it. Otherwise return None."""
    last = spoken[-1] if spoken else {}
    text = make_printable(format_row_text(last).strip())
    if last.get("role") == "user":
        return f"not answered yet: {_shorten(text)}"
    if last.get("role") == "tool":
        return "the last turn ended before it gave an answer"
    if list_call_names(last):
        return f"the last turn ended before {', '.join(dict.fromkeys(list_call_names(last)))} was done"
    if last.get("finish_reason") == INTERRUPTED:
        return "the last answer was stopped"
    if last.get("finish_reason") == PARTIAL:
        return "the last answer is cut off, because the program ended"
    reason = normalize_reason(last.get("finish_reason"))
    if reason is not None:
        return "the last answer stopped at " + (
            "the model's length limit" if reason == LENGTH else "the provider's content filter"
        )
    if text.endswith(("?", "\uff1f", "\u061f")):
        question = re.split(r"(?<=[.!?\u3002])\s+", text)[-1]
        return f"Hermes asked: {_shorten(question)}"
    return None


def _describe_failure(spoken: Sequence[Row]) -> str | None:
    """Return a text about the last tool result in the messages `spoken`, if it is an error. Otherwise return
    None."""
    last = next((row for row in reversed(spoken) if row.get("role") == "tool"), None)
    text = make_printable(format_row_text(last).strip()) if last is not None else ""
    if last is None or not text.lower().startswith(("error:", "error ", "traceback")):
        return None
    return f"last error ({make_printable(str(last.get('tool_name') or 'tool'))}): {_shorten(text)}"


def _describe_to_do(spoken: Sequence[Row]) -> str | None:
    """Describe the unfinished to-do items; return None if there are none. The to-do list is the last result
    of the todo tool."""
    last = next((row for row in reversed(spoken) if row.get("tool_name") == Todo.name), {})
    items = parse_items(format_row_text(last))
    undone = [item for item in items if item.status != "completed"]
    if not undone:
        return None
    doing = next((item for item in undone if item.status == "in_progress"), undone[0])
    return f"{len(undone)} of {len(items)} to do, at: {_shorten(doing.content)}"


def _shorten(text: str) -> str:
    return make_printable(text, width_limit=MOST_OPEN)


def format_farewell(
    session_id: str, title: str | None, seconds: float, rows: Sequence[dict[str, Any]]
) -> list[str]:
    """Return the lines of the farewell. `rows` are the messages of the conversation. Without messages, the
    farewell does not say how to resume the conversation."""
    if not rows:
        return ["Goodbye."]
    by_person = sum(1 for row in rows if row.get("role") == "user")
    of_tools = sum(1 for row in rows if row.get("role") == "tool" or row.get("tool_calls"))
    lines = ["Resume this session with:", f"  hermes --resume {session_id}"]
    if title:
        lines.append(f"  hermes -c {quote_title(make_printable(title))}")
    lines += ["", f"Session:  {session_id}"]
    if title:
        lines.append(f"Title:    {make_printable(title)}")
    lines.append(f"Duration: {format_duration(seconds)}")
    lines.append(f"Messages: {len(rows)} ({by_person} user, {of_tools} tool calls)")
    return lines


def format_duration(seconds: float) -> str:
    """Format a duration: `1h 2m 3s`, `2m 3s` or `3s`."""
    whole = max(0, int(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}h {minutes}m {rest}s"
    return f"{minutes}m {rest}s" if minutes else f"{rest}s"


def quote_title(title: str) -> str:
    """Quote a title for a shell. Double quotes are used if the title has no characters that are special
    within them."""
    return shlex.quote(title) if any(char in title for char in '"$`\\!') else f'"{title}"'
