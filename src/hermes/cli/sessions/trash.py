"""`hermes sessions trash list | restore | empty`: deleted conversations, which are kept for a
limited time."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.cli.command import (
    Access,
    Command,
    Words,
    add_commands,
    add_json_option,
    add_store_option,
    add_yes_option,
    parse_days,
    parse_text,
)
from hermes.cli.exit_codes import DONE, Refused
from hermes.cli.io.output import get_terminal_width, print_json, print_lines
from hermes.cli.io.prompts import require_consent
from hermes.cli.io.text_columns import Column, format_table, measure_table, widen_columns
from hermes.cli.store_access import get_sessions_folder, open_store, read_trash_days
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

HERE = "hermes.cli.sessions.trash"
COMMANDS = {
    "list": Command(f"{HERE}:define_list", "list the conversations in the trash", Access.READS),
    "restore": Command(f"{HERE}:define_restore", "restore conversations", Access.CHANGES),
    "empty": Command(f"{HERE}:define_empty", "delete conversations in the trash permanently", Access.PERSON),
}

COLUMNS = (Column("Title", 42, 40), Column("Thrown away", 13), Column("Goes", 10), Column("ID"))
RULE = 95
JSON_FIELDS = (
    "id", "title", "source", "preview", "started_at", "last_active", "message_count", "trashed_at", "goes_at",
    "sessions", "owner", "chat_type", "chat_id", "thread_id", "display_name",
)  # fmt: skip


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)


def define_list(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, list_trash)
    add_json_option(parser, JSON_FIELDS)


def define_restore(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, restore_sessions)
    parser.add_argument(
        "trashed",
        nargs="+",
        type=parse_text,
        metavar="ID",
        help="the conversations: ids, id prefixes or former titles",
    )


def define_empty(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, empty_trash)
    add_yes_option(parser)
    parser.add_argument(
        "--older-than",
        type=parse_days,
        default=0,
        metavar="DAYS",
        help="only conversations deleted at least DAYS days ago (0)",
    )
    parser.add_argument(
        "--purge",
        action="store_true",
        help="also remove the text from the store's files and copies",
    )


def list_trash(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        rows = db.list_trash(read_trash_days())
    if arguments.json:
        print_json(rows, arguments.json)
        return DONE
    if not rows:
        print_lines(["The trash is empty."])
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
    width = get_terminal_width()
    columns = COLUMNS if width is None else widen_columns(COLUMNS, cells, width)
    print_lines(
        format_table(columns, cells, RULE if width is None else min(width, measure_table(columns, cells)))
    )
    return DONE


def restore_sessions(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        for session_id in [_find_trashed(db, name) for name in arguments.trashed]:
            came = db.restore_session(session_id)
            title = db.get_session_title(db.get_compression_tip(session_id))
            called = f" as '{make_printable(title)}'" if title else _quote_preview(db, came)
            more = f", {format_count(len(came), 'session')} in all" if len(came) > 1 else ""
            print_lines([f"Restored session '{make_printable(session_id)}'{called}{more}."])
    return DONE


def _quote_preview(db: SessionDB, restored: list[str]) -> str:
    """Return the beginning of the restored conversation for the message to the user. Without it, a
    conversation without a title would be named only by its id."""
    preview = next((outline.preview for outline in db.outlines(restored) if outline.preview), "")
    return f" ({make_printable(preview, width_limit=60)})" if preview else ""


def empty_trash(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        before = clock.now() - arguments.older_than * clock.DAY
        rows = [row for row in db.list_trash() if not arguments.older_than or row["trashed_at"] <= before]
        if not rows:
            print_lines(["Nothing to delete."])
            return DONE
        question = f"Delete {format_count(len(rows), 'conversation')} in the trash permanently?"
        require_consent(question, yes=arguments.yes)
        deleted = db.empty_trash(arguments.older_than, arguments.purge, get_sessions_folder(arguments))
    print_lines([f"Deleted {format_count(deleted, 'session')} from the trash."])
    return DONE


def _find_trashed(db: SessionDB, name: str) -> str:
    """Return the id of a conversation in the trash. If several sessions were deleted together, the id of any
    of them is accepted."""
    rows = db.list_trash()
    exact = [row for row in rows if name in (*row["sessions"], row["title"])]
    matches = exact or [row for row in rows if _has_prefix(row, name)]
    if not matches:
        raise Refused(f"'{name}' is not in the trash.")
    if len(matches) > 1:
        from hermes.chat.conversation_lookup import describe_candidates

        raise Refused(f"'{name}' could be any of these:", describe_candidates(matches))
    return str(matches[0]["id"])


def _has_prefix(row: dict[str, Any], name: str) -> bool:
    names = (*row["sessions"], row["title"] or "")
    return any(candidate.lower().startswith(name.lower()) for candidate in names)
