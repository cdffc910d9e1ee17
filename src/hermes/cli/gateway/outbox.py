"""`hermes gateway outbox list | resend | drop`: messages to platforms that were not delivered.

The commands work with and without a running gateway. A running gateway sends queued messages at once.
Otherwise they are sent when the gateway starts.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hermes import audit_log, clock
from hermes.cli.command import (
    Access,
    Command,
    Words,
    add_commands,
    add_json_option,
    add_store_option,
    add_yes_option,
    parse_message_id,
    parse_text,
)
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.io.output import get_terminal_width, print_error, print_json, print_lines
from hermes.cli.io.prompts import require_consent
from hermes.cli.io.text_columns import Column, format_table, measure_table, widen_columns
from hermes.cli.store_access import get_store_path, open_store
from hermes.errors import HermesError
from hermes.gateway.ops.requests import ask_gateway
from hermes.session_kinds import canonical_source
from hermes.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes.db.session_db import SessionDB
    from hermes.store.chats.outbox import OutboxEntry

HERE = "hermes.cli.gateway.outbox"
COMMANDS = {
    "list": Command(f"{HERE}:define_list", "list messages that wait, failed or may be lost", Access.READS),
    "resend": Command(f"{HERE}:define_resend", "send messages again", Access.PERSON),
    "drop": Command(f"{HERE}:define_drop", "give messages up and delete their text", Access.PERSON),
}
STATES = {"waiting": ("queued", "sending"), "unknown": ("unknown",), "failed": ("failed",)}
SHOWN = {state: shown for shown, states in STATES.items() for state in states}
COLUMNS = (
    *(Column("ID", 9), Column("State", 9), Column("Age", 13), Column("Platform", 12)),
    *(Column("Chat", 30, 28), Column("Tries", 7), Column("Error")),
)
RULE = 100
JSON_FIELDS = (
    "id", "state", "created_at", "changed_at", "age_seconds", "platform", "chat_id", "chat_name", "chat_type",
    "thread_id", "session_key", "session_id", "attempts", "error",
)  # fmt: skip


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)


def define_list(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, list_outbox)
    parser.add_argument("--state", choices=tuple(STATES), help="only messages in this state")
    parser.add_argument("--platform", type=parse_text, metavar="P", help="only messages to this platform")
    add_json_option(parser, JSON_FIELDS)


def define_resend(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, resend)
    _add_choice(parser, "resend")


def define_drop(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, drop)
    _add_choice(parser, "drop")
    add_yes_option(parser)


def _add_choice(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("ids", nargs="*", type=parse_message_id, metavar="ID", help=f"the messages to {verb}")
    parser.add_argument(
        "--all-unknown", action="store_true", help=f"{verb} all messages whose delivery is unknown"
    )
    parser.add_argument("--all-failed", action="store_true", help=f"{verb} all messages that were given up")


def list_outbox(arguments: argparse.Namespace) -> int:
    platform = None if arguments.platform is None else canonical_source(arguments.platform.lower())
    wanted = STATES.get(arguments.state, tuple(SHOWN))
    with open_store(arguments) as db:
        rows = [
            _make_row(entry)
            for entry in db.outbox.list_open()
            if entry.state in wanted and platform in (None, entry.platform)
        ]
    if arguments.json:
        print_json(rows, arguments.json)
    else:
        print_lines(_format_rows(rows) if rows else ["No message waits, failed or is unknown."])
    return DONE


def resend(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        entries = _choose(db, arguments)
        for entry in entries:
            if entry.state == "sending":
                raise Refused(f"message {entry.id} is being sent")
        for entry in entries:
            db.outbox.requeue(entry.id)
        audit_log.record("outbox.resent", ids=_format_ids(entries))
    runs = _tell_gateway(arguments)
    when = "" if runs else "; the gateway is not running and sends it after its start"
    print_lines([f"{format_count(len(entries), 'message')} queued again{when}."])
    return DONE


def drop(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        entries = _choose(db, arguments)
        what = format_count(len(entries), "message")
        if not arguments.yes:
            print_lines(_format_rows([_make_row(entry) for entry in entries]))
        require_consent(f"Drop {what}? The text is deleted from the outbox.", yes=arguments.yes)
        dropped = [entry for entry in entries if db.outbox.drop(entry.id)]
        audit_log.record("outbox.dropped", ids=_format_ids(dropped))
    for entry in entries:
        if entry not in dropped:
            print_error(f"message {entry.id} is being sent or was sent; it was not dropped")
    if not dropped:
        raise Refused("no message was dropped")
    print_lines([f"Dropped {format_count(len(dropped), 'message')}."])
    return DONE


def _choose(db: SessionDB, arguments: argparse.Namespace) -> list[OutboxEntry]:
    """Return the entries of the outbox that the arguments of the command select, by id or by state. Raise
    Refused if there are none."""
    if not (arguments.ids or arguments.all_unknown or arguments.all_failed):
        raise WrongUsage("name the ID of a message (see `hermes gateway outbox list`), or use --all-unknown")
    found = {entry.id: entry for entry in db.outbox.list_open()}
    if missing := [entry_id for entry_id in arguments.ids if entry_id not in found]:
        raise Refused(
            f"there is no message {missing[0]} in the outbox; `hermes gateway outbox list` lists them"
        )
    states = {"unknown" if arguments.all_unknown else None, "failed" if arguments.all_failed else None}
    chosen = [entry for entry in found.values() if entry.id in arguments.ids or entry.state in states]
    if not chosen:
        raise Refused("there is no such message in the outbox")
    return chosen


def _tell_gateway(arguments: argparse.Namespace) -> bool:
    """Ask the running gateway to send the queued messages. Return False if no gateway is running."""
    if get_store_path(arguments) != get_store_path(argparse.Namespace(store=None)):
        return False
    try:
        return ask_gateway("outbox") is not None
    except HermesError as problem:
        print_error(str(problem))
        return False


def _make_row(entry: OutboxEntry) -> dict[str, Any]:
    to = entry.payload.get("to") or {}
    return {
        "id": entry.id,
        "state": SHOWN[entry.state],
        "created_at": entry.created_at,
        "changed_at": entry.changed_at,
        "age_seconds": round(max(0.0, clock.now() - entry.created_at), 1),
        "platform": entry.platform,
        "chat_id": to.get("chat_id"),
        "chat_name": to.get("chat_name") or to.get("user_name"),
        "chat_type": to.get("chat_type"),
        "thread_id": to.get("thread_id"),
        "session_key": entry.session_key,
        "session_id": entry.session_id,
        "attempts": entry.attempts,
        "error": entry.error,
    }


def _format_rows(rows: list[dict[str, Any]]) -> Iterator[str]:
    now, width = clock.now(), get_terminal_width()
    cells = [
        [
            str(row["id"]),
            row["state"],
            clock.format_relative(row["created_at"], now),
            row["platform"],
            " ".join(str(part) for part in (row["chat_id"], row["chat_name"]) if part) or row["session_key"],
            str(row["attempts"]),
            row["error"] or "",
        ]
        for row in rows
    ]
    if width is None:
        return format_table(COLUMNS, cells, RULE)
    fitting = widen_columns(COLUMNS, cells, width)
    return format_table(fitting, cells, min(width, measure_table(fitting, cells)))


def _format_ids(entries: list[OutboxEntry]) -> str:
    return ", ".join(str(entry.id) for entry in entries)
