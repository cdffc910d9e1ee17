"""`hermes sessions stats`: the number of sessions and messages, the use of disk space, and the last stored
message."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hermes import clock
from hermes.cli.command import Words, add_json_option, add_store_option
from hermes.cli.exit_codes import DONE
from hermes.cli.io.json_fields import add_iso_times
from hermes.cli.io.output import print_json, print_lines
from hermes.cli.store_access import open_store
from hermes.text import format_count, format_size, make_printable

if TYPE_CHECKING:
    from hermes.store.reports.statistics import Statistics

JSON_FIELDS = ("sessions", "messages", "by_source", "in_trash", "bytes", "last_write")
PLACES = {
    "rows": "conversations",
    "index": "search index",
    "attachments": "attachments",
    "free": "free (hermes sessions optimize)",
    "log": "write-ahead log",
}


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, show_statistics)
    add_json_option(parser, JSON_FIELDS)


def show_statistics(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        statistics = db.statistics()
    if arguments.json:
        print_json(_make_json(statistics), arguments.json)
    else:
        print_lines(_format_statistics(statistics))
    return DONE


def _format_statistics(statistics: Statistics) -> list[str]:
    return [
        f"Total sessions: {statistics.sessions}",
        f"Total messages: {statistics.messages}",
        *(f"{make_printable(source)}: {count} sessions" for source, count in statistics.by_source),
        f"Database size: {statistics.on_disk / 1e6:.1f} MB",
        "",
        *(
            f"  {format_size(statistics.files[place]):>9}  {description}"
            for place, description in PLACES.items()
            if statistics.files[place]
        ),
        "Of the conversations:",
        f"  {format_size(statistics.text):>9}  messages of people and the agent",
        f"  {format_size(statistics.tool_output):>9}  tool output",
        f"  {format_size(statistics.prompts):>9}  system prompts",
        *([f"In the trash: {format_count(statistics.in_trash, 'session')}"] if statistics.in_trash else []),
        *_format_last_write(statistics),
    ]


def _format_last_write(statistics: Statistics) -> list[str]:
    if statistics.last_write is None:
        return []
    message_id, session_id, at = statistics.last_write
    when = f"{clock.format_iso(at)} ({clock.format_relative(at, clock.now())})"
    return [f"Last message stored: {when}, message {message_id} of {make_printable(session_id)}"]


def _make_json(statistics: Statistics) -> dict[str, object]:
    last = statistics.last_write
    return {
        "sessions": statistics.sessions,
        "messages": statistics.messages,
        "by_source": dict(statistics.by_source),
        "in_trash": statistics.in_trash,
        "bytes": {
            "on_disk": statistics.on_disk,
            **statistics.files,
            "text": statistics.text,
            "tool_output": statistics.tool_output,
            "system_prompts": statistics.prompts,
        },
        "last_write": None
        if last is None
        else add_iso_times({"message_id": last[0], "session_id": last[1], "timestamp": last[2]}),
    }
