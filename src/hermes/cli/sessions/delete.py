"""`hermes sessions delete | scrub`. `delete` moves conversations to the trash or, with `--purge`, deletes
them permanently. `scrub` removes a secret from all stored data.

A secret is typed at a prompt without echo or piped in. It is never an argument, because other programs and
the shell's history would see it.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING

from hermes.cli.command import Words, add_dry_run_option, add_store_option, add_yes_option
from hermes.cli.exit_codes import DONE, REFUSED, Refused
from hermes.cli.filters import add_session_arguments
from hermes.cli.io.output import print_lines
from hermes.cli.io.prompts import require_consent
from hermes.cli.store_access import (
    find_session,
    get_sessions_folder,
    open_store,
    read_trash_days,
    require_store,
)
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.sessions.selection import Outline


def define_delete(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, delete_sessions)
    add_session_arguments(parser)
    add_yes_option(parser)
    parser.add_argument(
        "--purge",
        action="store_true",
        help="delete permanently: remove the text from the store, its files and its copies",
    )


def delete_sessions(arguments: argparse.Namespace) -> int:
    segment = arguments.segment
    with open_store(arguments) as db:
        session_ids = (
            find_session(db, name, segment=segment, in_full=arguments.yes) for name in arguments.sessions
        )
        ids = list(dict.fromkeys(session_ids))
        named = " and ".join(f"'{make_printable(session_id)}'" for session_id in ids)
        subject = f"session {named}" if len(ids) == 1 else f"sessions {named}"
        whose = "its" if len(ids) == 1 else "their"
        how = " permanently" if arguments.purge else ""
        if not arguments.yes:
            print_lines(
                _describe_deletion(db.outlines([session_id], whole=not segment)) for session_id in ids
            )
            require_consent(f"Delete {subject} and all {whose} messages{how}?")
        deleted = _purge(db, ids, arguments) if arguments.purge else _move_to_trash(db, ids, segment)
    print_lines([f"Deleted {subject}."])
    if len(deleted) > len(ids):
        print_lines([f"Also deleted: {format_count(len(deleted) - len(ids), 'related session')}."])
    if not arguments.purge:
        back = " ".join(shlex.quote(make_printable(session_id)) for session_id in ids)
        print_lines(
            [
                f"Kept in the trash for {format_count(read_trash_days(), 'day')}: hermes sessions trash restore {back}"
            ]
        )
    return DONE


def _describe_deletion(going: list[Outline]) -> str:
    """Describe the sessions to be deleted, for example `schema migration #3 · 3 sessions, 14 messages`.

    The title is shown in full, because the user may have typed only a part of it.
    """
    name = going[-1].title or going[0].title or going[0].preview or "—"
    messages = sum(outline.message_count for outline in going)
    counts = f"{format_count(len(going), 'session')}, {format_count(messages, 'message')}"
    return f"{make_printable(name, width_limit=60)} · {counts}"


def _move_to_trash(db: SessionDB, ids: list[str], segment: bool) -> list[str]:
    return [deleted_id for session_id in ids for deleted_id in db.trash_session(session_id, segment=segment)]


def _purge(db: SessionDB, ids: list[str], arguments: argparse.Namespace) -> list[str]:
    folder = get_sessions_folder(arguments)
    if not arguments.segment:
        return db.delete_conversations(ids, folder, purge=True)
    return [session_id for session_id in ids if db.delete_session(session_id, folder, purge=True)]


def define_scrub(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, scrub_text)
    add_dry_run_option(parser)
    add_yes_option(parser)


def scrub_text(arguments: argparse.Namespace) -> int:
    require_store(arguments)
    secret = _ask_text()
    with open_store(arguments) as db:
        found = db.scrub(secret, dry_run=True)
        print_lines(make_printable(line) for line in found.lines())
        if arguments.dry_run or not found.occurrences:
            return DONE
        if not arguments.yes and not sys.stdin.isatty():
            raise Refused("Nothing was removed: a secret from stdin needs --yes.")
        require_consent("Remove it everywhere? This cannot be undone.", yes=arguments.yes)
        done = db.scrub(secret)
    print_lines(make_printable(line) for line in done.lines())
    return DONE if done.ok else REFUSED


def _ask_text() -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        secret = getpass("The secret (it is not shown): ")
    else:
        secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise Refused("the secret is empty: type it at the prompt, or pipe it in")
    return secret
