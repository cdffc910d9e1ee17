"""The events of a turn. A turn yields them to every surface."""

from __future__ import annotations

from typing import Any, NamedTuple

from hermes.agent.approvals.request import ApprovalRequest
from hermes.agent.models.model import Used


class Stored(NamedTuple):
    """A message of the turn was stored durably."""

    message_id: int
    role: str


class NotStored(NamedTuple):
    """A message of the turn could not be written to the store.

    The message is in the spool if `spooled` is True. Otherwise it exists only in memory until the program ends.
    """

    role: str
    why: str
    spooled: bool


class TextDelta(NamedTuple):
    """A piece of the answer, without reasoning."""

    text: str


class ThoughtDelta(NamedTuple):
    """A piece of the model's reasoning. A model sends reasoning in a separate field, or in tags at the start
    of the text."""

    text: str


class Recast(NamedTuple):
    """The text streamed so far for the current answer was reasoning and not the answer. The model has sent a
    closing reasoning tag without an opening one.

    The text of the answer follows in later events.
    """

    text: str
    """The complete reasoning. It replaces the text that was streamed."""


class Discarded(NamedTuple):
    """All pieces streamed so far for the current answer are void, because the request is sent again. The answer
    starts again from the beginning."""

    why: str
    seconds: float
    """The pause before the answer starts again."""


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
    """A tool waits for the person's consent. The surface answers with `Turn.decide(number, decision)`."""

    number: int
    request: ApprovalRequest
    call_id: str = ""
    """The tool call that waits. For an action of a subagent, this is the call that started the subagent."""


class SubagentProgress(NamedTuple):
    """The progress of a subagent. Sent when the subagent is queued, starts, changes its activity, uses tokens
    or ends."""

    number: int | None
    """The number of the subagent in `/agents`, counted from 1 per conversation; None if another process ran
    it."""
    goal: str
    state: str
    """One of queued, running, done, failed, stopped and interrupted. Interrupted means that the process of
    the subagent died."""
    session_id: str | None = None
    """The session of the subagent; None until the subagent starts."""
    activity: str = ""
    """The tool that the subagent runs, or the reason why it waits."""
    steps: int = 0
    """The number of answers that the subagent's model has given so far."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None if the cost is unknown. An unknown cost is not zero."""
    seconds: float = 0.0
    """The running time, without the time in the queue."""

    @property
    def is_over(self) -> bool:
        return self.state not in ("queued", "running")


class Counted(NamedTuple):
    """The usage of one request to a model."""

    model: str
    used: Used
    cost_usd: float | None
    """None if the cost is unknown. An unknown cost is not zero."""
    purpose: str = "main"
    """`main`, `auxiliary`, or `subagent` for a request by a subagent of this turn."""


class Note(NamedTuple):
    """A one-line notice for the person."""

    text: str
    hint: str = ""
    """Advice that belongs to the notice and names a command to run on the machine. Chat platforms do not show
    the hint, because the command cannot be run there."""
    detail: str = ""
    """The notice including the error message of a model's provider. Only the owner of the machine gets it,
    instead of `text`. Empty if there is no such message."""


class Moved(NamedTuple):
    """The conversation was compressed and continues in another session."""

    session_id: str
    before: int
    after: int
    """The number of messages in the context after the compression; `before` is the number before it."""


class Done(NamedTuple):
    text: str
    """The answer without reasoning. The store keeps the text as the model sent it."""
    reason: str | None = None


class Interrupted(NamedTuple):
    """A person stopped the turn. The messages so far are stored."""

    text: str


class Failed(NamedTuple):
    """The turn failed without an answer. The person's message is kept, and the turn can be retried."""

    why: str
    error: Exception
    hidden: str = ""
    """The reason with the error message of the model's provider, for the log. Empty if `why` already contains
    that message, or if there is none."""


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
