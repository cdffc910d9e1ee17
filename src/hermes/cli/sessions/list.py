"""`hermes sessions list`: a table with one row per conversation, and a note about hidden conversations.

The table has a column for titles if any conversation in it has a title. The reference documents the table
with and without this column.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.cli.command import (
    Words,
    add_json_option,
    add_store_option,
    parse_offset,
    parse_row_count,
    parse_text,
)
from hermes.cli.exit_codes import DONE
from hermes.cli.filters import (
    add_source_option,
    add_time_options,
    add_workspace_option,
    describe_hidden,
    parse_times,
    report_unknown,
)
from hermes.cli.io.output import fold_line, get_terminal_width, print_json, print_lines
from hermes.cli.io.text_columns import Column, format_table, measure_table, widen_columns
from hermes.cli.store_access import open_store
from hermes.store.sessions.listing import describe_job, find_job, group_by_job

if TYPE_CHECKING:
    from hermes.store.sessions.listing import ConversationPage

UNTITLED = "—"
UNSAID = "(nothing said yet)"
"""Shown instead of a preview if a session has no messages. After a reset, a gateway chat has a new session
before its first message."""
TITLED_COLUMNS = (Column("Title", 32, 30), Column("Preview", 40, 38), Column("Last Active", 13), Column("ID"))
TITLED_RULE = 110
PLAIN_COLUMNS = (
    Column("Preview", 50, 48),
    Column("Last Active", 13),
    Column("Src", 6, 4, marks_cut=False),
    Column("ID"),
)
PLAIN_RULE = 95

JSON_FIELDS = (
    "id", "title", "preview", "source", "kind", "model", "message_count", "started_at", "last_active", "ended_at",
    "end_reason", "workspace", "pinned", "archived", "tags", "job",
)  # fmt: skip


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, list_sessions)
    add_source_option(parser)
    parser.add_argument(
        "--limit", type=parse_row_count, default=20, metavar="N", help="at most this many (20)"
    )
    parser.add_argument(
        "--offset",
        type=parse_offset,
        default=0,
        metavar="N",
        help="leave out the first N conversations (0)",
    )
    parser.add_argument("--pinned", action="store_true", help="only pinned conversations")
    parser.add_argument("--tag", type=parse_text, metavar="T", help="only conversations with this tag")
    parser.add_argument(
        "--all", action="store_true", help="also jobs, subagents, tool sessions and the archive"
    )
    add_workspace_option(parser)
    add_time_options(parser)
    add_json_option(parser, JSON_FIELDS)


def list_sessions(arguments: argparse.Namespace) -> int:
    since, until = parse_times(arguments)
    with open_store(arguments) as db:
        page = db.list_conversations(
            limit=arguments.limit,
            offset=arguments.offset,
            sources=arguments.source,
            workspace=arguments.workspace,
            since=since,
            until=until,
            tag=arguments.tag,
            pinned_only=arguments.pinned,
            include_hidden=arguments.all,
        )
        report_unknown(db, arguments.source, arguments.tag and [arguments.tag], arguments.workspace)
    if arguments.json:
        print_json([make_json_row(row) for row in page.rows], arguments.json)
        return DONE
    print_lines(_format_groups(page.rows) if page.rows else ["No sessions found."])
    print_lines(_format_footer(page, arguments.offset))
    return DONE


def make_json_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a conversation for JSON output, with the fields `JSON_FIELDS`."""
    fields = {
        **row,
        "pinned": row["pinned_at"] is not None,
        "archived": bool(row["archived"]),
        "job": find_job(row),
    }
    return {field: fields.get(field) for field in JSON_FIELDS}


def _format_groups(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Format the conversations of people first, then the runs of each scheduled job under its name."""
    others, jobs = group_by_job(rows)
    if others:
        yield from _format_rows(others)
    for place, (job_id, runs) in enumerate(jobs.items()):
        if place or others:
            yield ""
        yield describe_job(job_id, len(runs))
        yield from _format_rows(runs)


def _format_rows(rows: list[dict[str, Any]]) -> Iterator[str]:
    now, width = clock.now(), get_terminal_width()
    if any(row["title"] for row in rows):
        columns, rule = TITLED_COLUMNS, TITLED_RULE
        cells = [
            [
                row["title"] or UNTITLED,
                _get_preview(row),
                clock.format_relative(row["last_active"], now),
                row["id"],
            ]
            for row in rows
        ]
    else:
        columns, rule = PLAIN_COLUMNS, PLAIN_RULE
        cells = [
            [_get_preview(row), clock.format_relative(row["last_active"], now), row["source"], row["id"]]
            for row in rows
        ]
    if width is None:
        return format_table(columns, cells, rule)
    fitting = widen_columns(columns, cells, width)
    # previews are hidden, so show the preview of a conversation without a title in the title column
    if fitting[1].width < 0:
        cells = [
            [row["title"] or _get_preview(row), *cell[1:]] for row, cell in zip(rows, cells, strict=True)
        ]
    return format_table(fitting, cells, min(width, measure_table(fitting, cells)))


def _get_preview(row: dict[str, Any]) -> str:
    return str(row["preview"] or ("" if row["message_count"] else UNSAID))


def _format_footer(page: ConversationPage, offset: int) -> list[str]:
    """Return the lines below the list, which say how many conversations are hidden or on other pages. Return an
    empty list if all conversations are shown."""
    hidden = describe_hidden(page.hidden)
    if not hidden and len(page.rows) == page.total:
        return []
    shown = f"{offset + 1}-{offset + len(page.rows)}" if offset and page.rows else f"{len(page.rows)}"
    parts = [f"showing {shown} of {page.total}"]
    if hidden:
        parts += [f"{hidden} hidden", "--all"]
    return ["", *fold_line(" · ".join(parts))]
