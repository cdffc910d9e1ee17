"""Encryption at rest: which files are encrypted, and the function that sets the key of a connection.

Beside an encrypted file is a note, `<file>.key.json`. It contains the cipher, the places where the key may be found,
and a salted digest that distinguishes a wrong key from damage. It never contains the key. For a plain file the only
cost is the check for a note.

The cipher is ChaCha20-Poly1305, per page, from SQLite3 Multiple Ciphers (`apsw-sqlite3mc`, a replacement of `apsw`).
It is authenticated, so a changed bit is never read as data. Without special hardware it is two to three times faster
than the scheme of SQLCipher. Keys are 32 random bytes, so no key derivation is needed, and opening stays fast.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from hermes import errors, home
from hermes.atomic_files import KEY_NOTE

NOTE = KEY_NOTE
CIPHER = "chacha20"
PROBE_MS = 30_000

_known: dict[str, bytes] = {}
"""Keys that were found in this process, by the digest in the note, so that a keyring is queried only once."""


class Note(NamedTuple):
    cipher: str
    salt: str
    check: str
    """A salted digest of the key. It shows whether a key is the right one."""
    account: str
    """The name of the key in the keyring: the resolved path of the store for which it was made."""
    key_file: str | None = None
    """The path of the key file at the time when the store was encrypted."""
    settled: bool = False
    """If False, the file may be plain although it has a note, and must be tested.

    This is so for copies, and during a conversion.
    """


def is_encrypted(path: Path) -> bool:
    """Return whether the store at `path` is encrypted, or will be when it is created."""
    if _has_note(path):
        return True
    if os.path.exists(path):
        return False
    from hermes.store.sqlite.encryption import store_keys

    return store_keys.find_configured_key() is not None


def is_expected(path: Path) -> bool:
    """Return whether the store at `path` has no encryption note although the environment names a key.

    The caller then warns the user that the store is not encrypted.
    """
    named = os.environ.get("HERMES_STORE_KEY") or os.environ.get("HERMES_STORE_KEY_FILE")
    return bool(named) and not _has_note(path)


def can_encrypt() -> bool:
    """Return whether the SQLite library of this process supports ciphers."""
    return hasattr(apsw, "mc_version")


def note_path(path: Path) -> str:
    """Return the path of the encryption note that belongs to the database file `path`.

    If `path` is a symbolic link, the note is beside the target of the link, where SQLite's log is too.
    """
    return (os.path.realpath(path) if os.path.islink(path) else str(path)) + NOTE


def _has_note(path: Path) -> bool:
    return os.path.exists(note_path(path))


# ------------------------------------------------------------------------------------------------ connections


def unlock(connection: apsw.Connection, path: Path) -> None:
    """Set the key of a new connection if its file is encrypted. Raise `StoreLocked` if the key is not found."""
    if _has_note(path) and (key := find_key(path)) is not None:
        apply(connection, key)


def apply(connection: apsw.Connection, key: bytes, *, checked: bool = True) -> None:
    """Set the cipher and the key of a new connection to an encrypted file.

    If `checked` is False, the authentication codes of the pages are not checked, so that damaged pages are read
    without an error.
    """
    connection.pragma("cipher", CIPHER)
    if not checked:
        connection.pragma("hmac_check", 0)
    connection.pragma("key", f"raw:{key.hex()}")
    connection.pragma("temp_store", 2)  # temporary files of SQLite are not encrypted, so it uses memory


def uri(path: Path) -> str:
    return "file:" + str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def target(path: Path, key: bytes | None) -> str:
    """Return a URI with which SQLite writes the file `path`, encrypted with `key`. The URI contains the key.

    If `key` is None, the file is written unencrypted, even if it is a copy of an encrypted database.
    """
    return uri(path) + ("?key=" if key is None else f"?cipher={CIPHER}&key=raw:{key.hex()}")


def find_key(path: Path) -> bytes | None:
    """Return the key of the file at `path`, or None if the file is plain."""
    note = read_note(path)
    if note is None or (not note.settled and _is_readable_without_key(path)):
        return None
    return _find_key_for(note, path)


def _find_key_for(note: Note, path: Path) -> bytes:
    if not can_encrypt():
        raise missing_cipher_error(f"{path} is encrypted")
    if (key := _known.get(note.check)) is not None:
        return key
    from hermes.store.sqlite.encryption import store_keys

    refused = []
    for found in store_keys.candidates(note.account, note.key_file):
        if _check(found.key, note.salt) == note.check:
            _known[note.check] = found.key
            return found.key
        refused.append(found.where)
    raise wrong_key_error(path, refused) if refused else no_key_error(path, note.account)


def list_known_keys() -> tuple[bytes, ...]:
    """Return the keys that were found in this process."""
    return tuple(_known.values())


def _is_readable_without_key(path: Path) -> bool:
    """Return whether SQLite can read the file without a key.

    Return False for an empty file, because only its note shows whether it will be encrypted.
    """
    try:
        if not os.stat(path).st_size:
            return False
        probe = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except (OSError, apsw.CantOpenError):
        return False
    try:
        probe.set_busy_timeout(PROBE_MS)
        probe.pragma("schema_version")
        return True
    except apsw.NotADBError:
        return False
    finally:
        probe.close()


# ------------------------------------------------------------------------------------------------ notes


def read_note(path: Path) -> Note | None:
    """Return the note beside a file. Return None if the note is missing or invalid."""
    import json

    try:
        with open(note_path(path), encoding="utf-8") as file:
            fields = json.load(file)
        note = Note(**{name: fields[name] for name in Note._fields if name in fields})
        bytes.fromhex(note.salt)
    except (OSError, ValueError, TypeError):
        return None
    return note if note.cipher == CIPHER else None


def make_note(key: bytes, account: str, key_file: str | None = None) -> Note:
    salt = os.urandom(16).hex()
    note = Note(CIPHER, salt, _check(key, salt), account, key_file)
    _known[note.check] = key
    return note


def _check(key: bytes, salt: str) -> str:
    from hashlib import blake2b

    return blake2b(bytes.fromhex(salt), key=key, person=b"hermes-key-check", digest_size=16).hexdigest()


def write_note(path: Path, note: Note) -> None:
    """Write `note` as the encryption note of the database file `path`. An older note is replaced atomically."""
    import json

    final = Path(note_path(path))
    partial = final.with_name(f"{final.name}.{os.urandom(4).hex()}")
    descriptor = home.create_private_file(partial)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(note._asdict(), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, final)
    finally:
        partial.unlink(missing_ok=True)
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_note(path: Path) -> None:
    Path(note_path(path)).unlink(missing_ok=True)


def copy_note(source: Path, copy: Path) -> None:
    """Write an encryption note for the file `copy`, with the values of the note of the file `source`. Do nothing if
    `source` has no note.

    Call this before the content of `copy` is written. The new note is marked as unreliable until `settle_note` has
    tested the copy.
    """
    if _has_note(source) and (note := read_note(source)) is not None:
        write_note(copy, note._replace(settled=False))


def settle_note(path: Path) -> None:
    """If the encryption note of the database file `path` is marked as unreliable, correct it.

    A note is unreliable after a conversion or a restore was killed: the file may be plain or encrypted. If SQLite can
    read the file without a key, the note is removed. Otherwise the note is marked as reliable. The caller holds the
    lock file beside the store.
    """
    note = read_note(path) if _has_note(path) else None
    if note is None or note.settled or not os.path.exists(path):
        return
    if _is_readable_without_key(path):
        remove_note(path)
    else:
        write_note(path, note._replace(settled=True))


def is_settled(path: Path) -> bool:
    return not _has_note(path) or (note := read_note(path)) is None or note.settled


@contextmanager
def unsettle_note(path: Path, note: Note | None) -> Iterator[None]:
    """Mark the encryption note of the file `path` as unreliable while the caller replaces this file by another one,
    in a `with` block.

    `note` is the encryption note of the new file, or None if the new file is plain. After the block, the note is
    corrected according to the new file (see `settle_note`).
    """
    if (unsure := note or read_note(path)) is not None:
        write_note(path, unsure._replace(settled=False))
    yield
    settle_note(path)


def prepare_new_store(path: Path) -> None:
    """Write the note of a new store before the store is created, so that the store is encrypted from its
    first byte.

    Do nothing if no key is configured for new stores.
    """
    if _has_note(path):
        if (note := read_note(path)) is not None:
            _find_key_for(note, path)
            write_note(path, note._replace(settled=True))
        return
    from hermes.store.sqlite.encryption import store_keys

    found = store_keys.find_configured_key()
    if found is None:
        return
    if not can_encrypt():
        raise missing_cipher_error(f"{found.where} requires an encrypted store")
    write_note(path, make_note(found.key, os.path.realpath(path), found.file)._replace(settled=True))


# ------------------------------------------------------------------------------------------------ errors


def missing_cipher_error(situation: str) -> errors.HermesError:
    return errors.make_error(
        errors.StoreLocked,
        f"{situation}, but the installed SQLite has no ciphers: install the extra hermes-sessions[encrypted],"
        " which replaces apsw by apsw-sqlite3mc"
        " (pip uninstall -y apsw && pip install apsw-sqlite3mc keyring cryptography)",
    )


def no_key_error(path: Path, account: str) -> errors.HermesError:
    from hermes.store.sqlite.encryption import store_keys

    return errors.make_error(
        errors.StoreLocked,
        f"{path} is encrypted and no key for it was found: {store_keys.describe_places(account)}",
    )


def wrong_key_error(path: Path, refused: list[str]) -> errors.HermesError:
    places = " or ".join(refused)
    return errors.make_error(
        errors.WrongKey,
        f"{path} is encrypted with another key than that of {places}; use the key with which it was encrypted",
    )
