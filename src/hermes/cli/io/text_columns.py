"""Columns of text that line up on a terminal, whatever script the text is in.

A Chinese character takes two columns and a combining accent none, so padding counts columns, not
characters, and a cut never separates an accent or an emoji's parts from what they belong to.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hermes.cli.io.output import apply_style
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
    cut_width: int = 0
    """Columns of a text that does not fit and is cut; 0 for as many as fit."""
    marks_cut: bool = True
    """Whether `…` follows a text that was cut."""

    @property
    def is_flexible(self) -> bool:
        """Whether a terminal's width decides how much of it is shown."""
        return self.marks_cut and self.cut_width > 0


def format_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], rule: int) -> Iterator[str]:
    """The heading, a rule, and a line per row. Every cell is made safe to print."""
    yield apply_style(_format_line(columns, [column.heading for column in columns]), "bold")
    yield apply_style(RULE * rule, "dim")
    for row in rows:
        yield _format_line(columns, [make_printable(cell) for cell in row])


def widen_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[Column]:
    """The columns for a terminal of this width: what can be cut grows as far as it has text, or shrinks.

    A column with room to spare gives it up before any text is cut. The last column is never cut. Where there is no
    room for two that can be cut, the second is left out (width -1).
    """
    longest = max(measure_text(make_printable(row[-1])) for row in rows)
    spare = width - longest - sum(column.width + 1 for column in columns[:-1])
    widths = list(columns)
    flexible = [at for at, column in enumerate(columns) if column.is_flexible]
    needs = [_measure_column(column, [row[at] for row in rows]) for at, column in enumerate(columns[:-1])]
    fixed = [at for at in range(len(columns) - 1) if at not in flexible]
    for at in (*reversed(flexible), *fixed):
        least = max(needs[at], LEAST[-1]) if at in flexible else needs[at]
        taken = min(max(0, widths[at].width - least), max(0, -spare))
        widths[at] = (
            _resize_column(widths[at], -taken)
            if at in flexible
            else widths[at]._replace(width=widths[at].width - taken)
        )
        spare += taken
    if len(flexible) > 1:
        taken = min(max(0, widths[flexible[0]].width - FIRST_KEEPS), max(0, -spare))
        widths[flexible[0]] = _resize_column(widths[flexible[0]], -taken)
        spare += taken
    for least in LEAST:
        for at in reversed(flexible):  # the last gives first, and takes first
            need = needs[at]
            change = max(min(0, least - widths[at].width), min(spare, max(0, need - widths[at].width)))
            widths[at] = _resize_column(widths[at], change)
            spare -= change
    if spare < 0 and len(flexible) > 1:
        first, last = flexible[0], flexible[-1]
        widths[first] = _resize_column(widths[first], max(0, spare + widths[last].width + 1))
        widths[last] = widths[last]._replace(width=-1)
    return widths


def measure_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Columns that the longest line takes, whatever is cut."""
    longest = max(measure_text(make_printable(row[-1])) for row in rows)
    return longest + sum(column.width + 1 for column in columns[:-1] if column.width >= 0)


def _measure_column(column: Column, texts: Sequence[str]) -> int:
    """Columns that the heading and these texts take; of a text that is cut without a mark, what is shown."""
    taken = max(measure_text(make_printable(text)) for text in (column.heading, *texts))
    return taken if column.marks_cut else min(taken, max(column.cut_width, measure_text(column.heading)))


def _resize_column(column: Column, by: int) -> Column:
    return column._replace(width=column.width + by, cut_width=column.cut_width + by)


def measure_text(text: str) -> int:
    return sum(width for _cluster, width in _split_clusters(text))


def fit_text(text: str, column: Column) -> str:
    """The text padded to the column's width; one that does not fit is cut to what the column shows."""
    if not column.width:
        return text
    is_whole = column.marks_cut and measure_text(text) <= column.width
    room = column.width if is_whole else column.cut_width or column.width
    fitting, used = _cut(text, room)
    if fitting != text and column.marks_cut and used < column.width:
        fitting, used = fitting + CUT, used + 1
    return fitting + " " * (column.width - used)


def _format_line(columns: Sequence[Column], cells: Sequence[str]) -> str:
    visible = (pair for pair in zip(cells, columns, strict=True) if pair[1].width >= 0)
    return " ".join(fit_text(cell, column) for cell, column in visible).rstrip()


def _cut(text: str, room: int) -> tuple[str, int]:
    end = used = 0
    for cluster, width in _split_clusters(text):
        if used + width > room:
            break
        end += len(cluster)
        used += width
    return text[:end], used


def _split_clusters(text: str) -> Iterator[tuple[str, int]]:
    """What is drawn as one sign, with the columns it takes."""
    cluster, width = "", 0
    for sign in text:
        if cluster and (cluster[-1] == JOINER or _is_attached(sign)):
            cluster += sign
            if sign == EMOJI_STYLE:
                width = 2
            continue
        if cluster:
            yield cluster, width
        cluster, width = sign, _measure_sign(sign)
    if cluster:
        yield cluster, width


def _is_attached(sign: str) -> bool:
    return _measure_sign(sign) == 0 or ord(sign) in SKIN_TONES


def _measure_sign(sign: str) -> int:
    if sign < "\u0300":
        return 1
    if unicodedata.category(sign) in {"Mn", "Me", "Cf"} or ord(sign) in HANGUL_TAILS:
        return 0
    return 2 if unicodedata.east_asian_width(sign) in {"W", "F"} else 1
