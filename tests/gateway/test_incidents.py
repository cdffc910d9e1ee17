"""Incidents are stored with their chat. Incidents that are recorded at the same time do not overwrite each
other.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hermes.gateway import incidents
from hermes_state import SessionDB

KEY = "agent:main:telegram:dm:1"
TIMES = 40


def test_two_concurrent_incidents_are_both_recorded(db: SessionDB) -> None:
    db.routing.route(KEY, "telegram", "dm", "1", "", "", db.create_session("s", "telegram"))

    def cut_off() -> list[int]:
        return [incidents.count_interruption(db, KEY, 7) for _ in range(TIMES)]

    def note() -> None:
        for number in range(TIMES):
            incidents.add_incident(db, KEY, f"{number}")
            incidents.set_preview(db, KEY, number, "preview")

    with ThreadPoolExecutor(2) as people:
        counted, noted = people.submit(cut_off), people.submit(note)
        assert counted.result() == list(range(1, TIMES + 1))
        noted.result()
    assert [one.text for one in incidents.list_incidents(db, KEY)] == [f"{n}" for n in range(TIMES)][
        -incidents.MOST :
    ]


def test_an_unknown_chat_has_no_incidents(db: SessionDB) -> None:
    incidents.add_incident(db, KEY, "something")
    assert incidents.count_interruption(db, KEY, 7) == 1
    assert incidents.list_incidents(db, KEY) == []
