"""API keys. Each key identifies one person.

Keys are compared in constant time. They never appear in a log or a session.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from hermes.config.settings_reader import expand_variables
from hermes.errors import BadConfig
from hermes.gateway.adapter import Misconfigured
from hermes.gateway.inbound_events import Source
from hermes.store.people import Principal

PLATFORM = "api-server"
SHORTEST_KEY = 16
FINGERPRINT = 12
"""A key without a name is named by this many hex digits of its SHA-256 hash."""


class Person(NamedTuple):
    name: str
    secret: bytes
    """A secret derived from the key. It signs response ids and history marks, so that they are valid only for
    this person."""

    def __repr__(self) -> str:
        return f"Person({self.name!r})"

    @property
    def principal(self) -> Principal:
        return Principal(PLATFORM, self.name)

    @property
    def source(self) -> Source:
        return Source(PLATFORM, "", user_id=self.name, user_name=self.name)

    def make_mark(self, purpose: str, text: bytes) -> str:
        """Return a keyed hash (HMAC) of the text. It cannot be computed without the key."""
        return hmac.new(self.secret, purpose.encode() + b"\0" + text, sha256).hexdigest()[:32]


class Keys:
    def __init__(self, single: str | None, named: Mapping[str, Any]) -> None:
        """Read the keys. `single` is the key of one unnamed person; `named` maps the names of people to their
        keys."""
        if not single and not named:
            raise Misconfigured("the key of the API server is missing: set API_SERVER_KEY")
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
            (sha256(key.encode()).digest(), Person(name, sha256(b"hermes api\0" + key.encode()).digest()))
            for name, key in keys.items()
        ]

    def __repr__(self) -> str:
        return f"Keys of {len(self._people)}"

    def find_person(self, authorization: str) -> Person | None:
        """Return the person whose key is in the `Authorization` header, or None. Keys are compared in
        constant time."""
        scheme, _, key = authorization.partition(" ")
        digest = sha256(key.strip().encode("latin-1", "replace")).digest()
        match = None
        for key_digest, person in self._people:
            if hmac.compare_digest(key_digest, digest):
                match = person
        return match if scheme.lower() == "bearer" else None


def _expand_key(name: str, key: object) -> str:
    """Return a key from the settings, with environment variables expanded."""
    try:
        return str(expand_variables(f"platforms.{PLATFORM}.keys.{name}", key, "config.yaml") or "")
    except BadConfig as problem:
        raise Misconfigured(str(problem)) from None
