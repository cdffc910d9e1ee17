"""SessionDB: the public interface of the store, with the methods for the whole store.

`documented_verbs`, `conversation_verbs` and `curation_verbs` contain the methods that it shares with
`ScopedStore`. `chat_verbs` contains the methods for a gateway.

A handle can be shared between threads, and several processes can open the same file. A change is durable when
its method returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from hermes import errors, home
from hermes.db.chat_verbs import ChatVerbs
from hermes.db.conversation_verbs import ConversationVerbs
from hermes.db.curation_verbs import CurationVerbs
from hermes.db.documented_verbs import DocumentedVerbs
from hermes.db.handle import Row
from hermes.home_check import check_home
from hermes.store.arguments import check_database_path, check_optional_path
from hermes.store.engine_choice import (
    SCHEMA_VERSION,
    diagnose_file,
    explain_open_failure,
    open_engine,
    remove_readable_copy,
    repair_file,
    restore_file,
)
from hermes.store.meta import Meta
from hermes.store.sessions import titles
from hermes.store.sessions.messages import Messages, NewMessage
from hermes.store.sessions.sessions import NewSession, Sessions
from hermes.store.sessions.titles import Titles

if TYPE_CHECKING:
    from hermes.db.scoped_store import ScopedStore
    from hermes.store.engine import Access, Outcome
    from hermes.store.findings import Diagnosis
    from hermes.store.people import Principal
    from hermes.store.reports.statistics import Statistics
    from hermes.store.retention.deletion import Retention
    from hermes.store.retention.maintenance import Maintenance
    from hermes.store.retention.thinning import Thinned
    from hermes.store.sessions.blobs import Blobs
    from hermes.store.sessions.selection import Selection
    from hermes.store.spool.spool import SpoolStatus
    from hermes.store.spool.spool_writer import SpoolWriter
    from hermes.store.transfer.exporter import Transfer
    from hermes.store.transfer.importer import Import
    from hermes.store.values import Backup, Collected, Health, Imported, Optimized, Repair, ScrubReceipt

T = TypeVar("T")
AnyStore: TypeAlias = "SessionDB | ScopedStore"
"""The whole store, or the part that one person can see."""

__all__ = ["SCHEMA_VERSION", "SessionDB", "format_session_db_unavailable", "get_last_init_error"]

_last_init_error: str | None = None


def get_last_init_error() -> str | None:
    """Return the error message of the last SessionDB in this process that could not be opened. Return None if
    there was none. The message is kept even after a later SessionDB was opened successfully."""
    return _last_init_error


def _set_last_init_error(message: str | None) -> None:
    global _last_init_error
    _last_init_error = message


def format_session_db_unavailable(prefix: str = "Session database not available") -> str:
    cause = _last_init_error
    if not cause:
        return f"{prefix}."
    return f"{prefix}: {cause}{explain_open_failure(cause)}."


class SessionDB(DocumentedVerbs, ConversationVerbs, CurationVerbs, ChatVerbs):
    MAX_TITLE_LENGTH = titles.MAX_TITLE_LENGTH
    _sees_every_owner = True

    # The constants of the write path that the reference documents. The engine applies them.
    _WRITE_MAX_RETRIES = 15
    _WRITE_RETRY_MIN_S = 0.020
    _WRITE_RETRY_MAX_S = 0.150
    _CHECKPOINT_EVERY_N_WRITES = 50

    def __init__(
        self,
        db_path: Path | str | None = None,
        *,
        read_only: bool = False,
        durability: str = "full",
        spool: bool = False,
    ) -> None:
        """Open the store at `db_path`, by default `<home>/state.db`.

        With `durability="normal"`, commits are not followed by an fsync. With `spool`, a message or a session
        that cannot be written (a full disk, a lock, damage) is kept beside the store and stored later. The
        verb still raises an error, whose message names the spool file. The caller must not write the message
        or the session again.
        """
        self._read_only, self._durability, self._spool = read_only, durability, spool
        try:
            # Absolute, because a relative path would name another file after a change of the working
            # directory.
            path = check_optional_path("db_path", db_path)
            if path is None:
                check_home()
            self.db_path = (path or home.get_default_db_path()).absolute()
            self._open()
        except Exception as problem:
            _set_last_init_error(f"{type(problem).__name__}: {problem}")
            raise

    def _open(self) -> None:
        self._engine = open_engine(
            self.db_path,
            read_only=self._read_only,
            durability=self._durability,
            checkpoint_every_n_writes=self._CHECKPOINT_EVERY_N_WRITES,
            write_max_retries=self._WRITE_MAX_RETRIES,
            write_retry_s=(self._WRITE_RETRY_MIN_S, self._WRITE_RETRY_MAX_S),
        )
        self._spooling = self._open_spool()
        if self._spooling is not None:
            self._engine = self._spooling.engine
        self._append: Callable[[NewMessage], int] = (self._spooling or Messages(self._engine)).append
        self._raw: Any = None
        self._lock = threading.RLock()  # some scripts for the reference use this attribute

    def _open_spool(self) -> SpoolWriter | None:
        """Store the writes that earlier handles left in the spool. Return the spool writer of this handle, or
        None if this handle does not use a spool."""
        keeps = self._spool and self._engine.spool_allowed
        if self._read_only or not (keeps or (self.db_path.parent / "spool").is_dir()):
            return None
        from hermes.store.spool.spool_writer import SpoolWriter

        spooling = SpoolWriter(self._engine)
        spooling.replay_at_open()
        return spooling if keeps else None

    def _read_access(self) -> Access:
        return self._engine

    def _write_access(self, *session_ids: str) -> Access:
        return self._engine

    def _get_append(self, session_id: str) -> Callable[[NewMessage], int]:
        return self._append

    # ---------------------------------------------------------------- sessions

    def create_session(
        self,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        model_config: dict[str, Any] | None = None,
        system_prompt: str | None = None,
        user_id: str | None = None,
        parent_session_id: str | None = None,
        started_at: float | None = None,
        workspace: str | None = None,
        cwd: str | None = None,
        git_branch: str | None = None,
        process: str | None = None,
        **more: Any,
    ) -> str:
        """Create a session and return its id. If the id exists, nothing changes. An unknown parent is an
        error.

        The id of a session in the trash is an error, too (`SessionInTrash`, an `sqlite3.IntegrityError`).
        Restore that session with `restore_session`, delete it with `delete_session`, or choose another id.

        `more` are further columns that a caller may set; `store/columns.py` lists them.
        """
        columns = {
            "model": model,
            "model_config": model_config,
            "system_prompt": system_prompt,
            "user_id": user_id,
            "workspace": workspace,
            "cwd": cwd,
            "git_branch": git_branch,
            "process": process,
            **more,
        }
        return (self._spooling or Sessions(self._engine)).create(
            NewSession(session_id, source, columns, parent_session_id, started_at)
        )

    def ensure_session(
        self, session_id: str, source: str = "unknown", model: str | None = None, **fields: Any
    ) -> str:
        """Create a session unless it exists, and return its id. `fields` are further arguments of
        `create_session`."""
        return self.create_session(session_id, source, model=model, **fields)

    # ---------------------------------------------------------------- titles and lineage

    @staticmethod
    def sanitize_title(title: str | None) -> str | None:
        """Return a title as it is stored: on one line, without invisible characters. Return None if nothing
        remains."""
        return titles.sanitize_title(title)

    def get_next_title_in_lineage(self, title: str) -> str:
        """Return the next free title of a numbered series: `plan` if no session has it, otherwise `plan #2`,
        `plan #3` and so on."""
        return Titles(self._engine).find_next(title)

    # ---------------------------------------------------------------- lists and search

    @staticmethod
    def _sanitize_fts5_query(query: str) -> str:
        from hermes.recall.query.operators import sanitize_fts5_query

        return sanitize_fts5_query(query)

    # ---------------------------------------------------------------- export and import

    def import_sessions(self, sessions: Iterable[Mapping[str, Any]], *, trusted: bool = False) -> Imported:
        """Import exported sessions. Importing them again adds nothing.

        With `trusted`, the import is lossless. Otherwise, values that control behaviour are left out: system
        prompts, directories, owners, chat keys, model settings. `left_out` of the result counts these values.
        """
        return self._transfer.import_sessions(sessions, trusted=trusted)

    def importing(self, *, dry_run: bool = False, trusted: bool = False) -> Import:
        """Import sessions one at a time: `with db.importing() as importing: importing.take(session)`. With
        `dry_run`, nothing is stored. `trusted` has the same effect as in `import_sessions`."""
        return self._transfer.importing(dry_run, trusted=trusted)

    # ---------------------------------------------------------------- deletion and maintenance

    def delete_session(
        self, session_id: str, sessions_dir: Path | None = None, *, purge: bool = False
    ) -> bool:
        """Delete a session, its messages and its files. Return whether it existed.

        With `purge`, no byte of its text is left in the store, in its files or in any copy below the store's
        folder. If a purge was interrupted, another call completes it.
        """
        return self._retention.delete(session_id, sessions_dir, purge)

    def delete_conversations(
        self, session_ids: Iterable[str], sessions_dir: Path | None = None, *, purge: bool = False
    ) -> list[str]:
        """Permanently delete whole conversations and their subagents. Return the deleted ids. `purge` has the
        same effect as in `delete_session`."""
        return self._retention.delete_conversations(session_ids, sessions_dir, purge)

    def statistics(self) -> Statistics:
        """Return the numbers of sessions and messages, and the disk space by purpose. This reads the whole
        store."""
        from hermes.store.reports.statistics import collect_statistics

        return collect_statistics(self._engine)

    def file_sizes(self) -> dict[str, int]:
        """Return the bytes of the store's files: `store`, and `log`, which is the write-ahead log. This reads
        no rows."""
        return self._engine.file_sizes()

    def text_bytes(self, session_ids: Iterable[str]) -> int:
        """Return the total size of the messages of these sessions, in bytes."""
        from hermes.store.reports.statistics import count_text_bytes

        return count_text_bytes(self._engine, session_ids)

    def prune_sessions(
        self,
        older_than_days: float = 90,
        source: str | None = None,
        sessions_dir: Path | None = None,
        *,
        only: Selection | None = None,
    ) -> int:
        """Delete ended conversations that had no activity for `older_than_days`. Return the number of deleted
        sessions."""
        return self._retention.prune(older_than_days, source, sessions_dir, only)

    def list_prune_candidates(
        self, older_than_days: float = 90, source: str | None = None, *, only: Selection | None = None
    ) -> list[Row]:
        """Return the rows of the sessions that `prune_sessions` would delete with the same arguments."""
        return self._retention.list_prune_candidates(older_than_days, source, only)

    def prune_empty_ghost_sessions(self, sessions_dir: Path | None = None) -> int:
        """Delete untitled sessions with the source `tui` that started more than a day ago and ended without
        a message. Pinned sessions, and those that a chat uses, are kept. Return how many were deleted."""
        return self._retention.prune_empty_ghost_sessions(sessions_dir)

    def finalize_orphaned_compression_sessions(self) -> int:
        """End continuations in which no model was called and that have been open and unused for a week.
        Return their number."""
        return self._retention.finalize_orphaned_compression_sessions()

    def maybe_auto_prune_and_vacuum(
        self,
        retention_days: float = 90,
        min_interval_hours: float = 24,
        vacuum: bool = True,
        sessions_dir: Path | None = None,
        *,
        trash_days: float = 30,
        thin_days: float | None = None,
    ) -> Row:
        """Run maintenance, at most once per interval across all processes. With `vacuum`, unused disk space
        is released if anything was removed. Never raises. The result contains the counts."""
        return self._maintenance.maybe_auto_prune_and_vacuum(
            retention_days, min_interval_hours, vacuum, sessions_dir, trash_days, thin_days
        )

    def empty_trash(
        self, older_than_days: float = 30, purge: bool = False, sessions_dir: Path | None = None
    ) -> int:
        """Permanently delete conversations that have been in the trash for `older_than_days` (0: all of
        them). Return the number of deleted sessions. `purge` has the same effect as in `delete_session`."""
        from hermes.store.retention.trash import Trash

        return Trash(self._engine).empty(self._retention, older_than_days, purge, sessions_dir)

    def thin(self, older_than_days: float = 30, larger_than: int = 16_384, dry_run: bool = False) -> Thinned:
        """Shorten large tool output in unused conversations to its beginning and end. With `dry_run`, change
        nothing and return the expected result."""
        from hermes.store.retention.thinning import Thinner

        return Thinner(self._engine).thin(older_than_days, larger_than, dry_run)

    # These managers are imported on first use, because opening, appending and listing do not need them.

    @property
    def _transfer(self) -> Transfer:
        from hermes.store.transfer.exporter import Transfer

        return Transfer(self._engine)

    @property
    def _retention(self) -> Retention:
        from hermes.store.retention.deletion import Retention

        return Retention(self._engine)

    @property
    def _blobs(self) -> Blobs:
        from hermes.store.sessions.blobs import Blobs

        return Blobs(self._engine)

    @property
    def _maintenance(self) -> Maintenance:
        from hermes.store.retention.maintenance import Maintenance

        return Maintenance(self._engine)

    def scrub(self, secret: str, *, dry_run: bool = False) -> ScrubReceipt:
        """Remove a secret from the store, its copies and the files beside it, such as transcripts and the spool. If a
        scrub was interrupted, another call completes it. With `dry_run`, only count the occurrences of the secret."""
        from hermes.store.retention.secret_scrub import Scrubber

        return Scrubber(self._engine).scrub(secret, dry_run=dry_run)

    # ---------------------------------------------------------------- people

    def scoped(self, principal: Principal) -> ScopedStore:
        """Return a handle with access only to the sessions that this person may see in this chat."""
        from hermes.db.scoped_store import ScopedStore

        return ScopedStore(self._engine, principal, self._spooling)

    # ---------------------------------------------------------------- the store itself

    def get_meta(self, key: str) -> str | None:
        """Return the value of a key in the table `state_meta`, or None if the key is not set."""
        return Meta(self._engine).get(key)

    def set_meta(self, key: str, value: str) -> None:
        """Set the value of a key in the table `state_meta`."""
        Meta(self._engine).set(key, value)

    def vacuum(self) -> None:
        """Rewrite the store's file and the search index to release unused disk space."""
        self._engine.vacuum()

    def optimize(self) -> Optimized:
        """Merge the parts of the search index and release unused disk space. Intended for times when the store is
        little used. Also completes a purge that was interrupted."""
        from hermes.store.retention.purge import Purge

        done = self._engine.optimize()
        Purge(self._engine).finish()
        return done

    def collect_blobs(self) -> Collected:
        """Remove attachments to which no message refers. Other programs may leave such attachments behind."""
        return self._blobs.collect()

    def verify(self) -> Health:
        """Search the store for damage, and for derived data that does not agree with the rows. Return what was found.
        Nothing is changed."""
        return self._engine.verify()

    def spool_status(self) -> SpoolStatus:
        """Return the writes that wait in the spool to be stored, and the spooled writes that can never be stored."""
        from hermes.store.spool.spool import Spool

        return Spool(self.db_path).status()

    def diagnose(self, *, deep: bool = False) -> Diagnosis:
        """Check the store and its surroundings, and name the remedy for each problem. With `deep`, every row
        is read."""
        return self._engine.diagnose(deep=deep)

    @classmethod
    def diagnose_file(cls, path: Path, *, deep: bool = False) -> Diagnosis:
        """Run `diagnose` on a store, even if it cannot be opened. Nothing is changed. Problems are returned,
        not raised."""
        return diagnose_file(Path(path), deep=deep)

    def backup(self, target: Path | None = None) -> Backup:
        """Make a verified copy of the store. The default target is the store's folder of backups."""
        place = check_optional_path("target", target)
        return self._engine.backup(None if place is None else check_database_path(place))

    def restore(self, source: Path) -> None:
        """Replace this store by a backup. The store is closed during the replacement and opened again
        afterwards."""
        self._while_closed(lambda: restore_file(self.db_path, Path(source)))

    def repair(self) -> Repair:
        """Repair the store and save as much as possible. The store is closed during the repair and opened
        again afterwards."""
        return self._while_closed(lambda: repair_file(self.db_path))

    def _while_closed(self, work: Callable[[], T]) -> T:
        if self._read_only:
            raise errors.make_error(errors.StoreReadOnly, f"{self.db_path} is open read-only")
        self.close()
        try:
            return work()
        finally:
            self._open()

    @classmethod
    def repair_file(cls, path: Path, *, check_only: bool = False, keep_backup: bool = True) -> Repair:
        """Run `repair` on a store that may be too damaged to open. With `check_only`, only report which
        repair is needed."""
        return repair_file(path, check_only=check_only, keep_backup=keep_backup)

    @classmethod
    def remove_readable_copy(cls, path: Path) -> None:
        """Remove the copy that was made to read a store of another version. If a process is reading the copy,
        keep it."""
        remove_readable_copy(Path(path))

    @classmethod
    def restore_file(cls, path: Path, source: Path) -> None:
        """Run `restore` for a store that may be damaged or missing."""
        restore_file(path, source)

    def raw(self) -> Any:
        """Return a connection for plain SQL. In a process that has the store open, this is the only safe way
        to run SQL on it."""
        if self._raw is None:
            self._raw = self._engine.raw()
        return self._raw

    @property
    def _conn(self) -> Any:
        return self.raw()

    def _execute_write(self, work: Callable[[Any], T]) -> T:
        """Run `work` with a raw connection in one transaction."""
        with self._lock:
            return self._engine.write_raw(work)

    def run_together(self, calls: Sequence[Callable[[], object]]) -> list[Outcome]:
        """Run calls that use this store, one after the other, and let their writes share transactions. Return
        the outcome of each call.

        Use this in a thread without signal handlers. When this returns, the writes are committed. Call `sync`
        before you acknowledge one of them to anybody. A call does not see the writes of the calls before it. A
        call may run twice; so it must have no effects outside the store.
        """
        return self._engine.run_together(calls)

    def sync(self) -> None:
        """Wait until all earlier writes of all threads are on disk."""
        self._engine.sync()

    def close(self) -> None:
        """Close the store. Closing it again has no effect."""
        self._engine.close()
        self._raw = None

    def __enter__(self) -> SessionDB:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
