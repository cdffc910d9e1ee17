"""What a message says, whatever shape a provider gave it: parts of its content, tool calls, reasoning."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from hermes import clock
from hermes.reasoning import answer_in, reasoning_in
from hermes.store.content import from_json, to_json
from hermes.text import printable, readable

ROLES = {"user": "User", "assistant": "Assistant", "tool": "Tool", "system": "System"}

_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|avif);base64,[A-Za-z0-9+/=_-]*\Z")


class Part(NamedTuple):
    kind: str
    """`text`, `image` (a data URL that can be shown), or `other` (JSON of what is neither)."""
    text: str


class Call(NamedTuple):
    id: str
    name: str
    arguments: Any


def role_of(message: dict[str, Any]) -> str:
    return ROLES.get(message["role"]) or printable(str(message["role"]), width_limit=40) or "?"


def is_said(message: dict[str, Any]) -> bool:
    """Whether a reader sees it: neither taken back by a rewind nor empty."""
    return bool(message.get("active", 1)) and bool(
        message.get("content") or message.get("tool_calls") or reasoning_in(message)
    )


def when(at: Any) -> str:
    """`2025-03-05 09:15:23 +01:00`: local, with its offset."""
    day, _, rest = clock.iso(at).partition("T")
    return f"{day} {rest[:8]} {rest[8:]}".strip()


def parts_of(content: Any) -> list[Part]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [Part("text", content)]
    return [_part(item) for item in (content if isinstance(content, list | tuple) else [content])]


def text_of_parts(parts: list[Part]) -> str:
    return "\n\n".join("[image]" if part.kind == "image" else part.text for part in parts)


def _part(item: Any) -> Part:
    if isinstance(item, str):
        return Part("text", item)
    if isinstance(item, dict):
        if isinstance(item.get("text"), str):
            return Part("text", item["text"])
        url = _image_url(item)
        if url is not None and _IMAGE.match(url):
            return Part("image", url)
    return Part("other", indented(item))


def _image_url(item: dict[str, Any]) -> str | None:
    """The address of an image as OpenAI's and Anthropic's shapes tell it; embedded ones as data URLs."""
    held = item.get("image_url") or item.get("source")
    if isinstance(held, dict):
        if isinstance(held.get("data"), str):
            return f"data:{held.get('media_type')};base64,{held['data']}"
        held = held.get("url")
    return held if isinstance(held, str) else None


def calls_of(message: dict[str, Any]) -> list[Call]:
    calls = message.get("tool_calls")
    if not calls:
        return []
    return [_call(item) for item in (calls if isinstance(calls, list | tuple) else [calls])]


def _call(item: Any) -> Call:
    if not isinstance(item, dict):
        return Call("", "?", item)
    held = item.get("function")
    function = held if isinstance(held, dict) else item
    given = function.get("arguments", function.get("input"))
    arguments = from_json(given, given) if isinstance(given, str) else given
    return Call(str(item.get("id") or ""), str(function.get("name") or "?"), arguments)


def answer_parts(message: dict[str, Any]) -> list[Part]:
    """The parts of a message's content, without the reasoning at the beginning of an answer."""
    return parts_of(answer_in(message.get("content"), message["role"]))


def indented(value: Any) -> str:
    """JSON laid out for a reader; text that is no JSON as it is."""
    if isinstance(value, str):
        return readable(value)
    try:
        return readable(json.dumps(value, ensure_ascii=False, indent=2))
    except (TypeError, ValueError, RecursionError):
        return readable(to_json(value))
