"""Signatures (called seals in the files) that reveal when another program has changed a file of the home."""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes import audit_log, errors, home
from hermes.atomic_files import write_new_file

KEY_NAME = "seal.key"
KEY_BYTES = 32
KEY_CREATED = "seal.created"


class FileSignature:
    """Computes and checks the signature of a file: HMAC-SHA256 over its content, with a random key in
    `<home>/seal.key`.

    The key is read once and then kept in memory. A program that replaces both the key and the file therefore does
    not deceive a running gateway. Every process that can read the key can sign. The sandbox prevents tools from
    reading the key.
    """

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        """Part of the signed data, so that the signature of one file is not valid for another file."""
        self._key: bytes | None = None

    @property
    def path(self) -> Path:
        return home.get_hermes_home() / KEY_NAME

    def has_key(self) -> bool:
        return self._key is not None or os.path.lexists(self.path)

    def was_ever_made(self) -> bool:
        """Return whether a signing key was ever created in this home: the key exists, or the audit log says that it
        was created."""
        return self.has_key() or any(entry.get("action") == KEY_CREATED for entry in audit_log.read())

    def hold_key(self) -> bytes:
        """Return the signing key. The first call reads it from `<home>/seal.key`, or creates it there."""
        if self._key is None:
            if not self.has_key():
                self._make_key()
            self._key = self._read_key()
        return self._key

    def compute(self, content: Mapping[str, Any]) -> str:
        """Return the signature of `content`, the parsed content of a file. `content` must be serialisable as JSON."""
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hmac.digest(self.hold_key(), f"{self._purpose}\n{canonical}".encode(), "sha256").hex()

    def matches(self, content: Mapping[str, Any], seal: object) -> bool:
        """Return whether `seal` is the valid signature of `content`. It is not valid if there is no signing key."""
        if not self.has_key() or not isinstance(seal, str):
            return False
        return hmac.compare_digest(self.compute(content).encode(), seal.encode(errors="replace"))

    def _make_key(self) -> None:
        home.make_private_folder(self.path.parent)
        try:
            with write_new_file(self.path, replace=False) as file:
                file.write(secrets.token_hex(KEY_BYTES).encode() + b"\n")
        except FileExistsError:  # another process was first
            return
        audit_log.record(KEY_CREATED)

    def _read_key(self) -> bytes:
        try:
            descriptor = home.open_private_file(self.path, os.O_RDONLY)
            with os.fdopen(descriptor, "rb") as file:
                key = bytes.fromhex(file.read(4 * KEY_BYTES).decode("ascii"))
        except OSError as problem:
            raise errors.BadConfig(f"{self.path} cannot be used: {problem.strerror}") from problem
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise errors.BadConfig(
                f"{self.path} has no valid key; delete it, then `hermes gateway pair --accept` makes a new one"
            )
        return key
