"""`hermes sessions repair` of stores with lost rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import Hermes
from tests.store.sqlite.damage.file_damage import pages_of, zero


@pytest.fixture
def store(home: Path) -> Path:
    with SessionDB(home / "state.db") as db:
        for number in range(4):
            db.create_session(f"s{number}", "cli")
            for at in range(30):
                db.append_message(f"s{number}", "user", f"message {at} " + "words " * 60)
    return home / "state.db"


def test_a_repair_that_lost_rows_says_so_and_exits_with_1(hermes: Hermes, store: Path) -> None:
    assert len(pages_of(store, "messages")) > 4
    zero(store, "messages", at=3)
    repaired = hermes("sessions", "repair")
    assert "lost: " in repaired.stdout
    assert repaired.returncode == 1
    again = hermes("sessions", "repair")
    assert ("lost: " in again.stdout, again.returncode) == (False, 0)


def test_a_repair_that_loses_nothing_exits_with_0(hermes: Hermes, store: Path) -> None:
    zero(store, "idx_messages_session", at=0)
    repaired = hermes("sessions", "repair")
    assert ("lost: " in repaired.stdout, repaired.returncode) == (False, 0)
