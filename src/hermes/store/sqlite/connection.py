"""The function that opens a SQLite connection, and the translation of SQLite's errors into ours.

apsw runs a string of several statements lazily. `run` reads the cursor to its end, so that all of them are executed.
"""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Iterator
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, LiteralString

import apsw

from hermes import errors, home
from hermes.store.engine import Row
from hermes.store.sqlite import sql_functions
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.wal.file_identity import NO_DESCRIPTORS
from hermes.text import replace_surrogates

DEADLINE_S = 30.0
"""How long a write waits for other processes before it fails."""

_SHORT_WAIT_S, _SHORT_WAITS, _LONG_WAIT_S = 0.0005, 20, 0.002

_READ_WRITE = apsw.SQLITE_OPEN_READWRITE
_READ_ONLY = apsw.SQLITE_OPEN_READONLY
_URI = apsw.SQLITE_OPEN_URI

READ_SOMETHING = "PRAGMA schema_version"
"""A statement that reads only the first page.

Parsing the schema is half the cost of opening, so it is left to a later statement.
"""

WAL_ERRORS = ("locking protocol", "not authorized", "disk i/o error")
"""The messages with which SQLite reports that a file system does not support WAL."""


TOO_MANY_FILES = "too many open files"
FILES_OF_A_STORE = 10
"""How many file descriptors are needed to open a store."""


class Patience:
    """The function that SQLite calls while another connection holds a lock (SQLite's busy handler).

    It makes many short sleeps. SQLite's own busy handler makes longer and longer ones, so that a process may never
    get the lock. Measured with 16 processes, the longest wait fell from 2.0 s to 0.18 s, and throughput rose.
    """

    def __init__(self, seconds: float = DEADLINE_S) -> None:
        self.seconds = seconds
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._until = now + self.seconds
        if now >= self._until:
            return False
        time.sleep(_SHORT_WAIT_S if tries < _SHORT_WAITS else _LONG_WAIT_S)
        return True


def connect(
    path: Path, *, read_only: bool = False, immutable: bool = False, uris: bool = False
) -> apsw.Connection:
    """Open a connection to the existing database file `path`, and set the pragmas that apply per connection. If the
    file is encrypted, set the key too.

    `immutable` tells SQLite that no program changes the file, so that SQLite neither locks it nor reads its log. If
    `uris` is true, statements on this connection may name other database files by URI. Such a URI may contain the key
    of the other file.
    """
    refuse_subinterpreter(path)
    if immutable:
        connection = apsw.Connection(encryption.uri(path) + "?immutable=1", flags=_READ_ONLY | _URI)
    elif uris:
        connection = apsw.Connection(
            encryption.uri(path), flags=_URI | (_READ_ONLY if read_only else _READ_WRITE)
        )
    else:
        connection = apsw.Connection(str(path), flags=_READ_ONLY if read_only else _READ_WRITE)
    try:
        encryption.unlock(connection, path)
    except BaseException:
        connection.close()
        raise
    connection.set_busy_handler(Patience())
    sql_functions.add_functions(connection)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
    # QPSG keeps the query planner from using the bound values. Without it, SQLite prepares a statement again for
    # each new set of values, which was most of the cost of a small statement.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    if not read_only:
        run(connection, "PRAGMA secure_delete=ON")
    return connection


def refuse_subinterpreter(path: Path) -> None:
    if not _is_main_interpreter():
        raise errors.make_error(
            errors.StoreFailed,
            f"{path} cannot be opened in a subinterpreter: apsw, the SQLite library, works in the main interpreter"
            " only. Use another process instead",
        )


@cache
def _is_main_interpreter() -> bool:
    """Return whether the calling code runs in the main Python interpreter of this process.

    In a subinterpreter, apsw's callbacks block forever in PyGILState_Ensure.
    """
    is_main = getattr(_thread, "_is_main_interpreter", None)  # since Python 3.12
    if is_main is not None:
        return bool(is_main())
    from importlib import import_module

    interpreters = import_module("_xxsubinterpreters")
    return bool(interpreters.get_current() == interpreters.get_main())


def connect_read_only(path: Path, *, deadline: float = DEADLINE_S) -> apsw.Connection:
    """Open a connection for reading only. This works even if SQLite cannot write to the folder."""
    connection = connect(path, read_only=True)
    connection.set_busy_handler(Patience(deadline))
    try:
        run(connection, READ_SOMETHING)
        return connection
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        connection.close()
    # If there is no log beside the file, no process is writing, and the file can be opened as immutable.
    if has_log(path):
        raise errors.make_error(
            errors.StoreReadOnly,
            f"{path} has a write-ahead log that cannot be opened; check the permissions of its folder",
        )
    return connect(path, read_only=True, immutable=True)


def is_out_of_descriptors() -> bool:
    """Return whether this process, or the machine, can open only a few more files.

    Call this after an open failed, because SQLite does not report the reason. By then, SQLite has closed some
    of its files again. So the check tries to open as many files as a store needs.
    """
    opened: list[int] = []
    try:
        for _ in range(FILES_OF_A_STORE):
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401 - closed below if one fails
    except OSError as problem:
        return problem.errno in NO_DESCRIPTORS
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return False


def descriptor_error(path: Path) -> errors.HermesError:
    import resource  # needed for this message only

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return errors.make_error(
        errors.StoreFailed,
        f"{path}: {TOO_MANY_FILES}; this program may open {most} at once (`ulimit -n` shows and raises the limit)."
        " Nothing was written",
    )


def has_log(path: Path) -> bool:
    """Return whether the write-ahead log beside the database file `path` exists and is not empty."""
    log = f"{path}-wal"
    return os.path.exists(log) and os.path.getsize(log) > 0


def run(connection: apsw.Connection, sql: LiteralString, *args: object) -> list[Row]:
    """Run all statements in `sql` to their end, with `args` as the values of the parameters. Return the rows
    that they yield.
    """
    return connection.execute(sql, args).fetchall()


def pragma(connection: apsw.Connection, sql: LiteralString) -> Any:
    rows = connection.execute(sql).fetchall()
    return rows[0][0] if rows else None


UNFIT_VALUES = (TypeError, OverflowError, UnicodeEncodeError)
"""The exceptions that apsw raises for values that SQLite cannot store."""


class SqliteReader:
    """Reads one snapshot on one connection. See `hermes.store.engine.Reader`."""

    __slots__ = ("_connection", "_names", "repeating")

    def __init__(self, connection: apsw.Connection, names: dict[str, tuple[str, ...]]) -> None:
        self._connection = connection
        self._names = names
        self.repeating = False

    def _execute(self, sql: LiteralString, args: tuple[Any, ...]) -> Any:
        try:
            return self._connection.execute(sql, args)
        except UNFIT_VALUES as problem:
            return self._execute_cleaned(problem, sql, args)

    def _execute_cleaned(self, problem: Exception, sql: LiteralString, args: tuple[Any, ...]) -> Any:
        if not isinstance(problem, UnicodeEncodeError):
            raise errors.make_error(
                errors.InvalidArgument, f"this value cannot be stored or looked up: {problem}"
            ) from None
        # A lone surrogate in an id or a title is replaced as it would be when stored.
        return self._connection.execute(
            sql, tuple(replace_surrogates(a) if isinstance(a, str) else a for a in args)
        )

    def rows(self, sql: LiteralString, *args: object) -> list[Row]:
        return self._execute(sql, args).fetchall()  # type: ignore[no-any-return]

    def row(self, sql: LiteralString, *args: object) -> Row | None:
        try:
            return self._connection.execute(sql, args).fetchone()
        except UNFIT_VALUES as problem:
            return self._execute_cleaned(problem, sql, args).fetchone()  # type: ignore[no-any-return]

    def value(self, sql: LiteralString, *args: object) -> Any:
        row = self._execute(sql, args).fetchone()
        return None if row is None else row[0]

    def each(self, sql: LiteralString, *args: object) -> Iterator[Row]:
        return self._execute(sql, args)  # type: ignore[no-any-return]

    def dicts(self, sql: LiteralString, *args: object) -> list[dict[str, Any]]:
        cursor = self._execute(sql, args)
        first = cursor.fetchone()
        if first is None:
            return []
        names = self._names.get(sql)
        # `SELECT *` may return more columns than before: another program can add one while the store is open.
        if names is None or len(names) != len(first):
            names = self._names[sql] = tuple(column[0] for column in cursor.get_description())
        found = [dict(zip(names, first, strict=True))]
        found.extend(map(dict, map(zip, repeat(names), cursor)))
        return found

    def dict(self, sql: LiteralString, *args: object) -> dict[str, Any] | None:
        cursor = self._execute(sql, args)
        first = cursor.fetchone()
        if first is None:
            return None
        names = self._names.get(sql)
        if names is None or len(names) != len(first):
            names = self._names[sql] = tuple(column[0] for column in cursor.get_description())
        return dict(zip(names, first, strict=True))


class SqliteWriter(SqliteReader):
    """Runs one transaction on the writing connection. See `hermes.store.engine.Writer`."""

    __slots__ = ()

    def run(self, sql: LiteralString, *args: object) -> int:
        self._execute(sql, args).fetchall()
        return self._connection.changes()

    def insert(self, sql: LiteralString, *args: object) -> int:
        try:
            self._connection.execute(sql, args)
        except UNFIT_VALUES as problem:
            self._execute_cleaned(problem, sql, args)
        return self._connection.last_insert_rowid()

    def many(self, sql: LiteralString, sequence: Any) -> None:
        for _ in self._connection.executemany(sql, sequence):
            pass

    @property
    def raw(self) -> apsw.Connection:
        return self._connection


def translate_error(error: apsw.Error, path: Path) -> errors.HermesError:
    """Return the Hermes error for an error of SQLite. Its message says what is wrong and what to do."""
    detail = str(error)
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return errors.make_error(
            errors.StoreBusy,
            f"{path} is locked by another program; waited {DEADLINE_S:.0f} s, nothing was written",
        )
    if isinstance(error, apsw.FullError):
        return errors.make_error(errors.StoreFull, f"no room left for {path}; nothing was written")
    if is_lack_of_room(error):
        return errors.make_error(
            errors.StoreFull, f"no room left for {path}, or its disk cannot be written; nothing was written"
        )
    if isinstance(error, apsw.ReadOnlyError):
        return _read_only(path, detail)
    if isinstance(error, apsw.NotADBError):
        from hermes.store.sqlite.encryption import recognition

        return recognition.explain_unreadable(path) or damage_error(path, "it is not a SQLite database")
    if isinstance(error, apsw.CorruptError):
        return damage_error(path, detail)
    if isinstance(error, apsw.TooBigError):
        return errors.make_error(errors.InvalidArgument, f"a row or a value is too large for {path}")
    if isinstance(error, apsw.CantOpenError | apsw.IOError) and is_out_of_descriptors():
        return descriptor_error(path)
    if isinstance(error, apsw.CantOpenError):
        return errors.make_error(errors.StoreFailed, f"{path} cannot be opened: {detail}")
    if isinstance(error, apsw.ConstraintError) and "FOREIGN KEY" in detail:
        return errors.make_error(errors.UnknownSession, f"no such session: {detail}")
    if isinstance(error, apsw.ConstraintError):
        return errors.make_error(errors.ConstraintFailed, detail)
    return errors.make_error(errors.StoreFailed, f"{path}: {detail}")


def is_lack_of_room(error: Exception) -> bool:
    """Return whether `error` says that SQLite failed to write to a file. The usual reasons are a full disk and a
    limit on the size of a file.
    """
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE


def _read_only(path: Path, detail: str) -> errors.HermesError:
    from hermes.store.sqlite.wal import sidecars

    if blocked := sidecars.find_read_only(path):
        detail = f"SQLite's files beside it are read-only; run {sidecars.format_chmod(blocked)} to fix this"
    return errors.make_error(errors.StoreReadOnly, f"{path} cannot be written: {detail}")


def damage_error(path: Path, problem: str) -> errors.HermesError:
    return errors.make_error(
        errors.StoreDamaged,
        f"{path} is damaged: {problem}. Nothing is written to it until it is repaired: run"
        f" `{upkeep_command(path, 'repair')}` (it saves what can be saved into a new file), or"
        f" `{upkeep_command(path, 'restore')} FILE` with a backup",
    )


def upkeep_command(path: Path, verb: str) -> str:
    """Return the shell command `hermes sessions <verb>` for the store at `path`, for use in a message.

    `verb` is a subcommand such as `repair`. The option `--store` is added unless `path` is the default store.
    """
    if path == home.get_default_db_path():
        return f"hermes sessions {verb}"
    import shlex  # needed for error messages only

    return f"hermes sessions {verb} --store {shlex.quote(str(path))}"
