"""Splits Markdown into pieces that each fit into one message, at natural positions such as paragraph ends.
Invariant: the bodies of the pieces are slices of the text, in order. Only whitespace between them, before the
first and after the last is left out.

If a cut goes through a code block or a table, a *frame* is added around the bodies. A code fence is closed at
the end of a piece and reopened, with its language, in the next piece. The head of a table is repeated in the
next piece. A frame that would take more than half of a message is left out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from unicodedata import category, combining

Measure = Callable[[str], int]
"""Returns the length of a text. Adding characters to a text must never make it shorter by this measure."""


class Piece(NamedTuple):
    before: str
    body: str
    after: str


def split_text(text: str, longest: int, measure: Measure = len) -> list[str]:
    """Split a text into non-empty parts whose length is at most `longest`, by `measure`.
    A text that fits is returned unchanged as one part. A single character that measures more than `longest` is
    a part of its own.
    """
    return ["".join(piece) for piece in split_pieces(text, longest, measure)]


def split_pieces(text: str, longest: int, measure: Measure = len) -> list[Piece]:
    """Split a text as `split_text` does. Each returned piece keeps the slice of the text and the frame that is
    added around it separate."""
    if not text.strip():
        return []
    return [Piece("", text, "")] if measure(text) <= longest else list(_Splitter(text, longest, measure))


def fit_beginning(text: str, longest: int, measure: Measure = len) -> str:
    """Return a beginning of an unfinished text that fits into one message of the length `longest`, by `measure`. A
    code fence that is open at the end of the result is closed."""
    return "".join(next(iter(_Splitter(text, longest, measure)), ""))


# Positions where a text may be cut, best first. The group of a pattern matches the gap that is left out. Each
# pattern requires a non-space character before a run of whitespace, so that the run is scanned only once. A scan
# from each space of the run would take quadratic time.
_LINE_ENDS = r"(?<=\S)([ \t\r]*+\n(?:[ \t\r]*+\n)*+)"
_BLANK_LINE = r"(?<=\S)([ \t\r]*+\n(?:[ \t\r]*+\n)++)"
_ITEM = r"(?:[-*+•]|\d{1,9}[.)])[ \t]"
_BLOCKS = re.compile(rf"{_BLANK_LINE}(?=[^\s>])(?!{_ITEM})|{_LINE_ENDS}(?=\#{{1,6}}[ ]|```|~~~)")
_PARAGRAPHS = re.compile(rf"{_BLANK_LINE}(?=[ \t]*+\S)")
_ITEMS = re.compile(rf"{_LINE_ENDS}(?=[ \t]*+{_ITEM})")
_LINES = re.compile(rf"{_LINE_ENDS}(?=[ \t]*+\S)")
_CLOSERS = r"[\"'”’»)\]*_」』）】〉》]*+"
_SENTENCES = re.compile(
    rf"(?<![.!?…؟۔।॥።])(?:(?<!\d)\.|[!?…؟۔।॥።])++{_CLOSERS}([ \t]++)(?=\S)"
    rf"|(?<![。！？｡])[。！？｡]++{_CLOSERS}([ \t]*+)(?=\S)"
)
_WORDS = re.compile(r"(?<=\S)([ \t\u2000-\u200a\u3000]++)(?=\S)|[、，；：]()(?=\S)")
_AHEAD = 256
"""How many characters beyond the end of a part a pattern may read."""

# Spans that should not be cut: escapes, entities, code, links, bold, addresses.
_WHOLE = re.compile(
    r"\\[!-/:-@\[-`{-~]|&#?\w{1,32};|``(?:[^`\n]|`(?!`))++``|`[^`\n]++`"
    r"|!?\[[^\[\]\n]*+\]\((?:[^()\s]|\([^()\s]*+\)|[ ]\"[^\"\n]{0,200}+\")*+\)"
    r"|\*\*[^*\n]{1,300}+\*\*|<[a-z][a-z0-9+.-]*+:[^<>\s]*+>|\bhttps?://[^\s<>()]++"
)
_LONGEST_WHOLE = 1000
_Spans = Sequence[tuple[int, int]]

_FENCES = re.compile(
    r"^(?P<lead>[ \t]*+(?:>[ \t]*+)*+)(?P<item>(?:(?:[-*+]|\d{1,9}[.)])[ \t]++)*+)"
    r"(?P<mark>`{3,}+|~{3,}+)(?P<info>[^\n]*+)$",
    re.MULTILINE,
)
_CELL = r"[ \t]*+:?-++:?[ \t]*+"
_UNDER_TABLE_HEAD = re.compile(rf"^[ \t]*+\|?(?:{_CELL}\|)++(?:{_CELL})?+\r?$", re.MULTILINE)
_TABLE_ROWS = re.compile(r"(?:\n[^\n|]*+\|[^\n]*+)++")


class _Frame(NamedTuple):
    """A code block or table in the text. If the text is cut inside it, `after` is added to the end of the piece
    before the cut, and `before` to the beginning of the piece after the cut."""

    start: int
    inner: int
    outer: int
    """The block may be cut only between the positions `inner` and `outer`."""
    end: int
    before: str
    after: str


class _Splitter:
    def __init__(self, text: str, longest: int, measure: Measure) -> None:
        self._text = text.rstrip()
        self._longest = longest
        self._measure = measure
        self._frames = [
            frame for frame in _find_frames(self._text) if measure(frame.before + frame.after) <= longest // 2
        ]
        self._starts = [frame.start for frame in self._frames]

    def __iter__(self) -> Iterator[Piece]:
        text, at, before = self._text, _skip_gap(self._text, 0), ""
        while at < len(text):
            end = self._find_farthest(at, before)
            while True:
                stop, resume = (end, end) if end == len(text) else self._find_cut(at, end)
                frame = self._find_frame(resume)
                body, after = (text[at:stop], frame.after) if frame else (text[at:stop].rstrip(), "")
                piece = Piece(before, body, after)
                if end - at <= 1 or self._measure("".join(piece)) <= self._longest:
                    break
                end = at + (end - at) * 3 // 4  # the measure is not additive
            if before or body.strip():
                yield piece
            at, before = (resume, frame.before) if frame else (_skip_gap(text, resume), "")

    def _find_frame(self, position: int) -> _Frame | None:
        """Return the code block or table that contains the position in the text, or None."""
        index = bisect_left(self._starts, position) - 1
        return self._frames[index] if index >= 0 and position < self._frames[index].end else None

    def _find_farthest(self, at: int, before: str) -> int:
        """Return the last possible end of the piece that begins at the position `at`. `before` is the text that is
        added before the piece. If the end is inside a code block or table, the piece must also have room for the
        text that closes it."""
        end = self._find_fitting(at, before, "")
        frame = self._find_frame(end)
        return self._find_fitting(at, before, frame.after) if frame and frame.after else end

    def _find_fitting(self, at: int, before: str, after: str) -> int:
        def fits(end: int) -> bool:
            return self._measure(f"{before}{self._text[at:end]}{after}") <= self._longest

        length, step = len(self._text), max(1, self._longest)
        good, bad = at + 1, min(at + step, length)
        while fits(bad):
            if bad == length:
                return length
            good, bad = bad, min(bad + step, length)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if fits(middle) else (good, middle)
        return good

    def _find_cut(self, at: int, end: int) -> tuple[int, int]:
        """Choose where to cut the text after the piece that begins at `at`. Return the end of this piece and the
        start of the next piece. `end` is the last possible end. The last two thirds of the range from `at` to `end`
        are searched first, because a nearly full piece is preferred over a better place to cut."""
        full = at + (end - at) // 3
        if cut := self._cut_between_lines(full, end):
            return cut
        whole = self._find_whole_spans(at, end)
        return (
            self._cut_between_words(full, end, whole)
            or self._cut_between_lines(at, end)
            or self._cut_between_words(at, end, whole)
            or self._cut_between_words(at, end, [])
            or self._cut_between_graphemes(
                at, next((start for start, stop in whole if at < start < end < stop), end)
            )
        )

    def _cut_between_lines(self, lowest: int, end: int) -> tuple[int, int] | None:
        if self._text.find("\n", lowest, end + 1) < 0:
            return None
        frame = self._find_frame(end)
        return (
            self._find_last_gap(_BLOCKS, lowest, end)
            or self._find_last_gap(_PARAGRAPHS, lowest, end)
            or self._find_last_gap(_ITEMS, lowest, end)
            or (
                frame
                and (
                    self._find_inner_gap(frame, "\n\n", lowest, end)
                    or self._find_inner_gap(frame, "\n", lowest, end)
                )
            )
            or self._find_last_gap(_LINES, lowest, end)
        )

    def _cut_between_words(self, lowest: int, end: int, whole: _Spans) -> tuple[int, int] | None:
        if frame := self._find_frame(end):
            gap = self._find_inner_gap(frame, " ", lowest, end)
            return gap and (gap[1], gap[1])  # spaces in code are kept
        return self._find_last_gap(_SENTENCES, lowest, end, whole) or self._find_last_gap(
            _WORDS, lowest, end, whole
        )

    def _cut_between_graphemes(self, at: int, end: int) -> tuple[int, int]:
        """Return a cut between two graphemes, at most `_LONGEST_GRAPHEME` characters before `end`. If there is no
        grapheme boundary, cut at `end`."""
        lowest = max(at, end - _LONGEST_GRAPHEME)
        place = next(
            (position for position in range(end, lowest, -1) if not _is_joined(self._text, position)), end
        )
        return place, place

    def _find_last_gap(
        self, pattern: re.Pattern[str], lowest: int, end: int, whole: _Spans = ()
    ) -> tuple[int, int] | None:
        """Find the last place between `lowest` and `end` at which the text can be cut. `pattern` matches the gap,
        the whitespace that a cut leaves out. Return start and end of the gap, or None. Gaps inside a code block, a
        table or one of the spans `whole` are skipped. So are gaps after a heading."""
        best = None
        position = 0
        for match in pattern.finditer(self._text, lowest, end + _AHEAD):
            stop, resume = match.span(match.lastindex or 0)
            if stop > end:
                break
            while position < len(whole) and whole[position][1] <= stop:
                position += 1
            is_whole = position == len(whole) or whole[position][0] >= stop
            if (
                stop > lowest
                and is_whole
                and not self._find_frame(resume)
                and not self._is_heading(lowest, stop)
            ):
                best = stop, resume
        return best

    def _is_heading(self, lowest: int, stop: int) -> bool:
        """Return whether the line that ends at `stop` is a heading. A heading must stay with the text that
        follows it."""
        line = self._text.rfind("\n", lowest, stop) + 1
        return line > 0 and self._text.startswith("#", line)

    def _find_inner_gap(self, frame: _Frame, gap: str, lowest: int, end: int) -> tuple[int, int] | None:
        """Return start and end of the last `gap` inside a code block or table (`frame`) between `lowest` and `end`,
        or None. Content of the frame must remain on both sides of the gap."""
        low = max(lowest, frame.inner)
        position = self._text.rfind(gap, low + 1, min(end + 1, frame.outer - 1))
        return (position, position + len(gap)) if position > low else None

    def _find_whole_spans(self, at: int, end: int) -> _Spans:
        spans = (match.span() for match in _WHOLE.finditer(self._text, at, end + _LONGEST_WHOLE))
        return [span for span in spans if span[0] < end]


def _find_frames(text: str) -> list[_Frame]:
    fences = list(_find_fences(text))
    starts = [fence.start for fence in fences]
    tables = []
    for table in _find_tables(text):
        following = bisect_left(starts, table.start)
        is_inside = following > 0 and fences[following - 1].end > table.start
        if not is_inside and (following == len(fences) or starts[following] >= table.end):
            tables.append(table)
    return sorted(fences + tables)


def _find_fences(text: str) -> Iterator[_Frame]:
    opened: re.Match[str] | None = None
    for line in _FENCES.finditer(text):
        mark, info = line["mark"], line["info"]
        if opened is None:
            opened = line if mark[0] == "~" or "`" not in info else None
        elif mark.startswith(opened["mark"]) and not info.strip() and not line["item"]:
            yield _make_fence(text, opened, line)
            opened = None
    if opened:
        yield _make_fence(text, opened, None)


def _make_fence(text: str, opened: re.Match[str], closed: re.Match[str] | None) -> _Frame:
    """Return the frame of a code block. `opened` and `closed` are the matches of its opening and closing fence. If
    the block is not closed, its frame extends beyond the end of the text, so that the last piece closes the block."""
    lead = opened["lead"] + " " * len(opened["item"])
    before = f"{lead}{opened['mark']}{opened['info'].rstrip()}\n"
    after = f"\n{lead}{opened['mark']}" if closed is None else f"\n{closed[0]}"
    outer, end = (len(text) + 2, len(text) + 1) if closed is None else closed.span()
    return _Frame(opened.start(), opened.end() + 1, outer, end, before, after)


def _find_tables(text: str) -> Iterator[_Frame]:
    end = 0
    for under in _UNDER_TABLE_HEAD.finditer(text):
        if under.start() <= end:
            continue
        head = text.rfind("\n", end, under.start() - 1) + 1 or end
        rows = _TABLE_ROWS.match(text, under.end())
        if rows and "|" in text[head : under.start()]:
            end = rows.end()
            yield _Frame(head, under.end() + 1, end, end, text[head : under.end() + 1], "")


_BLANK_LINES = re.compile(r"(?:[ \t\r]*+\n)++")
_SPACES = re.compile(r"[ \t]*+")


def _skip_gap(text: str, at: int) -> int:
    """Return the first position in `text`, from `at` on, that is after spaces and blank lines. The indentation of a
    line is not skipped."""
    if at and text[at - 1] != "\n" and (spaces := _SPACES.match(text, at)):
        at = spaces.end()
    lines = _BLANK_LINES.match(text, at)
    return lines.end() if lines else at


_LONGEST_GRAPHEME = 64
_JOINING = re.compile("[\u200c\u200d\uff9e\uff9f\u0e33\u0eb3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")


def _is_joined(text: str, place: int) -> bool:
    """Return whether the characters before and after `place` belong to one grapheme."""
    left, right = text[place - 1], text[place]
    if left < "\u0300" and right < "\u0300":
        return left == "\r" and right == "\n"
    if left == "\u200d" or category(right) in ("Mn", "Me", "Mc") or _JOINING.match(right):
        return True
    if combining(left) == 9 and category(right) == "Lo":  # a virama joins two consonants
        return True
    if "\u1160" <= right <= "\u11ff" or ("\u1100" <= left <= "\u115f" and category(right) == "Lo"):  # Hangul
        return True
    if "\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff":
        return True
    return _is_flag(right) and _count_flags_before(text, place) % 2 == 1


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _count_flags_before(text: str, place: int) -> int:
    """Count the regional indicator letters before `place`. Two of them form one flag."""
    start = place
    while start > 0 and place - start < _LONGEST_GRAPHEME and _is_flag(text[start - 1]):
        start -= 1
    return place - start
