"""The tool interface: a name, a JSON schema, and a function from arguments to text that the model reads."""

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
"""The maximum tool output that a model receives, in characters. Longer output is cut, with a note about the
cut."""


class Caller(NamedTuple):
    """The agent whose turn calls a tool. Used by tools that start another agent."""

    record: Record
    model: Model
    tools: Sequence[Tool]
    price: Price


def _ignore_event(_event: Event) -> None:
    """Do nothing: outside of a turn, nobody reads events."""


class ToolContext(NamedTuple):
    """What a tool knows about the turn that calls it: the store, the session, the working directory, and functions
    that reach the person."""

    db: AnyStore
    session_id: str
    cwd: Path
    approve: Approve
    stop: asyncio.Event
    """Set when the person stops the turn. Long-running tools must check it."""
    speakers: Speakers | None = None
    """Lists the speakers of this turn in a session that several people share; None if the session has one
    person."""
    caller: Caller | None = None
    """None if the tool must not start another agent."""
    report: Callable[[Event], None] = _ignore_event
    """Adds an event to the events of the turn while the tool runs."""


class ToolFailed(Exception):
    """A tool call failed. The model receives the message and can try something else."""


class Tool(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments."""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str: ...


def make_schema(tool: Tool) -> dict[str, Any]:
    """Return a tool in the format of the chat completions API."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def shorten_middle(text: str, most: int = MOST_OUTPUT) -> str:
    """Return the text unchanged if it has at most `most` characters. Otherwise return its beginning and its
    end, with a note between them."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most - most * 2 // 3
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out:,} characters left out ...]\n{text[-tail:]}"


def find_conversation_root(store: AnyStore, session_id: str) -> str:
    """Return the id of the first session of the conversation. Background processes and subagents are registered under
    this id, because a compression does not change it."""
    return store.get_conversation_root(session_id) or session_id
