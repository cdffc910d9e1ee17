"""Write a file for a person: whole or not at all, and never silently over a file of theirs.

A target that exists is replaced if this program wrote it, and then stays as `FILE~`; an empty file is replaced, too.
Any other file needs `--force`.
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

from hermes.atomic_files import link_or_rename, lock_folder, write_new_file, write_published_file
from hermes.cli.exit_codes import Refused
from hermes.export.export_recognition import HEAD_BYTES, is_own_output

MOST_KEPT = 9
"""Names that are tried for the previous file: `FILE~`, then `FILE~2` and so on, where those before belong to others."""


class FileKind(Enum):
    """What is at a path."""

    NOTHING = auto()
    EMPTY = auto()
    OURS = auto()
    OTHER = auto()


class Output:
    """A file that is being written. `backup` is the path of the previous file, once the new one is in place."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.backup: Path | None = None


def classify_file(path: Path) -> FileKind:
    """Tell what is there from the beginning of its content. Links are not followed, and a FIFO is not waited for."""
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
    """Whether it is a pipe or a device, which is written to and cannot be replaced."""
    if path.is_symlink() and not path.absolute().is_relative_to("/dev"):
        return False
    return path.exists() and not path.is_file() and not path.is_dir()


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a target before anything is written, as `open_output` would at the end."""
    kind = classify_file(path)
    if kind is FileKind.OTHER and not force:
        raise _make_refusal(path)
    if kind is FileKind.OURS:
        choose_backup_name(path)


def choose_backup_name(path: Path) -> Path:
    """The path under which a previous file of ours is kept."""
    for number in range(1, MOST_KEPT + 1):
        backup = path.with_name(f"{path.name}~{'' if number == 1 else number}")
        if classify_file(backup) is not FileKind.OTHER:
            return backup
    raise Refused(f"{path} cannot be replaced: no name such as {path.name}~ is free for the earlier export")


@contextmanager
def open_output(path: Path, *, force: bool) -> Iterator[Output]:
    """A private file beside `path` that takes its place when it is complete."""
    if is_stream(path):
        raise Refused(f"{path} is a device or a pipe, which a file cannot replace")
    output: Output | None = None

    def publish(partial: Path, file: Path) -> None:
        assert output is not None
        with lock_folder(file.parent):
            kind = classify_file(file)
            if kind is FileKind.OURS:
                output.backup = _back_up(file)
            if kind is FileKind.OTHER and not force:
                raise _make_refusal(file)
            if kind is FileKind.NOTHING:
                link_or_rename(partial, file)
            else:
                partial.replace(file)

    try:
        with write_published_file(path, publish) as stream:
            output = Output(stream)
            yield output
    except FileExistsError:  # it appeared in the last moment
        raise _make_refusal(path) from None


def restore_backup(path: Path, backup: Path) -> None:
    """Undo a replacement."""
    with suppress(OSError):
        backup.replace(path)


def _back_up(path: Path) -> Path:
    """Give the file a second name, so that there is no moment without it under its own."""
    backup = choose_backup_name(path)
    backup.unlink(missing_ok=True)
    try:
        os.link(path, backup)
    except OSError as problem:
        if problem.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV):
            raise
        with (
            path.open("rb") as source,
            write_new_file(backup, replace=True) as copy,
        ):  # a file system without links
            copyfileobj(source, copy)
    return backup


def _make_refusal(path: Path) -> Refused:
    return Refused(
        f"{path} exists and is not an earlier export; choose another name, or replace it with --force"
    )
