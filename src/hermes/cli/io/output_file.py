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
from hermes.cli.command import Refused
from hermes.cli.opened_store import is_stream
from hermes.export.export_recognition import HEAD_BYTES, is_own_output

MOST_KEPT = 9
"""Names that are tried for the previous file: `FILE~`, then `FILE~2` and so on, where those before belong to others."""


class Found(Enum):
    """What is at a path."""

    NOTHING = auto()
    EMPTY = auto()
    OURS = auto()
    OTHER = auto()


class Output:
    """A file that is being written. `kept` is the path of the previous file, once the new one is in place."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.kept: Path | None = None


def look_at(path: Path) -> Found:
    """Tell what is there from the beginning of its content. Links are not followed, and a FIFO is not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return Found.NOTHING
    except OSError:
        return Found.OTHER
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Found.OTHER
        if status.st_size == 0:
            return Found.EMPTY
        return Found.OURS if is_own_output(os.pread(descriptor, HEAD_BYTES, 0)) else Found.OTHER
    except OSError:
        return Found.OTHER
    finally:
        os.close(descriptor)


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a target before anything is written, as `output_file` would at the end."""
    found = look_at(path)
    if found is Found.OTHER and not force:
        raise _refusal(path)
    if found is Found.OURS:
        kept_name(path)


def kept_name(path: Path) -> Path:
    """The path under which a previous file of ours is kept."""
    for number in range(1, MOST_KEPT + 1):
        kept = path.with_name(f"{path.name}~{'' if number == 1 else number}")
        if look_at(kept) is not Found.OTHER:
            return kept
    raise Refused(f"{path} cannot be replaced: no name such as {path.name}~ is free for the earlier export")


@contextmanager
def output_file(path: Path, *, force: bool) -> Iterator[Output]:
    """A private file beside `path` that takes its place when it is complete."""
    if is_stream(path):
        raise Refused(f"{path} is a device or a pipe, which a file cannot replace")
    output: Output | None = None

    def publish(partial: Path, file: Path) -> None:
        assert output is not None
        with lock_folder(file.parent):
            found = look_at(file)
            if found is Found.OURS:
                output.kept = _keep(file)
            if found is Found.OTHER and not force:
                raise _refusal(file)
            if found is Found.NOTHING:
                link_or_rename(partial, file)
            else:
                partial.replace(file)

    try:
        with write_published_file(path, publish) as stream:
            output = Output(stream)
            yield output
    except FileExistsError:  # it appeared in the last moment
        raise _refusal(path) from None


def put_back(path: Path, kept: Path) -> None:
    """Undo a replacement."""
    with suppress(OSError):
        kept.replace(path)


def _keep(path: Path) -> Path:
    """Give the file a second name, so that there is no moment without it under its own."""
    kept = kept_name(path)
    kept.unlink(missing_ok=True)
    try:
        os.link(path, kept)
    except OSError as problem:
        if problem.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV):
            raise
        with (
            path.open("rb") as source,
            write_new_file(kept, replace=True) as copy,
        ):  # a file system without links
            copyfileobj(source, copy)
    return kept


def _refusal(path: Path) -> Refused:
    return Refused(
        f"{path} exists and is not an earlier export; choose another name, or replace it with --force"
    )
