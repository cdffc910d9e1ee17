"""The store reports how many messages are not indexed yet."""

from __future__ import annotations

from hermes.store.sqlite.search.indexer import BATCH, LOOK_EVERY_N_WRITES
from hermes_state import SessionDB


def test_writers_do_not_outrun_the_index(db: SessionDB) -> None:
    db.create_session("s", "cli")
    for number in range(3 * BATCH):
        last = db.append_message("s", "user", f"dunlin {number}")
    reached = db.raw().execute("SELECT value FROM index_progress WHERE name = 'messages'").fetchone()[0]
    assert last - reached < BATCH + LOOK_EVERY_N_WRITES
