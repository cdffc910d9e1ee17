"""`hermes sessions stats`: the documented lines, then where the bytes are and what was stored last."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hermes import clock
from hermes.cli.command import DONE, Words, takes_json, takes_store
from hermes.cli.io.output import say, say_json, size_of
from hermes.cli.opened_store import opened
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.store.reports.statistics import Statistics

PLACES = {
    "rows": "conversations",
    "index": "search index",
    "attachments": "attachments",
    "free": "free (hermes sessions optimize)",
    "log": "write-ahead log",
}


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, stats)
    takes_json(parser)


def stats(arguments: argparse.Namespace) -> int:
    with opened(arguments) as db:
        found = db.statistics()
    if arguments.json:
        say_json(_as_json(found))
    else:
        say(_lines(found))
    return DONE


def _lines(found: Statistics) -> list[str]:
    return [
        f"Total sessions: {found.sessions}",
        f"Total messages: {found.messages}",
        *(f"{make_printable(source)}: {count} sessions" for source, count in found.by_source),
        f"Database size: {found.on_disk / 1e6:.1f} MB",
        "",
        *(
            f"  {size_of(found.files[place]):>9}  {what}"
            for place, what in PLACES.items()
            if found.files[place]
        ),
        "Of the conversations:",
        f"  {size_of(found.text):>9}  what people and the agent said",
        f"  {size_of(found.tool_output):>9}  tool output",
        f"  {size_of(found.prompts):>9}  system prompts",
        *([f"In the trash: {format_count(found.in_trash, 'session')}"] if found.in_trash else []),
        *_last_write(found),
    ]


def _last_write(found: Statistics) -> list[str]:
    if found.last_write is None:
        return []
    message_id, session_id, at = found.last_write
    when = f"{clock.format_iso(at)} ({clock.format_relative(at, clock.now())})"
    return [f"Last message stored: {when}, message {message_id} of {make_printable(session_id)}"]


def _as_json(found: Statistics) -> dict[str, object]:
    last = found.last_write
    return {
        "sessions": found.sessions,
        "messages": found.messages,
        "by_source": dict(found.by_source),
        "in_trash": found.in_trash,
        "bytes": {
            "on_disk": found.on_disk,
            **found.files,
            "text": found.text,
            "tool_output": found.tool_output,
            "system_prompts": found.prompts,
        },
        "last_write": None
        if last is None
        else {"message_id": last[0], "session_id": last[1], "timestamp": last[2]},
    }
