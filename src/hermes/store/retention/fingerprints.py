"""Fingerprints: recognition of a deleted session in a copy of the store.

A session id is not enough, because programs use ids such as `main` in every store. A message of this program
has a unique uid. For a message of another program, a digest of the session, the message and its content is
used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from hermes.store.content import format_uid
from hermes.store.engine import Row
from hermes.store.values import Fingerprint

MOST_MESSAGES = 200
"""The most messages in a fingerprint. These are the first of the session, which the oldest copies contain
too."""


def decode_fingerprint(record: Mapping[str, Any]) -> Fingerprint:
    return Fingerprint(*(frozenset(map(str, record.get(name, ()))) for name in Fingerprint._fields))


def make_fingerprint(session_id: str, session: Row | None, messages: Iterable[Row]) -> Fingerprint:
    """Compute the fingerprint of a session from its `started_at` and its messages.

    A message row is uid, id, role, timestamp and content as bytes.
    """
    return Fingerprint(
        frozenset() if session is None else frozenset([_digest_values([session_id, *session])]),
        frozenset(_mark_message(session_id, session, message) for message in messages),
    )


def _mark_message(session_id: str, session: Row | None, message: Row) -> str:
    uid, *rest = message
    return format_uid(uid) or _digest_values([session_id, *(session or ()), *rest])


def _digest_values(values: Iterable[object]) -> str:
    return blake2b(repr(list(values)).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
