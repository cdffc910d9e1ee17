"""The agent of one conversation: its model, its tools and its transcript. A surface creates one agent for
each conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.agent.approvals.request import Approve
from hermes.agent.models.model import Model, Price
from hermes.agent.prompt.participants import Speakers
from hermes.agent.tool import Caller, Tool, ToolContext
from hermes.agent.transcript import Record
from hermes.agent.turn import MOST_STEPS, Compressor, Turn

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore


class Agent:
    def __init__(
        self,
        db: AnyStore,
        record: Record,
        model: Model,
        *,
        tools: Sequence[Tool],
        prompt: Callable[[], Awaitable[str]],
        price: Price,
        cwd: Path,
        can_ask: bool = False,
        compressor: Compressor | None = None,
        most_steps: int = MOST_STEPS,
        speakers: Speakers | None = None,
    ) -> None:
        """`can_ask`: whether the surface answers `ApprovalAsked` events. If False, actions that need consent
        are refused."""
        self.db, self.record, self.model, self.cwd = db, record, model, cwd
        self.tools, self.compressor = tools, compressor
        self._prompt, self._price, self._can_ask, self._most_steps = prompt, price, can_ask, most_steps
        self.speakers = speakers
        """Lists the speakers of the current turn in a session that several people share; None if the session
        has one person."""

    def turn(self) -> Turn:
        """Return a new turn of this conversation. The caller must start it only after the previous turn has ended."""
        return Turn(
            self.record,
            self.model,
            self.tools,
            self._make_tool_context,
            price=self._price,
            prompt=self._prompt,
            compressor=self.compressor,
            most_steps=self._most_steps,
            can_ask=self._can_ask,
        )

    def _make_tool_context(self, approve: Approve, stop: asyncio.Event) -> ToolContext:
        caller = Caller(self.record, self.model, self.tools, self._price)
        return ToolContext(self.db, self.record.session_id, self.cwd, approve, stop, self.speakers, caller)
