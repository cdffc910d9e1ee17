"""What the full-text tables are given in order to hold the terms of `hermes.terms`.

Their tokenizer splits ASCII at everything but letters and digits, and folds it, as `index_text` does, but sooner: so
ASCII is given as it is. Beyond ASCII it takes every byte for part of a word: everything else is given as terms,
folded and split already, joined by spaces.
"""

from __future__ import annotations

from hermes.terms import ASCII_GAPS, MAX_TERM, index_ascii_parts, index_text

_TOKENIZER = ASCII_GAPS[:128] + bytes(range(128, 256))


def split_tokens(text: str) -> tuple[str, str]:
    """The words of a text and the parts of its identifiers."""
    if text.isascii():
        plain = text.encode("ascii")
        gaps = plain.translate(ASCII_GAPS)
        if not gaps.isspace() and not _has_long_token(gaps):
            return text, index_ascii_parts(plain)
    return index_text(text)


def distinct_words(text: str) -> str:
    """The words alone, each where it comes first."""
    if text.isascii():
        tokens = text.lower().encode("ascii").translate(ASCII_GAPS).split()
        return b" ".join(dict.fromkeys([token[:MAX_TERM] for token in tokens])).decode("ascii")
    return " ".join(dict.fromkeys(index_text(text)[0].split(" ")))


def list_tokens(text: str) -> list[str]:
    """The terms that a table makes of what it is given."""
    return [term.decode() for term in text.encode().lower().translate(_TOKENIZER).split()]


def _has_long_token(gaps: bytes) -> bool:
    """Whether some token has to be cut, of an ASCII text in which everything else is spaces."""
    start = 0
    while len(gaps) - start > MAX_TERM:
        gap = gaps.rfind(b" ", start, start + MAX_TERM + 1)
        if gap < 0:
            return True
        start = gap + 1
    return False
