"""Titles of a lineage, `my project`, `my project #2`, …, and the session that a title refers to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.interface.conftest import compress, new_id, passing


def titled(db: SessionDB, *titles: str) -> list[str]:
    """Create unrelated sessions with these titles, in order, and return their ids."""
    made: list[str] = []
    for title in titles:
        session_id = new_id()
        db.create_session(session_id, "cli", started_at=1000.0 + len(made))
        assert db.set_session_title(session_id, title)
        made.append(session_id)
    return made


# By the exact title


def test_a_session_is_found_by_its_exact_title(db: SessionDB) -> None:
    (a,) = titled(db, "Fix Docker Build")
    row = db.get_session_by_title("Fix Docker Build")
    assert row == db.get_session(a)
    assert db.get_session_by_title("fix docker build") is None
    assert db.get_session_by_title("Fix Docker") is None


# The session that a title refers to


def test_an_unknown_name_stands_for_none(db: SessionDB) -> None:
    titled(db, "foo")
    assert db.resolve_session_by_title("bar") is None


def test_a_name_alone_stands_for_its_session(db: SessionDB) -> None:
    (a,) = titled(db, "foo")
    assert db.resolve_session_by_title("foo") == a


def test_a_base_name_stands_for_the_newest_of_its_lineage(db: SessionDB) -> None:
    foo, second, fifth = titled(db, "foo", "foo #2", "foo #5")
    assert db.resolve_session_by_title("foo") == fifth
    assert db.resolve_session_by_title("foo #2") == second
    assert foo not in (second, fifth)


def test_the_newest_start_decides_not_the_highest_number(db: SessionDB) -> None:
    _, _, newest = titled(db, "foo", "foo #9", "foo #2")
    assert db.resolve_session_by_title("foo") == newest


def test_a_numbered_name_is_found_without_its_base(db: SessionDB) -> None:
    (second,) = titled(db, "foo #2")
    assert db.resolve_session_by_title("foo") == second


def test_letters_of_a_numbered_name_may_differ_in_case(db: SessionDB) -> None:
    (second,) = titled(db, "Foo #2")
    assert db.resolve_session_by_title("foo") == second


@pytest.mark.parametrize(
    ("base", "similar"), [("a_c", "abc #2"), ("100%", "100 percent #2"), ("x\\", "xy #2")]
)
def test_wildcards_in_a_name_are_letters_like_others(db: SessionDB, base: str, similar: str) -> None:
    mine, _ = titled(db, base, similar)
    assert db.resolve_session_by_title(base) == mine


def test_a_name_that_only_starts_the_same_is_another(db: SessionDB) -> None:
    foo, *_ = titled(db, "foo", "foobar #2", "foo#2", "foo bar")
    assert db.resolve_session_by_title("foo") == foo


def test_a_name_stands_for_its_recorded_continuation(db: SessionDB) -> None:
    (root,) = titled(db, "foo")
    compress(db, root, "tip")
    db.set_session_title("tip", "foo #2")
    assert db.resolve_session_by_title("foo") == "tip"


def test_a_recorded_continuation_is_preferred_to_a_newer_unrelated_session(db: SessionDB) -> None:
    (root,) = titled(db, "foo")
    compress(db, root, "tip")
    db.set_session_title("tip", "foo #2")
    db.create_session("stranger", "cli", started_at=9e9)
    db.set_session_title("stranger", "foo #7")
    assert db.resolve_session_by_title("foo") == "tip"
    assert db.resolve_session_by_title("foo #7") == "stranger"


def test_an_unrelated_session_with_a_number_stands_for_its_continuation(db: SessionDB) -> None:
    for name, title in (("a", "foo"), ("b", "foo #2")):
        db.create_session(name, "cli")
        db.set_session_title(name, title)
    following = db.begin_continuation("b", "so far")
    assert db.resolve_session_by_title("foo") == db.resolve_session_by_title("foo #2") == following


def test_a_continuation_is_found_by_its_parents_name_even_without_a_title(db: SessionDB) -> None:
    (root,) = titled(db, "foo")
    compress(db, root, "tip")
    assert db.resolve_session_by_title("foo") == "tip"


# The next title


@pytest.mark.parametrize(
    ("stored", "asked", "following"),
    [
        ([], "foo", "foo"),
        ([], "foo #3", "foo"),
        (["foo"], "foo", "foo #2"),
        (["foo"], "foo #2", "foo #2"),
        (["foo", "foo #2"], "foo", "foo #3"),
        (["foo", "foo #2", "foo #5"], "foo", "foo #6"),
        (["foo", "foo #2", "foo #5"], "foo #2", "foo #6"),
        (["foo #2"], "foo", "foo #3"),
        (["foo", "foo #10", "foo #9"], "foo", "foo #11"),
        (["foo", "foo #x"], "foo", "foo #2"),
        (["foobar"], "foo", "foo"),
        (["a_c", "abc #7"], "a_c", "a_c #2"),
        (["100%", "100 percent #7"], "100%", "100% #2"),
        (["Fix Docker Build"], "Fix Docker Build", "Fix Docker Build #2"),
        (["room#4"], "room#4", "room#4 #2"),
    ],
)
def test_the_next_name_of_a_lineage(db: SessionDB, stored: list[str], asked: str, following: str) -> None:
    titled(db, *stored)
    assert db.get_next_title_in_lineage(asked) == following


@pytest.mark.parametrize("length", [96, 97, 98, 100])
def test_numbers_keep_within_100_characters_by_shortening_the_base(db: SessionDB, length: int) -> None:
    title = "x" * length
    titled(db, title)
    seen = {title}
    for number in range(2, 13):
        title = db.get_next_title_in_lineage(title)
        assert len(title) == min(100, length + len(f" #{number}"))
        assert title.endswith(f"x #{number}")
        assert title not in seen
        seen.add(title)
        titled(db, title)


@given(st.text(st.sampled_from("ab #12 %_👨\u200d👩é"), min_size=1, max_size=110), st.integers(1, 4))
def test_the_next_name_is_always_a_free_and_valid_title(shelf: SessionDB, base: str, rounds: int) -> None:
    title = SessionDB.sanitize_title(base[:100])
    with passing(shelf):
        for _ in range(rounds if title else 0):
            following = shelf.get_next_title_in_lineage(title or "")
            assert SessionDB.sanitize_title(following) == following
            assert shelf.get_session_by_title(following) is None
            titled(shelf, following)
            title = following


def test_long_titles_with_the_same_short_form_stay_distinct(db: SessionDB) -> None:
    following = []
    for name in ("aaa", "bbb"):
        db.create_session(name, "cli")
        db.set_session_title(name, "x" * 97 + name)
        following.append(db.begin_continuation(name, "so far"))
    titles = {db.get_session_title(name) for name in following}
    assert len(titles) == 2
    assert db.get_next_title_in_lineage("x" * 97 + "bbb") not in titles


def test_a_number_too_long_to_be_one_is_part_of_the_name(db: SessionDB) -> None:
    name = "foo #" + "9" * 5000
    assert db.get_next_title_in_lineage(name) == name
