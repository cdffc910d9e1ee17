"""`hermes sessions tag add | remove | list`: tags of conversations."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from hermes.cli.command import (
    Access,
    Command,
    Parser,
    Words,
    add_commands,
    add_json_option,
    add_store_option,
    parse_text,
)
from hermes.cli.exit_codes import DONE, Refused
from hermes.cli.io.output import print_json, print_lines
from hermes.cli.store_access import find_session, open_store
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from collections.abc import Sequence

JSON_FIELDS = ("tag", "conversations")
HERE = "hermes.cli.sessions.tag"
COMMANDS = {
    "add": Command(f"{HERE}:define_add", "add tags to a conversation", Access.CHANGES),
    "remove": Command(f"{HERE}:define_remove", "remove tags from a conversation", Access.CHANGES),
    "list": Command(f"{HERE}:define_list", "list all tags, or those of a conversation", Access.READS),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)
    if isinstance(parser, Parser):
        parser.suggest = lambda typed: f"{parser.prog} {shlex.join(_suggest(typed))}"


def _suggest(typed: Sequence[str]) -> list[str]:
    """Return the words of the command that was probably meant, such as `add ID TAG` for `ID add TAG`."""
    command = next((word for word in typed[1:2] if word in COMMANDS), "add" if len(typed) > 1 else "list")
    return [command, typed[0], *typed[2 if typed[1:2] == [command] else 1 :]]


def define_add(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, add_tags)
    _add_arguments(parser, "the tags; a tag may contain spaces if it is quoted")


def define_remove(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, remove_tags)
    _add_arguments(parser, "the tags to remove")


def define_list(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, list_tags)
    parser.add_argument(
        "session", nargs="*", type=parse_text, metavar="ID|TITLE", help="the conversation (all conversations)"
    )
    add_json_option(parser, JSON_FIELDS)


def _add_arguments(parser: argparse.ArgumentParser, help_text: str) -> None:
    parser.add_argument(
        "session", type=parse_text, metavar="ID", help="the conversation: an id, an id prefix or a title"
    )
    parser.add_argument("tags", nargs="+", type=parse_text, metavar="TAG", help=help_text)


def add_tags(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        session_id = find_session(db, arguments.session)
        print_lines([_describe_tags(session_id, db.add_tags(session_id, *arguments.tags))])
    return DONE


def remove_tags(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        session_id = find_session(db, arguments.session)
        before = db.tags_of(session_id)
        left = db.remove_tags(session_id, *arguments.tags)
    if before == left:
        named = ", ".join(f"'{tag}'" for tag in arguments.tags)
        raise Refused(f"session '{session_id}' has no tag {named}; nothing was changed")
    print_lines([_describe_tags(session_id, left)])
    return DONE


def list_tags(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        if arguments.session:
            tags = db.tags_of(find_session(db, arguments.session))
            counts = [(tag, count) for tag, count in db.all_tags() if tag in tags]
        else:
            counts = db.all_tags()
    if arguments.json:
        print_json([{"tag": tag, "conversations": count} for tag, count in counts], arguments.json)
    elif counts:
        width = max(len(make_printable(tag)) for tag, _ in counts)
        print_lines(
            f"{make_printable(tag):<{width}}  {format_count(count, 'conversation')}" for tag, count in counts
        )
    else:
        print_lines(["No tags found."])
    return DONE


def _describe_tags(session_id: str, tags: Sequence[str]) -> str:
    listed = ", ".join(make_printable(tag) for tag in tags) or "none"
    return f"Tags of session '{make_printable(session_id)}': {listed}"
