"""The engine interface: the operations that the store needs from a database engine.

Managers use plain SQL with `?` placeholders through a `Reader` or a `Writer`. SQL for one engine only is in
the package of that engine, behind the methods of `Engine`. A `Reader` is one snapshot: all its results belong
to the same point in time. A `Writer` is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple, Protocol, TypeVar

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
        ScrubReceipt,
        SearchAnswer,
        SearchRequest,
    )

Row = tuple[Any, ...]
T = TypeVar("T")


class Secret(Protocol):
    """A secret that is to be removed. The methods find it in data in all its spellings, and remove it."""

    @property
    def folded(self) -> Secret:
        """The secret with the normalisation that stored tags have (case folding and NFC)."""

    def remove_from_bytes(self, data: bytes) -> tuple[bytes, int]:
        """Return (`data` without the secret, number of times that the secret occurred in it)."""

    def mask_in_bytes(self, data: bytes) -> tuple[bytes, int]:
        """Overwrite the secret in `data` without changing the length of the data. Return (new data, number of
        times that the secret occurred)."""

    def clean_name(self, name: str) -> str:
        """Return a file name, or another short text about a place, without the secret."""


class FileReader(Protocol):
    """A reader for files beside the store. The files may be sealed with a key derived from the key of the
    store."""

    def read(self, file: Path, most: int | None = None, *, anywhere: bool = False) -> bytes:
        """Return the plain content of `file`, or its first `most` bytes. With `anywhere`, accept a sealed
        file that was moved from another place."""


class Unreachable(Exception):
    """Raised if a table contains rows that its SQL indexes do not find. Engines report this as damage."""


class Outcome(NamedTuple):
    """The result, or the error, of one call that `Engine.run_together` made, and whether the call wrote to the
    store."""

    result: Any
    problem: BaseException | None
    has_written: bool


class Reader(Protocol):
    def rows(self, sql: LiteralString, *args: object) -> list[Row]: ...
    def row(self, sql: LiteralString, *args: object) -> Row | None: ...
    def value(self, sql: LiteralString, *args: object) -> Any:
        """Run a SELECT, and return the first column of its first row. None if there is no row."""

    def each(self, sql: LiteralString, *args: object) -> Iterator[Row]:
        """Run a SELECT, and yield its rows one at a time. Used if the result may not fit in memory."""

    def dicts(self, sql: LiteralString, *args: object) -> list[dict[str, Any]]: ...
    def dict(self, sql: LiteralString, *args: object) -> dict[str, Any] | None: ...


class Writer(Reader, Protocol):
    repeating: bool
    """True if this work runs a second time, because its first commit may have been lost."""

    def run(self, sql: LiteralString, *args: object) -> int:
        """Run a statement that changes rows. Return the number of changed rows."""

    def insert(self, sql: LiteralString, *args: object) -> int:
        """Run an INSERT. Return the integer key of the new row."""


class Access(Protocol):
    """An interface for reading and writing the store: all its rows (`Engine`) or only the rows that one person
    can see (`Scoped`)."""

    @property
    def path(self) -> Path: ...
    @property
    def read_only(self) -> bool: ...

    def read(self, *, settled: bool = False, wait: bool = True) -> AbstractContextManager[Reader]:
        """Open a snapshot. With `settled`, its derived columns are up to date.

        Without `wait`, the update of derived columns is tried only once. If another process then holds the
        write lock, the snapshot is opened without the update.
        """

    def write(self, work: Callable[[Writer], T], *, share: bool = True, repeatable: bool = True) -> T:
        """Run `work` in one transaction. The transaction is durable when this method returns.

        With `share`, the transaction can join a group commit with short writes of other threads; long work
        passes `share=False`. If a commit is lost, `work` runs again, provided that `repeatable` is true;
        otherwise an error is raised.
        """

    def share_deadline(self) -> AbstractContextManager[None]:
        """Return a context manager. All searches that this thread makes inside it have together the time limit
        of a single search."""

    def search(self, tree: Node, request: SearchRequest) -> SearchAnswer:
        """Return the messages that match the query tree. `request` contains the filters, the number of messages
        to return, and their order."""

    def hits_of(self, ids: Sequence[int]) -> list[Hit]:
        """Return the messages with these ids in the form of search hits. Deleted messages are left out."""

    def candidates(
        self,
        terms: Sequence[str],
        filters: MessageFilter,
        *,
        must: Node | None = None,
        days: Sequence[tuple[float, float]] = (),
    ) -> Candidates:
        """Return the best few hundred messages and blocks that contain any of these index terms.

        With `must`, only messages and blocks that can match that tree are returned. `days` are time ranges:
        sessions with a message in one of them are returned too.
        """

    def delete_messages(self, writer: Writer, session_id: str) -> int:
        """Delete a session's messages and their index entries, in the caller's transaction. Return the number
        of messages."""


class Engine(Access, Protocol):
    """An interface to the whole store: all its rows, and its maintenance."""

    @property
    def spool_allowed(self) -> bool:
        """Whether failed writes may be spooled in plain text beside the store."""

    def run_together(self, calls: Sequence[Callable[[], object]]) -> list[Outcome]:
        """Run calls that use this store, one after the other, and let their writes share transactions.

        When this returns, all writes are committed and survive a crash of the process. They survive a power failure
        after `sync`. An error in a call does not affect the others. If a shared commit fails, its calls run again, each
        with transactions of its own; so a call must have no effects outside the store. A call does not see the writes
        of calls before it. Signal handlers must not run in this thread.
        """

    def sync(self) -> None:
        """Wait until all earlier writes of all threads are on disk."""

    def scoped(self, owners: tuple[str, ...]) -> Scoped:
        """Return access to the rows of these owners only. All other rows can be neither read nor written
        through it."""

    def catch_up(self, seconds: float) -> None:
        """Index the messages that are not indexed yet, in short transactions, for about `seconds` at most."""

    def fingerprint(self, reader: Reader, session_id: str) -> Fingerprint:
        """Return the fingerprint of a session, by which the session can be identified in a copy of the store."""

    def texts_of(self, reader: Reader, session_id: str) -> Iterator[str]:
        """Yield the texts of a session's messages, tool calls and reasoning, including bytes that are not
        valid UTF-8."""

    def erase_deleted(self, sessions: Mapping[str, Fingerprint | None]) -> None:
        """Rewrite the store and its copies so that no byte of the deleted sessions remains.

        If some of the work must be done later, raise StoreBusy after doing the rest. A session without a
        fingerprint is removed only from the store and from the store's own backups.
        """

    def shrink(self, pages_at_once: int = 500) -> Optimized:
        """Return the free space in the store file to the file system, in steps. Other processes can write to
        the store between the steps."""

    def scrub(self, secret: Secret, *, dry_run: bool) -> ScrubReceipt:
        """Remove a secret from every row, from the index and from the copies beside the store."""

    def vacuum(self) -> None: ...
    def optimize(self) -> Optimized: ...
    def verify(self) -> Health: ...
    def sizes(self) -> dict[str, int]:
        """Return the bytes on disk by purpose: `rows`, `index`, `attachments`, `free`, `log`."""

    def file_sizes(self) -> dict[str, int]:
        """Return the sizes in bytes of the store file (`store`) and of its log (`log`). No row is read."""

    def diagnose(self, *, deep: bool = False) -> Diagnosis: ...
    def backup(self, target: Path | None) -> Backup: ...
    def raw(self) -> Any:
        """Return a separate database connection for plain SQL. It has the methods `execute`, `fetchone` and
        `fetchall`, and its rows can be read by index and by name."""

    def write_raw(self, work: Callable[[Any], T]) -> T:
        """Run `work` in one transaction with a connection like that of `raw`, then close the connection."""

    def sealed_files(self) -> FileReader:
        """Return a reader for the files beside the store. The files may be sealed with a key derived from the
        key of the store."""

    def close(self) -> None: ...


class Scoped(Access, Protocol):
    """An interface to the rows of some owners. All other rows can be neither read nor written."""

    def owning(self, *session_ids: str) -> Access:
        """Return an interface for one write. The transaction of that write checks that the sessions
        `session_ids` belong to the owners of this interface."""
