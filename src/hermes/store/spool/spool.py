"""Spool files: writes that the store could not accept, kept beside it until it is available again.

Each handle writes one file, `<folder of the store>/spool/<microseconds>_<pid>_<random>.jsonl`, with one JSON
object per line. A line is durable before the caller is notified. A file is locked both while a line is added
and while the file is removed, so that no line is added to a removed file. One process at a time replays the
lines into the store. A file is removed only after all its lines were stored. `spool_writer` decides what is
spooled.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hermes import clock, errors, home
from hermes.append_files import (
    TORN,
    append_line,
    finish_file,
    list_files,
    lock_descriptor,
    lock_file,
    read_from,
    read_stamp,
)
from hermes.atomic_files import sync_folder
from hermes.logs import get_logger

log = get_logger(__name__)

FOLDER = "spool"
REFUSED = "refused"
"""The folder for entries that can never be stored. Each line is an entry with the reason."""

_NAP_S = 0.01


class Entry(NamedTuple):
    """An accepted write, with everything that is needed to repeat it later with the same result."""

    verb: str
    session_id: str
    uid: str
    """The idempotency key. It shows whether the write is already stored."""
    at: float
    store: str
    """The name of the store file. Several stores may share a folder."""
    arguments: dict[str, Any]


class SpoolStatus(NamedTuple):
    """The number, size and age of the entries that one store has in the spool."""

    entries: int = 0
    bytes: int = 0
    oldest: float | None = None
    refused: int = 0
    files: tuple[Path, ...] = ()


class Unstorable(Exception):
    """Raised by the function `store` that a caller passes to `replay`, for an entry of the spool that can never
    be stored. The message of the error is the reason."""


class Spool:
    def __init__(self, store: Path) -> None:
        self.folder = store.parent / FOLDER
        self._store = store.name
        self.kept = 0
        """The number of lines that this handle has added. It never decreases."""
        self._own: Path | None = None
        self._keeping = threading.Lock()

    # ---------------------------------------------------------------- adding entries

    def keep(self, entry: Entry) -> Path:
        """Add an entry to the spool file of this handle, durably. Return the path of the file. Raise OSError if
        nothing could be written."""
        line = _encode_entry(entry)
        # In a signal handler, the interrupted call holds its locks until the handler returns. A new file is
        # used, because it needs no lock.
        if self._is_interrupted():
            file = self._create_file()
            append_line(file, line)
            self.kept += 1
            return file
        with self._keeping:
            while True:
                file = self._own or self._create_file()
                self._own = file
                if append_line(file, line):
                    self.kept += 1
                    return file
                self._own = None  # the file was replayed and removed in the meantime

    def _create_file(self) -> Path:
        """Create a new, empty spool file for this handle, and return its path. The names of spool files sort in
        the order in which the files were created, even if the clock was set back."""
        new = not self.folder.is_dir()
        home.make_private_folder(self.folder)
        home.tighten(str(self.folder), home.PRIVATE_FOLDER)
        stamp = int(clock.now() * 1e6)
        for file in list_files(self.folder):
            stamp = max(stamp, read_stamp(file) + 1)
        file = self.folder / f"{stamp:016d}_{os.getpid()}_{os.urandom(4).hex()}.jsonl"
        os.close(home.create_private_file(file))
        sync_folder(self.folder)
        if new:
            sync_folder(self.folder.parent)
        return file

    # ---------------------------------------------------------------- replay

    def replay(self, store: Callable[[Entry], object], *, wait: float) -> None:
        """Call `store` with every entry, in the order in which the entries were accepted. An exception from
        `store` stops the replay; no entry is lost.

        After a crash, an entry can be replayed a second time, so `store` must be idempotent. Wait up to
        `wait` seconds for a replay by another process.
        """
        if not any(list_files(self.folder)):
            return
        if self._is_interrupted():
            raise errors.make_error(
                errors.StoreBusy,
                f"a signal handler interrupted the replay of {self.folder}; nothing was written",
            )
        with self._lock_alone(wait):
            for file in list_files(self.folder):
                self._replay_file(file, store)

    def _replay_file(self, file: Path, store: Callable[[Entry], object]) -> None:
        done, torn = 0, False
        while True:
            with lock_file(file) as descriptor:
                if descriptor is None:
                    return
                data = read_from(descriptor, done)
                if not data:  # everything is stored, and nothing was added in the meantime
                    finish_file(file, torn)
                    return
            for line in _split_lines(data):
                entry = _decode_entry(line)
                if entry is None:
                    torn = True
                elif entry.store != self._store:
                    return
                else:
                    self._hand_over(entry, file.name, store)
            done += len(data)

    def _hand_over(self, entry: Entry, name: str, store: Callable[[Entry], object]) -> None:
        try:
            store(entry)
        except Unstorable as reason:
            file = self.folder / REFUSED / name
            home.make_private_folder(file.parent)
            if not file.exists():
                os.close(home.create_private_file(file))
                sync_folder(file.parent)
            # The entry is already there if a crash happened between this write and the removal of the file.
            if entry.uid.encode() not in file.read_bytes():
                append_line(file, _encode_entry(entry, reason=str(reason)))
            log.warning(
                "a spooled write for session %r cannot be stored: %s. It was moved to %s",
                entry.session_id,
                reason,
                file,
            )

    @contextmanager
    def _lock_alone(self, wait: float) -> Iterator[None]:
        """Hold the replay lock, which excludes other processes and threads. Raise StoreBusy if it is not free
        within `wait` seconds."""
        descriptor = home.open_private_file(self.folder / "lock", os.O_RDWR | os.O_CREAT)
        try:
            until = time.monotonic() + wait
            while not lock_descriptor(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
                if time.monotonic() >= until:
                    raise errors.make_error(
                        errors.StoreBusy,
                        f"another process is storing the messages in {self.folder}; try again later",
                    )
                time.sleep(_NAP_S)
            yield
        finally:
            os.close(descriptor)

    def _is_interrupted(self) -> bool:
        """Return whether the caller is a signal handler that interrupted this thread during another operation
        on the same folder."""
        frame = sys._getframe(1).f_back
        while frame is not None:
            if frame.f_code in _LOCKING and frame.f_locals["self"].folder == self.folder:
                return True
            frame = frame.f_back
        return False

    # ---------------------------------------------------------------- status and removal

    def status(self) -> SpoolStatus:
        """Return the number, size and age of the entries of this store that wait in the spool, and the number
        of entries that can never be stored. Nothing is changed."""
        waiting: list[Entry] = []
        files, size = [], 0
        for file in list_files(self.folder):
            found = [entry for entry in self._read_entries(file) if entry.store == self._store]
            if found:
                waiting += found
                files.append(file)
                size += file.stat().st_size
        refused = [
            entry
            for file in list_files(self.folder / REFUSED)
            for entry in self._read_entries(file)
            if entry.store == self._store
        ]
        oldest = min((entry.at for entry in waiting), default=None)
        return SpoolStatus(len(waiting), size, oldest, len(refused), tuple(files))

    def list_torn(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{TORN}"))

    def _read_entries(self, file: Path) -> list[Entry]:
        try:
            return [
                entry
                for line in _split_lines(file.read_bytes())
                if (entry := _decode_entry(line)) is not None
            ]
        except FileNotFoundError:  # the file was just replayed and removed
            return []

    def erase(self, session_id: str, *, wait: float) -> None:
        """Remove every entry of a session from the spool files. Truncated lines are removed too, because they
        can belong to any session."""
        if not self.folder.is_dir():
            return
        with self._lock_alone(wait):
            for file in (*list_files(self.folder), *list_files(self.folder / REFUSED), *self.list_torn()):
                with lock_file(file) as descriptor:
                    if descriptor is not None:
                        self._rewrite_without(session_id, file, read_from(descriptor, 0))

    def _rewrite_without(self, session_id: str, file: Path, data: bytes) -> None:
        rest = [line for line in _split_lines(data) if _is_of_another(line, self._store, session_id)]
        if len(b"".join(rest)) == len(data):
            return
        if rest:
            fresh = file.with_name(f"{file.name}.new")
            fresh.unlink(missing_ok=True)
            os.close(home.create_private_file(fresh))
            append_line(fresh, b"".join(rest))
            fresh.replace(file)
        else:
            file.unlink()
        sync_folder(file.parent)


# -------------------------------------------------------------------- lines


def _encode_entry(entry: Entry, **more: str) -> bytes:
    """Encode an entry as one line of ASCII. Lone surrogates, NUL and line ends are escaped."""
    return json.dumps(entry._asdict() | more, separators=(",", ":")).encode() + b"\n"


def _decode_entry(line: bytes) -> Entry | None:
    """Decode one line of a spool file. Return None if the line is truncated or is not an entry."""
    try:
        value = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or any(type(value.get(name)) is not kind for name, kind in _SHAPE.items()):
        return None
    return Entry(**{name: value[name] for name in Entry._fields})


_SHAPE = {"verb": str, "session_id": str, "uid": str, "at": float, "store": str, "arguments": dict}


def _split_lines(data: bytes) -> list[bytes]:
    return [line for line in data.splitlines(keepends=True) if line]


def _is_of_another(line: bytes, store: str, session_id: str) -> bool:
    entry = _decode_entry(line)
    return entry is not None and (entry.store, entry.session_id) != (store, session_id)


_LOCKING = (Spool.keep.__code__, Spool.replay.__code__)
"""The functions that hold a lock on the folder or on one of its files."""
