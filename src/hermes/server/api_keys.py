"""API keys. Each key identifies one person.

The API server never writes a key to a log or to a session.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from hermes import clock
from hermes.config.settings_reader import expand_variables
from hermes.errors import BadConfig
from hermes.gateway.adapter import Misconfigured
from hermes.gateway.inbound_events import Source
from hermes.gateway.ops.key_file import NO_LIMITS, KeyFile, KeyLimits
from hermes.server.api_errors import Refused
from hermes.store.people import Principal

PLATFORM = "api-server"
SHORTEST_KEY = 16
FINGERPRINT = 12
"""The name of a key without a configured name is this many hex digits of its SHA-256 hash."""


class Person(NamedTuple):
    name: str
    secret: bytes
    """A secret derived from the key. Response ids and history marks are signed with it, so that they are valid only for
    this person."""
    limits: KeyLimits = NO_LIMITS
    model: str | None = None
    """The model that the request chose from the models of its key. None if it chose none."""

    @property
    def only_model(self) -> str | None:
        """The only model that may answer this person's request. None if the API key may use every model."""
        return self.model or next(iter(self.limits.models), None)

    def __repr__(self) -> str:
        return f"Person({self.name!r})"

    @property
    def principal(self) -> Principal:
        return Principal(PLATFORM, self.name)

    @property
    def source(self) -> Source:
        return Source(PLATFORM, "", user_id=self.name, user_name=self.name)

    def make_mark(self, purpose: str, text: bytes) -> str:
        """Return a keyed hash (HMAC) of `text` for a purpose, such as `request`. It cannot be computed without this
        person's API key."""
        return hmac.new(self.secret, purpose.encode() + b"\0" + text, sha256).hexdigest()[:32]


class Keys:
    def __init__(self, single: str | None, named: Mapping[str, Any], file: KeyFile) -> None:
        """Collect the API keys. `single` is the key of one unnamed person. `named` maps the names of people to their
        keys. `file` holds the keys made by `hermes gateway keys`. Raise `Misconfigured` if there is no key, or if a key
        is too short or used twice."""
        self._file = file
        if not single and not named and not file.has_active():
            raise Misconfigured(
                "the API server has no key: set API_SERVER_KEY, or make one with `hermes gateway keys add NAME`"
            )
        keys = {str(name): _expand_key(str(name), key) for name, key in named.items()}
        short = [name for name, key in keys.items() if len(key) < SHORTEST_KEY]
        if short or (single and len(single) < SHORTEST_KEY):
            owner = f"of {short[0]!r} (platforms.api-server.keys)" if short else "(API_SERVER_KEY)"
            raise Misconfigured(f"the key {owner} is shorter than {SHORTEST_KEY} characters")
        if single:
            keys.setdefault(sha256(single.encode()).hexdigest()[:FINGERPRINT], single)
        if len(set(keys.values())) < len(keys):
            raise Misconfigured("two people of the API server have the same key")
        self._people = [
            (sha256(key.encode()).digest(), Person(name, _derive_secret(key.encode())))
            for name, key in keys.items()
        ]

    def __repr__(self) -> str:
        return f"Keys of {len(self._people)}"

    def is_revoked(self, person: Person) -> bool:
        """Return whether the API key of `person` was revoked in the meantime. Used to stop a request that is being
        answered."""
        return self._file.is_revoked(person.name)

    def find_person(self, authorization: str) -> Person | None:
        """Return the person whose key is in the `Authorization` header, or None. Raise a 401 error if the key
        was revoked or has expired.

        Keys from the settings are compared in constant time. Keys from the key file are looked up by their digest,
        which reveals nothing about a key.
        """
        scheme, _, key = authorization.partition(" ")
        sent = key.strip().encode("latin-1", "replace")
        digest = sha256(sent).digest()
        match = None
        for key_digest, person in self._people:
            if hmac.compare_digest(key_digest, digest):
                match = person
        if scheme.lower() != "bearer":
            return None
        if match is None and (known := self._file.find_by_digest(digest.hex())) is not None:
            if not known.is_active:
                raise refuse_revoked()
            match = Person(known.name, _derive_secret(sent))
        if match is None:
            return None
        limits = self._file.find_limits(match.name)
        if limits.expires_at is not None and limits.expires_at <= clock.now():
            raise _refuse_key(f"this key expired at {clock.format_iso(limits.expires_at)}", "expired_api_key")
        return match._replace(limits=limits)


def get_fingerprint(authorization: str) -> str:
    """Return the fingerprint of the API key in an `Authorization` header: the beginning of the key's hash,
    `FINGERPRINT` characters long. The log shows it instead of the key."""
    _, _, key = authorization.partition(" ")
    return sha256(key.strip().encode("latin-1", "replace")).hexdigest()[:FINGERPRINT]


def _derive_secret(key: bytes) -> bytes:
    return sha256(b"hermes api\0" + key).digest()


def refuse_revoked() -> Refused:
    return _refuse_key("this key was revoked", "revoked_api_key")


def _refuse_key(message: str, code: str) -> Refused:
    return Refused(401, message, code=code, headers={"WWW-Authenticate": "Bearer"})


def _expand_key(name: str, key: object) -> str:
    """Return `key`, the API key of the person `name` in config.yaml, with its environment variables expanded."""
    try:
        return str(expand_variables(f"platforms.{PLATFORM}.keys.{name}", key, "config.yaml") or "")
    except BadConfig as problem:
        raise Misconfigured(str(problem)) from None
