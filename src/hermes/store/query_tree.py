"""Query trees: the meaning of a query. An engine compiles a tree for its index, and `matches` evaluates it on
one message.

Invariant: both ways give the same set of messages. A leaf has up to two conditions:

- `terms` must be in the index: adjacent in the words of a message, or adjacent in the parts of its
  identifiers. With `prefix_last`, the last term is a prefix.
- `literal` must occur in the folded text. It is None if the terms are sufficient.

An engine selects candidates by the terms and checks them with `matches`. Rows that are not indexed yet are
checked with `matches` alone.

Rules for compiling a tree: if `needs_check` is true, the index returns a superset of the matches, and every
row must be checked. Under a `Not`, a superset would exclude too much. A `Not` can therefore use the index
only if the node under it needs no check. A `Part` has no terms when it is parsed; an engine can look them up
and add them (`fill_terms`). An `And` without nodes matches every message.
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
"""The maximum length of a prefix that counts as short, in letters."""


class Word(NamedTuple):
    """A typed word. Its tokens must be adjacent. If the word has punctuation, the text must also contain the
    whole word literally."""

    text: str
    terms: tuple[str, ...]
    prefix_last: bool = False
    literal: str | None = None
    by_text: bool = False
    """Whether the word is checked only on the text of each message, although the index has its terms."""


class Phrase(NamedTuple):
    """Quoted words. Their tokens must be adjacent. If the phrase has punctuation, the text must also contain
    the whole phrase literally.

    A sequence of whitespace is compared as one space.
    """

    text: str
    terms: tuple[str, ...]
    prefix_last: bool = False
    literal: str | None = None


class Literal(NamedTuple):
    """Punctuation alone. The index has no terms for it, so each message is checked on its text."""

    text: str
    literal: str


class Part(NamedTuple):
    """A part of an identifier. A token must contain `piece`. If punctuation was typed, the text must also
    contain `literal`."""

    text: str
    piece: str
    literal: str | None = None
    terms: tuple[str, ...] | None = None
    """The index terms that contain the piece. None if they have not been looked up."""
    cut: bool = False
    """Whether more index terms contain the piece than `terms` lists."""


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
    """Return the leaf for a typed word. With `prefix`, the word is the beginning of a longer word; its star is
    not in `text`. Return None if nothing remains after folding."""
    terms, prefix_last, complete = make_query_terms(text, prefix=prefix)
    if terms:
        return Word(text, terms, prefix_last, None if complete else _squeeze(fold(text)))
    return _make_literal(text)


def make_phrase(text: str) -> Phrase | Literal | None:
    """Return the leaf for a quoted text. None if it is blank."""
    text = text.strip()
    terms, prefix_last, complete = make_query_terms(text)
    if terms:
        return Phrase(text, terms, prefix_last, None if complete else _squeeze(fold(text)))
    return _make_literal(text)


def make_part(text: str) -> Word | Literal | Part | None:
    """Return the leaf for a text between two stars. None if nothing remains after folding.

    If the text has several tokens, the first one can be the end of a longer token, which the index does not
    find. The index is therefore searched only for the other tokens. The message text is then searched for the
    whole text.
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
    """Return whether `term` is a whole word in `text`, a folded ASCII text. The text is not split into words
    for this, which would be slower."""
    at = text.find(term)
    while at >= 0:
        end = at + len(term)
        if not (at and text[at - 1].isalnum()) and not text[end : end + 1].isalnum():
            return True
        at = text.find(term, at + 1)
    return False


class MessageText:
    """The text of one message, as a tuple of fields. The fields are folded and split into terms at their first
    use."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields = fields
        self._split: tuple[str, str] | None = None

    @classmethod
    def of(cls, *fields: str | None) -> MessageText:
        """Create an instance from the fields of a message as text: content, tool name and tool calls. A field
        that the message lacks is None or empty."""
        return cls(tuple(filter(None, fields)))

    @property
    def split(self) -> tuple[str, str]:
        """Return the words of the message and the parts of its identifiers, as in the index."""
        if self._split is None:  # not a `cached_property`, whose lock would cost time for every message
            self._split = index_texts(*self._fields)
        return self._split

    @cached_property
    def _streams(self) -> tuple[str, ...]:
        # Surrounded by spaces, so that a sequence of whole terms is a substring.
        return tuple(f" {stream} " for stream in self.split if stream)

    @cached_property
    def _folded(self) -> tuple[str, ...]:
        return tuple(fold(field) for field in self._fields)

    @cached_property
    def _squeezed(self) -> tuple[str, ...]:
        return tuple(_squeeze(text) for text in self._folded)

    def has_terms(self, terms: tuple[str, ...], prefix_last: bool) -> bool:
        """Return whether the message contains the terms next to each other, like a phrase in FTS5."""
        # Splitting is expensive. It is not needed if an ASCII term does not occur in the folded text.
        if any(term.isascii() and not any(term in text for text in self._folded) for term in terms):
            return False
        if len(terms) == 1 and terms[0].isascii():
            if prefix_last:
                if self._has_prefix(terms[0]):
                    return True
            elif len(terms[0]) < MAX_TERM:
                if any(_has_word(text, terms[0]) for text in self._folded if text.isascii()):
                    return True
                # Without capitals no identifier has parts, so only the words remain.
                if all(
                    text.isascii() and text == field
                    for text, field in zip(self._folded, self._fields, strict=True)
                ):
                    return False
        needle = f" {' '.join(terms)}" if prefix_last else f" {' '.join(terms)} "
        return any(needle in stream for stream in self._streams)

    def _has_prefix(self, term: str) -> bool:
        """Return True if a word in an ASCII field starts with `term`. False is inconclusive, because other
        fields and the parts of identifiers are not searched."""
        begins = _compile_prefix(term)
        return any(begins.search(text) is not None for text in self._folded if text.isascii())

    def has_part(self, piece: str) -> bool:
        """Return whether an index term of the message contains `piece`."""
        if piece.isascii() and not any(piece in text for text in self._folded):
            return False
        return any(piece in stream for stream in self._streams)

    def has_literal(self, literal: str) -> bool:
        """Return whether a field of the message contains `literal`, a folded text. A sequence of whitespace in
        the field is compared as one space."""
        return any(literal in text for text in (self._squeezed if " " in literal else self._folded))


def matches(tree: Node, text: MessageText) -> bool:
    """Return whether the message matches the tree."""
    match tree:
        case (
            Word(terms=terms, prefix_last=prefix_last, literal=literal)
            | Phrase(terms=terms, prefix_last=prefix_last, literal=literal)
        ):
            # The literal is checked first, because splitting the text is more expensive.
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
    """Return whether a message that the index found for this tree matches. Conditions that the index has
    already decided are not checked again."""
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
    """Return whether the rows that the index returns for the tree must still be checked with `matches`."""
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
    """Return whether the index can exclude some of the messages that do not match the tree."""
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
    """Return the leaves of the tree that can make a message match, in the order in which they were typed.
    Leaves under a `Not` are left out."""
    match tree:
        case Word() | Phrase() | Literal() | Part():
            return [tree]
        case And(of=nodes) | Or(of=nodes):
            return [leaf for node in nodes for leaf in list_positive_leaves(node)]
        case Not():
            return []


def has_short_prefix(tree: Node) -> bool:
    """Return whether the tree makes the engine search the index for a prefix of one or two letters, such as
    `k*` or `error fi*`."""
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
    """Return the tree with each short prefix marked `by_text` for which `is_dense` is true, because a large
    share of the messages matches it. Such a prefix is checked on the text of the messages, not in the index. A
    prefix is marked only if another node narrows the search."""
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
"""Returns the index terms that contain a piece, and whether there are more terms than those. Returns None if
the terms cannot be looked up."""


def fill_terms(tree: Node, look_up: LookUp) -> Node:
    """Return the tree with the index terms of each `Part` filled in.

    A `Part` that too many terms contain gets only some of them and is marked `cut`. It keeps no terms, and is
    checked on the text alone, in two cases: it is under a `Not`, or another node of the same `And` narrows
    the search.
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
    """Return whether the search is limited for some `Part` in the tree, because too many terms of the index
    contain it. The result of the search may then be incomplete."""
    return any(leaf.cut for leaf in list_parts(tree))


def list_parts(tree: Node) -> list[Part]:
    """Return every `Part` in the tree, including those under a `Not`."""
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
    """Return whether a character can belong to the token beside it in a text. This is so for a combining mark
    or a joiner."""
    return char != "" and (char in "\u200c\u200d" or category(char)[0] == "M")
