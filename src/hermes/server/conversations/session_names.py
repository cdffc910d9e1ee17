"""Finds the session that a client names in the header `X-Hermes-Session-Id`.

The value is compared, in this order, with ids, with names that clients chose, with titles, and with the beginnings of
ids. If nothing matches, a new session with this name is created. Only sessions of the same person are found.

A client may choose any name. Therefore the beginning of a name does not match: `user1` must not find `user10`. The
beginning of an id matches only if it is so specific that it cannot be a chosen name by accident.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hermes import errors
from hermes.db.scoped_store import ScopedStore, make_own_id
from hermes.server.api_errors import Refused, bad_request

MOST_NAMESAKES = 1000
"""If a session in the trash has the requested name, a number below this limit is added to the name of the new
session."""
MOST_CANDIDATES = 20
MOST_OPEN = 6
"""How many characters at the end of the id of a named session may be left out. The rest still contains at least six
digits of the hash in the id."""
_ID_BEGINNING = re.compile(r"\d{8}_\d{1,6}(?:_[0-9a-f]{0,8})?")
"""The beginning of a generated id: the date and at least one digit of the time."""


class NamedSession(NamedTuple):
    session_id: str
    is_new: bool = False
    is_replacement: bool = False
    """Whether the session replaces one of the same name that is in the trash."""


def find_or_make_session(store: ScopedStore, name: str) -> NamedSession:
    """Return the session that `name` refers to. Create it if there is none.

    Raise a 400 error if the name is the beginning of several ids, or if a new session cannot have the name.
    """
    if store.get_session(name) is not None:
        return NamedSession(name)
    own_id = make_own_id(name, store.principal.person or "")
    if store.get_session(own_id) is not None:
        return NamedSession(own_id)
    is_trashed = any(store.get_session(known, include_trashed=True) for known in (name, own_id))
    if not is_trashed:
        found = store.resolve_session_by_title(name) or _find_beginning(store, name)
        if found is not None:
            return NamedSession(found)
    if "/" in name:  # the id is part of the paths below /api/sessions
        raise bad_request(
            f"there is no session {name!r}, and the name of a new session cannot contain '/'",
            "X-Hermes-Session-Id",
            "invalid_session_name",
        )
    for number in range(1, MOST_NAMESAKES):  # a session in the trash is not restored by its name
        numbered = name if number == 1 else f"{name}.{number}"
        is_known = store.get_session(make_own_id(numbered, store.principal.person or "")) is not None
        try:
            session_id = store.create_session(numbered)
        except errors.SessionInTrash:
            continue
        return NamedSession(session_id, not is_known, is_trashed or number > 1)
    raise Refused(409, "too many sessions of this name are in the trash", code="session_in_trash")


def make_replacement(store: ScopedStore, name: str) -> str:
    """Create a session in place of the session that a client calls `name` and that was deleted during a turn. Return
    the id of the new session."""
    return store.create_session() if "/" in name else find_or_make_session(store, name).session_id


def _find_beginning(store: ScopedStore, name: str) -> str | None:
    is_generated = _ID_BEGINNING.fullmatch(name) is not None
    ids = [
        row["id"]
        for row in store.starting_with(name, MOST_CANDIDATES)
        if row["id"].startswith(name) and (is_generated or len(row["id"]) - len(name) <= MOST_OPEN)
    ]
    conversations = {store.get_conversation_root(session_id) for session_id in ids}
    if len(conversations) > 1:
        raise bad_request(
            f"the ids of several sessions begin with {name!r}", "X-Hermes-Session-Id", "session_ambiguous"
        )
    return ids[0] if ids else None
