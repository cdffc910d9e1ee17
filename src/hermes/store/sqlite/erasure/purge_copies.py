"""Purge: remove every byte of a deleted session from all copies of the store below its folder.

A copy that contains the session is replaced atomically by a copy without the session. So all other data stays
backed up, and if the purge is killed, either the old or the new copy is in place. Copies that were made only
to read another store are removed. A backup, or a file that a repair kept, is deleted if it is unreadable. Any
other file is changed only if its rows prove that it is a copy, and is never deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import NamedTuple

import apsw

from hermes import errors
from hermes.atomic_files import (
    KEY_NOTE,
    LONGEST_NAME,
    PARTIAL,
    clear_partials,
    open_partial_file,
    sync_folder,
)
from hermes.store.file_walk import find_files
from hermes.store.retention.deletion import LEAVE_CHILDREN
from hermes.store.sessions import blobs
from hermes.store.sessions.carried_context import rehome_messages
from hermes.store.sqlite.connection import (
    Patience,
    SqliteReader,
    SqliteWriter,
    connect,
    damage_error,
    run,
)
from hermes.store.sqlite.copies.backup import DAMAGED, backup_folder, list_backups
from hermes.store.sqlite.copies.page_copy import copy_into
from hermes.store.sqlite.encryption import encryption, recognition
from hermes.store.sqlite.erasure.message_bytes import fingerprint
from hermes.store.sqlite.migrations.shape import read_columns
from hermes.store.sqlite.search import blocks, substring
from hermes.store.sqlite.upkeep import copy_cache, file_swap
from hermes.store.sqlite.upkeep.restore import WAIT_S, is_alone
from hermes.store.sqlite.wal import file_guard
from hermes.store.sqlite.wal.file_identity import identity_of
from hermes.store.sqlite.wal.sidecars import BESIDE_COPY, SIDECARS
from hermes.store.values import Erased, Fingerprint

HOLDS = "SELECT 1 FROM sessions WHERE id = ? UNION ALL SELECT 1 FROM messages WHERE session_id = ? LIMIT 1"
FORGET_TERMS = "DELETE FROM messages_fts_words WHERE rowid IN (SELECT id FROM messages WHERE session_id = ?)"
# The index of a copy may still contain rows that were replaced or deleted before it was made. These rows are noted.
FORGET_NOTED_TERMS = "DELETE FROM messages_fts_words WHERE rowid IN (SELECT message_id FROM changed_messages)"
# The same for blocks, which a store of an older version does not have. The rest of a block is indexed again later.
FORGET_NOTED_BLOCKS = """DELETE FROM messages_fts_blocks WHERE rowid IN (SELECT block_id FROM messages_fts_members
    WHERE message_id IN (SELECT message_id FROM changed_messages))"""
MAKE_NOTED_BLOCKS_DUE = """UPDATE messages_fts_ranges SET waiting = 2 WHERE block_id IN
    (SELECT block_id FROM messages_fts_members WHERE message_id IN (SELECT message_id FROM changed_messages))"""
FORGET_MESSAGES = "DELETE FROM messages WHERE session_id = ?"
FORGET_SESSION = "DELETE FROM sessions WHERE id = ?"
# All other tables that may refer to a session.
FORGET_IN = {
    "tags": "DELETE FROM tags WHERE session_id = ?",
    "state_meta": """DELETE FROM state_meta
        WHERE key IN ('trashed_title:' || ?1, 'trashed_next:' || ?1, 'merged:' || ?1, 'former_titles:' || ?1,
            'title_request:' || ?1)""",
    "inbox": "DELETE FROM inbox WHERE session_id = ?",
    "outbox": "DELETE FROM outbox WHERE session_id = ?",
    "job_runs": "UPDATE job_runs SET session_id = NULL, message_id = NULL, detail = NULL WHERE session_id = ?",
    "routing": "DELETE FROM routing WHERE session_id = ?",
    "leases": "DELETE FROM leases WHERE conversation_id = ?",
    "model_usage": "DELETE FROM model_usage WHERE session_id = ?",
    "carried_context": "DELETE FROM carried_context WHERE session_id = ?",
}
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
SEARCH_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%'"
# A deletion only marks full-text entries; a merge removes them. The first two tables are the reference's.
MERGES = {
    "messages_fts": "INSERT INTO messages_fts (messages_fts) VALUES ('optimize')",
    "messages_fts_trigram": "INSERT INTO messages_fts_trigram (messages_fts_trigram) VALUES ('optimize')",
    "messages_fts_words": "INSERT INTO messages_fts_words (messages_fts_words) VALUES ('optimize')",
    "messages_fts_blocks": "INSERT INTO messages_fts_blocks (messages_fts_blocks) VALUES ('optimize')",
}
NEEDED = {
    "sessions": {"id", "source", "started_at", "system_prompt"},
    "messages": {"id", "session_id", "role", "content", "timestamp"},
}
"""Columns that every version of a session store has, and that tables of other programs with these names lack."""
LOGS = ("-wal", "-journal")
# Errors that show that a file is unreadable, not only in use.
BROKEN = (apsw.NotADBError, apsw.CorruptError, errors.StoreDamaged, UnicodeDecodeError)
BUSY = (apsw.BusyError, apsw.LockedError)

Gone = Mapping[str, Fingerprint | None]
"""The deleted sessions, each with its fingerprint, or None if only its id is known."""


class CopyEraser:
    def __init__(self, path: Path, gone: Gone) -> None:
        self._path, self._gone = path, gone
        self._done: list[str] = []
        self._left: list[str] = []
        self._unfinished: list[str] = []

    def erase(self) -> Erased:
        """Remove the deleted sessions from every copy of the store.

        Return three lists: the files that were changed, the files that were left unchanged (each with the reason),
        and the files that must be cleaned later because another program uses them.
        """
        for copy in list_backups(self._path):
            self._try(copy, self._clean_backup)
        self._unfinished += [f"{copy} (another program is reading it)" for copy in copy_cache.remove_all()]
        databases, being_written, complete = _survey(self._path)
        for file in databases:
            self._try(file, self._clean_other)
        for file in {*_find_remnants(self._path)}:
            self._try(file, self._remove)
        self._unfinished += [f"{self._name(file)} (another program is writing it)" for file in being_written]
        if not complete:
            self._left.append(f"there are too many files below {self._path.parent} to check all of them")
        return Erased(tuple(self._done), tuple(self._left), tuple(self._unfinished))

    def _name(self, file: Path) -> str:
        return str(file.relative_to(self._path.parent))

    def _try(self, file: Path, act: Callable[[Path], None]) -> None:
        try:
            act(file)
        except BUSY:
            self._unfinished.append(f"{self._name(file)} (another program is using it)")
        except (apsw.Error, errors.StoreError, OSError) as problem:
            self._unfinished.append(f"{self._name(file)} ({problem})")

    def _clean_backup(self, copy: Path) -> None:
        """Clean a backup with a generated name in the store's own backup folder."""
        try:
            with _detect_replacement(copy):
                connection = connect(copy)  # writable, so that SQLite rolls back a write that was killed
                try:
                    session_ids = self._of_ours(find_sessions(connection, self._gone))
                finally:
                    connection.close()
                if session_ids:
                    self._rewrite(copy, self._of_ours)
                elif any(file_swap.get_size(file_swap.beside(copy, ending)) for ending in LOGS):
                    raise apsw.BusyError  # the log still exists, so another program has the file open
        except BROKEN as problem:
            if isinstance(problem, apsw.NotADBError) and recognition.adopt_encrypted(copy):
                self._clean_backup(copy)
            else:
                self._remove(copy)

    def _clean_other(self, file: Path) -> None:
        """Clean a database that may be a copy of the store, or may belong to another program."""
        try:
            with _detect_replacement(file):
                found = _inspect_copy(file, self._gone)
        except BUSY:
            raise
        except BROKEN:
            self._leave(file, "is damaged and may not be a copy")
        except (apsw.Error, errors.StoreError, OSError) as problem:
            self._leave(file, f"could not be checked ({problem})")
        else:
            if self._proven(found):
                self._rewrite_other(file)
            elif found:
                self._leave(file, "has a session with the same id, which may be a different one")

    def _rewrite_other(self, file: Path) -> None:
        try:
            with _detect_replacement(file):
                self._rewrite(file, self._proven)
        except BROKEN:
            self._leave(file, "is a damaged copy and cannot be rewritten")

    def _leave(self, file: Path, why: str) -> None:
        self._left.append(f"{self._name(file)} {why}: it was not changed")

    def _of_ours(self, found: Mapping[str, Fingerprint]) -> list[str]:
        """Return the ids of the sessions in `found` that may be the deleted sessions, by their fingerprints.

        `found` maps ids to fingerprints, as `find_sessions` returns them. This test is used for the store's own
        backups. For other files, `_proven` is used, which is stricter.
        """
        known = {session_id: self._gone[session_id] for session_id in found}
        return [
            session_id
            for session_id, marks in known.items()
            if marks is None or marks.can_be(found[session_id])
        ]

    def _proven(self, found: Mapping[str, Fingerprint]) -> list[str]:
        """Return the ids of the sessions in `found` whose fingerprints prove that they are the deleted sessions.

        `found` maps ids to fingerprints, as `find_sessions` returns them.
        """
        known = {session_id: self._gone[session_id] for session_id in found}
        return [
            session_id
            for session_id, marks in known.items()
            if marks is not None and marks.is_proof_of(found[session_id])
        ]

    def _rewrite(self, copy: Path, choose: Callable[[Mapping[str, Fingerprint]], list[str]]) -> None:
        """Replace the database `copy` by a version of it without the deleted sessions. Other programs are locked out
        meanwhile.

        `choose` selects the ids to delete from the sessions that `find_sessions` returns.
        """
        if file_guard.is_open(copy):
            raise apsw.BusyError
        live, old = connect(copy), None
        try:
            if not is_alone(live):
                raise damage_error(copy, "it is not a SQLite database")
            session_ids = choose(find_sessions(live, self._gone))
            with open_partial_file(copy.parent, copy.name[:LONGEST_NAME], BESIDE_COPY) as (fresh, descriptor):
                copy_into(live, copy, fresh)
                _forget_sessions(fresh, session_ids)
                os.fsync(descriptor)
                old = os.open(copy, os.O_RDWR | os.O_CLOEXEC)
                os.replace(fresh, copy)
            sync_folder(copy.parent)
            file_swap.retire(old)
        finally:
            live.close()
            if old is not None:
                os.close(old)
        self._done.append(f"rewritten without the session: {self._name(copy)}")

    def _remove(self, file: Path) -> None:
        file.unlink(missing_ok=True)
        encryption.remove_note(file)
        self._done.append(f"removed: {self._name(file)}")


@contextmanager
def _detect_replacement(file: Path) -> Iterator[None]:
    """If the `with` block raises a damage error and `file` was replaced during the block, raise `BusyError` instead.

    In this case `file` is not damaged: another purge has put a clean copy in its place.
    """
    before = identity_of(file)
    try:
        yield
    except BROKEN as problem:
        if identity_of(file) != before:
            raise apsw.BusyError from problem
        raise


def _inspect_copy(file: Path, gone: Gone) -> dict[str, Fingerprint]:
    # If there is no log, no program is writing, and an immutable connection can be used, which leaves no files behind.
    # The result is checked again under a lock.
    untouched = not any(file_swap.beside(file, ending).exists() for ending in SIDECARS)
    connection = connect(file, read_only=True, immutable=untouched and not file_guard.is_open(file))
    try:
        connection.set_busy_handler(Patience(WAIT_S))
        return find_sessions(connection, gone)
    finally:
        connection.close()


def find_sessions(connection: apsw.Connection, gone: Gone) -> dict[str, Fingerprint]:
    """Return the deleted sessions (`gone`) that a database still contains: their ids, each with the fingerprint of
    the session in this database. The database can have any schema version.
    """
    columns = {table: read_columns(connection, table).keys() for table in NEEDED}
    if any(not needed <= columns[table] for table, needed in NEEDED.items()):
        return {}
    reader, uids = SqliteReader(connection, {}), "uid" in columns["messages"]
    session_ids = (session_id for session_id in gone if run(connection, HOLDS, session_id, session_id))
    return {session_id: fingerprint(reader, session_id, uids=uids) for session_id in session_ids}


def _forget_sessions(copy: Path, session_ids: Collection[str]) -> None:
    """Delete the sessions with the ids `session_ids` from `copy`, which is a temporary copy of a store.

    The deletion cannot be rolled back. If it is interrupted, the caller discards the temporary file.
    """
    connection = connect(copy)
    try:
        run(connection, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA foreign_keys=OFF")
        tables = {row[0] for row in run(connection, TABLES)}
        searched = {row[0] for row in run(connection, SEARCH_TABLES)}
        writer = SqliteWriter(connection, {})
        run(connection, "BEGIN")
        if "carried_context" in tables:
            for session_id in session_ids:
                rehome_messages(writer, session_id, session_ids)
        _forget_terms(connection, searched, session_ids)
        for session_id in session_ids:
            for table in tables & FORGET_IN.keys():
                run(connection, FORGET_IN[table], session_id)
            run(connection, LEAVE_CHILDREN, session_id)
            run(connection, FORGET_MESSAGES, session_id)
            run(connection, FORGET_SESSION, session_id)
        if "blobs" in tables:
            while blobs.collect_batch(writer).blobs:
                pass
        run(connection, "COMMIT")
        substring.forget(connection)
        for name, merge in MERGES.items():
            if name in searched:
                run(connection, merge)
        run(connection, "VACUUM")
    finally:
        connection.close()


def _forget_terms(
    connection: apsw.Connection, searched: Collection[str], session_ids: Collection[str]
) -> None:
    if "messages_fts_words" in searched:
        run(connection, FORGET_NOTED_TERMS)
        for session_id in session_ids:
            run(connection, FORGET_TERMS, session_id)
    if "messages_fts_blocks" in searched:
        run(connection, FORGET_NOTED_BLOCKS)
        run(connection, MAKE_NOTED_BLOCKS_DUE)
        for session_id in session_ids:
            run(connection, blocks.TAKE_OF_SESSION, session_id)
            run(connection, blocks.FORGET_OF_SESSION, session_id)


# ---------------------------------------------------------------- finding the copies


class Survey(NamedTuple):
    """The databases that were found in the folder of a store and below it, and whether all files there were
    examined.
    """

    databases: list[Path]
    """Databases that may or may not be copies of the store."""
    being_written: list[Path]
    """Copies that another process is writing."""
    complete: bool


def _survey(path: Path) -> Survey:
    """Find the databases in the folder of the store at `path`, and below it, that may be copies of the store. Also
    remove unfinished files that killed processes left there.
    """
    files, open_here, complete = find_files(path.parent)
    for folder in {file.parent for file in files if PARTIAL in file.name}:
        clear_partials(folder)
    own = {*list_backups(path), *_find_remnants(path)}
    others = [file for file in files if file not in own and file.exists() and recognition.is_database(file)]
    stores = [file for file in open_here if file_guard.is_open(file) and not file.samefile(path)]
    return Survey(
        [file for file in others if PARTIAL not in file.name] + stores,
        sorted({file for file in (*others, *backup_folder(path).glob(".*")) if file.name.endswith(PARTIAL)}),
        complete,
    )


def _find_remnants(path: Path) -> Iterator[Path]:
    """Yield files of the store at `path` that are not intact databases: damaged files that repairs and restores kept,
    new files that a repair left unfinished, and files beside backups that no longer exist, such as a log.
    """
    folder, beside = backup_folder(path), path.parent
    yield from folder.glob(f"*{DAMAGED}*")
    for kind in ("damaged-*", "new-*"):
        yield from beside.glob(f"{escape(path.name)}.{kind}")
    for ending in (*SIDECARS, KEY_NOTE):
        for pattern in (f"*.db{ending}", f".*{PARTIAL}{ending}"):
            for file in folder.glob(pattern):
                if not file.with_name(file.name.removesuffix(ending)).exists():
                    yield file
