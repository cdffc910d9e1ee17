"""Look-alikes of the characters that form fences, tags and the program's marks, such as `[NAME #sign]`.

A model reads `＜system＞` and `<system>` alike, with or without invisible characters in them. Patterns are
therefore matched against a folded copy of the text, and the matches are replaced in the text itself. The
folded copy is used for comparison only and is never shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from unicodedata import category, decimal, normalize

_MARKS = {
    "`": "ˋˊ‵´՝‘’‛ʻʼʽʹ′΄",
    "~": "˜∼〜⁓∽〰",
    "-": "‐‑‒–—―−˗⁃᠆➖─━⸺⸻",
    "_": "‿ˍ⁔",
    "<": "❮˂ᐸ〈⟨〈ᚲ❰⧼≺",
    ">": "❯˃ᐳ〉⟩〉❱⧽≻",
    "[": "【〔〖〘〚⟦⟬⁅❲⦋⦗「『",
    "]": "】〕〗〙〛⟧⟭⁆❳⦌⦘」』",
    ":": "꞉ː˸∶։׃܃܄᛬᠃⦂︰",
    "#": "♯⋕⧣⌗",
    "=": "꞊═゠⹀᐀",
    "*": "∗⁎٭✱✲⚹",
    "|": "∣ǀ│┃⏐❘¦׀ⵏ",
    "/": "⁄∕╱⧸〳",
    # Letters that occur in names of roles and tags, and in hexadecimal digits.
    "a": "аα",
    "b": "Ь",
    "c": "сϲ",
    "d": "ԁ",
    "e": "еҽ",
    "f": "ғ",
    "h": "һ",
    "i": "іι",
    "j": "ј",
    "l": "ӏ",
    "m": "м",
    "n": "ո",
    "o": "оο",
    "p": "рρ",
    "r": "г",
    "s": "ѕ",
    "t": "т",
    "u": "υս",
    "v": "ѵν",
    "w": "ԝ",
    "x": "хχ",
    "y": "уγ",
}
"""Look-alikes that NFKC does not map. U+2039 and U+203A are omitted on purpose, because `prompt_safety` puts
them around quoted imitations."""

_BLANK = "\u2800\u3164\u115f\u1160\uffa0"
"""Characters that look like a space but are letters or symbols."""
_LINE_ENDS = "\n\v\f\r\x85\u2028\u2029"


class FoldedText(NamedTuple):
    text: str
    places: list[int] | None
    """The position in the original text of each character. None if every character is at its original
    position."""

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the original text that corresponds to the span from `start` to `end` of the folded
        text."""
        if self.places is None or start == end:
            return (start, end) if self.places is None else (self._place(start), self._place(start))
        return self.places[start], self.places[end - 1] + 1

    def _place(self, at: int) -> int:
        assert self.places is not None
        return self.places[at] if at < len(self.places) else (self.places[-1] + 1 if self.places else 0)


def fold(text: str) -> FoldedText:
    """Return the folded text: look-alike characters are replaced by the ASCII characters that they resemble, and
    invisible characters are removed."""
    if text.isascii() and not _ODD_ASCII.search(text):
        return FoldedText(text, None)
    pieces: list[str] = []
    places: list[int] = []
    for at, char in enumerate(text):
        piece = _FOLDED[char]
        pieces.append(piece)
        places += [at] * len(piece)
    return FoldedText("".join(pieces), places)


def replace_folded(
    pattern: re.Pattern[str], text: str, replace: Callable[[re.Match[str], FoldedText], str]
) -> str:
    """Find all matches of the pattern in the folded form of `text`. Return the original text with each match replaced
    by the result of `replace`."""
    folded = fold(text)
    parts: list[str] = []
    done = 0
    for match in pattern.finditer(folded.text):
        start, end = folded.span(*match.span())
        if start < done:  # a character that folds to several, and the previous match contains some of them
            continue
        parts += [text[done:start], replace(match, folded)]
        done = end
    return "".join([*parts, text[done:]]) if parts else text


class _Table(dict[str, str]):
    def __missing__(self, char: str) -> str:
        self[char] = folded = _fold_char(char)
        return folded


def _fold_char(char: str) -> str:
    if char in _LINE_ENDS:
        return "\n"
    if char in "\t " or char in _BLANK:
        return " "
    if char in _BY_CHAR:
        return _BY_CHAR[char]
    kind = category(char)
    if kind in ("Cf", "Cc", "Mn", "Me", "Cs", "Co"):
        return ""
    if kind == "Zs":
        return " "
    if kind == "Nd":
        return str(decimal(char))
    plain = "".join(_BY_CHAR.get(lookalike, lookalike) for lookalike in normalize("NFKC", char))
    return "".join(lookalike for lookalike in plain if category(lookalike) not in ("Mn", "Me", "Cf"))


_ODD_ASCII = re.compile("[\0-\x08\x0b-\x1f\x7f]")
_BY_CHAR = {
    char: mark
    for mark, alike in _MARKS.items()
    for lookalike in alike
    for char in (lookalike, lookalike.upper())
    if len(char) == 1
}
_FOLDED = _Table()
