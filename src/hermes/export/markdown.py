"""Markdown: one document per conversation, for reading, archiving and searching.

It contains the title, facts, and all messages with their times, including tool calls and complete tool
results. The model's reasoning, the system prompt and rewound messages are left out; JSONL contains them. The
sessions of a conversation are written one after the other. Carried messages are not repeated.

Most messages already are Markdown. They stay Markdown, but cannot affect the rest of the document: see
`quoted_markdown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hermes.export.export_recognition import MARKDOWN_MARK
from hermes.export.message_text import (
    Part,
    format_json,
    format_time,
    get_role,
    is_visible,
    join_parts,
    list_answer_parts,
    list_calls,
)
from hermes.export.plan import Conversation, Load, Session
from hermes.export.quoted_markdown import contain_markdown
from hermes.reasoning import extract_reasoning
from hermes.text import make_printable, spell_controls

RULE = "\n---\n\n"
"""The separator between two documents in one file."""

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~])")


def write(conversations: Sequence[Conversation], load: Load, *, remote_images: bool = False) -> Iterator[str]:
    between = ""
    for conversation in conversations:
        has_head = False
        for segment in conversation.segments:
            session = load(segment.id)
            if session is None:
                continue
            yield _format_continued(session) if has_head else between + _format_head(conversation, session)
            for message in session["messages"]:
                if is_visible(message):
                    yield _format_message(message, remote_images)
            has_head = True
        between = RULE if has_head else between


def _format_head(conversation: Conversation, session: Session) -> str:
    segments = conversation.segments
    facts = [
        (
            "Source",
            " · ".join(escape_line(session.get(name)) for name in ("source", "model") if session.get(name)),
        ),
        ("Started", format_time(conversation.started_at)),
        ("Last active", format_time(conversation.last_active)),
        ("Workspace", escape_line(session.get("workspace"))),
        ("Tags", ", ".join(map(escape_line, session.get("tags") or []))),
        ("Parent session", _format_origin(session)),
        (
            "Session" if len(segments) == 1 else "Sessions",
            ", ".join(_format_code(segment.id) for segment in segments),
        ),
    ]
    lines = [f"- **{name}:** {value}" for name, value in facts if value]
    return "\n".join([f"# {escape_line(conversation.heading)}", MARKDOWN_MARK, "", *lines, ""])


def _format_origin(session: Session) -> str:
    parent = session.get("parent_session_id")
    return f"{_format_code(parent)} ({escape_line(session.get('relation') or 'child')})" if parent else ""


def _format_continued(session: Session) -> str:
    return f"\n*Continued in {_format_code(session['id'])} from {format_time(session['started_at'])}*\n"


def _format_message(message: dict[str, Any], remote_images: bool) -> str:
    role = get_role(message)
    tool = escape_line(message.get("tool_name"))
    who = f"{role} · {tool}" if message["role"] == "tool" and tool else escape_line(role)
    parts = list_answer_parts(message)
    if not parts and not message.get("tool_calls") and (reasoning := extract_reasoning(message)):
        parts = [Part("text", f"*Reasoning, without an answer:*\n\n{reasoning}")]
    is_output = message["role"] == "tool"
    lines = (
        [fence_code(join_parts(parts))]
        if is_output
        else [_format_part(part, remote_images) for part in parts]
    )
    lines += [
        f"**Calls {escape_line(call.name)}**\n\n{fence_code(format_json(call.arguments), 'json')}"
        for call in list_calls(message)
    ]
    return "\n\n".join([f"\n## {who} · {format_time(message['timestamp'])}", *lines]) + "\n"


def _format_part(part: Part, remote_images: bool) -> str:
    if part.kind == "image":
        return "*[image]*"
    if part.kind == "other":
        return fence_code(part.text, "json")
    return contain_markdown(part.text, pictures=remote_images)


def fence_code(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any fence in the text."""
    text = spell_controls(text)
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def escape_line(text: Any) -> str:
    """Return one line of text with all Markdown characters escaped."""
    return _SPECIAL.sub(r"\\\1", make_printable(str(text))) if text else ""


def _format_code(text: Any) -> str:
    return f"`{make_printable(str(text)).replace('`', '')}`"
