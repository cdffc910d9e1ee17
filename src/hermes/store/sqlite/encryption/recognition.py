"""Recognition of encrypted files that SQLite reports as "not a database", by the bytes the cipher leaves
readable.

This module is used only after an error. It keeps an encrypted file from being reported as damaged, and a
damaged file from being reported as encrypted.
"""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from hermes import errors
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.wal import file_guard

_PLAIN = b"SQLite format 3\x00"
# The header bytes that the cipher leaves readable: page size, journal mode, 32 reserved bytes, and three constants.
_RESERVED_AND_CONSTANTS = bytes((32, 64, 32, 32))
_ALWAYS_ZERO = slice(72, 92)


def adopt_encrypted(path: Path, *, read_only: bool = False) -> bool:
    """Write the missing note of an encrypted file, if one of the available keys opens the file.

    Return False if the file has a note or is not encrypted. Raise `WrongKey` or `StoreLocked` if no key opens
    it, or if `read_only` forbids writing the note.
    """
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
    """Return an error that explains why SQLite does not recognise an undamaged file as a database.

    Return None if the file is damaged.
    """
    header = _read_header(path)
    note = encryption.read_note(path)
    if note is None and is_probably_encrypted(header):
        if not encryption.can_encrypt():
            return encryption.missing_cipher_error(f"{path} is encrypted")
        return encryption.no_key_error(path, os.path.realpath(path))
    if note is not None and header.startswith(_PLAIN):
        sentence = f"{path} is not encrypted, but its note says that it is"
        return errors.make_error(
            errors.StoreLocked,
            f"{sentence}; if it should not be encrypted, delete {encryption.note_path(path)}",
        )
    return None


def is_database(path: Path) -> bool:
    """Return whether a file begins like a SQLite database, plain or encrypted.

    The file must not be open in this process.
    """
    header = _read_header(path)
    return header.startswith(_PLAIN) or is_probably_encrypted(header)


def _read_header(path: Path) -> bytes:
    """Return the first 100 bytes of a file that could not be read through SQLite.

    Return `b""` if the file is open in this process: it is not read, because closing it would drop SQLite's
    locks.
    """
    if file_guard.is_open(path):
        return b""
    try:
        with open(path, "rb") as file:
            return file.read(100)
    except OSError:
        return b""


def is_probably_encrypted(header: bytes) -> bool:
    """Return whether these bytes are the header of an encrypted database.

    The bytes that the cipher leaves readable must be valid, and the others must not be those of a plain
    header. Random bytes match with a probability of one in billions.
    """
    return (
        len(header) == 100
        and not header.startswith(_PLAIN)
        and header[18] in (1, 2)
        and header[19] in (1, 2)
        and header[20:24] == _RESERVED_AND_CONSTANTS
        and any(header[_ALWAYS_ZERO])
    )
