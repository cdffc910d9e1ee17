"""Incidents of a chat are stored with the chat. Incidents that are recorded at the same time do not overwrite
each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hermes.gateway import incidents
from hermes_state import SessionDB

KEY = "agent:main:telegram:dm:1"
TIMES = 40


def test_two_who_note_something_at_the_same_time_do_not_undo_each_other(db: SessionDB) -> None:
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


def test_a_chat_that_is_not_known_any_more_has_nothing_to_remember(db: SessionDB) -> None:
    incidents.add_incident(db, KEY, "something")
    assert incidents.count_interruption(db, KEY, 7) == 1
    assert incidents.list_incidents(db, KEY) == []
