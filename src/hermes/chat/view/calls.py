"""Tool calls of a conversation, read from its messages: name, arguments and result.

The functions return plain text. `call_view` renders calls on the screen of the terminal conversation.
`one_shot` and `hermes sessions show` print one line for each call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.message_content import list_tool_calls, read_text
from hermes.reasoning import extract_reasoning
from hermes.store.content import to_json
from hermes.text import format_count, make_printable, reveal

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

Row = dict[str, Any]

TERMINAL, DELEGATE, RECALL = "terminal", "delegate_task", "session_search"
EDITORS = ("write_file", "patch")
READERS = ("read_file", "search_files", "session_search", "skill_view", "skills_list", "todo")
"""Tools that change nothing outside the conversation."""
LONGEST_ARGUMENT = 120
"""The maximum width of an argument, in terminal cells."""
NO_RESULT = "no result recorded; effect unknown"
LINE_END = " ⏎ "

_SELF_EXPLAINING = ("path", "query", "text", "url", "action")
_SHOWN_AS_DIFF = {"write_file": ("content",), "patch": ("old_text", "new_text")}
_EXIT_STATE = re.compile(
    r"(?:\A|\n)\[((?:exit code|ended by|not finished within|the person stopped|running)[^\]\n]*)\]\s*\Z"
)
_SUCCEEDED = re.compile(r"exit code 0(?!\d)")


class Call(NamedTuple):
    name: str
    arguments: Mapping[str, Any]
    output: str | None = None
    """None while the call is running, or if no result was recorded."""
    failed: bool = False
    """Whether the tool itself failed or was stopped. A command with a nonzero exit code has not failed in
    this sense."""
    is_rewound: bool = False
    """Whether the exchange was rewound. A rewind does not undo the effects of the tool."""
    is_thinned: bool = False
    """Whether the middle of the output was removed from the store."""

    @property
    def command(self) -> str | None:
        """The shell command of this call; None if the call is of another tool."""
        command = self.arguments.get("command")
        return command if self.name == TERMINAL and isinstance(command, str) else None

    @property
    def exit_state(self) -> str:
        """The exit state of the shell command of this call, from the last line of its output. Empty if the call
        is of another tool."""
        found = _EXIT_STATE.search(self.output or "") if self.name == TERMINAL else None
        return found[1] if found else ""

    @property
    def succeeded(self) -> bool:
        if self.output is None or self.failed:
            return False
        return not self.exit_state or _SUCCEEDED.match(self.exit_state) is not None

    @property
    def has_started(self) -> bool:
        """Whether the tool of this call began to act. A command that was not approved, for example, has not
        started."""
        return not self.failed or bool(self.exit_state) or not (self.output or "").startswith("error:")

    @property
    def summary(self) -> str:
        """The output of this call as the screen shows it. For subagents, the lines with their final states. For
        `session_search`, a line for each conversation that was found. For other tools, `printed`."""
        if self.name == RECALL and not self.failed:
            return _summarize_recall(self.output or "")
        return _summarize_results(self.output or "") if self.name == DELEGATE else self.printed

    @property
    def printed(self) -> str:
        """The output of this call. For a shell command, the last line, which gives the exit state, is left out."""
        output = self.output or ""
        return _EXIT_STATE.sub("", output) if self.name == TERMINAL else output


class Reasoning(NamedTuple):
    """The reasoning of a model before an answer or a call."""

    text: str


# In one line


def describe_call(name: str, arguments: Mapping[str, Any], *, width_limit: int | None = None) -> str:
    """Return the tool name and the main arguments of a tool call in one line. A shell command is cut only if
    `width_limit` is given."""
    command = arguments.get("command") if name == TERMINAL else None
    others = {key: value for key, value in arguments.items() if key != "command" or command is None}
    parts = [reveal(name), describe_arguments(name, others)]
    if isinstance(command, str):
        parts.append(join_lines(command))
    return make_printable(" ".join(filter(None, parts)), width_limit=width_limit)


def describe_arguments(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call of the tool `name` in one line, each shortened: `src/app.py offset=10`.
    Arguments that the diff of an edit shows are left out."""
    if name == DELEGATE and isinstance(arguments.get("tasks"), list):
        goals = [str(task.get("goal")) if isinstance(task, dict) else "?" for task in arguments["tasks"]]
        text = f"{format_count(len(goals), 'task')}: {'; '.join(goals)}"
        return make_printable(join_lines(text), width_limit=LONGEST_ARGUMENT // 2)
    hidden = _SHOWN_AS_DIFF.get(name, ())
    return " ".join(_describe(key, value) for key, value in arguments.items() if key not in hidden)


def _describe(key: str, value: object) -> str:
    text = value if isinstance(value, str) else to_json(value)
    short = make_printable(join_lines(text), width_limit=LONGEST_ARGUMENT)
    return (
        short
        if key in _SELF_EXPLAINING and isinstance(value, str)
        else f"{make_printable(reveal(key))}={short}"
    )


def join_lines(text: str) -> str:
    """Join the lines of a text into one line, with a visible mark at each line end."""
    return LINE_END.join(reveal(text).strip("\n").split("\n"))


def _summarize_results(output: str) -> str:
    """Return the lines of a `delegate_task` result that are outside fenced blocks. They describe the
    subagents."""
    lines: list[str] = []
    fence: str | None = None
    for line in output.split("\n"):
        opening = re.fullmatch(r"(`{3,})[a-z-]*", line)
        if fence is not None:
            fence = None if line == fence else fence
        elif opening is not None:
            fence = opening[1]
        elif line.startswith(("Subagent ", "No answer: ", "error: ")):
            lines.append(line)
    return "\n".join(lines) or output


def _summarize_recall(output: str) -> str:
    """Return a line for each conversation that `session_search` found: `title · date · snippet`. Any other
    output is returned unchanged."""
    from hermes.recall.snippets.goals import CLOSE, OPEN  # lazy: only this function needs it

    answer = _read_json(output)
    found = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        return output
    lines = []
    for row in found:
        title = row.get("title") or row.get("preview") or row.get("session_id")
        snippet = str(row.get("snippet") or "").replace(OPEN, "").replace(CLOSE, "")
        parts = (str(title), str(row.get("last_active") or "")[:10], join_lines(snippet))
        lines.append(make_printable(" · ".join(filter(None, parts)), width_limit=LONGEST_ARGUMENT))
    return "\n".join(lines) or "nothing found"


def _read_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# From stored messages


def collect_outputs(rows: Iterable[Row]) -> list[Call | Reasoning]:
    """Return the tool calls and the reasoning in `messages`, in the order of the messages. Each call includes
    its result."""
    outputs: list[Call | Reasoning] = []
    waiting: dict[str, int] = {}
    copied: set[tuple[str, str]] = set()
    for row in rows:
        if row.get("role") == "tool":
            at = waiting.pop(str(row.get("tool_call_id") or ""), None)
            if at is not None and isinstance(call := outputs[at], Call):
                outputs[at] = _attach_result(call, row)
            continue
        if row.get("active", 1) and (reasoning := extract_reasoning(row)):
            outputs.append(Reasoning(reasoning))
        for call_id, call in read_calls(row.get("tool_calls")):
            # Other programs copy messages into the continuation after a compression. The copies have no uid.
            key = (call_id, repr(call.arguments))
            if row.get("uid", "") is None and key in copied:
                continue
            copied.add(key)
            waiting[call_id] = len(outputs)
            outputs.append(call._replace(is_rewound=not row.get("active", 1)))
    return outputs


def _attach_result(call: Call, row: Row) -> Call:
    from hermes.agent.turn import STOPPED  # lazy: imports asyncio, which describing a call does not need

    output = read_text(row.get("content"))
    ended = call._replace(output=output, is_thinned=bool(row.get("thinned_bytes")))
    failed = output == STOPPED or (output.startswith("error:") and not ended.exit_state)
    return ended._replace(failed=failed)


def read_calls(tool_calls: object) -> Iterator[tuple[str, Call]]:
    """Yield (call id, call) for each tool call of an assistant message. The formats in which other programs
    store calls are accepted too."""
    for call_id, name, arguments in list_tool_calls(tool_calls):
        if name:
            yield call_id, Call(name, _read_arguments(arguments))


def _read_arguments(raw: object) -> Mapping[str, Any]:
    if isinstance(raw, str):
        read = _read_json(raw) if raw.strip() else {}
        return read if isinstance(read, dict) else {"arguments": raw}
    return raw if isinstance(raw, dict) else {}


def read_tool_rows(db: SessionDB, session_id: str) -> list[Row]:
    """Return the messages of a stored conversation that have tool calls, tool results or reasoning, in order.

    They include messages before a compression and the messages of the parent conversation up to the branch.
    They also include rewound exchanges, because a rewind does not undo the effects of a tool.
    """
    from hermes.export.ancestry import read_ancestors

    segments = [
        [
            row
            for row in session["messages"]
            if row["tool_calls"] or row["role"] == "tool" or extract_reasoning(row)
        ]
        for session in read_ancestors(db, session_id)
    ]
    return [row for segment in reversed(segments) for row in segment]
