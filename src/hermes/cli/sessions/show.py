"""`hermes sessions show`: print a conversation as readable text, through the pager."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.chat.view.calls import Call, describe_call, read_calls
from hermes.cli.command import Words, add_json_option, add_store_option, parse_message_id, parse_text
from hermes.cli.exit_codes import DONE, Refused
from hermes.cli.io.output import apply_style, print_json, print_paged
from hermes.cli.store_access import find_session, open_store
from hermes.message_content import read_text
from hermes.reasoning import extract_reasoning
from hermes.store.columns import MESSAGES
from hermes.store.content import to_json
from hermes.text import format_count, make_printable, make_readable, reveal, spell_controls

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.sessions.lineage import Relative

SPEAKERS = {"user": ("● You", "yellow"), "assistant": ("◆ Hermes", "green")}
JSON_FIELDS = tuple(column.name for column in MESSAGES if column.name != "content_kind")
ARGUMENTS_SHOWN = 100
"""Maximum width of a tool call without `--tools`, in terminal columns. A shell command is always shown
completely."""


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, show_session)
    parser.add_argument(
        "session",
        nargs="+",
        type=parse_text,
        metavar="ID|TITLE",
        help="the conversation: an id, an id prefix or a title",
    )
    parser.add_argument("--tools", action="store_true", help="also show tool arguments and output")
    parser.add_argument("--reasoning", action="store_true", help="also show the model's reasoning")
    parser.add_argument(
        "--lineage", action="store_true", help="start with the first session of the conversation"
    )
    parser.add_argument(
        "--from",
        dest="first",
        type=parse_message_id,
        metavar="MSG",
        help="start with this message: its number, such as 22 or '#22'",
    )
    add_json_option(parser, JSON_FIELDS)


def show_session(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        session_id = find_session(db, arguments.session)
        if arguments.first is not None:
            segments = _list_from(db, session_id, arguments.first)
        else:
            segments = list_segments(db, session_id) if arguments.lineage else [session_id]
        if arguments.json:
            rows = [row for segment in segments for row in _read_messages(db, segment, arguments.first)]
            print_json(rows, arguments.json)
        else:
            print_paged(_format_transcript(db, segments, arguments))
    return DONE


def list_segments(db: SessionDB, session_id: str) -> list[str]:
    """Return the sessions of a conversation, from the first to the last."""
    segments = [db.get_compression_tip(session_id)]
    while (row := db.get_session(segments[-1])) is not None and row["relation"] == "compression":
        segments.append(row["parent_session_id"])
    return segments[::-1]


def _list_from(db: SessionDB, session_id: str, first: int) -> list[str]:
    """Return the sessions of a conversation, starting with the one that contains the message `first`."""
    segments = list_segments(db, session_id)
    for at, segment in enumerate(segments):
        if any(message["id"] == first for message in db.get_messages(segment)):
            return segments[at:]
    raise Refused(f"the conversation has no message {first}")


def _read_messages(db: SessionDB, session_id: str, first: int | None) -> Iterator[dict[str, Any]]:
    return (message for message in db.get_messages(session_id) if first is None or message["id"] >= first)


def _format_transcript(db: SessionDB, segments: list[str], arguments: argparse.Namespace) -> Iterator[str]:
    subagents = _list_subagents(db, segments[0])
    for segment in segments:
        session = db.get_session(segment)
        if session is not None:
            yield from _format_heading(session)
            for child in subagents.get(segment, ()):
                yield apply_style(f"subagent: {make_printable(child.preview or '—')} · {child.id}", "dim")
            if segment == segments[0] and session["relation"] == "compression":
                yield from _format_origin(db, segment)
            yield ""
        for message in _read_messages(db, segment, arguments.first):
            yield from _format_message(message, arguments.tools, arguments.reasoning)


def _list_subagents(db: SessionDB, session_id: str) -> dict[str, list[Relative]]:
    """Return a mapping from the id of each session of the family to the first sessions of the subagents that it
    started."""
    family = db.family(session_id)
    return {
        member.id: [child for child in member.children if child.kind == "child" and child.root_id == child.id]
        for _, member in (() if family is None else family.walk())
    }


def _format_heading(session: dict[str, Any]) -> Iterator[str]:
    yield apply_style(make_printable(session["title"] or "—"), "bold")
    facts = [session["id"], session["source"], session["model"], clock.format_iso(session["started_at"])]
    parts = [make_printable(fact) for fact in facts if fact] + [
        format_count(session["message_count"] or 0, "message")
    ]
    yield apply_style(" · ".join(parts), "dim")


def _format_origin(db: SessionDB, session_id: str) -> Iterator[str]:
    segments = list_segments(db, session_id)
    count = sum(db.message_count(segment) for segment in segments[: segments.index(session_id)])
    yield apply_style(
        f"continues from {format_count(count, 'earlier message')} (--lineage shows them)", "dim"
    )


def _format_message(message: dict[str, Any], tools: bool, reasoning: bool) -> Iterator[str]:
    role = message["role"]
    if role == "session_meta" or (role == "tool" and not tools):
        return
    other = message["tool_name"] if role == "tool" and message["tool_name"] else role
    speaker, colour = SPEAKERS.get(role) or (f"○ {make_printable(other)}", "cyan")
    stamp = f"{clock.format_iso(message['timestamp']).replace('T', ' ')[:16]} · #{message['id']}"
    yield f"{apply_style(speaker, 'bold', colour)} {apply_style(stamp, 'dim')}"
    thought, text = extract_reasoning(message), read_text(message["content"], role)
    is_all = not (text.strip() or message["tool_calls"])
    if thought and (reasoning or is_all):
        yield apply_style(f"  ∴ reasoning{', without an answer' if is_all else ''}", "dim")
        yield from (apply_style(f"  {line}", "dim") for line in spell_controls(thought).splitlines())
        yield ""
    # Tool output may contain colour codes.
    visible_text = make_readable(text) if role == "tool" else spell_controls(text)
    yield from (f"  {line}".rstrip() for line in visible_text.splitlines())
    for _, call in read_calls(message["tool_calls"]):
        yield from (apply_style(line, "cyan") for line in _format_call(call, tools))
    yield ""


def _format_call(call: Call, whole: bool) -> Iterator[str]:
    """Format a tool call. Without `whole`, it is one line, in which a shell command is shown in full. With
    `whole`, each argument has its own lines."""
    if not whole:
        limit = None if call.command is not None else ARGUMENTS_SHOWN
        yield f"  → {describe_call(call.name, call.arguments, width_limit=limit)}"
        return
    yield f"  → {make_printable(reveal(call.name))}"
    for name, value in call.arguments.items():
        text = value if isinstance(value, str) else to_json(value)
        first, *more = reveal(text).rstrip("\n").split("\n")
        yield f"    {make_printable(reveal(name))}: {first}"
        yield from (f"      {line}" for line in more)
