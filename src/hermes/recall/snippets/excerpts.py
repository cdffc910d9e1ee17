"""Pieces of texts: cut between characters as readers see them, and honest about how much was left out."""

from __future__ import annotations

from typing import NamedTuple
from unicodedata import category

JOINER = "\u200d"
SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")
PATIENCE = 32
"""How far a cut moves for the sake of a character: marks can be piled up without end."""


class Excerpt(NamedTuple):
    """A piece of a text as it was written, and how many characters stand before and after it."""

    piece: str
    before: int = 0
    after: int = 0
    focus: int = 0
    """The place in the piece that must stay when it is cut further."""
    share: int = 1
    """How much of the room it gets where several have to share."""


def make_excerpt(text: str, most: int, *, focus: int = 0, share: int = 1) -> Excerpt:
    """At most so many characters of a text: its beginning, or what stands around the focus."""
    return narrow_excerpt(Excerpt(text, focus=focus, share=share), most)


def narrow_excerpt(whole: Excerpt, most: int) -> Excerpt:
    """The same with at most so many characters."""
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
    """Whether a character is seen as part of the one before it."""
    if char < "\u0300":
        return False
    return char == JOINER or SKIN_TONES[0] <= char <= SKIN_TONES[1] or category(char)[0] == "M"
