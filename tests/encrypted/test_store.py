"""An encrypted store works like any other. Without its key, it is reported as locked and never treated as
damaged or new.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes import errors
from hermes.store.sqlite.connection import connect
from hermes.store.sqlite.copies.backup import list_backups
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.search.indexer import BATCH, LOOK_EVERY_N_WRITES
from hermes.store.sqlite.upkeep.conversion import encrypt_file
from hermes_state import SessionDB
from tests.encrypted.conftest import MESSAGES, SECRET, content, files_that_tell, fill
from tests.store.sqlite.reference_databases import build
from tests.survival.processes import impatient

PAGES = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path"
PAGE = 4096


def folder(path: Path) -> dict[str, bytes]:
    files = [file for file in path.parent.rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


def count(found: dict[str, list[str]]) -> int:
    return sum(map(len, found.values()))


def break_page(path: Path, table: str, at: int) -> None:
    connection = connect(path)
    pages = [row[0] for row in connection.execute(PAGES, (table,))]
    connection.close()
    with path.open("r+b") as file:
        file.seek((pages[at] - 1) * PAGE + 1000)
        file.write(b"\0" * 8)


# ------------------------------------------------------------------------------------------------ with the key


def test_nothing_that_is_stored_can_be_read_in_any_file(home: Path, key: bytes) -> None:
    with SessionDB() as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", f"{SECRET} in the log")
        assert os.path.getsize(home / "state.db-wal")
        assert files_that_tell(home) == []
        assert db.search_messages(SECRET)
        with db.raw() as plain_sql:
            assert plain_sql.execute("SELECT count(*) FROM messages").fetchone() == (1,)
    assert encryption.is_encrypted(home / "state.db")
    assert files_that_tell(home) == []
    assert [stat.S_IMODE(file.stat().st_mode) for file in home.iterdir() if file.is_file()] == [0o600] * 3


def test_readers_other_processes_and_links_get_the_key_too(store: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(store)
    with SessionDB(store) as db, SessionDB(store, read_only=True) as reading, SessionDB(link) as other:
        db.append_message("s1", "user", "one more")
        assert reading.get_messages("s1")[-1]["content"] == "one more"
        assert other.get_messages("s1")[-1]["content"] == "one more"


def test_a_backup_is_encrypted_and_is_restored_with_the_same_key(store: Path, tmp_path: Path) -> None:
    before = content(store)
    with SessionDB(store) as db:
        elsewhere = db.backup(tmp_path / "elsewhere.db").path
        db.delete_session("s1")
    SessionDB.restore_file(store, elsewhere)
    assert content(store) == before
    assert files_that_tell(tmp_path) == []


def test_a_backup_is_restored_if_the_store_is_missing(store: Path, tmp_path: Path) -> None:
    before = content(store)
    for file in store.parent.glob("state.db*"):
        if file.is_file():
            file.unlink()
    (backup,) = list_backups(store)
    SessionDB.restore_file(store, backup)
    assert content(store) == before
    assert files_that_tell(tmp_path) == []


def test_a_plain_backup_is_encrypted_when_it_is_restored(plain: Path, key: bytes, tmp_path: Path) -> None:
    before = content(plain)
    (backup,) = list_backups(plain)
    kept = tmp_path / "kept.db"
    shutil.copy(backup, kept)
    encrypt_file(plain, key)
    SessionDB.restore_file(plain, kept)
    kept.unlink()
    assert content(plain) == before
    assert files_that_tell(tmp_path) == []


def test_an_encrypted_backup_is_not_put_into_a_plain_store(
    store: Path, tmp_path: Path, key: bytes, forget: Callable[[], None]
) -> None:
    forget()
    other = tmp_path / "other" / "state.db"
    fill(other)
    os.environ["HERMES_STORE_KEY"] = key.hex()
    (backup,) = list_backups(store)
    with pytest.raises(errors.BackupFailed, match="encrypt the store first"):
        SessionDB.restore_file(other, backup)
    assert content(other)


def test_an_old_database_is_migrated_in_its_encrypted_form(home: Path, key: bytes) -> None:
    home.mkdir()
    path = home / "state.db"
    expected = build(path, 5)
    encrypt_file(path, key)
    with SessionDB(path) as db:
        assert db.verify().ok
        with db.raw() as plain_sql:
            assert plain_sql.execute("SELECT count(*) FROM messages").fetchone() == (expected.total_messages,)
    (backup,) = list_backups(path)
    assert "before-migration" in backup.name
    for file in (path, backup):
        assert not file.read_bytes().startswith(b"SQLite format 3")


def test_a_purge_reaches_the_encrypted_backups(store: Path) -> None:
    with SessionDB(store) as db:
        db.delete_session("s1", purge=True)
    (backup,) = list_backups(store)
    assert set(content(backup)) == {"s0", "s2"}


# ------------------------------------------------------------------------------------------------ damage


@pytest.mark.parametrize("at", [0, 4, -1])
def test_repair_saves_every_page_with_a_whole_seal(store: Path, tmp_path: Path, at: int) -> None:
    before = content(store)
    break_page(store, "messages", at)
    report = SessionDB.repair_file(store)
    assert report.ok
    assert report.lost
    after = content(store)
    assert set(after) == set(before)
    assert all(set(texts) <= set(before[session]) for session, texts in after.items())
    assert MESSAGES - 20 < count(after) < MESSAGES
    assert files_that_tell(tmp_path) == []
    assert report.kept is not None
    assert encryption.find_key(report.kept) is not None


def test_repair_saves_rows_that_are_only_in_the_log(store: Path) -> None:
    copy = store.with_name("copy")
    copy.mkdir()
    with SessionDB(store) as db:
        db.append_message("s1", "user", f"{SECRET} only in the log")
        for ending in ("", "-wal", encryption.NOTE):
            shutil.copy(f"{store}{ending}", copy / f"state.db{ending}")
    damaged = copy / "state.db"
    with damaged.open("r+b") as file:
        file.write(b"\0" * PAGE)
    assert SessionDB.repair_file(damaged).ok
    assert f"{SECRET} only in the log" in content(damaged)["s1"]


def test_a_broken_index_is_rebuilt_and_nothing_else_stops(store: Path) -> None:
    break_page(store, "messages_fts_words_data", 0)
    with SessionDB(store) as db:
        for at in range(BATCH + LOOK_EVERY_N_WRITES):  # enough messages to be indexed
            db.append_message("s1", "user", f"{SECRET} afterwards {at}")
        db.backup()
    assert count(content(store)) == MESSAGES + BATCH + LOOK_EVERY_N_WRITES


# ------------------------------------------------------------------------------------------------ without the key


@pytest.mark.parametrize("verb", ["open", "read", "verify", "repair", "restore", "encrypt", "decrypt"])
@pytest.mark.parametrize("given", ["no key", "wrong key"])
@pytest.mark.parametrize("note", ["with its note", "without its note"])
def test_without_the_key_the_store_is_locked_and_not_changed(
    store: Path, forget: Callable[[], None], monkeypatch: pytest.MonkeyPatch, verb: str, given: str, note: str
) -> None:
    from hermes.store.sqlite.upkeep.conversion import decrypt_file

    forget()
    if note == "without its note":
        os.unlink(encryption.note_path(store))
    if given == "wrong key":
        monkeypatch.setenv("HERMES_STORE_KEY", secrets.token_hex(32))
    before = folder(store)
    verbs: dict[str, Callable[[], object]] = {
        "open": lambda: SessionDB(store),
        "read": lambda: SessionDB(store, read_only=True),
        "verify": lambda: SessionDB(store).verify(),
        "repair": lambda: SessionDB.repair_file(store),
        "restore": lambda: SessionDB.restore_file(store, list_backups(store)[0]),
        "encrypt": lambda: encrypt_file(store, secrets.token_bytes(32)),
        "decrypt": lambda: decrypt_file(store),
    }
    with pytest.raises(errors.StoreLocked, match="HERMES_STORE_KEY") as caught:
        verbs[verb]()
    assert isinstance(caught.value, errors.WrongKey) == (given == "wrong key")
    assert "\n" not in str(caught.value)
    assert folder(store) == before


@pytest.mark.parametrize(
    "left", [None, "", "{", '"text"', "[1]", '{"salt": "no"}', '{"cipher": 1, "salt": 2}']
)
def test_a_store_that_came_without_its_note_gets_one(store: Path, left: str | None) -> None:
    before = content(store)
    os.unlink(encryption.note_path(store))
    if left is not None:
        Path(encryption.note_path(store)).write_text(left)
    assert content(store) == before
    assert encryption.read_note(store) is not None


def test_garbage_is_damage_and_not_encryption(store: Path, forget: Callable[[], None]) -> None:
    forget()
    os.unlink(encryption.note_path(store))
    store.write_bytes(secrets.token_bytes(10 * PAGE))
    with pytest.raises(errors.StoreDamaged):
        SessionDB(store)


def test_a_first_page_that_is_broken_is_damage_and_not_a_wrong_key(store: Path) -> None:
    with store.open("r+b") as file:
        file.seek(1000)
        file.write(b"\0" * 8)
    with pytest.raises(errors.StoreDamaged):
        SessionDB(store)
    assert SessionDB.repair_file(store).ok
    assert count(content(store)) == MESSAGES


def test_a_plain_file_in_place_of_an_encrypted_store_is_reported(
    plain: Path, key: bytes, tmp_path: Path
) -> None:
    copy = shutil.copy(plain, tmp_path / "copy.db")
    encrypt_file(plain, key)
    shutil.copy(copy, plain)
    with pytest.raises(errors.StoreLocked, match="is not encrypted, but its note says that it is"):
        SessionDB(plain)
    assert not plain.with_name("state.db.damaged").exists()


def test_a_lost_store_is_not_created_again_without_its_key(store: Path, forget: Callable[[], None]) -> None:
    forget()
    store.unlink()
    with pytest.raises(errors.StoreLocked):
        SessionDB(store)
    assert not store.exists()


@pytest.mark.parametrize(("settings", "kept"), [("", False), ("sessions:\n  spool: true\n", True)])
def test_nothing_is_spooled_in_plain_text_unless_it_is_set(
    store: Path, home: Path, settings: str, kept: bool
) -> None:
    (home / "config.yaml").write_text(settings)
    with SessionDB(store, spool=True) as db:
        impatient(db, 0.05)
        with SessionDB(store) as other:
            other.raw().execute("BEGIN IMMEDIATE")
            with pytest.raises(errors.StoreBusy) as caught:
                db.append_message("s0", "user", "while locked")
            other.raw().execute("ROLLBACK")
        assert (caught.value.spooled is not None) is kept
    assert (home / "spool").exists() is kept
