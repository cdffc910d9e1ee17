"""A map in memory whose changes are appended to a file, so that it survives the end of the process."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hermes import atomic_files, home

SPARE_LINES = 10_000

OnChange = Callable[[str, Any, Any], None]
"""Called with the key, the old value and the new value. None stands for no value."""


class LineMap:
    """The map and its file. It is not thread-safe; its owner must use a lock.

    The file has one line per change, `[key, value]`. For each key, the last line is valid; null removes the
    key. The file is rewritten when most of its lines are obsolete. A write is not synced, so a power cut can
    lose the last lines.
    """

    def __init__(self, file: Path, most: int, on_change: OnChange) -> None:
        self._file, self._most, self._on_change = file, most, on_change
        self.entries: OrderedDict[str, Any] = OrderedDict()
        """The values, in the order of their last change. When the map is full, the first one is removed."""
        self._lines = 0

    def load(self) -> None:
        for key in list(self.entries):
            self._set(key, None)
        self._lines = 0
        with suppress(FileNotFoundError):
            text = self._file.read_bytes()
            for line in text.splitlines():
                self._lines += 1
                # A killed process may leave an incomplete last line.
                with suppress(ValueError, TypeError):
                    key, value = json.loads(line)
                    self._set(str(key), value)
            if text and not text.endswith(b"\n"):
                self._write_anew()
        self._tidy()

    def put(self, key: str, value: Any) -> None:
        """Set the value of a key, in memory and in the file. The value None removes the key. If the file cannot be
        written, the change lasts only until the process ends."""
        if self.entries.get(key) == value:
            return
        self._set(key, value)
        self._lines += 1
        with suppress(OSError):
            if not self._file.exists():
                self._write_anew()
            else:
                descriptor = home.open_private_file(self._file, os.O_WRONLY | os.O_APPEND)
                with os.fdopen(descriptor, "ab") as file:
                    file.write(b"%s\n" % json.dumps([key, value]).encode())
                self._tidy()

    def _set(self, key: str, value: Any) -> None:
        old = self.entries.pop(key, None)
        if value is not None:
            self.entries[key] = value
        if old is not None or value is not None:
            self._on_change(key, old, value)
        if len(self.entries) > self._most:
            self._set(next(iter(self.entries)), None)

    def _tidy(self) -> None:
        if self._lines > 2 * len(self.entries) + SPARE_LINES:
            self._write_anew()

    def _write_anew(self) -> None:
        lines = b"".join(b"%s\n" % json.dumps(item).encode() for item in self.entries.items())
        atomic_files.replace_file(self._file, lines)
        self._lines = len(self.entries)
