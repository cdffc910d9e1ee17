"""A seal for a file of the home: HMAC-SHA256 over its content, with a random key in `<home>/seal.key`.

The key is read once and then kept in memory, so that nobody can give a running gateway another key and a matching file.
Whoever can read the key can make a seal; the sandbox keeps tools from reading it.
"""

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

NAME = "seal.key"
BYTES = 32
CREATED = "seal.created"


class FileSignature:
    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        """A seal of one file is no seal of another."""
        self._key: bytes | None = None

    @property
    def path(self) -> Path:
        return home.get_hermes_home() / NAME

    def has_key(self) -> bool:
        return self._key is not None or os.path.lexists(self.path)

    def was_ever_made(self) -> bool:
        """Whether there is a key, or the audit log says that there was one."""
        return self.has_key() or any(entry.get("action") == CREATED for entry in audit_log.read())

    def hold_key(self) -> bytes:
        """The key, read or made at the first call."""
        if self._key is None:
            if not self.has_key():
                self._make_key()
            self._key = self._read_key()
        return self._key

    def compute(self, content: Mapping[str, Any]) -> str:
        """The seal of a content that can be written as JSON."""
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hmac.digest(self.hold_key(), f"{self._purpose}\n{canonical}".encode(), "sha256").hex()

    def matches(self, content: Mapping[str, Any], seal: object) -> bool:
        """Whether the seal is that of the content. Without a key none does."""
        if not self.has_key() or not isinstance(seal, str):
            return False
        return hmac.compare_digest(self.compute(content).encode(), seal.encode(errors="replace"))

    def _make_key(self) -> None:
        home.make_private_folder(self.path.parent)
        try:
            with write_new_file(self.path, replace=False) as file:
                file.write(secrets.token_hex(BYTES).encode() + b"\n")
        except FileExistsError:  # another process was first
            return
        audit_log.record(CREATED)

    def _read_key(self) -> bytes:
        try:
            descriptor = home.open_private_file(self.path, os.O_RDONLY)
            with os.fdopen(descriptor, "rb") as file:
                key = bytes.fromhex(file.read(4 * BYTES).decode("ascii"))
        except OSError as problem:
            raise errors.BadConfig(f"{self.path} cannot be used: {problem.strerror}") from problem
        except ValueError:
            key = b""
        if len(key) != BYTES:
            raise errors.BadConfig(
                f"{self.path} holds no key; remove it, and `hermes gateway pair --accept` makes a new one"
            )
        return key
