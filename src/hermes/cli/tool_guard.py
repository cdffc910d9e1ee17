"""Refuse commands that are for a person when a tool of the agent started them.

The table of commands says which those are (`Command.access`). This keeps a model from changing settings or letting
people in by mistake or by persuasion. It is no wall against a hostile program: that is the sandbox of the tools.
"""

from __future__ import annotations

import argparse

from hermes.cli.command import Command, Refused


def check_caller(arguments: argparse.Namespace) -> None:
    """Refuse a command for a person that a tool started."""
    command: Command | None = getattr(arguments, "command", None)
    if command is None or not command.needs_person(arguments):
        return
    from hermes import caller

    if not caller.is_started_by_tool():
        return
    from hermes import audit_log

    audit_log.record("refused", command=arguments.command_name)
    raise Refused(
        f"`{arguments.command_name}` was started by a tool of the agent; run it yourself in a terminal"
    )
