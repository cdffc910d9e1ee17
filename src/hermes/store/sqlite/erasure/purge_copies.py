"""Purge: no byte of a deleted session is left in any copy of the store below its folder.

A copy that holds the session is replaced by one without it, at once and whole, so that everything else stays backed up
and a kill leaves either. Copies that were made only to read another store are removed. A backup or a file that a repair
kept aside goes if it cannot be read. Any other file is touched only if its rows prove that it is a copy, and never
removed.
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
# Rows that were already replaced or deleted when the copy was made may still be in its index; their notes are not lost.
FORGET_NOTED_TERMS = "DELETE FROM messages_fts_words WHERE rowid IN (SELECT message_id FROM changed_messages)"
# The same of blocks, which a store of an older version does not have. What is left of one is made anew later.
FORGET_NOTED_BLOCKS = """DELETE FROM messages_fts_blocks WHERE rowid IN (SELECT block_id FROM messages_fts_members
    WHERE message_id IN (SELECT message_id FROM changed_messages))"""
MAKE_NOTED_BLOCKS_DUE = """UPDATE messages_fts_ranges SET waiting = 2 WHERE block_id IN
    (SELECT block_id FROM messages_fts_members WHERE message_id IN (SELECT message_id FROM changed_messages))"""
FORGET_MESSAGES = "DELETE FROM messages WHERE session_id = ?"
FORGET_SESSION = "DELETE FROM sessions WHERE id = ?"
# Everything else that a copy may know of a session, by the table it is in.
FORGET_IN = {
    "tags": "DELETE FROM tags WHERE session_id = ?",
    "state_meta": """DELETE FROM state_meta
        WHERE key IN ('trashed_title:' || ?1, 'trashed_next:' || ?1, 'merged:' || ?1, 'former_titles:' || ?1,
            'title_request:' || ?1)""",
    "inbox": "DELETE FROM inbox WHERE session_id = ?",
    "outbox": "DELETE FROM outbox WHERE session_id = ?",
    "routing": "DELETE FROM routing WHERE session_id = ?",
    "leases": "DELETE FROM leases WHERE conversation_id = ?",
    "model_usage": "DELETE FROM model_usage WHERE session_id = ?",
    "carried_context": "DELETE FROM carried_context WHERE session_id = ?",
}
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
SEARCH_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%'"
# Deleting only marks full-text entries; merging takes them out. The first two are the reference's, kept by triggers.
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
"""What a session store has had from its first version on, and a table of the same name elsewhere has not."""
LOGS = ("-wal", "-journal")
# What makes a file one that cannot be read, however long one waits.
BROKEN = (apsw.NotADBError, apsw.CorruptError, errors.StoreDamaged, UnicodeDecodeError)
BUSY = (apsw.BusyError, apsw.LockedError)

Gone = Mapping[str, Fingerprint | None]
"""Sessions that are gone, each with what it is known by; None if nothing of it is known but its id."""


class CopyEraser:
    def __init__(self, path: Path, gone: Gone) -> None:
        self._path, self._gone = path, gone
        self._done: list[str] = []
        self._left: list[str] = []
        self._unfinished: list[str] = []

    def erase(self) -> Erased:
        """Clean every copy; what was done to which, what was left and why, and what has to be done again."""
        for copy in list_backups(self._path):
            self._try(copy, self._clean_backup)
        self._unfinished += [f"{copy} (another program reads it)" for copy in copy_cache.remove_all()]
        databases, being_written, complete = _survey(self._path)
        for file in databases:
            self._try(file, self._clean_other)
        for file in {*_find_remnants(self._path)}:
            self._try(file, self._remove)
        self._unfinished += [f"{self._name(file)} (somebody is writing it)" for file in being_written]
        if not complete:
            self._left.append(f"there are too many files below {self._path.parent} to look at all of them")
        return Erased(tuple(self._done), tuple(self._left), tuple(self._unfinished))

    def _name(self, file: Path) -> str:
        return str(file.relative_to(self._path.parent))

    def _try(self, file: Path, act: Callable[[Path], None]) -> None:
        try:
            act(file)
        except BUSY:
            self._unfinished.append(f"{self._name(file)} (another program uses it)")
        except (apsw.Error, errors.StoreError, OSError) as problem:
            self._unfinished.append(f"{self._name(file)} ({problem})")

    def _clean_backup(self, copy: Path) -> None:
        """A copy in our own folder under a name that we gave it."""
        try:
            with _detect_replacement(copy):
                connection = connect(copy)  # to write: then SQLite takes back what a kill left half-written
                try:
                    session_ids = self._of_ours(find_sessions(connection, self._gone))
                finally:
                    connection.close()
                if session_ids:
                    self._rewrite(copy, self._of_ours)
                elif any(file_swap.get_size(file_swap.beside(copy, ending)) for ending in LOGS):
                    raise apsw.BusyError  # who closes a file last takes its log away: somebody has it open
        except BROKEN as problem:
            if isinstance(problem, apsw.NotADBError) and recognition.adopt_encrypted(copy):
                self._clean_backup(copy)
            else:
                self._remove(copy)

    def _clean_other(self, file: Path) -> None:
        """A database that may be anybody's."""
        try:
            with _detect_replacement(file):
                found = _inspect_copy(file, self._gone)
        except BUSY:
            raise
        except BROKEN:
            self._leave(file, "is damaged and perhaps no copy")
        except (apsw.Error, errors.StoreError, OSError) as problem:
            self._leave(file, f"could not be looked at ({problem})")
        else:
            if self._proven(found):
                self._rewrite_other(file)
            elif found:
                self._leave(file, "holds a session of the same id, which may be another")

    def _rewrite_other(self, file: Path) -> None:
        try:
            with _detect_replacement(file):
                self._rewrite(file, self._proven)
        except BROKEN:
            self._leave(file, "is a copy, but damaged, and cannot be rewritten")

    def _leave(self, file: Path, why: str) -> None:
        self._left.append(f"{self._name(file)} {why}: it was not touched")

    def _of_ours(self, found: Mapping[str, Fingerprint]) -> list[str]:
        known = {session_id: self._gone[session_id] for session_id in found}
        return [
            session_id
            for session_id, marks in known.items()
            if marks is None or marks.can_be(found[session_id])
        ]

    def _proven(self, found: Mapping[str, Fingerprint]) -> list[str]:
        known = {session_id: self._gone[session_id] for session_id in found}
        return [
            session_id
            for session_id, marks in known.items()
            if marks is not None and marks.is_proof_of(found[session_id])
        ]

    def _rewrite(self, copy: Path, choose: Callable[[Mapping[str, Fingerprint]], list[str]]) -> None:
        """Put a copy without the sessions in its place, while nobody has it open."""
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
        self._done.append(f"rewritten without it: {self._name(copy)}")

    def _remove(self, file: Path) -> None:
        file.unlink(missing_ok=True)
        encryption.remove_note(file)
        self._done.append(f"removed: {self._name(file)}")


@contextmanager
def _detect_replacement(file: Path) -> Iterator[None]:
    """What seems broken may only be what another purge has this moment put a clean copy in the place of."""
    before = identity_of(file)
    try:
        yield
    except BROKEN as problem:
        if identity_of(file) != before:
            raise apsw.BusyError from problem
        raise


def _inspect_copy(file: Path, gone: Gone) -> dict[str, Fingerprint]:
    # Without a log nobody is writing, and to look leaves nothing beside it. What it is, is asked again under a lock.
    untouched = not any(file_swap.beside(file, ending).exists() for ending in SIDECARS)
    connection = connect(file, read_only=True, immutable=untouched and not file_guard.is_open(file))
    try:
        connection.set_busy_handler(Patience(WAIT_S))
        return find_sessions(connection, gone)
    finally:
        connection.close()


def find_sessions(connection: apsw.Connection, gone: Gone) -> dict[str, Fingerprint]:
    """Which of these ids a database of whatever version holds, and by what the sessions are known that have them."""
    columns = {table: read_columns(connection, table).keys() for table in NEEDED}
    if any(not needed <= columns[table] for table, needed in NEEDED.items()):
        return {}
    reader, uids = SqliteReader(connection, {}), "uid" in columns["messages"]
    session_ids = (session_id for session_id in gone if run(connection, HOLDS, session_id, session_id))
    return {session_id: fingerprint(reader, session_id, uids=uids) for session_id in session_ids}


def _forget_sessions(copy: Path, session_ids: Collection[str]) -> None:
    """Take the sessions out of a file that is ours alone, and that nobody misses if this is cut off."""
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


# ---------------------------------------------------------------- which files are copies


class Survey(NamedTuple):
    """What lies below the folder of a store."""

    databases: list[Path]
    """Whose they are, their names do not tell."""
    being_written: list[Path]
    """Copies that somebody is making at this moment."""
    complete: bool


def _survey(path: Path) -> Survey:
    """Look at every file once. What killed processes left half-made goes on the way."""
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
    """What repairs and restores kept aside or were killed over, and sidecars of backups that are gone."""
    folder, beside = backup_folder(path), path.parent
    yield from folder.glob(f"*{DAMAGED}*")
    for kind in ("damaged-*", "new-*"):
        yield from beside.glob(f"{escape(path.name)}.{kind}")
    for ending in (*SIDECARS, KEY_NOTE):
        for pattern in (f"*.db{ending}", f".*{PARTIAL}{ending}"):
            for file in folder.glob(pattern):
                if not file.with_name(file.name.removesuffix(ending)).exists():
                    yield file
