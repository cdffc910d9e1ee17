"""Excerpts of texts. They are cut between visible characters. Each records how many characters were left out
before and after it."""

from __future__ import annotations

from typing import NamedTuple
from unicodedata import category

JOINER = "\u200d"
SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")
PATIENCE = 32
"""Maximum number of characters that a cut moves to avoid splitting a visible character. The limit is needed
because combining marks can repeat without end."""


class Excerpt(NamedTuple):
    """A piece of a text as written, and how many characters of the text precede and follow it."""

    piece: str
    before: int = 0
    after: int = 0
    focus: int = 0
    """A position in the piece. If the piece is cut further, the part around this position is kept."""
    share: int = 1
    """The weight of this excerpt when several excerpts share the available space."""


def make_excerpt(text: str, most: int, *, focus: int = 0, share: int = 1) -> Excerpt:
    """Return at most `most` characters of a text: its beginning, or the part around `focus`."""
    return narrow_excerpt(Excerpt(text, focus=focus, share=share), most)


def narrow_excerpt(whole: Excerpt, most: int) -> Excerpt:
    """Return the excerpt cut to at most `most` characters."""
    text, most = whole.piece, max(0, most)
    if len(text) <= most:
        return whole
    first = max(0, min(whole.focus - most // 4, len(text) - most))
    last = _snap_to_character(text, first + most, -1)
    first = min(last, _snap_to_character(text, first, 1))
    return whole._replace(
        piece=text[first:last],
        before=whole.before + first,
        after=whole.after + len(text) - last,
        focus=max(0, whole.focus - first),
    )


def _snap_to_character(text: str, at: int, step: int) -> int:
    for place in range(at, at + step * PATIENCE, step):
        if not 0 < place < len(text) or not (_is_continuation(text[place]) or text[place - 1] == JOINER):
            return max(0, min(place, len(text)))
    return at


def _is_continuation(char: str) -> bool:
    """Return whether a character is displayed as part of the previous one."""
    if char < "\u0300":
        return False
    return char == JOINER or SKIN_TONES[0] <= char <= SKIN_TONES[1] or category(char)[0] == "M"
