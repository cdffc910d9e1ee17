"""`hermes sessions rename`: the title under which a conversation is found and resumed."""

from __future__ import annotations

import argparse

from hermes.cli.command import DONE, Refused, Words, plain_text, takes_store
from hermes.cli.io.output import say
from hermes.cli.opened_store import one_session, opened
from hermes.text import make_printable


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, rename)
    parser.add_argument(
        "session", type=plain_text, metavar="ID", help="its id, the beginning of one, or its title"
    )
    parser.add_argument(
        "title", nargs="+", type=plain_text, metavar="TITLE", help="the new title; needs no quotes"
    )


def rename(arguments: argparse.Namespace) -> int:
    wish = " ".join(arguments.title)
    with opened(arguments) as db:
        # A conversation that was continued is called what its live end is called.
        session_id = db.get_compression_tip(one_session(db, arguments.session))
        if db.sanitize_title(wish) is None:
            raise Refused("a title needs at least one visible character")
        db.set_session_title(session_id, wish)
        title = db.get_session_title(session_id)
    say([f"Session '{make_printable(session_id)}' renamed to: {make_printable(title or '')}"])
    return DONE
