"""Encryption and decryption keep all data. An encrypted store contains no readable text. A kill during the
conversion leaves a valid store."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes import errors
from hermes.store.sqlite.copies.backup import list_backups
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.upkeep.conversion import decrypt_file, encrypt_file
from hermes.store.values import Converted
from hermes_state import SessionDB
from tests.encrypted.conftest import MESSAGES, content, files_that_tell

KILLS = 12
MOST_KILLS = 60


def test_a_store_is_encrypted_and_decrypted(
    plain: Path, key: bytes, tmp_path: Path, forget: Callable[[], None]
) -> None:
    before = content(plain)
    done = encrypt_file(plain, key)
    assert done == Converted(plain, True, 3, MESSAGES, tuple(list_backups(plain)), ())
    assert files_that_tell(tmp_path) == []
    assert content(plain) == before
    assert content(list_backups(plain)[0]) == before

    decrypt_file(plain)
    forget()
    assert not encryption.is_encrypted(plain)
    assert content(plain) == before
    assert content(list_backups(plain)[0]) == before
    assert [file.name for file in tmp_path.rglob(f"*{encryption.NOTE}*")] == []


def test_settings_and_schema_are_kept(plain: Path, key: bytes) -> None:
    def facts() -> object:
        with SessionDB(plain) as db, db.raw() as sql:
            pragmas = ("user_version", "application_id", "auto_vacuum", "journal_mode", "page_size")
            settings = [sql.execute(f"PRAGMA {name}").fetchone() for name in pragmas]
            return settings, sql.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()

    before = facts()
    encrypt_file(plain, key)
    assert facts() == before
    decrypt_file(plain)
    assert facts() == before


def test_plain_backups_are_kept_only_when_asked_for_and_are_named(
    plain: Path, key: bytes, tmp_path: Path
) -> None:
    (backup,) = list_backups(plain)
    done = encrypt_file(plain, key, keep_plain_backups=True)
    assert done.left == (f"not encrypted: {backup}",)
    assert files_that_tell(tmp_path) == [backup.name]
    assert encrypt_file(plain, key).backups == (backup,)
    assert files_that_tell(tmp_path) == []


def test_files_that_are_not_encrypted_are_named(plain: Path, key: bytes) -> None:
    aside = plain.with_name("state.db.damaged-20260101_000000")
    aside.write_bytes(b"what a repair kept")
    transcript = plain.with_name("sessions") / "s0.jsonl"
    transcript.parent.mkdir()
    transcript.write_text("{}\n")
    other_name = plain.with_name("another-name")
    os.link(plain, other_name)
    done = encrypt_file(plain, key)
    assert [line.split()[-1] for line in done.left] == [str(plain), str(aside)]
    assert [kind.files for kind in done.plain] == [(transcript,), (other_name,)]


def test_a_store_in_use_is_not_converted(plain: Path, key: bytes) -> None:
    with SessionDB(plain), pytest.raises(errors.StoreBusy):
        encrypt_file(plain, key)
    holding = (
        "from hermes_state import SessionDB; import sys; db = SessionDB(sys.argv[1]); print(1, flush=True)"
    )
    holding += "; input()"
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(plain)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        with pytest.raises(errors.StoreBusy):
            encrypt_file(plain, key)
        other.communicate(b"\n")
    assert not encryption.is_encrypted(plain)
    assert encrypt_file(plain, key).changed


CONVERT_BACK_AND_FORTH = """
import sys, time
from pathlib import Path
from hermes import errors
from hermes.store.sqlite.upkeep.conversion import decrypt_file, encrypt_file
path, key = Path(sys.argv[1]), bytes.fromhex(sys.argv[2])
for turn in range(8):
    while True:
        try:
            decrypt_file(path) if turn % 2 else encrypt_file(path, key)
            break
        except errors.StoreBusy:
            time.sleep(0.01)
"""


def test_writes_of_another_process_during_conversions_are_kept(plain: Path, key: bytes) -> None:
    written = 0
    with subprocess.Popen([sys.executable, "-c", CONVERT_BACK_AND_FORTH, str(plain), key.hex()]) as other:
        while other.poll() is None:
            try:
                with SessionDB(plain) as db:
                    db.append_message("s1", "user", f"written meanwhile {written}")
                    written += 1
            except errors.StoreBusy:
                pass
            time.sleep(0.02)
    assert other.returncode == 0
    assert written
    with SessionDB(plain) as db:
        found = [m["content"] for m in db.get_messages("s1") if m["content"].startswith("written")]
        assert found == [f"written meanwhile {at}" for at in range(written)]
        assert db.verify().ok
    assert not plain.with_name("state.db.damaged").exists()


def test_a_damaged_store_is_not_converted(plain: Path, key: bytes) -> None:
    with plain.open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xff" * 4096 * 8)
    with pytest.raises(errors.StoreDamaged):
        encrypt_file(plain, key)
    assert plain.read_bytes().startswith(b"SQLite format 3")
    assert not encryption.is_encrypted(plain)


def test_an_encrypted_store_refuses_another_key(store: Path) -> None:
    with pytest.raises(errors.WrongKey):
        encrypt_file(store, bytes(32))


@pytest.mark.parametrize("verb", ["encrypt", "decrypt"])
def test_a_kill_at_any_moment_leaves_one_valid_store(
    plain: Path, key: bytes, tmp_path: Path, verb: str
) -> None:
    before = content(plain)
    if verb == "decrypt":
        encrypt_file(plain, key)
    start = shutil.copytree(plain.parent, tmp_path / "start")

    def convert(path: Path) -> None:
        decrypt_file(path) if verb == "decrypt" else encrypt_file(path, key)

    def fresh() -> Path:
        shutil.rmtree(plain.parent)
        shutil.copytree(start, plain.parent)
        return plain

    began = time.monotonic()
    convert(fresh())
    takes = time.monotonic() - began
    chance, ends = random.Random(verb), set[bool]()
    for killed in range(MOST_KILLS):
        if killed >= KILLS and len(ends) == 2:
            break
        path = fresh()
        child = os.fork()
        if not child:
            convert(path)
            os._exit(0)
        time.sleep(chance.uniform(0, takes))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert content(path) == before
        ends.add(path.read_bytes().startswith(b"SQLite format 3"))
        convert(path)
        assert content(path) == before
        if verb == "encrypt":
            assert files_that_tell(plain.parent) == []
    assert ends == {True, False}  # some were killed before the new file was renamed, some after
