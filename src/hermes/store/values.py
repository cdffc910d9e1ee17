"""What the store takes and gives, as frozen values. They know no engine and no surface.

They are named tuples because a dataclass costs half a millisecond at import, each, on every `hermes` command.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from hermes.text import format_count


class MessageFilter(NamedTuple):
    """Which messages a search may find. None means no restriction; an empty `sources` matches nothing."""

    sources: tuple[str, ...] | None = None
    exclude_sources: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    after: float | None = None
    """Said at this time or later."""
    before: float | None = None
    """Said before this time."""
    tool: str | None = None
    """Said by this tool, or calling it; case makes no difference."""
    title: str | None = None
    """Part of the title of the conversation; case makes no difference."""
    model: str | None = None
    """Part of the name of the model."""
    workspace: str | None = None
    """The directory, or the last part of it."""
    kinds: tuple[str, ...] | None = None
    errors_only: bool = False
    """What a tool said when it failed."""
    calls_only: bool = False
    """Messages that call tools, or that tools answered with."""
    pinned_only: bool = False
    hide_archived: bool = False
    but_conversations: tuple[str, ...] = ()
    """Roots of conversations to leave out, every segment of them."""


class Hit(NamedTuple):
    """A message that matches, with the columns of its session that a result shows."""

    id: int
    session_id: str
    role: str
    content: Any
    tool_name: str | None
    tool_calls: str | None
    timestamp: float
    source: str
    model: str | None
    session_started: float
    before: tuple[str, Any] | None = None
    """Who said what before it in its session, or at least how that begins; None if nobody did."""
    after: tuple[str, Any] | None = None


Order = Literal["relevance", "newest", "oldest"]


class SearchAnswer(NamedTuple):
    hits: list[Hit]
    cut: tuple[str, ...] = ()
    """Parts (`*part*`) that so many terms hold that only the most frequent were looked for."""
    order: Order = "relevance"
    """How the hits are ordered: what was asked for, or `newest` where there was nothing to rank by."""
    capped: bool = False
    """More match than these."""


class RankedMessage(NamedTuple):
    """A message that holds some of the words a conversation is looked for by."""

    id: int
    session_id: str
    root_id: str
    kind: str
    role: str
    length: int
    timestamp: float
    score: float
    """How well it fits, from 0 up; all of one answer are comparable, those of two are not quite."""


class RankedBlock(NamedTuple):
    """The same of a few neighbouring messages: those of the session from the first to the last id."""

    session_id: str
    root_id: str
    kind: str
    first_id: int
    last_id: int
    score: float


class DayOf(NamedTuple):
    """A session in which something was said on a day that was named."""

    session_id: str
    root_id: str
    kind: str
    message_id: int
    """The first thing said that day."""
    timestamp: float


class Candidates(NamedTuple):
    """What conversations are ranked from."""

    messages: list[RankedMessage]
    blocks: list[RankedBlock]
    days: list[DayOf]
    order: Order = "relevance"
    """`newest` if every word is so common that there is nothing to rank by; then there are messages only."""
    waiting: int = 0
    total: int = 0


class SearchResults(list[dict[str, Any]]):
    """A list of results, which also says how it came about."""

    indexing: tuple[int, int] | None = None
    """(done, total) while many messages are not indexed yet. None of them is missing from the results; conversations
    are ranked more roughly."""
    cut: tuple[str, ...] = ()
    """Parts (`*part*`) that so many terms hold that only the most frequent were looked for."""
    order: Order = "relevance"
    """`newest` also where that was not asked for: every word is so common that there is nothing to rank by."""
    capped: bool = False
    """More match than the limit let in: `offset` gives the next of them."""
    partial: bool = False
    """No message holds all the words; in these, some words were found as parts of longer ones (see `parts`)."""
    parts: tuple[str, ...] = ()
    """The words that were found as parts of longer ones."""
    relaxed: bool = False
    """Nothing matches all of what was typed; these are the nearest, best first."""


class Health(NamedTuple):
    """What `verify()` found. Nothing is repaired by looking."""

    path: Path
    sessions: int
    messages: int
    damage: tuple[str, ...] = ()
    """What is wrong with the stored truth. Empty is good."""
    drift: tuple[str, ...] = ()
    """Derived data that differs from the rows; put right by the next catch-up or by `repair`."""
    waiting: int = 0
    notes: tuple[str, ...] = ()
    """What keeps the store from being used, though nothing in it is wrong."""

    @property
    def ok(self) -> bool:
        return not self.damage and not self.drift

    def lines(self) -> list[str]:
        lines = [
            f"{self.path}: {format_count(self.sessions, 'session')}, {format_count(self.messages, 'message')}"
        ]
        lines += [f"damaged: {line}" for line in self.damage]
        lines += [f"out of step: {line}" for line in self.drift]
        if self.waiting:
            waiting = format_count(self.waiting, "message is", "messages are")
            lines.append(f"{waiting} not indexed yet; searches read them directly")
        lines += self.notes
        lines.append("ok" if self.ok else "not ok: run `hermes sessions repair`")
        return lines


class Repair(NamedTuple):
    """What `repair` did or, when only asked to look, would do."""

    path: Path
    done: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    kept: Path | None = None
    """The damaged file, kept aside untouched."""
    ok: bool = True

    def lines(self) -> list[str]:
        lines = [str(self.path)] if not self.done else [*self.done]
        lines += [f"lost: {line}" for line in self.lost]
        if self.kept:
            lines.append(f"the damaged file is kept as {self.kept}")
        return lines


class Backup(NamedTuple):
    path: Path
    size: int
    sessions: int
    messages: int


class Key(NamedTuple):
    """A key for encryption at rest, and where it is."""

    key: bytes
    where: str
    file: str | None = None

    def __repr__(self) -> str:
        return f"Key(where={self.where!r})"


class Converted(NamedTuple):
    """What `encrypt` or `decrypt` did."""

    path: Path
    changed: bool
    """False if the store itself was so already."""
    sessions: int
    messages: int
    backups: tuple[Path, ...]
    """Those that were converted with it."""
    left: tuple[str, ...]
    """What is still as it was, a line each."""
    files: tuple[Path, ...] = ()
    """Files beside the store that were sealed with it, or opened."""
    removed: tuple[Path, ...] = ()
    """Plain copies that were removed, because that was asked for."""
    plain: tuple[PlainFiles, ...] = ()
    """What stays readable beside an encrypted store."""


class PlainFiles(NamedTuple):
    """Files of one class that anybody who gets at the disk can read."""

    what: str
    files: tuple[Path, ...]
    tells: bool
    """Whether they may hold what people said."""
    advice: str = ""


class Optimized(NamedTuple):
    before: int
    after: int

    @property
    def ok(self) -> bool:
        return True

    def lines(self) -> list[str]:
        return [f"{self.before / 1e6:.1f} MB -> {self.after / 1e6:.1f} MB"]


class Collected(NamedTuple):
    """Attachments that nothing referred to any more, and are gone."""

    blobs: int
    bytes: int


class Imported(NamedTuple):
    """What an import did with each session it was given."""

    added: tuple[str, ...]
    skipped: tuple[str, ...]
    renamed: dict[str, str]
    """Sessions whose id belonged to a different one here, and the new id each was given."""
    detached: tuple[str, ...]
    """Sessions whose parent was neither here nor in the import."""
    messages: int
    incomplete: tuple[str, ...] = ()
    """Sessions that carry messages of others which were neither here nor in the import; importing those later helps."""
    taken_over: Mapping[str, int] = MappingProxyType({})
    """What of a trusted import steers behaviour, counted by name: `system prompt`, `directory`, `chat key`."""
    left_out: Mapping[str, int] = MappingProxyType({})
    """The same of an import without trust, which does not take it over."""
    grown: Mapping[str, int] = MappingProxyType({})
    """Sessions that were here and got messages, and branches that were made, with the number of messages."""
    branched: Mapping[str, str] = MappingProxyType({})
    """Sessions that went on here and in the import, and the branch that holds the messages of the import."""
    newer_here: Mapping[str, int] = MappingProxyType({})
    """Sessions that are here whole, with the number of messages that the import does not have."""
    updated: tuple[str, ...] = ()
    """Sessions that were here of which a title, tags, an end, rewinds or counters were taken over."""
    in_use: tuple[str, ...] = ()
    """Sessions that were not grown because somebody is working in them now."""
    restored: tuple[str, ...] = ()
    """Sessions that a trusted import brought back from the trash. If they got messages, they are in `grown`, too."""


class Fingerprint(NamedTuple):
    """Digests by which a deleted session is recognised in a copy of its store."""

    session: frozenset[str] = frozenset()
    messages: frozenset[str] = frozenset()

    def __or__(self, other: Fingerprint) -> Fingerprint:
        """Of two sessions that had the same id, one after the other."""
        return Fingerprint(self.session | other.session, self.messages | other.messages)

    def is_proof_of(self, other: Fingerprint) -> bool:
        """Whether what was found in another file is this session, and can be no other of the same id."""
        if other.messages:
            return bool(self.messages & other.messages)
        return bool(self.session & other.session)

    def can_be(self, other: Fingerprint) -> bool:
        """Whether it is this session where every file is a copy of the same store: also if it said other things."""
        return not other.session or bool(self.session & other.session) or self.is_proof_of(other)

    def encode(self) -> dict[str, list[str]]:
        return {name: sorted(marks) for name, marks in self._asdict().items()}


class Erased(NamedTuple):
    """What became of the copies of a store that may hold deleted sessions, a line each."""

    done: tuple[str, ...]
    left: tuple[str, ...]
    """What is a person's own, or perhaps no copy."""
    unfinished: tuple[str, ...]
    """What could not be done now."""


class Scrubbed(NamedTuple):
    """One place that held a secret: a column, a copy of the store, or a file."""

    place: str
    occurrences: int
    sessions: tuple[str, ...] = ()


class ScrubReceipt(NamedTuple):
    """What `scrub` removed or, in a dry run, would remove. It names places and sessions, never the secret."""

    places: tuple[Scrubbed, ...] = ()
    left: tuple[str, ...] = ()
    """Where the secret could not be removed, and why."""
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        return not self.left

    @property
    def occurrences(self) -> int:
        return sum(place.occurrences for place in self.places)

    @property
    def sessions(self) -> tuple[str, ...]:
        return tuple(sorted({session for place in self.places for session in place.sessions}))

    def lines(self) -> list[str]:
        lines = [f"{place.place}: {place.occurrences}" for place in self.places]
        lines.append(f"{'found' if self.dry_run else 'removed'}: {self.occurrences}")
        if self.sessions:
            lines.append(f"sessions: {', '.join(self.sessions)}")
        return lines + [f"left: {line}" for line in self.left]
