"""Edits of files, read from tool calls: the path, the line counts, and a unified diff.

The diff comes from the tool's output. If the output was cut, the diff is made from the arguments of the call
as far as possible.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from hermes.chat.view.calls import EDITORS, NO_RESULT, Call
from hermes.chat.view.diffs import compare, count_changes

_HEAD = re.compile(
    r"(?P<path>.+): (?P<action>(?:created|replaced|nothing changed|only line ends changed|[\d,]+ places changed"
    r"|\+[\d,]+ -[\d,]+ lines).*)"
)
_COUNTS = re.compile(r"\+([\d,]+) -([\d,]+) lines")
_CUT = re.compile(
    r"(?m)^\[\.\.\. [\d,]+ (?:more lines of the difference|characters left out) \.\.\.\]$"
    r"|^\[… [\d,]+ bytes of tool output dropped on .*\]$"
)


LONGEST_LINE = 200
"""The maximum length of a line in stored diffs, in characters."""


class Edit(NamedTuple):
    path: str
    action: str
    """`created`, `replaced`, `changed` or `written`, or the tool's own text if nothing changed."""
    added: int
    removed: int
    diff: str
    note: str = ""
    """A line that says why the diff is incomplete, or that the call has no recorded result. Otherwise
    empty."""
    new_text: str | None = None
    """The whole new text of the file, if the diff does not contain it."""
    is_rewound: bool = False


def read_edit(call: Call) -> Edit | None:
    """Return the edit that a tool call made to a file, even if the result of the call is unknown. Return None
    if the tool edits no files or the call failed."""
    path, arguments = call.arguments.get("path"), call.arguments
    if call.name not in EDITORS or call.failed or not isinstance(path, str):
        return None
    head, _, body = (call.output or "").partition("\n")
    found = _HEAD.match(head)
    action = found["action"] if found else ""
    cut = call.output is None or call.is_thinned or _is_cut(body)
    note, new_text = "", None
    if body.strip() and not cut:
        diff = body
    elif call.name == "write_file" and (action.startswith("created") or call.output is None):
        diff = _format_added(_get_text(arguments, "content"))
    elif call.name == "patch" and _is_partial(action, cut, body):
        diff = compare(_get_text(arguments, "old_text"), _get_text(arguments, "new_text"))
        note = "the position in the file is not known: the difference was made from the arguments of the call"
    else:
        diff = body
        if _is_partial(action, cut, body):
            note, new_text = "only a part of the difference is stored", _get_text(arguments, "content")
    added, removed = _count_lines(action, diff)
    return Edit(
        found["path"] if found else path,
        _describe_action(call, action),
        added,
        removed,
        diff,
        NO_RESULT if call.output is None else note,
        new_text,
        call.is_rewound,
    )


def _format_added(text: str) -> str:
    return "\n".join(f"+{line}" for line in text.splitlines())


def _is_cut(body: str) -> bool:
    """Return whether the tool omitted or shortened lines in `body`, the diff in its output. The tool does not
    mark a shortened line; the line is recognised by its length."""
    return _CUT.search(body) is not None or any(len(line) == LONGEST_LINE for line in body.split("\n"))


def _is_partial(action: str, cut: bool, body: str) -> bool:
    """Return whether `body`, the diff in the output of the tool, lacks some of the changed lines. This is so if
    the diff was cut (`cut`), or if it is empty although, according to `action`, something was changed. `action`
    is the line in which the tool says what it did."""
    return cut or (not body.strip() and not action.startswith(("nothing", "only line ends")))


def _describe_action(call: Call, action: str) -> str:
    if action.startswith(("created", "replaced")):
        return action.split(",")[0].split(";")[0]
    if action.startswith(("nothing", "only line ends")):
        return action
    return "changed" if call.name == "patch" else "written"


def _count_lines(action: str, diff: str) -> tuple[int, int]:
    """Return the number of lines that an edit added, and the number that it removed. The numbers in `action`,
    the line in which the tool says what it did, are preferred. They include lines that the tool omitted from
    the diff."""
    counts = _COUNTS.search(action)
    if counts:
        return int(counts[1].replace(",", "")), int(counts[2].replace(",", ""))
    return count_changes(diff)


def _get_text(arguments: Any, name: str) -> str:
    value = arguments.get(name)
    return value if isinstance(value, str) else ""
