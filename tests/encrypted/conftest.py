"""Fixtures of the tests that need an SQLite library with ciphers. `tests/test_encryption.py` runs these tests
in a separate process.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.store.sqlite.encryption import encryption
from hermes_state import SessionDB

if not encryption.can_encrypt():
    collect_ignore_glob = ["test_*.py"]

SECRET = "wombatsecret"
MESSAGES = 120


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Set a key in the environment and return it."""
    key = secrets.token_bytes(32)
    monkeypatch.setenv("HERMES_STORE_KEY", key.hex())
    return key


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that forgets all known keys. The state is then that of a new process without a key in
    its environment."""

    def forget() -> None:
        monkeypatch.delenv("HERMES_STORE_KEY", raising=False)
        encryption._known.clear()

    return forget


@pytest.fixture
def plain(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create and close a plain store with a backup."""
    monkeypatch.delenv("HERMES_STORE_KEY", raising=False)
    path = home / "state.db"
    fill(path)
    return path


@pytest.fixture
def store(home: Path, key: bytes) -> Path:
    """Create and close a store that is encrypted from the start, with a backup."""
    path = home / "state.db"
    fill(path)
    return path


def fill(path: Path) -> None:
    with SessionDB(path) as db:
        for name in ("s0", "s1", "s2"):
            db.create_session(name, "cli")
            db.set_session_title(name, f"About {SECRET} {name}")
            for at in range(MESSAGES // 3):
                db.append_message(name, "user", f"{SECRET} {name}x{at} " + "words " * 60)
        db.backup()


def content(path: Path) -> dict[str, list[str]]:
    with SessionDB(path) as db:
        assert db.verify().ok
        found = {
            row["id"]: [m["content"] for m in db.get_messages(row["id"])]
            for row in db.search_sessions(limit=99)
        }
        assert len(db.search_messages(SECRET, limit=500)) == sum(map(len, found.values()))
    return found


def files_that_tell(folder: Path) -> list[str]:
    """Return the files in `folder` that contain the secret as readable text."""
    return [
        file.name for file in folder.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()
    ]
