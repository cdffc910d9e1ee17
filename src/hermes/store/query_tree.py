"""What a query means, as values: a tree that an engine compiles and that `matches` evaluates.

The invariant: both roads give the same set. A leaf says what the index must hold (`terms`, side by side in the words
of a message or, all of them, in the parts of its identifiers; the last a prefix if `prefix_last`) and what
must then be found in the folded text (`literal`, or None if the terms say everything). An engine narrows by the terms
and calls `matches` for the rest; rows that are not indexed yet go to `matches` alone.

For whoever compiles a tree: where `needs_check` holds, the index gives a superset and every row is to be verified.
Under a `Not` a superset would take away too much, so a `Not` may reach the index only if it needs no check itself.
A `Part` names no terms when it is read; an engine may look them up and put them in (`fill_terms`). An `And` of nothing
is every message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias
from unicodedata import category

from hermes.terms import MAX_TERM, find_token_spans, fold, index_texts, is_spaceless, make_query_terms

_WHITESPACE = re.compile(r"\s+")
LONGEST_BEGUN = 2


class Word(NamedTuple):
    """A word as typed: its tokens side by side and, where it has punctuation, itself in the text."""

    text: str
    terms: tuple[str, ...]
    prefix_last: bool = False
    literal: str | None = None
    by_text: bool = False
    """The index is not asked for it, though it could be: the text decides."""


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


class Part(NamedTuple):
    """Letters from inside an identifier: some token holds the piece; with punctuation the text holds it all."""

    text: str
    piece: str
    literal: str | None = None
    terms: tuple[str, ...] | None = None
    """The terms of the index that hold the piece; None while nobody has looked."""
    cut: bool = False
    """There are more terms than these."""


class And(NamedTuple):
    of: tuple[Node, ...]


class Or(NamedTuple):
    of: tuple[Node, ...]


class Not(NamedTuple):
    of: Node


Leaf: TypeAlias = Word | Phrase | Literal | Part
Node: TypeAlias = Word | Phrase | Literal | Part | And | Or | Not

EVERYTHING = And(())


def make_word(text: str, *, prefix: bool = False) -> Word | Literal | None:
    """The leaf for one typed word without its star; None if nothing of it is left after folding."""
    terms, prefix_last, complete = make_query_terms(text, prefix=prefix)
    if terms:
        return Word(text, terms, prefix_last, None if complete else _squeeze(fold(text)))
    return _make_literal(text)


def make_phrase(text: str) -> Phrase | Literal | None:
    """The leaf for what stood between two quotes; None if that was blank."""
    text = text.strip()
    terms, prefix_last, complete = make_query_terms(text)
    if terms:
        return Phrase(text, terms, prefix_last, None if complete else _squeeze(fold(text)))
    return _make_literal(text)


def make_part(text: str) -> Word | Literal | Part | None:
    """The leaf for what stood between two stars; None if nothing of it is left after folding.

    Of several tokens the first may begin outside, so the index is asked for the others, and the text for all of it.
    """
    folded = _squeeze(fold(text))
    spans = find_token_spans(folded)
    if not spans:
        return _make_literal(text)
    terms, prefix_last, _ = make_query_terms(text, prefix=True)
    (start, end), rest = spans[0], folded[spans[-1][1] :]
    if is_spaceless(folded[start]):
        whole = len(spans) == 1 and end - start == len(folded)
        return Word(text, terms, prefix_last, None if whole else folded)
    prefix_last = prefix_last or _can_join(rest[:1])
    if start and not _can_join(folded[start - 1]):
        return Word(text, terms, prefix_last, folded)
    if len(spans) > 1:
        return Word(text, terms[1:], prefix_last, folded)
    piece = folded[start:end][:MAX_TERM]
    return Part(text, piece, None if piece == folded else folded)


@lru_cache(64)
def _compile_prefix(term: str) -> re.Pattern[str]:
    return re.compile(f"(?<![0-9a-z]){term}")


def _has_word(text: str, term: str) -> bool:
    """Whether a term is a word of a folded ASCII text. That spares the splitting."""
    at = text.find(term)
    while at >= 0:
        end = at + len(term)
        if not (at and text[at - 1].isalnum()) and not text[end : end + 1].isalnum():
            return True
        at = text.find(term, at + 1)
    return False


class MessageText:
    """The text of one message, field by field, folded and split when first asked for."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields = fields
        self._split: tuple[str, str] | None = None

    @classmethod
    def of(cls, *fields: str | None) -> MessageText:
        """Content, tool name and tool calls, each as text; an absent field is None or empty."""
        return cls(tuple(filter(None, fields)))

    @property
    def split(self) -> tuple[str, str]:
        """Its words and the parts of its identifiers, as the index holds them."""
        if self._split is None:  # not a `cached_property`, whose lock every message would pay for
            self._split = index_texts(*self._fields)
        return self._split

    @cached_property
    def _streams(self) -> tuple[str, ...]:
        # Between spaces, so that a run of whole terms is a substring.
        return tuple(f" {stream} " for stream in self.split if stream)

    @cached_property
    def _folded(self) -> tuple[str, ...]:
        return tuple(fold(field) for field in self._fields)

    @cached_property
    def _squeezed(self) -> tuple[str, ...]:
        return tuple(_squeeze(text) for text in self._folded)

    def has_terms(self, terms: tuple[str, ...], prefix_last: bool) -> bool:
        """Whether the terms stand side by side, as FTS5 understands a phrase."""
        # Splitting is the dear part, and an ASCII term that is nowhere in the folded text spares it.
        if any(term.isascii() and not any(term in text for text in self._folded) for term in terms):
            return False
        if len(terms) == 1 and terms[0].isascii():
            if prefix_last:
                if self._has_prefix(terms[0]):
                    return True
            elif len(terms[0]) < MAX_TERM:
                if any(_has_word(text, terms[0]) for text in self._folded if text.isascii()):
                    return True
                # Without capitals there are no identifiers with parts: the words are all there is.
                if all(
                    text.isascii() and text == field
                    for text, field in zip(self._folded, self._fields, strict=True)
                ):
                    return False
        needle = f" {' '.join(terms)}" if prefix_last else f" {' '.join(terms)} "
        return any(needle in stream for stream in self._streams)

    def _has_prefix(self, term: str) -> bool:
        """Whether a word of plain ASCII begins so; no says nothing. It spares the splitting, too."""
        begins = _compile_prefix(term)
        return any(begins.search(text) is not None for text in self._folded if text.isascii())

    def has_part(self, piece: str) -> bool:
        """Whether the piece stands inside a term."""
        if piece.isascii() and not any(piece in text for text in self._folded):
            return False
        return any(piece in stream for stream in self._streams)

    def has_literal(self, literal: str) -> bool:
        """Whether some field holds the folded literal, any whitespace compared as one space."""
        return any(literal in text for text in (self._squeezed if " " in literal else self._folded))


def matches(tree: Node, text: MessageText) -> bool:
    """Whether the message is in the result set."""
    match tree:
        case (
            Word(terms=terms, prefix_last=prefix_last, literal=literal)
            | Phrase(terms=terms, prefix_last=prefix_last, literal=literal)
        ):
            # The literal first: looking for it is cheap, splitting the text is not.
            return (literal is None or text.has_literal(literal)) and text.has_terms(terms, prefix_last)
        case Literal(literal=literal):
            return text.has_literal(literal)
        case Part(piece=piece, literal=literal):
            return (literal is None or text.has_literal(literal)) and text.has_part(piece)
        case And(of=nodes):
            return all(matches(node, text) for node in nodes)
        case Or(of=nodes):
            return any(matches(node, text) for node in nodes)
        case Not(of=node):
            return not matches(node, text)


def confirms(tree: Node, text: MessageText) -> bool:
    """The same of a message that the index has found for this tree: what it has decided is not asked again."""
    match tree:
        case _ if not needs_check(tree):
            return True
        case Word(literal=str(literal)) | Phrase(literal=str(literal)) if can_narrow(tree):
            return text.has_literal(literal)
        case And(of=nodes):
            return all(
                confirms(node, text) if can_narrow(node) or not needs_check(node) else matches(node, text)
                for node in nodes
            )
        case _:
            return matches(tree, text)


def needs_check(tree: Node) -> bool:
    """Whether what the index finds for the tree must be looked at again."""
    match tree:
        case Word():
            return tree.literal is not None or tree.by_text
        case Phrase():
            return tree.literal is not None
        case Literal():
            return True
        case Part(literal=literal, terms=terms, cut=cut):
            return literal is not None or terms is None or cut
        case And(of=nodes):
            return any(needs_check(node) or not (isinstance(node, Not) or can_narrow(node)) for node in nodes)
        case Or(of=nodes):
            return any(needs_check(node) for node in nodes)
        case Not(of=node):
            return needs_check(node) or not can_narrow(node)


def can_narrow(tree: Node) -> bool:
    """Whether the index can tell some of the messages that do not match."""
    match tree:
        case Word():
            return bool(tree.terms) and not tree.by_text
        case Phrase():
            return bool(tree.terms)
        case Part(terms=terms):
            return terms is not None
        case And(of=nodes):
            return any(can_narrow(node) for node in nodes if not isinstance(node, Not))
        case Or(of=nodes):
            return all(can_narrow(node) for node in nodes)
        case Literal() | Not():
            return False


def list_positive_leaves(tree: Node) -> list[Leaf]:
    """The leaves that make a message match, in typed order; what stands under a `Not` is not among them."""
    match tree:
        case Word() | Phrase() | Literal() | Part():
            return [tree]
        case And(of=nodes) | Or(of=nodes):
            return [leaf for node in nodes for leaf in list_positive_leaves(node)]
        case Not():
            return []


def has_short_prefix(tree: Node) -> bool:
    """Whether the index is asked for a word of which there are only the first letter or two: `k*`, `error fi*`."""
    return any(_is_short_prefix(leaf) for leaf in list_positive_leaves(tree))


def _is_short_prefix(leaf: Node) -> bool:
    return (
        isinstance(leaf, Word)
        and leaf.prefix_last
        and not leaf.by_text
        and leaf.terms[-1].isascii()
        and len(leaf.terms[-1]) <= LONGEST_BEGUN
    )


def leave_to_text(tree: Node, is_dense: Callable[[Node], bool]) -> Node:
    """The tree in which beginnings that most messages hold are left to the text, beside something that narrows."""
    if not isinstance(tree, And) or all(_is_short_prefix(node) or not can_narrow(node) for node in tree.of):
        return tree
    return And(
        tuple(
            node._replace(by_text=True)
            if isinstance(node, Word) and _is_short_prefix(node) and is_dense(node)
            else node
            for node in tree.of
        )
    )


LookUp: TypeAlias = Callable[[str], tuple[tuple[str, ...], bool] | None]
"""The terms that hold a piece, and whether there are more of them; None if that cannot be told."""


def fill_terms(tree: Node, look_up: LookUp) -> Node:
    """The tree with the terms of each `Part` filled in, as far as that helps.

    Beside something that narrows, and under a `Not`, the text decides: there a part whose terms were cut has none.
    """
    match tree:
        case Part(piece=piece):
            lookup = look_up(piece)
            return tree if lookup is None else tree._replace(terms=lookup[0], cut=lookup[1])
        case And(of=nodes):
            filled = tuple(fill_terms(node, look_up) for node in nodes)
            if any(can_narrow(node) and not is_cut(node) for node in filled if not isinstance(node, Not)):
                filled = tuple(
                    before if is_cut(after) else after for before, after in zip(nodes, filled, strict=True)
                )
            return And(filled)
        case Or(of=nodes):
            return Or(tuple(fill_terms(node, look_up) for node in nodes))
        case Not(of=node):
            filled_in = fill_terms(node, look_up)
            return tree if is_cut(filled_in) else Not(filled_in)
        case Word() | Phrase() | Literal():
            return tree


def is_cut(tree: Node) -> bool:
    """Whether some part has more terms than will be looked for."""
    return any(leaf.cut for leaf in list_parts(tree))


def list_parts(tree: Node) -> list[Part]:
    """Every `Part` in the tree, under a `Not` too."""
    match tree:
        case Part():
            return [tree]
        case And(of=nodes) | Or(of=nodes):
            return [leaf for node in nodes for leaf in list_parts(node)]
        case Not(of=node):
            return list_parts(node)
        case Word() | Phrase() | Literal():
            return []


def _make_literal(text: str) -> Literal | None:
    literal = _squeeze(fold(text))
    return Literal(text, literal) if literal.strip() else None


def _squeeze(folded: str) -> str:
    return _WHITESPACE.sub(" ", folded)


def _can_join(char: str) -> bool:
    """Whether a character that stands alone here may belong to a token in the text: a mark or a joiner."""
    return char != "" and (char in "\u200c\u200d" or category(char)[0] == "M")
