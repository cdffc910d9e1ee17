"""Routing in stores in which other programs write without foreign keys, or store text in time columns."""

from __future__ import annotations

from hermes_state import SessionDB
from tests.store.test_routing import DM, chat, sessions

__all__ = ["sessions"]


def test_a_row_whose_session_another_program_deleted_is_removed(sessions: SessionDB) -> None:
    sessions.routing.route("k", *DM, "a")
    raw = sessions.raw()
    raw.execute("PRAGMA foreign_keys=OFF")
    raw.execute("DELETE FROM sessions WHERE id = 'a'")
    assert sessions.routing.get("k") is None
    assert sessions.routing.find_live_session("k") is None
    assert raw.execute("SELECT count(*) FROM routing").fetchone()[0] == 0


def test_invalid_times_do_not_prevent_a_recovery(db: SessionDB) -> None:
    chat(db, "odd", 200)
    chat(db, "even", 300)
    db.raw().execute("UPDATE sessions SET started_at = 'yesterday', last_active = NULL WHERE id = 'odd'")
    assert db.routing.recover(*DM) == "even"
