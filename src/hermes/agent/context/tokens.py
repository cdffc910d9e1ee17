"""How large a request is, roughly: enough to know when a context fills up, with no tokenizer at hand.

Latin text has about four characters to a token, scripts without spaces about one, the others lie between. So ASCII is
counted by fours and the rest by its bytes, three to a token. What a provider reports is better, and wins where it is
known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hermes.text import extract_text

PER_MESSAGE, PER_IMAGE = 10, 1600


def count_text(text: str) -> int:
    if text.isascii():
        return -(-len(text) // 4)
    plain = len(text.encode("ascii", "ignore"))
    return -(-plain // 4) + -(-(len(text.encode("utf-8", "surrogatepass")) - plain) // 3)


def count_row(row: Mapping[str, Any]) -> int:
    """A message as it is sent: what it says, the pictures in it, and the calls it makes."""
    content, calls = row.get("content"), row.get("tool_calls")
    called = count_text(json.dumps(calls, ensure_ascii=False, default=str)) if calls else 0
    return PER_MESSAGE + count_text(extract_text(content)) + PER_IMAGE * len(find_images(content)) + called


def count_rows(rows: Iterable[Mapping[str, Any]]) -> int:
    return sum(map(count_row, rows))


def count_tools(schemas: Iterable[Mapping[str, Any]]) -> int:
    return sum(count_text(json.dumps(schema, ensure_ascii=False, default=str)) for schema in schemas)


def find_images(content: object) -> list[int]:
    """The places of the pictures among the parts of a content."""
    if not isinstance(content, list):
        return []
    return [
        at
        for at, part in enumerate(content)
        if isinstance(part, dict) and "image" in str(part.get("type", ""))
    ]
