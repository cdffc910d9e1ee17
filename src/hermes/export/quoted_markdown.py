"""Markdown that somebody else wrote, kept in its place in a document of ours.

Headings go two levels down, tags are shown instead of obeyed, and so are underlines that would make a heading of the
text above; a code block that was left open is closed. Pictures are shown as text, because a viewer would load them
from the network. Entities are shown as they were written, a line stays a line (by two spaces at its end), and cells
that a table has no column for go into its last column. Links stay if they are whole, on one line, and lead to the web,
to a mail address or to a path; what leads anywhere else (`javascript:`, `data:`) is shown as text, and so are
definitions of link targets, which would be valid in the rest of the document. Of what is shown as text both brackets
are escaped: one alone would begin or end another link. In code nothing is changed. Either it is
clear where code begins and ends without parsing lists and quotes; or the whole text is put into a quote, which ends
where it ends whatever is open inside, and what may be code there, and may be not, is treated as text.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hermes.text import spell_controls

_FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^\n]*)$")
_HIDDEN_FENCE = re.compile(r"^(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*(?:`{3}|~{3})")
_HEADING = re.compile(r"^( {0,3})(#{1,6})(?=[ \t]|$)")
_UNDERLINE = re.compile(r"^( {0,3})(=+|-+)[ \t]*$")
_TICKS = re.compile("`+")
_TAG = re.compile(r"(\\*)<(?=[A-Za-z/!?])")
_REFERENCE = re.compile(r"(\\*)&(?=#?\w{1,32};)")
_BRACKET = re.compile(r"(\\*)([\[\]])")
_ADDRESS = r"(?:[^\s()<>`\\]|\([^\s()<>`\\]*\))*"
_LINK = re.compile(
    rf"\((?:(?:https?://|mailto:){_ADDRESS}|[\w./#?=~+@%-]*)(?:[ \t]+\"[^\"`\\<]*\")?\)", re.ASCII
)
"""The whole of a link behind its text. A path has no colon and no entity, so that it cannot hold a scheme."""
_ROW = re.compile(r"^([ \t>]*\|?)(.*?)(\|?[ \t]*)$")
_PIPE = re.compile(r"(?<!\\)\|")
_DELIMITERS = re.compile(r"[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*")
_LIST_ITEM = re.compile(r"^[ \t>]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_INDENTED = re.compile(r"^(?: {4}| {0,3}\t)")
_LABEL = re.compile(r"^(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*\[")


ENTITIES = {"[": "&#91;", "]": "&#93;"}


class _Fence(NamedTuple):
    indent: int
    mark: str
    info: str


def contain_markdown(text: str, *, pictures: bool = False) -> str:
    """The text with nothing in it that could break out of where it is put. `pictures` keeps those from the web."""
    lines: list[str] = []
    texts: set[int] = set()
    """Which lines are text and not code."""
    fence: _Fence | None = None
    is_clear = True
    words = _LineQuoter(pictures)
    for line in spell_controls(text).split("\n"):
        found = _match_fence(line)
        if line.strip() and fence is None and (not is_clear or found is None or found.indent > 3):
            texts.add(len(lines))
        if not is_clear:
            lines.append(words.quote_line(line))
        elif fence is not None:
            is_clear = _is_surely_inside(line, found, fence)
            lines.append(line if is_clear else words.quote_line(line))
            if is_clear and _is_closing(found, fence):
                fence = None
        elif found is not None and found.indent <= 3:
            fence = found
            words = _LineQuoter(pictures, words.has_list)
            lines.append(line)
        else:
            is_clear = _HIDDEN_FENCE.match(line) is None
            lines.append(words.quote_line(line))
    for number in texts:
        if number + 1 in texts and not _is_in_table(lines, number):
            lines[number] = f"{lines[number].rstrip(' ')}  "
    if fence is not None and fence.indent == 0 and is_clear:
        lines.append(fence.mark)
    elif fence is not None or not is_clear:
        lines = [f"> {_expand_indentation(line)}" for line in lines]
    return "\n".join(lines)


def _expand_indentation(line: str) -> str:
    """A line that is indented by spaces: behind the mark of a quote a tab is narrower, and code no longer code."""
    text = line.lstrip(" \t")
    return line[: len(line) - len(text)].expandtabs(4) + text


def _is_in_table(lines: list[str], number: int) -> bool:
    """Whether a line looks like a row of a table, which needs nothing at its end to stay a line."""
    return "|" in lines[number] and "|" in lines[number + 1]


def _match_fence(line: str) -> _Fence | None:
    found = _FENCE.match(line)
    if found is None or (found[2][0] == "`" and "`" in found[3]):
        return None
    return _Fence(len(found[1]), found[2], found[3].strip())


def _is_closing(found: _Fence | None, fence: _Fence) -> bool:
    """Whether a line ends a code block, going by itself; more indented than three it is one of its lines."""
    return found is not None and found.mark.startswith(fence.mark) and not found.info and found.indent <= 3


def _is_surely_inside(line: str, found: _Fence | None, fence: _Fence) -> bool:
    """Whether a line belongs to a code block, or ends it, also if that is in a list, which ends where lines are less
    indented and whose own indent is not known."""
    if fence.indent == 0 or not line.strip():
        return True
    is_end = found is not None and found.mark.startswith(fence.mark) and not found.info
    indent = len(line) - len(line.lstrip(" "))
    return indent >= fence.indent and not (is_end and indent > 3)


class _Part(NamedTuple):
    """A piece of a line."""

    text: str
    is_code: bool = False


class _Bracket(NamedTuple):
    at: int
    slashes: int
    """How many backslashes stand before it."""

    @property
    def is_escaped(self) -> bool:
        return self.slashes % 2 == 1


class _LineQuoter:
    """Lines of text, one after the other, and what they leave open."""

    def __init__(self, pictures: bool, has_list: bool = False) -> None:
        self._pictures = pictures
        self.has_list = has_list
        """Whether an indented line may belong to a list."""
        self._code_is_open = self._is_text_above = self._may_define = False
        self._is_indented = False
        self._columns = 0
        """Of the table that the lines are in."""

    def quote_line(self, line: str) -> str:
        if not line.strip():
            self._code_is_open = self._is_text_above = self._may_define = False
            self._columns = 0
            return line
        self.has_list = self.has_list or _LIST_ITEM.match(line) is not None
        if not self._is_text_above and not self.has_list and _INDENTED.match(line):
            return line  # code
        line = self._quote_row(line)
        # The label of a definition starts a line, and may end in a later one.
        self._may_define = self._may_define or _LABEL.match(line) is not None
        self._is_indented = _INDENTED.match(line) is not None
        line = self._quote_text(line)
        line = _HEADING.sub(lambda found: f"{found[1]}{'#' * min(6, len(found[2]) + 2)}", line)
        if self._is_text_above:
            line = _UNDERLINE.sub(r"\1\\\2", line)
        self._is_text_above = True
        return line

    def _quote_row(self, line: str) -> str:
        """A row of a table with no more cells than the table has columns: a viewer would leave the rest out."""
        found = _ROW.match(line)
        assert found is not None
        cells = _PIPE.split(found[2])
        if self._is_text_above and ("|" in line or self._columns) and _DELIMITERS.fullmatch(found[2]):
            self._columns = self._columns or len(cells)
        if not self._columns or len(cells) <= self._columns:
            return line
        kept = [*cells[: self._columns - 1], r"\|".join(cells[self._columns - 1 :])]
        return f"{found[1]}{'|'.join(kept)}{found[3]}"

    def _quote_text(self, line: str) -> str:
        """Code within a line is left alone where it surely is code: if all before it was closed."""
        parts: list[_Part] = []
        at = 0
        if not self._code_is_open and "`" in line:
            spans, self._code_is_open = _find_code_spans(line)
            for start, end in spans:
                parts += [_Part(self._escape_text(line[at:start])), _Part(line[start:end], is_code=True)]
                at = end
        return self._contain_links([*parts, _Part(self._escape_text(line[at:]))])

    def _escape_text(self, line: str) -> str:
        """A piece of text with its tags and entities escaped."""
        may_be_code = self._code_is_open or (self.has_list and self._is_indented)
        line = _REFERENCE.sub(lambda found: _escape_entity(found, "&amp;", may_be_code), line)
        return _TAG.sub(lambda found: _escape_entity(found, "&lt;", may_be_code), line)

    def _contain_links(self, parts: list[_Part]) -> str:
        """A line with its pictures, dangerous links and definitions of link targets escaped."""
        line = "".join(part.text for part in parts)
        if "[" not in line and "]" not in line:
            return line
        escaped = self._find_dangerous(line, _find_brackets(parts))
        made, at = [], 0
        for bracket in sorted(escaped):
            slashes = bracket.slashes % 2  # an entity needs none
            made += [line[at : bracket.at - slashes], ENTITIES[line[bracket.at]]]
            at = bracket.at + 1
        return "".join([*made, line[at:]])

    def _find_dangerous(self, line: str, brackets: list[_Bracket]) -> set[_Bracket]:
        """The brackets of a line that must not begin or end anything, paired as a viewer does."""
        found: set[_Bracket] = set()
        opened: list[_Bracket] = []
        link_end = 0
        for bracket in brackets:
            is_opening = line[bracket.at] == "["
            link = None if is_opening else _LINK.match(line, bracket.at + 1)
            if bracket.is_escaped or bracket.at < link_end:  # in an address, unless the link is code
                is_end = not is_opening and link is None and self._is_label_end(line, bracket)
                is_picture = is_opening and self._is_picture(line, bracket)
                found |= {bracket} if is_end or is_picture else set()
                continue
            if is_opening:
                opened.append(bracket)
                continue
            partner = opened.pop() if opened else None
            is_picture = partner is not None and self._is_picture(line, partner)
            if link is not None and partner is not None and not is_picture:
                link_end = link.end()
            elif link is not None or is_picture or self._is_label_end(line, bracket):
                found |= {bracket} if partner is None else {bracket, partner}
        return found | {bracket for bracket in opened if self._is_picture(line, bracket)}

    def _is_picture(self, line: str, opening: _Bracket) -> bool:
        """Whether a bracket begins a picture that is to be shown as text."""
        return not self._pictures and not opening.slashes and line[: opening.at].endswith("!")

    def _is_label_end(self, line: str, closing: _Bracket) -> bool:
        """Whether a bracket ends the text of a link, or the label of a definition."""
        following = line[closing.at + 1 : closing.at + 2]
        return following == "(" or (following == ":" and self._may_define)


def _find_brackets(parts: list[_Part]) -> list[_Bracket]:
    """The brackets of a line that are not in code."""
    found: list[_Bracket] = []
    at = 0
    for part in parts:
        if not part.is_code:
            found += [_Bracket(at + each.start(2), len(each[1])) for each in _BRACKET.finditer(part.text)]
        at += len(part.text)
    return found


def _escape_entity(found: re.Match[str], entity: str, may_be_code: bool = False) -> str:
    """An entity for a character and the backslash that escapes it, if one does.

    A backslash is not enough: an address that a viewer makes a link of may have it as its last character. In what may
    be code, where a backslash escapes nothing, it stays.
    """
    if may_be_code and len(found[1]) % 2:
        return f"{found[1]}\\{entity}"
    return found[1][len(found[1]) % 2 :] + entity


def _find_code_spans(line: str) -> tuple[list[tuple[int, int]], bool]:
    """Where code is in a line, from one run of backticks to the next as long; and whether a run has no other."""
    if "\\`" in line:  # what an escaped backtick opens or closes depends on too much
        return [], True
    ticks = [found.span() for found in _TICKS.finditer(line)]
    following: dict[int, int] = {}
    partner: list[int | None] = [None] * len(ticks)
    for at in reversed(range(len(ticks))):
        size = ticks[at][1] - ticks[at][0]
        partner[at] = following.get(size)
        following[size] = at
    spans: list[tuple[int, int]] = []
    is_open, at = False, 0
    while at < len(ticks):
        other = partner[at]
        if other is None:
            is_open = True
        else:
            spans.append((ticks[at][0], ticks[other][1]))
            at = other
        at += 1
    return spans, is_open
