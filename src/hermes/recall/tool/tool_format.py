"""How sessions, messages and conversations that were found look in an answer of `session_search`.

The keys are ours; whatever was said, or named by anybody, stands under them as an excerpt or a `name`.
"""

from __future__ import annotations

import re
from typing import Any

from hermes import clock
from hermes.recall.snippets.excerpts import excerpt
from hermes.recall.snippets.snippets import CLOSE, CUT, OPEN
from hermes.recall.tool.message_excerpt import Said
from hermes.recall.tool.passages import Scene, Segment
from hermes.recall.tool.prompt_safety import least_size, name

LONGEST_SNIPPET = 400
NEAREST = 2
"""So many neighbours of a match come before the first and the last exchange, when there is not room for all."""
GAP = 20
"""What the line takes that tells how many messages stand between two."""

MARKED = re.compile(f"{re.escape(OPEN)}(.+?){re.escape(CLOSE)}", re.DOTALL)

Row = dict[str, Any]


def session_of(segment: Segment) -> Row:
    """What a reader should know of a session before its messages."""
    about = {
        "session_id": name(segment.id),
        "title": name(segment.title) if segment.title else None,
        "source": name(segment.source),
        "started_at": clock.iso(segment.started_at),
        "last_active": clock.iso(segment.last_active),
        "message_count": segment.message_count,
    }
    if segment.continues:
        about["continues"] = name(segment.continues)
    if segment.continued_in:
        about["continued_in"] = name(segment.continued_in)
    return about


def message_of(one: Said, *, match: bool = False) -> Row:
    """Who said what, and when; `tool` and `calls` where there are any."""
    message: Row = {"id": one.id, "author": name(one.role), "at": clock.iso(one.at)}
    if match:
        message["match"] = True
    if one.tool:
        message["tool"] = name(one.tool)
    if one.text.piece or one.text.before or not one.calls:
        message["text"] = one.text
    if one.calls:
        message["calls"] = one.calls
    return message


def header_of(row: Row) -> Row:
    """What a reader should know of a conversation that was found."""
    why = row.get("why") or ""
    header = {
        "session_id": name(row["session_id"]),
        "title": name(row["title"]) if row.get("title") else None,
        "source": name(row["source"]),
        "started_at": clock.iso(row["started_at"]),
        "last_active": clock.iso(row["last_active"]),
        "message_id": row["message_id"],
        "why": name(", ".join(map(str, why)) if isinstance(why, list | tuple) else why),
        "snippet": excerpt(row["snippet"] or "", LONGEST_SNIPPET),
    }
    if row["conversation_id"] != row["session_id"]:
        header["conversation_id"] = name(row["conversation_id"])
    if row["tip_id"] != row["session_id"]:
        header["goes_on_in"] = name(row["tip_id"])
    return header


def clues_of(row: Row) -> list[str]:
    """Pieces of the matching text that its snippet shows: without marks the whole of it, then each marked one."""
    snippet = row["snippet"] or ""
    whole = snippet.replace(OPEN, "").replace(CLOSE, "").removeprefix(CUT).removesuffix(CUT)
    return [whole, *sorted(MARKED.findall(snippet), key=len, reverse=True)]


def result_of(header: Row, scene: Scene, room: int) -> Row:
    """The match, then as much of what is around it as the room allows without cutting everything to shreds."""
    match = message_of(scene.match, match=True)
    room -= least_size({**header, "opening": [], "messages": [match], "closing": []})
    chosen = {scene.match.id: match}
    near, far = scene.around[:NEAREST], scene.around[NEAREST:]
    for one in (*scene.exchange, *near, *scene.opening, *scene.closing, *far):
        message = message_of(one)
        room -= least_size(message) + GAP
        if room < 0:
            break
        chosen[one.id] = message
    apart = {one.id for one in (*scene.opening, *scene.closing)}
    result = {
        **header,
        "opening": [chosen[one.id] for one in scene.opening if one.id in chosen],
        "messages": _with_gaps([chosen[key] for key in sorted(chosen) if key not in apart], scene.near),
        "closing": [chosen[one.id] for one in scene.closing if one.id in chosen],
    }
    return {key: value for key, value in result.items() if value != []}


def _with_gaps(messages: list[Row], near: list[int]) -> list[Row]:
    """The messages, and between two that are no neighbours how many there are."""
    place = {message_id: number for number, message_id in enumerate(near)}
    lines: list[Row] = []
    for message in messages:
        if lines and (between := place[message["id"]] - place[lines[-1]["id"]] - 1):
            lines.append({"left_out": between})
        lines.append(message)
    return lines
