"""Notes about the titles of a session, in `state_meta`: its former titles, and requests for an automatic one.

They belong to this store: no export contains them. They are deleted with the session.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from hermes.store import meta
from hermes.store.content import from_json, to_json
from hermes.store.engine import Reader, Writer

FORMER_KEY, REQUEST_KEY = "former_titles:", "title_request:"
"""Before a session's id, the keys in `state_meta`."""
MOST_FORMER = 50
BY_STORE = "store"
"""The `title_by` of a title that a store made up because another session held the wanted one.

Such a title means nothing in another store: a merge never prefers it to the title there."""
FORGET_FORMER = "DELETE FROM state_meta WHERE key = 'former_titles:' || ?"
FORGET_REQUEST = "DELETE FROM state_meta WHERE key = 'title_request:' || ?"


def note_former(writer: Writer, session_id: str, former: str | None, title: str | None) -> None:
    """Note that a person replaced a title by another one, or cleared it.

    A copy that still has the former title is older. Only digests are stored: a purged title leaves no text behind.
    """
    if former is None or former == title:
        return
    noted = _read_former(writer, session_id)
    added = digest_label(former)
    others = [digest for digest in noted if digest not in (added, digest_label(title))]
    writer.run(meta.SET, FORMER_KEY + session_id, to_json([*others, added][-MOST_FORMER:]))


def is_former(reader: Reader, session_id: str, title: str | None) -> bool:
    """Whether a person replaced this title of the session."""
    return title is not None and digest_label(title) in _read_former(reader, session_id)


def _read_former(reader: Reader, session_id: str) -> list[Any]:
    noted = from_json(reader.value(meta.GET, FORMER_KEY + session_id) or "null", None)
    return noted if isinstance(noted, list) else []


def claim_request(writer: Writer, session_id: str, now: float, seconds: float, most_times: int) -> bool:
    """Claim the right to ask a model for a title, for so many seconds; False while another process holds it.

    A session is claimed at most `most_times` times.
    """
    noted = from_json(writer.value(meta.GET, REQUEST_KEY + session_id) or "null", None)
    times, until = noted if isinstance(noted, list) and len(noted) == 2 else (0, 0)
    if now < until or times >= most_times:
        return False
    writer.run(meta.SET, REQUEST_KEY + session_id, to_json([times + 1, round(now + seconds)]))
    return True


def digest_label(value: object) -> str | None:
    """A digest by which a changed label is noticed."""
    if value is None:
        return None
    return blake2b(repr(value).encode(errors="replace"), digest_size=4).hexdigest()
