"""Containment of foreign Markdown inside an exported document.

- Headings are moved two levels down. Tags and entities are shown as text, and so are underlines that would
  turn the text above into a heading. An open code block is closed.
- Pictures are shown as text, because a viewer would load them from the network.
- Line breaks are kept by two spaces at the end of a line. Surplus cells of a table row are joined into its
  last column.
- A link is kept if it is complete, on one line, and leads to the web, a mail address or a path. Any other
  link (`javascript:`, `data:`) is shown as text. So are definitions of link targets, because they would apply
  to the rest of the document. Both brackets of a disabled link are escaped, because one alone could begin or
  end another link.
- Code is not changed. If the bounds of code are not clear without parsing lists and quotes, the whole text is
  put into a quote. The quote ends at the end of the text, whatever is open inside. Ambiguous code in it is
  treated as text.
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
"""The target of a link, which follows the text of the link. A path must not contain a colon or an entity, so
that it cannot contain a scheme."""
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
    """Return the Markdown text of a message, changed so that nothing in it affects the rest of the document.
    With `pictures`, pictures from the web are kept."""
    lines: list[str] = []
    texts: set[int] = set()
    """The numbers of the lines that are text and not code."""
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
    """Return a line with the tabs in its indentation replaced by spaces. Otherwise, indented code would become
    text in a quote, because a tab is narrower after the quote mark."""
    text = line.lstrip(" \t")
    return line[: len(line) - len(text)].expandtabs(4) + text


def _is_in_table(lines: list[str], number: int) -> bool:
    """Return whether the line with the index `number` looks like a row of a table. Such a row needs no spaces
    at its end to stay a separate line."""
    return "|" in lines[number] and "|" in lines[number + 1]


def _match_fence(line: str) -> _Fence | None:
    found = _FENCE.match(line)
    if found is None or (found[2][0] == "`" and "`" in found[3]):
        return None
    return _Fence(len(found[1]), found[2], found[3].strip())


def _is_closing(found: _Fence | None, fence: _Fence) -> bool:
    """Return whether a line ends the code block that the line with `fence` began, whether or not the block is
    in a list or a quote. `found` is the fence on the line, or None. A fence that is indented by more than three
    spaces ends no code block."""
    return found is not None and found.mark.startswith(fence.mark) and not found.info and found.indent <= 3


def _is_surely_inside(line: str, found: _Fence | None, fence: _Fence) -> bool:
    """Return whether a line certainly belongs to the code block that `fence` began, or ends it. `found` is the
    fence on the line, or None.

    This is uncertain if `fence` is indented: the block may be in a list, whose indentation is unknown and which
    ends at a less indented line.
    """
    if fence.indent == 0 or not line.strip():
        return True
    is_end = found is not None and found.mark.startswith(fence.mark) and not found.info
    indent = len(line) - len(line.lstrip(" "))
    return indent >= fence.indent and not (is_end and indent > 3)


class _Part(NamedTuple):
    """A piece of a line of Markdown: either text or inline code."""

    text: str
    is_code: bool = False


class _Bracket(NamedTuple):
    at: int
    slashes: int
    """The number of backslashes before the bracket."""

    @property
    def is_escaped(self) -> bool:
        return self.slashes % 2 == 1


class _LineQuoter:
    """Escapes consecutive lines of text, and tracks open code and tables across lines."""

    def __init__(self, pictures: bool, has_list: bool = False) -> None:
        self._pictures = pictures
        self.has_list = has_list
        """Whether an indented line may belong to a list."""
        self._code_is_open = self._is_text_above = self._may_define = False
        self._is_indented = False
        self._columns = 0
        """The number of columns of the current table; 0 outside a table."""

    def quote_line(self, line: str) -> str:
        if not line.strip():
            self._code_is_open = self._is_text_above = self._may_define = False
            self._columns = 0
            return line
        self.has_list = self.has_list or _LIST_ITEM.match(line) is not None
        if not self._is_text_above and not self.has_list and _INDENTED.match(line):
            return line  # code
        line = self._quote_row(line)
        # The label of a definition starts a line and may end in a later line.
        self._may_define = self._may_define or _LABEL.match(line) is not None
        self._is_indented = _INDENTED.match(line) is not None
        line = self._quote_text(line)
        line = _HEADING.sub(lambda found: f"{found[1]}{'#' * min(6, len(found[2]) + 2)}", line)
        if self._is_text_above:
            line = _UNDERLINE.sub(r"\1\\\2", line)
        self._is_text_above = True
        return line

    def _quote_row(self, line: str) -> str:
        """Join the surplus cells of a table row into its last cell, because a viewer would omit them."""
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
        """Return a line of text, escaped. Inline code in it is left unchanged. If a code span from an earlier
        line is still open, the whole line is escaped."""
        parts: list[_Part] = []
        at = 0
        if not self._code_is_open and "`" in line:
            spans, self._code_is_open = _find_code_spans(line)
            for start, end in spans:
                parts += [_Part(self._escape_text(line[at:start])), _Part(line[start:end], is_code=True)]
                at = end
        return self._contain_links([*parts, _Part(self._escape_text(line[at:]))])

    def _escape_text(self, line: str) -> str:
        """Return a piece of text with its tags and entities escaped."""
        may_be_code = self._code_is_open or (self.has_list and self._is_indented)
        line = _REFERENCE.sub(lambda found: _escape_entity(found, "&amp;", may_be_code), line)
        return _TAG.sub(lambda found: _escape_entity(found, "&lt;", may_be_code), line)

    def _contain_links(self, parts: list[_Part]) -> str:
        """Return a line with its pictures, dangerous links and link target definitions escaped."""
        line = "".join(part.text for part in parts)
        if "[" not in line and "]" not in line:
            return line
        escaped = self._find_dangerous(line, _find_brackets(parts))
        made, at = [], 0
        for bracket in sorted(escaped):
            slashes = bracket.slashes % 2  # an entity needs no backslash
            made += [line[at : bracket.at - slashes], ENTITIES[line[bracket.at]]]
            at = bracket.at + 1
        return "".join([*made, line[at:]])

    def _find_dangerous(self, line: str, brackets: list[_Bracket]) -> set[_Bracket]:
        """Return the brackets of a line that must be escaped. Brackets are paired in the same way as a viewer
        pairs them."""
        found: set[_Bracket] = set()
        opened: list[_Bracket] = []
        link_end = 0
        for bracket in brackets:
            is_opening = line[bracket.at] == "["
            link = None if is_opening else _LINK.match(line, bracket.at + 1)
            if bracket.is_escaped or bracket.at < link_end:  # inside an address, unless the link is code
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
        """Return whether the bracket `opening` in `line` begins a picture that must be shown as text."""
        return not self._pictures and not opening.slashes and line[: opening.at].endswith("!")

    def _is_label_end(self, line: str, closing: _Bracket) -> bool:
        """Return whether the bracket `closing` in `line` ends the text of a link or the label of a link
        definition."""
        following = line[closing.at + 1 : closing.at + 2]
        return following == "(" or (following == ":" and self._may_define)


def _find_brackets(parts: list[_Part]) -> list[_Bracket]:
    """Return the brackets of a line that are not in code."""
    found: list[_Bracket] = []
    at = 0
    for part in parts:
        if not part.is_code:
            found += [_Bracket(at + each.start(2), len(each[1])) for each in _BRACKET.finditer(part.text)]
        at += len(part.text)
    return found


def _escape_entity(found: re.Match[str], entity: str, may_be_code: bool = False) -> str:
    """Replace a character by an entity. A backslash that escapes the character is replaced too.

    Escaping the character with a backslash is not enough, because a viewer may treat the backslash as the
    last character of an address. In text that may be code, a backslash is kept, because it escapes nothing
    there.
    """
    if may_be_code and len(found[1]) % 2:
        return f"{found[1]}\\{entity}"
    return found[1][len(found[1]) % 2 :] + entity


def _find_code_spans(line: str) -> tuple[list[tuple[int, int]], bool]:
    """Return the positions of the inline code spans of a line. Also return whether the line contains backticks
    that begin a code span and are not closed on the line."""
    if "\\`" in line:  # the effect of an escaped backtick depends on the viewer
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
