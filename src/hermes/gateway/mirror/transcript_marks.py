"""Marks of each transcript: its state when it last agreed with the store. They only save work; see `transcripts`."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.atomic_files import replace_file
from hermes.clock import make_uid

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

FILE = ".transcripts.json"
STORE_KEY = "transcripts:store"
"""Names the store in itself, so that another one in its place is not taken for one in which all was deleted."""


class Marks:
    def __init__(self, folder: Path, store: str, sessions: dict[str, tuple[str, int]]) -> None:
        self._folder, self._store, self._sessions = folder, store, sessions
        self._written: set[str] = set()
        self._saved = False

    @classmethod
    def read(cls, folder: Path, db: SessionDB) -> Marks:
        """What is remembered of this very store, if that has not gone back in time since."""
        store = db.get_meta(STORE_KEY)
        if store is None:
            store = make_uid()
            db.set_meta(STORE_KEY, store)
        data = _read_file(folder / FILE)
        if data.get("store") != store:
            return cls(folder, store, {})
        sessions = {session_id: (str(mark[0]), int(mark[1])) for session_id, mark in data["sessions"].items()}
        if data["newest"] > db.mirrored.find_highest_id():
            # A backup was restored, perhaps: what is not there need not have been deleted.
            sessions = {
                session_id: mark
                for session_id, mark in sessions.items()
                if db.mirrored.has_session(session_id)
            }
        return cls(folder, store, sessions)

    def is_current(self, session_id: str, digest: str, file: Path) -> bool:
        """Whether neither the session nor its file has changed."""
        mark = self._sessions.get(session_id)
        if mark is None or mark[0] != digest:
            return False
        with suppress(OSError):
            return file.stat().st_size == mark[1]
        return False

    def set_mark(self, session_id: str, digest: str, size: int, *, changed: bool) -> None:
        if self._sessions.get(session_id) != (digest, size):
            self._sessions[session_id] = (digest, size)
            self._saved = False
        if changed:
            self._written.add(session_id)

    def forget(self, session_id: str) -> None:
        self._saved = self._sessions.pop(session_id, None) is None and self._saved
        self._written.discard(session_id)

    def list_missing(self, sessions: Collection[str]) -> list[str]:
        return [session_id for session_id in self._sessions if session_id not in sessions]

    def save(self, newest: int) -> None:
        """The files first, then what is said of them."""
        if self._saved:
            return
        for session_id in self._written:
            _sync(self._folder / f"{session_id}.jsonl")
        self._written.clear()
        data = {"store": self._store, "newest": newest, "sessions": self._sessions}
        replace_file(self._folder / FILE, json.dumps(data).encode())
        self._saved = True


def _read_file(file: Path) -> dict[str, Any]:
    """What stands in the file if all of it makes sense."""
    try:
        data = json.loads(file.read_bytes())
        for mark in data["sessions"].values():
            str(mark[0]), int(mark[1])
        return dict(data) if isinstance(data["newest"], int) else {}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return {}


def _sync(file: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
