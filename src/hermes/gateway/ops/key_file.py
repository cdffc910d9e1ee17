"""The API keys that `hermes gateway keys` creates, in `<home>/gateway/api_keys.json`.

The file holds a digest and the limits of each key, never the key itself. A running gateway reads a changed file
again at the next request, so that a new key, a revocation or a limit takes effect at once. The file is signed
(`FileSignature`). If another program changes it, the gateway keeps the last valid content and logs the change. An
entry without a digest holds the limits of a key that is in the settings.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from hermes import audit_log, caller, clock, errors
from hermes.atomic_files import lock_private_folder, replace_file
from hermes.gateway.ops.file_signature import FileSignature
from hermes.logs import get_logger

FILE = "api_keys.json"
PREFIX = "sk-hermes-"
"""The beginning of each key. The redaction of secrets recognises keys by it."""
KEY_CHARACTERS = 40
ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
ENDING = 4
"""How many characters at the end of a key are stored and shown in lists."""
MOST_REVOKED = 1000
"""The maximum number of revoked keys that are remembered. The oldest are forgotten first."""

_log = get_logger(__name__)


class KeyLimits(NamedTuple):
    """The limits of one API key. None or an empty tuple means that the limit is not set."""

    requests_per_minute: int | None = None
    concurrent_requests: int | None = None
    cost_per_day: float | None = None
    cost_per_month: float | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    models: tuple[str, ...] = ()
    """The models that the key may use. The first one is used unless the request names another of them."""
    expires_at: float | None = None


NO_LIMITS = KeyLimits()


class ApiKey(NamedTuple):
    name: str
    digest: str | None
    """The SHA-256 digest of the key; None if the key is in the settings."""
    ending: str
    created_at: float
    revoked_at: float | None = None
    limits: KeyLimits = NO_LIMITS

    @property
    def is_active(self) -> bool:
        return self.digest is not None and self.revoked_at is None


def make_digest(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class KeyFile:
    def __init__(self, folder: Path, now: Callable[[], float] = clock.now) -> None:
        self._folder, self._file, self._now = folder, folder / FILE, now
        self._seal = FileSignature("hermes api keys")
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._revision = 0
        self._keys: dict[str, ApiKey] = {}
        self._by_digest: dict[str, ApiKey] = {}
        self._reported: object = None

    # ---------------------------------------------------------------- reading

    def list_keys(self) -> list[ApiKey]:
        """Return the entries of all API keys in the key file, including revoked keys. Raise `BadConfig` if the file
        is not valid."""
        return list(self._read().values())

    def find_by_digest(self, digest: str) -> ApiKey | None:
        """Return the entry of the API key with this digest, even if the key is revoked or has expired. Return None
        if no key has the digest."""
        self._refresh()
        return self._by_digest.get(digest)

    def find_limits(self, name: str) -> KeyLimits:
        self._refresh()
        entry = self._keys.get(name)
        return NO_LIMITS if entry is None else entry.limits

    def is_revoked(self, name: str) -> bool:
        self._refresh()
        entry = self._keys.get(name)
        return entry is not None and entry.revoked_at is not None

    def has_active(self) -> bool:
        self._refresh()
        return any(key.is_active for key in self._keys.values())

    def hold_seal(self) -> None:
        """Load the signing key into memory. From then on, the file of API keys is accepted only if it is signed
        with this signing key."""
        self._seal.hold_key()
        self._refresh()

    # ---------------------------------------------------------------- changing

    def add(self, name: str, limits: KeyLimits = NO_LIMITS, *, replaces: bool = False) -> str:
        """Create an API key with the name `name` and return the key. The key itself is not stored, so it can be
        shown only now. With `replaces`, an existing entry with this name gets the new key, and its old key stops
        working. The entry keeps the limits that `limits` does not set."""
        key = PREFIX + "".join(secrets.choice(ALPHABET) for _ in range(KEY_CHARACTERS))

        def change(keys: dict[str, ApiKey]) -> None:
            known = keys.get(name)
            if known is not None and known.digest is not None and not replaces:
                state = "has a key" if known.is_active else "had a key that was revoked"
                raise errors.HermesError(
                    f"{name} already {state}; --replace makes a new one, with the same sessions"
                )
            before = NO_LIMITS if known is None else known.limits
            merged = KeyLimits._make(new or old for new, old in zip(limits, before, strict=True))
            keys.pop(name, None)
            keys[name] = ApiKey(name, make_digest(key), key[-ENDING:], self._now(), None, merged)

        self._change("key.added", name, change, limits=_describe(limits), replaces=replaces)
        return key

    def revoke(self, name: str) -> ApiKey:
        """Revoke the API key with the name `name` and return its entry. The entry stays in the file. Otherwise a
        new key could get the same name by accident, and with it the sessions of the revoked key."""

        def change(keys: dict[str, ApiKey]) -> None:
            known = keys.get(name)
            if known is None or known.digest is None:
                raise errors.HermesError(f"there is no key {name!r}; `hermes gateway keys list` shows all")
            if not known.is_active:
                raise errors.HermesError(f"the key {name!r} is revoked already")
            keys[name] = known._replace(revoked_at=self._now())

        self._change("key.revoked", name, change)
        return self._keys[name]

    def set_limits(self, name: str, changes: Mapping[str, Any], *, may_create: bool) -> KeyLimits:
        """Change limits of the API key with the name `name`, and return all its limits. `changes` maps fields of
        `KeyLimits` to their new values. With `may_create`, an entry is created if the key is in the settings and
        not in the key file."""

        def change(keys: dict[str, ApiKey]) -> None:
            known = keys.get(name) or (ApiKey(name, None, "", self._now()) if may_create else None)
            if known is None:
                raise errors.HermesError(f"there is no key {name!r}; `hermes gateway keys list` shows all")
            keys[name] = known._replace(limits=known.limits._replace(**changes))

        told = {field: _describe(value) for field, value in changes.items()}
        self._change("key.limited", name, change, **told)
        return self._keys[name].limits

    def _change(
        self, action: str, name: str, change: Callable[[dict[str, ApiKey]], None], **told: Any
    ) -> None:
        caller.refuse_tool("only a person can change API keys")
        with lock_private_folder(self._folder):
            keys = dict(self._read())
            change(keys)
            revoked = sorted(
                (key for key in keys.values() if key.revoked_at is not None),
                key=lambda key: key.revoked_at or 0,
            )
            for key in revoked[:-MOST_REVOKED]:
                del keys[key.name]
            self._write(keys)
        audit_log.record(action, name=name, **told)

    # ---------------------------------------------------------------- the file

    def _refresh(self) -> None:
        """Read the file of API keys again if it was replaced since the last call. If it is not valid, keep the last
        valid content and log the problem once."""
        try:
            self._read()
        except errors.HermesError as problem:
            if self._reported != str(problem):
                self._reported = str(problem)
                _log.error("%s; the keys stay as they were", problem)
                audit_log.record("key.file_ignored", problem=str(problem))

    def _read(self) -> dict[str, ApiKey]:
        with self._lock:
            stamp = self._read_stamp()
            if stamp is None:
                self._accept({}, None, self._revision)
            elif stamp != self._stamp:
                content = self._load()
                seal, revision = content.pop("seal", None), content.get("revision", 0)
                if not self._seal.matches(content, seal):
                    raise self._make_error("another program changed it")
                if revision < self._revision:
                    raise self._make_error("it is an older version of the file")
                self._accept({key.name: key for key in map(_parse_key, content["keys"])}, stamp, revision)
            return self._keys

    def _accept(self, keys: dict[str, ApiKey], stamp: tuple[int, ...] | None, revision: int) -> None:
        self._keys, self._stamp, self._revision = keys, stamp, revision
        self._by_digest = {key.digest: key for key in keys.values() if key.digest is not None}

    def _read_stamp(self) -> tuple[int, ...] | None:
        try:
            stat = self._file.stat()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise errors.BadConfig(f"{self._file} cannot be read: {problem.strerror}") from problem
        return (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)

    def _load(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(self._file.read_bytes())
            for key in content["keys"]:
                _parse_key(key)
            int(content.get("revision", 0))
        except OSError as problem:
            raise errors.BadConfig(f"{self._file} cannot be read: {problem.strerror}") from problem
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            raise self._make_error("its content is not valid") from problem
        return content

    def _make_error(self, why: str) -> errors.BadConfig:
        return errors.BadConfig(
            f"{self._file} is not used: {why}; restore it, or delete it and add the keys again"
        )

    def _write(self, keys: dict[str, ApiKey]) -> None:
        revision = max(self._revision, int(clock.now() * 1000)) + 1
        content: dict[str, Any] = {
            "keys": [{**key._asdict(), "limits": _format_limits(key.limits)} for key in keys.values()],
            "revision": revision,
        }
        content["seal"] = self._seal.compute(content)
        replace_file(self._file, json.dumps(content, indent=2).encode() + b"\n")
        with self._lock:
            self._accept(keys, self._read_stamp(), revision)


def _format_limits(limits: KeyLimits) -> dict[str, Any]:
    return {field: list(value) if field == "models" else value for field, value in limits._asdict().items()}


def _parse_key(entry: Mapping[str, Any]) -> ApiKey:
    limits = KeyLimits(**entry["limits"])
    return ApiKey(**{**entry, "limits": limits._replace(models=tuple(limits.models))})


def _describe(value: object) -> str | None:
    """Return `value`, one limit or the limits of an API key, as text for the audit log. Return None if no limit is
    set."""
    if isinstance(value, KeyLimits):
        return (
            ", ".join(f"{field}={_describe(limit)}" for field, limit in value._asdict().items() if limit)
            or None
        )
    if isinstance(value, tuple):
        return ", ".join(value) or None
    return None if value is None else str(value)
