"""Creates a long stored conversation. Also provides a compressor and a model that writes summaries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from hermes.agent import events
from hermes.agent.context.compression import ContextCompressor
from hermes.agent.models.model import Finished, Piece, Request, Text, Used
from hermes.agent.transcript import Record
from hermes.config.settings_schema import CompressionSettings
from hermes.db.session_db import SessionDB

Row = dict[str, Any]

SUMMARY = """## Active Task
Deploy the garden planner [m1]
## Goal
A planner that runs
## Completed Actions
1. wrote the tests [m2, m3]
## Critical Context
The port is 8080, the key is sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa [m999999]
"""


class Summarizer:
    """Returns the same summary for every request."""

    name, provider, base_url = "summarizer", "test", None

    def __init__(self, text: str = SUMMARY, context_window: int = 128_000) -> None:
        self.text, self.context_window = text, context_window
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        self.requests.append(request)
        yield Text(self.text)
        yield Used(1000, 100)
        yield Finished("stop")

    async def close(self) -> None:
        self.requests.clear()


class Window:
    """A model with the given context window. It gives no answers."""

    name, provider, base_url = "main", "test", None

    def __init__(self, context_window: int) -> None:
        self.context_window = context_window

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        yield Finished("stop")

    async def close(self) -> None: ...


def talk(db: SessionDB, session_id: str = "talk", exchanges: int = 40, size: int = 400) -> str:
    """Store `exchanges` questions with answers. Every third exchange also has two tool calls with their
    results."""
    db.ensure_session(session_id, "cli")
    for number in range(exchanges):
        say(db, session_id, number, size)
    return session_id


def say(db: SessionDB, session_id: str, number: int, size: int = 400) -> None:
    db.append_message(session_id, "user", f"question {number} " + "q" * size)
    if number % 3 == 0:
        function = {"name": "read_file", "arguments": f'{{"path": "/src/{number}.py"}}'}
        made: list[Row] = [
            {"id": f"c{number}_{one}", "type": "function", "function": function} for one in "ab"
        ]
        db.append_message(session_id, "assistant", None, tool_calls=made)
        for call in made:
            db.append_message(session_id, "tool", "o" * size, tool_name="read_file", tool_call_id=call["id"])
    db.append_message(session_id, "assistant", f"answer {number} " + "a" * size)


def compressor(record: Record, model: Any = None, *, window: int = 8_000, **more: Any) -> ContextCompressor:
    async def prompt() -> str:
        return "a new prompt"

    settings = more.pop("settings", CompressionSettings(protect_last_n=4))
    return ContextCompressor(
        record,
        more.pop("main", Window(window)),
        model,
        price=lambda _model, _used: (0.5, {"estimated_cost_usd": 0.5, "cost_status": "estimated"}),
        prompt=prompt,
        settings=settings,
        **more,
    )


async def done(events_: AsyncIterator[events.Event]) -> list[Any]:
    return [event async for event in events_]


def notes(happened: list[Any]) -> list[str]:
    return [event.detail or event.text for event in happened if isinstance(event, events.Note)]


def stored(db: SessionDB) -> list[Any]:
    """Return all stored data that a compression may change. A compression must change all of it in one
    transaction, or none of it."""
    kept = ("id", "parent_session_id", "ended_at", "end_reason", "title", "message_count", "system_prompt")
    rows = db.list_sessions_rich(limit=1000, include_children=True, project_compression_tips=False)
    ids = sorted(row["id"] for row in rows)
    return [
        [
            {name: (db.get_session(one) or {}).get(name) for name in kept},
            db.get_messages(one),
            db.get_context(one),
        ]
        for one in ids
    ]
