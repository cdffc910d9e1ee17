"""`hermes gateway keys add | list | limit | revoke`: the keys of the API server. A running gateway applies
each change at once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.cli.command import Access, Command, Words, add_commands, add_json_option, parse_text
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.io.output import print_error, print_json, print_lines
from hermes.cli.store_access import get_store_path, open_store
from hermes.gateway.ops.key_file import NO_LIMITS, ApiKey, KeyFile, KeyLimits
from hermes.gateway.ops.key_usage import KeyUse, read_usage
from hermes.gateway.ops.status_file import gateway_folder
from hermes.insights.number_format import format_dollars, format_plural
from hermes.store.people import Principal
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.store.reports.usage import Spending

    ReadSpending = Callable[[str, float], tuple[Spending, Spending]]

HERE = "hermes.cli.gateway.keys"
COMMANDS = {
    "add": Command(f"{HERE}:define_add", "make a key and print it once", Access.PERSON),
    "list": Command(
        f"{HERE}:define_list", "list the keys with their limits, last use and cost", Access.READS
    ),
    "limit": Command(
        f"{HERE}:define_limit", "change the rate, budget, models or expiry of a key", Access.PERSON
    ),
    "revoke": Command(f"{HERE}:define_revoke", "revoke a key", Access.PERSON),
}
PLATFORM = "api-server"
NONE = "none"
FINGERPRINT = 12
MOST = 1_000_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_SPAN = re.compile(r"(\d{1,5})([mhdw])")
_SPANS = {"m": clock.MINUTE, "h": clock.HOUR, "d": clock.DAY, "w": 7 * clock.DAY}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)


def define_add(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=add_key)
    parser.add_argument(
        "name", type=_parse_name, metavar="NAME", help="the person or program that gets the key"
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="make a new key for an existing NAME, with the same sessions; the old key stops working",
    )
    _add_limits(parser)
    add_json_option(parser)


def define_list(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=list_keys, store=None)
    parser.add_argument("--all", action="store_true", help="include revoked keys")
    add_json_option(parser)


def define_limit(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=limit_key)
    parser.add_argument("name", type=parse_text, metavar="NAME", help="the name of the key")
    _add_limits(parser)
    add_json_option(parser)


def define_revoke(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=revoke_key)
    parser.add_argument("name", type=parse_text, metavar="NAME", help="the name of the key")
    add_json_option(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """Add an option to the parser for each limit of an API key. The value `none` removes a limit."""
    limits = parser.add_argument_group("limits", "`none` removes a limit")
    number, dollars = _allow_none(_parse_number), _allow_none(_parse_dollars)
    options: list[tuple[str, Callable[[str], Any], str, str]] = [
        ("requests-per-minute", number, "N", "requests per minute"),
        ("concurrent-requests", number, "N", "requests at the same time"),
        ("cost-per-day", dollars, "USD", "dollars per day"),
        ("cost-per-month", dollars, "USD", "dollars per calendar month"),
        ("tokens-per-day", number, "N", "input and output tokens per day"),
        ("tokens-per-month", number, "N", "input and output tokens per calendar month"),
        ("expires", _allow_none(_parse_expiry), "WHEN", "when the key expires: 12h, 30d, 8w or 2026-12-31"),
    ]
    for name, parse, metavar, meaning in options:
        limits.add_argument(f"--{name}", type=parse, metavar=metavar, help=meaning)
    limits.add_argument(
        "--model",
        action="append",
        type=parse_text,
        metavar="NAME",
        help="a model that may answer; can be given several times, the first one is the usual one",
    )


# ---------------------------------------------------------------- the commands


def add_key(arguments: argparse.Namespace) -> int:
    if arguments.name in _read_configured():
        raise Refused(f"{arguments.name!r} has a key in the settings already (platforms.api-server)")
    file = _open_file()
    taken = [key.name for key in file.list_keys() if key.name.lower() == arguments.name.lower()]
    if taken and taken[0] != arguments.name:
        raise Refused(f"there is a key {taken[0]!r} already; names must differ in more than their case")
    changes = {field: value for field, value in _read_changes(arguments).items() if value}
    key = file.add(arguments.name, KeyLimits(**changes), replaces=arguments.replace)
    limits = file.find_limits(arguments.name)
    if arguments.json:
        print_json({"name": arguments.name, "key": key, **_describe_limits(limits)})
        return DONE
    print_lines([key])
    print_error(f"This is the key of {arguments.name}. It is shown only now; only its digest is stored.")
    if limits != NO_LIMITS:
        print_error(f"Limits: {', '.join(_format_limits(limits))}.")
    return DONE


def list_keys(arguments: argparse.Namespace) -> int:
    now, uses = clock.now(), read_usage(gateway_folder() / PLATFORM)
    rows = list(_collect_rows(arguments, uses, now))
    if arguments.json:
        print_json(rows)
        return DONE
    if not rows:
        print_lines(["There is no key; make one with `hermes gateway keys add NAME`."])
    for row in rows:
        print_lines(make_printable(line) for line in _format_row(row, now))
    return DONE


def limit_key(arguments: argparse.Namespace) -> int:
    changes = _read_changes(arguments)
    if not changes:
        raise WrongUsage("give at least one limit, such as --cost-per-day 5; `none` removes a limit")
    is_configured = arguments.name in _read_configured()
    limits = _open_file().set_limits(arguments.name, changes, may_create=is_configured)
    if arguments.json:
        print_json({"name": arguments.name, **_describe_limits(limits)})
    else:
        told = ", ".join(_format_limits(limits)) or "none"
        print_lines([make_printable(f"Limits of {arguments.name}: {told}.")])
    return DONE


def revoke_key(arguments: argparse.Namespace) -> int:
    if arguments.name in _read_configured():
        raise Refused(
            f"the key of {arguments.name!r} is in the settings (platforms.api-server); remove it there"
        )
    key = _open_file().revoke(arguments.name)
    if arguments.json:
        print_json({"name": key.name, "revoked_at": key.revoked_at})
    else:
        print_lines([make_printable(f"The key of {key.name} no longer works. Its sessions are kept.")])
    return DONE


def _open_file() -> KeyFile:
    return KeyFile(gateway_folder())


def _read_configured() -> dict[str, str]:
    """Return the API keys that are set in the settings: a mapping from the name of each key to the setting that
    holds it."""
    from hermes.gateway.settings import read_gateway_settings

    platform = read_gateway_settings().platforms.get(PLATFORM)
    more = {} if platform is None else platform.more
    names = {str(name): "platforms.api-server.keys" for name in more.get("keys") or {}}
    if single := more.get("key"):
        names.setdefault(sha256(str(single).encode()).hexdigest()[:FINGERPRINT], "API_SERVER_KEY")
    return names


def _read_changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the limits of an API key that the options on the command line change, with their new values. None
    stands for a limit that is removed."""
    changes: dict[str, Any] = {}
    for field in KeyLimits._fields:
        option = {"expires_at": "expires", "models": "model"}.get(field, field)
        value = getattr(arguments, option)
        if value is not None:
            changes[field] = None if value == NONE else value
    if "models" in changes:
        models = [model for model in changes["models"] if model != NONE]
        if len(models) < len(changes["models"]) and models:
            raise WrongUsage("--model none cannot be combined with other models")
        changes["models"] = tuple(dict.fromkeys(models))
    return changes


# ---------------------------------------------------------------- the list


def _collect_rows(
    arguments: argparse.Namespace, uses: Mapping[str, KeyUse], now: float
) -> Iterator[dict[str, Any]]:
    configured = _read_configured()
    keys = {key.name: key for key in _open_file().list_keys()}
    names = dict.fromkeys((*configured, *keys))
    with _open_usage(arguments) as spend:
        for name in names:
            key, setting = keys.get(name), configured.get(name)
            state = _find_state(key, setting, now)
            if state is None or (state == "revoked" and not arguments.all):
                continue
            today, month = spend(name, now)
            use = uses.get(name, KeyUse())
            yield {
                "name": name,
                "state": state,
                "setting": setting,
                "ending": key.ending if key and key.digest else None,
                "created_at": key.created_at if key and key.digest else None,
                "revoked_at": key.revoked_at if key else None,
                **_describe_limits(NO_LIMITS if key is None else key.limits),
                **use._asdict(),
                "cost_today": today.cost_usd,
                "tokens_today": today.tokens,
                "cost_this_month": month.cost_usd,
                "tokens_this_month": month.tokens,
            }


def _find_state(key: ApiKey | None, setting: str | None, now: float) -> str | None:
    """Return the state of an API key: `active`, `expired` or `revoked`. Return None if the key was removed from
    the settings and only its limits are left."""
    if setting is None and (key is None or key.digest is None):
        return None
    if setting is None and key is not None and key.revoked_at is not None:
        return "revoked"
    expires_at = None if key is None else key.limits.expires_at
    return "expired" if expires_at is not None and expires_at <= now else "active"


@contextmanager
def _open_usage(arguments: argparse.Namespace) -> Iterator[ReadSpending]:
    """Yield a function that returns how much an API key was used today and in this month. If there is no store,
    the function returns zero."""
    from hermes.config.time_zones import load_zone
    from hermes.gateway.sessions.daily_limit import find_day, find_month
    from hermes.gateway.settings import read_gateway_settings
    from hermes.store.reports.usage import Spending

    if not get_store_path(arguments).exists():
        yield lambda _name, _now: (Spending(), Spending())
        return
    place = load_zone(read_gateway_settings().reset.timezone)
    with open_store(arguments) as db:

        def read(name: str, now: float) -> tuple[Spending, Spending]:
            owner = Principal(PLATFORM, name).person or ""
            day, month = find_day(now, place)[0], find_month(now, place)[0]
            return db.usage_of_owner(owner, day), db.usage_of_owner(owner, month)

        yield read


def _format_row(row: Mapping[str, Any], now: float) -> Iterator[str]:
    where = row["setting"] or f"…{row['ending']}, made {clock.format_relative(row['created_at'], now)}"
    state = "" if row["state"] == "active" else f", {row['state']}"
    yield f"{row['name']} ({where}){state}"
    limits = KeyLimits(**{field: row[field] for field in KeyLimits._fields})
    if told := list(_format_limits(limits)):
        yield f"  limits: {', '.join(told)}"
    if row["last_used_at"] is None:
        yield "  never used"
    else:
        ago, count = (
            clock.format_relative(row["last_used_at"], now),
            format_plural(row["requests"], "request"),
        )
        yield f"  last used {ago} from {row['last_address'] or 'an unknown address'}, {count} in all"
    if row["tokens_this_month"]:
        today, month = (
            f"{format_dollars(row[f'cost_{period}'])}, {format_plural(row[f'tokens_{period}'], 'token')}"
            for period in ("today", "this_month")
        )
        yield f"  today: {today}; this month: {month}"


def _format_limits(limits: KeyLimits) -> Iterator[str]:
    if limits.requests_per_minute is not None:
        yield f"{format_plural(limits.requests_per_minute, 'request')} per minute"
    if limits.concurrent_requests is not None:
        yield f"{format_plural(limits.concurrent_requests, 'request')} at a time"
    for cost, tokens, period in (
        (limits.cost_per_day, limits.tokens_per_day, "day"),
        (limits.cost_per_month, limits.tokens_per_month, "month"),
    ):
        if cost is not None:
            yield f"{format_dollars(cost)} per {period}"
        if tokens is not None:
            yield f"{format_plural(tokens, 'token')} per {period}"
    if limits.models:
        yield f"only {', '.join(limits.models)}"
    if limits.expires_at is not None:
        yield f"expires {clock.format_iso(limits.expires_at)}"


def _describe_limits(limits: KeyLimits) -> dict[str, Any]:
    return {**limits._asdict(), "models": list(limits.models)}


# ---------------------------------------------------------------- parsing


def _allow_none(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: NONE if text.lower() == NONE else parse(text)


def _parse_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"expected up to 64 letters, digits and . _ @ -, beginning with a letter or digit, not {text!r}"
        )
    return text


def _parse_number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 0 < number <= MOST:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MOST:,} or none, not {text!r}")
    return number


def _parse_dollars(text: str) -> float:
    try:
        amount = float(text.removeprefix("$"))
    except ValueError:
        amount = 0.0
    if not 0 < amount <= MOST:
        raise argparse.ArgumentTypeError(f"expected dollars such as 5 or 0.50, or none, not {text!r}")
    return amount


def _parse_expiry(text: str) -> float:
    """Parse the option that says when an API key expires: a duration from now, or a day. Return the time at
    which the key expires. A day means the end of that day."""
    now = clock.now()
    if span := _SPAN.fullmatch(text):
        moment = now + int(span[1]) * _SPANS[span[2]]
    else:
        try:
            day = date.fromisoformat(text) + timedelta(days=1)
            moment = datetime.combine(day, time()).astimezone().timestamp()
        except (ValueError, OverflowError, OSError):
            raise argparse.ArgumentTypeError(
                f"expected 12h, 30d, 8w, a day such as 2026-12-31, or none, not {text!r}"
            ) from None
    if moment <= now:
        raise argparse.ArgumentTypeError(f"{text!r} is not in the future")
    return moment
