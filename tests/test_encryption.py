"""Encryption at rest, tested from an environment without ciphers.

The tests in `tests/encrypted` and some others run in a separate process, in which `apsw-sqlite3mc` replaces
`apsw`. `apsw-sqlite3mc` is installed once into a separate folder, and never into the same environment as
`apsw`.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from hermes import errors
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.encryption.recognition import is_probably_encrypted
from hermes_state import SessionDB
from tests.separate_packages import installed_apart

ROOT = Path(__file__).parent.parent
WITH_CIPHERS = ("apsw-sqlite3mc>=3.51.3", "keyring>=25")
ALSO_ENCRYPTED = (
    "tests/interface/test_conversation.py",
    "tests/interface/test_search_context.py",
    "tests/interface/test_meta_and_upkeep.py",
    "tests/survival/test_kill.py",
)

needs_no_ciphers = pytest.mark.skipif(
    encryption.can_encrypt(), reason="asks what is said where there are none"
)


@pytest.fixture(scope="session")
def with_ciphers() -> Path:
    """Return a folder with a SQLite that has ciphers. It is installed when it is first needed, and kept for
    the next run."""
    return installed_apart("apsw-sqlite3mc", *WITH_CIPHERS, otherwise="no SQLite with ciphers")


def run_tests(place: Path, tests: str, **environment: str) -> None:
    path = os.pathsep.join([str(place), str(ROOT / "src")])
    left_out = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CI"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", tests],
        cwd=ROOT,
        env={**left_out, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    "file", sorted(path.name for path in (ROOT / "tests" / "encrypted").glob("test_*.py"))
)
def test_the_tests_of_encryption_pass(with_ciphers: Path, file: str) -> None:
    run_tests(with_ciphers, f"tests/encrypted/{file}")


@pytest.mark.full
@pytest.mark.parametrize("file", ALSO_ENCRYPTED)
def test_other_tests_pass_with_an_encrypted_store(with_ciphers: Path, file: str) -> None:
    run_tests(with_ciphers, file, HERMES_STORE_KEY=secrets.token_hex(32))


# ------------------------------------------------------------------------------------------------ without ciphers


def header(*, page: int = 4096, journal: int = 2) -> bytes:
    """Return a first page that looks like that of an encrypted store: it has a readable page size and journal
    mode, but not the text `SQLite format 3`."""
    readable = page.to_bytes(2, "big") + bytes((journal, journal, 32, 64, 32, 32))
    return b"\xa5" * 16 + readable + b"\xa5" * 4072


@needs_no_ciphers
def test_an_encrypted_store_names_the_extra_to_install(home: Path) -> None:
    home.mkdir()
    path = home / "state.db"
    path.write_bytes(header() * 3)
    for attempt in (SessionDB, SessionDB.repair_file):
        with pytest.raises(errors.StoreLocked, match=r"hermes-sessions\[encrypted\]") as caught:
            attempt(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(errors.StoreLocked, match="apsw-sqlite3mc"):
        SessionDB(path, read_only=True)
    assert path.read_bytes() == header() * 3
    assert not path.with_name("state.db.damaged").exists()


@needs_no_ciphers
def test_no_plain_store_is_created_if_a_key_is_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_STORE_KEY", secrets.token_hex(32))
    with pytest.raises(errors.StoreLocked, match="HERMES_STORE_KEY requires an encrypted store"):
        SessionDB()
    assert not (home / "state.db").exists()


@needs_no_ciphers
def test_a_plain_store_logs_that_a_key_is_set(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    SessionDB().close()
    monkeypatch.setenv("HERMES_STORE_KEY", secrets.token_hex(32))
    SessionDB().close()
    assert "is not encrypted although a key is set" in caplog.text


def test_a_plain_store_is_not_encrypted(home: Path) -> None:
    assert not encryption.is_encrypted(home / "state.db")
    with SessionDB() as db:
        assert not encryption.is_encrypted(db.db_path)


def test_an_encrypted_header_is_recognised() -> None:
    assert is_probably_encrypted(header()[:100])
    assert is_probably_encrypted(header(journal=1)[:100])
    assert not is_probably_encrypted(b"SQLite format 3\x00" + header()[16:100])
    assert not is_probably_encrypted(header(journal=7)[:100])
    # a plain file whose first bytes are lost
    assert not is_probably_encrypted(b"\0" * 16 + header()[16:72] + b"\0" * 28)
    assert not is_probably_encrypted(b"")
    assert not any(is_probably_encrypted(secrets.token_bytes(100)) for _ in range(2000))
