"""Is only the search index damaged? Then it is rebuilt from the messages, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import apsw

from hermes.store.sqlite.connection import connect, pragma, run
from hermes.store.sqlite.encryption import encryption

# Everything but the index: whatever other programs keep in the file is no less true than ours.
TRUTH = """SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0
    AND name NOT LIKE 'messages~_fts~_words%' ESCAPE '~' AND name NOT LIKE 'messages~_fts~_blocks%' ESCAPE '~'
    AND name NOT IN ('messages_fts_ranges', 'messages_fts_members', 'index_progress')"""
QUICK_CHECK = "SELECT * FROM pragma_quick_check(?)"


def is_only_index_broken(path: Path) -> bool:
    """Whether everything but the search index reads well. Reads the whole truth: for when something already broke."""
    try:
        connection = connect(path, read_only=True)
    except apsw.Error:
        return False
    try:
        return is_truth_whole(connection)
    finally:
        connection.close()


def is_truth_whole(connection: apsw.Connection) -> bool:
    try:
        tables = [row[0] for row in run(connection, TRUTH)]
        return all(run(connection, QUICK_CHECK, table) == [("ok",)] for table in tables)
    except apsw.Error:
        return False


def vacuum_unchecked(checking: apsw.Connection) -> bool:
    """Rewrite an encrypted file in which only pages are broken that nothing reaches; False if it is no such file.

    A connection that checks the seals of pages cannot even overwrite one with a broken seal. One that does not is let
    at the file only after everything that is true in it was read with its seals checked.
    """
    path = Path(checking.filename)
    key = encryption.find_key(path)
    if key is None or pragma(checking, "PRAGMA locking_mode") == "exclusive":
        return False
    if not is_only_index_broken(path):
        return False
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(encryption.PROBE_MS)
        encryption.apply(connection, key, checked=False)
        connection.execute("VACUUM").fetchall()
        return True
    finally:
        connection.close()
