"""Estimates the size of a request in tokens without a tokenizer. The estimate is good enough to detect a full
context.

Latin text has about four characters per token, scripts without spaces have about one, and other scripts are
between these. ASCII text is therefore counted as four characters per token, and all other text as three bytes
per token. If a provider reports a count, that count is used instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hermes.message_content import read_text

PER_MESSAGE, PER_IMAGE = 10, 1600


def count_text(text: str) -> int:
    if text.isascii():
        return -(-len(text) // 4)
    plain = len(text.encode("ascii", "ignore"))
    return -(-plain // 4) + -(-(len(text.encode("utf-8", "surrogatepass")) - plain) // 3)


def count_row(row: Mapping[str, Any]) -> int:
    """Return the estimated tokens of a message: its text, its images and its tool calls."""
    content, calls = row.get("content"), row.get("tool_calls")
    called = count_text(json.dumps(calls, ensure_ascii=False, default=str)) if calls else 0
    return PER_MESSAGE + count_text(read_text(content)) + PER_IMAGE * len(find_images(content)) + called


def count_rows(rows: Iterable[Mapping[str, Any]]) -> int:
    return sum(map(count_row, rows))


def count_tools(schemas: Iterable[Mapping[str, Any]]) -> int:
    return sum(count_text(json.dumps(schema, ensure_ascii=False, default=str)) for schema in schemas)


def find_images(content: object) -> list[int]:
    """Return the indexes of the images in the content of a message. The result is empty if the content is not a list
    of parts."""
    if not isinstance(content, list):
        return []
    return [
        at
        for at, part in enumerate(content)
        if isinstance(part, dict) and "image" in str(part.get("type", ""))
    ]
