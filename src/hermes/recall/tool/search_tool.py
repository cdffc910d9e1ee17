"""`session_search`: how an agent recalls earlier conversations, from real messages, without asking a model.

Four ways, told apart by the arguments: discover (a query), scroll (a session and a message), read (a session), browse
(nothing). The contract: an answer is JSON text of at most `framing.LARGEST` characters; bad arguments, unknown ids and
a store that cannot answer give `error` and never raise; what is recalled is quoted, see `framing`. Whose conversations
are seen is decided by the handle: a scoped one knows no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hermes import clock, errors
from hermes.recall.snippets.excerpts import make_excerpt
from hermes.recall.tool.message_excerpt import Bounds
from hermes.recall.tool.passages import Passages
from hermes.recall.tool.prompt_safety import (
    LARGEST,
    LONGEST,
    NOTICE,
    fit_excerpt,
    make_name,
    measure_json,
    serialise_answer,
    serialise_failure,
)
from hermes.recall.tool.summaries import (
    IN_A_TRANSCRIPT,
    TRANSCRIPT,
    Summarise,
    format_transcript,
    make_summaries,
)
from hermes.recall.tool.tool_format import (
    LONGEST_SNIPPET,
    extract_clues,
    format_header,
    format_message,
    format_result,
    format_session,
)
from hermes.recall.tool.tool_schema import LARGEST_ID, SCHEMA, ToolArguments, parse_arguments

__all__ = ["SCHEMA", "RecallStore", "session_search"]

SHOWN = Bounds(said=LONGEST, tool=300, match=LONGEST)
AT_LENGTH = Bounds(said=LONGEST, tool=300, match=LARGEST)
RADIUS = 5
"""Messages on each side of a match, if there is room."""
SUMMARY_SECONDS = 60.0
SUMMARY_SHARE = 12
"""A summary stands for all the messages that would be shown otherwise."""

Row = dict[str, Any]


class RecallStore(Protocol):
    """What the tool needs of a store: `SessionDB` and `ScopedStore` have it."""

    @property
    def passages(self) -> Passages: ...

    def search_sessions_ranked(
        self,
        query: str | list[str],
        limit: int = 10,
        *,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        after: float | None = None,
        before: float | None = None,
        exclude_session: str | None = None,
        include_hidden: bool = False,
        sort: str = "relevance",
    ) -> Sequence[Row]: ...


def session_search(
    store: RecallStore,
    arguments: Mapping[str, Any],
    *,
    current_session: str | None = None,
    summarise: Summarise | None = None,
    summary_seconds: float = SUMMARY_SECONDS,
    transcript_size: int = TRANSCRIPT,
) -> str:
    """Answer one call of the tool. The conversation of `current_session` is not found: the agent is in it.

    The summariser is sent about `transcript_size` characters of each session.
    """
    try:
        request = parse_arguments(arguments)
        if request.mode == "scroll":
            return _scroll(store, request)
        if request.mode == "read":
            return _read(store, request)
        if request.mode == "browse":
            return _browse(store, request, current_session)
        if summarise is None:
            return _discover(store, request, current_session, None)
        work = SummaryOptions(summarise, summary_seconds, transcript_size)
        return _discover(store, request, current_session, work)
    except errors.HermesError as problem:
        return serialise_failure(make_name(problem, 400))


# -------------------------------------------------------------------- discover


class SummaryOptions(NamedTuple):
    """Who summarises, within what time, from how many characters of each session."""

    summarise: Summarise
    seconds: float
    transcript_size: int


def _discover(
    store: RecallStore, request: ToolArguments, current: str | None, work: SummaryOptions | None
) -> str:
    rows = store.search_sessions_ranked(
        list(request.phrasings),
        request.limit,
        source_filter=None if request.source is None else [request.source],
        role_filter=request.roles or None,
        after=request.after,
        before=request.before,
        exclude_session=current,
        sort=request.sort,
    )
    answer = _start_answer(request)
    notes: list[str] = answer["notes"]
    if request.sort == "relevance" and any(row.get("order") == "newest" for row in rows):
        notes.append("there is nothing to rank by, so the newest come first")
    if getattr(rows, "relaxed", False):
        notes.append("nothing matches the query exactly; these are the nearest")
    if getattr(rows, "partial", False):
        notes.append("no message holds the words of the query; they were found as parts of longer words")
    if request.summarize and work is None:
        notes.append("there is no model to summarise with; these are the messages themselves")
    if request.summarize and work is not None:
        results = _summarise_results(store, request, rows, work)
        missing = sum(1 for result in results if result and "summary_missing" in result)
        if missing:
            notes.append(
                f"{missing} of {len(results)} could not be summarised; their messages are shown instead"
            )
    else:
        results = [_make_result(store, row, _compute_room(len(rows))) for row in rows]
    answer["results"] = [result for result in results if result]
    answer["count"] = len(answer["results"])
    if not rows:
        notes.append("nothing was found; try other words or fewer of them, or leave out filters")
    return serialise_answer(answer, shorten="results")


def _make_result(store: RecallStore, row: Row, room: int) -> Row | None:
    """One conversation that was found; None if it has gone meanwhile."""
    scene = store.passages.scene(row["session_id"], row["message_id"], RADIUS, SHOWN, extract_clues(row))
    return None if scene is None else format_result(format_header(row), scene, room)


def _compute_room(results: int) -> int:
    """What each of so many results may take of an answer, beside the notice and the notes."""
    return (LARGEST - 1_000) // max(1, results)


def _summarise_results(
    store: RecallStore, request: ToolArguments, rows: Sequence[Row], work: SummaryOptions
) -> list[Row | None]:
    """Summaries in the place of messages; where there is none, the messages and why."""
    question = " / ".join(request.phrasings)
    windows = [
        store.passages.transcript(
            row["session_id"], row["message_id"], work.transcript_size, IN_A_TRANSCRIPT, extract_clues(row)
        )
        for row in rows
    ]
    known = [(row, format_transcript(window)) for row, window in zip(rows, windows, strict=True) if window]
    made = make_summaries(work.summarise, question, [text for _, text in known], work.seconds)
    results: list[Row | None] = []
    for (row, _), summary in zip(known, made, strict=True):
        if summary.text:
            results.append(
                {**format_header(row), "summary": make_excerpt(summary.text, LARGEST, share=SUMMARY_SHARE)}
            )
        elif result := _make_result(store, row, _compute_room(len(known)) - 100):
            results.append({**result, "summary_missing": summary.problem})
    return results


# -------------------------------------------------------------------- scroll, read, browse


def _scroll(store: RecallStore, request: ToolArguments) -> str:
    passages = store.passages
    segment = passages.segment(request.session_id)
    alone = request.window == 0
    bounds, skip = (AT_LENGTH, request.cursor) if alone else (SHOWN, 0)
    window = segment and passages.around(segment.id, request.around, request.window, bounds, skip)
    if segment is None or window is None:
        return serialise_failure(
            f"there is no message {request.around} in a session {make_name(request.session_id)!r}"
        )
    answer = _start_answer(request)
    if window.segment.id != segment.id:
        answer["notes"].append("the message stands in another segment of that conversation, shown here")
    answer["session"] = format_session(window.segment)
    answer["messages"] = [
        format_message(excerpt, match=excerpt.id == request.around) for excerpt in window.messages
    ]
    answer["more_before"], answer["more_after"] = window.more_before, window.more_after
    if alone:
        answer["next_cursor"] = LARGEST_ID
        (message,) = answer["messages"]
        if "text" in message:
            without = measure_json({**answer, "messages": [{**message, "text": ""}]})
            message["text"] = fit_excerpt(message["text"], LARGEST - without)
        text = message.get("text")
        answer["next_cursor"] = text.before + len(text.piece) if text and text.after else None
    return serialise_answer(answer, shorten="messages")


def _read(store: RecallStore, request: ToolArguments) -> str:
    passages = store.passages
    segment = passages.segment(request.session_id)
    page = segment and passages.page(segment.id, request.cursor, LARGEST, SHOWN)
    if page is None:
        return serialise_failure(f"there is no session {make_name(request.session_id)!r}")
    answer = {
        **_start_answer(request),
        "session": format_session(page.segment),
        "messages": [],
        "next_cursor": LARGEST_ID,
    }
    room = LARGEST - measure_json(answer)
    for excerpt in page.messages:
        message = format_message(excerpt)
        room -= measure_json(message) + 1
        if room < 0 and answer["messages"]:
            break
        answer["messages"].append(message)
    messages = answer["messages"]
    more = page.more_after or len(messages) < len(page.messages)
    answer["next_cursor"] = messages[-1]["id"] if messages and more else None
    return serialise_answer(answer)


def _browse(store: RecallStore, request: ToolArguments, current: str | None) -> str:
    passages = store.passages
    here = passages.conversation_of(current)
    page = passages.recent(
        request.limit + 1, source=request.source, since=request.after, until=request.before
    )
    rows = [row for row in page.rows if row["root_id"] != here][: request.limit]
    answer = _start_answer(request)
    answer["results"] = [
        {
            "session_id": make_name(row["id"]),
            "title": make_name(row["title"]) if row["title"] else None,
            "source": make_name(row["source"]),
            "started_at": clock.format_iso(row["started_at"]),
            "last_active": clock.format_iso(row["last_active"]),
            "message_count": row["message_count"],
            "preview": make_excerpt(row["preview"] or "", LONGEST_SNIPPET),
        }
        for row in rows
    ]
    answer["count"] = len(rows)
    return serialise_answer(answer, shorten="results")


def _start_answer(request: ToolArguments) -> Row:
    return {"notice": NOTICE, "success": True, "mode": request.mode, "notes": list(request.notes)}
