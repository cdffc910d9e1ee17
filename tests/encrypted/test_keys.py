"""Where the key of a store is looked up, in which order, and what the commands for keys print."""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes import errors
from hermes.store.sqlite.encryption import encryption, store_keys
from hermes.store.sqlite.upkeep.conversion import encrypt_file
from hermes_state import SessionDB
from tests.encrypted.conftest import content, files_that_tell

KEYRING = """
import json, os, pathlib
from keyring.backend import KeyringBackend

class Keyring(KeyringBackend):
    priority = 1
    file = pathlib.Path(os.environ["TEST_KEYRING"])

    def all(self):
        return json.loads(self.file.read_text()) if self.file.exists() else {}

    def get_password(self, service, user):
        return self.all().get(service + "|" + user)

    def set_password(self, service, user, password):
        self.file.write_text(json.dumps(self.all() | {service + "|" + user: password}))
"""


@pytest.fixture
def hermes(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs `hermes` with a keyring that is stored in a file."""
    (tmp_path / "file_keyring.py").write_text(KEYRING)

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(tmp_path)]),
            "PYTHON_KEYRING_BACKEND": "file_keyring.Keyring",
            "TEST_KEYRING": str(tmp_path / "keyring.json"),
        }
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "hermes.cli.main", *words],
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            env={**os.environ, **settings, **environment},
        )

    return run


def key_file(path: Path, key: bytes, mode: int = 0o600) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(key.hex() + "\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("place", ["environment", "file", "settings", "where it was"])
def test_a_key_is_found_in_every_place(
    plain: Path, home: Path, forget: Callable[[], None], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    before, key = content(plain), secrets.token_bytes(32)
    file = key_file(home / "keys" / "the.key", key)
    encrypt_file(plain, key, key_file=str(file) if place == "where it was" else None)
    forget()
    if place == "environment":
        monkeypatch.setenv("HERMES_STORE_KEY", key.hex())
    elif place == "file":
        monkeypatch.setenv("HERMES_STORE_KEY_FILE", str(file))
    elif place == "settings":
        (home / "config.yaml").write_text(f"store:\n  key_file: {file}\n")
    assert content(plain) == before


def test_a_key_of_another_store_is_ignored(
    plain: Path, home: Path, forget: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = secrets.token_bytes(32)
    encrypt_file(plain, key)
    forget()
    monkeypatch.setenv("HERMES_STORE_KEY", secrets.token_hex(32))
    monkeypatch.setenv("HERMES_STORE_KEY_FILE", str(key_file(home / "keys" / "right.key", key)))
    assert content(plain)


def test_a_new_store_is_encrypted_with_the_key_of_the_settings(home: Path) -> None:
    file = key_file(home / "the.key", secrets.token_bytes(32))
    (home / "config.yaml").write_text(f"store:\n  key_file: {file.name}\n")
    assert encryption.is_encrypted(home / "state.db")
    with SessionDB() as db:
        db.create_session("s", "cli")
    assert not (home / "state.db").read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize("text", ["", "short", "00" * 31, "00" * 33, "zz" * 32])
def test_an_invalid_key_is_refused(text: str) -> None:
    with pytest.raises(errors.StoreLocked, match="64 hexadecimal digits"):
        store_keys.parse_key(text, "HERMES_STORE_KEY")


def test_a_key_file_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(errors.StoreLocked, match="chmod 600"):
        store_keys.read_key_file(key_file(tmp_path / "loose.key", bytes(32), 0o640), "the file")


def test_the_command_with_the_keyring(
    plain: Path, hermes: Callable[..., subprocess.CompletedProcess[str]], home: Path
) -> None:
    done = hermes("store", "encrypt", "--generate")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 sessions, 120 messages" in done.stdout
    assert "Backups encrypted with it: 1" in done.stdout
    assert f"The key is in the keyring (service hermes-sessions, account {plain})" in done.stdout
    assert "Without the key, all data in the store is lost" in done.stdout
    assert files_that_tell(home) == []
    assert "About" in hermes("sessions", "list").stdout
    assert hermes("sessions", "verify").returncode == 0

    locked = hermes("sessions", "list", TEST_KEYRING="/nonexistent")
    assert (locked.returncode, locked.stdout) == (1, "")
    assert locked.stderr.count("\n") == 1
    assert "is encrypted and no key for it was found" in locked.stderr

    again = hermes("store", "encrypt", "--generate")
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "was encrypted already" in hermes("store", "encrypt").stdout

    back = hermes("store", "decrypt")
    assert (back.returncode, back.stderr) == (0, "")
    assert len(content(plain)) == 3


def test_the_command_with_a_key_file(
    plain: Path, hermes: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    file = tmp_path / "away" / "the.key"
    done = hermes("store", "encrypt", "--store", str(plain), "--key-file", str(file), "--generate")
    assert (done.returncode, done.stderr) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f"The key is in {file}." in done.stdout
    assert file.read_text().strip() not in done.stdout
    assert hermes("sessions", "verify").returncode == 0
    file.unlink()
    assert hermes("sessions", "verify").returncode == 1


@pytest.mark.parametrize(
    "words", [(), ("--env",), ("--keyring",), ("--env", "--generate"), ("--key-file", "/nonexistent")]
)
def test_without_a_key_the_command_says_so_and_does_nothing(
    plain: Path, hermes: Callable[..., subprocess.CompletedProcess[str]], words: tuple[str, ...]
) -> None:
    before = plain.read_bytes()
    done = hermes("store", "encrypt", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert plain.read_bytes() == before
