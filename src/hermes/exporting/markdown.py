"""Markdown: a document per conversation, to read, keep and search with anything.

Told are title, facts, and what was said with its time, tool calls and their complete results included. Not told are
the model's reasoning, the system prompt, and what a rewind took back: JSONL has them. All sessions of a conversation
follow each other; what a continuation carries over was said before and is not repeated.

What was said is Markdown already, mostly, and stays so. Only what would break out of its place is changed: headings go
two levels down, a code block that was left open is closed, tags are shown instead of obeyed, and so are underlines
that would make a heading of the text above.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hermes.exporting.plan import Conversation, Load, Session
from hermes.exporting.said import Part, calls_of, indented, is_said, parts_of, role_of, text_of_parts, when
from hermes.text import printable, readable

RULE = "\n---\n\n"
"""What stands between two documents in one file."""

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~])")
_FENCE = re.compile(r"^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}(?!.*`)|~{3,})(.*)$")
_HEADING = re.compile(r"^( {0,3})(#{1,6})(?=[ \t]|$)")
_UNDERLINE = re.compile(r"^( {0,3})(=+|-+)[ \t]*$")
_TICKS = re.compile("`+")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def write(conversations: Sequence[Conversation], load: Load) -> Iterator[str]:
    between = ""
    for conversation in conversations:
        told = False
        for segment in conversation.segments:
            session = load(segment.id)
            if session is None:
                continue
            yield _continued(session) if told else between + _head(conversation, session)
            for message in session["messages"]:
                if is_said(message):
                    yield _message(message)
            told = True
        between = RULE if told else between


def _head(conversation: Conversation, session: Session) -> str:
    segments = conversation.segments
    facts = [
        (
            "Source",
            " · ".join(_plain(session.get(name)) for name in ("source", "model") if session.get(name)),
        ),
        ("Started", when(conversation.started_at)),
        ("Last active", when(conversation.last_active)),
        ("Workspace", _plain(session.get("workspace"))),
        ("Tags", ", ".join(map(_plain, session.get("tags") or []))),
        ("Came out of", _origin(session)),
        ("Session" if len(segments) == 1 else "Sessions", ", ".join(_code(one.id) for one in segments)),
    ]
    lines = [f"- **{name}:** {told}" for name, told in facts if told]
    return "\n".join([f"# {_plain(conversation.heading)}", "", *lines, ""])


def _origin(session: Session) -> str:
    parent = session.get("parent_session_id")
    return f"{_code(parent)} ({_plain(session.get('relation') or 'child')})" if parent else ""


def _continued(session: Session) -> str:
    return f"\n*Continued in {_code(session['id'])} from {when(session['started_at'])}*\n"


def _message(message: dict[str, Any]) -> str:
    role = role_of(message)
    tool = _plain(message.get("tool_name"))
    who = f"{role} · {tool}" if message["role"] == "tool" and tool else _plain(role)
    parts = parts_of(message.get("content"))
    is_output = message["role"] == "tool"
    told = [fenced(text_of_parts(parts))] if is_output else [_part(part) for part in parts]
    told += [
        f"**Calls {_plain(call.name)}**\n\n{fenced(indented(call.arguments), 'json')}"
        for call in calls_of(message)
    ]
    return "\n\n".join([f"\n## {who} · {when(message['timestamp'])}", *told]) + "\n"


def _part(part: Part) -> str:
    if part.kind == "image":
        return "*[image]*"
    return fenced(part.text, "json") if part.kind == "other" else contained(part.text)


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any in the text."""
    text = readable(text)
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def contained(text: str) -> str:
    """Markdown that stays in its place, whoever wrote it."""
    lines: list[str] = []
    fence = ""
    is_open_code = is_text = False
    for line in readable(text).split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence) and not mark[2].strip():
                fence = ""
            lines.append(line)
            continue
        if mark:
            fence = mark[1]
            lines.append(line)
            is_open_code = is_text = False
            continue
        if not line.strip():
            is_open_code = False
        line, is_open_code = _without_tags(line, is_open_code)
        line = _HEADING.sub(lambda found: f"{found[1]}{'#' * min(6, len(found[2]) + 2)}", line)
        lines.append(_UNDERLINE.sub(r"\1\\\2", line) if is_text else line)
        is_text = bool(line.strip())
    if fence:
        lines.append(fence)
    return "\n".join(lines)


def _without_tags(line: str, is_open: bool) -> tuple[str, bool]:
    """The line with its tags shown, and whether it leaves code open.

    Tags in code are shown anyway; code is left alone where it surely is code: if all before it was closed.
    """
    told, at = [], 0
    if not is_open and "`" in line:
        spans, is_open = _code_spans(line)
        for start, end in spans:
            told += [_TAG.sub(r"\\<", line[at:start]), line[start:end]]
            at = end
    return "".join([*told, _TAG.sub(r"\\<", line[at:])]), is_open


def _code_spans(line: str) -> tuple[list[tuple[int, int]], bool]:
    """Where code is in a line, from one run of backticks to the next as long; and whether a run has no other."""
    if "\\`" in line:  # what an escaped backtick opens or closes depends on too much
        return [], True
    ticks = [found.span() for found in _TICKS.finditer(line)]
    following: dict[int, int] = {}
    partner: list[int | None] = [None] * len(ticks)
    for at in reversed(range(len(ticks))):
        size = ticks[at][1] - ticks[at][0]
        partner[at] = following.get(size)
        following[size] = at
    spans: list[tuple[int, int]] = []
    is_open, at = False, 0
    while at < len(ticks):
        other = partner[at]
        if other is None:
            is_open = True
        else:
            spans.append((ticks[at][0], ticks[other][1]))
            at = other
        at += 1
    return spans, is_open


def _plain(text: Any) -> str:
    """One line of text as nothing but text."""
    return _SPECIAL.sub(r"\\\1", printable(str(text))) if text else ""


def _code(text: Any) -> str:
    return f"`{printable(str(text)).replace('`', '')}`"
