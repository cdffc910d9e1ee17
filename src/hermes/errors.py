"""Every error this project raises on purpose, in one tree.

    HermesError
    ├── InvalidArgument            (ValueError)          a caller's value cannot be used
    │   ├── InvalidTitle           (ValueError)          too long, or already in use
    │   └── MissingValue           (sqlite3.IntegrityError)  a required value is None
    ├── BadConfig                                        config.yaml makes no sense
    ├── UnsafeHome                                       others can write to the home, or own it
    ├── StartedByTool                                    a tool of the agent asked for what is a person's
    ├── SealBroken                                       a sealed file was changed, moved or damaged
    ├── OutputRefused                                    a file for a person cannot have this name
    │   └── OutputExists                                 because another file has it
    ├── ExportCancelled                                  the person ended an export; no file was written
    └── StoreError
        ├── UnknownSession         (sqlite3.IntegrityError)  no such session or parent
        ├── ConstraintFailed       (sqlite3.IntegrityError)  plain SQL broke a rule of the schema
        ├── AlreadyContinued                                 compressed before, by somebody else
        ├── LeaseLost                                        somebody else works in this conversation now
        ├── LeaseHeld                                        somebody else does, and was there first
        ├── StoreBusy              (sqlite3.OperationalError)  locked past the deadline
        ├── SearchTimeout          (sqlite3.OperationalError)  too many messages without an index to read in time
        ├── StoreFull              (sqlite3.OperationalError)  no room on the disk
        ├── StoreReadOnly          (sqlite3.OperationalError)  opened, or found, read-only
        │   └── StoreTooOld        (sqlite3.OperationalError)  and not migrated yet
        ├── StoreDamaged           (sqlite3.DatabaseError)   the file is broken; names the way out
        │   └── IndexDamaged       (sqlite3.DatabaseError)   only the search index is; it rebuilds itself
        ├── StoreLocked            (sqlite3.DatabaseError)   encrypted, and there is no key or no cipher for it
        │   └── WrongKey           (sqlite3.DatabaseError)   there is a key, but not its own
        ├── StoreTooNew            (sqlite3.DatabaseError)   written by a newer version
        ├── StoreClosed            (sqlite3.ProgrammingError)
        ├── SecondLibrary          (sqlite3.OperationalError)  another SQLite on the live file
        ├── MigrationFailed        (sqlite3.DatabaseError)
        ├── BackupFailed           (sqlite3.OperationalError)
        └── StoreFailed            (sqlite3.OperationalError)  anything else the engine reports

The types in brackets are what callers of the documented interface may catch. `make_error()` makes the
class that is both, at the moment it is raised, so that nothing imports `sqlite3` until something
has already gone wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class HermesError(Exception):
    """The root: whatever derives from it has a message fit for a person, in one line."""

    documented: str = ""
    """Name of the class in `sqlite3` that the documented interface promises, if any."""

    spooled: Path | None = None
    """Where what could not be written is kept, to be stored when the store is back; None if it is not kept."""


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
    """A session with this id lies in the trash, so that no other can be made under it."""


class AlreadyContinued(StoreError):
    pass


class LeaseLost(StoreError):
    pass


class LeaseHeld(StoreError):
    def __init__(self, message: str, holder: Any = None) -> None:
        super().__init__(message)
        self.holder = holder
        """The `Lease` of whoever is working there; for the person who decides what to do about it."""


class StoreBusy(StoreError):
    documented = "OperationalError"


class SearchTimeout(StoreError):
    """A search did not finish reading the messages that are not indexed yet. It never returns fewer instead."""

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
    """An instance of `kind` that is also the documented `sqlite3` error: `raise make_error(X, "…")`."""
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
            return kind  # no file can be opened, or another thread has failed to load it for that reason
        _twins[kind] = type(kind.__name__, bases, {"__module__": kind.__module__})
    return _twins[kind]
