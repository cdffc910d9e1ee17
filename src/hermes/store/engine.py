"""The seam: what a store needs of a database engine, and nothing else.

Managers speak plain SQL with `?` placeholders through a `Reader` or a `Writer`. SQL that only one engine
understands lives in that engine's package and is reached through the verbs of `Engine`. A `Reader` is one
snapshot: everything read through it belongs to the same moment. A `Writer` is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, Protocol, TypeVar

if TYPE_CHECKING:
    from hermes.store.findings import Diagnosis
    from hermes.store.query_tree import Node
    from hermes.store.values import (
        Backup,
        Candidates,
        Fingerprint,
        Health,
        Hit,
        MessageFilter,
        Optimized,
        Order,
        ScrubReceipt,
        SearchAnswer,
    )

Row = tuple[Any, ...]
T = TypeVar("T")


class Secret(Protocol):
    """A secret in all its spellings, which can be taken out of data."""

    @property
    def folded(self) -> Secret:
        """The secret as a tag is stored."""

    def remove_from_bytes(self, data: bytes) -> tuple[bytes, int]:
        """The data without the secret, and how often it occurred."""

    def mask_in_bytes(self, data: bytes) -> tuple[bytes, int]:
        """The data at its old length, with the secret overwritten."""

    def clean_name(self, name: str) -> str:
        """A name without the secret."""


class FileReader(Protocol):
    """Reads files beside the store, which may be sealed with its key."""

    def read(self, file: Path, most: int | None = None, *, anywhere: bool = False) -> bytes:
        """The plain content, or its first `most` bytes. `anywhere` also takes a file that was sealed elsewhere."""


class Unreachable(Exception):
    """Rows are there that no index leads to. An engine tells it as damage."""


class Reader(Protocol):
    def rows(self, sql: LiteralString, *args: object) -> list[Row]: ...
    def row(self, sql: LiteralString, *args: object) -> Row | None: ...
    def value(self, sql: LiteralString, *args: object) -> Any:
        """The first column of the first row; None if there is no row."""

    def each(self, sql: LiteralString, *args: object) -> Iterator[Row]:
        """Row by row, for results that need not fit in memory."""

    def dicts(self, sql: LiteralString, *args: object) -> list[dict[str, Any]]: ...
    def dict(self, sql: LiteralString, *args: object) -> dict[str, Any] | None: ...


class Writer(Reader, Protocol):
    repeating: bool
    """True when this work is done a second time because its first commit may not have lasted."""

    def run(self, sql: LiteralString, *args: object) -> int:
        """Run a change; the number of rows it touched."""

    def insert(self, sql: LiteralString, *args: object) -> int:
        """Run an INSERT; the integer key of the new row."""


class Access(Protocol):
    """What verbs need: the whole store, or the part of it that one person may see."""

    @property
    def path(self) -> Path: ...
    @property
    def read_only(self) -> bool: ...

    def read(self, *, settled: bool = False, wait: bool = True) -> AbstractContextManager[Reader]:
        """One snapshot. `settled` demands that derived columns are in step with the rows in it.

        Without `wait` that is tried once, and the columns are read as they are if another process holds the write lock.
        """

    def write(self, work: Callable[[Writer], T], *, share: bool = True, repeatable: bool = True) -> T:
        """Do `work` in one transaction, durable when this returns.

        `share` lets it join a commit with short writes of other threads; long work sets it False. `repeatable`
        says that doing it again after a lost commit is harmless.
        """

    def share_deadline(self) -> AbstractContextManager[None]:
        """Inside it all searches of this thread together have the time of one."""

    def search(
        self,
        tree: Node,
        filters: MessageFilter,
        limit: int,
        offset: int,
        order: Order = "relevance",
        *,
        once: bool = False,
    ) -> SearchAnswer:
        """The messages that match; with `once` the first of each conversation, as far as a few thousand go."""

    def hits_of(self, ids: Sequence[int]) -> list[Hit]:
        """These messages as a search shows them, as far as they are there."""

    def candidates(
        self,
        terms: Sequence[str],
        filters: MessageFilter,
        *,
        must: Node | None = None,
        days: Sequence[tuple[float, float]] = (),
    ) -> Candidates:
        """The messages and blocks that hold any of these index terms, the best few hundred; with `must`, only those
        that may match it. And the sessions in which something was said in a stretch of time."""

    def delete_messages(self, writer: Writer, session_id: str) -> int:
        """Delete a session's messages and what the search index knows of them, in the caller's transaction."""


class Engine(Access, Protocol):
    """The whole store, and its upkeep."""

    @property
    def spool_allowed(self) -> bool:
        """Whether what cannot be written may be kept beside the store, in plain text."""

    def scoped(self, owners: tuple[str, ...]) -> Scoped:
        """The store in which nobody's rows exist but those of these owners."""

    def catch_up(self, seconds: float) -> None:
        """Index what waits, in short transactions, for at most about this long."""

    def fingerprint(self, reader: Reader, session_id: str) -> Fingerprint:
        """By what a session is known again in a copy of the store."""

    def texts_of(self, reader: Reader, session_id: str) -> Iterator[str]:
        """The texts of a session's messages, tool calls and reasoning, also where another program wrote bytes that are
        not UTF-8."""

    def erase_deleted(self, sessions: Mapping[str, Fingerprint | None]) -> None:
        """Rewrite the store and its copies so that no byte of deleted sessions is left in them; StoreBusy, when all
        that can be done is done, if there is more to do later. Without a fingerprint only our own backups are known."""

    def shrink(self, pages_at_once: int = 500) -> Optimized:
        """Give the room of what was deleted back to the file system, in steps that let others write between them."""

    def scrub(self, secret: Secret, *, dry_run: bool) -> ScrubReceipt:
        """Take a secret out of every row, of the index, and of the copies beside the store."""

    def vacuum(self) -> None: ...
    def optimize(self) -> Optimized: ...
    def verify(self) -> Health: ...
    def sizes(self) -> dict[str, int]:
        """What the store takes on disk in bytes: `rows`, `index`, `attachments`, `free`, `log`."""

    def diagnose(self, *, deep: bool = False) -> Diagnosis: ...
    def backup(self, target: Path | None) -> Backup: ...
    def raw(self) -> Any:
        """Plain SQL on a connection of its own: execute, fetchone, fetchall, rows by index and by name."""

    def write_raw(self, work: Callable[[Any], T]) -> T:
        """Do `work` in one transaction with such a connection, which is then closed."""

    def sealed_files(self) -> FileReader:
        """How the files beside the store are read, which may be sealed with its key."""

    def close(self) -> None: ...


class Scoped(Access, Protocol):
    """A store in which other people's rows do not exist, neither for reading nor for writing."""

    def owning(self, *session_ids: str) -> Access:
        """For one write: these sessions must be the owners', which is checked in the same transaction."""
