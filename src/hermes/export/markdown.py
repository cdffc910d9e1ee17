"""Markdown: a document per conversation, to read, keep and search with anything.

Told are title, facts, and what was said with its time, tool calls and their complete results included. Not told are
the model's reasoning, the system prompt, and what a rewind took back: JSONL has them. All sessions of a conversation
follow each other; what a continuation carries over was said before and is not repeated.

What was said is Markdown already, mostly, and stays so, as far as it stays in its place: see `containing`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hermes.export.export_recognition import MARKDOWN_MARK
from hermes.export.message_text import (
    Part,
    answer_parts,
    calls_of,
    indented,
    is_said,
    role_of,
    text_of_parts,
    when,
)
from hermes.export.plan import Conversation, Load, Session
from hermes.export.quoted_markdown import contained
from hermes.reasoning import reasoning_in
from hermes.text import printable, spell_controls

RULE = "\n---\n\n"
"""What stands between two documents in one file."""

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~])")


def write(conversations: Sequence[Conversation], load: Load, *, remote_images: bool = False) -> Iterator[str]:
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
                    yield _message(message, remote_images)
            told = True
        between = RULE if told else between


def _head(conversation: Conversation, session: Session) -> str:
    segments = conversation.segments
    facts = [
        (
            "Source",
            " · ".join(plain(session.get(name)) for name in ("source", "model") if session.get(name)),
        ),
        ("Started", when(conversation.started_at)),
        ("Last active", when(conversation.last_active)),
        ("Workspace", plain(session.get("workspace"))),
        ("Tags", ", ".join(map(plain, session.get("tags") or []))),
        ("Came out of", _origin(session)),
        ("Session" if len(segments) == 1 else "Sessions", ", ".join(_code(one.id) for one in segments)),
    ]
    lines = [f"- **{name}:** {told}" for name, told in facts if told]
    return "\n".join([f"# {plain(conversation.heading)}", MARKDOWN_MARK, "", *lines, ""])


def _origin(session: Session) -> str:
    parent = session.get("parent_session_id")
    return f"{_code(parent)} ({plain(session.get('relation') or 'child')})" if parent else ""


def _continued(session: Session) -> str:
    return f"\n*Continued in {_code(session['id'])} from {when(session['started_at'])}*\n"


def _message(message: dict[str, Any], remote_images: bool) -> str:
    role = role_of(message)
    tool = plain(message.get("tool_name"))
    who = f"{role} · {tool}" if message["role"] == "tool" and tool else plain(role)
    parts = answer_parts(message)
    if not parts and not message.get("tool_calls") and (reasoning := reasoning_in(message)):
        parts = [Part("text", f"*Reasoning, without an answer:*\n\n{reasoning}")]
    is_output = message["role"] == "tool"
    told = [fenced(text_of_parts(parts))] if is_output else [_part(part, remote_images) for part in parts]
    told += [
        f"**Calls {plain(call.name)}**\n\n{fenced(indented(call.arguments), 'json')}"
        for call in calls_of(message)
    ]
    return "\n\n".join([f"\n## {who} · {when(message['timestamp'])}", *told]) + "\n"


def _part(part: Part, remote_images: bool) -> str:
    if part.kind == "image":
        return "*[image]*"
    if part.kind == "other":
        return fenced(part.text, "json")
    return contained(part.text, pictures=remote_images)


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any in the text."""
    text = spell_controls(text)
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def plain(text: Any) -> str:
    """One line of text as nothing but text."""
    return _SPECIAL.sub(r"\\\1", printable(str(text))) if text else ""


def _code(text: Any) -> str:
    return f"`{printable(str(text)).replace('`', '')}`"
