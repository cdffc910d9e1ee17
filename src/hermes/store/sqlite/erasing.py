"""Purge: no byte of a deleted session is left in any copy of the store that lies beside it.

A copy that holds the session is rewritten without it, so that everything else stays backed up. What cannot be
rewritten, a damaged file kept aside or a half-made one, is removed. Copies that a person put elsewhere are theirs.
"""

from __future__ import annotations

from collections.abc import Collection
from glob import escape
from pathlib import Path

import apsw

from hermes.partial import PARTIAL
from hermes.store import blobs
from hermes.store.context import rehome
from hermes.store.retention import LEAVE_CHILDREN
from hermes.store.sqlite import blocks, encryption, parts, recognition
from hermes.store.sqlite.backup import DAMAGED, failed, folder_of
from hermes.store.sqlite.connection import SqliteWriter, connect, run

IS_A_STORE = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('sessions', 'messages')"
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
    "state_meta": "DELETE FROM state_meta WHERE key IN ('trashed_title:' || ?1, 'trashed_next:' || ?1)",
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


def erase_from_copies(path: Path, session_ids: Collection[str]) -> list[str]:
    """The receipt: what was done to which copy, a line each."""
    done: list[str] = []
    folder = folder_of(path)
    remnants = [*folder.glob(f".*{PARTIAL}*"), *folder.glob(f"*{DAMAGED}*")]
    remnants += path.parent.glob(f".{escape(path.name)}.*{PARTIAL}*")
    for kind in ("damaged-*", "new-*"):  # what a repair kept aside, or was killed over
        remnants += path.parent.glob(f"{escape(path.name)}.{kind}")
    for copy in (*folder.glob("*.db"), *(file for file in path.parent.glob("*.db") if file != path)):
        try:
            if _rewritten_without(copy, session_ids):
                done.append(f"rewritten without it: {copy.name}")
        except (apsw.NotADBError, apsw.CantOpenError):
            if recognition.adopt(copy) and _rewritten_without(copy, session_ids):
                done.append(f"rewritten without it: {copy.name}")
            continue  # else no database, so no copy of ours
        except apsw.Error:
            remnants.append(copy)
    try:
        for file in remnants:
            file.unlink(missing_ok=True)
            encryption.remove_note(file)
            done.append(f"removed: {file.name}")
    except OSError as problem:
        raise failed(path, problem) from problem
    return done


def _rewritten_without(copy: Path, session_ids: Collection[str]) -> bool:
    """Whether a copy, of whatever version, held any of the sessions; then it holds them no more."""
    connection = connect(copy)
    try:
        if run(connection, IS_A_STORE) != [(2,)]:
            return False
        held = [name for name in session_ids if run(connection, HOLDS, name, name)]
        if not held:
            return False
        run(connection, "PRAGMA foreign_keys=OFF")
        tables = {row[0] for row in run(connection, TABLES)}
        searched = {row[0] for row in run(connection, SEARCH_TABLES)}
        with connection:
            if "carried_context" in tables:
                for session_id in held:
                    rehome(SqliteWriter(connection, {}), session_id, held)
            _forget_terms(connection, searched, held)
            for session_id in held:
                for table in tables & FORGET_IN.keys():
                    run(connection, FORGET_IN[table], session_id)
                run(connection, LEAVE_CHILDREN, session_id)
                run(connection, FORGET_MESSAGES, session_id)
                run(connection, FORGET_SESSION, session_id)
            if "blobs" in tables:
                writer = SqliteWriter(connection, {})
                while blobs.collect_some(writer).blobs:
                    pass
        parts.forget(connection)
        for name, merge in MERGES.items():
            if name in searched:
                run(connection, merge)
        run(connection, "VACUUM")
        run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
        return True
    finally:
        connection.close()


def _forget_terms(connection: apsw.Connection, searched: Collection[str], held: Collection[str]) -> None:
    if "messages_fts_words" in searched:
        run(connection, FORGET_NOTED_TERMS)
        for session_id in held:
            run(connection, FORGET_TERMS, session_id)
    if "messages_fts_blocks" in searched:
        run(connection, FORGET_NOTED_BLOCKS)
        run(connection, MAKE_NOTED_BLOCKS_DUE)
        for session_id in held:
            run(connection, blocks.TAKE_OF_SESSION, session_id)
            run(connection, blocks.FORGET_OF_SESSION, session_id)
