"""Small values that are stored beside the sessions, and the release of free space."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.interface.conftest import ids, say
from tests.stored_rows import read_value


def test_an_unknown_key_is_none(db: SessionDB) -> None:
    assert db.get_meta("nothing") is None


def test_a_value_is_kept_across_openings(db: SessionDB) -> None:
    db.set_meta("key", "value")
    db.close()
    with SessionDB() as again:
        assert again.get_meta("key") == "value"


def test_a_second_value_replaces_the_first(db: SessionDB) -> None:
    db.set_meta("key", "one")
    db.set_meta("key", "two")
    assert db.get_meta("key") == "two"
    assert read_value(db, "SELECT COUNT(*) FROM state_meta WHERE key='key'") == 1


@given(st.text(min_size=1), st.text())
def test_any_key_holds_any_text(shelf: SessionDB, key: str, value: str) -> None:
    key = "test " + key
    shelf.set_meta(key, value)
    assert shelf.get_meta(key) == value


def test_vacuum_of_an_empty_store_is_harmless(db: SessionDB) -> None:
    db.vacuum()
    db.vacuum()
    assert db.session_count() == 0


def test_verify_finds_no_damage_in_a_store_that_is_in_use(db: SessionDB) -> None:
    db.create_session("a", "cli")
    for _ in range(20):
        for _ in range(33):
            db.append_message("a", "user", "said")
        assert db.verify().damage == ()


def test_optimize_keeps_everything(db: SessionDB) -> None:
    numbers = say(db, "a", "one word", "another word")
    db.optimize()
    assert sorted(ids(db.search_messages("word"))) == numbers
    assert db.verify().ok
