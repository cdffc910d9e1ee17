"""JSONL: the lossless format. One object per session, with all its stored data.

Each line ends with a line feed and contains no other line feed. Other characters that some programs treat as
line ends (U+0085, U+2028, U+2029) are written as escapes, as are terminal control characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hermes.export.plan import Conversation, Load
from hermes.text import escape_json, replace_surrogates, to_text

NOT_EXPORTED = ("lease_epoch",)
"""Fields that are not exported. The lease belongs to a process that may write to the session, and is
meaningless in another store."""


def write(conversations: Sequence[Conversation], load: Load) -> Iterator[str]:
    for conversation in conversations:
        for segment in conversation.segments:
            session = load(segment.id)
            if session is not None:
                yield format_line(
                    {name: value for name, value in session.items() if name not in NOT_EXPORTED}
                )


def format_line(value: dict[str, Any]) -> str:
    """Format a line with the standard library's JSON writer. It preserves non-finite numbers, as the store
    does."""
    text = json.dumps(value, default=to_text, ensure_ascii=False, separators=(",", ":"))
    return escape_json(replace_surrogates(text)) + "\n"
