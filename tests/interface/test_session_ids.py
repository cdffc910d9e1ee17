"""Finds a session by its exact id, or by a prefix that matches the id of only one session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.interface.conftest import passing


@pytest.fixture
def family(db: SessionDB) -> SessionDB:
    for session_id in ("20250305_091523_a1b2c3d4", "20250305_101500_f1e2d3c4", "cron_x", "cron"):
        db.create_session(session_id, "cli")
    return db


def test_an_exact_id_is_found_even_if_it_is_a_prefix_of_others(family: SessionDB) -> None:
    assert family.resolve_session_id("cron") == "cron"


def test_the_only_id_with_a_prefix_is_found(family: SessionDB) -> None:
    assert family.resolve_session_id("20250305_09") == "20250305_091523_a1b2c3d4"


def test_a_start_that_several_share_finds_none(family: SessionDB) -> None:
    assert family.resolve_session_id("20250305_") is None


def test_an_unknown_start_finds_none(family: SessionDB) -> None:
    assert family.resolve_session_id("2026") is None


def test_the_middle_of_an_id_finds_none(family: SessionDB) -> None:
    assert family.resolve_session_id("091523") is None


def test_letters_of_either_case_find_it(family: SessionDB) -> None:
    assert family.resolve_session_id("CRON_") == "cron_x"
    assert family.resolve_session_id("20250305_091523_A1B2") == "20250305_091523_a1b2c3d4"


def test_only_ascii_letters_may_differ_in_case(db: SessionDB) -> None:
    db.create_session("évening", "cli")
    assert db.resolve_session_id("éVEN") == "évening"
    assert db.resolve_session_id("Éven") is None


@pytest.mark.parametrize("wildcard", ["%", "_", "2025%", "2025030__09", "cron\\", "*", "cron?"])
def test_wildcards_are_letters_like_others(family: SessionDB, wildcard: str) -> None:
    assert family.resolve_session_id(wildcard) is None


def test_ids_with_wildcards_are_found_by_them(db: SessionDB) -> None:
    for session_id in ("100%_sure", "100 sure", "back\\slash"):
        db.create_session(session_id, "cli")
    assert db.resolve_session_id("100%") == "100%_sure"
    assert db.resolve_session_id("100%_") == "100%_sure"
    assert db.resolve_session_id("back\\") == "back\\slash"


def test_the_empty_start_finds_the_only_session_there_is(db: SessionDB) -> None:
    assert db.resolve_session_id("") is None
    db.create_session("only", "cli")
    assert db.resolve_session_id("") == "only"
    db.create_session("second", "cli")
    assert db.resolve_session_id("") is None


# The rule for any ids

ALPHABET = "aAbB%_\\é0*"
IDS = st.text(ALPHABET, min_size=1, max_size=4)


def ascii_lower(text: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in text)


@given(st.lists(IDS, min_size=1, max_size=6, unique=True), st.text(ALPHABET, max_size=4))
def test_an_exact_id_is_preferred_to_the_only_id_with_the_prefix(
    shelf: SessionDB, stored: list[str], asked: str
) -> None:
    starting = [one for one in stored if ascii_lower(one).startswith(ascii_lower(asked))]
    expected = asked if asked in stored else starting[0] if len(starting) == 1 else None
    with passing(shelf):
        for session_id in stored:
            shelf.create_session(session_id, "cli")
        assert shelf.resolve_session_id(asked) == expected
