"""Columns of text that line up on a terminal, whatever script the text is in.

A Chinese character takes two columns and a combining accent none, so padding counts columns, not
characters, and a cut never separates an accent or an emoji's parts from what they belong to.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hermes.cli.io.output import styled
from hermes.text import make_printable

RULE = "─"
CUT = "…"
JOINER = "\u200d"
EMOJI_STYLE = "\ufe0f"
SKIN_TONES = range(0x1F3FB, 0x1F400)
HANGUL_TAILS = range(0x1160, 0x1200)

FIRST_KEEPS = 22
"""Columns that the first of two texts keeps while the second is whole: the documented width of a title."""
LEAST = (24, 14)
"""Columns that a text which can be cut keeps: as long as the others can give, and however narrow the terminal is."""


class Column(NamedTuple):
    heading: str
    width: int = 0
    """Columns it takes; 0 for the last one, which is as long as its text; -1 for one that is left out."""
    shown: int = 0
    """Columns of a text that does not fit and is cut; 0 for as many as fit."""
    marks_cut: bool = True
    """Whether `…` follows a text that was cut."""

    @property
    def is_flexible(self) -> bool:
        """Whether a terminal's width decides how much of it is shown."""
        return self.marks_cut and self.shown > 0


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], rule: int) -> Iterator[str]:
    """The heading, a rule, and a line per row. Every cell is made safe to print."""
    yield styled(_line(columns, [column.heading for column in columns]), "bold")
    yield styled(RULE * rule, "dim")
    for row in rows:
        yield _line(columns, [make_printable(cell) for cell in row])


def widened(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[Column]:
    """The columns for a terminal of this width: what can be cut grows as far as it has text, or shrinks.

    A column with room to spare gives it up before any text is cut. The last column is never cut. Where there is no
    room for two that can be cut, the second is left out (width -1).
    """
    longest = max(columns_taken(make_printable(row[-1])) for row in rows)
    spare = width - longest - sum(column.width + 1 for column in columns[:-1])
    made = list(columns)
    flexible = [at for at, column in enumerate(columns) if column.is_flexible]
    needs = [_need(column, [row[at] for row in rows]) for at, column in enumerate(columns[:-1])]
    fixed = [at for at in range(len(columns) - 1) if at not in flexible]
    for at in (*reversed(flexible), *fixed):
        least = max(needs[at], LEAST[-1]) if at in flexible else needs[at]
        given = min(max(0, made[at].width - least), max(0, -spare))
        made[at] = (
            _changed(made[at], -given) if at in flexible else made[at]._replace(width=made[at].width - given)
        )
        spare += given
    if len(flexible) > 1:
        given = min(max(0, made[flexible[0]].width - FIRST_KEEPS), max(0, -spare))
        made[flexible[0]] = _changed(made[flexible[0]], -given)
        spare += given
    for least in LEAST:
        for at in reversed(flexible):  # the last gives first, and takes first
            need = needs[at]
            change = max(min(0, least - made[at].width), min(spare, max(0, need - made[at].width)))
            made[at] = _changed(made[at], change)
            spare -= change
    if spare < 0 and len(flexible) > 1:
        first, last = flexible[0], flexible[-1]
        made[first] = _changed(made[first], max(0, spare + made[last].width + 1))
        made[last] = made[last]._replace(width=-1)
    return made


def length(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Columns that the longest line takes, whatever is cut."""
    longest = max(columns_taken(make_printable(row[-1])) for row in rows)
    return longest + sum(column.width + 1 for column in columns[:-1] if column.width >= 0)


def _need(column: Column, texts: Sequence[str]) -> int:
    """Columns that the heading and these texts take; of a text that is cut without a mark, what is shown."""
    taken = max(columns_taken(make_printable(text)) for text in (column.heading, *texts))
    return taken if column.marks_cut else min(taken, max(column.shown, columns_taken(column.heading)))


def _changed(column: Column, by: int) -> Column:
    return column._replace(width=column.width + by, shown=column.shown + by)


def columns_taken(text: str) -> int:
    return sum(width for _cluster, width in _clusters(text))


def fit(text: str, column: Column) -> str:
    """The text padded to the column's width; one that does not fit is cut to what the column shows."""
    if not column.width:
        return text
    is_whole = column.marks_cut and columns_taken(text) <= column.width
    room = column.width if is_whole else column.shown or column.width
    kept, used = _cut(text, room)
    if kept != text and column.marks_cut and used < column.width:
        kept, used = kept + CUT, used + 1
    return kept + " " * (column.width - used)


def _line(columns: Sequence[Column], cells: Sequence[str]) -> str:
    shown = (pair for pair in zip(cells, columns, strict=True) if pair[1].width >= 0)
    return " ".join(fit(cell, column) for cell, column in shown).rstrip()


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
