"""Scrub: removal of one secret from the whole home directory. Everything else stays unchanged.

The store is scrubbed first, in short transactions, then its copies, then the files beside it: transcripts,
dumps, saved conversations and the spool. Each file is replaced atomically. If a scrub is killed, the next
scrub completes it. Files that are not records of conversations, such as a configuration that needs the key,
are reported but not changed. `secret_spellings` defines the spellings of the secret that are found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from hermes import errors
from hermes.atomic_files import PARTIAL, clear_partials, replace_file
from hermes.home import get_hermes_home
from hermes.store.engine import Engine
from hermes.store.retention.secret_spellings import Spellings
from hermes.store.values import Scrubbed, ScrubReceipt

RECORDS = ("sessions", "spool")
"""The folders beside the store whose files are rewritten."""
OTHER_TEXTS = ("*.env", "*.yaml", "*.yml", "*.json", "*.toml", "*.txt", "*.md", "*.log", "logs/*")
"""The files of the home that are searched for the secret, but not rewritten."""
MOST_TRIES = 5


class Scrubber:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def scrub(self, secret: str, *, dry_run: bool = False) -> ScrubReceipt:
        """Remove a secret everywhere. Return the number of occurrences by place. With `dry_run`, only count
        them.

        Ids, order, counters and times in the store do not change. If another process is writing to a file, a
        second run may be needed.
        """
        spellings = Spellings(secret)
        if self._engine.read_only and not dry_run:
            raise errors.make_error(errors.StoreReadOnly, f"{self._engine.path} is open read-only")
        places, left, _ = self._engine.scrub(spellings, dry_run=dry_run)
        files = _FileScrubber(self._engine.path.parent, spellings, dry_run)
        files.scrub()
        return ScrubReceipt((*places, *files.places), (*left, *files.left), dry_run)


class _FileScrubber:
    def __init__(self, home: Path, secret: Spellings, dry_run: bool) -> None:
        self._home, self._secret, self._dry_run = home, secret, dry_run
        self.places: list[Scrubbed] = []
        self.left: list[str] = []

    def scrub(self) -> None:
        for name in RECORDS:
            for file in _list_files(self._home / name, tidy=not self._dry_run):
                self._attempt(file, self._scrub_record)
        if self._home == get_hermes_home():
            for file in sorted({file for kind in OTHER_TEXTS for file in self._home.glob(kind)}):
                self._attempt(file, self._report_if_present)

    def _attempt(self, file: Path, act: Callable[[Path], None]) -> None:
        try:
            act(file)
        except OSError as problem:
            self._note_left(file, problem.strerror or type(problem).__name__)

    def _note_left(self, file: Path, why: str) -> None:
        self.left.append(f"{self._format_name(file)}: {why}")

    def _format_name(self, file: Path) -> str:
        return self._secret.clean_name(str(file.relative_to(self._home)))

    def _scrub_record(self, file: Path) -> None:
        for _ in range(MOST_TRIES):
            count = self._rewrite(file)
            if count is not None:
                if count:
                    self.places.append(Scrubbed(self._format_name(file), count))
                return
        self._note_left(file, "another program keeps writing to it")

    def _rewrite(self, file: Path) -> int | None:
        """Remove the secret from a file, and return how often it occurred. Return None, and change nothing, if
        another program changed the file in the meantime. In a dry run, only count. The target of a link is not
        changed."""
        before = _read_state(file)
        cleaned, count = self._secret.remove_from_bytes(file.read_bytes())
        if not count:
            return 0
        if file.is_symlink():
            self._note_left(file, "a link; its target is not rewritten")
            return 0
        if self._dry_run:
            return count
        return count if replace_file(file, cleaned, unless=lambda: _read_state(file) != before) else None

    def _report_if_present(self, file: Path) -> None:
        if file.is_file() and self._secret.remove_from_bytes(file.read_bytes())[1]:
            self._note_left(file, "contains the secret, but is not a record of conversations")


def _list_files(folder: Path, *, tidy: bool) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders.sort()
        if tidy:
            clear_partials(Path(here))
        for name in sorted(names):
            file = Path(here, name)
            if not name.endswith(PARTIAL) and file.is_file():
                yield file


def _read_state(file: Path) -> tuple[int, int, int]:
    """Return the inode, size and modification time of a file. If another program writes to the file, at least
    one of them changes."""
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
