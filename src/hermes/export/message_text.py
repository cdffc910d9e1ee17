"""The parts of a message that an export shows: its content, its tool calls and its reasoning."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from hermes import clock, message_content
from hermes.reasoning import extract_reasoning, strip_reasoning
from hermes.store.content import from_json, to_json
from hermes.text import make_printable, make_readable

ROLES = {"user": "User", "assistant": "Assistant", "tool": "Tool", "system": "System"}

_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|avif);base64,[A-Za-z0-9+/=_-]*\Z")


class Part(NamedTuple):
    kind: str
    """`text`, `image` (a data URL that can be shown), or `other` (any other content as JSON)."""
    text: str


class Call(NamedTuple):
    id: str
    name: str
    arguments: Any


def get_role(message: dict[str, Any]) -> str:
    return ROLES.get(message["role"]) or make_printable(str(message["role"]), width_limit=40) or "?"


def is_visible(message: dict[str, Any]) -> bool:
    """Return whether an export shows a message. Rewound messages and empty messages are not shown."""
    return bool(message.get("active", 1)) and bool(
        message.get("content") or message.get("tool_calls") or extract_reasoning(message)
    )


def format_time(at: Any) -> str:
    """Format a local time with its offset: `2025-03-05 09:15:23 +01:00`."""
    day, _, rest = clock.format_iso(at).partition("T")
    return f"{day} {rest[:8]} {rest[8:]}".strip()


def list_parts(content: Any) -> list[Part]:
    return [_make_part(part) for part in message_content.list_parts(content)]


def join_parts(parts: list[Part]) -> str:
    return "\n\n".join(message_content.PICTURE if part.kind == "image" else part.text for part in parts)


def _make_part(part: message_content.Part) -> Part:
    if part.kind == "text":
        return Part("text", part.value)
    url = _find_image_url(part.value) if isinstance(part.value, dict) else None
    return (
        Part("image", url)
        if url is not None and _IMAGE.match(url)
        else Part("other", format_json(part.value))
    )


def _find_image_url(item: dict[str, Any]) -> str | None:
    """Return the URL of an image in the formats of OpenAI and Anthropic. Return None if the item has no
    image. An embedded image becomes a data URL."""
    image = item.get("image_url") or item.get("source")
    if isinstance(image, dict):
        if isinstance(image.get("data"), str):
            return f"data:{image.get('media_type')};base64,{image['data']}"
        image = image.get("url")
    return image if isinstance(image, str) else None


def list_calls(message: dict[str, Any]) -> list[Call]:
    return [_make_call(*call) for call in message_content.list_tool_calls(message.get("tool_calls"))]


def _make_call(call_id: str, name: str, sent: Any) -> Call:
    return Call(call_id, name or "?", from_json(sent, sent) if name and isinstance(sent, str) else sent)


def list_answer_parts(message: dict[str, Any]) -> list[Part]:
    """Return the parts of a message's content, without the reasoning at the beginning of an answer."""
    return list_parts(strip_reasoning(message.get("content"), message["role"]))


def format_json(value: Any) -> str:
    """Format a value as indented JSON. Text is returned unchanged."""
    if isinstance(value, str):
        return make_readable(value)
    try:
        return make_readable(json.dumps(value, ensure_ascii=False, indent=2))
    except (TypeError, ValueError, RecursionError):
        return make_readable(to_json(value))
