"""`session_search`: the tool with which an agent recalls earlier conversations.

The arguments select one of four modes: discover (a query), scroll (a session and a message), read (a session)
and browse (no arguments). An answer is JSON text of at most `LARGEST` characters. Invalid arguments, unknown
ids and store errors are returned as `error` and never raised. Recalled text is quoted (see `prompt_safety`).
The answer contains the real messages; a model is used only for optional summaries. The store handle decides
which conversations are visible: a scoped handle shows only those in its scope.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hermes import clock, errors
from hermes.recall.query.search_arguments import make_request
from hermes.recall.snippets.excerpts import make_excerpt
from hermes.recall.snippets.snippets import CLOSE, CUT, OPEN
from hermes.recall.tool.message_excerpt import Bounds, MessageExcerpt
from hermes.recall.tool.passages import Passages, Scene, Segment
from hermes.recall.tool.prompt_safety import (
    LARGEST,
    LONGEST,
    NOTICE,
    fit_excerpt,
    measure_json,
    measure_least,
    serialise_answer,
    serialise_failure,
    to_one_line,
)
from hermes.recall.tool.summaries import (
    IN_A_TRANSCRIPT,
    TRANSCRIPT,
    Summarise,
    format_transcript,
    make_summaries,
)
from hermes.recall.tool.tool_schema import LARGEST_ID, SCHEMA, ToolArguments, parse_arguments

__all__ = ["SCHEMA", "RecallStore", "session_search"]

SHOWN = Bounds(speech=LONGEST, tool=300, match=LONGEST)
AT_LENGTH = Bounds(speech=LONGEST, tool=300, match=LARGEST)
RADIUS = 5
"""Maximum number of messages on each side of a match."""
SUMMARY_SECONDS = 60.0
SUMMARY_SHARE = 12
"""Weight of a summary when the space is divided. It is high because a summary replaces all messages of the
result."""

Row = dict[str, Any]
LONGEST_SNIPPET = 400
NEAREST = 2
"""If space is short, this many neighbours of the match have priority over the first and the last exchange."""
GAP = 20
"""Length, in characters, of the entry that says how many messages were left out between two others."""

MARKED = re.compile(f"{re.escape(OPEN)}(.+?){re.escape(CLOSE)}", re.DOTALL)


class RecallStore(Protocol):
    """The part of a store that the tool uses. `SessionDB` and `ScopedStore` implement it."""

    @property
    def passages(self) -> Passages: ...


def session_search(
    store: RecallStore,
    arguments: Mapping[str, Any],
    *,
    current_session: str | None = None,
    summarise: Summarise | None = None,
    summary_seconds: float = SUMMARY_SECONDS,
    transcript_size: int = TRANSCRIPT,
) -> str:
    """Answer one call of the tool `session_search`. The conversation of `current_session` is left out of the results,
    because the agent already knows it.

    The summariser receives about `transcript_size` characters of each found session.
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
        return serialise_failure(to_one_line(problem, 400))


# -------------------------------------------------------------------- discover


class SummaryOptions(NamedTuple):
    """The summariser, its time limit, and the number of characters of each session that it receives."""

    summarise: Summarise
    seconds: float
    transcript_size: int


def _discover(
    store: RecallStore, request: ToolArguments, current: str | None, work: SummaryOptions | None
) -> str:
    search_request = make_request(
        None if request.source is None else [request.source],
        role_filter=request.roles,
        after=request.after,
        before=request.before,
        limit=request.limit,
        sort=request.sort,
    )
    rows = store.passages.search(request.phrasings, search_request, current)
    answer = _start_answer(request)
    notes: list[str] = answer["notes"]
    if request.sort == "relevance" and any(row.get("order") == "newest" for row in rows):
        notes.append("there is nothing to rank by, so the newest come first")
    if rows.relaxed:
        notes.append("nothing matches the query exactly; these are the nearest")
    if rows.partial:
        notes.append("no message contains the words of the query; they were found as parts of longer words")
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
    """Return the part of the tool's answer about one found conversation, in about `room` characters. `row` is the
    result row of the search. None if the conversation was deleted in the meantime."""
    scene = store.passages.scene(row["session_id"], row["message_id"], RADIUS, SHOWN, _extract_clues(row))
    return None if scene is None else _format_result(_format_header(row), scene, room)


def _compute_room(results: int) -> int:
    """Return the number of characters of the tool's answer that are available for each of its results."""
    return (LARGEST - 1_000) // max(1, results)


def _summarise_results(
    store: RecallStore, request: ToolArguments, rows: Sequence[Row], work: SummaryOptions
) -> list[Row | None]:
    """Return results that contain summaries instead of messages. If a summary is missing, the result contains
    its messages and the reason."""
    question = " / ".join(request.phrasings)
    windows = [
        store.passages.transcript(
            row["session_id"], row["message_id"], work.transcript_size, IN_A_TRANSCRIPT, _extract_clues(row)
        )
        for row in rows
    ]
    known = [(row, format_transcript(window)) for row, window in zip(rows, windows, strict=True) if window]
    made = make_summaries(work.summarise, question, [text for _, text in known], work.seconds)
    results: list[Row | None] = []
    for (row, _), summary in zip(known, made, strict=True):
        if summary.text:
            results.append(
                {**_format_header(row), "summary": make_excerpt(summary.text, LARGEST, share=SUMMARY_SHARE)}
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
            f"there is no message {request.around} in a session {to_one_line(request.session_id)!r}"
        )
    answer = _start_answer(request)
    if window.segment.id != segment.id:
        answer["notes"].append("the message is in another segment of that conversation, which is shown here")
    answer["session"] = _format_session(window.segment)
    answer["messages"] = [
        _format_message(excerpt, match=excerpt.id == request.around) for excerpt in window.messages
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
        return serialise_failure(f"there is no session {to_one_line(request.session_id)!r}")
    answer = {
        **_start_answer(request),
        "session": _format_session(page.segment),
        "messages": [],
        "next_cursor": LARGEST_ID,
    }
    room = LARGEST - measure_json(answer)
    for excerpt in page.messages:
        message = _format_message(excerpt)
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
            "session_id": to_one_line(row["id"]),
            "title": to_one_line(row["title"]) if row["title"] else None,
            "source": to_one_line(row["source"]),
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


# ---------------------------------------------------------------- format of results

# The keys are fixed. Text and names written by others occur only as values, as excerpts or after
# `to_one_line`.


def _format_session(segment: Segment) -> Row:
    """Return the fields of the tool's answer that describe a session."""
    about = {
        "session_id": to_one_line(segment.id),
        "title": to_one_line(segment.title) if segment.title else None,
        "source": to_one_line(segment.source),
        "started_at": clock.format_iso(segment.started_at),
        "last_active": clock.format_iso(segment.last_active),
        "message_count": segment.message_count,
    }
    if segment.continues:
        about["continues"] = to_one_line(segment.continues)
    if segment.continued_in:
        about["continued_in"] = to_one_line(segment.continued_in)
    return about


def _format_message(excerpt: MessageExcerpt, *, match: bool = False) -> Row:
    """Return the author, time and text of a message, and `tool` and `calls` if the message has them."""
    message: Row = {"id": excerpt.id, "author": to_one_line(excerpt.role), "at": clock.format_iso(excerpt.at)}
    if match:
        message["match"] = True
    if excerpt.tool:
        message["tool"] = to_one_line(excerpt.tool)
    if excerpt.text.piece or excerpt.text.before or not excerpt.calls:
        message["text"] = excerpt.text
    if excerpt.calls:
        message["calls"] = excerpt.calls
    return message


def _format_header(row: Row) -> Row:
    """Return the fields of the tool's answer that describe a found conversation."""
    why = row.get("why") or ""
    header = {
        "session_id": to_one_line(row["session_id"]),
        "title": to_one_line(row["title"]) if row.get("title") else None,
        "source": to_one_line(row["source"]),
        "started_at": clock.format_iso(row["started_at"]),
        "last_active": clock.format_iso(row["last_active"]),
        "message_id": row["message_id"],
        "why": to_one_line(", ".join(map(str, why)) if isinstance(why, list | tuple) else why),
        "snippet": make_excerpt(row["snippet"] or "", LONGEST_SNIPPET),
    }
    if row["conversation_id"] != row["session_id"]:
        header["conversation_id"] = to_one_line(row["conversation_id"])
    if row["tip_id"] != row["session_id"]:
        header["goes_on_in"] = to_one_line(row["tip_id"])
    return header


def _extract_clues(row: Row) -> list[str]:
    """Return pieces of the found message's text that its snippet shows: first the whole snippet without marks, then
    each marked piece."""
    snippet = row["snippet"] or ""
    whole = snippet.replace(OPEN, "").replace(CLOSE, "").removeprefix(CUT).removesuffix(CUT)
    return [whole, *sorted(MARKED.findall(snippet), key=len, reverse=True)]


def _format_result(header: Row, scene: Scene, room: int) -> Row:
    """Return the match with as many surrounding messages as fit into `room` characters, each counted at its
    minimum length."""
    match = _format_message(scene.match, match=True)
    room -= measure_least({**header, "opening": [], "messages": [match], "closing": []})
    chosen = {scene.match.id: match}
    near, far = scene.around[:NEAREST], scene.around[NEAREST:]
    for excerpt in (*scene.exchange, *near, *scene.opening, *scene.closing, *far):
        message = _format_message(excerpt)
        room -= measure_least(message) + GAP
        if room < 0:
            break
        chosen[excerpt.id] = message
    apart = {excerpt.id for excerpt in (*scene.opening, *scene.closing)}
    result = {
        **header,
        "opening": [chosen[excerpt.id] for excerpt in scene.opening if excerpt.id in chosen],
        "messages": _insert_gaps([chosen[key] for key in sorted(chosen) if key not in apart], scene.near),
        "closing": [chosen[excerpt.id] for excerpt in scene.closing if excerpt.id in chosen],
    }
    return {key: value for key, value in result.items() if value != []}


def _insert_gaps(messages: list[Row], near: list[int]) -> list[Row]:
    """Return the messages of a result with an item inserted wherever messages between two of them are left out. The
    item says how many were left out."""
    place = {message_id: number for number, message_id in enumerate(near)}
    lines: list[Row] = []
    for message in messages:
        if lines and (between := place[message["id"]] - place[lines[-1]["id"]] - 1):
            lines.append({"left_out": between})
        lines.append(message)
    return lines
