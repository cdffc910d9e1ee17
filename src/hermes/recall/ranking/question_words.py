"""Parsing of questions: determines which words of a sentence name its subject.

People and agents type whole sentences. Words that only form a question are left out, and so are phrases about
the conversation itself ("can you list the order in which I brought up different aspects of ..."). These
phrases are removed only as a whole, because their words can also be the subject: a question may be about an
order or a list. If no other words would remain, nothing is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from hermes.recall.query import prompt_language
from hermes.recall.query.named_days import Stretch, find_days, find_months
from hermes.recall.query.operators import parse
from hermes.recall.ranking.stop_words import ASKS_AGENT, CHINESE, PHRASES, STOP, TALKING
from hermes.store.query_tree import Node, Part, Word, list_positive_leaves, make_word
from hermes.store.values import MessageFilter
from hermes.terms import MAX_TERM, find_token_spans, fold, is_spaceless
from hermes.text import replace_surrogates

MOST_TERMS, LONGEST = 64, 4_000

EXPRESSION = re.compile(r"(?<!\S)(?:AND|OR|NOT)(?!\S)|\S\*(?!\S)")
QUOTED = re.compile(r'"[^"]*"')
INTERACTIVE = re.compile(r"(?<!\S)(?:\*\S{3,}\*(?!\S)|\()|\)(?!\S)")
"""Matches a part of a word (`*abc*`) or a parenthesis of a group."""
STRICT = re.compile(r'"[^"]+"|(?<!\S)(?:AND|NOT)(?!\S)|\S\*(?!\S)')
NEGATED = re.compile(r'(?<!\S)NOT\s+(?:"[^"]*"|\S+)')
OPERATOR = re.compile(r"(?<!\S)(?:AND|OR|NOT)(?!\S)")
QUESTION_MARK = re.compile(r"[?？؟](?=\s|$)|？")
LEAST_WORDS, LEAST_ASKING = 6, 2
"""The minimum number of words in a question, and the minimum number of stop words or words about talking in a
question without a question mark."""
SENTENCE = ".,;:!?…。，？！、；：\"'"
"""Punctuation that can surround a word without being part of it."""
COMMAS = frozenset(",;!?，。、；：！？…")
"""Punctuation that separates sentences and their parts, even without a space after it."""
SENTENCE_END = re.compile(r"[.:!?…\n]")


class Question(NamedTuple):
    terms: tuple[str, ...]
    """Index terms of the question's subject, in the order of the typed words."""
    must: Node | None
    """The condition that results must satisfy, if the query has operators; otherwise None."""
    days: tuple[Stretch, ...]
    months: tuple[Stretch, ...]
    asks_agent: bool
    """Whether the question is about what the agent said."""
    names: tuple[str, ...] = ()
    """Index terms of words that are capitalised inside a sentence."""
    fields: MessageFilter | None = None
    """The message filter, if the query names fields."""
    tree: Node | None = None
    """The query tree for an exact search."""
    parts: tuple[str, ...] = ()
    """Words that are searched for as substrings of words, because no message contains them."""


def parse_question(text: str, now: float) -> Question:
    """Parse a question or an expression, which may contain fields and the extensions of `prompt_language`. Dates in
    fields are relative to the time `now`."""
    typed = replace_surrogates(text[:LONGEST])
    reading = prompt_language.read(typed, now)
    if not reading.fields and not INTERACTIVE.search(typed):
        question = read_question(typed)._replace(tree=reading.tree)
        return question._replace(must=reading.tree) if _is_name(reading.tree) else question
    leaves = [] if reading.tree is None else list_positive_leaves(reading.tree)
    question = read_question(" ".join(leaf.text for leaf in leaves if not isinstance(leaf, Part)))
    strict = STRICT.search(typed) or INTERACTIVE.search(typed)
    return question._replace(
        must=reading.tree if strict and not is_question(typed) else None,
        fields=reading.message_filter if reading.fields else None,
        tree=reading.tree,
    )


def _is_name(tree: Node | None) -> bool:
    """Return whether the query is a single word with meaningful punctuation, such as `$5` or
    `src/main.py:42`."""
    if not isinstance(tree, Word) or tree.literal is None or _is_sentence(tree.text):
        return False
    bare = make_word(tree.text.strip(SENTENCE))
    return isinstance(bare, Word) and bare.literal is not None


def _is_sentence(text: str) -> bool:
    """Return whether a text without spaces is a sentence, in a script that does not use spaces."""
    for (start, end), (next_start, next_end) in pairwise(find_token_spans(text)):
        sides = (is_spaceless(text[start:end]), is_spaceless(text[next_start:next_end]))
        if end < next_start and (all(sides) or (any(sides) and set(text[end:next_start]) & COMMAS)):
            return True
    return False


def read_question(text: str) -> Question:
    """Parse a question, which may contain the operators of `query.operators` but no fields. Every string is a valid
    question, so this never raises."""
    typed = replace_surrogates(text[:LONGEST])
    must = parse(typed) if STRICT.search(typed) and not is_question(typed) else None
    plain = OPERATOR.sub(" ", NEGATED.sub(" ", typed))
    folded = fold(plain)
    return Question(
        tuple(_extract_content(folded)[:MOST_TERMS]),
        must,
        find_days(folded),
        find_months(plain),
        bool(_compile(ASKS_AGENT).search(folded)),
        tuple(dict.fromkeys(_find_names(plain)))[:MOST_TERMS],
    )


def _find_names(text: str) -> Iterator[str]:
    """Yield the words of a question that are probably names: those that begin with a capital letter inside a
    sentence."""
    last = None
    for start, end in find_token_spans(text):
        between = "." if last is None else text[last:start]
        word = fold(text[start:end])
        if text[start].isupper() and not SENTENCE_END.search(between) and word not in STOP:
            yield word[:MAX_TERM]
        last = end


def is_question(text: str) -> bool:
    """Return whether a query is a sentence in plain words, rather than a few words or an expression."""
    if EXPRESSION.search(text):
        return False
    bare = QUOTED.sub(" ", text)  # a question may contain a quotation; an expression is mostly quotations
    words = [bare[start:end].casefold() for start, end in find_token_spans(bare)]
    size = sum(len(word) if is_spaceless(word) else 2 for word in words)
    if QUESTION_MARK.search(bare):
        return size >= LEAST_WORDS
    asking = sum(word in STOP or word in TALKING for word in words)
    return bare == text and len(words) >= LEAST_WORDS and asking >= LEAST_ASKING


def _extract_content(folded: str) -> list[str]:
    bare = _compile(rf"\b(?:{'|'.join(PHRASES)})\b").sub(" ", folded)
    bare = _compile(CHINESE).sub(" ", bare)
    return (
        _extract_terms(bare, STOP | TALKING)
        or _extract_terms(folded, STOP)
        or _extract_terms(folded, frozenset())
    )


def _extract_terms(folded: str, left_out: frozenset[str]) -> list[str]:
    """Return the distinct index terms of a folded text, except for the words in `left_out`. In a script without spaces,
    adjacent characters are split into overlapping pairs. A character that stands alone is a term by itself."""
    found: dict[str, None] = {}
    for start, end in find_token_spans(folded):
        token = folded[start:end]
        if not is_spaceless(token):
            if token not in left_out:
                found[token[:MAX_TERM]] = None
        elif len(token) == 1:
            found[token] = None
        else:
            found.update(dict.fromkeys(first + second for first, second in pairwise(token)))
    return list(found)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
