"""Asking a person at a plain terminal: a line, a choice, or something that is not shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hermes.cli.exit_codes import Refused
from hermes.cli.io.output import confirm, print_lines
from hermes.text import make_printable

CANCELLED = "Cancelled."


def require_consent(question: str, *, yes: bool = False) -> None:
    """Go on only with a yes, typed now or given with the command; without one nothing is done."""
    if not yes and not confirm(question):
        raise Refused(CANCELLED)


def ask_line(question: str, otherwise: str = "") -> str:
    """A line of text; `otherwise` stands for an empty one. The end of input calls everything off.

    At a terminal, what was typed before the question was shown does not count.
    """
    sys.stdout.write(f"{question}{f' [{make_printable(otherwise)}]' if otherwise else ''} ")
    sys.stdout.flush()
    if sys.stdin.isatty():
        from hermes.cli.io.keyboard import discard_typeahead

        discard_typeahead()
    answer = sys.stdin.readline()
    if not answer:
        print_lines([""])
        raise Refused("cancelled; nothing was changed")
    return answer.strip() or otherwise


def ask_hidden(question: str) -> str:
    """A line that a terminal does not show."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    from getpass import getpass

    try:
        return getpass(question).strip()
    except EOFError:
        raise Refused("cancelled; nothing was changed") from None


def ask_choice(question: str, offered: Sequence[str], *, free: bool = False) -> int | str:
    """The place of what was chosen by its number, the first if nothing was typed; with `free`, also another text."""
    print_lines(f"  {number:>2}  {make_printable(label)}" for number, label in enumerate(offered, 1))
    while True:
        typed = ask_line(question, "1" if offered else "")
        if typed.isdecimal() and 1 <= int(typed) <= len(offered):
            return int(typed) - 1
        if free and typed:
            return typed
        print_lines([f"Type a number from 1 to {len(offered)}{', or a name' if free else ''}."])
