"""Columns of text that line up on a terminal, whatever script the text is in.

A Chinese character takes two columns and a combining accent none, so padding counts columns, not
characters, and a cut never separates an accent or an emoji's parts from what they belong to.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hermes.text import printable

RULE = "─"
CUT = "…"
JOINER = "\u200d"
EMOJI_STYLE = "\ufe0f"
SKIN_TONES = range(0x1F3FB, 0x1F400)
HANGUL_TAILS = range(0x1160, 0x1200)


class Column(NamedTuple):
    heading: str
    width: int = 0
    """Columns it takes; 0 for the last one, which is as long as its text."""
    shown: int = 0
    """Columns of text it shows at most; 0 for as many as fit."""
    marks_cut: bool = True
    """Whether `…` follows a text that was cut."""


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], rule: int) -> Iterator[str]:
    """The heading, a rule, and a line per row. Every cell is made safe to print."""
    yield _line(columns, [column.heading for column in columns])
    yield RULE * rule
    for row in rows:
        yield _line(columns, [printable(cell) for cell in row])


def fit(text: str, column: Column) -> str:
    """The text cut to what the column shows and padded to its width."""
    if not column.width:
        return text
    room = column.shown or column.width
    kept, used = _cut(text, room)
    if kept != text and column.marks_cut and used < column.width:
        kept, used = kept + CUT, used + 1
    return kept + " " * (column.width - used)


def _line(columns: Sequence[Column], cells: Sequence[str]) -> str:
    return " ".join(fit(cell, column) for cell, column in zip(cells, columns, strict=True)).rstrip()


def _cut(text: str, room: int) -> tuple[str, int]:
    end = used = 0
    for cluster, width in _clusters(text):
        if used + width > room:
            break
        end += len(cluster)
        used += width
    return text[:end], used


def _clusters(text: str) -> Iterator[tuple[str, int]]:
    """What is drawn as one sign, with the columns it takes."""
    cluster, width = "", 0
    for sign in text:
        if cluster and (cluster[-1] == JOINER or _attaches(sign)):
            cluster += sign
            if sign == EMOJI_STYLE:
                width = 2
            continue
        if cluster:
            yield cluster, width
        cluster, width = sign, _columns(sign)
    if cluster:
        yield cluster, width


def _attaches(sign: str) -> bool:
    return _columns(sign) == 0 or ord(sign) in SKIN_TONES


def _columns(sign: str) -> int:
    if sign < "\u0300":
        return 1
    if unicodedata.category(sign) in {"Mn", "Me", "Cf"} or ord(sign) in HANGUL_TAILS:
        return 0
    return 2 if unicodedata.east_asian_width(sign) in {"W", "F"} else 1
