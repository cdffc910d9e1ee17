"""What a person is asked before a tool acts, and what they can answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import NamedTuple


class Scope(StrEnum):
    """How far a consent reaches beyond this one time, in this workspace."""

    COMMAND = "command"
    PREFIX = "prefix"
    EDITS = "edits"


class ApprovalRequest(NamedTuple):
    subject: str
    """The whole command, or `write PATH`."""
    reason: str
    """Why it is asked: what the action changes or wants to reach."""
    scopes: tuple[Scope, ...] = ()
    """The consents that can be given beyond this one time."""
    prefix: str = ""
    """With Scope.PREFIX: the words that later commands must begin with, such as `git commit`."""
    diff: str = ""
    """A unified diff of the edit, if it is one."""
    workspace: str = ""
    """Where a stored consent will hold."""
    is_granted: Callable[[], bool] | None = None
    """Whether an answer to another request has made this one needless while it waited."""


class Decision(NamedTuple):
    allowed: bool
    scope: Scope | None = None
    """What else is allowed from now on; one of the request's scopes."""
    note: str = ""
    """With a refusal: what the person wants the model to know."""


ALLOW_ONCE = Decision(True)
DENY = Decision(False)
UNANSWERABLE = Decision(
    False, note="nobody can be asked here; the person can allow it in a conversation at a terminal"
)

Approve = Callable[[ApprovalRequest], Awaitable[Decision]]
"""Asks the person. Called by tools; answered by the surface that shows the turn."""
