"""Substring search (`*part*`): finds the terms of the message index that contain some letters.

A list of all terms, with a trigram index, answers such a query in a fraction of a millisecond. Storing a
message does not write to the list. Instead, a substring search first brings the list up to date, in short
transactions: from FTS5's own vocabulary or, if little was added, from the rows. In a read-only or locked
store, the list cannot be updated. The search result is the same: terms that are not listed yet are then read
from the rows, in the snapshot of the search.

A term may be a secret. So every operation that rewrites the file (vacuum, optimize, shrink, purge and scrub)
deletes the list with `forget`. After rows were removed, the next substring search makes a new list. In a
store of more than `SMALL` messages, this is done only if more than 1 % of the messages were removed.

A scoped search does not use the list, because the list contains terms of other people. It reads the rows of
its owners instead.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import apsw

from hermes import errors
from hermes.store.engine import Reader, Row, Writer
from hermes.store.query_tree import LookUp, Node, fill_terms, list_parts
from hermes.store.sqlite.connection import SqliteReader, SqliteWriter, run
from hermes.store.sqlite.search import index
from hermes.store.sqlite.search.split_texts import fields_of
from hermes.terms import fold, index_texts, is_spaceless

T = TypeVar("T")

MOST_TERMS = 256
SHORTEST = 3
"""The length of a trigram. Shorter pieces are searched in the text."""
SMALL = 10_000
FEW_ROWS = 500
"""Up to this many new rows, or a twentieth of all rows if that is more, are split to find their terms.

If there are more new rows, the list is made anew from FTS5's vocabulary, which is then faster.
"""
LONGEST_WAIT, BETWEEN_TRIES = 0.5, 0.02
"""How many seconds a search waits for the write lock to update the list, and the pause between attempts."""
TERMS_AT_ONCE = 2_000
"""About how many terms can be listed in 20 ms."""

PROGRESS = "SELECT name, value FROM index_progress"
SET_PROGRESS = """INSERT INTO index_progress (name, value) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
FORGET_PROGRESS = "DELETE FROM index_progress WHERE name LIKE 'parts %'"
COUNT = """INSERT INTO index_progress (name, value) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET value = value + excluded.value"""
# The rows that the next `index.follow` removes, and whether each is inserted again.
NOTED = """SELECT c.message_id, m.id IS NOT NULL FROM (SELECT message_id FROM changed_messages WHERE message_id <=
    (SELECT value FROM index_progress WHERE name = 'messages') ORDER BY message_id LIMIT ?) c
    LEFT JOIN messages m ON m.id = c.message_id"""
EDITED_SO_FAR = "SELECT value FROM index_progress WHERE name = 'edited'"
NOTE_EDIT = """INSERT INTO messages_fts_words_edited (note, id) VALUES (?, ?)
    ON CONFLICT (note) DO UPDATE SET id = excluded.id"""
COUNT_EDITS = "SELECT count(*) FROM messages_fts_words_edited WHERE note > ?"
FORGET_EDITS = "DELETE FROM messages_fts_words_edited WHERE note <= ?"
EXISTS = "SELECT 1 FROM sqlite_master WHERE name = 'messages_fts_words_grams'"
DROP = """DROP TABLE IF EXISTS messages_fts_words_grams; DROP TABLE IF EXISTS messages_fts_words_terms;
    DROP TABLE IF EXISTS messages_fts_words_edited"""
UNHOOK = """DELETE FROM sqlite_master WHERE tbl_name LIKE 'messages~_fts~_words~_grams%' ESCAPE '~'
    OR tbl_name IN ('messages_fts_words_terms', 'messages_fts_words_edited')"""
CLEAR_GRAMS = "INSERT INTO messages_fts_words_grams (messages_fts_words_grams) VALUES ('delete-all')"
CLEAR_TERMS = "DELETE FROM messages_fts_words_terms"
CLEAR_EDITS = "DELETE FROM messages_fts_words_edited"
ADD_TERM = "INSERT INTO messages_fts_words_terms (term) VALUES (?) ON CONFLICT DO NOTHING RETURNING id"
ADD_GRAMS = "INSERT INTO messages_fts_words_grams (rowid, term) VALUES (?, ?)"
LISTED = "SELECT term FROM messages_fts_words_grams WHERE term GLOB ? ORDER BY rowid LIMIT ?"

# This also works in a read-only store: a temporary table is not part of the file.
VOCABULARY = """CREATE VIRTUAL TABLE IF NOT EXISTS temp.message_vocabulary
    USING fts5vocab('main', 'messages_fts_words', 'row')"""
ALL_TERMS = "SELECT term FROM temp.message_vocabulary WHERE length(term) >= ? ORDER BY doc DESC"
HOLDING = """SELECT term FROM temp.message_vocabulary WHERE instr(term, ?) > 0 ORDER BY doc DESC LIMIT ?"""

COUNT_NEW = "SELECT count(*) FROM messages WHERE id > ? AND id <= ?"
NEW = """SELECT content, content_kind, tool_name, tool_calls FROM messages WHERE id > ? AND id <= ?
    UNION ALL SELECT m.content, m.content_kind, m.tool_name, m.tool_calls
    FROM messages_fts_words_edited e CROSS JOIN messages m ON m.id = e.id WHERE e.note > ?"""
# On a scoped connection this returns only the rows of its owners.
OWN = """SELECT m.content, m.content_kind, m.tool_name, m.tool_calls
    FROM sessions s CROSS JOIN messages m ON m.session_id = s.id"""


# Names in `index_progress`. For the index: how many rows were indexed again, and how many were changed or removed.
EDITED, REMOVED = "edited", "removed"
# For the list: its build number (under another name until it is complete), its watermark, and the counts at that
# time.
BUILD, UNFINISHED = "parts build", "parts unfinished"
MARK, EDITS, REMOVALS = "parts mark", "parts edited", "parts removed"


class Standing(NamedTuple):
    """The state of the index, and of the list of terms.

    `mark` is the watermark of the index. `edited` counts the rows that were indexed again. `removed` counts
    the rows that were changed or removed. `listed` and `listed_edited` are the values of `mark` and `edited`
    at the last update of the list. `built_removed` is the value of `removed` when the list was made.
    """

    mark: int
    edited: int
    removed: int
    build: int
    """A random number that identifies the list. 0 if there is no list, or it is incomplete."""
    listed: int
    listed_edited: int
    built_removed: int

    @classmethod
    def read(cls, reader: Reader) -> Standing:
        known: dict[str, int] = dict(cast(Iterable[tuple[str, int]], reader.rows(PROGRESS)))
        names = ("messages", EDITED, REMOVED, BUILD, MARK, EDITS, REMOVALS)
        return cls(*(known.get(name, 0) for name in names))

    def is_usable(self, reader: Reader) -> bool:
        """Return whether the list of terms can be used. If not, it must be made again.

        The list lacks the terms of rows that were indexed after its last update. It can be used if these rows
        are known and few.
        """
        if not self.build or self.mark < self.listed:
            return False
        edits = self.edited - self.listed_edited
        if edits and reader.value(COUNT_EDITS, self.listed_edited) != edits:
            return False
        count = edits + self.mark - self.listed
        if count > FEW_ROWS:  # an upper bound only, because ids have gaps
            count = edits + int(reader.value(COUNT_NEW, self.listed, self.mark))
        return count <= max(FEW_ROWS, self.mark // 20)

    @property
    def is_up_to_date(self) -> bool:
        return (self.mark, self.edited) == (self.listed, self.listed_edited)

    def newer(self, reader: Reader) -> Iterator[Row]:
        """Yield the messages that were indexed, for the first time or again, after the last update of the
        list of terms.
        """
        return reader.each(NEW, self.listed, self.mark, self.listed_edited)

    @property
    def is_clean(self) -> bool:
        """Whether so few rows were removed since the list was made that it can be kept."""
        return self.removed - self.built_removed <= (self.mark // 100 if self.mark > SMALL else 0)


def has_part(tree: Node) -> bool:
    return any(len(leaf.piece) >= SHORTEST for leaf in list_parts(tree))


def expand_parts(reader: SqliteReader, tree: Node, *, own: bool) -> Node:
    """Return the query tree, with the matching terms filled in at each of its `*part*` leaves: the terms of this
    snapshot that contain the letters of the leaf.

    `own` means that the connection is scoped. The terms are then read from the visible messages instead of the list.
    """
    pieces = {leaf.piece for leaf in list_parts(tree) if len(leaf.piece) >= SHORTEST}
    if not pieces:
        return tree
    return fill_terms(tree, _among_own(reader, pieces) if own else _among_all(reader, pieces))


def find_cut(tree: Node) -> tuple[str, ...]:
    """Return the `*part*` texts of the query that are contained in too many terms. For these, only the most frequent
    terms are searched, so that the result may be incomplete.
    """
    return tuple(leaf.text for leaf in list_parts(tree) if leaf.cut)


def _among_own(reader: SqliteReader, pieces: Collection[str]) -> LookUp:
    found = Counter(_list_terms(reader.each(OWN), pieces))
    ordered = [term for term, _ in found.most_common()]
    return lambda piece: None if piece not in pieces else _cut(term for term in ordered if piece in term)


def _among_all(reader: SqliteReader, pieces: Collection[str]) -> LookUp:
    standing = Standing.read(reader)
    if not standing.is_usable(reader):
        _open_vocabulary(reader)
        return lambda piece: (
            None
            if piece not in pieces
            else _cut(row[0] for row in reader.rows(HOLDING, piece, MOST_TERMS + 1))
        )
    newer = list(dict.fromkeys(_list_terms(standing.newer(reader), pieces)))

    def look_up(piece: str) -> tuple[tuple[str, ...], bool] | None:
        if piece not in pieces:
            return None
        listed = [row[0] for row in reader.rows(LISTED, f"*{piece}*", MOST_TERMS + 1)]
        return _cut(dict.fromkeys([*listed, *[term for term in newer if piece in term]]))

    return look_up


def _cut(terms: Iterable[str]) -> tuple[tuple[str, ...], bool]:
    most = tuple(islice(terms, MOST_TERMS + 1))
    return most[:MOST_TERMS], len(most) > MOST_TERMS


def _list_terms(rows: Iterable[Any], pieces: Collection[str] = ()) -> Iterator[str]:
    """Yield the terms of each message in `rows`. A term that occurs several times in one message is yielded once for
    it.

    If `pieces` is given, yield only terms that contain at least one of these strings.
    """
    quick = bool(pieces) and all(map(str.isascii, pieces))
    for row in rows:
        fields = fields_of(*row)
        # Splitting is expensive, and most rows contain none of the pieces.
        if quick and not any(piece in text for text in map(fold, fields) for piece in pieces):
            continue
        for term in {term for stream in index_texts(*fields) for term in stream.split(" ")}:
            if _is_listed(term) and (not pieces or any(piece in term for piece in pieces)):
                yield term


def _is_listed(term: str) -> bool:
    """Return whether this term belongs in the list.

    Terms of scripts without spaces do not, because substrings in these scripts are found without the list.
    """
    return len(term) >= SHORTEST and not is_spaceless(term)


def _open_vocabulary(reader: Reader) -> None:
    reader.rows("PRAGMA query_only=OFF")
    try:
        reader.rows(VOCABULARY)
    finally:
        reader.rows("PRAGMA query_only=ON")


# Maintenance of the list


class Store(Protocol):
    """The methods that the functions of this module need from the engine, to update the list of terms."""

    def read(self) -> AbstractContextManager[Reader]: ...
    def write_if_free(self, work: Callable[[Writer], T]) -> T: ...


def follow(store: Store) -> None:
    """Bring the list of terms up to date, or create it. The terms are read first and then written in short
    transactions.

    Raise `StoreBusy` if the write lock is not free when a new list is begun, or if a writer holds it for too
    long later. The next search then starts again.
    """
    with store.read() as reader:
        standing = Standing.read(reader)
        build, built_removed = standing.build, standing.built_removed
        if not standing.is_usable(reader) or not standing.is_clean:
            build, built_removed = 0, standing.removed
            _open_vocabulary(reader)
            terms = [row[0] for row in reader.each(ALL_TERMS, SHORTEST) if _is_listed(row[0])]
        elif not standing.is_up_to_date:
            terms = list(dict.fromkeys(_list_terms(standing.newer(reader))))
        else:
            return
    if not build:
        build = int.from_bytes(os.urandom(6), "big") + 1
        store.write_if_free(partial(_begin, build=build))
    for at in range(0, len(terms), TERMS_AT_ONCE):
        if not _write_soon(store, partial(_add, build=build, terms=terms[at : at + TERMS_AT_ONCE])):
            return  # another process has made a new list or deleted this one
    progress = {MARK: standing.mark, EDITS: standing.edited, REMOVALS: built_removed, BUILD: build}
    _write_soon(store, partial(_finish, progress=progress))


def _write_soon(store: Store, work: Callable[[Writer], T]) -> T:
    """Run a transaction as soon as the write lock is free.

    Raise `StoreBusy` if a writer holds the lock for too long.
    """
    until = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            return store.write_if_free(work)
        except errors.StoreBusy:
            if time.monotonic() > until:
                raise
            time.sleep(BETWEEN_TRIES)


def _begin(writer: Writer, *, build: int) -> None:
    run(cast(SqliteWriter, writer).raw, read_definition())
    for sql in (CLEAR_GRAMS, CLEAR_TERMS, CLEAR_EDITS, FORGET_PROGRESS):
        writer.run(sql)
    writer.run(SET_PROGRESS, UNFINISHED, build)


def _add(writer: Writer, *, build: int, terms: list[str]) -> bool:
    if not _is_current(writer, build):
        return False
    added = [(row[0], term) for term in terms if (row := writer.row(ADD_TERM, term)) is not None]
    cast(SqliteWriter, writer).many(ADD_GRAMS, added)
    return True


def _finish(writer: Writer, *, progress: dict[str, int]) -> None:
    if _is_current(writer, progress[BUILD]):
        writer.run(FORGET_PROGRESS)
        writer.run(FORGET_EDITS, progress[EDITS])
        for name, value in progress.items():
            writer.run(SET_PROGRESS, name, value)


def _is_current(writer: Writer, build: int) -> bool:
    return (UNFINISHED, build) in (known := writer.rows(PROGRESS)) or (BUILD, build) in known


def forget(connection: apsw.Connection) -> None:
    """Delete the list of terms. The next substring search makes a new one. Call this outside any transaction.

    A table with a damaged page cannot be dropped. The name of such a table is deleted from the schema
    instead, and VACUUM frees its pages.
    """
    if not run(connection, EXISTS):
        return
    try:
        with connection:
            run(connection, DROP)
            run(connection, FORGET_PROGRESS)
    except apsw.CorruptError:
        with connection:
            run(connection, "PRAGMA writable_schema=ON")
            try:
                run(connection, UNHOOK)
            finally:
                run(connection, "PRAGMA writable_schema=RESET")
            run(connection, FORGET_PROGRESS)
        run(connection, "VACUUM")


def follow_index(writer: SqliteWriter) -> bool:
    """Call `index.follow` and return its result. Record the changed rows, which `follow` removes from the
    index and inserts again."""
    noted = writer.rows(NOTED, index.CHANGED_AT_ONCE)
    if noted:
        _note(writer, [message_id for message_id, is_there in noted if is_there], len(noted))
    return index.follow(writer)


def _note(writer: SqliteWriter, edited: list[int], removed: int) -> None:
    before = int(writer.value(EDITED_SO_FAR) or 0)
    writer.run(COUNT, EDITED, len(edited))
    writer.run(COUNT, REMOVED, removed)
    if writer.value(EXISTS) is not None:
        writer.many(NOTE_EDIT, enumerate(edited, before + 1))


def delete_messages(writer: SqliteWriter, session_id: str) -> int:
    """Call `index.delete_messages`, and add the number of removed rows to the count in the store. Return that
    number."""
    removed = index.delete_messages(writer, session_id)
    if removed:
        writer.run(COUNT, REMOVED, removed)
    return removed


def read_definition() -> str:
    return Path(__file__).with_name("substring.sql").read_text(encoding="utf-8")
