"""A session is handed off to a platform. The handoff is requested, claimed once, and then completed or
failed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from hermes_state import SessionDB


@pytest.fixture
def session(db: SessionDB) -> str:
    return db.create_session("s", "cli")


def state(db: SessionDB) -> str | None:
    handoff_state = db.get_handoff_state("s")
    assert handoff_state is not None
    return handoff_state["state"]  # type: ignore[no-any-return]


def test_a_session_without_a_handoff_has_no_state(db: SessionDB, session: str) -> None:
    assert db.get_handoff_state("s") == {"state": None, "platform": None, "error": None}


def test_an_unknown_session_has_no_handoff(db: SessionDB) -> None:
    assert db.get_handoff_state("nobody") is None
    assert db.request_handoff("nobody", "telegram") is False
    assert db.claim_handoff("nobody") is False


def test_a_handoff_is_pending_then_running_then_completed(db: SessionDB, session: str) -> None:
    assert db.request_handoff("s", "telegram") is True
    assert db.get_handoff_state("s") == {"state": "pending", "platform": "telegram", "error": None}
    assert db.claim_handoff("s") is True
    assert state(db) == "running"
    db.complete_handoff("s")
    assert db.get_handoff_state("s") == {"state": "completed", "platform": "telegram", "error": None}


def test_a_second_request_is_refused_during_a_handoff(db: SessionDB, session: str) -> None:
    db.request_handoff("s", "telegram")
    assert db.request_handoff("s", "discord") is False
    db.claim_handoff("s")
    assert db.request_handoff("s", "discord") is False
    assert db.get_handoff_state("s") == {"state": "running", "platform": "telegram", "error": None}


def test_a_failure_says_why_in_at_most_500_characters(db: SessionDB, session: str) -> None:
    db.request_handoff("s", "telegram")
    db.claim_handoff("s")
    db.fail_handoff("s", "no route " + "x" * 600)
    state = db.get_handoff_state("s")
    assert state is not None
    assert (state["state"], len(state["error"]), state["error"][:9]) == ("failed", 500, "no route ")


def test_a_new_request_after_a_failure_forgets_the_error(db: SessionDB, session: str) -> None:
    db.request_handoff("s", "telegram")
    db.fail_handoff("s", "timed out before anybody claimed it")
    assert state(db) == "failed"
    assert db.request_handoff("s", "discord") is True
    assert db.get_handoff_state("s") == {"state": "pending", "platform": "discord", "error": None}


def test_a_failed_handoff_cannot_be_completed_or_claimed(db: SessionDB, session: str) -> None:
    db.request_handoff("s", "telegram")
    db.claim_handoff("s")
    db.fail_handoff("s", "timeout")
    db.complete_handoff("s")
    assert db.claim_handoff("s") is False
    assert state(db) == "failed"


def test_only_a_claimed_handoff_completes(db: SessionDB, session: str) -> None:
    db.request_handoff("s", "telegram")
    db.complete_handoff("s")
    assert state(db) == "pending"


def test_only_one_of_many_claims_succeeds(db: SessionDB, session: str) -> None:
    db.request_handoff("s", "telegram")
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(db.claim_handoff, ["s"] * 8)) == 1


def test_pending_handoffs_come_oldest_start_first(db: SessionDB) -> None:
    for name, started in (("young", 300.0), ("old", 100.0), ("middle", 200.0), ("claimed", 50.0)):
        db.create_session(name, "cli", started_at=started)
        db.request_handoff(name, "telegram")
    db.create_session("other", "cli", started_at=10.0)
    db.claim_handoff("claimed")
    pending = db.list_pending_handoffs()
    assert [row["id"] for row in pending] == ["old", "middle", "young"]
    assert pending[0]["handoff_platform"] == "telegram"
    assert pending[0]["source"] == "cli"


def test_reads_return_nothing_if_the_store_cannot_be_used(db: SessionDB, session: str) -> None:
    db.request_handoff("s", "telegram")
    db.close()
    assert db.get_handoff_state("s") is None
    assert db.list_pending_handoffs() == []
