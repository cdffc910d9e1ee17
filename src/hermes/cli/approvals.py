"""`hermes approvals`: list and revoke the actions that the agent may perform in a project without asking."""

from __future__ import annotations

import argparse
from pathlib import Path

from hermes import clock
from hermes.cli.command import Access, Command, Words, add_commands, add_json_option
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.io.output import print_json, print_lines
from hermes.text import format_count, make_printable

COMMANDS = {
    "list": Command(
        "hermes.cli.approvals:define_list",
        "show what the agent may do without asking, by project",
        Access.READS,
    ),
    "revoke": Command(
        "hermes.cli.approvals:define_revoke", "remove approvals, so that the agent asks again", Access.PERSON
    ),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)
    if not words:
        parser.set_defaults(run=show_approvals, workspace=None, json=False)


def define_list(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=show_approvals)
    _add_workspace_option(parser)
    add_json_option(parser, ("number", "workspace", "scope", "text", "since"))


def define_revoke(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=revoke_approvals)
    parser.add_argument(
        "numbers", nargs="*", type=int, metavar="NUMBER", help="a number from `hermes approvals list`"
    )
    parser.add_argument("--all", action="store_true", help="all approvals, or all of one project")
    _add_workspace_option(parser)
    add_json_option(parser)


def _add_workspace_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workspace",
        type=Path,
        metavar="DIR",
        help="only approvals of the project that contains this directory",
    )


def show_approvals(arguments: argparse.Namespace) -> int:
    from hermes.agent.approvals.grants import Grants

    workspace = _find_workspace(arguments)
    numbered = [
        (number, grant)
        for number, grant in enumerate(Grants().all(), 1)
        if workspace is None or grant.workspace == workspace
    ]
    if arguments.json:
        print_json([{"number": number, **grant._asdict()} for number, grant in numbered], arguments.json)
        return DONE
    if not numbered:
        print_lines(["Nothing is allowed without asking yet."])
    width = len(str(numbered[-1][0])) if numbered else 0
    before = None
    for number, grant in numbered:
        if grant.workspace != before:
            print_lines([make_printable(grant.workspace)])
            before = grant.workspace
        meanings = {
            "command": f"the command `{grant.text}`",
            "prefix": f"commands that begin with `{grant.text}`",
        }
        meaning = meanings.get(grant.scope, "edits of files")
        since = clock.format_relative(grant.since, clock.now())
        print_lines([make_printable(f"  {number:>{width}}  {meaning}, since {since}")])
    return DONE


def revoke_approvals(arguments: argparse.Namespace) -> int:
    from hermes.agent.approvals.grants import Grants

    if bool(arguments.numbers) == arguments.all:
        raise WrongUsage("name the approvals: numbers from `hermes approvals list`, or --all")
    grants, workspace = Grants(), _find_workspace(arguments)
    approvals = grants.all()
    missing = [number for number in arguments.numbers if not 1 <= number <= len(approvals)]
    if missing:
        raise Refused(f"there is no approval {missing[0]}; see `hermes approvals list`")
    chosen = approvals if arguments.all else [approvals[number - 1] for number in arguments.numbers]
    revoked = grants.revoke([grant for grant in chosen if workspace is None or grant.workspace == workspace])
    if not revoked:
        raise Refused("there was nothing to revoke")
    if arguments.json:
        print_json({"revoked": revoked})
    else:
        print_lines([f"Revoked {format_count(revoked, 'approval')}; the agent asks again."])
    return DONE


def _find_workspace(arguments: argparse.Namespace) -> str | None:
    from hermes.store.workspace import find_workspace

    return None if arguments.workspace is None else str(find_workspace(arguments.workspace))
