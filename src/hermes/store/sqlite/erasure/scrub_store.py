"""Scrub: a secret leaves the store, its index and its log, and every copy beside it.

At the end each file is rewritten whole, so that nothing is left in pages that were freed earlier either. A scrub that
was killed is therefore finished by the next one, whatever that finds in the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from glob import escape
from itertools import islice
from pathlib import Path
from typing import cast

import apsw

from hermes import errors, home
from hermes.atomic_files import PARTIAL, SIDECARS, clear_partials, replace_file
from hermes.store import derived
from hermes.store.engine import Engine, Writer
from hermes.store.retention.secret_spellings import Spellings
from hermes.store.sqlite.connection import SqliteReader, SqliteWriter, connect, run
from hermes.store.sqlite.copies.backup import DAMAGED, backup_folder
from hermes.store.sqlite.erasure import purge_copies
from hermes.store.sqlite.erasure.secret_rows import (
    Hit,
    count_by_column,
    describe_kept,
    find_hits,
    rewrite_rows,
)
from hermes.store.sqlite.opener import is_current
from hermes.store.sqlite.repair.store_rebuild import refresh_all
from hermes.store.sqlite.search import substring
from hermes.store.sqlite.upkeep import copy_cache
from hermes.store.values import Scrubbed, ScrubReceipt

IS_A_STORE = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('sessions', 'messages')"
ROWS_AT_ONCE = 100
"""What one transaction rewrites, so that nobody waits long for the write lock."""


def scrub(
    engine: Engine, rewrite_file: Callable[[], bool], secret: Spellings, *, dry_run: bool
) -> ScrubReceipt:
    """`rewrite_file` merges the index and vacuums; False if a reader keeps the log from being emptied."""
    with engine.read() as reader:
        hits = list(find_hits(cast(SqliteReader, reader), secret))
    left = describe_kept(hits, secret)
    if not dry_run:
        waiting = iter(hits)
        while batch := list(islice(waiting, ROWS_AT_ONCE)):
            left += engine.write(partial(_rewrite, batch=batch, secret=secret), share=False)
        while engine.write(derived.refresh, share=False):
            pass
        left += _rewrite_free_pages(engine.path, rewrite_file)
    copies = CopyScrubber(engine.path, secret, dry_run)
    copies.scrub()
    return ScrubReceipt((*count_by_column(hits, secret), *copies.places), (*left, *copies.left), dry_run)


def _rewrite_free_pages(path: Path, rewrite_file: Callable[[], bool]) -> list[str]:
    try:
        if rewrite_file():
            return []
        return [f"{path.name}-wal: another program reads the store; scrub again when it has finished"]
    except errors.StoreError as problem:
        return [f"{path.name}: its free pages could not be rewritten ({problem})"]


def _rewrite(writer: Writer, *, batch: list[Hit], secret: Spellings) -> list[str]:
    left = rewrite_rows(writer, batch, secret)
    derived.refresh(writer)
    return left


class CopyScrubber:
    """Backups and other stores in the folder, and what repairs and restores kept aside."""

    def __init__(self, path: Path, secret: Spellings, dry_run: bool) -> None:
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
        """Remove the copies that were made to read other stores, and tell which of them held the secret."""
        copies = [copy.path for copy in copy_cache.list_copies() if copy.path.exists()]
        counting = CopyScrubber(self._path, self._secret, dry_run=True)
        for copy in copies:
            counting._scrub_copy(copy)
        self.places += counting.places
        for copy in () if self._dry_run else copy_cache.remove_all():
            self._leave(copy, "another process reads it; scrub again when it has finished")

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
                self._leave(copy, "damaged, and perhaps no copy of this store; it was not touched")
            elif self._secret.remove_from_bytes(copy.read_bytes())[1]:
                self._leave(copy, "no database, and so no copy of this store; it was not touched")
        except (apsw.Error, errors.StoreError, OSError) as problem:
            self._leave(copy, f"it could not be rewritten ({problem})")
        else:
            self.left += [f"{self._name(copy)}: {line}" for line in found.left]
            if found.places:
                self.places.append(Scrubbed(self._name(copy), found.occurrences, found.sessions))

    def _rewritten(self, copy: Path) -> ScrubReceipt:
        """A copy of whatever version without the secret, in its index and free pages too; other databases untouched."""
        alone = not any(Path(f"{copy}{ending}").exists() for ending in SIDECARS)
        connection = connect(copy, read_only=self._dry_run, immutable=self._dry_run and alone)
        try:
            if run(connection, IS_A_STORE) != [(2,)]:
                return ScrubReceipt()
            hits = list(find_hits(SqliteReader(connection, {}), self._secret))
            left = describe_kept(hits, self._secret)
            if not self._dry_run:
                left += _rewrite_copy(connection, hits, self._secret)
                home.tighten(str(copy), home.PRIVATE_FILE)
            return ScrubReceipt(tuple(count_by_column(hits, self._secret)), tuple(left))
        finally:
            connection.close()

    def _blot(self, file: Path) -> None:
        """Overwrite the secret in a file that is no sound database."""
        try:
            cleaned, count = self._secret.mask_in_bytes(file.read_bytes())
            if count and not self._dry_run:
                replace_file(file, cleaned)
        except OSError as problem:
            self._leave(file, problem.strerror or type(problem).__name__)
            return
        if count:
            self.places.append(Scrubbed(self._name(file), count))
            self._leave(file, "damaged; overwritten where it stood in one piece. Remove the file to be sure")


def _find_owner(sidecar: Path, ending: str) -> Path:
    return sidecar.with_name(sidecar.name.removesuffix(ending))


def _rewrite_copy(connection: apsw.Connection, hits: list[Hit], secret: Spellings) -> list[str]:
    writer = SqliteWriter(connection, {})
    tables = {row[0] for row in run(connection, purge_copies.SEARCH_TABLES)}
    with connection:
        left = rewrite_rows(writer, hits, secret)
    if is_current(connection):
        refresh_all(connection)
    substring.forget(connection)
    for name, merge in purge_copies.MERGES.items():
        if name in tables:
            run(connection, merge)
    run(connection, "VACUUM")
    busy, *_ = run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0]
    return [*left, "another program reads it; scrub again when it has finished"] if busy else left
