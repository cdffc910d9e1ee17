"""Values that the store accepts and returns. They are immutable and independent of engines and surfaces.

They are named tuples, because each dataclass adds half a millisecond to the start of every `hermes` command.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from hermes.text import format_count


class MessageFilter(NamedTuple):
    """The filters of a message search. None means no restriction. An empty `sources` matches nothing."""

    sources: tuple[str, ...] | None = None
    exclude_sources: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    after: float | None = None
    """Only messages at or after this time."""
    before: float | None = None
    """Only messages before this time."""
    tool: str | None = None
    """Only results or calls of this tool, case-insensitive."""
    title: str | None = None
    """Part of the conversation's title, case-insensitive."""
    model: str | None = None
    """Part of the model name."""
    workspace: str | None = None
    """The workspace directory, or its last component."""
    kinds: tuple[str, ...] | None = None
    errors_only: bool = False
    """Only results of failed tool calls."""
    calls_only: bool = False
    """Only messages that call tools, and results of tools."""
    pinned: bool | None = None
    """True: only pinned conversations. False: only conversations that are not pinned."""
    archived: bool | None = None
    """True: only archived conversations. False: only conversations that are not archived."""
    trashed: bool = False
    """True: only conversations in the trash. False: only conversations outside the trash."""
    tags: tuple[str, ...] = ()
    """Only conversations with all of these tags."""
    exclude_tags: tuple[str, ...] = ()
    but_conversations: tuple[str, ...] = ()
    """Roots of conversations to exclude. All sessions of these conversations are excluded."""


class Hit(NamedTuple):
    """A matching message, with the columns of its session that a result shows."""

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
    """The role and content of the previous message in the session. The content may be truncated. None if
    there is no previous message."""
    after: tuple[str, Any] | None = None


Order = Literal["relevance", "newest", "oldest"]


class SearchRequest(NamedTuple):
    """A request for a search: the filter of messages, the number of results, and their order."""

    message_filter: MessageFilter
    limit: int
    """The largest number of results. A negative number means no limit."""
    offset: int = 0
    order: Order = "relevance"
    once: bool = False
    """Return only the first message of each conversation, chosen from the first few thousand messages. The
    offset is ignored."""


class SearchAnswer(NamedTuple):
    hits: list[Hit]
    cut: tuple[str, ...] = ()
    """Parts (`*part*`) that are contained in too many terms. Only the most frequent of these terms were
    searched."""
    order: Order = "relevance"
    """The order of the hits: the requested one, or `newest` if ranking was impossible."""
    capped: bool = False
    """Whether more messages match than are in `hits`."""


class RankedMessage(NamedTuple):
    """A message that contains some of the words of a conversation search."""

    id: int
    session_id: str
    root_id: str
    kind: str
    role: str
    length: int
    timestamp: float
    score: float
    """The relevance, 0 or more. Scores from different searches are only roughly comparable."""


class RankedBlock(NamedTuple):
    """A block that contains some of the words of a conversation search. `first_id` and `last_id` are the ids of
    its first and last message."""

    session_id: str
    root_id: str
    kind: str
    first_id: int
    last_id: int
    score: float


class DayOf(NamedTuple):
    """A session that has a message on a day for which a conversation search asks."""

    session_id: str
    root_id: str
    kind: str
    message_id: int
    """The session's first message on that day."""
    timestamp: float


class Candidates(NamedTuple):
    """The messages, blocks and sessions that an engine finds for a conversation search. The search ranks
    conversations by them."""

    messages: list[RankedMessage]
    blocks: list[RankedBlock]
    days: list[DayOf]
    order: Order = "relevance"
    """`newest` if all words are too frequent for ranking. Then only messages are returned."""
    waiting: int = 0
    """The number of messages that are not indexed yet, or are in no block yet. A few unindexed messages count
    as 0."""
    total: int = 0
    """The approximate number of all messages."""


class SearchResults(list[dict[str, Any]]):
    """The results of a search as a list, with information about the search in attributes."""

    indexing: tuple[int, int] | None = None
    """(done, total) while many messages are not indexed yet. The results are still complete, but the ranking
    of conversations is less precise."""
    cut: tuple[str, ...] = ()
    """Parts (`*part*`) that are contained in too many terms. Only the most frequent of these terms were
    searched."""
    order: Order = "relevance"
    """The order of the results. If all words are too frequent for ranking, it is `newest`, even if relevance
    was requested."""
    capped: bool = False
    """Whether more messages match than the limit allows. A search with a higher `offset` returns the next
    ones."""
    partial: bool = False
    """True if no message contains all words as typed, so that some words were searched as parts of longer
    words. `parts` lists these words."""
    parts: tuple[str, ...] = ()
    """The words that were found as parts of longer words."""
    relaxed: bool = False
    """True if nothing matches the whole query. The results are then the nearest matches, best first."""


class Health(NamedTuple):
    """The result of `verify()`, which repairs nothing."""

    path: Path
    sessions: int
    messages: int
    damage: tuple[str, ...] = ()
    """Damage to sessions and messages. Empty if there is none."""
    drift: tuple[str, ...] = ()
    """Derived data that differs from the rows. The next catch-up or `repair` corrects it."""
    waiting: int = 0
    """The number of messages that are not indexed yet."""
    notes: tuple[str, ...] = ()
    """Problems that prevent the use of the store, although its data is intact."""

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
    """The result of `repair`. With `check_only`, it describes what a repair would do."""

    path: Path
    done: tuple[str, ...] = ()
    """What was found and repaired, one line each."""
    lost: tuple[str, ...] = ()
    """What could not be saved, one line each."""
    kept: Path | None = None
    """The path where the damaged file is kept unchanged."""
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
    """A key for the encryption of a store, and the place where the key is kept. The `repr` does not contain the
    key."""

    key: bytes
    where: str
    file: str | None = None

    def __repr__(self) -> str:
        return f"Key(where={self.where!r})"


class Converted(NamedTuple):
    """The result of `encrypt` or `decrypt`."""

    path: Path
    changed: bool
    """False if the store was already in the requested form."""
    sessions: int
    messages: int
    backups: tuple[Path, ...]
    """The backups that were converted too."""
    left: tuple[str, ...]
    """Files that were not converted, one line each."""
    files: tuple[Path, ...] = ()
    """Files beside the store that were sealed or unsealed together with it."""
    removed: tuple[Path, ...] = ()
    """Plain copies that were removed on request."""
    plain: tuple[PlainFiles, ...] = ()
    """Files that remain readable beside an encrypted store."""


class PlainFiles(NamedTuple):
    """The readable files of one kind in the home of an encrypted store. Anyone with access to the disk can read
    them."""

    what: str
    files: tuple[Path, ...]
    tells: bool
    """Whether the files can contain text of conversations."""
    advice: str = ""


class Optimized(NamedTuple):
    """The total size of the store file and its log in bytes, before and after `optimize`."""

    before: int
    after: int

    @property
    def ok(self) -> bool:
        return True

    def lines(self) -> list[str]:
        return [f"{self.before / 1e6:.1f} MB -> {self.after / 1e6:.1f} MB"]


class Collected(NamedTuple):
    """The number and the size of the blobs that `collect` removed, because no message referred to them."""

    blobs: int
    bytes: int


class Imported(NamedTuple):
    """The results of an import, by session."""

    added: tuple[str, ...]
    skipped: tuple[str, ...]
    renamed: dict[str, str]
    """Sessions that got a new id, because their id belonged to a different session in this store."""
    detached: tuple[str, ...]
    """Sessions whose parent is neither in this store nor in the import."""
    messages: int
    incomplete: tuple[str, ...] = ()
    """Sessions that carry messages missing from both this store and the import. A later import can complete
    them."""
    taken_over: Mapping[str, int] = MappingProxyType({})
    """Imported values that control behaviour, counted by name: `system prompt`, `directory`, `chat key`.
    Always empty for an untrusted import."""
    left_out: Mapping[str, int] = MappingProxyType({})
    """Values that control behaviour and that an untrusted import left out, counted by name."""
    grown: Mapping[str, int] = MappingProxyType({})
    """Existing sessions that got messages, and new branches. The value is the number of added messages."""
    branched: Mapping[str, str] = MappingProxyType({})
    """Sessions that diverged. The value is the new branch, which contains the messages of the import."""
    newer_here: Mapping[str, int] = MappingProxyType({})
    """Sessions for which this store has every imported message and more. The value is the number of messages
    that the import lacks."""
    updated: tuple[str, ...] = ()
    """Existing sessions whose title, tags, end, rewinds or counters changed."""
    in_use: tuple[str, ...] = ()
    """Sessions that were not extended because a process is working in them."""
    restored: tuple[str, ...] = ()
    """Sessions that a trusted import restored from the trash. If they got messages, they are also in `grown`.
    """


class Fingerprint(NamedTuple):
    """Digests that identify a deleted session in a copy of its store."""

    session: frozenset[str] = frozenset()
    messages: frozenset[str] = frozenset()

    def __or__(self, other: Fingerprint) -> Fingerprint:
        """Combine the fingerprints of two deleted sessions that had the same id, one after the other."""
        return Fingerprint(self.session | other.session, self.messages | other.messages)

    def is_proof_of(self, other: Fingerprint) -> bool:
        """Return whether `other`, the fingerprint of a session in another file, certainly belongs to the same
        session as this fingerprint. A different session can have the same id."""
        if other.messages:
            return bool(self.messages & other.messages)
        return bool(self.session & other.session)

    def can_be(self, other: Fingerprint) -> bool:
        """Return whether `other`, the fingerprint of a session in a copy of the same store, can belong to the
        same session as this fingerprint. The messages of the two may differ."""
        return not other.session or bool(self.session & other.session) or self.is_proof_of(other)

    def encode(self) -> dict[str, list[str]]:
        return {name: sorted(marks) for name, marks in self._asdict().items()}


class Erased(NamedTuple):
    """The result of erasing deleted sessions from the copies of a store. Each field has one line of text per
    file."""

    done: tuple[str, ...]
    left: tuple[str, ...]
    """Files that were not changed because they are personal or may not be copies of the store."""
    unfinished: tuple[str, ...]
    """Copies that could not be processed now."""


class Scrubbed(NamedTuple):
    """One place that contained a secret (a column, a copy of the store, or a file), and how often it contained
    it."""

    place: str
    occurrences: int
    sessions: tuple[str, ...] = ()


class ScrubReceipt(NamedTuple):
    """The result of `scrub`, or of its dry run. It names places and sessions, never the secret."""

    places: tuple[Scrubbed, ...] = ()
    left: tuple[str, ...] = ()
    """Places where the secret could not be removed, with the reason."""
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
