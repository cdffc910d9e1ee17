"""Scrub: remove a secret from the store, its index and its log, and from every copy beside it.

At the end each file is rewritten completely, so that free pages do not contain the secret either. So if a
scrub is killed, the next scrub completes its work, even if it finds no rows to change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from glob import escape
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw

from hermes import errors, home
from hermes.atomic_files import PARTIAL, clear_partials, replace_file
from hermes.store import derived
from hermes.store.columns import list_message_names, list_session_names
from hermes.store.engine import Engine, Secret, Writer
from hermes.store.sessions.titles import MAX_TITLE_LENGTH
from hermes.store.sqlite.connection import SqliteReader, SqliteWriter, connect, run
from hermes.store.sqlite.copies.backup import DAMAGED, backup_folder
from hermes.store.sqlite.erasure import purge_copies
from hermes.store.sqlite.migrations.identifiers import fill_names, quote_name
from hermes.store.sqlite.opener import is_current
from hermes.store.sqlite.repair.store_rebuild import refresh_all
from hermes.store.sqlite.search import substring
from hermes.store.sqlite.upkeep import copy_cache
from hermes.store.sqlite.wal.sidecars import SIDECARS
from hermes.store.values import Scrubbed, ScrubReceipt
from hermes.text import format_count

IS_A_STORE = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('sessions', 'messages')"
ROWS_AT_ONCE = 100
"""How many rows one transaction rewrites.

The number is small, so that other writers do not wait long for the write lock.
"""
KEPT = frozenset(
    (
        *list_session_names(lambda column: not column.is_scrubbed),
        *list_message_names(lambda column: not column.is_scrubbed),
        *("conversation_id", "hash", "key", "name", "participant", "idempotency_key"),
        *("state", "platform", "managed_mode", "media_type"),
    )
)
"""Columns that identify rows or control programs. Changing them would destroy more than the secret."""
NUMBERED = ("title", "tag")
"""Columns with unique values.

If removing the secret makes two values equal, the second one gets the suffix ` (2)`.
"""

# The Hermes index stores no text and is updated from the rows. The list of its terms is deleted.
TABLES = """SELECT name, type = 'virtual', wr FROM pragma_table_list
    WHERE schema = 'main' AND type IN ('table', 'virtual') AND name NOT IN ('sqlite_schema', 'messages_fts_blocks')
    AND name NOT LIKE 'messages~_fts~_words%' ESCAPE '~' ORDER BY type, name"""
COLUMNS = "SELECT name, pk FROM pragma_table_info(?) ORDER BY cid"
CELL = "CASE WHEN typeof({column}) IN ('text', 'blob') THEN CAST({column} AS BLOB) END"
READ = "SELECT @key, @cells FROM {table}"
READ_ONE = "SELECT @cells FROM {table} WHERE @same"
TYPED = "typeof({column}), CAST({column} AS BLOB)"
SET = "UPDATE {table} SET @changes WHERE @same"
CHANGE = "{column} = CASE typeof({column}) WHEN 'text' THEN CAST(? AS TEXT) ELSE ? END"
SAME = "{column} = ?"
# A blob is identified by the hash of its bytes. Changed bytes make a new blob, to which its messages then refer.
BLOB = "SELECT hash, bytes FROM blobs WHERE rowid = ?"
COPY_BLOB = """INSERT INTO blobs (hash, media_type, size, bytes, created_at)
    SELECT ?, media_type, size, bytes, created_at FROM blobs WHERE hash = ? ON CONFLICT DO NOTHING"""
SHOWN_IN = "SELECT m.id, m.content FROM blob_refs r JOIN messages m ON m.id = r.message_id WHERE r.hash = ?"
REFER = "INSERT INTO blob_refs (message_id, hash) VALUES (?, ?) ON CONFLICT DO NOTHING"
SAY = "UPDATE messages SET content = ? WHERE id = ?"
FORGET_REFS = "DELETE FROM blob_refs WHERE hash = ?"
FORGET_BLOB = "DELETE FROM blobs WHERE hash = ?"
SESSIONS_OF_BLOB = (
    "SELECT DISTINCT m.session_id FROM blob_refs r JOIN messages m ON m.id = r.message_id WHERE r.hash = ?"
)


def scrub(engine: Engine, rewrite_file: Callable[[], bool], secret: Secret, *, dry_run: bool) -> ScrubReceipt:
    """Remove the secret from the store and its copies. With `dry_run`, only report where it is.

    `rewrite_file` merges the index and vacuums the file. It returns False if a reader prevents the log from being
    emptied.
    """
    with engine.read() as reader:
        hits = list(_find_hits(cast(SqliteReader, reader), secret))
    left = _describe_kept(hits, secret)
    if not dry_run:
        waiting = iter(hits)
        while batch := list(islice(waiting, ROWS_AT_ONCE)):
            left += engine.write(partial(_rewrite, batch=batch, secret=secret), share=False)
        while engine.write(derived.refresh, share=False):
            pass
        left += _rewrite_free_pages(engine.path, rewrite_file)
    copies = CopyScrubber(engine.path, secret, dry_run)
    copies.scrub()
    return ScrubReceipt((*_count_by_column(hits, secret), *copies.places), (*left, *copies.left), dry_run)


def _rewrite_free_pages(path: Path, rewrite_file: Callable[[], bool]) -> list[str]:
    try:
        if rewrite_file():
            return []
        return [f"{path.name}-wal: another program is reading the store; scrub again when it has finished"]
    except errors.StoreError as problem:
        return [f"{path.name}: its free pages could not be rewritten ({problem})"]


def _rewrite(writer: Writer, *, batch: list[Hit], secret: Secret) -> list[str]:
    left = _rewrite_rows(writer, batch, secret)
    derived.refresh(writer)
    return left


class CopyScrubber:
    """Removes the secret from the files beside a store: its backups, other stores in its folder, and damaged files
    that repairs and restores kept.
    """

    def __init__(self, path: Path, secret: Secret, dry_run: bool) -> None:
        self._path, self._secret, self._dry_run = path, secret, dry_run
        self.places: list[Scrubbed] = []
        self.left: list[str] = []

    def scrub(self) -> None:
        folder, beside = backup_folder(self._path), self._path.parent
        if not self._dry_run:
            clear_partials(folder)
            clear_partials(beside)
        for copy in sorted((*folder.glob("*.db"), *beside.glob("*.db"))):
            if copy.is_file() and not copy.samefile(self._path):
                self._scrub_copy(copy)
        self._scrub_cache()
        aside = {*folder.glob(f"*{DAMAGED}*"), *beside.glob(f"{escape(self._path.name)}.damaged*")}
        aside.update(beside.glob(f"{escape(self._path.name)}.new-*"))
        aside.update(
            file
            for end in SIDECARS
            for file in folder.glob(f"*.db{end}")
            if not _find_owner(file, end).exists()
        )
        for file in sorted(aside):
            self._blot(file)
        still = () if self._dry_run else (*folder.glob(f".*{PARTIAL}"), *beside.glob(f".*{PARTIAL}"))
        for file in still:
            self._leave(file, "another process is writing it; scrub again when it has finished")

    def _scrub_cache(self) -> None:
        """Remove the copies that were made to read other stores.

        Report which of them contained the secret.
        """
        copies = [copy.path for copy in copy_cache.list_copies() if copy.path.exists()]
        counting = CopyScrubber(self._path, self._secret, dry_run=True)
        for copy in copies:
            counting._scrub_copy(copy)
        self.places += counting.places
        for copy in () if self._dry_run else copy_cache.remove_all():
            self._leave(copy, "another process is reading it; scrub again when it has finished")

    def _leave(self, file: Path, why: str) -> None:
        self.left.append(f"{self._name(file)}: {self._secret.clean_name(why)}")

    def _name(self, file: Path) -> str:
        folder = self._path.parent
        return self._secret.clean_name(str(file.relative_to(folder) if file.is_relative_to(folder) else file))

    def _scrub_copy(self, copy: Path) -> None:
        try:
            found = self._rewritten(copy)
        except (apsw.NotADBError, apsw.CorruptError) as problem:
            if copy.parent == backup_folder(self._path):
                self._blot(copy)
            elif isinstance(problem, apsw.CorruptError):
                self._leave(copy, "damaged, and may not be a copy of this store; it was not changed")
            elif self._secret.remove_from_bytes(copy.read_bytes())[1]:
                self._leave(copy, "not a database, so not a copy of this store; it was not changed")
        except (apsw.Error, errors.StoreError, OSError) as problem:
            self._leave(copy, f"it could not be rewritten ({problem})")
        else:
            self.left += [f"{self._name(copy)}: {line}" for line in found.left]
            if found.places:
                self.places.append(Scrubbed(self._name(copy), found.occurrences, found.sessions))

    def _rewritten(self, copy: Path) -> ScrubReceipt:
        """Remove the secret from the rows, the search index and the free pages of `copy`, a copy of a store in any
        version. Return where the secret was found.

        In a dry run, change nothing. A database that is not a session store is left unchanged too.
        """
        alone = not any(Path(f"{copy}{ending}").exists() for ending in SIDECARS)
        connection = connect(copy, read_only=self._dry_run, immutable=self._dry_run and alone)
        try:
            if run(connection, IS_A_STORE) != [(2,)]:
                return ScrubReceipt()
            hits = list(_find_hits(SqliteReader(connection, {}), self._secret))
            left = _describe_kept(hits, self._secret)
            if not self._dry_run:
                left += _rewrite_copy(connection, hits, self._secret)
                home.tighten(str(copy), home.PRIVATE_FILE)
            return ScrubReceipt(tuple(_count_by_column(hits, self._secret)), tuple(left))
        finally:
            connection.close()

    def _blot(self, file: Path) -> None:
        """Overwrite each occurrence of the secret in `file`, which SQLite cannot read as a database. In a dry run,
        only count them.
        """
        try:
            cleaned, count = self._secret.mask_in_bytes(file.read_bytes())
            if count and not self._dry_run:
                replace_file(file, cleaned)
        except OSError as problem:
            self._leave(file, problem.strerror or type(problem).__name__)
            return
        if count:
            self.places.append(Scrubbed(self._name(file), count))
            self._leave(file, "damaged; only whole occurrences were overwritten; delete the file to be sure")


def _find_owner(sidecar: Path, ending: str) -> Path:
    return sidecar.with_name(sidecar.name.removesuffix(ending))


def _rewrite_copy(connection: apsw.Connection, hits: list[Hit], secret: Secret) -> list[str]:
    writer = SqliteWriter(connection, {})
    tables = {row[0] for row in run(connection, purge_copies.SEARCH_TABLES)}
    with connection:
        left = _rewrite_rows(writer, hits, secret)
    if is_current(connection):
        refresh_all(connection)
    substring.forget(connection)
    for name, merge in purge_copies.MERGES.items():
        if name in tables:
            run(connection, merge)
    run(connection, "VACUUM")
    busy, *_ = run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0]
    return [*left, "another program is reading it; scrub again when it has finished"] if busy else left


# ---------------------------------------------------------------- rows with the secret

# No assumption is made about the tables, because a copy may be of any version, and other programs add columns. Every
# value is examined. Values that identify rows or control programs are kept and reported.


class Table(NamedTuple):
    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    virtual: bool


class Hit(NamedTuple):
    """A row of any table that contains the secret: the key of the row, the number of occurrences in each column, and
    the sessions to which the row belongs. (This is not a search hit.)
    """

    table: Table
    key: tuple[Any, ...]
    columns: dict[str, int]
    sessions: tuple[str, ...]


def _find_hits(reader: SqliteReader, secret: Secret) -> Iterator[Hit]:
    """Yield every row of the database that contains the secret.

    Rows of the search tables come last, after the rows of the tables from which they are derived.
    """
    for table in list(_list_tables(reader)):
        keys, cells = (
            ", ".join(map(quote_name, table.key)),
            ", ".join(fill_names(CELL, column=c) for c in table.columns),
        )
        sql = fill_names(READ, table=table.name).replace("@key", keys).replace("@cells", cells)
        for row in reader.each(sql):
            key, values = row[: len(table.key)], dict(zip(table.columns, row[len(table.key) :], strict=True))
            counted = {
                name: _take_out(secret, table, value)[1]
                for name, value in values.items()
                if value is not None
            }
            found = {name: count for name, count in counted.items() if count}
            if found:
                yield Hit(table, key, found, _find_sessions(reader, table, values))


def _take_out(secret: Secret, table: Table, data: bytes) -> tuple[bytes, int]:
    """Remove the secret from `data`, a value of one row of `table`. Return the new value and the number of removed
    occurrences.

    Tags are stored in lower case. From a value of the table `tags`, the lower-case form of the secret is removed too.
    """
    cleaned, count = secret.remove_from_bytes(data)
    if table.name == "tags" and secret.folded is not secret:
        cleaned, more = secret.folded.remove_from_bytes(cleaned)
        count += more
    return cleaned, count


def _find_sessions(reader: SqliteReader, table: Table, values: dict[str, bytes | None]) -> tuple[str, ...]:
    if table.name == "blobs" and reader.rows(COLUMNS, "blob_refs"):
        return tuple(row[0] for row in reader.rows(SESSIONS_OF_BLOB, values["hash"]))
    session = values.get("id" if table.name == "sessions" else "session_id")
    return () if session is None else (session.decode("utf-8", "replace"),)


def _list_tables(reader: SqliteReader) -> Iterator[Table]:
    for name, virtual, without_rowid in reader.rows(TABLES):
        columns = reader.rows(COLUMNS, name)
        primary = tuple(column for column, at in sorted(columns, key=lambda row: row[1]) if at)
        key = primary if without_rowid else ("rowid",)
        yield Table(name, key, tuple(column for column, _ in columns), bool(virtual))


def _rewrite_rows(writer: Writer, hits: Iterable[Hit], secret: Secret) -> list[str]:
    """Remove the secret from the rows `hits`. Each row is read again, because it may have changed since it was found.

    Return a description of each row that could not be changed.
    """
    return [line for hit in hits for line in _rewrite_row(writer, hit, secret)]


def _rewrite_row(writer: Writer, hit: Hit, secret: Secret) -> list[str]:
    columns = [column for column in hit.columns if column not in KEPT]
    if not columns:
        return []
    same = " AND ".join(fill_names(SAME, column=column) for column in hit.table.key)
    typed = ", ".join(fill_names(TYPED, column=column) for column in columns)
    sql = fill_names(READ_ONE, table=hit.table.name).replace("@cells", typed).replace("@same", same)
    row = writer.row(sql, *hit.key) or ()
    changes: dict[str, bytes] = {}
    for column, kind, data in zip(columns, row[::2], row[1::2], strict=False):
        if kind in ("text", "blob"):
            # A value that is stored as bytes is a file. It keeps its length, so that it can still be opened.
            cleaned, count = (
                secret.mask_in_bytes(data) if kind == "blob" else _take_out(secret, hit.table, data)
            )
            if count:
                changes[column] = cleaned
    left = _set(writer, hit, changes, same) if changes else []
    if hit.table.name == "blobs" and "bytes" in changes and writer.rows(COLUMNS, "blob_refs"):
        _rename_blob(writer, hit.key[0])
    return left


def _rename_blob(writer: Writer, rowid: int) -> None:
    old, data = writer.row(BLOB, rowid) or (b"", b"")
    new = sha256(data).digest()
    writer.run(COPY_BLOB, new, old)
    for message_id, content in writer.rows(SHOWN_IN, old):
        writer.run(REFER, message_id, new)
        if isinstance(content, str):
            writer.run(SAY, content.replace(old.hex(), new.hex()), message_id)
    writer.run(FORGET_REFS, old)
    writer.run(FORGET_BLOB, old)


def _set(writer: Writer, hit: Hit, changes: dict[str, bytes], same: str) -> list[str]:
    sql = fill_names(SET, table=hit.table.name).replace("@same", same)
    sql = sql.replace("@changes", ", ".join(fill_names(CHANGE, column=column) for column in changes))
    numbers = range(1, 1000) if any(column in NUMBERED for column in changes) else range(1, 2)
    for number in numbers:
        values = [
            _fit_length(data, number) if column in NUMBERED else data for column, data in changes.items()
        ]
        try:
            writer.run(sql, *(value for value in values for _ in range(2)), *hit.key)
            return []
        except apsw.ConstraintError:
            continue
    return [f"{hit.table.name}: a row was kept, because without the secret it would not be unique"]


def _fit_length(data: bytes, number: int) -> bytes:
    """Return the session title `data`, shortened if it would exceed the longest allowed title.

    If `number` is higher than 1, the result ends with it, for example ` (2)`.
    """
    suffix = f" ({number})" if number > 1 else ""
    text = data.decode("utf-8", "replace")
    if len(text) + len(suffix) > MAX_TITLE_LENGTH:
        text = text[: MAX_TITLE_LENGTH - len(suffix)].rstrip()
    return (text + suffix).encode()


def _count_by_column(hits: list[Hit], secret: Secret) -> list[Scrubbed]:
    counts: Counter[str] = Counter()
    sessions: dict[str, set[str]] = defaultdict(set)
    for hit in hits:
        for column, count in hit.columns.items():
            if column not in KEPT and not hit.table.virtual:
                counts[f"{hit.table.name}.{column}"] += count
                sessions[f"{hit.table.name}.{column}"].update(map(secret.clean_name, hit.sessions))
    return [Scrubbed(place, counts[place], tuple(sorted(sessions[place]))) for place in sorted(counts)]


def _describe_kept(hits: list[Hit], secret: Secret) -> list[str]:
    rows = Counter(f"{hit.table.name}.{name}" for hit in hits for name in hit.columns if name in KEPT)
    why = "it identifies rows or controls programs"
    return [
        f"{secret.clean_name(name)}: kept in {format_count(count, 'row')}, because {why}"
        for name, count in sorted(rows.items())
    ]
