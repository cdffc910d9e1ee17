"""A search for a part of a word reads a limited number of the terms that contain the part. It reads the most
frequent ones.
"""

from __future__ import annotations

from hermes.store.sqlite.search.substring import MOST_TERMS
from hermes_state import SessionDB
from tests.stored_rows import change_each


def test_only_the_most_frequent_of_many_terms_are_searched(db: SessionDB) -> None:
    db.create_session("s", "cli")
    insert = "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1000)"
    change_each(db, insert, ((f"prefix{number}",) for number in range(MOST_TERMS + 9)))
    db._engine.catch_up(5)
    found = db.search_messages("refix", limit=1000)
    assert (found.partial, found.cut, len(found)) == (True, ("refix",), MOST_TERMS)
