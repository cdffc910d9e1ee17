"""A reader for SQLite's shared memory (`-shm`), which is the index of the write-ahead log.

The layout is documented by SQLite: two copies of a 48-byte header, then the number of frames that were
checkpointed. The header contains the salts of the log and the checksum of the last frame. Checksums are
cumulative. So if the last frame that the index names has the same checksum in the log, the index describes
this log.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

_HEADER = struct.Struct("=IIIBBHII2I8s8s")  # in the byte order of the machine
_HEADER_SIZE = _HEADER.size
_LENGTH_AND_SALTS = struct.Struct("=14xHI12x8s8x")  # of the same header
_BACKFILLED = struct.Struct("=I")
_FRAME_HEADER = struct.Struct(">II8s2I")  # in network order: page, size after a commit, salts, checksum
_LOG_HEADER_SIZE, _FRAME_HEADER_SIZE = 32, 24
_LOG_SALTS_AT, _SALTS_SIZE = 16, 8
_TRIES = 100


class LogIndex(NamedTuple):
    frames: int
    moved: int
    """How many of the frames were already copied into the database file by a checkpoint."""
    page_size: int
    checksum: tuple[int, int]
    salts: bytes = b""

    @property
    def outstanding(self) -> int:
        return self.frames - self.moved


def read_index(descriptor: int | None) -> LogIndex | None:
    """Read the header of the index. Return None if the index is missing or invalid."""
    if descriptor is None:
        return None
    for _ in range(_TRIES):  # another process may be writing the header
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
    _, _, _, is_filled, _, page_size, frames, _, first, second, salts, _ = _HEADER.unpack_from(data)
    if not is_filled:
        return None
    (moved,) = _BACKFILLED.unpack_from(data, 2 * _HEADER.size)
    return LogIndex(frames, moved, _page_size(page_size), (first, second), salts)


def is_index_of_log(index: LogIndex, log: int) -> bool:
    """Return whether the index (`-shm`) with the header `index` describes the write-ahead log with the
    descriptor `log`.
    """
    if not index.frames:
        return True
    header = _frame_header(index, log, index.frames)
    return header is not None and header[3:] == index.checksum


def has_salts(index: LogIndex, log: int) -> bool:
    """Return whether the log has the salts that the index names. If so, the log was not restarted after the
    index was written.

    SQLite changes the salts when it restarts a log, and restarts a log only when all frames of the log are in
    the database file.
    """
    return os.pread(log, _SALTS_SIZE, _LOG_SALTS_AT) == index.salts


def is_cut(index_file: int, log: int) -> bool:
    """Return whether the log lacks frames that its index names.

    Both arguments are descriptors, of an index and the log that belongs to it.

    SQLite changes the index before it restarts or empties the log. So if the index is the same before and
    after the log was read, it describes the log that was read.
    """
    index = read_index(index_file)
    for _ in range(_TRIES):
        if index is None or not index.frames or _holds_frames(index, log):
            return False
        before, index = index, read_index(index_file)
        if index is not None and before[0] == index[0] and before[2:] == index[2:]:
            return True
    return False


def map_index(descriptor: int) -> mmap.mmap | None:
    """Map the header of the index into memory, as SQLite does. Return None if that is not possible.

    Close the map only after SQLite has closed the file. Closing it earlier would drop SQLite's locks on the
    file.
    """
    try:
        return mmap.mmap(descriptor, _HEADER_SIZE, prot=mmap.PROT_READ)
    except (OSError, ValueError):
        return None


class LogCheck:
    """Checks, like the function `is_cut`, whether one write-ahead log lacks frames, and remembers the last result. As
    long as the index is unchanged, only the length of the log is checked.
    """

    def __init__(self, log: int) -> None:
        self._log = log
        self._last = b"", 0  # the header of an index whose log was complete, and the log's minimum length

    def forget(self) -> None:
        """Discard the remembered result, so that the next check reads the log itself.

        The caller needs this if the log may have been overwritten without a change of its length.
        """
        self._last = b"", 0

    def is_cut(self, index_file: int, view: mmap.mmap | None = None) -> bool:
        """Return whether the log lacks frames that its index names. `view` is the result of `map_index`."""
        header = os.pread(index_file, _HEADER_SIZE, 0) if view is None else view[:_HEADER_SIZE]
        known, length = self._last
        if header != known:
            if len(header) < _HEADER_SIZE:
                return is_cut(index_file, self._log)
            page_size, frames, salts = _LENGTH_AND_SALTS.unpack(header)
            frame_size = _FRAME_HEADER_SIZE + (page_size & 0xFE00) + ((page_size & 1) << 16)
            length = _LOG_HEADER_SIZE + frames * frame_size if frames else 0
            if frames and os.pread(self._log, _SALTS_SIZE, _LOG_SALTS_AT) != salts:
                return is_cut(index_file, self._log)
        # Not `fstat`: on newer kernels reading the times of a file makes the next write to it slower.
        if os.lseek(self._log, 0, os.SEEK_END) < length:
            return is_cut(index_file, self._log)
        self._last = header, length
        return False


def _holds_frames(index: LogIndex, log: int) -> bool:
    """Return whether the log contains all frames that the index names.

    The length of the log alone does not show this: if a log is emptied and frames are then written at the old
    position, the log is long enough but begins with zeros.
    """
    return (
        os.lseek(log, 0, os.SEEK_END) >= _frame_at(index.page_size, index.frames + 1)
        and os.pread(log, _SALTS_SIZE, _LOG_SALTS_AT) == index.salts
        and is_index_of_log(index, log)
    )


def count_outstanding_commits(index: LogIndex, log: int) -> int:
    """Return the number of transactions that are in the log but not in the database file yet."""
    headers = (_frame_header(index, log, number) for number in range(index.moved + 1, index.frames + 1))
    return sum(1 for header in headers if header is not None and header[1])


def _frame_header(index: LogIndex, log: int, number: int) -> tuple[int, int, bytes, int, int] | None:
    data = os.pread(log, _FRAME_HEADER.size, _frame_at(index.page_size, number))
    return _FRAME_HEADER.unpack(data) if len(data) == _FRAME_HEADER.size else None


def _frame_at(page_size: int, number: int) -> int:
    return _LOG_HEADER_SIZE + (number - 1) * (_FRAME_HEADER.size + page_size)


def _page_size(noted: int) -> int:
    return (noted & 0xFE00) + ((noted & 1) << 16)
