"""The text that is stored in the full-text tables, so that they contain the terms of `hermes.terms`.

ASCII text is passed unchanged: the tokenizer of the tables folds it, and splits it at everything except
letters and digits. The result is the same as that of `index_text`, but faster. The tokenizer treats every
byte beyond ASCII as part of a word. So all other text is passed as terms that are already folded and split,
joined by spaces.
"""

from __future__ import annotations

from hermes.terms import ASCII_GAPS, MAX_TERM, index_ascii_parts, index_text

_TOKENIZER = ASCII_GAPS[:128] + bytes(range(128, 256))


def split_tokens(text: str) -> tuple[str, str]:
    """Return the words of a text, and the parts of its identifiers."""
    if text.isascii():
        plain = text.encode("ascii")
        gaps = plain.translate(ASCII_GAPS)
        if not gaps.isspace() and not _has_long_token(gaps):
            return text, index_ascii_parts(plain)
    return index_text(text)


def distinct_words(text: str) -> str:
    """Return the words of a text without repetitions, in the order of their first occurrence."""
    if text.isascii():
        tokens = text.lower().encode("ascii").translate(ASCII_GAPS).split()
        return b" ".join(dict.fromkeys([token[:MAX_TERM] for token in tokens])).decode("ascii")
    return " ".join(dict.fromkeys(index_text(text)[0].split(" ")))


def list_tokens(text: str) -> list[str]:
    """Return the terms into which the tokenizer of the full-text tables splits `text`, the input of a column
    of such a table.
    """
    return [term.decode() for term in text.encode().lower().translate(_TOKENIZER).split()]


def _has_long_token(gaps: bytes) -> bool:
    """Return whether a text has a token that is longer than `MAX_TERM`. `gaps` is this text as ASCII bytes, with
    spaces between the tokens.
    """
    start = 0
    while len(gaps) - start > MAX_TERM:
        gap = gaps.rfind(b" ", start, start + MAX_TERM + 1)
        if gap < 0:
            return True
        start = gap + 1
    return False
