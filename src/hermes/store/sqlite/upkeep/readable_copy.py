"""A copy, for reading, of a store that another version of this program or of the reference wrote.

The original file is never written. The copy is in the cache of the home, and is migrated there to the current
layout, so that lists, searches and exports read it like any other store. When the original has changed, a new
copy is made. See `copy_cache` for the removal of copies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from hermes import home
from hermes.atomic_files import LONGEST_NAME, clear_partials, open_partial_file, sync_folder
from hermes.store.sqlite.connection import SqliteWriter, connect, connect_read_only, has_log, run
from hermes.store.sqlite.copies.backup import backup_error, make_backup
from hermes.store.sqlite.copies.page_copy import copy_into
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.fork_safety import Inside
from hermes.store.sqlite.migrations import migrate
from hermes.store.sqlite.migrations.identifiers import fill_names
from hermes.store.sqlite.migrations.layouts import store_uids_as_text
from hermes.store.sqlite.migrations.reference_search import strike_names, transaction
from hermes.store.sqlite.migrations.shape import expected_shape, find_collisions, read_columns
from hermes.store.sqlite.migrations.steps import set_version
from hermes.store.sqlite.opener import take_log_away
from hermes.store.sqlite.search import index, substring
from hermes.store.sqlite.upkeep import copy_cache
from hermes.store.sqlite.upkeep.copy_cache import CopyHold
from hermes.store.sqlite.wal import file_guard
from hermes.store.sqlite.wal.sidecars import BESIDE_COPY

if TYPE_CHECKING:
    from hermes.store.values import Backup

MOST_KEPT_AT_THE_START = 12
"""How many of the first messages of a conversation may be repeated.

The reference writes them again when it compacts the conversation.
"""

RULES = "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view') OR type = 'index' AND sql IS NOT NULL"
DROPS = {
    "trigger": "DROP TRIGGER IF EXISTS {name}",  # a trigger of a view is dropped with the view
    "view": "DROP VIEW {name}",
    "index": "DROP INDEX {name}",
}
VIRTUAL_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL %'"
SEARCH_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'messages_fts*'"
DROP_TABLE = "DROP TABLE {name}"
NO_MARKS = "PRAGMA application_id=0; PRAGMA user_version=0"
BEFORE_ANY_VERSION = 1

COMPACTED = """SELECT session_id, id, role, content, tool_calls, tool_call_id FROM messages
    WHERE session_id IN (SELECT session_id FROM messages WHERE compacted = 1) AND (active = 1 OR compacted = 1)
    ORDER BY session_id, id"""
SHOW_COMPACTED = "UPDATE messages SET active = 1 WHERE compacted = 1"
HIDE = "UPDATE messages SET active = 0 WHERE id = ?"


class _Message(NamedTuple):
    id: int
    content: Sequence[Any]


def back_up_original(path: Path, target: Path | None) -> Backup:
    """Back up the original file, not its readable copy."""
    with Inside(), _reading(path) as connection:
        return make_backup(connection, path, target)


def open_copy(path: Path) -> tuple[Path, CopyHold]:
    """Return the path of a readable copy of the store at `path`, and a hold that keeps the copy from being removed.

    The copy has the current content of the store. If the cache has no such copy, it is made.
    """
    copy = copy_cache.name_copy(path)
    hold = copy_cache.hold_copy(copy)
    if hold is None:
        hold = _make_copy(path, copy)
    copy_cache.remove_outdated()
    return copy, hold


def _make_copy(path: Path, copy: Path) -> CopyHold:
    folder = copy.parent
    try:
        home.make_private_folder(folder)
        clear_partials(folder)
        with (
            Inside(),
            open_partial_file(folder, path.stem[:LONGEST_NAME], BESIDE_COPY) as (partial, descriptor),
        ):
            with _reading(path) as source:
                copy_into(source, path, partial)
            _convert(partial)
            os.fsync(descriptor)
            encryption.copy_note(partial, copy)
            hold = copy_cache.publish_copy(partial, copy, path)
        sync_folder(folder)
    except (apsw.Error, OSError) as problem:
        raise backup_error(path, problem) from problem
    return hold


@contextmanager
def _reading(path: Path) -> Iterator[apsw.Connection]:
    """Yield a connection for reading the store at `path`. After it is closed, the same files are beside the
    store as before.
    """
    found_log = has_log(path) or file_guard.is_open(path)
    is_log_alone = found_log and not os.path.exists(f"{path}-shm") and os.access(path, os.W_OK)
    with closing(connect(path) if is_log_alone else connect_read_only(path)) as connection:
        if is_log_alone:
            # The file was copied here with its log, or a program was killed. An exclusive connection needs no `-shm`.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            run(connection, "PRAGMA locking_mode=EXCLUSIVE")
        yield connection
    if not found_log:
        take_log_away(path)


def _convert(copy: Path) -> None:
    """Migrate the file `copy`, a copy of a store of another version, to the current layout, and index its
    messages for search.
    """
    with closing(connect(copy)) as connection:
        run(connection, "PRAGMA foreign_keys=OFF")
        with transaction(connection):
            _drop_foreign_objects(connection)
            columns = read_columns(connection, "messages")
            if "compacted" in columns:
                _show_compacted(connection)
            if "uid" in columns:  # a Hermes store, perhaps of layout 1
                store_uids_as_text(connection)
            set_version(connection, BEFORE_ANY_VERSION)
            run(connection, NO_MARKS)
        migrate(copy, connection, keep_backup=False)
        writer = SqliteWriter(connection, {})
        for step in (substring.follow_index, index.settle):
            is_more = True
            while is_more:
                with transaction(connection):
                    is_more = step(writer)


def _drop_foreign_objects(connection: apsw.Connection) -> None:
    """Drop triggers, views, indexes and search tables, because they may need a newer program.

    Drop tables whose names conflict with those of the store.
    """
    for kind, name in run(connection, RULES):
        run(connection, fill_names(DROPS[kind], name=name))
    strike_names(connection, [name for (name,) in run(connection, VIRTUAL_TABLES)])
    for (name,) in run(connection, SEARCH_TABLES):
        run(connection, fill_names(DROP_TABLE, name=name))
    for name in find_collisions(connection, expected_shape()):
        run(connection, fill_names(DROP_TABLE, name=name))


def _show_compacted(connection: apsw.Connection) -> None:
    """Make all messages of compacted conversations visible, each once.

    Since version 12, the reference compacts a conversation in place. It hides the original messages and
    writes a summary. It also writes a second copy of the messages that stay in the context.
    """
    rows = run(connection, COMPACTED)
    run(connection, SHOW_COMPACTED)
    for _, session in groupby(rows, key=lambda row: row[0]):
        for message_id in find_repeated([_Message(row[1], row[2:]) for row in session]):
            run(connection, HIDE, message_id)


def find_repeated(messages: Sequence[_Message]) -> list[int]:
    """Return the ids of messages that a compaction wrote a second time.

    Before a summary, a compaction repeats the first messages of the conversation. After the summary, it
    repeats the last messages. If no first messages are repeated, a single repeated message after a summary
    does not count, because people may say "yes" twice.
    """
    texts = [message.content for message in messages]
    repeated: list[int] = []
    at = 0
    while at < len(texts):
        kept, length = _find_repetition(texts, at)
        repeated += [message.id for message in messages[at - 1 - kept : at - 1]]
        repeated += [message.id for message in messages[at : at + length]]
        at += length or 1
    return repeated


def _find_repetition(texts: Sequence[Sequence[Any]], at: int) -> tuple[int, int]:
    """Find the messages that a compaction has repeated around a summary. `texts` are the messages of the conversation
    in order, and the summary is at the position `at - 1`.

    Return two numbers: how many of the first messages of the conversation are repeated directly before the summary,
    and how many of the last messages before these are repeated after it.
    """
    for kept in range(min(MOST_KEPT_AT_THE_START, at - 1) + 1):
        before = at - 1 - kept
        if before < 0 or texts[before : at - 1] != texts[:kept]:
            continue
        for length in range(min(before, len(texts) - at), 1 if not kept else 0, -1):
            if texts[at : at + length] == texts[before - length : before]:
                return kept, length
    return 0, 0
