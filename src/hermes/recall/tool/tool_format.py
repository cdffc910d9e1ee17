"""How sessions, messages and conversations that were found look in an answer of `session_search`.

The keys are ours; whatever was said, or named by anybody, stands under them as an excerpt or a `name`.
"""

from __future__ import annotations

import re
from typing import Any

from hermes import clock
from hermes.recall.snippets.excerpts import make_excerpt
from hermes.recall.snippets.snippets import CLOSE, CUT, OPEN
from hermes.recall.tool.message_excerpt import MessageExcerpt
from hermes.recall.tool.passages import Scene, Segment
from hermes.recall.tool.prompt_safety import make_name, measure_least

LONGEST_SNIPPET = 400
NEAREST = 2
"""So many neighbours of a match come before the first and the last exchange, when there is not room for all."""
GAP = 20
"""What the line takes that tells how many messages stand between two."""

MARKED = re.compile(f"{re.escape(OPEN)}(.+?){re.escape(CLOSE)}", re.DOTALL)

Row = dict[str, Any]


def format_session(segment: Segment) -> Row:
    """What a reader should know of a session before its messages."""
    about = {
        "session_id": make_name(segment.id),
        "title": make_name(segment.title) if segment.title else None,
        "source": make_name(segment.source),
        "started_at": clock.format_iso(segment.started_at),
        "last_active": clock.format_iso(segment.last_active),
        "message_count": segment.message_count,
    }
    if segment.continues:
        about["continues"] = make_name(segment.continues)
    if segment.continued_in:
        about["continued_in"] = make_name(segment.continued_in)
    return about


def format_message(excerpt: MessageExcerpt, *, match: bool = False) -> Row:
    """Who said what, and when; `tool` and `calls` where there are any."""
    message: Row = {"id": excerpt.id, "author": make_name(excerpt.role), "at": clock.format_iso(excerpt.at)}
    if match:
        message["match"] = True
    if excerpt.tool:
        message["tool"] = make_name(excerpt.tool)
    if excerpt.text.piece or excerpt.text.before or not excerpt.calls:
        message["text"] = excerpt.text
    if excerpt.calls:
        message["calls"] = excerpt.calls
    return message


def format_header(row: Row) -> Row:
    """What a reader should know of a conversation that was found."""
    why = row.get("why") or ""
    header = {
        "session_id": make_name(row["session_id"]),
        "title": make_name(row["title"]) if row.get("title") else None,
        "source": make_name(row["source"]),
        "started_at": clock.format_iso(row["started_at"]),
        "last_active": clock.format_iso(row["last_active"]),
        "message_id": row["message_id"],
        "why": make_name(", ".join(map(str, why)) if isinstance(why, list | tuple) else why),
        "snippet": make_excerpt(row["snippet"] or "", LONGEST_SNIPPET),
    }
    if row["conversation_id"] != row["session_id"]:
        header["conversation_id"] = make_name(row["conversation_id"])
    if row["tip_id"] != row["session_id"]:
        header["goes_on_in"] = make_name(row["tip_id"])
    return header


def extract_clues(row: Row) -> list[str]:
    """Pieces of the matching text that its snippet shows: without marks the whole of it, then each marked one."""
    snippet = row["snippet"] or ""
    whole = snippet.replace(OPEN, "").replace(CLOSE, "").removeprefix(CUT).removesuffix(CUT)
    return [whole, *sorted(MARKED.findall(snippet), key=len, reverse=True)]


def format_result(header: Row, scene: Scene, room: int) -> Row:
    """The match, then as much of what is around it as the room allows without cutting everything to shreds."""
    match = format_message(scene.match, match=True)
    room -= measure_least({**header, "opening": [], "messages": [match], "closing": []})
    chosen = {scene.match.id: match}
    near, far = scene.around[:NEAREST], scene.around[NEAREST:]
    for excerpt in (*scene.exchange, *near, *scene.opening, *scene.closing, *far):
        message = format_message(excerpt)
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
    """The messages, and between two that are no neighbours how many there are."""
    place = {message_id: number for number, message_id in enumerate(near)}
    lines: list[Row] = []
    for message in messages:
        if lines and (between := place[message["id"]] - place[lines[-1]["id"]] - 1):
            lines.append({"left_out": between})
        lines.append(message)
    return lines
