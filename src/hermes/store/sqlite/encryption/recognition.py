"""What SQLite calls no database may be an encrypted one: recognised by the few bytes that the cipher leaves readable.

Looked at only when something has already failed. So an encrypted file is never taken for damage, nor damage for an
encrypted file.
"""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from hermes import errors
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.wal import file_guard

_PLAIN = b"SQLite format 3\x00"
# Of its header, the cipher leaves these readable: page size, journal, 32 reserved bytes, and SQLite's three constants.
_RESERVED_AND_CONSTANTS = bytes((32, 64, 32, 32))
_ALWAYS_ZERO = slice(72, 92)


def adopt_encrypted(path: Path, *, read_only: bool = False) -> bool:
    """Write the note of an encrypted file that came without one, if a key opens it; False if it is not encrypted."""
    if encryption.read_note(path) is not None or not is_probably_encrypted(_read_header(path)):
        return False
    if not encryption.can_encrypt():
        raise encryption.missing_cipher_error(f"{path} is encrypted")
    from hermes.store.sqlite.encryption import store_keys

    account, refused = os.path.realpath(path), []
    for found in store_keys.candidates(account, None):
        if _can_open(path, found.key):
            if read_only:
                sentence = (
                    f"{path} is encrypted and has lost its note {Path(encryption.note_path(path)).name}"
                )
                raise errors.make_error(
                    errors.StoreLocked, f"{sentence}; open it once for writing, with its key set"
                )
            encryption.write_note(
                path, encryption.make_note(found.key, account, found.file)._replace(settled=True)
            )
            return True
        refused.append(found.where)
    raise encryption.wrong_key_error(path, refused) if refused else encryption.no_key_error(path, account)


def _can_open(path: Path, key: bytes) -> bool:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(encryption.PROBE_MS)
        encryption.apply(connection, key)
        connection.pragma("schema_version")
        return True
    except apsw.NotADBError:
        return False
    finally:
        connection.close()


def explain_unreadable(path: Path) -> errors.HermesError | None:
    """Why SQLite calls a file no database although it is not damaged; None if that is not why."""
    header = _read_header(path)
    note = encryption.read_note(path)
    if note is None and is_probably_encrypted(header):
        if not encryption.can_encrypt():
            return encryption.missing_cipher_error(f"{path} is encrypted")
        return encryption.no_key_error(path, os.path.realpath(path))
    if note is not None and header.startswith(_PLAIN):
        sentence = f"{path} is not encrypted, but its note says that it is"
        return errors.make_error(
            errors.StoreLocked, f"{sentence}; if that is right, remove {encryption.note_path(path)}"
        )
    return None


def is_database(path: Path) -> bool:
    """Whether a file that nobody has open here begins as a SQLite database does, plain or encrypted."""
    header = _read_header(path)
    return header.startswith(_PLAIN) or is_probably_encrypted(header)


def _read_header(path: Path) -> bytes:
    """The first bytes of a file that could not be read through SQLite. Never of one that is open here: closing it
    would drop SQLite's locks."""
    if file_guard.is_open(path):
        return b""
    try:
        with open(path, "rb") as file:
            return file.read(100)
    except OSError:
        return b""


def is_probably_encrypted(header: bytes) -> bool:
    """Whether these first bytes are of an encrypted database: what the cipher leaves readable is, and the rest is not.
    Garbage has one chance in billions."""
    return (
        len(header) == 100
        and not header.startswith(_PLAIN)
        and header[18] in (1, 2)
        and header[19] in (1, 2)
        and header[20:24] == _RESERVED_AND_CONSTANTS
        and any(header[_ALWAYS_ZERO])
    )
