"""The fields of JSON output: `--json id,title` prints only these fields. Times are also printed as
ISO 8601."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hermes import clock

TIMES = (
    "started_at",
    "ended_at",
    "last_active",
    "timestamp",
    "trashed_at",
    "goes_at",
    "rewound_at",
    "since",
    "until",
)
"""Fields that contain seconds since 1970. Each is followed by its ISO 8601 form, in a field such as
`last_active_iso`."""
ISO = "_iso"
FLAG = "--json"


class JsonFields(NamedTuple):
    """The fields to print, in this order; an empty tuple means all fields. The object is always true, even if
    the tuple is empty, so that it can be tested like a flag."""

    names: tuple[str, ...] = ()


class JsonAction(argparse._StoreAction):
    """The option `--json [FIELDS]` of a command."""

    fields: tuple[str, ...] = ()


def make_field_parser(fields: Sequence[str]) -> Callable[[str], JsonFields]:
    """Return the parser of a list of fields, separated by commas. An empty text means all fields."""

    def parse_fields(text: str) -> JsonFields:
        names = tuple(name for name in map(str.strip, text.split(",")) if name)
        unknown = [name for name in names if name not in fields]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown field {unknown[0]!r}; the fields are {', '.join(fields)}"
            )
        return JsonFields(tuple(dict.fromkeys(names)))

    return parse_fields


def list_with_iso(fields: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the fields of JSON output. After the name of each field that contains a time comes
    the name of the field with its ISO 8601 form."""
    return tuple(name for field in fields for name in ((field, field + ISO) if field in TIMES else (field,)))


def join_fields(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the words of the command line with `--json FIELDS` joined to one word.

    `--json` may also be followed by a query or a title. The next word is therefore taken as a list of fields
    only if it cannot be anything else.
    """
    option = next((action for action in parser._actions if isinstance(action, JsonAction)), None)
    joined: list[str] = []
    rest = list(words)
    while rest and option is not None:
        word = rest.pop(0)
        if word == "--":
            return [*joined, word, *rest]
        if word == FLAG:
            is_list = bool(rest) and _is_list_of_fields(parser, option, rest[0], [*joined, *rest[1:]])
            joined.append(f"{FLAG}={rest.pop(0) if is_list else ''}")
        else:
            joined.append(word)
    return [*joined, *rest]


def _is_list_of_fields(
    parser: argparse.ArgumentParser, option: JsonAction, word: str, others: Sequence[str]
) -> bool:
    if word.startswith("-"):
        return False
    positionals = [action for action in parser._actions if not action.option_strings]
    if not positionals:
        return True
    known = [name in option.fields for name in word.split(",")]
    if "," in word:
        return any(known)
    is_needed = any(action.required for action in positionals) and all(
        other.startswith("-") for other in others
    )
    return all(known) and not is_needed


def select_fields(value: Any, chosen: object) -> Any:
    """Return a row or a list of rows with the chosen fields and, for each time, its ISO 8601 form."""
    if isinstance(value, list):
        return [select_fields(row, chosen) for row in value]
    if not isinstance(value, dict):
        return value
    row = add_iso_times(value)
    names = chosen.names if isinstance(chosen, JsonFields) else ()
    return {name: row.get(name) for name in names} if names else row


def add_iso_times(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the ISO 8601 form after each time. The form is null if the time is missing or
    invalid."""
    complete: dict[str, Any] = {}
    for name, value in row.items():
        complete[name] = value
        if name in TIMES:
            text = clock.format_iso(value) if clock.is_time(value) else "?"
            complete[name + ISO] = (
                None if text == "?" else text
            )  # another program may have stored an invalid time, such as infinity
    return complete
