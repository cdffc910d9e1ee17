"""`hermes sessions trash list | restore | empty`: what was thrown away, until its time is over."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.cli.command import (
    DONE,
    Access,
    Command,
    Refused,
    Words,
    days,
    group,
    plain_text,
    takes_json,
    takes_store,
    takes_yes,
)
from hermes.cli.io.columns import Column, length, table, widened
from hermes.cli.io.output import say, say_json, terminal_width
from hermes.cli.io.prompts import agree
from hermes.cli.opened_store import opened, sessions_folder, trash_days
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

HERE = "hermes.cli.sessions.trash"
COMMANDS = {
    "list": Command(f"{HERE}:define_list", "show what was thrown away", Access.READS),
    "restore": Command(f"{HERE}:define_restore", "bring conversations back", Access.CHANGES),
    "empty": Command(f"{HERE}:define_empty", "delete what was thrown away, for good", Access.PERSON),
}

COLUMNS = (Column("Title", 42, 40), Column("Thrown away", 13), Column("Goes", 10), Column("ID"))
RULE = 95


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    group(parser, COMMANDS, words)


def define_list(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, list_trash)
    takes_json(parser)


def define_restore(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, restore)
    parser.add_argument(
        "trashed", nargs="+", type=plain_text, metavar="ID", help="ids, beginnings of ids, or former titles"
    )


def define_empty(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, empty)
    takes_yes(parser)
    parser.add_argument(
        "--older-than", type=days, default=0, metavar="DAYS", help="only what has lain there for so long (0)"
    )
    parser.add_argument(
        "--purge",
        action="store_true",
        help="leave no byte of its text in the store, its files and its copies",
    )


def list_trash(arguments: argparse.Namespace) -> int:
    with opened(arguments) as db:
        rows = db.list_trash(trash_days())
    if arguments.json:
        say_json(rows)
        return DONE
    if not rows:
        say(["The trash is empty."])
        return DONE
    now = clock.now()
    cells = [
        (
            row["title"] or row["preview"] or "—",
            clock.format_relative(row["trashed_at"], now),
            clock.format_day(row["goes_at"]),
            row["id"],
        )
        for row in rows
    ]
    width = terminal_width()
    columns = COLUMNS if width is None else widened(COLUMNS, cells, width)
    say(table(columns, cells, RULE if width is None else min(width, length(columns, cells))))
    return DONE


def restore(arguments: argparse.Namespace) -> int:
    with opened(arguments) as db:
        for session_id in [_meant(db, name) for name in arguments.trashed]:
            came = db.restore_session(session_id)
            title = db.get_session_title(db.get_compression_tip(session_id))
            called = f" as '{make_printable(title)}'" if title else ""
            more = f", {format_count(len(came), 'session')} in all" if len(came) > 1 else ""
            say([f"Restored session '{make_printable(session_id)}'{called}{more}."])
    return DONE


def empty(arguments: argparse.Namespace) -> int:
    with opened(arguments) as db:
        before = clock.now() - arguments.older_than * clock.DAY
        rows = [row for row in db.list_trash() if not arguments.older_than or row["trashed_at"] <= before]
        if not rows:
            say(["Nothing to delete."])
            return DONE
        question = (
            f"Delete {format_count(len(rows), 'conversation')} in the trash for good, with no way back?"
        )
        agree(question, yes=arguments.yes)
        gone = db.empty_trash(arguments.older_than, arguments.purge, sessions_folder(arguments))
    say([f"Deleted {format_count(gone, 'session')} from the trash."])
    return DONE


def _meant(db: SessionDB, name: str) -> str:
    """What was thrown away together is named by each of its sessions."""
    rows = db.list_trash()
    exact = [row for row in rows if name in (*row["sessions"], row["title"])]
    found = exact or [row for row in rows if _starts(row, name)]
    if not found:
        raise Refused(f"'{name}' is not in the trash.")
    if len(found) > 1:
        from hermes.chat.conversation_lookup import describe_candidates

        raise Refused(f"'{name}' could be any of these:", describe_candidates(found))
    return str(found[0]["id"])


def _starts(row: dict[str, Any], name: str) -> bool:
    names = (*row["sessions"], row["title"] or "")
    return any(one.lower().startswith(name.lower()) for one in names)
