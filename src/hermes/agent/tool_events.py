"""The queue of events from running tools: their approval requests and their reports. The turn reads it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from hermes.agent.approvals.request import ALLOW_ONCE, DENY, UNANSWERABLE, ApprovalRequest, Decision
from hermes.agent.events import ApprovalAsked, Event, Note


class ToolEvents:
    def __init__(self, stop: asyncio.Event, *, can_ask: bool) -> None:
        """`stop` is the stop event of the turn. `can_ask`: whether a surface answers approval requests; if
        False, all of them are refused."""
        self._stop, self._can_ask = stop, can_ask
        self._waiting: deque[Event] = deque()
        self._has_some = asyncio.Event()
        self._undecided: dict[int, asyncio.Future[Decision]] = {}
        self._approvals_asked = 0

    def report(self, event: Event) -> None:
        self._waiting.append(event)
        self._has_some.set()

    async def approve(self, request: ApprovalRequest, *, call_id: str = "") -> Decision:
        """Request an approval for the tool call `call_id` and wait for the decision."""
        if not self._can_ask:
            self.report(Note(f"refused, because nobody can be asked for approval here: {request.subject}"))
            return UNANSWERABLE
        if self._stop.is_set():
            return DENY
        self._approvals_asked += 1
        number = self._approvals_asked
        decided: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._undecided[number] = decided
        self.report(ApprovalAsked(number, request, call_id))
        try:
            return await decided
        finally:
            self._undecided.pop(number, None)

    def decide(self, number: int, decision: Decision) -> bool:
        """Answer the approval request with this number. Return False if no tool is waiting for the answer."""
        if self._stop.is_set():  # the waiting tool is about to be cancelled
            return False
        waiting = self._undecided.pop(number, None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(decision)
        return True

    async def wait(self) -> None:
        """Wait until the queue contains events."""
        await self._has_some.wait()

    async def take(self) -> AsyncGenerator[Event, None]:
        """Yield the queued events up to and including the next approval request.

        Later events stay in the queue for the next call, because the answer to this request can make later
        requests unnecessary.
        """
        self._has_some.clear()
        while self._waiting:
            event = self._waiting.popleft()
            if not isinstance(event, ApprovalAsked):
                yield event
            elif await self._must_ask(event):
                if self._waiting:
                    self._has_some.set()
                yield event
                return

    async def _must_ask(self, approval: ApprovalAsked) -> bool:
        """Return whether the person must answer this approval request. The result is False if no tool waits for the
        answer any more, or if an earlier answer of the person covers the request."""
        if self._stop.is_set() or approval.number not in self._undecided:
            return False
        is_granted = approval.request.is_granted
        if is_granted is None or not await asyncio.to_thread(is_granted):
            return True
        self.decide(approval.number, ALLOW_ONCE)
        return False
