"""JSON: one object per conversation with all its messages, as `/save` writes it.

The fields of the object are those of the newest session. Each message names its session. Rewound messages are
marked (`active`: 0). At most two sessions are in memory: the newest one and the one being written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hermes.export.jsonl import NOT_EXPORTED
from hermes.export.plan import Conversation, Load, Session
from hermes.text import escape_json, replace_surrogates, to_text

LEFT_OUT = ("id", "message_count", "messages", "context", "rewound_context", "model_calls", *NOT_EXPORTED)
"""Fields of the newest session that the object does not repeat."""
MESSAGE_INDENT = "    "


def write(conversations: Sequence[Conversation], load: Load) -> Iterator[str]:
    for conversation in conversations:
        newest = load(conversation.segments[-1].id)
        if newest is not None:
            yield from _write_object(conversation, newest, load)


def _write_object(conversation: Conversation, newest: Session, load: Load) -> Iterator[str]:
    fields = {
        "session_id": newest["id"],
        **{name: value for name, value in newest.items() if name not in LEFT_OUT},
        "title": conversation.title,
        "session_start": conversation.started_at,
        "last_updated": conversation.last_active,
        "sessions": [segment.id for segment in conversation.segments],
    }
    yield _format_value(fields).removesuffix("\n}") + ',\n  "messages": ['
    count = 0
    for segment in conversation.segments:
        session = newest if segment.id == newest["id"] else load(segment.id)
        for message in () if session is None else session["messages"]:
            text = _format_value({"session_id": segment.id, **message}).replace("\n", f"\n{MESSAGE_INDENT}")
            yield f"{',' if count else ''}\n{MESSAGE_INDENT}{text}"
            count += 1
    yield ("\n  " if count else "") + f'],\n  "message_count": {count}\n}}\n'


def _format_value(value: dict[str, Any]) -> str:
    return escape_json(replace_surrogates(json.dumps(value, default=to_text, ensure_ascii=False, indent=2)))
