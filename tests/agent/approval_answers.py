"""Runs a turn and gives the same answer to each of its approval questions."""

from __future__ import annotations

from hermes.agent.approvals.request import ALLOW_ONCE, ApprovalRequest, Decision
from hermes.agent.events import ApprovalAsked, Event
from hermes.agent.turn import Turn


async def events_of(
    turn: Turn, content: str, decision: Decision = ALLOW_ONCE, asked: list[ApprovalRequest] | None = None
) -> list[Event]:
    """Return all events of a turn. Approval questions are added to `asked` and answered with `decision`."""
    happened = []
    async for event in turn.events(content):
        happened.append(event)
        if isinstance(event, ApprovalAsked):
            if asked is not None:
                asked.append(event.request)
            assert turn.decide(event.number, decision)
    return happened
