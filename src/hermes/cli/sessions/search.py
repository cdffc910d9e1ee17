"""`hermes sessions search`, and `hermes search`: conversations by what was said in them, the best first."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.cli.command import DONE, REFUSED, Refused, Words, plain_text, row_count, takes_json, takes_store
from hermes.cli.filters import takes_sources, times
from hermes.cli.io.columns import columns_taken
from hermes.cli.io.output import folded, in_colour, say, say_json, styled, terminal_width
from hermes.cli.opened_store import opened
from hermes.cli.sessions.list import hidden_ones
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.recall.interactive_search import FoundConversations

SNIPPET_WIDTH, SHORTEST_TITLE = 160, 14
SPEAKERS = {"user": "●", "assistant": "◆"}

JSON_FIELDS = (
    "session_id", "conversation_id", "tip_id", "title", "source", "kind", "started_at", "last_active",
    "message_id", "role", "snippet", "why", "score", "exact",
    "partial",
)  # fmt: skip


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, search)
    parser.add_argument(
        "query",
        nargs="+",
        type=plain_text,
        metavar="QUERY",
        help='words, "phrases", OR, NOT, prefix*, *part*, fields such as role:user before:2w has:error',
    )
    parser.add_argument("--limit", type=row_count, default=10, metavar="N", help="at most this many (10)")
    takes_sources(parser)
    for flag, what in (("--since", "on or after"), ("--until", "before the end of")):
        parser.add_argument(
            flag, type=plain_text, metavar="WHEN", help=f"said {what} this: 2w, 2026-05, 'May 2'"
        )
    parser.add_argument(
        "--all", action="store_true", help="also jobs, subagents, tool sessions and the archive"
    )
    parser.add_argument("--open", action="store_true", help="open the browser at the best hit")
    takes_json(parser)


def search(arguments: argparse.Namespace) -> int:
    query = " ".join(arguments.query)
    after, before = times(arguments)
    with opened(arguments) as db:
        found = db.search_conversations(
            query,
            arguments.limit + 1,  # one more tells whether there are more
            sources=arguments.source,
            after=after,
            before=before,
            include_hidden=arguments.all,
        )
        are_more = len(found) > arguments.limit
        del found[arguments.limit :]
        if arguments.open and found:
            from hermes.cli.sessions.browse import choose, finish

            hit = (found[0]["session_id"], found[0]["message_id"])
            chosen = choose(db, arguments.source, arguments.all, query=query, at=hit)
            return finish(chosen, arguments)
    if arguments.json:
        say_json([{field: row[field] for field in JSON_FIELDS} for row in found])
        return DONE if found else REFUSED
    if not found:
        raise Refused("No sessions found.", list(_notes(found, are_more)))
    say(_lines(found, are_more))
    return DONE


def _lines(found: FoundConversations, are_more: bool) -> Iterator[str]:
    """Two lines for each conversation; those that only come near stand behind a line that says so."""
    now = clock.now()
    last_exact = True
    for row in found:
        if last_exact and not row["exact"] and not found.is_question:
            yield "Nothing matches exactly; the nearest are:" if found.relaxed else styled("Near it:", "dim")
            yield ""
        last_exact = row["exact"]
        yield from _conversation(row, now)
        yield ""
    yield from _notes(found, are_more)


def _conversation(row: dict[str, Any], now: float) -> Iterator[str]:
    width = terminal_width()
    facts = " · ".join(
        (
            clock.format_relative(row["last_active"], now),
            make_printable(row["source"]),
            make_printable(row["tip_id"]),
        )
    )
    room = None if width is None else max(SHORTEST_TITLE, width - columns_taken(facts) - 2)
    yield f"{styled(make_printable(row['title'] or '—', width_limit=room), 'bold')}  {styled(facts, 'dim')}"
    snippet = _highlighted(row["snippet"], min(width or SNIPPET_WIDTH, SNIPPET_WIDTH) - 4)
    yield f"  {SPEAKERS.get(row['role'], '○')} {snippet}"


def _highlighted(snippet: str, width: int) -> str:
    """Its matches in colour; where there is none, as they are marked."""
    from hermes.recall.snippets.goals import MARKED, fit_snippet

    shown = fit_snippet(snippet, width, in_colour=in_colour())
    return MARKED.sub(lambda match: styled(match[1], "bold", "yellow"), shown) if in_colour() else shown


def _notes(found: FoundConversations, are_more: bool) -> Iterator[str]:
    """What a reader has to know about how these were found."""
    if are_more:
        yield f"showing {len(found)}, there are more · --limit"
    if found and found.order == "newest" and found.reading.words:
        yield "newest first: every word is very common"
    if found.partial:
        parts = ", ".join(make_printable(part) for part in found.parts)
        yield f"no word matches; found as part of a word: {parts}"
    if found.cut:
        parts = ", ".join(make_printable(part) for part in found.cut)
        yield f"only the most frequent words with {parts} were looked for; another word makes it exact"
    if found.indexing:
        yield f"still indexing: {found.indexing[0]:,} of {found.indexing[1]:,} messages"
    for typed in found.reading.ignored:
        yield f"looked for '{make_printable(typed)}' as text: it is no field that is known"
    if hidden := hidden_ones(found.hidden):
        at_least = "at least " if found.hidden_at_least else ""
        yield from folded(f"{at_least}{hidden} hidden · --all")
