"""The check whether only the search index is damaged.

In this case it can be rebuilt from the messages without any loss.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from hermes.store.sqlite.connection import connect, pragma, run
from hermes.store.sqlite.encryption import encryption

# Every table except the index. Tables of other programs in the file count too.
TRUTH = """SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0
    AND name NOT LIKE 'messages~_fts~_words%' ESCAPE '~' AND name NOT LIKE 'messages~_fts~_blocks%' ESCAPE '~'
    AND name NOT IN ('messages_fts_ranges', 'messages_fts_members', 'index_progress')"""
QUICK_CHECK = "SELECT * FROM pragma_quick_check(?)"


def is_only_index_broken(path: Path) -> bool:
    """Return whether everything but the search index is readable.

    This reads the whole file, so call it only after an error.
    """
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
    """Rewrite an encrypted file in which only unused pages are damaged. Return False for any other file.

    A connection that checks the authentication codes of pages cannot even overwrite a damaged page. The
    rewrite therefore uses a connection without this check, after all data was read with the check.
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
