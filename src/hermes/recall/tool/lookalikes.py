"""Look-alikes of the characters that fences, tags and speaker marks are made of.

A model reads `＜system＞` and `<system>` alike, with or without invisible characters in them. Patterns are therefore
matched against a folded copy of the text, and the matches are replaced in the text itself. Folding is for comparison
only: it is never shown.
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
    # Letters of the words that models take for roles and tags, and of hexadecimal digits.
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
"""Besides what NFKC makes alike. U+2039 and U+203A are missing on purpose: they are what marks are replaced by."""

_BLANK = "\u2800\u3164\u115f\u1160\uffa0"
"""Characters that look like a space, and are letters or symbols."""
_LINE_ENDS = "\n\v\f\r\x85\u2028\u2029"


class FoldedText(NamedTuple):
    text: str
    places: list[int] | None
    """Where each character stands in the text that was folded; None if every place is the same."""

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where a piece of the folded text stands in the text that was folded."""
        if self.places is None or start == end:
            return (start, end) if self.places is None else (self._place(start), self._place(start))
        return self.places[start], self.places[end - 1] + 1

    def _place(self, at: int) -> int:
        assert self.places is not None
        return self.places[at] if at < len(self.places) else (self.places[-1] + 1 if self.places else 0)


def fold(text: str) -> FoldedText:
    """The text as a reader may take it: look-alikes as the ASCII characters they look like, invisible ones left out."""
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
    """The text with every match of the pattern in its folded form replaced."""
    folded = fold(text)
    parts: list[str] = []
    done = 0
    for match in pattern.finditer(folded.text):
        start, end = folded.span(*match.span())
        if start < done:  # one character that folds to several, half of it in the match before
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
