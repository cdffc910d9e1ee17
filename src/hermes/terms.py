"""Folding and tokenisation of text, for the index and for queries.

Invariant: `index_text` is the only tokeniser. Its output is stored in the full-text table, read by the
evaluator in `hermes.store.query_tree`, and used to translate queries, so these three cannot diverge. (The
table's own tokeniser splits ASCII in the same way, see `hermes.store.sqlite.search.fts_input`.)

*Folding* is NFKC and case folding. Combining marks are removed from Latin, Greek and Cyrillic letters only
(`Ünïcode` becomes `unicode`, हिन्दी is unchanged). Folding is idempotent.

*Tokens* are runs of letters, digits and their marks. There are two families, and a run never mixes them:

- spaceless: Han, Kana, Hangul, Thai, Lao, Khmer and Burmese, with the digits and marks of those scripts;
- spaced: all other letters and digits. A digit therefore joins the Latin word beside it (`utf8`), and `第3章`
  is three tokens. A zero-width joiner or non-joiner inside a word belongs to the word.

A mark without a letter, a variation selector, an underscore and an emoji are punctuation.

*Terms* are the units that the index stores. A spaced token is one term. A spaceless run c1..cn gives the
terms c1c2, c2c3, .., cn: each character starts one term, which is a pair or, at the end of the run, the last
character alone. In a query, a run of two or more characters is a phrase and a single character is a prefix.
Both find exact substrings.

*Parts* are the pieces of a camelCase token (`getUserName`: get, user, name). They are kept in a separate
stream, so that they do not separate two neighbouring words. `SEPARATOR`, a term that no query can contain,
separates two identifiers and two fields, so that no phrase matches across them.

A term contains only letters, digits, marks and joiners, never whitespace, a control character or NUL. A term
longer than `MAX_TERM` characters is cut in the index and in the query; the typed text is then searched for in
the message itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import filterfalse, pairwise
from operator import add
from typing import NamedTuple
from unicodedata import category, normalize

MAX_TERM = 255
MOST_REMEMBERED = 8192
"""Maximum number of tokens whose parts are cached. When the cache is full, it is cleared."""
SEPARATOR = "\u00a6"
"""The term between two identifiers or two fields. It is not ASCII, because the table's tokeniser removes all
ASCII characters except letters and digits."""
BETWEEN = f" {SEPARATOR} "

# Latin, Greek and Cyrillic letters after compatibility decomposition, and their marks.
_LETTERS = (
    "A-Za-z\u00c0-\u02af\u0370-\u0482\u048a-\u052f\u1c80-\u1c8f\u1d00-\u1dbf\u1e00-\u1fff\u2132\u214e\u2183\u2184"
    "\u2c60-\u2c7f\ua640-\ua66e\ua67f-\ua69d\ua720-\ua7ff\uab30-\uab6f\U0001df00-\U0001dfff"
)
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u2de0-\u2dff"
    "\ua66f-\ua67e\ua69e\ua69f\ufe00-\ufe0f\ufe20-\ufe2f"
)
# Code points of scripts that are written without spaces.
_SPACELESS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1100, 0x11FF),  # Hangul
    (0x1780, 0x17FF),  # Khmer
    (0x3000, 0x30FF),  # Han iteration marks and numerals, Kana
    (0x3130, 0x318F),  # Hangul
    (0x31F0, 0x31FF),  # Kana
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA960, 0xA97F),  # Hangul
    (0xA9E0, 0xA9FF),  # Burmese
    (0xAA60, 0xAA7F),
    (0xAC00, 0xD7FF),  # Hangul
    (0xF900, 0xFAFF),  # Han
    (0x1AFF0, 0x1B16F),  # Kana
    (0x20000, 0x3FFFF),  # Han
)
_VARIATION_SELECTORS = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))


def _is_within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)


class _Shapes(dict[int, str]):
    """A cache from the code point of a character to a letter for the kind of that character. It is filled on
    demand, so that the import of this module is fast.

    `A`: upper case, `a`: lower case, `0`: digit, `o`: other letter, `s`: letter of a script without spaces
    between words, `m`: mark, `j`: joiner. Every other character becomes a space.
    """

    def __missing__(self, code: int) -> str:
        char = chr(code)
        mark = category(char) in ("Mn", "Mc") and not _is_within(code, _VARIATION_SELECTORS)
        if (mark or char.isalnum()) and _is_within(code, _SPACELESS):
            shape = "s"
        elif char.isalnum():
            shape = "A" if char.isupper() else "a" if char.islower() else "0" if char.isdecimal() else "o"
        else:
            shape = "m" if mark else "j" if char in "\u200c\u200d" else " "
        self[code] = shape
        return shape


_SHAPES = _Shapes()
_RUN = re.compile("s[sm]*(?:j+[sm]+)*|[Aa0o][Aa0om]*(?:j+[Aa0om]+)*")
# A part ends between lower and upper case (get|User, utf8|Text), and before the last of several capitals if a
# lower-case letter follows (HTML|Parser, HTTP2|Server). `3D` and `A1B2` have no inner case change.
_HUMP = re.compile("a0*(?=A)|A0*(?=Aa)")

# Fast paths with the same tokens: ASCII; text without marks, joiners and spaceless letters; and text whose
# spaceless letters are Chinese, Japanese or Korean.
ASCII_GAPS = bytes(code if chr(code).isalnum() else 32 for code in range(128)).ljust(256)
"""For `bytes.translate`: keeps ASCII letters and digits, and replaces everything else by spaces."""
_ASCII_SHAPES = "".join(_SHAPES[code] for code in range(128)).encode().ljust(256)
_DIGITS = b"0123456789"
_PLAIN_TOKEN = re.compile(r"[^\W_]+")
_FOLDED_ASCII = re.compile("[0-9A-Za-z]+")


# Letters of Chinese, Japanese and Korean after composition.
_EAST_ASIAN = (
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u309d-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
)


# Large character classes take milliseconds to compile, so they are compiled at the first non-ASCII text.
@cache
def _get_diacritics() -> re.Pattern[str]:
    # The mark comes first and its letter is a lookbehind, because the scan for a leading character class is
    # faster.
    return re.compile(f"[{_MARKS}](?<=[{_LETTERS}].)[{_MARKS}]*")


@cache
def _get_intricate() -> re.Pattern[str]:
    return re.compile(
        "[\u0300-\u036f\u0483-\u0487\u0591-\u10cf\u1100-\u1cff\u1dc0-\u1dff\u200c\u200d\u20d0-\u20ff"
        "\u2c80-\u2dff\u302a-\u302f\u3099\u309a\u3100-\u33ff\u4dc0-\u4dff\ua000-\uabff\ud7a4-\ufaff\ufb1e\ufe20-\uffff"
        "\U00010100-\U0001cfff\U0001d165-\U0001d244\U0001da00-\U0001efff\U00020000-\U0010ffff]"
    )


@cache
def _get_east_asian() -> re.Pattern[str]:
    return re.compile("[\u3000-\ud7ff]")


@cache
def _get_east_asian_runs() -> re.Pattern[str]:
    return re.compile(f"[{_EAST_ASIAN}]+|[^\\W_{_EAST_ASIAN}]+")


def fold(text: str) -> str:
    """Return the form in which texts are compared: NFKC, case folded, and Latin, Greek and Cyrillic without
    marks."""
    return text.lower() if text.isascii() else normalize("NFC", _strip_marks(text).casefold())


def index_text(text: str) -> tuple[str, str]:
    """Return the words of a text and the parts of its identifiers, each as terms joined by single spaces."""
    if text.isascii():
        return _index_ascii(text.encode("ascii"))
    tokens, spaceless = _split_tokens(_normalise(text))
    if not tokens:
        return "", ""
    if spaceless:
        words = " ".join(_make_terms(tokens))
    elif max(map(len, tokens)) * 3 > MAX_TERM:  # case folding turns one letter into at most three
        words = " ".join([token.casefold()[:MAX_TERM] for token in tokens])
    else:
        words = " ".join(tokens).casefold()
    return words, _index_parts([token for token in tokens if token != token.lower()])


def _index_ascii(text: bytes) -> tuple[str, str]:
    """Return the result of `index_text` for an ASCII text. The text is given as bytes, because translating
    bytes is four times as fast as translating text."""
    tokens = text.translate(ASCII_GAPS).split()
    if not tokens:
        return "", ""
    too_long = max(map(len, tokens)) > MAX_TERM
    words = b" ".join([token[:MAX_TERM] for token in tokens] if too_long else tokens)
    return words.lower().decode("ascii"), index_ascii_parts(text, tokens)


def index_ascii_parts(text: bytes, tokens: list[bytes] | None = None) -> str:
    """Return the parts of the identifiers in an ASCII text, as terms joined by single spaces. `tokens` are the
    tokens of the text, if the caller already has them."""
    case = text.translate(_ASCII_SHAPES, _DIGITS)
    if b"aA" not in case and b"AAa" not in case:
        return ""
    tokens = tokens or text.translate(ASCII_GAPS).split()
    return _index_parts(map(bytes.decode, filterfalse(bytes.isdigit, filterfalse(bytes.islower, tokens))))


def index_texts(*fields: str) -> tuple[str, str]:
    """Return the words and the parts of a message with several fields, as `index_text` does for one. No
    phrase matches across two fields."""
    return join_fields([index_text(field) for field in fields if field])


def join_fields(split: list[tuple[str, str]]) -> tuple[str, str]:
    """Join the results of `index_text` for several fields of a message into one result. No phrase matches
    across two fields."""
    if len(split) == 1:
        return split[0]
    return BETWEEN.join([words for words, _ in split if words]), BETWEEN.join(
        [parts for _, parts in split if parts]
    )


class QueryTerms(NamedTuple):
    """The index terms of a word or phrase in a query, and how the text of a message must contain them to match."""

    terms: tuple[str, ...]
    """Adjacent terms; empty for punctuation alone."""
    prefix_last: bool
    """Whether the last term is a prefix."""
    complete: bool
    """Whether every text with these terms is a match. True if no punctuation was typed and no token was cut.
    Otherwise the text of the message has to be compared too."""


def make_query_terms(word: str, *, prefix: bool = False) -> QueryTerms:
    """Return the terms of a typed word or phrase, which must be adjacent in a message. `prefix` is true if the
    person typed a star after it.

    The star applies to the token directly before it. In `foo-*` no token is directly before the star, so the
    star has no effect. It has no effect either if that token is in a script without spaces between words,
    because such a token is always found as a substring.
    """
    plain = _normalise(word)
    tokens, _ = _split_tokens(plain)
    if not tokens:
        return QueryTerms((), False, False)
    terms = _make_terms(tokens)
    cut = any(len(term) == MAX_TERM for term in terms)
    last = tokens[-1].casefold()
    if not is_spaceless(last):
        prefix_last = prefix and plain.endswith(tokens[-1])
    else:
        # A single character matches as a prefix of a pair or alone. For a longer run, the pairs are
        # sufficient.
        prefix_last = len(last) == 1
        if not prefix_last:
            terms.pop()
    complete = not cut and "".join(tokens) == "".join(plain.split())
    return QueryTerms(tuple(terms), prefix_last, complete)


def find_token_spans(folded: str) -> list[tuple[int, int]]:
    """Return the span (start, end) of each token in a folded text."""
    if folded.isascii():
        return [match.span() for match in _FOLDED_ASCII.finditer(folded)]
    return [match.span() for match in _RUN.finditer(folded.translate(_SHAPES))]


def is_spaceless(term: str) -> bool:
    """Return whether a term is written in a script without spaces between words, such as Han or Thai. Texts in
    these scripts are searched by substrings."""
    return _SHAPES[ord(term[0])] == "s"


def _strip_marks(text: str) -> str:
    """Return the text decomposed (NFKD), without the combining marks that folding removes."""
    # U+0345 is removed everywhere, because case folding would turn it into a letter.
    return _get_diacritics().sub("", normalize("NFKD", text).replace("\u0345", ""))


def _normalise(text: str) -> str:
    """Return the text folded in every respect except case. The case folding that comes later neither joins nor
    splits tokens."""
    return text if text.isascii() else normalize("NFC", _strip_marks(text))


def _split_tokens(plain: str) -> tuple[list[str], bool]:
    """Return (tokens of a text, whether some of them may be in scripts without spaces between words). The
    tokens are in order, with their upper and lower case."""
    if not _get_intricate().search(plain):
        if _get_east_asian().search(plain) is None:
            return _PLAIN_TOKEN.findall(plain), False
        return _get_east_asian_runs().findall(plain), True
    runs = _RUN.finditer(plain.translate(_SHAPES))
    return [plain[match.start() : match.end()] for match in runs], True


def _make_terms(tokens: list[str]) -> list[str]:
    """Return the terms that the index stores for these tokens, in order."""
    terms: list[str] = []
    for token in " ".join(tokens).casefold().split(" "):
        if _SHAPES[ord(token[0])] == "s":
            terms += map(add, token, token[1:])
            terms.append(token[-1])
        else:
            terms.append(token[:MAX_TERM])
    return terms


class _Identifiers(dict[str, str]):
    """A cache from tokens to their parts, because the same identifiers occur repeatedly."""

    def __missing__(self, token: str) -> str:
        if len(token) > MAX_TERM:  # too long to be a term or an identifier
            return ""
        cuts = [match.end() for match in _HUMP.finditer(token.translate(_SHAPES))]
        bounds = [0, *cuts, len(token)] if cuts else []
        parts = " ".join([token[start:end] for start, end in pairwise(bounds)]).casefold()
        if len(self) >= MOST_REMEMBERED:
            self.clear()
        self[token] = parts
        return parts


_IDENTIFIERS = _Identifiers()


def _index_parts(candidates: Iterable[str]) -> str:
    return BETWEEN.join(filter(None, map(_IDENTIFIERS.__getitem__, candidates)))
