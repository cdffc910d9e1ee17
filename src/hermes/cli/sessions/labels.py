"""`hermes sessions rename | pin | unpin | archive | unarchive`: set titles, and choose which conversations
are kept or hidden."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes.cli.command import Words, add_store_option, parse_text
from hermes.cli.exit_codes import DONE, Refused
from hermes.cli.filters import add_session_arguments
from hermes.cli.io.output import print_lines
from hermes.cli.store_access import find_session, open_store
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

Change = Callable[["SessionDB", str, bool], bool]


def define_rename(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, rename_session)
    parser.add_argument(
        "session", type=parse_text, metavar="ID", help="the conversation: an id, an id prefix or a title"
    )
    parser.add_argument(
        "title", nargs="+", type=parse_text, metavar="TITLE", help="the new title; needs no quotes"
    )


def rename_session(arguments: argparse.Namespace) -> int:
    wish = " ".join(arguments.title)
    with open_store(arguments) as db:
        # The title of a continued conversation is the title of its last session.
        session_id = db.get_compression_tip(find_session(db, arguments.session))
        if db.sanitize_title(wish) is None:
            raise Refused("a title needs at least one visible character")
        db.set_session_title(session_id, wish)
        title = db.get_session_title(session_id)
    print_lines([f"Session '{make_printable(session_id)}' renamed to: {make_printable(title or '')}"])
    return DONE


def define_pin(parser: argparse.ArgumentParser, _: Words) -> None:
    _define(
        parser, "Pinned", lambda db, session_id, segment: db.pin_session(session_id, True, segment=segment)
    )


def define_unpin(parser: argparse.ArgumentParser, _: Words) -> None:
    _define(
        parser, "Unpinned", lambda db, session_id, segment: db.pin_session(session_id, False, segment=segment)
    )


def define_archive(parser: argparse.ArgumentParser, _: Words) -> None:
    _define(
        parser,
        "Archived",
        lambda db, session_id, segment: db.set_session_archived(session_id, True, segment=segment),
    )


def define_unarchive(parser: argparse.ArgumentParser, _: Words) -> None:
    _define(
        parser,
        "Unarchived",
        lambda db, session_id, segment: db.set_session_archived(session_id, False, segment=segment),
    )


def _define(parser: argparse.ArgumentParser, done: str, change: Change) -> None:
    def run(arguments: argparse.Namespace) -> int:
        with open_store(arguments) as db:
            # Resolve all names before the first change.
            segment = arguments.segment
            for session_id in [find_session(db, name, segment=segment) for name in arguments.sessions]:
                change(db, session_id, segment)
                print_lines([f"{done} session '{make_printable(session_id)}'."])
        return DONE

    add_store_option(parser, run)
    add_session_arguments(parser)
