"""What was typed before, in `chat_history` of the home: sealed entry by entry if the store is encrypted.

A plain file has the format of prompt_toolkit's `FileHistory`. Sealed, each entry is the same text in one ciphertext.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History

from hermes import clock, errors
from hermes.logs import get_logger
from hermes.store.engine_choice import sealed_files

log = get_logger(__name__)


class InputHistory(History):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._warned = False

    def load_history_strings(self) -> Iterable[str]:
        """The newest first."""
        try:
            return reversed(decode_entries(sealed_files().read(self._file)))
        except FileNotFoundError:
            return ()
        except (errors.HermesError, OSError) as problem:
            self._warn(problem)
            return ()

    def store_string(self, string: str) -> None:
        """Whether sealed or not is decided each time: another process may encrypt the store while we run."""
        try:
            sealed_files().append(self._file, encode_entry(string))
        except (errors.HermesError, OSError) as problem:  # the chat goes on without
            self._warn(problem)

    def _warn(self, problem: Exception) -> None:
        if not self._warned:
            log.warning("what is typed is not kept in %s: %s", self._file, problem)
        self._warned = True


def encode_entry(string: str) -> bytes:
    lines = "".join(f"+{line}\n" for line in string.split("\n"))
    return f"\n# {clock.format_iso(clock.now())}\n{lines}".encode("utf-8", "replace")


def decode_entries(data: bytes) -> list[str]:
    """The oldest first."""
    entries, lines = list[str](), list[str]()
    for line in [*data.decode("utf-8", "replace").split("\n"), ""]:
        if line.startswith("+"):
            lines.append(line[1:])
        elif lines:
            entries.append("\n".join(lines))
            lines = []
    return entries
