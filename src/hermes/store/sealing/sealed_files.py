"""Encrypted files beside an encrypted store ("sealed" files). Their keys are derived from the key of the
store.

A sealed file begins with two lines: a mark, and JSON with the path of the file below the home and the id of
its key. Both lines are authenticated, so a sealed file cannot be exchanged for another one. The rest is
either one ciphertext (`file`) or one Base64 ciphertext per line (`log`). Entries can be appended to a log
without rewriting the file.

The cipher is ChaCha20-Poly1305, as in the store, with a random nonce for each ciphertext. HKDF-SHA256 derives
a separate key for each purpose. `cryptography` is imported only when a file is encrypted or decrypted, and
never for a plain store.

Plain files are read unchanged: they may be older than the encryption, or written by a person in an editor.
"""

from __future__ import annotations

import json
import os
from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from hermes import errors, home
from hermes.atomic_files import lock_folder, replace_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

MARK = b"\x89hermes-sealed 1\n"
"""The mark at the beginning of a sealed file. Its first byte is invalid in UTF-8, so a text file cannot be
mistaken for a sealed file."""
NONCE_BYTES, TAG_BYTES, KEY_ID_BYTES = 12, 16, 8
LONGEST_HEADER = 40_000
"""Maximum length of the header in bytes: a path of 4,096 characters, all escaped, plus the other fields."""
ZEROS = bytes(1 << 20)

Form = Literal["file", "log"]


class KeySource(Protocol):
    def key_for_writing(self) -> bytes | None:
        """Return the key of the store, or None if the store is plain. Raise `StoreLocked` if the key is not
        available."""

    def key_with_id(self, key_id: str, file: Path) -> bytes:
        """Return the key with the id `key_id`. Raise `StoreLocked` if no key is available, or `WrongKey` if
        the available key has another id."""


class Header(NamedTuple):
    name: str
    """The path of the file below the home."""
    key_id: str
    form: Form
    nonce: bytes
    """The nonce of the ciphertext. Empty for a log, because each line of a log has its own nonce."""
    length: int
    """The length of the mark and the header in bytes. This part is authenticated."""


class Sealing(NamedTuple):
    """What `seal_in_place` did with one file."""

    changed: bool
    """False if the file was already sealed."""
    remark: str | None = None
    """A note for the person, or None."""


class SealedFiles:
    """The files of one home. They are sealed if the store of that home is encrypted."""

    def __init__(self, root: Path, keys: KeySource) -> None:
        self.root, self._keys = root, keys

    def find_name(self, file: Path) -> str | None:
        """Return the path of a file below the home, which is written into the header of the sealed file. None
        if the file is outside the home. Such files are never sealed."""
        try:
            return file.absolute().relative_to(self.root.absolute()).as_posix()
        except ValueError:
            return None

    # ---------------------------------------------------------------- reading

    def read(self, file: Path, most: int | None = None, *, anywhere: bool = False) -> bytes:
        """Return the content of a sealed or plain file, or its first `most` bytes.

        Raise `SealBroken` if a sealed file was modified or moved. With `anywhere`, a moved file is accepted.
        For a log, return the entries that can be decrypted.
        """
        with file.open("rb") as opened:
            data = opened.read(len(MARK))
            if data != MARK:
                return data + opened.read() if most is None else (data + opened.read(most))[:most]
            data += opened.read()
        header = _parse_header(data, file)
        if not anywhere and header.name != self.find_name(file):
            raise errors.SealBroken(
                f"{file} was sealed as {header.name} and cannot be read at another path; move it back,"
                " or run `hermes store encrypt` to accept it at this path"
            )
        key = self._keys.key_with_id(header.key_id, file)
        if header.form == "log":
            return b"".join(_open_log(data, header, key)[0])[:most]
        return _open_content(data, header, key, file)[:most]

    def size(self, file: Path) -> int:
        """Return the number of bytes that `read` returns for a file. The file must not be a sealed log."""
        with file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            start = opened.read(LONGEST_HEADER)
        if not is_sealed(start):
            return size
        return max(0, size - _parse_header(start, file).length - TAG_BYTES)

    # ---------------------------------------------------------------- writing

    def write(self, file: Path, content: bytes) -> None:
        """Write a file atomically, readable only by its owner. The content is encrypted if the store is
        encrypted."""
        name = self.find_name(file)
        key = self._keys.key_for_writing() if name is not None else None
        replace_file(file, content if name is None or key is None else _seal_content(key, name, content))

    def append(self, file: Path, content: bytes) -> None:
        """Append to a log. A missing log is created. If the store is encrypted, a plain log is sealed
        first."""
        with lock_folder(file.parent):
            if not file.exists():
                os.close(home.create_private_file(file))
            data = _read_beginning(file)
            if not is_sealed(data):
                key = self._keys.key_for_writing()
                if key is None:
                    _append_data(file, content)
                    return
                replace_file(file, self._seal_log(key, file))
                data = _read_beginning(file)
            header = _parse_header(data, file)
            key = self._keys.key_with_id(header.key_id, file)
            _append_data(file, _seal_line(key, data[: header.length], content), whole_lines=True)

    def _seal_log(self, key: bytes, file: Path) -> bytes:
        """Return the content of a plain log in the sealed format. All text that the log contains so far becomes
        its first entry. The file is not changed."""
        head = _make_head(key, self.find_name(file) or file.name, "log")
        content = file.read_bytes()
        return head + (_seal_line(key, head, content) if content else b"")

    # ---------------------------------------------------------------- converting

    def seal_in_place(self, file: Path, form: Form = "file") -> Sealing:
        """Seal an existing file and overwrite its plain content with zeros.

        A sealed file that was moved to this path, or that has an older key, is sealed again.
        """
        name, key = self.find_name(file), self._keys.key_for_writing()
        if name is None or key is None:
            raise errors.make_error(errors.StoreLocked, f"{file} does not belong to an encrypted store")
        data = _read_beginning(file)
        if not is_sealed(data):
            fresh = (
                self._seal_log(key, file) if form == "log" else _seal_content(key, name, file.read_bytes())
            )
            return Sealing(True, _replace_and_wipe(file, fresh))
        header = _parse_header(data, file)
        if (header.name, header.key_id) == (name, key_id(key)):
            return Sealing(False)
        content = self.read_opened(file)
        if header.form == "log":
            head = _make_head(key, name, "log")
            replace_file(file, head + (_seal_line(key, head, content) if content else b""))
        else:
            replace_file(file, _seal_content(key, name, content))
        return Sealing(
            True, None if header.name == name else f"was sealed as {header.name}; now sealed for this path"
        )

    def open_in_place(self, file: Path) -> bool:
        """Decrypt a sealed file in place. Return False if the file was plain. If any part of the file is
        damaged, raise `SealBroken` and change nothing."""
        if not is_sealed(_read_beginning(file)):
            return False
        replace_file(file, self.read_opened(file))
        return True

    def read_opened(self, file: Path) -> bytes:
        """Return the content of a sealed file, even if it was moved. Raise `SealBroken` if any part of the
        file is damaged."""
        data = file.read_bytes()
        header = _parse_header(data, file)
        key = self._keys.key_with_id(header.key_id, file)
        if header.form == "file":
            return _open_content(data, header, key, file)
        entries, broken = _open_log(data, header, key)
        if broken:
            raise errors.SealBroken(f"{file}: {broken} of {broken + len(entries)} entries are damaged")
        return b"".join(entries)


# ------------------------------------------------------------------------------------------------ the format


def is_sealed(data: bytes) -> bool:
    """Return whether `data` is the beginning of a sealed file."""
    return data.startswith(MARK)


def is_sealed_file(file: Path) -> bool:
    """Return whether a file is sealed. Return False if the file cannot be read."""
    try:
        with file.open("rb") as opened:
            return is_sealed(opened.read(len(MARK)))
    except OSError:
        return False


def require_cipher() -> None:
    """Raise `StoreLocked`, with the package to install, if the cryptography library is missing."""
    _derive_key(bytes(32), "key id", KEY_ID_BYTES)


def key_id(key: bytes) -> str:
    """Return an id for an encryption key. The id shows which key a file was sealed with, but reveals nothing
    about the key."""
    return _derive_key(key, "key id", KEY_ID_BYTES).hex()


def _make_head(key: bytes, name: str, form: Form, nonce: bytes = b"") -> bytes:
    fields = {"name": name, "key": key_id(key), "form": form, "nonce": nonce.hex()}
    return MARK + json.dumps(fields).encode() + b"\n"


def _parse_header(data: bytes, file: Path) -> Header:
    """Parse the header at the beginning of a sealed file. `data` is the content of the file. Raise `SealBroken`
    if the header is damaged."""
    end = data.find(b"\n", len(MARK), LONGEST_HEADER) + 1
    try:
        fields = json.loads(data[len(MARK) : end])
        form: Form = "log" if fields["form"] == "log" else "file"
        header = Header(str(fields["name"]), str(fields["key"]), form, bytes.fromhex(fields["nonce"]), end)
    except (ValueError, KeyError, TypeError):
        raise errors.SealBroken(f"{file} is sealed, but its header is damaged") from None
    return header


def _seal_content(key: bytes, name: str, content: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    head = _make_head(key, name, "file", nonce)
    return head + _make_cipher(key, "file").encrypt(nonce, content, head)


def _open_content(data: bytes, header: Header, key: bytes, file: Path) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return _make_cipher(key, "file").decrypt(header.nonce, data[header.length :], data[: header.length])
    except (InvalidTag, ValueError):
        raise errors.SealBroken(f"{file} is damaged, or was changed without the key") from None


def _seal_line(key: bytes, head: bytes, content: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return b2a_base64(nonce + _make_cipher(key, "log").encrypt(nonce, content, head))


def _open_log(data: bytes, header: Header, key: bytes) -> tuple[list[bytes], int]:
    """Decrypt a sealed log. Return (its entries, number of lines that cannot be decrypted). `data` is the
    content of the file."""
    from cryptography.exceptions import InvalidTag

    cipher, entries, broken = _make_cipher(key, "log"), [], 0
    for line in data[header.length :].splitlines():
        if not line:
            continue
        try:
            raw = a2b_base64(line, strict_mode=True)
            entries.append(cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], data[: header.length]))
        except (NotBase64, InvalidTag, ValueError):
            broken += 1
    return entries, broken


@lru_cache(maxsize=16)
def _make_cipher(key: bytes, purpose: Form) -> ChaCha20Poly1305:
    derived = _derive_key(key, purpose, 32)
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(derived)


def _derive_key(key: bytes, purpose: str, length: int) -> bytes:
    try:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise errors.make_error(
            errors.StoreLocked,
            "the files beside an encrypted store need the package `cryptography`: pip install cryptography",
        ) from None
    return HKDF(SHA256(), length, None, f"hermes-sessions sealed files 1: {purpose}".encode()).derive(key)


# ------------------------------------------------------------------------------------------------ on the disk


def _read_beginning(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(LONGEST_HEADER)


def _append_data(file: Path, data: bytes, *, whole_lines: bool = False) -> None:
    """Append `data` to a file, completely or not at all. With `whole_lines`, and if the last line of the file
    has no line end, begin with a line end."""
    descriptor = home.open_private_file(file, os.O_RDWR | os.O_APPEND)
    with os.fdopen(descriptor, "a+b", buffering=0) as opened:
        end = opened.seek(0, os.SEEK_END)
        if whole_lines and end:
            opened.seek(end - 1)
            data = data if opened.read(1) == b"\n" else b"\n" + data
        try:
            written = opened.write(data)
            while written < len(data):
                written += opened.write(data[written:])
        except BaseException:
            opened.truncate(end)
            raise


def _replace_and_wipe(file: Path, data: bytes) -> str | None:
    """Replace the content of a file by `data`, and overwrite its old content on the disk with zeros. If the old
    file has another hard link, do not overwrite the old content, and return a remark about this for the person.
    Otherwise return None."""
    home.tighten(str(file), home.PRIVATE_FILE)
    with file.open("r+b", buffering=0) as old:
        replace_file(file, data)
        return None if wipe(old.fileno()) else "has another hard link, which is not sealed"


def wipe(descriptor: int, *, start: int = 0) -> bool:
    """Overwrite an open file with zeros after its last hard link was removed. If the file still has a hard
    link, change nothing and return False."""
    status = os.fstat(descriptor)
    if status.st_nlink:
        return False
    at = start
    while at < status.st_size:
        at += os.pwrite(descriptor, ZEROS[: status.st_size - at], at)
    os.fsync(descriptor)
    return True
