"""The input history: what the person has typed at the prompt of the terminal, stored in `<home>/chat_history`.
The file is private. It is encrypted if the store is encrypted.

The file contains the full text of each entry. The prompt shows a short placeholder in place of each long paste.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from prompt_toolkit.history import History

from hermes import clock, errors, home
from hermes.chat.input.pastes import Pastes, Range
from hermes.logs import get_logger
from hermes.store.engine_choice import sealed_files

_log = get_logger(__name__)

HISTORY = "chat_history"
LONGEST_STORED = 2_000_000
"""The maximum length of an entry in the file, in characters. A longer entry is kept only until the program ends.
"""
LARGEST_FILE = 16_000_000
"""The size in bytes above which the older half of the entries is removed."""

_RANGES = re.compile(r"# pasted((?: \d{1,12}-\d{1,12})+)")


class Entry(NamedTuple):
    text: str
    ranges: Sequence[Range] = ()


class PromptHistory(History):
    """The inputs that the person can recall at the prompt. They are loaded from and stored in `file`. `file` is
    None in an incognito conversation, which writes no history."""

    def __init__(self, pastes: Pastes, file: Path | None) -> None:
        super().__init__()
        self._pastes = pastes
        self._stored = None if file is None else InputHistory(file)

    def load_history_strings(self) -> Iterator[str]:
        for entry in () if self._stored is None else self._stored.load_entries():
            yield self._pastes.collapse_ranges(entry.text, entry.ranges)

    def store_string(self, string: str) -> None:
        expanded = self._pastes.expand(string)
        if self._stored is not None and len(expanded.text) <= LONGEST_STORED:
            self._stored.store(Entry(*expanded))

    def remember(self, string: str) -> None:
        """Let the person recall an input that was not sent. The input is kept in memory only and is not written
        to the history file."""
        if string.strip() and string not in self._loaded_strings[:1]:
            self._loaded_strings.insert(0, string)


def open_history_file() -> Path | None:
    """Create the history file with private permissions and return its path. Return None if that fails."""
    file = home.get_hermes_home() / HISTORY
    try:
        home.make_private_folder(file.parent)
        os.close(home.open_private_file(file, os.O_WRONLY | os.O_CREAT))
    except OSError as problem:
        _log.warning("input history is not saved: %s: %s", file, problem.strerror)
        return None
    return file


class InputHistory:
    """The entries in the file of the input history. If the store is encrypted, each entry is encrypted.

    An unencrypted file has the format of prompt_toolkit's `FileHistory`. A comment before an entry gives the
    positions of its pastes. An encrypted entry contains the same lines, the comment included.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._warned = False

    def load_entries(self) -> Iterable[Entry]:
        """Return the entries of the history file, newest first. If the file cannot be read, warn and return
        none."""
        try:
            data = sealed_files().read(self._file)
            entries = _decode_entries(data)
            if len(data) > LARGEST_FILE:
                entries = self._remove_oldest(entries)
        except FileNotFoundError:
            return ()
        except (errors.HermesError, OSError) as problem:
            self._warn(problem)
            return ()
        return reversed(entries)

    def store(self, entry: Entry) -> None:
        """Append an entry to the history file. Each call checks whether the store is encrypted, because another
        process may have encrypted it since the last call."""
        try:
            sealed_files().append(self._file, _encode_entry(entry))
        except (errors.HermesError, OSError) as problem:  # the program continues without history
            self._warn(problem)

    def _remove_oldest(self, entries: list[Entry]) -> list[Entry]:
        """Rewrite the history file with only the newest entries, up to half of `LARGEST_FILE` bytes. Return
        these entries."""
        kept, size = list[bytes](), 0
        for entry in reversed(entries):
            encoded = _encode_entry(entry)
            size += len(encoded)
            if size > LARGEST_FILE // 2:
                break
            kept.append(encoded)
        self._file.unlink()
        sealed_files().append(self._file, b"".join(reversed(kept)))
        return entries[len(entries) - len(kept) :]

    def _warn(self, problem: Exception) -> None:
        if not self._warned:
            _log.warning("input history is not saved in %s: %s", self._file, problem)
        self._warned = True


def _encode_entry(entry: Entry) -> bytes:
    lines = "".join(f"+{line}\n" for line in entry.text.split("\n"))
    ranges = "".join(f" {start}-{end}" for start, end in entry.ranges)
    pasted = f"# pasted{ranges}\n" if ranges else ""
    return f"\n# {clock.format_iso(clock.now())}\n{pasted}{lines}".encode("utf-8", "replace")


def _decode_entries(data: bytes) -> list[Entry]:
    """Return the entries of the input history, oldest first. `data` is the decrypted content of its file."""
    entries, lines, ranges = list[Entry](), list[str](), list[Range]()
    for line in [*data.decode("utf-8", "replace").split("\n"), ""]:
        if line.startswith("+"):
            lines.append(line[1:])
            continue
        if lines:
            entries.append(Entry("\n".join(lines), ranges))
            lines, ranges = [], []
        if found := _RANGES.fullmatch(line):
            pairs = (pair.split("-") for pair in found[1].split())
            ranges = [(int(start), int(end)) for start, end in pairs]
    return entries
