"""When each API key was last used, and how often, in `<home>/gateway/key_usage.json`. The running gateway writes
the file a few seconds after a request. `hermes gateway keys list` reads it. The cost of a key is in the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from hermes import atomic_files, clock, home

FILE = "key_usage.json"
WRITE_AFTER_S = 5.0


class KeyUse(NamedTuple):
    requests: int = 0
    last_used_at: float | None = None
    last_address: str | None = None


class KeyUsage:
    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._uses: dict[str, KeyUse] = {}
        self._is_changed = False

    def load(self) -> None:
        self._uses = read_usage(self._file.parent)

    def note(self, name: str, address: str) -> None:
        requests = self._uses.get(name, KeyUse()).requests + 1
        self._uses[name] = KeyUse(requests, clock.now(), address)
        self._is_changed = True

    async def keep_written(self) -> None:
        """Write `key_usage.json` every few seconds until cancelled, and then once more."""
        try:
            while True:
                await asyncio.sleep(WRITE_AFTER_S)
                await asyncio.to_thread(self.write)
        finally:
            self.write()

    def write(self) -> None:
        if self._is_changed:
            self._is_changed = False
            content = {name: use._asdict() for name, use in list(self._uses.items())}
            with suppress(OSError):
                home.make_private_folder(self._file.parent)
                atomic_files.replace_file(self._file, json.dumps(content).encode())


def read_usage(folder: Path) -> dict[str, KeyUse]:
    """Return the recorded use of each API key, by the name of the key. A damaged file counts as empty."""
    try:
        content: Mapping[str, Mapping[str, Any]] = json.loads((folder / FILE).read_bytes())
        return {name: KeyUse(**use) for name, use in content.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
