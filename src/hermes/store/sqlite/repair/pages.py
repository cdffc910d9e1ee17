"""A defensive reader of SQLite's file format: it returns the data that a damaged file still contains, page by
page.

Use it only for a file that no SQLite connection of this process has open. The reader opens the file itself,
and closing its descriptor would drop the locks of such a connection. Invalid data never raises an error: an
invalid page, cell or overflow chain is skipped and counted. Pages in the committed part of the write-ahead
log replace those of the file.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

MAGIC = b"SQLite format 3\x00"
LEAF, INTERIOR, INDEX_LEAF, INDEX_INTERIOR = 13, 5, 10, 2
PAGE_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
MOST_COLUMNS = 2000
MOST_PAYLOAD = 1 << 30
GUESSED_FROM_BYTES = 16 << 20
"""How many bytes are read to guess the page size of a file whose header is lost."""

ENCODING_AT, ENCODINGS = 56, {2: "utf-16-le", 3: "utf-16-be"}
"""The offset of the text encoding in the header, and the encodings other than UTF-8."""

_SIZES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
_U32 = struct.Struct(">I")
_LOG_HEADER, _FRAME_HEADER = struct.Struct(">8I"), struct.Struct(">6I")


class Row(NamedTuple):
    rowid: int
    """The rowid. For an entry of an SQL index it is 0, because the entry ends with the key of its row
    instead."""
    values: list[Any]
    whole: bool
    """False if overflow pages of the row were missing. The last values of the row are then cut or missing."""


class Log:
    """The frames of a write-ahead log up to its last commit, validated as SQLite validates them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.page_size = 0
        self.pages: dict[int, int] = {}
        """The offset in the log of the newest committed version of each page."""
        header = os.pread(descriptor, _LOG_HEADER.size, 0)
        if len(header) < _LOG_HEADER.size:
            return
        magic, _version, size, _sequence, *salts, first, second = _LOG_HEADER.unpack(header)
        if magic & ~1 != 0x377F0682 or size not in PAGE_SIZES:
            return
        self._swap = bool(magic & 1) != (struct.pack("=H", 1) == b"\x00\x01")
        if self._sum(header[:24], (0, 0)) != (first, second):
            return
        self.page_size = size
        self._follow(salts, (first, second))

    def _follow(self, salts: list[int], running: tuple[int, int]) -> None:
        at, waiting = _LOG_HEADER.size, {}
        while True:
            frame = os.pread(self._descriptor, _FRAME_HEADER.size + self.page_size, at)
            if len(frame) < _FRAME_HEADER.size + self.page_size:
                return
            number, committed, *rest = _FRAME_HEADER.unpack_from(frame)
            running = self._sum(frame[24:], self._sum(frame[:8], running))
            if rest[:2] != salts or tuple(rest[2:]) != running or not number:
                return
            waiting[number] = at + _FRAME_HEADER.size
            at += len(frame)
            if committed:
                self.pages.update(waiting)
                waiting.clear()

    def _sum(self, data: bytes, running: tuple[int, int]) -> tuple[int, int]:
        words = array("I", data)
        if self._swap:
            words.byteswap()
        first, second = running
        for even, odd in zip(words[::2], words[1::2], strict=True):
            first = (first + even + second) & 0xFFFFFFFF
            second = (second + odd + first) & 0xFFFFFFFF
        return first, second

    def page(self, number: int) -> bytes:
        return os.pread(self._descriptor, self.page_size, self.pages[number])


class Image:
    """The pages of a damaged database file. Pages in its write-ahead log take precedence over those in the file."""

    def __init__(self, descriptor: int | None, log: Log | None) -> None:
        self._descriptor = descriptor
        self._log = log if log is not None and log.pages else None
        self._size = 0 if descriptor is None else os.fstat(descriptor).st_size
        header = self._header()
        known = header.startswith(MAGIC)
        self.page_size = self._page_size(header if known else b"")
        self.usable = self.page_size - (header[20] if known and header[20] <= 32 else 0)
        self.encoding = ENCODINGS.get(_U32.unpack_from(header, ENCODING_AT)[0], "utf-8") if known else "utf-8"
        self.count = self._size // self.page_size
        if self._log is not None:
            self.count = max(self.count, *self._log.pages)
        self.unreadable: set[int] = set()
        """Pages that are referenced but invalid."""
        self.garbled = 0
        """The number of texts with invalid bytes, which were read as U+FFFD."""

    def _header(self) -> bytes:
        if self._log is not None and 1 in self._log.pages:
            return self._log.page(1)[:100]
        return b"" if self._descriptor is None else self._read(100, 0).ljust(100, b"\0")

    def _read(self, size: int, at: int) -> bytes:
        """Return `size` bytes of the database file from the offset `at`, or fewer if the file ends before.

        `file_access.SealedImage` replaces this method for encrypted files.
        """
        return b"" if self._descriptor is None else os.pread(self._descriptor, size, at)

    def _page_size(self, header: bytes) -> int:
        if self._log is not None:
            return self._log.page_size
        size = int.from_bytes(header[16:18], "big")
        size = 65536 if size == 1 else size
        if size in PAGE_SIZES:
            return size
        start = self._read(GUESSED_FROM_BYTES, 0)
        best, most = 4096, 0
        for size in PAGE_SIZES:
            found = sum(
                _is_plausible_page(start[at : at + size]) for at in range(size, len(start) - size + 1, size)
            )
            if found * size > most:
                best, most = size, found * size
        return best

    def page(self, number: int) -> bytes:
        """Return the bytes of the page `number`, from the log or the database file. Return `b""` if the page is
        missing, unreadable or all zeros.
        """
        try:
            if self._log is not None and number in self._log.pages:
                data = self._log.page(number)
            elif self._descriptor is None or not 0 < number <= self.count:
                return b""
            else:
                data = self._read(self.page_size, (number - 1) * self.page_size)
        except OSError:  # a read error of the disk
            return b""
        return data if len(data) == self.page_size and any(data) else b""

    def tree(self, root: int, visited: set[int], *, index: bool = False) -> Iterator[tuple[int, bytes]]:
        """Yield (number, content) of each page with rows of the b-tree at `root`, except the pages in
        `visited`.

        Each valid page of the tree is added to `visited`, each invalid one to `unreadable`. With `index`, the
        tree is an SQL index, which has rows in interior pages too.
        """
        leaf, interior = (INDEX_LEAF, INDEX_INTERIOR) if index else (LEAF, INTERIOR)
        ahead = [root]
        while ahead:
            number = ahead.pop()
            if number in visited:
                continue
            data = self.page(number)
            kind = data[_head(number)] if data else 0
            if kind not in (leaf, interior):
                self.unreadable.add(number)
                continue
            visited.add(number)
            if kind == interior:
                ahead += reversed(self._children(number, data))
            if kind == leaf or index:
                yield number, data

    def _children(self, number: int, data: bytes) -> list[int]:
        found = [_U32.unpack_from(data, at)[0] for at in self._cells(number, data)]
        found.append(_U32.unpack_from(data, _head(number) + 8)[0])
        return [child for child in found if 0 < child <= self.count]

    def _cells(self, number: int, data: bytes) -> list[int]:
        head = _head(number)
        start = head + (12 if data[head] in (INTERIOR, INDEX_INTERIOR) else 8)
        count = min(int.from_bytes(data[head + 3 : head + 5], "big"), (self.usable - start) // 2)
        found = struct.unpack_from(f">{count}H", data, start)
        least = start + 2 * count
        good = [at for at in found if least <= at <= self.usable - 4]
        if len(good) < len(found):
            self.unreadable.add(number)
        return good

    def rows(self, number: int, data: bytes) -> Iterator[Row]:
        """Yield the readable rows of the page `number`, whose bytes are `data`.

        The page is a leaf page of a table, or a page of an SQL index. For the latter, each index entry is yielded as
        a row. If a row is unreadable, the page is added to `self.unreadable`.
        """
        kind = data[_head(number)]
        for at in self._cells(number, data):
            try:
                row = self._row(data, at, kind)
            except (IndexError, ValueError, struct.error):
                row = None
            if row is None:
                self.unreadable.add(number)
            else:
                yield row

    def _row(self, data: bytes, at: int, kind: int) -> Row | None:
        at += 4 if kind == INDEX_INTERIOR else 0
        size, at = _varint(data, at)
        rowid = 0
        if kind == LEAF:
            rowid, at = _varint(data, at)
        if not 0 < size <= MOST_PAYLOAD:
            return None
        payload = self._payload(data, at, size, kind)
        return None if payload is None else self._record(payload, size, _signed(rowid))

    def _payload(self, data: bytes, at: int, size: int, kind: int) -> bytes | None:
        usable = self.usable
        most = usable - 35 if kind == LEAF else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return data[at : at + size] if at + size <= usable else None
        least = (usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (usable - 4)
        local = local if local <= most else least
        if at + local + 4 > usable:
            return None
        parts, left = [data[at : at + local]], size - local
        following, visited = _U32.unpack_from(data, at + local)[0], set[int]()
        while left > 0:
            page = b"" if following in visited else self.page(following)
            if not page:
                break
            visited.add(following)
            parts.append(page[4 : 4 + min(left, usable - 4)])
            left -= len(parts[-1])
            following = _U32.unpack_from(page)[0]
        return b"".join(parts)

    def _record(self, payload: bytes, size: int, rowid: int) -> Row | None:
        header, at = _varint(payload, 0)
        if not 0 < header <= min(size, len(payload)):
            return None
        kinds: list[int] = []
        while at < header and len(kinds) < MOST_COLUMNS:
            kind, at = _varint(payload, at)
            kinds.append(kind)
        if at != header or header + sum(map(_length, kinds)) != size:
            return None
        values: list[Any] = []
        for kind in kinds:
            end = at + _length(kind)
            values.append(self._value(kind, payload[at:end], cut=end > len(payload)))
            at = end
        return Row(rowid, values, len(payload) == size)

    def _value(self, kind: int, data: bytes, *, cut: bool) -> Any:
        if kind >= 12:
            if cut and not data:
                return None
            return self._text(data, cut=cut) if kind % 2 else data
        if cut or kind == 0:
            return None
        if kind in (8, 9):
            return kind - 8
        return struct.unpack(">d", data)[0] if kind == 7 else int.from_bytes(data, "big", signed=True)

    def _text(self, data: bytes, *, cut: bool) -> str:
        try:
            return data.decode(self.encoding)
        except UnicodeDecodeError:
            self.garbled += not cut
            return data.decode(self.encoding, errors="replace")

    def free_pages(self) -> set[int]:
        """Return the pages on the free list, or an empty set if the list is damaged.

        The content of these pages was deleted.
        """
        header, found = self._header(), set[int]()
        if not header.startswith(MAGIC):
            return found
        following, total = struct.unpack_from(">II", header, 32)
        while following and following not in found and (data := self.page(following)):
            found.add(following)
            following, count = struct.unpack_from(">II", data)
            found.update(struct.unpack_from(f">{min(count, self.usable // 4 - 2)}I", data, 8))
        return found if len(found) == total else set()

    def leaves_outside(self, visited: set[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (number, content) of the table leaf pages that are not in `visited`, because no tree reaches
        them.

        An overflow page is never mistaken for a leaf page, because it begins with zeros.
        """
        for number in range(1, self.count + 1):
            if number not in visited:
                data = self.page(number)
                if data and data[_head(number)] == LEAF:
                    yield number, data

    def changed_pages(self) -> Iterator[tuple[int, bytes]]:
        """Yield (offset in the database file, bytes) of each page that the write-ahead log contains."""
        if self._log is not None:
            for number in sorted(self._log.pages):
                yield (number - 1) * self.page_size, self._log.page(number)


def _head(number: int) -> int:
    return 100 if number == 1 else 0


def _is_plausible_page(page: bytes) -> bool:
    """Return whether `page` may be a leaf page of exactly this length.

    The page must have the type of a leaf page. Its cells must lie within it, and the last cell must begin in
    its second half, because SQLite fills a page from the end.
    """
    if page[0] != LEAF:
        return False
    count = int.from_bytes(page[3:5], "big")
    if not 0 < count <= len(page) // 4:
        return False
    cells = struct.unpack_from(f">{count}H", page, 8)
    return bool(min(cells) >= 8 + 2 * count and len(page) // 2 <= max(cells) < len(page))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for length in range(8):
        byte = data[at + length]
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + length + 1
    return (value << 8) | data[at + 8], at + 9


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _length(kind: int) -> int:
    if kind >= 12:
        return (kind - 12) // 2
    return _SIZES[kind] if kind in _SIZES else -MOST_PAYLOAD * 4
