"""Find the words of a question that occur in a text, to explain a result and to mark the words.

Splitting a text into terms takes one second per twenty million characters. A long text is therefore not
split; the words are searched for in it directly. Only a limited number of its non-ASCII words is split into
terms, to find words that are spelled differently from the question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hermes.terms import index_text, is_spaceless

ENDINGS = ("ingly", "edly", "ing", "ies", "ied", "ed", "es", "ly", "s", "e", "y")

LONG = 20_000
"""Length in characters above which a text is not split."""
MOST_FOLDED = 100_000
"""Maximum total length of the non-ASCII words that are split into terms, in characters."""
BESIDE = 64
"""Maximum number of letters that are read before or after a position inside a word. No search term
is longer."""
PATIENCE = 2_000
"""Maximum number of occurrences examined in the search for a whole word."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_REST = re.compile(rf"[^\W_]{{0,{BESIDE}}}")


def find_matched_terms(text: str, terms: Sequence[str]) -> list[str]:
    """Return the words of a question that occur in a text. If a word occurs only in another form, return that
    form instead."""
    if len(text) <= LONG:
        return _match_words(index_text(text)[0], terms)
    lower = text.lower()
    found = {term: form for term in terms if (form := _find_form(lower, term)) is not None}
    missing = [term for term in terms if term not in found]
    if missing and not text.isascii():
        words = index_text(_extract_non_ascii(lower))[0]
        found |= {term: form for term in missing for form in _match_words(words, [term])}
    return list(dict.fromkeys(found[term] for term in terms if term in found))


def _extract_non_ascii(lower: str) -> str:
    """Return the words of a text that contain non-ASCII characters, up to `MOST_FOLDED` characters in total."""
    words: list[str] = []
    left, end = MOST_FOLDED, 0
    while left > 0 and (match := _NOT_ASCII.search(lower, end)) is not None:
        start, least = match.start(), max(end, match.start() - BESIDE)
        while start > least and lower[start - 1].isalnum():
            start -= 1
        rest = _REST.match(lower, match.end())
        end = rest.end() if rest is not None else match.end()
        words.append(lower[start:end][:left])
        left -= end - start
    return " ".join(words)


def _match_words(words: str, terms: Sequence[str]) -> list[str]:
    known = dict.fromkeys(words.split())
    found = []
    for term in terms:
        if term in known:
            found.append(term)
        elif len(term) == 1 and is_spaceless(term):
            found += [term] if any(other.startswith(term) for other in known) else []
        elif (stem := get_stem(term)) is not None:
            found += [other for other in known if other.startswith(stem) and get_stem(other) == stem][:1]
    return list(dict.fromkeys(found))


def _find_form(lower: str, term: str) -> str | None:
    """Return `term` if the text contains it as a whole word. Otherwise return another form of the term that the text
    contains, such as a plural. None if the text contains neither."""
    if is_spaceless(term):
        return term if term in lower else None
    if any(word == term for word in _find_words(lower, term)):
        return term
    stem = get_stem(term)
    forms = iter(()) if stem is None else _find_words(lower, stem)
    return next((word for word in forms if get_stem(word) == stem), None)


def _find_words(lower: str, beginning: str) -> Iterator[str]:
    """Yield each word of a text that begins with `beginning`, including repetitions. At most `PATIENCE`
    occurrences are examined."""
    at = -1
    for _ in range(PATIENCE):
        at = lower.find(beginning, at + 1)
        if at < 0:
            break
        if not at or not lower[at - 1].isalnum():
            rest = _REST.match(lower, at + len(beginning))
            yield beginning + (rest[0] if rest is not None else "")


def get_stem(term: str) -> str | None:
    """Return the approximate stem of an English word, or None for any other word. Stems are used only to compare the
    question with messages that the index has already found."""
    if not term.isascii() or not term.isalpha():
        return None
    for ending in ENDINGS:
        if term.endswith(ending) and len(term) - len(ending) >= 3:
            term = term[: -len(ending)]
            break
    return term[:-1] if len(term) > 3 and term[-1] == term[-2] else term
