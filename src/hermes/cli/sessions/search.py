"""`hermes sessions search` and `hermes search`: find conversations by their text, best first."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.cli.command import Words, add_json_option, add_store_option, parse_row_count, parse_text
from hermes.cli.exit_codes import DONE, REFUSED, Refused
from hermes.cli.filters import add_source_option, describe_hidden, parse_times, report_unknown
from hermes.cli.io.output import (
    apply_style,
    fold_line,
    get_terminal_width,
    has_colour,
    print_error,
    print_json,
    print_lines,
)
from hermes.cli.io.text_columns import measure_text
from hermes.cli.store_access import open_store
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.recall.interactive_search import FoundConversations

SNIPPET_WIDTH, SHORTEST_TITLE = 160, 14
SPEAKERS = {"user": "●", "assistant": "◆"}

JSON_FIELDS = (
    "session_id", "conversation_id", "tip_id", "title", "source", "kind", "started_at", "last_active",
    "message_id", "role", "snippet", "why", "score", "exact",
    "partial",
)  # fmt: skip


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, search_sessions)
    parser.add_argument(
        "query",
        nargs="+",
        type=parse_text,
        metavar="QUERY",
        help='words, "phrases", OR, NOT, prefix*, *part*, fields such as role:user before:2w has:error',
    )
    parser.add_argument(
        "--limit", type=parse_row_count, default=10, metavar="N", help="at most this many (10)"
    )
    add_source_option(parser)
    for flag, meaning in (("--since", "on or after"), ("--until", "before the end of")):
        parser.add_argument(
            flag, type=parse_text, metavar="WHEN", help=f"said {meaning} this: 2w, 2026-05, 'May 2'"
        )
    parser.add_argument(
        "--all", action="store_true", help="also jobs, subagents, tool sessions and the archive"
    )
    parser.add_argument("--open", action="store_true", help="open the browser at the best hit")
    add_json_option(parser, JSON_FIELDS)


def search_sessions(arguments: argparse.Namespace) -> int:
    query = " ".join(arguments.query)
    after, before = parse_times(arguments)
    with open_store(arguments) as db:
        found = db.search_conversations(
            query,
            arguments.limit + 1,  # one more row than the limit shows whether there are more
            sources=arguments.source,
            after=after,
            before=before,
            include_hidden=arguments.all,
            trash=True,
        )
        report_unknown(
            db, [*(arguments.source or ()), *_list_values(found, "source")], _list_values(found, "tag")
        )
        is_trash = found.reading.message_filter.trashed
        if is_trash:
            _add_trashed_titles(db, found)
        are_more = len(found) > arguments.limit
        del found[arguments.limit :]
        if arguments.open and found and not is_trash:
            from hermes.cli.sessions.browse import choose_session, describe_obstacle, resume_chosen

            if (obstacle := describe_obstacle()) is not None:
                raise Refused(obstacle, _suggest_commands(query, found[0]))
            hit = (found[0]["session_id"], found[0]["message_id"])
            chosen = choose_session(db, arguments.source, arguments.all, query=query, at=hit)
            return resume_chosen(chosen, arguments)
    if arguments.json:
        if found.contradiction:
            print_error(f"the filters exclude each other: {found.contradiction}")
        print_json([{field: row[field] for field in JSON_FIELDS} for row in found], arguments.json)
        return DONE if found else REFUSED
    if not found:
        raise Refused("No sessions found.", list(_format_notes(found, are_more)))
    print_lines(_format_results(found, are_more))
    return DONE


def _list_values(found: FoundConversations, name: str) -> list[str]:
    """Return the values that a search query gives for the field `name`. Values that the query excludes are left
    out."""
    return [field.value for field in found.reading.fields if field.name == name and not field.negated]


def _add_trashed_titles(db: SessionDB, found: FoundConversations) -> None:
    """Set the titles of conversations in the trash to their former titles. The store keeps no title for a
    conversation in the trash."""
    titles = {session_id: row["title"] for row in db.list_trash() for session_id in row["sessions"]}
    for row in found:
        row["title"] = titles.get(row["session_id"])


def _suggest_commands(query: str, best: dict[str, Any]) -> list[str]:
    """Return lines with commands for a user for whom the browser cannot be opened. The commands list the
    results of the query, or show the best one. `best` is the row of the best result."""
    from shlex import quote

    start = f" --from {best['message_id']}" if best["message_id"] else ""
    return [
        f"to list the matches here: hermes search {quote(query)}",
        f"to read the best match: hermes sessions show {quote(best['tip_id'])}{start}",
        f"in a terminal: hermes search --open {quote(query)}",
    ]


def _format_results(found: FoundConversations, are_more: bool) -> Iterator[str]:
    """Yield the lines of the search results: two per conversation, a heading before those that do not match
    exactly, and notes at the end. `are_more` says that further results exist."""
    now = clock.now()
    last_exact = True
    for row in found:
        if last_exact and not row["exact"] and not found.is_question:
            yield (
                "Nothing matches exactly; the nearest are:"
                if found.relaxed
                else apply_style("Near it:", "dim")
            )
            yield ""
        last_exact = row["exact"]
        yield from _format_conversation(row, now)
        yield ""
    yield from _format_notes(found, are_more)


def _format_conversation(row: dict[str, Any], now: float) -> Iterator[str]:
    width = get_terminal_width()
    facts = " · ".join(
        (
            clock.format_relative(row["last_active"], now),
            make_printable(row["source"]),
            make_printable(row["tip_id"]),
        )
    )
    room = None if width is None else max(SHORTEST_TITLE, width - measure_text(facts) - 2)
    yield f"{apply_style(make_printable(row['title'] or '—', width_limit=room), 'bold')}  {apply_style(facts, 'dim')}"
    snippet = _highlight(row["snippet"], min(width or SNIPPET_WIDTH, SNIPPET_WIDTH) - 4)
    yield f"  {SPEAKERS.get(row['role'], '○')} {snippet}"


def _highlight(snippet: str, width: int) -> str:
    """Return a search snippet with its matches in colour. If colours are off, the marks around the matches are
    kept."""
    from hermes.recall.snippets.goals import MARKED, fit_snippet

    excerpt = fit_snippet(snippet, width, in_colour=has_colour())
    return (
        MARKED.sub(lambda match: apply_style(match[1], "bold", "yellow"), excerpt)
        if has_colour()
        else excerpt
    )


def _format_notes(found: FoundConversations, are_more: bool) -> Iterator[str]:
    """Yield notes below the search results, for example that there are more results, or that a part of the
    query was read as text."""
    if found.contradiction:
        yield f"the filters exclude each other: {found.contradiction}"
    if found and found.reading.message_filter.trashed:
        yield "in the trash · hermes sessions trash restore ID"
    if are_more:
        yield f"showing {len(found)}, there are more · --limit"
    if found and found.order == "newest" and found.reading.words:
        yield "newest first: every word is very common"
    if found.partial:
        parts = ", ".join(make_printable(part) for part in found.parts)
        yield f"no word matches; found as part of a word: {parts}"
    if found.cut:
        parts = ", ".join(make_printable(part) for part in found.cut)
        yield f"only the most frequent words with {parts} were searched for; add a word for an exact result"
    if found.indexing:
        yield f"still indexing: {found.indexing[0]:,} of {found.indexing[1]:,} messages"
    from hermes.recall.query.prompt_language import FIELDS

    for typed in found.reading.ignored:
        name = typed.lstrip("-").partition(":")[0]
        reason = f"'{name}' cannot be used like this" if name in FIELDS else f"there is no field '{name}'"
        yield f"searched for '{make_printable(typed)}' as text: {make_printable(reason)}"
    if hidden := describe_hidden(found.hidden):
        at_least = "at least " if found.hidden_at_least else ""
        yield from fold_line(f"{at_least}{hidden} hidden · --all")
