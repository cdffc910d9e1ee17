"""How a conversation looks in the list: one line, or two where a search has something to show.

All of it is text with styles, never markup: what a title says in brackets is shown in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from hermes import clock
from hermes.browser.rows import Conversation
from hermes.recall.snippets.snippets import CLOSE, OPEN
from hermes.text import make_printable

POINTER, PINNED, ARCHIVED = "▌", "★", "▢"
WHEN_WIDTH, SOURCE_WIDTH, SHORT_SOURCE = 10, 9, 4
ROOM_FOR_SOURCE, ROOM_FOR_WHOLE_SOURCE, ROOM_FOR_PREVIEW = 40, 60, 70
"""Columns from which a line shows the source in short, at length, and the first words beside the title."""
LONGEST_TITLE = 50

_MARKED = re.compile(f"{OPEN}(.*?){CLOSE}", re.DOTALL)


class Styles(NamedTuple):
    plain: Style
    dim: Style
    match: Style
    mark: Style
    source: Style


def render_heading(
    conversation: Conversation, width: int, styles: Styles, words: Iterable[str], now: float
) -> Text:
    """Marks and name on the left, source and time on the right, exactly so wide."""
    right = Text(no_wrap=True)
    if width >= ROOM_FOR_SOURCE:
        room = SOURCE_WIDTH if width >= ROOM_FOR_WHOLE_SOURCE else SHORT_SOURCE
        source = Text(make_printable(conversation.source), styles.source)
        source.truncate(room, pad=True)
        right.append_text(source).append(" ")
    right.append(clock.format_relative(conversation.last_active, now).rjust(WHEN_WIDTH), styles.dim)
    left = Text(no_wrap=True)
    if conversation.pinned:
        left.append(f"{PINNED} ", styles.mark)
    if conversation.archived:
        left.append(f"{ARCHIVED} ", styles.dim)
    name = Text(
        conversation.name, styles.plain if conversation.title and not conversation.archived else styles.dim
    )
    room = max(0, width - right.cell_len - 1)
    if conversation.title and conversation.preview and room >= ROOM_FOR_PREVIEW:
        name.truncate(LONGEST_TITLE, overflow="ellipsis")
        name.append(f"  {make_printable(conversation.preview)}", styles.dim)
    highlight(name, words, styles.match)
    left.append_text(name)
    left.truncate(room, overflow="ellipsis", pad=True)
    return left.append(" ").append_text(right)


def render_snippet(conversation: Conversation, width: int, styles: Styles) -> Text:
    """The second line: where the query was found, its matches marked, cut so that the first of them is seen.

    Of one that was found by its title it is the first words.
    """
    line = Text(no_wrap=True)
    excerpt = make_printable(conversation.snippet or (conversation.preview if conversation.title else ""))
    at = 0
    first = excerpt.find(OPEN)
    if first > width // 2 and cell_len(_MARKED.sub(r"\1", excerpt)) > width:
        at = first - width // 3
        line.append("…", styles.dim)
    for match in _MARKED.finditer(excerpt, at):
        line.append(excerpt[at : match.start()], styles.dim)
        line.append(match[1], styles.match)
        at = match.end()
    line.append(excerpt[at:], styles.dim)
    line.truncate(width, overflow="ellipsis", pad=True)
    return line


def highlight(text: Text, words: Iterable[str], style: Style) -> None:
    """Style every occurrence of these words, whatever their case."""
    patterns = sorted((re.escape(word) for word in words if word.strip()), key=len, reverse=True)
    if patterns:
        text.highlight_regex(re.compile("|".join(patterns), re.IGNORECASE), style)
