"""The allowlist of a job: the only consents that the agent has while nobody can be asked.

The consents that a person stored for the workspace do not apply, nor does `approvals.mode`. An entry is a whole
command, or the first words of commands, such as `git pull`. Words that could start any program, such as `bash`, allow
only the whole command. Leaving the sandbox needs the whole command, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from hermes.agent.approvals.grants import Grant, Grants
from hermes.agent.approvals.policy import find_prefix, is_covered_by
from hermes.agent.approvals.request import ALLOW_ONCE, ApprovalRequest, Decision, Scope
from hermes.text import make_printable

REFUSED = Decision(
    False,
    note="this is a scheduled job and nobody can be asked; only what the job's allowlist names may be done."
    " Say in your answer what was refused",
)
LONGEST_SUBJECT = 120


class Allowlist(Grants):
    def __init__(self, commands: Sequence[str], *, edits: bool) -> None:
        super().__init__()
        self._commands, self._edits = [command.strip() for command in commands], edits
        self.refused: list[str] = []
        """The actions that were refused, each once."""

    @cached_property
    def prefixes(self) -> list[str]:
        return [prefix for prefix in map(find_prefix, self._commands) if prefix]

    def all(self) -> list[Grant]:
        return []

    def list_for(self, workspace: Path) -> list[Grant]:
        place = str(workspace)
        grants = [Grant(place, Scope.COMMAND, command, 0.0) for command in self._commands]
        grants += [Grant(place, Scope.PREFIX, prefix, 0.0) for prefix in self.prefixes]
        return [*grants, Grant(place, Scope.EDITS, "", 0.0)] if self._edits else grants

    def add(self, workspace: Path, scope: Scope, text: str = "") -> None:
        """Do nothing: a job cannot extend its allowlist."""

    def decide(self, request: ApprovalRequest) -> Decision:
        """Return the decision on an approval request of the agent. Sandboxed commands that the allowlist names were
        allowed before, without a request. Here, the other commands are compared with the allowlist, and every other
        action is refused and added to `refused`."""
        if request.command and request.subject == request.command:
            if request.command.strip() in self._commands:
                return ALLOW_ONCE
            if not request.leaves_sandbox and is_covered_by(self.prefixes, request.command):
                return ALLOW_ONCE
        subject = make_printable(request.subject, width_limit=LONGEST_SUBJECT)
        if subject not in self.refused:
            self.refused.append(subject)
        return REFUSED
