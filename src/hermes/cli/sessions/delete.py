"""`hermes sessions delete`: into the trash, or, asked for in as many words, for good."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from hermes.cli.command import DONE, Words, takes_store, takes_yes
from hermes.cli.io.output import say
from hermes.cli.io.prompts import agree
from hermes.cli.opened_store import one_session, opened, sessions_folder, trash_days
from hermes.cli.sessions.pin_archive import takes_sessions
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.sessions.selection import Outline


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, delete)
    takes_sessions(parser)
    takes_yes(parser)
    parser.add_argument(
        "--purge",
        action="store_true",
        help="not into the trash: leave no byte of the text in the store, its files and its copies",
    )


def delete(arguments: argparse.Namespace) -> int:
    segment = arguments.segment
    with opened(arguments) as db:
        found = (one_session(db, name, segment=segment, in_full=arguments.yes) for name in arguments.sessions)
        ids = list(dict.fromkeys(found))
        named = " and ".join(f"'{make_printable(one)}'" for one in ids)
        what = f"session {named}" if len(ids) == 1 else f"sessions {named}"
        whose = "its" if len(ids) == 1 else "their"
        how = " for good, with no way back" if arguments.purge else ""
        if not arguments.yes:
            say(_described(db.outlines([session_id], whole=not segment)) for session_id in ids)
            agree(f"Delete {what} and all {whose} messages{how}?")
        gone = _purge(db, ids, arguments) if arguments.purge else _throw_away(db, ids, segment)
    say([f"Deleted {what}."])
    if len(gone) > len(ids):
        say(
            [
                f"Gone with {'it' if len(ids) == 1 else 'them'}: {format_count(len(gone) - len(ids), 'session')}."
            ]
        )
    if not arguments.purge:
        back = " ".join(shlex.quote(make_printable(session_id)) for session_id in ids)
        say(
            [
                f"Kept in the trash for {format_count(trash_days(), 'day')}: hermes sessions trash restore {back}"
            ]
        )
    return DONE


def _described(going: list[Outline]) -> str:
    """`schema migration #3 · 3 sessions, 14 messages`: whoever named it by a part of its title sees what it is."""
    name = going[-1].title or going[0].title or going[0].preview or "—"
    messages = sum(one.message_count for one in going)
    told = f"{format_count(len(going), 'session')}, {format_count(messages, 'message')}"
    return f"{make_printable(name, width_limit=60)} · {told}"


def _throw_away(db: SessionDB, ids: list[str], segment: bool) -> list[str]:
    return [one for session_id in ids for one in db.trash_session(session_id, segment=segment)]


def _purge(db: SessionDB, ids: list[str], arguments: argparse.Namespace) -> list[str]:
    folder = sessions_folder(arguments)
    if not arguments.segment:
        return db.delete_conversations(ids, folder, purge=True)
    return [session_id for session_id in ids if db.delete_session(session_id, folder, purge=True)]
