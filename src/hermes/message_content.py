"""The reader of message content: its text, its parts and its tool calls, in the format of any provider or
program.

All surfaces use this module. It determines the content; the surfaces cut it, format it and make it safe to
display.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from hermes.reasoning import strip_reasoning
from hermes.text import (
    PREVIEW_SHOWN,
    decode_json,
    extract_searchable_text,
    extract_tool_call_text,
    make_preview,
    to_text,
)

Detail = Literal["everything", "words", "words and pictures"]
"""Which text of structured content is read. `everything`: all strings except type tags and embedded files.
`words`: the text parts. `words and pictures`: the text parts, and `[image]` for each picture."""

INTERRUPTED, PARTIAL = "interrupted", "partial"
"""Finish reasons of incomplete answers. `interrupted`: a person stopped the answer, or its stream failed or
was cancelled. `partial`: the answer was saved while it was streamed. `partial` remains only if the process
died before the answer was complete."""
SELF_EXPLAINING = ("command", "path", "query", "text", "url", "action", "pattern", "goal")
"""Names of tool arguments that are shown as the value alone, without the name, because the value explains
itself."""
PICTURE = "[image]"
PICTURE_TYPES = ("image", "image_url", "input_image")
_ATTACHED = re.compile(r"\n\n\[(?:file|picture|output of) [^\n]*\](?:\n`{3,}\n|\n\n|\Z)")


class Part(NamedTuple):
    kind: Literal["text", "picture", "other"]
    value: Any
    """The text of a text part. For any other part, the part unchanged."""


class ToolCall(NamedTuple):
    id: str
    name: str
    """`?` if the name is unknown; empty if the item is not a call."""
    arguments: Any
    """The arguments unchanged, usually JSON text."""


def read_text(content: object, role: object = None, *, detail: Detail = "everything") -> str:
    """Return the text of a message's content. If `role` is `assistant`, the reasoning at its beginning is
    left out."""
    content = strip_reasoning(content, role)
    if isinstance(content, bytes | int | float):
        return to_text(content)
    if detail == "everything" or not isinstance(content, list | tuple):
        return extract_searchable_text(content)
    return "\n".join(filter(None, _iterate_words(content, named=detail == "words and pictures")))


def _iterate_words(content: list[Any] | tuple[Any, ...], *, named: bool) -> Iterator[str]:
    for kind, value in list_parts(content):
        if kind == "text":
            yield extract_searchable_text(value)
        elif kind == "picture" and named:
            yield PICTURE


def list_parts(content: object) -> list[Part]:
    """Return the parts of a message's content. Plain text is one part."""
    if content is None or content == "":
        return []
    return [_make_part(item) for item in (content if isinstance(content, list | tuple) else [content])]


def read_typed(content: object) -> str:
    """Return the text of a stored message as the person typed it. The attached files, which the stored text
    also contains, are left out."""
    texts = [part.value for part in list_parts(content) if part.kind == "text"]
    text = texts[0] if texts else ""
    found = _ATTACHED.search(text)
    return text[: found.start()] if found else text


def make_prompt_preview(content: object, length: int = PREVIEW_SHOWN) -> str | None:
    """Return the first words of a person's message on one line, without the attached files. None if the
    message has no content."""
    return make_preview(omit_attached(content), length)


def omit_attached(content: object) -> object:
    """Return the content of a message for use in a preview. If the content contains attached files, return only
    the text that the person typed."""
    if isinstance(content, str) and "\n\n[" not in content:  # the usual case, quickly
        return content
    if any(part.kind == "text" and _ATTACHED.search(part.value) for part in list_parts(content)[:1]):
        return read_typed(content)
    return content


def _make_part(item: object) -> Part:
    if isinstance(item, str):
        return Part("text", item)
    if isinstance(item, dict):
        if isinstance(item.get("text"), str):
            return Part("text", item["text"])
        if item.get("type") in PICTURE_TYPES:
            return Part("picture", item)
    return Part("other", item)


def detect_picture_type(data: bytes) -> str | None:
    """Return the media type of a picture, recognised by the first bytes of its data. None if they are not those
    of a picture. A declared type or a file name is not used."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def list_tool_calls(tool_calls: object) -> list[ToolCall]:
    """Return the tool calls of an answer, in the format of any provider."""
    if not tool_calls:
        return []
    return [
        _make_call(item) for item in (tool_calls if isinstance(tool_calls, list | tuple) else [tool_calls])
    ]


def describe_tool_calls(tool_calls: object) -> str:
    """Return tool calls as text for people, one line for each: `terminal: pytest -q`, `read_file: app.py limit=9`.

    The text contains the names of tools and all values, but not ids and other technical fields.
    """
    decoded = decode_json(tool_calls) if isinstance(tool_calls, str) else tool_calls
    if decoded is None:
        return to_text(tool_calls)
    return "\n".join(filter(None, map(_describe_call, list_tool_calls(decoded))))


def _describe_call(call: ToolCall) -> str:
    arguments = decode_json(call.arguments) if isinstance(call.arguments, str) else call.arguments
    if arguments is None:
        arguments = call.arguments
    if isinstance(arguments, dict):
        text = " ".join(filter(None, (_describe_argument(*item) for item in arguments.items())))
    else:
        text = extract_tool_call_text(arguments)
    return ": ".join(filter(None, (call.name, text)))


def _describe_argument(name: object, value: object) -> str:
    text = value if isinstance(value, str) else " ".join(extract_tool_call_text([value]).split("\n"))
    return text if name in SELF_EXPLAINING or not text else f"{name}={text}"


def _make_call(item: object) -> ToolCall:
    if not isinstance(item, dict):
        return ToolCall("", "", item)
    inner = item.get("function")
    function = inner if isinstance(inner, dict) else item
    arguments = function.get("arguments", function.get("input"))
    return ToolCall(str(item.get("id") or ""), str(function.get("name") or "?"), arguments)
