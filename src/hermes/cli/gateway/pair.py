"""`hermes gateway pair`: make a one-time pairing code, list paired people, or revoke a pairing."""

from __future__ import annotations

import argparse

from hermes import clock
from hermes.cli.command import Words, add_json_option, parse_text
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.io.output import confirm, print_details, print_error, print_json, print_lines
from hermes.gateway.inbound.pairing import FILE, MINUTES, Paired, Pairings
from hermes.gateway.ops.status_file import gateway_folder
from hermes.gateway.registry import PLATFORMS
from hermes.session_kinds import canonical_source
from hermes.text import format_count, make_printable

LONGEST = 7 * 24 * 60


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=pair)
    parser.add_argument(
        "platform",
        nargs="?",
        type=parse_text,
        metavar="PLATFORM",
        help="the platform that the code is valid on (default: all)",
    )
    parser.add_argument(
        "--owner", action="store_true", help="also grant the tools that reach this machine, and its memory"
    )
    parser.add_argument(
        "--minutes",
        type=_parse_minutes,
        default=MINUTES,
        metavar="N",
        help="how many minutes the code is valid (10)",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="list the people who got access by a code")
    instead.add_argument(
        "--revoke",
        type=parse_text,
        metavar="PLATFORM:USER",
        help="revoke the access of a person, by id or name",
    )
    instead.add_argument(
        "--accept",
        action="store_true",
        help="show the people in a pairing file that another program changed, and accept them",
    )
    add_json_option(parser)


def open_pairings() -> Pairings:
    """Return the object that manages the paired people of the home. If their file was written by an older
    version without protection against changes, protect it now and print a note."""
    pairings = Pairings(gateway_folder())
    adopted = pairings.adopt_unsealed()
    if adopted is not None:
        print_error(
            f"{FILE} of an older version is now protected against changes by other programs; it contains:"
        )
        print_details(map(format_person, adopted) if adopted else ["nobody"])
    return pairings


def pair(arguments: argparse.Namespace) -> int:
    is_code = not (arguments.list or arguments.revoke or arguments.accept)
    if not is_code and (arguments.platform or arguments.owner):
        raise WrongUsage("--list, --revoke and --accept make no code; use them without PLATFORM and --owner")
    if arguments.accept:
        return _accept(Pairings(gateway_folder()))
    pairings = open_pairings()
    if arguments.list:
        return _list(pairings, as_json=arguments.json)
    if arguments.revoke is not None:
        return _revoke(pairings, arguments.revoke, as_json=arguments.json)
    platform = None if arguments.platform is None else find_platform(arguments.platform)
    code = pairings.make_code(platform, owner=arguments.owner, minutes=arguments.minutes)
    until = clock.now() + arguments.minutes * clock.MINUTE
    if arguments.json:
        print_json({"code": code, "platform": platform, "owner": arguments.owner, "until": until})
    else:
        print_lines(describe_code(code, platform, arguments.minutes, owner=arguments.owner))
    return DONE


def describe_code(code: str, platform: str | None, minutes: float, *, owner: bool) -> list[str]:
    where = "on any platform" if platform is None else f"on {PLATFORMS[platform].title}"
    whose = ", as an owner of this machine" if owner else ""
    how = f"The person who sends `/pair {code}` to the bot in a private chat {where} gets access{whose}."
    return [code, f"{how} It is valid once, for {format_count(minutes, 'minute')}."]


def find_platform(name: str) -> str:
    """Return the usual name of a platform. `name` may be any known name of it. Raise `Refused` if the
    platform does not exist or does not use pairing."""
    platform_name = canonical_source(name.lower())
    if platform_name not in PLATFORMS:
        names = ", ".join(known_name for known_name, platform in PLATFORMS.items() if not platform.by_secret)
        raise Refused(f"there is no platform '{name}'; there are {names}")
    if PLATFORMS[platform_name].by_secret:
        raise Refused(f"{platform_name} needs no pairing: everyone who knows its secret can use it")
    return platform_name


def _list(pairings: Pairings, *, as_json: bool) -> int:
    people = pairings.list_people()
    if as_json:
        print_json([person._asdict() for person in people])
        return DONE
    if not people:
        print_lines(["Nobody got access by a code yet."])
    print_lines(make_printable(format_person(person)) for person in people)
    return DONE


def format_person(person: Paired) -> str:
    name = f" ({person.user_name})" if person.user_name else ""
    role = ", owner" if person.owner else ""
    since = clock.format_relative(person.since, clock.now())
    return f"{person.platform}:{person.user_id}{name}{role}, since {since}"


def _accept(pairings: Pairings) -> int:
    if pairings.check() is None:
        print_lines([f"No other program changed {FILE}; nothing to do."])
        return DONE
    people = pairings.read_unchecked()
    print_lines(
        ["These people are in it:", *(f"  {make_printable(format_person(person))}" for person in people)]
    )
    if not confirm("Give access to exactly these people? Unused codes are deleted."):
        raise Refused("cancelled; nothing was changed")
    pairings.accept(people)
    print_lines(["Done. If the key was replaced, restart a running gateway."])
    return DONE


def _revoke(pairings: Pairings, person_key: str, *, as_json: bool) -> int:
    platform, colon, user = person_key.partition(":")
    if not colon or not user:
        raise WrongUsage("--revoke takes PLATFORM:USER, such as telegram:123456")
    revoked = pairings.revoke(canonical_source(platform.lower()), user)
    if not revoked:
        raise Refused(f"{person_key} has no access by a code; `hermes gateway pair --list` shows who has")
    if as_json:
        print_json([person._asdict() for person in revoked])
    for person in [] if as_json else revoked:
        print_lines([make_printable(f"{person.platform}:{person.user_id} no longer has access by a code.")])
    return DONE


def _parse_minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= LONGEST:
        raise argparse.ArgumentTypeError(f"expected minutes up to {LONGEST} (a week), not {text!r}")
    return minutes
