"""Prompts at a plain terminal: a line, a choice, or hidden input."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hermes.cli.exit_codes import Refused
from hermes.cli.io.output import confirm, fold_line, print_lines
from hermes.text import make_printable

CANCELLED = "Cancelled."


def require_consent(question: str, *, yes: bool = False) -> None:
    """Raise Refused unless the user consents. With `yes`, do not ask: the user has consented on the command
    line."""
    if not yes and not confirm(question):
        raise Refused(CANCELLED)


def ask_line(question: str, otherwise: str = "") -> str:
    """Ask for a line of text. If the line is empty, return `otherwise`. The end of input raises Refused.

    At a terminal, text typed before the question was shown is discarded.
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
    """Ask for a line that the terminal does not show."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    from getpass import getpass

    try:
        return getpass(question).strip()
    except EOFError:
        raise Refused("cancelled; nothing was changed") from None


def ask_choice(question: str, offered: Sequence[str], *, free: bool = False) -> int | str:
    """Ask for a choice by number and return its index. Enter alone chooses the first. With `free`, any other
    text is returned as typed."""
    for number, label in enumerate(offered, 1):
        print_lines(fold_line(f"  {number:>2}  {make_printable(label)}", indent=6))
    while True:
        typed = ask_line(question, "1" if offered else "")
        if typed.isdecimal() and 1 <= int(typed) <= len(offered):
            return int(typed) - 1
        if free and typed:
            return typed
        print_lines([f"Type a number from 1 to {len(offered)}{', or a name' if free else ''}."])
