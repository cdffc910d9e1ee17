"""`hermes sessions pin | unpin | archive | unarchive`: what is kept, and what is put away."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes.cli.command import DONE, Words, plain_text, takes_store
from hermes.cli.io.output import say
from hermes.cli.opened_store import one_session, opened
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

Change = Callable[["SessionDB", str, bool], bool]


def define_pin(parser: argparse.ArgumentParser, _: Words) -> None:
    _define(parser, "Pinned", lambda db, one, segment: db.pin_session(one, True, segment=segment))


def define_unpin(parser: argparse.ArgumentParser, _: Words) -> None:
    _define(parser, "Unpinned", lambda db, one, segment: db.pin_session(one, False, segment=segment))


def define_archive(parser: argparse.ArgumentParser, _: Words) -> None:
    _define(parser, "Archived", lambda db, one, segment: db.set_session_archived(one, True, segment=segment))


def define_unarchive(parser: argparse.ArgumentParser, _: Words) -> None:
    _define(
        parser, "Unarchived", lambda db, one, segment: db.set_session_archived(one, False, segment=segment)
    )


def _define(parser: argparse.ArgumentParser, done: str, change: Change) -> None:
    def run(arguments: argparse.Namespace) -> int:
        with opened(arguments) as db:
            # All of them are known before the first is changed.
            segment = arguments.segment
            for session_id in [one_session(db, name, segment=segment) for name in arguments.sessions]:
                change(db, session_id, segment)
                say([f"{done} session '{make_printable(session_id)}'."])
        return DONE

    takes_store(parser, run)
    takes_sessions(parser)


def takes_sessions(parser: argparse.ArgumentParser) -> None:
    """Several conversations; with `--segment`, single sessions of them."""
    parser.add_argument(
        "sessions",
        nargs="+",
        type=plain_text,
        metavar="ID",
        help="ids, beginnings of ids, or titles (in quotes); each means its whole conversation",
    )
    parser.add_argument(
        "--segment", action="store_true", help="only these sessions, not the conversations they are part of"
    )
