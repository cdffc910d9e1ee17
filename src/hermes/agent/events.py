"""What happens in a turn, as every surface is told it."""

from __future__ import annotations

from typing import Any, NamedTuple

from hermes.agent.approvals.request import ApprovalRequest
from hermes.agent.models.model import Used


class Stored(NamedTuple):
    """A message is durable."""

    message_id: int
    role: str


class NotStored(NamedTuple):
    """A message is not in the store. It is kept beside it (`spooled`), or only here until the program ends."""

    role: str
    why: str
    spooled: bool


class TextDelta(NamedTuple):
    """A piece of the answer, without reasoning."""

    text: str


class ThoughtDelta(NamedTuple):
    """A piece of the model's reasoning: sent beside the text, or in tags at its beginning."""

    text: str


class Recast(NamedTuple):
    """What was streamed of this answer so far is reasoning: its end came without a beginning. The answer follows."""

    text: str
    """All of that reasoning, in the place of the text that was streamed."""


class Discarded(NamedTuple):
    """What was streamed of this answer so far counts no more: it starts again."""

    why: str
    seconds: float


class ToolStarted(NamedTuple):
    call_id: str
    name: str
    arguments: dict[str, Any]


class ToolEnded(NamedTuple):
    call_id: str
    name: str
    output: str
    failed: bool
    seconds: float


class ApprovalAsked(NamedTuple):
    """A tool waits for the person's consent. The surface answers with `decide(number, decision)`."""

    number: int
    request: ApprovalRequest


class SubagentProgress(NamedTuple):
    """How far a subagent is. Told when it is queued, begins, does something else, uses tokens, and ends."""

    number: int | None
    """Its name in `/agents`, counted from 1 in each conversation; None if another process ran it."""
    goal: str
    state: str
    """queued, running, done, failed, stopped, or interrupted: its process ended without a word."""
    session_id: str | None = None
    """None until it begins."""
    activity: str = ""
    """The tool that it runs, or what it waits for."""
    steps: int = 0
    """Answers of its model so far."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None: unknown, which is not nothing."""
    seconds: float = 0.0
    """Since it began; without the time in the queue."""

    @property
    def is_over(self) -> bool:
        return self.state not in ("queued", "running")


class Counted(NamedTuple):
    """What a request to a model took."""

    model: str
    used: Used
    cost_usd: float | None
    """None: unknown, which is not nothing."""
    purpose: str = "main"
    """`main`, `auxiliary`, or `subagent`: a subagent of this turn asked."""


class Note(NamedTuple):
    """Something a person should know, in one line."""

    text: str
    hint: str = ""
    """What to do about it at the machine. It is not shown on platforms, where nobody can run a command."""


class Moved(NamedTuple):
    """The conversation goes on in another session, after a compression."""

    session_id: str
    before: int
    after: int
    """Messages in the context."""


class Done(NamedTuple):
    text: str
    """The answer without reasoning; the store has it as the model sent it."""
    reason: str | None = None


class Interrupted(NamedTuple):
    """A person stopped it; what happened is kept."""

    text: str


class Failed(NamedTuple):
    """There is no answer. What was said is kept, and can be tried again."""

    why: str
    error: Exception


Event = (
    Stored
    | NotStored
    | TextDelta
    | ThoughtDelta
    | Recast
    | Discarded
    | ToolStarted
    | ToolEnded
    | ApprovalAsked
    | SubagentProgress
    | Counted
    | Note
    | Moved
    | Done
    | Interrupted
    | Failed
)
