"""By what a session is known again in a copy of its store, once its own rows are gone.

An id is not enough: programs call sessions `main`, in every store they have. A message of ours has a uid that nobody
else's has; of what another program wrote, all that says which session and which message it is goes into a digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from hermes.store.content import format_uid
from hermes.store.engine import Row
from hermes.store.values import Fingerprint

MOST_MESSAGES = 200
"""How many messages are remembered of a session: its first, which the oldest copies have, too."""


def decode_fingerprint(record: Mapping[str, Any]) -> Fingerprint:
    return Fingerprint(*(frozenset(map(str, record.get(name, ()))) for name in Fingerprint._fields))


def make_fingerprint(session_id: str, session: Row | None, messages: Iterable[Row]) -> Fingerprint:
    """Of a session (its `started_at`) and its messages: uid, id, role, timestamp and content as bytes."""
    return Fingerprint(
        frozenset() if session is None else frozenset([_digest_values([session_id, *session])]),
        frozenset(_mark_message(session_id, session, message) for message in messages),
    )


def _mark_message(session_id: str, session: Row | None, message: Row) -> str:
    uid, *rest = message
    return format_uid(uid) or _digest_values([session_id, *(session or ()), *rest])


def _digest_values(values: Iterable[object]) -> str:
    return blake2b(repr(list(values)).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
