"""What was said, in a request and in the store, in one shape, so that the two can be compared.

A turn is what the person said, and the answer as the client was given it: one text, however many steps the agent made
on the way to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hermes.reasoning import strip_reasoning
from hermes.server.api_errors import Refused, bad
from hermes.text import replace_surrogates

BETWEEN = "\n\n"
"""Between the texts of two steps of one answer."""
INSTRUCTING = ("system", "developer")
IMAGES = tuple(f"data:image/{kind};base64," for kind in ("png", "jpeg", "gif", "webp"))
TEXTS = ("text", "input_text", "output_text")
NO_TOOLS = (
    "tools of the client are not supported: the agent behind this interface has its own, and runs them itself"
)


class Said(NamedTuple):
    role: str
    """user or assistant."""
    content: Any
    """Text, or a list of parts in the shape of the chat completions interface."""


class Asked(NamedTuple):
    """What a request says."""

    instructions: str | None
    """Its system and developer messages; None if it has none."""
    before: tuple[Said, ...]
    new: Said
    """The last message, which is the person's."""


def asked(messages: object, param: str, most: int, instructions: str | None = None) -> Asked:
    """Read the messages of a request, of either interface."""
    if not isinstance(messages, list) or not messages:
        raise bad(f"{param} must be a list of messages, and not empty", param)
    if len(messages) > most:
        raise Refused(413, f"{param} has more than {most:,} messages", param=param, code="too_many_messages")
    told = [instructions] if instructions else []
    said: list[Said] = []
    for number, message in enumerate(messages):
        one = _read(message, f"{param}[{number}]")
        if one.role in INSTRUCTING:
            told.append(_text_only(one.content, f"{param}[{number}]"))
        else:
            said.append(one)
    if not said or said[-1].role != "user":
        raise bad("the last message must be the user's", param)
    if not said[-1].content or (isinstance(said[-1].content, str) and not said[-1].content.strip()):
        raise bad("the last message says nothing", param)
    return Asked(BETWEEN.join(told) or None, turns(said[:-1]), said[-1])


def turns(said: Iterable[Said]) -> tuple[Said, ...]:
    """As a client sees it: answers that follow each other are one, and those that say nothing are none."""
    made: list[Said] = []
    answer: list[Any] = []
    for one in said:
        if one.role == "assistant":
            if one.content:
                answer.append(one.content)
            continue
        made.extend(_joined(answer))
        answer = []
        made.append(one)
    return (*made, *_joined(answer))


def _joined(answer: list[Any]) -> list[Said]:
    """Joined once: adding one text after the other takes time that grows with the square of their number."""
    if not answer:
        return []
    return [Said("assistant", answer[0] if len(answer) == 1 else BETWEEN.join(map(str, answer)))]


def stored(rows: Iterable[Mapping[str, Any]]) -> tuple[Said, ...]:
    """What of a conversation's rows its client knows."""
    return turns(
        Said(row["role"], strip_reasoning(row["content"], row["role"]))
        for row in rows
        if row["role"] in ("user", "assistant")
    )


def spelled(said: Sequence[Said]) -> bytes:
    """One spelling for the same things said, and another one for any others."""
    return json.dumps([(one.role, one.content) for one in said], sort_keys=True).encode()


def _read(message: object, where: str) -> Said:
    if not isinstance(message, Mapping):
        raise bad(f"{where} must be a message", where)
    if message.get("type", "message") != "message":
        raise bad(f"{where}: items of type {message['type']!r} are not supported", where)
    role = message.get("role")
    if role in ("tool", "function") or message.get("tool_calls") or message.get("function_call"):
        raise Refused(400, f"{where}: {NO_TOOLS}", param=where, code="unsupported")
    if role not in ("user", "assistant", *INSTRUCTING):
        raise bad(f"{where}.role must be system, developer, user or assistant, not {role!r}", where)
    content = _content(message.get("content"), f"{where}.content", images=role == "user")
    if content is None and role != "assistant":
        raise bad(f"{where}.content is missing", where)
    return Said(str(role), strip_reasoning(content or "", role))


def _content(content: object, where: str, *, images: bool) -> Any:
    """Text where there is nothing else: a list of parts only if there are pictures in it."""
    if content is None:
        return None
    if isinstance(content, str):
        return replace_surrogates(content)
    if not isinstance(content, list):
        raise bad(f"{where} must be text or a list of parts", where)
    parts = [_part(part, f"{where}[{number}]", images) for number, part in enumerate(content)]
    if all(part["type"] == "text" for part in parts):
        return BETWEEN.join(part["text"] for part in parts)
    return parts


def _part(part: object, where: str, images: bool) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, Mapping) and kind in TEXTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": replace_surrogates(part["text"])}
    if isinstance(part, Mapping) and kind in ("image_url", "input_image") and images:
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, Mapping) else url
        if isinstance(url, str) and url.startswith((*IMAGES, "https://", "http://")):
            return {"type": "image_url", "image_url": {"url": replace_surrogates(url)}}
        raise bad(
            f"{where}: a picture is a URL, or a data URL with a PNG, JPEG, GIF or WebP as base64", where
        )
    raise bad(f"{where}: parts of type {kind!r} are not supported here", where)


def _text_only(content: Any, where: str) -> str:
    if not isinstance(content, str):
        raise bad(f"{where}: there must be nothing but text", where)
    return content
