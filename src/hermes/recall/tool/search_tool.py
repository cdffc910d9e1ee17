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
from hermes.recall.snippets.excerpts import excerpt
from hermes.recall.tool.message_excerpt import Bounds
from hermes.recall.tool.passages import Passages
from hermes.recall.tool.prompt_safety import LARGEST, LONGEST, NOTICE, failure, fitting, name, size, told
from hermes.recall.tool.summaries import IN_A_TRANSCRIPT, TRANSCRIPT, Summarise, summaries, transcript
from hermes.recall.tool.tool_format import (
    LONGEST_SNIPPET,
    clues_of,
    header_of,
    message_of,
    result_of,
    session_of,
)
from hermes.recall.tool.tool_schema import LARGEST_ID, SCHEMA, Asked, asked

__all__ = ["SCHEMA", "Recall", "session_search"]

SHOWN = Bounds(said=LONGEST, tool=300, match=LONGEST)
AT_LENGTH = Bounds(said=LONGEST, tool=300, match=LARGEST)
RADIUS = 5
"""Messages on each side of a match, if there is room."""
SUMMARY_SECONDS = 60.0
SUMMARY_SHARE = 12
"""A summary stands for all the messages that would be shown otherwise."""

Row = dict[str, Any]


class Recall(Protocol):
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
    store: Recall,
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
        wanted = asked(arguments)
        if wanted.mode == "scroll":
            return _scroll(store, wanted)
        if wanted.mode == "read":
            return _read(store, wanted)
        if wanted.mode == "browse":
            return _browse(store, wanted, current_session)
        if summarise is None:
            return _discover(store, wanted, current_session, None)
        work = Summaries(summarise, summary_seconds, transcript_size)
        return _discover(store, wanted, current_session, work)
    except errors.HermesError as problem:
        return failure(name(problem, 400))


# -------------------------------------------------------------------- discover


class Summaries(NamedTuple):
    """Who summarises, within what time, from how many characters of each session."""

    summarise: Summarise
    seconds: float
    transcript_size: int


def _discover(store: Recall, wanted: Asked, current: str | None, work: Summaries | None) -> str:
    rows = store.search_sessions_ranked(
        list(wanted.phrasings),
        wanted.limit,
        source_filter=None if wanted.source is None else [wanted.source],
        role_filter=wanted.roles or None,
        after=wanted.after,
        before=wanted.before,
        exclude_session=current,
        sort=wanted.sort,
    )
    answer = _answer(wanted)
    notes: list[str] = answer["notes"]
    if wanted.sort == "relevance" and any(row.get("order") == "newest" for row in rows):
        notes.append("there is nothing to rank by, so the newest come first")
    if getattr(rows, "relaxed", False):
        notes.append("nothing matches the query exactly; these are the nearest")
    if getattr(rows, "partial", False):
        notes.append("no message holds the words of the query; they were found as parts of longer words")
    if wanted.summarize and work is None:
        notes.append("there is no model to summarise with; these are the messages themselves")
    if wanted.summarize and work is not None:
        results = _summarised(store, wanted, rows, work)
        missing = sum(1 for result in results if result and "summary_missing" in result)
        if missing:
            notes.append(
                f"{missing} of {len(results)} could not be summarised; their messages are shown instead"
            )
    else:
        results = [_shown(store, row, _room(len(rows))) for row in rows]
    answer["results"] = [result for result in results if result]
    answer["count"] = len(answer["results"])
    if not rows:
        notes.append("nothing was found; try other words or fewer of them, or leave out filters")
    return told(answer, shorten="results")


def _shown(store: Recall, row: Row, room: int) -> Row | None:
    """One conversation that was found; None if it has gone meanwhile."""
    scene = store.passages.scene(row["session_id"], row["message_id"], RADIUS, SHOWN, clues_of(row))
    return None if scene is None else result_of(header_of(row), scene, room)


def _room(results: int) -> int:
    """What each of so many results may take of an answer, beside the notice and the notes."""
    return (LARGEST - 1_000) // max(1, results)


def _summarised(store: Recall, wanted: Asked, rows: Sequence[Row], work: Summaries) -> list[Row | None]:
    """Summaries in the place of messages; where there is none, the messages and why."""
    question = " / ".join(wanted.phrasings)
    windows = [
        store.passages.transcript(
            row["session_id"], row["message_id"], work.transcript_size, IN_A_TRANSCRIPT, clues_of(row)
        )
        for row in rows
    ]
    known = [(row, transcript(window)) for row, window in zip(rows, windows, strict=True) if window]
    made = summaries(work.summarise, question, [text for _, text in known], work.seconds)
    results: list[Row | None] = []
    for (row, _), summary in zip(known, made, strict=True):
        if summary.text:
            results.append({**header_of(row), "summary": excerpt(summary.text, LARGEST, share=SUMMARY_SHARE)})
        elif shown := _shown(store, row, _room(len(known)) - 100):
            results.append({**shown, "summary_missing": summary.problem})
    return results


# -------------------------------------------------------------------- scroll, read, browse


def _scroll(store: Recall, wanted: Asked) -> str:
    passages = store.passages
    segment = passages.segment(wanted.session_id)
    alone = wanted.window == 0
    bounds, skip = (AT_LENGTH, wanted.cursor) if alone else (SHOWN, 0)
    window = segment and passages.around(segment.id, wanted.around, wanted.window, bounds, skip)
    if segment is None or window is None:
        return failure(f"there is no message {wanted.around} in a session {name(wanted.session_id)!r}")
    answer = _answer(wanted)
    if window.segment.id != segment.id:
        answer["notes"].append("the message stands in another segment of that conversation, shown here")
    answer["session"] = session_of(window.segment)
    answer["messages"] = [message_of(one, match=one.id == wanted.around) for one in window.messages]
    answer["more_before"], answer["more_after"] = window.more_before, window.more_after
    if alone:
        answer["next_cursor"] = LARGEST_ID
        (message,) = answer["messages"]
        if "text" in message:
            without = size({**answer, "messages": [{**message, "text": ""}]})
            message["text"] = fitting(message["text"], LARGEST - without)
        shown = message.get("text")
        answer["next_cursor"] = shown.before + len(shown.piece) if shown and shown.after else None
    return told(answer, shorten="messages")


def _read(store: Recall, wanted: Asked) -> str:
    passages = store.passages
    segment = passages.segment(wanted.session_id)
    page = segment and passages.page(segment.id, wanted.cursor, LARGEST, SHOWN)
    if page is None:
        return failure(f"there is no session {name(wanted.session_id)!r}")
    answer = {
        **_answer(wanted),
        "session": session_of(page.segment),
        "messages": [],
        "next_cursor": LARGEST_ID,
    }
    room = LARGEST - size(answer)
    for one in page.messages:
        message = message_of(one)
        room -= size(message) + 1
        if room < 0 and answer["messages"]:
            break
        answer["messages"].append(message)
    messages = answer["messages"]
    more = page.more_after or len(messages) < len(page.messages)
    answer["next_cursor"] = messages[-1]["id"] if messages and more else None
    return told(answer)


def _browse(store: Recall, wanted: Asked, current: str | None) -> str:
    passages = store.passages
    here = passages.conversation_of(current)
    page = passages.recent(wanted.limit + 1, source=wanted.source, since=wanted.after, until=wanted.before)
    rows = [row for row in page.rows if row["root_id"] != here][: wanted.limit]
    answer = _answer(wanted)
    answer["results"] = [
        {
            "session_id": name(row["id"]),
            "title": name(row["title"]) if row["title"] else None,
            "source": name(row["source"]),
            "started_at": clock.iso(row["started_at"]),
            "last_active": clock.iso(row["last_active"]),
            "message_count": row["message_count"],
            "preview": excerpt(row["preview"] or "", LONGEST_SNIPPET),
        }
        for row in rows
    ]
    answer["count"] = len(rows)
    return told(answer, shorten="results")


def _answer(wanted: Asked) -> Row:
    return {"notice": NOTICE, "success": True, "mode": wanted.mode, "notes": list(wanted.notes)}
