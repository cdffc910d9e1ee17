"""All errors that this project raises on purpose, in one tree.

    HermesError
    ├── InvalidArgument            (ValueError)          an argument is invalid
    │   ├── InvalidTitle           (ValueError)          the title is too long or already in use
    │   └── MissingValue           (sqlite3.IntegrityError)  a required value is None
    ├── BadConfig                                        config.yaml is invalid
    ├── UnsafeHome                                       another user owns the home or can write to it
    ├── StartedByTool                                    a tool of the agent started a command for people
    ├── SealBroken                                       a sealed file was changed, moved or damaged
    ├── OutputRefused                                    an output file cannot have this name
    │   └── OutputExists                                 another file has this name
    ├── ExportCancelled                                  the user cancelled an export; no file was written
    └── StoreError
        ├── UnknownSession         (sqlite3.IntegrityError)  the session or its parent does not exist
        ├── ConstraintFailed       (sqlite3.IntegrityError)  plain SQL violated a constraint of the schema
        │   └── SessionInTrash     (sqlite3.IntegrityError)  the trash has a session with this id
        ├── AlreadyContinued                                 another process has compressed the session
        ├── LeaseLost                                        another process has taken over the conversation
        ├── LeaseHeld                                        another process holds the conversation's lease
        ├── StoreBusy              (sqlite3.OperationalError)  the store was locked until the deadline
        ├── SearchTimeout          (sqlite3.OperationalError)  too many unindexed messages to read in time
        ├── StoreFull              (sqlite3.OperationalError)  the disk is full
        ├── StoreReadOnly          (sqlite3.OperationalError)  the store is read-only, or was opened read-only
        │   └── StoreTooOld        (sqlite3.OperationalError)  read-only, and not migrated yet
        ├── StoreDamaged           (sqlite3.DatabaseError)   the file is damaged; the message says what to do
        │   └── IndexDamaged       (sqlite3.DatabaseError)   only the search index is damaged; it is rebuilt
        ├── StoreLocked            (sqlite3.DatabaseError)   encrypted; the key or the cipher is missing
        │   └── WrongKey           (sqlite3.DatabaseError)   the key is wrong
        ├── StoreTooNew            (sqlite3.DatabaseError)   written by a newer version
        ├── StoreClosed            (sqlite3.ProgrammingError)
        ├── SecondLibrary          (sqlite3.OperationalError)  another SQLite library opens an open store
        ├── MigrationFailed        (sqlite3.DatabaseError)
        ├── BackupFailed           (sqlite3.OperationalError)
        └── StoreFailed            (sqlite3.OperationalError)  any other error of the engine

Programs written for the reference can catch the types in parentheses. `make_error()` creates the class with
both types when the error is raised, so that nothing imports `sqlite3` before an error occurs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class HermesError(Exception):
    """The base class. The message of every subclass is one line for a person."""

    documented: str = ""
    """Name of the `sqlite3` class that the reference documents for such an error, if any."""

    spooled: Path | None = None
    """The spool file that contains the data that could not be written; the data is stored later. None if
    nothing was spooled."""


class InvalidArgument(HermesError, ValueError):
    pass


class InvalidTitle(InvalidArgument):
    pass


class MissingValue(InvalidArgument):
    documented = "IntegrityError"


class BadConfig(HermesError):
    pass


class UnsafeHome(HermesError):
    pass


class StartedByTool(HermesError):
    pass


class SealBroken(HermesError):
    pass


class OutputRefused(HermesError):
    pass


class OutputExists(OutputRefused):
    pass


class ExportCancelled(HermesError):
    pass


class StoreError(HermesError):
    pass


class UnknownSession(StoreError):
    documented = "IntegrityError"


class ConstraintFailed(StoreError):
    documented = "IntegrityError"


class SessionInTrash(ConstraintFailed):
    """The trash contains a session with this id, so the id cannot be used for another session."""


class AlreadyContinued(StoreError):
    pass


class LeaseLost(StoreError):
    pass


class LeaseHeld(StoreError):
    def __init__(self, message: str, holder: Any = None) -> None:
        super().__init__(message)
        self.holder = holder
        """The `Lease` of the current holder, to be shown to the person who decides what to do."""


class StoreBusy(StoreError):
    documented = "OperationalError"


class SearchTimeout(StoreError):
    """A search could not read all unindexed messages in time. This error is raised so that a search never
    returns incomplete results."""

    documented = "OperationalError"


class StoreFull(StoreError):
    documented = "OperationalError"


class StoreReadOnly(StoreError):
    documented = "OperationalError"


class StoreTooOld(StoreReadOnly):
    pass


class StoreDamaged(StoreError):
    documented = "DatabaseError"


class IndexDamaged(StoreDamaged):
    pass


class StoreLocked(StoreError):
    documented = "DatabaseError"


class WrongKey(StoreLocked):
    pass


class StoreTooNew(StoreError):
    documented = "DatabaseError"


class StoreClosed(StoreError):
    documented = "ProgrammingError"


class SecondLibrary(StoreError):
    documented = "OperationalError"


class MigrationFailed(StoreError):
    documented = "DatabaseError"


class BackupFailed(StoreError):
    documented = "OperationalError"


class StoreFailed(StoreError):
    documented = "OperationalError"


def make_error(kind: type[HermesError], message: str) -> HermesError:
    """Return an instance of `kind` that is also an instance of the `sqlite3` class named by
    `kind.documented`, if there is one. Used as `raise make_error(X, "…")`."""
    return _get_twin(kind)(message)


_twins: dict[type[HermesError], type[HermesError]] = {}


def _get_twin(kind: type[HermesError]) -> type[HermesError]:
    if not kind.documented:
        return kind
    if kind not in _twins:
        try:
            import sqlite3

            bases = (kind, getattr(sqlite3, kind.documented))
        except (OSError, ImportError, AttributeError):
            return kind  # sqlite3 cannot be imported, for example without free file descriptors
        _twins[kind] = type(kind.__name__, bases, {"__module__": kind.__module__})
    return _twins[kind]
