"""What SQLite's shared memory (`-shm`, the index of the write-ahead log) says of the log.

The layout is SQLite's documented one: two copies of a header of 48 bytes, then how far the log was checkpointed. The
header holds the checksum of the last frame. Checksums are cumulative, so that a log whose frame of that number bears
the same one is the log that the index describes.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

_HEADER = struct.Struct("=IIIBBHII2I8s8s")  # in the byte order of the machine
_BACKFILLED = struct.Struct("=I")
_FRAME_HEADER = struct.Struct(">II8s2I")  # in network order: page, size after a commit, salts, checksum
_LOG_HEADER_SIZE = 32
_TRIES = 100


class LogIndex(NamedTuple):
    frames: int
    moved: int
    """How many of the frames a checkpoint has moved into the database file."""
    page_size: int
    checksum: tuple[int, int]

    @property
    def outstanding(self) -> int:
        return self.frames - self.moved


def read_index(descriptor: int | None) -> LogIndex | None:
    """None if there is no index, or none that makes sense."""
    if descriptor is None:
        return None
    for _ in range(_TRIES):  # somebody may be writing it
        try:
            data = os.pread(descriptor, 2 * _HEADER.size + _BACKFILLED.size, 0)
        except OSError:
            return None
        if len(data) < 2 * _HEADER.size + _BACKFILLED.size:
            return None
        if data[: _HEADER.size] == data[_HEADER.size : 2 * _HEADER.size]:
            break
    else:
        return None
    _, _, _, is_filled, _, page_size, frames, _, first, second, _, _ = _HEADER.unpack_from(data)
    if not is_filled:
        return None
    (moved,) = _BACKFILLED.unpack_from(data, 2 * _HEADER.size)
    return LogIndex(frames, moved, (page_size & 0xFE00) + ((page_size & 1) << 16), (first, second))


def describes(index: LogIndex, log: int) -> bool:
    """Whether this is the log that the index was made of; `log` is a descriptor."""
    if not index.frames:
        return True
    header = _frame_header(index, log, index.frames)
    return header is not None and header[3:] == index.checksum


def count_outstanding_commits(index: LogIndex, log: int) -> int:
    """How many transactions are in the log and not in the database file yet."""
    headers = (_frame_header(index, log, number) for number in range(index.moved + 1, index.frames + 1))
    return sum(1 for header in headers if header is not None and header[1])


def _frame_header(index: LogIndex, log: int, number: int) -> tuple[int, int, bytes, int, int] | None:
    at = _LOG_HEADER_SIZE + (number - 1) * (_FRAME_HEADER.size + index.page_size)
    data = os.pread(log, _FRAME_HEADER.size, at)
    return _FRAME_HEADER.unpack(data) if len(data) == _FRAME_HEADER.size else None
