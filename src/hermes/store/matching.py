"""What a query means, as values: a tree that an engine compiles and that `matches` evaluates.

The invariant: both roads give the same set. A leaf says what the index must hold (`terms`, side by side in the words
of a message or, all of them, in the parts of its identifiers; the last a prefix if `prefix_last`) and what
must then be found in the folded text (`literal`, or None if the terms say everything). An engine narrows by the terms
and calls `matches` for the rest; rows that are not indexed yet go to `matches` alone.

For whoever compiles a tree: where `needs_check` holds, the index gives a superset and every row is to be verified.
Under a `Not` a superset would take away too much, so a `Not` may reach the index only if its inside needs no check.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple, TypeAlias

from hermes.terms import fold, index_texts, query_terms

_WHITESPACE = re.compile(r"\s+")


class Word(NamedTuple):
    """A word as typed: its tokens side by side and, where it has punctuation, itself in the text."""

    text: str
    terms: tuple[str, ...]
    prefix_last: bool = False
    literal: str | None = None


class Phrase(NamedTuple):
    """Quoted words: their tokens side by side; with punctuation also literally, any whitespace as one space."""

    text: str
    terms: tuple[str, ...]
    prefix_last: bool = False
    literal: str | None = None


class Literal(NamedTuple):
    """Punctuation alone: there is nothing for the index, the text decides."""

    text: str
    literal: str


class And(NamedTuple):
    of: tuple[Node, ...]


class Or(NamedTuple):
    of: tuple[Node, ...]


class Not(NamedTuple):
    of: Node


Leaf: TypeAlias = Word | Phrase | Literal
Node: TypeAlias = Word | Phrase | Literal | And | Or | Not


def word(text: str, *, prefix: bool = False) -> Word | Literal | None:
    """The leaf for one typed word without its star; None if nothing of it is left after folding."""
    terms, prefix_last, complete = query_terms(text, prefix=prefix)
    if terms:
        return Word(text, terms, prefix_last, None if complete else _squeeze(fold(text)))
    return _punctuation(text)


def phrase(text: str) -> Phrase | Literal | None:
    """The leaf for what stood between two quotes; None if that was blank."""
    text = text.strip()
    terms, prefix_last, complete = query_terms(text)
    if terms:
        return Phrase(text, terms, prefix_last, None if complete else _squeeze(fold(text)))
    return _punctuation(text)


class MessageText:
    """The text of one message, field by field, folded and split when first asked for."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields = fields

    @classmethod
    def of(cls, *fields: str | None) -> MessageText:
        """Content, tool name and tool calls, each as text; an absent field is None or empty."""
        return cls(tuple(field for field in fields if field))

    @cached_property
    def _streams(self) -> tuple[str, ...]:
        # Between spaces, so that a run of whole terms is a substring.
        return tuple(f" {stream} " for stream in index_texts(*self._fields) if stream)

    @cached_property
    def _folded(self) -> tuple[str, ...]:
        return tuple(fold(field) for field in self._fields)

    @cached_property
    def _squeezed(self) -> tuple[str, ...]:
        return tuple(_squeeze(text) for text in self._folded)

    def holds(self, terms: tuple[str, ...], prefix_last: bool) -> bool:
        """Whether the terms stand side by side, as FTS5 understands a phrase."""
        # Splitting is the dear part, and an ASCII term that is nowhere in the folded text spares it.
        if any(term.isascii() and not any(term in text for text in self._folded) for term in terms):
            return False
        needle = f" {' '.join(terms)}" if prefix_last else f" {' '.join(terms)} "
        return any(needle in stream for stream in self._streams)

    def says(self, literal: str) -> bool:
        """Whether some field holds the folded literal, any whitespace compared as one space."""
        return any(literal in text for text in (self._squeezed if " " in literal else self._folded))


def matches(tree: Node, text: MessageText) -> bool:
    """Whether the message is in the result set."""
    match tree:
        case (
            Word(terms=terms, prefix_last=prefix_last, literal=literal)
            | Phrase(terms=terms, prefix_last=prefix_last, literal=literal)
        ):
            return text.holds(terms, prefix_last) and (literal is None or text.says(literal))
        case Literal(literal=literal):
            return text.says(literal)
        case And(of=several):
            return all(matches(one, text) for one in several)
        case Or(of=several):
            return any(matches(one, text) for one in several)
        case Not(of=one):
            return not matches(one, text)


def needs_check(tree: Node) -> bool:
    """Whether the index alone cannot decide: some literal must be looked up in the text."""
    match tree:
        case Word() | Phrase():
            return tree.literal is not None
        case Literal():
            return True
        case And(of=several) | Or(of=several):
            return any(needs_check(one) for one in several)
        case Not(of=one):
            return needs_check(one)


def wanted(tree: Node) -> list[Leaf]:
    """The leaves that make a message match, in typed order; what stands under a `Not` is not among them."""
    match tree:
        case Word() | Phrase() | Literal():
            return [tree]
        case And(of=several) | Or(of=several):
            return [leaf for one in several for leaf in wanted(one)]
        case Not():
            return []


def _punctuation(text: str) -> Literal | None:
    literal = _squeeze(fold(text))
    return Literal(text, literal) if literal.strip() else None


def _squeeze(folded: str) -> str:
    return _WHITESPACE.sub(" ", folded)
