"""Notes on titles in `state_meta`: the former titles of a session and the claims for an automatic title.

The notes belong to this store and are not exported. They are deleted with the session.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from hermes.store import meta
from hermes.store.content import from_json, to_json
from hermes.store.engine import Reader, Writer

FORMER_KEY, REQUEST_KEY = "former_titles:", "title_request:"
"""The prefixes of keys in `state_meta`: for the former titles of a session, and for the claim to generate its
title. Each key ends with the session id."""
MOST_FORMER = 50
BY_STORE = "store"
"""The `title_by` of a title that the store made unique because another session had the requested title.

The title has no meaning in another store, so a merge never prefers it to the title of the other copy.
"""
FORGET_FORMER = "DELETE FROM state_meta WHERE key = 'former_titles:' || ?"
FORGET_REQUEST = "DELETE FROM state_meta WHERE key = 'title_request:' || ?"


def note_former(writer: Writer, session_id: str, former: str | None, title: str | None) -> None:
    """Record that a person replaced the title `former` of a session by `title`, or cleared it (`title` is
    None).

    An imported copy of the session that still has the former title is then known to be older. Only a digest of
    the title is stored, so that no text remains after a purge.
    """
    if former is None or former == title:
        return
    noted = _read_former(writer, session_id)
    added = digest_label(former)
    others = [digest for digest in noted if digest not in (added, digest_label(title))]
    writer.run(meta.SET, FORMER_KEY + session_id, to_json([*others, added][-MOST_FORMER:]))


def is_former(reader: Reader, session_id: str, title: str | None) -> bool:
    """Return whether the session had the title `title` before and a person replaced or cleared it."""
    return title is not None and digest_label(title) in _read_former(reader, session_id)


def _read_former(reader: Reader, session_id: str) -> list[Any]:
    noted = from_json(reader.value(meta.GET, FORMER_KEY + session_id) or "null", None)
    return noted if isinstance(noted, list) else []


def claim_request(writer: Writer, session_id: str, now: float, seconds: float, most_times: int) -> bool:
    """Claim the task of generating a title for a session. The claim is valid for `seconds` from the time `now`.
    Return False while another claim is valid, or if the task was already claimed `most_times` times."""
    noted = from_json(writer.value(meta.GET, REQUEST_KEY + session_id) or "null", None)
    times, until = noted if isinstance(noted, list) and len(noted) == 2 else (0, 0)
    if now < until or times >= most_times:
        return False
    writer.run(meta.SET, REQUEST_KEY + session_id, to_json([times + 1, round(now + seconds)]))
    return True


def digest_label(value: object) -> str | None:
    """Return a short digest of a label of a session, such as its title. By comparing digests, a later caller
    detects that the label has changed. The digest of None is None."""
    if value is None:
        return None
    return blake2b(repr(value).encode(errors="replace"), digest_size=4).hexdigest()
