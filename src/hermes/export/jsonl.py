"""JSONL: the lossless form. One object per session, with everything that is stored of it.

A line ends with a line feed and holds no other: what some programs also take for the end of a line (U+0085, U+2028,
U+2029) is written as an escape, and so is what a terminal would act on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hermes.export.plan import Conversation, Load
from hermes.text import escape_json, replace_surrogates, to_text

NOT_TOLD = ("lease_epoch",)
"""Which process may write here and now; it means nothing in another store."""


def write(conversations: Sequence[Conversation], load: Load) -> Iterator[str]:
    for conversation in conversations:
        for segment in conversation.segments:
            session = load(segment.id)
            if session is not None:
                yield format_line({name: value for name, value in session.items() if name not in NOT_TOLD})


def format_line(value: dict[str, Any]) -> str:
    """The standard library's writer, because it keeps numbers that are not finite, as the store does."""
    text = json.dumps(value, default=to_text, ensure_ascii=False, separators=(",", ":"))
    return escape_json(replace_surrogates(text)) + "\n"
