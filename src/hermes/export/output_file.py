"""Atomic writing of output files for a user. A user's file is never replaced silently.

The caller decides which files may be replaced (`Replace`). If an earlier export of this program is replaced,
it is kept as `FILE~`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO

from hermes import home
from hermes.atomic_files import (
    LONGEST_NAME,
    link_or_rename,
    lock_folder,
    write_new_file,
    write_published_file,
)
from hermes.errors import OutputExists, OutputRefused
from hermes.export.export_recognition import HEAD_BYTES, is_own_output

MOST_KEPT = 9
"""Number of names that are tried for the previous export: `FILE~`, then `FILE~2` and so on. A name is skipped
if it belongs to another file."""

NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class Replace(Enum):
    """Determines which existing files a new file may replace."""

    NOTHING = auto()
    EXPORTS = auto()
    """An earlier export, which is kept as `FILE~`, or an empty file."""
    ANYTHING = auto()
    """Any file. Only an earlier export is kept as `FILE~`; other files are lost."""


class FileKind(Enum):
    """What is at a path: nothing, an empty file, an export or report of this program, or something else."""

    NOTHING = auto()
    EMPTY = auto()
    OURS = auto()
    """An export or a report of this program."""
    OTHER = auto()
    """Any other file, a link, a folder or a device."""


class OutputFiles:
    """Files that are written together. If writing one of them fails, all are restored to their previous
    state.

    with OutputFiles(Replace.EXPORTS) as files:
        with files.open(path) as stream:
            stream.write(b"...")
    files.backups
    """

    def __init__(self, replace: Replace) -> None:
        self._replace = replace
        self._created: list[Path] = []
        self._backups: dict[Path, Path] = {}
        """Maps the path of each new file to the path under which the earlier export is kept."""
        self._set_aside: dict[Path, Path] = {}
        """Maps the path of each replaced file that is not an earlier export to its hidden second name. That
        name is removed when all files are written."""

    @property
    def backups(self) -> list[Path]:
        """The paths under which the earlier exports are kept that the new files have replaced."""
        return list(self._backups.values())

    def __enter__(self) -> OutputFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._undo()
        for hidden in self._set_aside.values():
            with suppress(OSError):
                hidden.unlink(missing_ok=True)

    @contextmanager
    def open(self, path: Path) -> Iterator[BinaryIO]:
        """Open a private temporary file beside `path`. When it is complete, it replaces the file at
        `path`."""
        if is_stream(path):
            raise OutputRefused(f"{path} is a device or a pipe, which a file cannot replace")
        try:
            with write_published_file(path, self._publish) as stream:
                yield stream
        except FileExistsError:  # another program created it in the meantime
            raise _make_refusal(path, self._replace) from None

    def _publish(self, partial: Path, path: Path) -> None:
        with lock_folder(path.parent):
            kind = classify_file(path)
            if kind is not FileKind.NOTHING and not _may_replace(kind, self._replace):
                raise _make_refusal(path, self._replace)
            if kind is FileKind.NOTHING:
                link_or_rename(partial, path)
                self._created.append(path)
                return
            if kind is FileKind.OURS:
                self._hide(choose_backup_name(path))
                self._backups[path] = _back_up(path)
            else:
                self._hide(path)
            partial.replace(path)

    def _hide(self, path: Path) -> None:
        """Give the file at `path`, which will be replaced, a hidden second name from which it can be restored.
        This works only if the file system supports hard links."""
        hidden = path.with_name(f".{path.name[:LONGEST_NAME]}.{os.urandom(6).hex()}.hermes-replaced")
        self._set_aside[path] = (
            hidden  # recorded before the link exists, because an interrupt may follow at once
        )
        with suppress(OSError):
            os.link(path, hidden, follow_symlinks=False)

    def _undo(self) -> None:
        for path in self._created:
            with suppress(OSError):
                path.unlink()
        for path, previous in (*self._backups.items(), *self._set_aside.items()):
            with suppress(OSError):
                previous.replace(path)


def classify_file(path: Path) -> FileKind:
    """Return what is at a path, judged by the beginning of the file's content. The function does not follow
    links and does not wait for data from a FIFO."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return FileKind.NOTHING
    except OSError:
        return FileKind.OTHER
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return FileKind.OTHER
        if status.st_size == 0:
            return FileKind.EMPTY
        return FileKind.OURS if is_own_output(os.pread(descriptor, HEAD_BYTES, 0)) else FileKind.OTHER
    except OSError:
        return FileKind.OTHER
    finally:
        os.close(descriptor)


def is_stream(path: Path) -> bool:
    """Return whether the path is a pipe or a device, which can be written to but not replaced."""
    if path.is_symlink() and not path.absolute().is_relative_to("/dev"):
        return False
    return path.exists() and not path.is_file() and not path.is_dir()


def check_target(path: Path, replace: Replace) -> None:
    """Check, before anything is written, whether a new file may be written to `path`. `replace` says which
    existing files it may replace. Raise the error that `OutputFiles.open` would otherwise raise at the end."""
    kind = classify_file(path)
    if kind is not FileKind.NOTHING and not _may_replace(kind, replace):
        raise _make_refusal(path, replace)
    if kind is FileKind.OURS:
        choose_backup_name(path)


def refuse_store_files(store: Path, *files: Path, is_store: bool = False) -> None:
    """Raise OutputRefused if an output file would replace a file of the store, even if replacing is allowed.

    An output that is itself a store (`is_store`) may be written among the backups, or at the path of a
    missing store. Symbolic links are refused too, because somebody else may have created the link or may
    change its target.
    """
    from hermes.store.engine_choice import has_store, list_store_files

    for path in dict.fromkeys((store, home.get_default_db_path())):
        own = list_store_files(path)
        for file in files:
            if is_store and file.absolute() == path.absolute() and not has_store(path):
                continue
            if (description := own.describe_role(file, is_copy=is_store)) is not None:
                raise OutputRefused(f"{file} is {description}; name another file")
    for file in files:
        if file.is_symlink() and not file.is_dir() and not is_stream(file):
            raise OutputRefused(f"{file} is a symbolic link; name the file that it leads to")


def choose_backup_name(path: Path) -> Path:
    """Return the path under which the earlier export at `path` is kept when a new one replaces it: `FILE~`,
    `FILE~2` and so on. Raise OutputRefused if no such name is free."""
    for number in range(1, MOST_KEPT + 1):
        backup = path.with_name(f"{path.name}~{'' if number == 1 else number}")
        if classify_file(backup) is not FileKind.OTHER:
            return backup
    raise OutputRefused(
        f"{path} cannot be replaced: no name such as {path.name}~ is free for the earlier export"
    )


def _may_replace(kind: FileKind, replace: Replace) -> bool:
    return replace is Replace.ANYTHING or (replace is Replace.EXPORTS and kind is not FileKind.OTHER)


def _back_up(path: Path) -> Path:
    """Keep the earlier export at `path` under a second name, and return the path with that name. The file also
    keeps its own name, so that `path` is never without a file."""
    backup = choose_backup_name(path)
    backup.unlink(missing_ok=True)
    try:
        os.link(path, backup)
    except OSError as problem:
        if problem.errno not in NO_LINKS:
            raise
        # The file system does not support hard links.
        with path.open("rb") as source, write_new_file(backup, replace=True) as copy:
            copyfileobj(source, copy)
    return backup


def _make_refusal(path: Path, replace: Replace) -> OutputExists:
    if replace is Replace.NOTHING:
        return OutputExists(f"'{path}' exists; name another file")
    return OutputExists(f"{path} exists and is not an earlier export; choose another name")
