"""What a tool is: a name, a schema, and a function from arguments to text that the model reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hermes.agent.approvals.request import Approve

if TYPE_CHECKING:
    from hermes.agent.events import Event
    from hermes.agent.models.model import Model, Price
    from hermes.agent.prompt.participants import Speakers
    from hermes.agent.transcript import Record
    from hermes.db.session_db import AnyStore

MOST_OUTPUT = 50_000
"""Characters of output that a model is given; a tool that has more says what it left out."""


class Caller(NamedTuple):
    """The agent whose turn calls a tool, for a tool that starts another agent."""

    record: Record
    model: Model
    tools: Sequence[Tool]
    price: Price


def _ignore_event(_event: Event) -> None:
    """Outside of a turn nobody follows."""


class ToolContext(NamedTuple):
    """Where a tool works, and for whom."""

    db: AnyStore
    session_id: str
    cwd: Path
    approve: Approve
    stop: asyncio.Event
    """Set when the person stops the turn: what takes long looks at it."""
    speakers: Speakers | None = None
    """Who spoke in this turn, in a session that several people share; None: it is one person's."""
    caller: Caller | None = None
    report: Callable[[Event], None] = _ignore_event
    """Adds an event to those of the turn, while the tool runs."""


class ToolFailed(Exception):
    """The tool could not do it; the message is for the model, which may try another way."""


class Tool(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON schema of its arguments."""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str: ...


def make_schema(tool: Tool) -> dict[str, Any]:
    """A tool as the chat completions interface takes it."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def shorten_middle(text: str, most: int = MOST_OUTPUT) -> str:
    """The beginning and the end of a text that is too long, and how much was left out between."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most - most * 2 // 3
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out:,} characters left out ...]\n{text[-tail:]}"
