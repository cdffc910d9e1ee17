"""The query language of every surface on which people type. It extends `hermes.recall.query.operators` by

    *part*              a substring of a word, three or more letters
    (a OR b) c          groups; parentheses count at the edges of words only, so `foo(bar)` is text
    source:cli          fields, which restrict the whole search wherever they are; values may be quoted
    title:"my plan"

The fields are source, role, tool, title, model, workspace, kind, tag, before, after, on, has:error, has:tool,
is:pinned, is:archived and is:trashed. If source, role or kind is repeated, any of the values is allowed. If
tag is repeated, all of the tags are required. NOT can precede source, role, kind, tag, is:pinned and
is:archived.

Every string is a valid query. An unknown field, an invalid date or a parenthesis without its partner is
searched for as text. As in `operators`, NOT has no effect on the first word of a query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, get_args

from hermes.errors import InvalidArgument
from hermes.recall.query.operators import PIECES, parse_leaf, trim_word
from hermes.session_kinds import Kind
from hermes.store.query_tree import And, Leaf, Node, Not, Or, list_positive_leaves, make_part, make_phrase
from hermes.store.sessions.labels import clean_tag
from hermes.store.sessions.sessions import check_source
from hermes.store.values import MessageFilter
from hermes.terms import find_token_spans, fold, is_spaceless
from hermes.text import replace_surrogates

__all__ = ["FIELDS", "FLAGS", "Field", "Reading", "read"]

ROLES = ("user", "assistant", "system", "tool")
KINDS: tuple[str, ...] = get_args(Kind)
SWITCHES = ("is:pinned", "is:archived")
"""Flags that can follow NOT."""
FLAGS = ("has:error", "has:tool", *SWITCHES, "is:trashed")
CHOICES = ("source", "role", "kind")
TEXTS = ("tool", "title", "model", "workspace")
DATES = ("before", "after", "on")
FIELDS = frozenset((*CHOICES, *TEXTS, *DATES, "tag", "has", "is"))


class Field(NamedTuple):
    """A field in a query, such as `source:cli`, with its value as typed."""

    name: str
    value: str
    negated: bool = False

    def __str__(self) -> str:
        value = f'"{self.value}"' if " " in self.value else self.value
        return f"{'NOT ' if self.negated else ''}{self.name}:{value}"


class Fields:
    """The fields of a query, collected while the query is parsed."""

    def __init__(self, now: float, trash: bool) -> None:
        self._trash = trash
        self.understood: list[Field] = []
        self.ignored: list[str] = []
        self._now = now
        self._chosen: dict[str, dict[str, None]] = {name: {} for name in CHOICES}
        self._barred: dict[str, dict[str, None]] = {name: {} for name in CHOICES}
        self._texts: dict[str, str] = {}
        self._tags: dict[bool, dict[str, None]] = {True: {}, False: {}}
        self._flags: set[str] = set()
        self._barred_flags: set[str] = set()
        self._after: float | None = None
        self._before: float | None = None

    def filter(self) -> MessageFilter:
        roles = self._get_remaining("role", ROLES)
        nobody = (roles is not None and not roles) or self._flags & self._barred_flags
        return MessageFilter(
            sources=() if nobody else tuple(self._chosen["source"]) or None,
            exclude_sources=tuple(self._barred["source"]),
            roles=roles or (),
            kinds=self._get_remaining("kind", KINDS),
            after=self._after,
            before=self._before,
            tool=self._texts.get("tool"),
            title=self._texts.get("title"),
            model=self._texts.get("model"),
            workspace=self._texts.get("workspace"),
            errors_only="has:error" in self._flags,
            calls_only="has:tool" in self._flags,
            pinned=self._get_switch("is:pinned"),
            archived=self._get_switch("is:archived"),
            trashed="is:trashed" in self._flags,
            tags=tuple(self._tags[True]),
            exclude_tags=tuple(self._tags[False]),
        )

    def _get_switch(self, flag: str) -> bool | None:
        return True if flag in self._flags else False if flag in self._barred_flags else None

    def _get_remaining(self, name: str, every: tuple[str, ...]) -> tuple[str, ...] | None:
        chosen, barred = self._chosen[name], self._barred[name]
        if not barred:
            return tuple(chosen) or None
        return tuple(value for value in chosen or every if value not in barred)

    def take(self, name: str, value: str, typed: str, negated: bool) -> bool:
        """Apply a field of the query to the collected fields. Return False if its name or value is invalid. The text is
        then searched for as words, and if it looks like a field, it is added to `ignored`."""
        if name in FIELDS and value.strip() and self._apply(name, value.strip(), negated):
            self.understood.append(Field(name, value, negated))
            return True
        if name in FIELDS or not value.startswith(("/", ":")):
            self.ignored.append(typed)
        return False

    def take_date(self, name: str, value: str, negated: bool) -> bool:
        """Apply a date field of the query. Return False if the field is negated, or if the value is not a date. The
        caller can then try the beginning of the value, with fewer words."""
        if negated or not self._is_date(name, value):
            return False
        self.understood.append(Field(name, value))
        return True

    def _is_date(self, name: str, value: str) -> bool:
        from hermes.recall.query.dates import read_date

        span = read_date(value, self._now)
        if span is None:
            return False
        if name != "before":
            self._after = span.start if self._after is None else max(self._after, span.start)
        if name != "after":
            end = span.start if name == "before" else span.end
            self._before = end if self._before is None else min(self._before, end)
        return True

    def _apply(self, name: str, value: str, negated: bool) -> bool:
        if name in CHOICES:
            return self._choose(name, value, negated)
        if name == "tag":
            return self._choose_tag(value, negated)
        flag = f"{name}:{value.lower()}"
        if flag in SWITCHES or (flag in FLAGS and not negated and (self._trash or flag != "is:trashed")):
            (self._barred_flags if negated else self._flags).add(flag)
            return True
        if negated:
            return False
        if name in DATES:
            return self._is_date(name, value)
        if name in TEXTS:
            value = value.rstrip("/") or value if name == "workspace" else value
            return self._texts.setdefault(name, value) == value
        return False

    def _choose_tag(self, value: str, negated: bool) -> bool:
        try:
            self._tags[not negated][clean_tag(value)] = None
        except InvalidArgument:  # too long for a tag
            return False
        return True

    def _choose(self, name: str, value: str, negated: bool) -> bool:
        lower = value.lower()
        if name == "source":
            meant = dict.fromkeys((check_source(value), check_source(lower)))
        elif lower in (ROLES if name == "role" else KINDS):
            meant = {lower: None}
        else:
            return False
        (self._barred if negated else self._chosen)[name].update(meant)
        return True


DEEPEST = 16
"""Maximum depth of nested groups. Parentheses nested more deeply are treated as text."""
SHORTEST_PART = 3
LONGEST_DATE = 4
"""Maximum number of words of an unquoted date: `2 May 2025`, `2 weeks ago`."""

_FIELD = re.compile(r"(-?)([a-z]{2,}):(.*)", re.DOTALL)


class Reading(NamedTuple):
    """The result of parsing a query: its query tree and its fields."""

    tree: Node | None
    """The condition on the text; None if the query has fields only."""
    message_filter: MessageFilter
    words: tuple[str, ...]
    """The words to search for, without operators. They are used for ranking."""
    fields: tuple[Field, ...]
    ignored: tuple[str, ...]
    """Text that looks like a field but has an unknown name or an invalid value. It is searched for as text.
    """

    @property
    def is_empty(self) -> bool:
        """Whether the query has neither words nor fields."""
        return self.tree is None and not self.fields


def read(text: str, now: float, *, trash: bool = False) -> Reading:
    """Parse a query. Dates are relative to `now`. Never raises.

    `is:trashed` is a field only if `trash` is set. Otherwise, as in queries of the agent, it is treated as
    text, and nothing in the trash is found.
    """
    fields = Fields(now, trash)
    tree = _Reader(fields).read(list(_split_units(replace_surrogates(text))))
    words = () if tree is None else tuple(leaf.text for leaf in list_positive_leaves(tree))
    return Reading(tree, fields.filter(), words, tuple(fields.understood), tuple(fields.ignored))


# Units: words, quoted phrases and the parentheses that form groups.


class _Open(NamedTuple):
    pass


class _Close(NamedTuple):
    pass


class _Token(NamedTuple):
    text: str
    quoted: bool
    glued: bool
    """Whether the token directly follows the previous one, without a space."""


_Unit = _Open | _Close | _Token


class _Piece(NamedTuple):
    """A part of a query: text without spaces, or a quoted phrase. `opens` and `closes` are the numbers of parentheses
    at its start and at its end that may form groups."""

    text: str
    quoted: bool
    glued: bool
    opens: int
    closes: int


def _split_units(text: str) -> Iterator[_Unit]:
    pieces: list[_Piece] = []
    end = -1
    for match in PIECES.finditer(text):
        quoted, bare = match.groups()
        edges = (0, 0) if bare is None else _count_edges(bare)
        pieces.append(
            _Piece(bare if bare is not None else quoted, bare is None, match.start() == end, *edges)
        )
        end = match.end()
    for piece, (opens, closes) in zip(pieces, _match_parentheses(pieces), strict=True):
        yield from (_Open(),) * opens
        word_text = piece.text[opens : len(piece.text) - closes]
        if word_text or piece.quoted:
            yield _Token(word_text, piece.quoted, piece.glued and not opens)
        yield from (_Close(),) * closes


def _count_edges(bare: str) -> tuple[int, int]:
    """Return how many parentheses at the start and how many at the end of a word may form groups. Parentheses that
    belong to the word itself, as in `foo(bar)`, are not counted."""
    if not bare.strip("()"):
        return (0, 0) if len(set(bare)) > 1 else (bare.count("("), bare.count(")"))
    partner: dict[int, int] = {}
    waiting: list[int] = []
    for at, char in enumerate(bare):
        if char == "(":
            waiting.append(at)
        elif char == ")" and waiting:
            first = waiting.pop()
            partner[at], partner[first] = first, at
    tail = len(bare.rstrip(")"))
    opens = 0
    while bare[opens] == "(" and partner.get(opens, tail) >= tail:
        opens += 1
    at = len(bare)
    while at > tail and partner.get(at - 1, 0) < max(1, opens):
        at -= 1
    return opens, len(bare) - at


def _match_parentheses(pieces: list[_Piece]) -> list[tuple[int, int]]:
    """Return, for each piece of a query, how many of its opening and how many of its closing parentheses form groups:
    those that have a partner in the query. If only some of the parentheses at one end of a piece have a partner, the
    outer ones form the groups."""
    opened: list[int | None] = []
    found = [[0, 0] for _ in pieces]
    for number, piece in enumerate(pieces):
        opened += [number if len(opened) + nth < DEEPEST else None for nth in range(piece.opens)]
        for _ in range(piece.closes):
            partner = opened.pop() if opened else None
            if partner is not None:
                found[partner][0] += 1
                found[number][1] += 1
    return [(opens, closes) for opens, closes in found]


# The tree


class _Group:
    """The part of the query tree that was built so far from the text between two parentheses."""

    def __init__(self, *, negated: bool = False) -> None:
        self.negated = negated
        self._either: list[Node] = []
        self._both: list[Node] = []

    def add(self, node: Node, *, negated: bool) -> None:
        if negated:
            node = node.of if isinstance(node, Not) else Not(node)
        self._both += node.of if isinstance(node, And) else (node,)

    def start_alternative(self) -> None:
        if self._both:
            joined = self._both[0] if len(self._both) == 1 else And(tuple(self._both))
            self._either += joined.of if isinstance(joined, Or) else (joined,)
            self._both = []

    def build_node(self) -> Node | None:
        self.start_alternative()
        if not self._either:
            return None
        return self._either[0] if len(self._either) == 1 else Or(tuple(self._either))


class _Reader:
    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._groups = [_Group()]
        self._negated = False  # NOT precedes the next unit
        self._something = False  # an operand precedes, so NOT can apply

    def read(self, units: list[_Unit]) -> Node | None:
        at = 0
        while at < len(units):
            at += self._take(units, at)
        while len(self._groups) > 1:
            self._close()
        return self._groups[0].build_node()

    def _take(self, units: list[_Unit], at: int) -> int:
        """Read the unit of the query at the index `at`, such as a word, a phrase or a parenthesis. Return the number of
        units that were read, which is more than 1 if a field extends over several."""
        match units[at]:
            case _Open():
                self._groups.append(_Group(negated=self._negated and self._something))
                self._negated = False
            case _Close():
                self._close()
            case _Token(text="NOT", quoted=False):
                self._negated = True
            case _Token(text="OR", quoted=False):
                self._groups[-1].start_alternative()
                self._negated = False
            case _Token(text="AND", quoted=False):
                self._negated = False
            case _Token(quoted=True) as said:
                self._add(make_phrase(said.text))
            case _Token() as said:
                if taken := self._read_field(said, units[at + 1 : at + 1 + LONGEST_DATE]):
                    self._negated, self._something = False, True
                    return taken
                self._add(_parse_word(said.text))
        return 1

    def _add(self, node: Node | None) -> None:
        if node is not None:
            self._groups[-1].add(node, negated=self._negated and self._something)
            self._negated, self._something = False, True

    def _close(self) -> None:
        closed = self._groups.pop()
        node = closed.build_node()
        if node is not None:
            self._groups[-1].add(node, negated=closed.negated)
        self._negated = False

    def _read_field(self, token: _Token, following: list[_Unit]) -> int:
        """If `token` begins a field, apply the field. Return the number of units that the field and its value consist
        of, or 0 if it is not a field. `following` are the units after the token."""
        looks = _FIELD.fullmatch(token.text)
        if looks is None:
            return 0
        minus, name, value = looks.groups()
        negated = self._negated or bool(minus)
        first = following[0] if following else None
        if not value:
            if isinstance(first, _Token) and first.quoted and first.glued and name in FIELDS:
                return 2 * self._fields.take(name, first.text, f'{minus}{name}:"{first.text}"', negated)
            return 0
        if name in DATES:
            for words in _list_date_candidates(value, following):
                if self._fields.take_date(name, " ".join(words), negated):
                    return len(words)
        return int(self._fields.take(name, value, token.text, negated))


def _list_date_candidates(first: str, following: list[_Unit]) -> Iterator[list[str]]:
    """Yield the sequences of words after a date field that may form its date, longest first. `first` is the word that
    is attached to the field's name."""
    words = [first]
    for unit in following[: LONGEST_DATE - 1]:
        if not isinstance(unit, _Token) or unit.quoted or unit.glued:
            break
        words.append(unit.text)
    for count in range(len(words), 0, -1):
        yield words[:count]


def _parse_word(typed: str) -> Leaf | None:
    typed = trim_word(typed)
    inner = typed.strip("*")
    if inner and typed.startswith("*") and typed.endswith("*") and _is_part(fold(inner)):
        return make_part(inner)
    return parse_leaf(typed)


def _is_part(folded: str) -> bool:
    return len(folded) >= SHORTEST_PART or any(is_spaceless(folded[at]) for at, _ in find_token_spans(folded))
