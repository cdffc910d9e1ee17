"""Fingerprints: recognition of a deleted session in a copy of the store.

The session id alone is not enough, because programs use ids such as `main` in every store. A message that
this program wrote is recognised by its unique uid. A message of another program has no uid, so a digest of
the session, the message and its content is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from hermes.store.content import format_uid
from hermes.store.engine import Row
from hermes.store.values import Fingerprint

MOST_MESSAGES = 200
"""The maximum number of messages in a fingerprint. The first messages of the session are used, because even
the oldest copies contain them."""


def decode_fingerprint(record: Mapping[str, Any]) -> Fingerprint:
    return Fingerprint(*(frozenset(map(str, record.get(name, ()))) for name in Fingerprint._fields))


def make_fingerprint(session_id: str, session: Row | None, messages: Iterable[Row]) -> Fingerprint:
    """Compute the fingerprint of a session from its `started_at` and its messages.

    Each row of `messages` is (uid, id, role, timestamp, content as bytes).
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
