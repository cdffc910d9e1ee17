"""Aligned text columns on a terminal, for text in any script.

A Chinese character takes two columns and a combining accent none. Padding therefore counts columns, not
characters. A cut never separates an accent from its letter or splits an emoji.
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
"""If a table with two flexible columns is too wide, the first one is cut to this width before the second one
is cut."""
LEAST = (24, 14)
"""The minimum widths of a flexible column: the usual minimum, and the minimum in very narrow terminals."""


class Column(NamedTuple):
    heading: str
    width: int = 0
    """Width in terminal columns. 0 is for the last column, whose width is the length of its text. -1 hides
    the column."""
    cut_width: int = 0
    """The width to which a text that does not fit is cut, in terminal columns. 0 means the width of the
    column."""
    marks_cut: bool = True
    """Whether `…` marks a text that was cut."""

    @property
    def is_flexible(self) -> bool:
        """Whether the width of the column depends on the width of the terminal."""
        return self.marks_cut and self.cut_width > 0


def format_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], rule: int) -> Iterator[str]:
    """Yield the heading, a rule, and a line per row. Every cell is made safe to print."""
    yield apply_style(_format_line(columns, [column.heading for column in columns]), "bold")
    yield apply_style(RULE * rule, "dim")
    for row in rows:
        yield _format_line(columns, [make_printable(cell) for cell in row])


def widen_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[Column]:
    """Return the columns for a terminal of this `width`. Flexible columns grow up to their longest text, or
    shrink.

    The space that a column does not need is given to other columns before any text is cut. The last column is
    never cut. If there is not enough space for two flexible columns, the second is hidden (width -1).
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
        for at in reversed(flexible):  # the last flexible column shrinks first and grows first
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
    """Return the width of the longest line of a table in terminal columns. `columns` describes its columns, and
    `rows` are its cells."""
    longest = max(measure_text(make_printable(row[-1])) for row in rows)
    return longest + sum(column.width + 1 for column in columns[:-1] if column.width >= 0)


def _measure_column(column: Column, texts: Sequence[str]) -> int:
    """Return the width that a column of a table needs for its heading and its texts. If the column cuts texts
    without a mark, only the part of a text that stays visible counts."""
    taken = max(measure_text(make_printable(text)) for text in (column.heading, *texts))
    return taken if column.marks_cut else min(taken, max(column.cut_width, measure_text(column.heading)))


def _resize_column(column: Column, by: int) -> Column:
    return column._replace(width=column.width + by, cut_width=column.cut_width + by)


def measure_text(text: str) -> int:
    return sum(width for _cluster, width in _split_clusters(text))


def fit_text(text: str, column: Column) -> str:
    """Return the text padded to the column's width. A text that does not fit is cut."""
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
    """Yield each visible character with its width in columns. A visible character can consist of several code
    points."""
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
