"""A trace: JSONL of events in the session format of Claude Code, for programs that read that format.

Each message is one line. `user` and `assistant` events have the content blocks of Anthropic's messages; a
tool result is a `user` event with a `tool_result` block. All other messages are `system` events. `parentUuid`
links each event to the previous one. A `compact_boundary` marks where a conversation was compressed, and its
summary is a `user` event with `isCompactSummary`. The last line, `summary`, contains the title. Rewound
messages are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from hermes import __version__
from hermes.export.export_recognition import TRACE_MARK
from hermes.export.jsonl import format_line
from hermes.export.message_text import is_visible, join_parts, list_answer_parts, list_calls, list_parts
from hermes.export.plan import Conversation, Load, Session
from hermes.reasoning import extract_reasoning

OURS = UUID("6f0b6c1e-0b0f-5c5e-9a35-3f7f5f3a4d10")
"""The namespace in which UUIDs are generated for messages that have none. The same message always gets the
same UUID."""

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def write(conversations: Sequence[Conversation], load: Load) -> Iterator[str]:
    mark = TRACE_MARK  # in the first event of a file
    for conversation in conversations:
        last: str | None = None
        for segment in conversation.segments:
            session = load(segment.id)
            if session is None:
                continue
            for event in _make_events(conversation, session, last):
                last = event["uuid"]
                yield format_line({**mark, **event})
                mark = {}
        if last is not None and conversation.title is not None:
            yield format_line({"type": "summary", "summary": conversation.title, "leafUuid": last})


def _make_events(conversation: Conversation, session: Session, last: str | None) -> Iterator[dict[str, Any]]:
    envelope = {
        "isSidechain": session.get("kind") == "child",
        "userType": "external",
        "cwd": session.get("cwd") or session.get("workspace") or "",
        "sessionId": conversation.name,
        "version": __version__,
        "gitBranch": session.get("git_branch") or "",
    }
    messages = [message for message in session["messages"] if is_visible(message)]
    if last is not None and session.get("relation") == "compression":
        boundary = str(uuid5(OURS, f"{session['id']} begins"))
        yield {
            "parentUuid": None,
            "logicalParentUuid": last,
            **envelope,
            "type": "system",
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
            "level": "info",
            "uuid": boundary,
            "timestamp": _format_time(session["started_at"]),
        }
        last = boundary
        if messages and messages[0]["role"] == "system":
            messages[0] = {**messages[0], "role": "user", "is_summary": True}
    for message in messages:
        event = {
            "parentUuid": last,
            **envelope,
            **_make_body(session, message),
            "uuid": _make_uuid(session, message),
            "timestamp": _format_time(message["timestamp"]),
        }
        last = event["uuid"]
        yield event


def _make_body(session: Session, message: dict[str, Any]) -> dict[str, Any]:
    role, content = message["role"], message.get("content")
    if role == "assistant":
        return {"type": "assistant", "message": _make_answer(session, message)}
    if role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id") or ""}
        answer = content if isinstance(content, str) else join_parts(list_parts(content))
        return {
            "type": "user",
            "message": {"role": "user", "content": [{**result, "content": answer}]},
        }
    if role == "user":
        body: dict[str, Any] = {"type": "user", "message": {"role": "user", "content": _make_blocks(content)}}
        if message.get("is_summary"):
            body |= {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
        return body
    return {
        "type": "system",
        "subtype": "informational",
        "content": join_parts(list_parts(content)),
        "isMeta": False,
        "level": "info",
    }


def _make_answer(session: Session, message: dict[str, Any]) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    reasoning = extract_reasoning(message)
    if reasoning:
        blocks.append({"type": "thinking", "thinking": reasoning, "signature": ""})
    blocks += [{"type": "text", "text": part.text} for part in list_answer_parts(message)]
    for call in list_calls(message):
        arguments = call.arguments
        tool_input = (
            arguments
            if isinstance(arguments, dict)
            else {}
            if arguments is None
            else {"arguments": arguments}
        )
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": tool_input})
    finish = message.get("finish_reason")
    return {
        "id": f"msg_{message.get('uid') or message['id']}",
        "type": "message",
        "role": "assistant",
        "model": session.get("model") or "unknown",
        "content": blocks,
        "stop_reason": STOP_REASONS.get(finish, finish) if isinstance(finish, str) else None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": message.get("token_count") or 0},
    }


def _make_blocks(content: Any) -> Any:
    """Return the content of a message in Anthropic's format. Text is returned unchanged. Structured content
    becomes a list of text and image blocks."""
    if isinstance(content, str):
        return content
    blocks: list[dict[str, Any]] = []
    for part in list_parts(content):
        if part.kind == "image":
            head, _, data = part.text.partition(";base64,")
            source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
            blocks.append({"type": "image", "source": source})
        else:
            blocks.append({"type": "text", "text": part.text})
    return blocks


def _make_uuid(session: Session, message: dict[str, Any]) -> str:
    uid = message.get("uid")
    if isinstance(uid, str) and len(uid) == 32:
        return str(UUID(hex=uid))
    return str(uuid5(OURS, f"{session['id']} {message['id']}"))


def _format_time(at: Any) -> str:
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (TypeError, OverflowError, ValueError, OSError):  # another program may have stored any value
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
