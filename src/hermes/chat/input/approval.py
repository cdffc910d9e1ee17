"""The question whether the person approves a tool call. It shows the whole command or diff, then the choices.
Both the terminal conversation and `hermes -q` use it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Sequence
from typing import Protocol

from prompt_toolkit.application import create_app_session
from prompt_toolkit.output import create_output
from rich.console import Console

from hermes.agent.approvals.request import ALLOW_ONCE, DENY, ApprovalRequest, Decision, Scope
from hermes.chat.input import question
from hermes.chat.input.question import Option
from hermes.chat.view.screen import Screen
from hermes.text import format_count, make_printable, make_visible

SCOPES = {
    Scope.COMMAND: ("yes, and this command in this project from now on", "a"),
    Scope.PREFIX: ("yes, and commands that begin with `{}` in this project from now on", "p"),
    Scope.EDITS: ("yes, and edits in this project from now on", "a"),
}
"""The label and the letter of each answer that also approves later actions."""
EXPLAIN = Decision(False, note="?")
"""The value of the option to deny with a reason. A second question asks for the reason."""
MOST_LINES_UNSAID, MOST_CHARACTERS_UNSAID = 12, 900
"""The numbers of lines and characters above which the question mentions the length of the command."""


class Asker(Protocol):
    """An object that asks the person questions at the terminal. A result of None means that the person chose
    nothing. Ctrl-C raises `question.Stopped`."""

    def choose(
        self, text: str, options: Sequence[Option[Decision]], *, default: int
    ) -> Awaitable[Decision | None]: ...

    def ask_line(self, text: str) -> Awaitable[str | None]: ...


async def ask_approval(request: ApprovalRequest, screen: Screen, asker: Asker) -> Decision:
    """Show the tool call that needs an approval, ask the person, and return the decision. Ctrl-C raises
    `question.Stopped`."""
    # Invisible characters are made visible, so that no part of a command is hidden from the person.
    screen.print_line(make_visible(request.subject), "bold")
    if request.diff:
        screen.print_diff(make_visible(request.diff))
    options = [Option(ALLOW_ONCE, "yes, once", "y")]
    for scope in request.scopes:
        label, key = SCOPES[scope]
        options.append(Option(Decision(True, scope), label.format(make_printable(request.prefix)), key))
    options.append(Option(DENY, "no", "n"))
    options.append(Option(EXPLAIN, "no, and tell the agent why", "w"))
    text = f"Allow it? ({make_printable(request.reason)}{describe_length(request.subject)})"
    chosen = await asker.choose(text, options, default=len(options) - 2)
    if chosen is not EXPLAIN:
        return chosen or DENY
    return Decision(False, note=(await asker.ask_line("Why not? ") or "").strip())


def describe_length(subject: str) -> str:
    """Return a text that gives the number of lines and characters of `subject`, the command or diff to approve.
    Return an empty string if `subject` is so short that it fits on the screen."""
    lines = subject.count("\n") + 1
    if lines <= MOST_LINES_UNSAID and len(subject) <= MOST_CHARACTERS_UNSAID:
        return ""
    return (
        f"; it has {format_count(lines, 'line')} and {len(subject):,} characters: read it from the beginning"
    )


class PlainAsker:
    """Asks questions directly on the terminal. It is used where no prompt line is open, as for a one-shot
    question."""

    async def choose(
        self, text: str, options: Sequence[Option[Decision]], *, default: int
    ) -> Decision | None:
        return await question.Choice(text, options, default).ask()

    async def ask_line(self, text: str) -> str | None:
        return await question.ask_line(text)


async def ask_on_stderr(request: ApprovalRequest) -> Decision:
    """Ask for the approval of a tool call on stderr, because stdout is reserved for the answer to a one-shot
    question. Stdin and stderr must be terminals."""
    screen = Screen(Console(stderr=True, highlight=False))
    with create_app_session(output=create_output(stdout=sys.stderr)):
        return await ask_approval(request, screen, PlainAsker())
