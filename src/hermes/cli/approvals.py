"""`hermes approvals`: what the agent may do in a project without asking again, and taking that back."""

from __future__ import annotations

import argparse
from pathlib import Path

from hermes import clock
from hermes.cli.command import DONE, Access, Command, Refused, Words, WrongUsage, group, takes_json
from hermes.cli.io.output import say, say_json
from hermes.text import format_count, make_printable

COMMANDS = {
    "list": Command(
        "hermes.cli.approvals:define_list", "show what needs no question, by project", Access.READS
    ),
    "revoke": Command(
        "hermes.cli.approvals:define_revoke", "ask again about something that was allowed", Access.PERSON
    ),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    group(parser, COMMANDS, words)
    if not words:
        parser.set_defaults(run=show, workspace=None, json=False)


def define_list(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=show)
    _takes_workspace(parser)
    takes_json(parser)


def define_revoke(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=revoke)
    parser.add_argument(
        "numbers", nargs="*", type=int, metavar="NUMBER", help="as `hermes approvals list` numbers them"
    )
    parser.add_argument("--all", action="store_true", help="all of them, or all of one project")
    _takes_workspace(parser)
    takes_json(parser)


def _takes_workspace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workspace",
        type=Path,
        metavar="DIR",
        help="only those of the project that this directory belongs to",
    )


def show(arguments: argparse.Namespace) -> int:
    from hermes.agent.approvals.grants import Grants

    wanted = _workspace(arguments)
    numbered = [
        (number, grant)
        for number, grant in enumerate(Grants().all(), 1)
        if wanted is None or grant.workspace == wanted
    ]
    if arguments.json:
        say_json([{"number": number, **grant._asdict()} for number, grant in numbered])
        return DONE
    if not numbered:
        say(["Nothing is allowed without a question yet."])
    width = len(str(numbered[-1][0])) if numbered else 0
    before = None
    for number, grant in numbered:
        if grant.workspace != before:
            say([make_printable(grant.workspace)])
            before = grant.workspace
        what = {
            "command": f"the command `{grant.text}`",
            "prefix": f"commands that begin with `{grant.text}`",
        }
        meaning = what.get(grant.scope, "edits of files")
        since = clock.format_relative(grant.since, clock.now())
        say([make_printable(f"  {number:>{width}}  {meaning}, since {since}")])
    return DONE


def revoke(arguments: argparse.Namespace) -> int:
    from hermes.agent.approvals.grants import Grants

    if bool(arguments.numbers) == arguments.all:
        raise WrongUsage("say which: numbers of `hermes approvals list`, or --all")
    grants, wanted = Grants(), _workspace(arguments)
    known = grants.all()
    missing = [number for number in arguments.numbers if not 1 <= number <= len(known)]
    if missing:
        raise Refused(f"there is no approval {missing[0]}; `hermes approvals list` shows what there is")
    chosen = known if arguments.all else [known[number - 1] for number in arguments.numbers]
    gone = grants.revoke([grant for grant in chosen if wanted is None or grant.workspace == wanted])
    if not gone:
        raise Refused("there was nothing to revoke")
    if arguments.json:
        say_json({"revoked": gone})
    else:
        say([f"Revoked {format_count(gone, 'approval')}; the agent asks again."])
    return DONE


def _workspace(arguments: argparse.Namespace) -> str | None:
    from hermes.store.workspace import find_workspace

    return None if arguments.workspace is None else str(find_workspace(arguments.workspace))
