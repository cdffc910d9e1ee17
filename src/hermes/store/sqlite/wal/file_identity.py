"""The identity of a file (device and inode) by path or descriptor, and the codes for too many open files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

Identity = tuple[int, int]
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def identity_in(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def identify(descriptor: int | None) -> tuple[int, int] | None:
    return None if descriptor is None else identity_in(os.fstat(descriptor))


def identity_of(file: Path | str) -> tuple[int, int] | None:
    """Return the identity of the file that is at this path now, or None if there is none."""
    try:
        return identity_in(os.stat(file))
    except OSError:
        return None
