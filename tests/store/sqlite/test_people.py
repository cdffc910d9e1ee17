"""The executed SQL statements do not reveal who owns a session."""

from __future__ import annotations

from typing import Any

from hermes_state import SessionDB
from tests.store.test_people import ANN, VERBS, add_secrets, outcome


def test_a_foreign_session_and_a_missing_one_run_the_same_statements(db: SessionDB) -> None:
    """The same statements run for a session of another person and for a session that does not exist. So the
    time does not reveal which case it is."""
    ann, secrets = db.scoped(ANN), add_secrets(db)
    ann.list_sessions_rich()  # the first use creates the scoped connection
    ran: list[str] = []

    def note(_cursor: Any, sql: str, _bindings: Any) -> bool:
        ran.append(sql)
        return True

    engine: Any = db._engine
    different: dict[str, list[list[str]]] = {}
    for name, verb in VERBS.items():
        outcome(verb, ann, "somebody-else")  # indexes any messages that are not indexed yet
        traced = [engine._connections.connection, *engine._connections.readers.get_idle()]
        asked = []
        for session_id in (secrets["bob"], "no-such-session"):
            ran.clear()
            for connection in traced:
                connection.exec_trace = note
            outcome(verb, ann, session_id)
            for connection in traced:
                connection.exec_trace = None
            asked.append(list(ran))
        if not asked[0] or asked[0] != asked[1]:
            different[name] = asked
    assert different == {}
