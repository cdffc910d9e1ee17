"""Approval requests and the decisions that a person can make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import NamedTuple


class Scope(StrEnum):
    """What a stored consent covers in its workspace: the same command (`COMMAND`), all commands that start
    with the same words (`PREFIX`), or all edits of files (`EDITS`)."""

    COMMAND = "command"
    PREFIX = "prefix"
    EDITS = "edits"


class ApprovalRequest(NamedTuple):
    subject: str
    """The action that needs an approval: a whole command, `write PATH` or `read PATH`."""
    reason: str
    """Why the action needs an approval, for example "is outside the workspace"."""
    scopes: tuple[Scope, ...] = ()
    """The scopes that the person can choose for a stored consent."""
    prefix: str = ""
    """With Scope.PREFIX: the first words of the commands that the consent covers, such as `git commit`."""
    diff: str = ""
    """The unified diff of an edit; empty for other actions."""
    workspace: str = ""
    """The workspace in which a stored consent would be valid."""
    command: str = ""
    """The command, if the action is a command; `subject` may also name its folder."""
    leaves_sandbox: bool = False
    """Whether the command runs outside the sandbox although there is one."""
    is_granted: Callable[[], bool] | None = None
    """Returns whether the answer to an earlier request already covers this request."""


class Decision(NamedTuple):
    allowed: bool
    scope: Scope | None = None
    """The scope of the consent to store, chosen from the scopes of the request. None allows only this action
    and stores nothing."""
    note: str = ""
    """For a refusal: the person's message to the model."""


ALLOW_ONCE = Decision(True)
DENY = Decision(False)
UNANSWERABLE = Decision(
    False,
    note="nobody can be asked for approval here; the person can allow it in a conversation at a terminal",
)

Approve = Callable[[ApprovalRequest], Awaitable[Decision]]
"""Asks the person for an approval and returns the decision. A tool calls this function. The surface that
displays the turn gives the answer."""
