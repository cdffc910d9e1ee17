"""`hermes gateway block | unblock`: the gateway does not answer blocked people. A running gateway applies the
change at once."""

from __future__ import annotations

import argparse

from hermes import clock, home
from hermes.cli.command import Words, add_json_option, parse_text
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.gateway.pair import open_pairings
from hermes.cli.io.output import print_error, print_json, print_lines
from hermes.errors import HermesError
from hermes.gateway.inbound.pairing import Blocked, Pairings
from hermes.gateway.ops.requests import ask_gateway
from hermes.gateway.registry import PLATFORMS
from hermes.session_kinds import canonical_source
from hermes.text import format_count, make_printable

PERSON_HELP = "the person as PLATFORM:USER, by id or handle, such as telegram:123456 or telegram:@ann"


def define_block(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=block)
    parser.add_argument("person", nargs="?", type=parse_text, metavar="PERSON", help=PERSON_HELP)
    parser.add_argument("--list", action="store_true", help="list the blocked people")
    add_json_option(parser)


def define_unblock(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=unblock)
    parser.add_argument("person", type=parse_text, metavar="PERSON", help=PERSON_HELP)
    add_json_option(parser)


def block(arguments: argparse.Namespace) -> int:
    pairings = open_pairings()
    if arguments.list == (arguments.person is not None):
        raise WrongUsage("name a PERSON, or use --list")
    if arguments.list:
        return _list(pairings, as_json=arguments.json)
    platform, user = _parse_person(arguments.person)
    added = pairings.block(platform, user)
    dropped = _drop_waiting(platform, {user, *(entry.user for entry in added)})
    try:
        ask_gateway("blocked")  # the gateway stops a running turn of the person
    except HermesError as problem:
        print_error(f"a running turn was not stopped: {problem}")
    if arguments.json:
        print_json([entry._asdict() for entry in added])
        return DONE
    name = make_printable(f"{platform}:{user}")
    print_lines([f"{name} is blocked and gets no more answers." if added else f"{name} is blocked already."])
    if dropped:
        print_lines([f"{format_count(dropped, 'waiting answer')} dropped."])
    return DONE


def unblock(arguments: argparse.Namespace) -> int:
    platform, user = _parse_person(arguments.person)
    removed = open_pairings().unblock(platform, user)
    if not removed:
        raise Refused(f"{platform}:{user} is not blocked; `hermes gateway block --list` shows who is")
    if arguments.json:
        print_json([entry._asdict() for entry in removed])
        return DONE
    print_lines([make_printable(f"{entry.platform}:{entry.user} is no longer blocked.") for entry in removed])
    return DONE


def _parse_person(text: str) -> tuple[str, str]:
    platform, colon, user = text.partition(":")
    if not colon or not user.strip():
        raise WrongUsage("PERSON is PLATFORM:USER, such as telegram:123456")
    name = canonical_source(platform.lower())
    if name not in PLATFORMS:
        raise Refused(f"there is no platform '{platform}'; there are {', '.join(PLATFORMS)}")
    return name, user.strip()


def _drop_waiting(platform: str, users: set[str]) -> int:
    """Drop the entries of the outbox that are addressed to a blocked person. `users` are the ids of that person
    on the platform. Return the number of dropped entries."""
    from hermes.db.session_db import SessionDB

    if not home.get_default_db_path().exists():
        return 0
    db = SessionDB()
    try:
        waiting = [entry for entry in db.outbox.list_open() if entry.platform == platform]
        theirs = [entry for entry in waiting if entry.payload.get("to", {}).get("user_id") in users]
        return sum(db.outbox.drop(entry.id) for entry in theirs)
    finally:
        db.close()


def _list(pairings: Pairings, *, as_json: bool) -> int:
    blocked = pairings.list_blocked()
    if as_json:
        print_json([entry._asdict() for entry in blocked])
        return DONE
    if not blocked:
        print_lines(["Nobody is blocked."])
    print_lines(make_printable(_format(entry)) for entry in blocked)
    return DONE


def _format(entry: Blocked) -> str:
    return f"{entry.platform}:{entry.user}, since {clock.format_relative(entry.since, clock.now())}"
