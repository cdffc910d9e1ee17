"""Formats conversations as short Markdown for a chat. All text from outside is escaped.

Titles, names and messages are data. They must not break the layout, notify a person, or become a link or a
tappable command.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from hermes import clock
from hermes.config.settings_schema import ResetPolicy
from hermes.config.time_zones import UnknownZone, find_zone
from hermes.insights.number_format import format_duration
from hermes.message_content import make_prompt_preview
from hermes.recall.snippets.goals import MARKED, fit_snippet
from hermes.text import make_printable

Row = dict[str, Any]

LONGEST = 60
SNIPPET = 160

APART = "\u2060"
"""The word joiner, an invisible character. Platforms do not recognise a mention, link or command that contains
it. The store removes it from titles."""

# Characters that platforms interpret: @names, addresses with and without a scheme, and /commands.
_ACTS = re.compile(r"@|:(?=//)|(?<=\w)\.(?=\w)|(?<!\w)/(?=\w)")
_MARKUP = re.compile(r"[\\`*_~\[\]<>#|]")


def escape_line(text: str, most: int = LONGEST) -> str:
    """Return the text as one line that every platform shows literally, with no links, mentions or commands."""
    line = " ".join(make_printable(text, width_limit=most).split())
    return _MARKUP.sub(r"\\\g<0>", _ACTS.sub(rf"\g<0>{APART}", line))


def format_code(text: str) -> str:
    """Format a text that people copy, for example an id, as inline code. Backquotes are replaced."""
    return f"`{make_printable(text, width_limit=200).replace('`', chr(39)) or '?'}`"


def format_name(row: Row) -> str:
    """Return the title of a conversation, or its beginning if it has no title."""
    if row.get("title"):
        return f"**{escape_line(row['title'])}**"
    return f"“{escape_line(row['preview'])}”" if row.get("preview") else "*untitled*"


def format_conversation(row: Row, now: float) -> str:
    """Format a conversation for a list: name, age and id."""
    return f"{format_name(row)} · {clock.format_relative(row['last_active'], now)} · {format_code(row['id'])}"


def quote_beginning(content: object) -> str:
    """Return the beginning of a message's content in quotation marks, as one escaped line."""
    return f"“{escape_line(make_prompt_preview(content, LONGEST) or '…')}”"


def format_snippet(text: str) -> str:
    """Format a search snippet with the matches in bold."""
    parts = MARKED.split(fit_snippet(text, SNIPPET, in_colour=True))
    formatted = (
        f"**{escape_line(part, SNIPPET)}**" if number % 2 and part.strip() else _escape_part(part)
        for number, part in enumerate(parts)
    )
    return "".join(formatted).strip()


def _escape_part(part: str) -> str:
    """Escape a part of a snippet. Whitespace at the beginning and at the end of the part becomes one space."""
    ends = (" " if part[:1].isspace() else "", " " if part[-1:].isspace() else "")
    return f"{ends[0]}{escape_line(part, SNIPPET)}{ends[1]}" if part.strip() else ends[0]


def format_time(at: float, zone: str | None, now: float) -> str:
    """Format a time as `today 14:05` or `12 Nov 04:00`, in the time zone `zone`. If the zone is unknown, use
    that of the machine."""
    then, today = _to_local(at, zone), _to_local(now, zone)
    day = {0: "today", 1: "yesterday", -1: "tomorrow"}.get((today.date() - then.date()).days)
    if day is None:
        day = f"{then.day} {then:%b}" if then.year == today.year else f"{then.day} {then:%b %Y}"
    return f"{day} {then:%H:%M}"


def _to_local(at: float, zone: str | None) -> datetime:
    moment = datetime.fromtimestamp(at, UTC)
    try:
        return moment.astimezone(find_zone(zone) if zone else None)
    except UnknownZone:  # use the zone of the machine
        return moment.astimezone()


def describe_policy(policy: ResetPolicy) -> str:
    """Describe a reset policy in words: when a conversation is reset automatically."""
    idle = f"after {format_duration(policy.idle_minutes * clock.MINUTE)} without a message"
    daily = f"daily at {policy.at_hour}:00"
    return {"idle": idle, "daily": daily, "both": f"{daily}, and {idle}"}.get(
        policy.mode, "never automatically"
    )
