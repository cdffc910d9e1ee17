"""`hermes sessions delete`: into the trash, or, asked for in as many words, for good."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hermes.cli.command import DONE, REFUSED, Words, takes_store, takes_yes
from hermes.cli.opening import one_session, opened, sessions_folder, trash_days
from hermes.cli.output import confirm, counted, say
from hermes.cli.sessions.keeping import takes_sessions
from hermes.text import printable

if TYPE_CHECKING:
    from hermes.sessiondb import SessionDB


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, delete)
    takes_sessions(parser)
    takes_yes(parser)
    parser.add_argument(
        "--purge", action="store_true", help="not into the trash: no byte of the text is left in the home"
    )


def delete(arguments: argparse.Namespace) -> int:
    with opened(arguments) as db:
        ids = list(dict.fromkeys(one_session(db, name) for name in arguments.sessions))
        named = " and ".join(f"'{printable(one)}'" for one in ids)
        what = f"session {named}" if len(ids) == 1 else f"sessions {named}"
        whose = "its" if len(ids) == 1 else "their"
        how = " for good, with no way back" if arguments.purge else ""
        if not arguments.yes and not confirm(f"Delete {what} and all {whose} messages{how}?"):
            say(["Cancelled."])
            return REFUSED
        if arguments.purge:
            gone = _purge(db, ids, arguments)
            say([f"Deleted {what}."])
            if len(gone) > len(ids):
                say(
                    [
                        f"Gone with {'it' if len(ids) == 1 else 'them'}: {counted(len(gone) - len(ids), 'session')}."
                    ]
                )
            return DONE
        for session_id in ids:
            db.trash_session(session_id, segment=arguments.segment)
    days = f"{trash_days():g} days"
    say(
        [
            f"Deleted {what}.",
            f"Kept in the trash for {days}: hermes sessions trash restore {printable(ids[0])}",
        ]
    )
    return DONE


def _purge(db: SessionDB, ids: list[str], arguments: argparse.Namespace) -> list[str]:
    folder = sessions_folder(arguments)
    if not arguments.segment:
        return db.delete_conversations(ids, folder, purge=True)
    return [session_id for session_id in ids if db.delete_session(session_id, folder, purge=True)]
