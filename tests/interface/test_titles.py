"""Titles are cleaned, at most 100 characters long, unique, and cleared by an empty value."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes import errors
from hermes_state import SessionDB
from tests.interface.conftest import compress, new_id, passing, say, session

clean = SessionDB.sanitize_title

REMOVED = [
    *(chr(code) for code in (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F)),
    *(chr(code) for code in (*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x206A))),
    *"\ufeff\ufffc\ufff9\ufffa\ufffb",
]
FAMILY = "👨\u200d👩\u200d👧"
INDIC = "क्\u200dष"
ARABIC = "ه\u200dم"


# Cleaning


@pytest.mark.parametrize("empty", [None, "", "   ", "\n\t", "\x00\x1f", "\u200b\ufeff", " \u200d "])
def test_text_without_visible_characters_is_not_a_title(empty: str | None) -> None:
    assert clean(empty) is None


@pytest.mark.parametrize("char", REMOVED, ids=[f"U+{ord(char):04X}" for char in REMOVED])
def test_control_and_invisible_characters_are_removed(char: str) -> None:
    assert clean(f"a{char}b") == "ab"


@pytest.mark.parametrize(
    ("title", "cleaned"),
    [
        ("  my   project ", "my project"),
        ("two\nlines\r\nand\ttab", "two lines and tab"),
        ("wide\u3000and\u00a0hard", "wide and hard"),
        ("a \u200b b", "a b"),
        ("Ünïcode 日本語 🎉", "Ünïcode 日本語 🎉"),
        ("100% _sure_ 'x' \"y\" \\", "100% _sure_ 'x' \"y\" \\"),
    ],
)
def test_white_space_is_one_space_and_the_rest_stays(title: str, cleaned: str) -> None:
    assert clean(title) == cleaned


@pytest.mark.parametrize(
    "title", [FAMILY, f"our {FAMILY} plans", "❤️\u200d🔥", "👩🏽\u200d💻 work", INDIC, ARABIC]
)
def test_a_joiner_that_holds_a_cluster_together_is_kept(title: str) -> None:
    assert clean(title) == title


@pytest.mark.parametrize(
    ("title", "cleaned"),
    [
        ("a\u200db", "ab"),
        ("日\u200d本", "日本"),
        ("\u200d👩", "👩"),
        ("👩\u200d", "👩"),
        ("👩\u200d text", "👩 text"),
        ("a\u200d👩", "a👩"),
    ],
)
def test_any_other_joiner_is_removed(title: str, cleaned: str) -> None:
    assert clean(title) == cleaned


def test_100_characters_are_accepted_and_101_are_not() -> None:
    assert clean("x" * 100) == "x" * 100
    with pytest.raises(ValueError, match=r"^Title too long \(101 chars, max 100\)$") as refused:
        clean("x" * 101)
    assert isinstance(refused.value, errors.InvalidTitle)


def test_the_length_is_that_of_the_cleaned_title() -> None:
    assert clean("  " + "é" * 100 + "\u200b\n") == "é" * 100


TITLES = st.text(st.characters(exclude_categories=()), max_size=60)


@given(TITLES)
@example(f" {FAMILY} ")
def test_a_clean_title_is_clean(title: str) -> None:
    cleaned = clean(title)
    assert clean(cleaned) == cleaned
    if cleaned is not None:
        assert cleaned == " ".join(cleaned.split())
        assert not any(
            unicodedata.category(char) == "Cs" or char in REMOVED for char in cleaned if char != "\u200d"
        )


# Setting


def test_a_title_is_set_and_read(db: SessionDB) -> None:
    db.create_session("a", "cli")
    assert db.set_session_title("a", "  Fix   Docker Build\n") is True
    assert db.get_session_title("a") == "Fix Docker Build"
    assert session(db, "a")["title"] == "Fix Docker Build"


def test_an_unknown_session_gets_no_title_and_no_row(db: SessionDB) -> None:
    assert db.set_session_title("nobody", "x") is False
    assert db.get_session_title("nobody") is None
    assert db.session_count() == 0


def test_a_new_title_replaces_the_old_and_frees_it(db: SessionDB) -> None:
    for name in ("a", "b"):
        db.create_session(name, "cli")
    db.set_session_title("a", "old")
    db.set_session_title("a", "new")
    assert db.set_session_title("b", "old") is True
    assert (db.get_session_title("a"), db.get_session_title("b")) == ("new", "old")


@pytest.mark.parametrize("empty", [None, "", "  \n", "\u200b"])
def test_an_empty_title_clears(db: SessionDB, empty: str | None) -> None:
    db.create_session("a", "cli")
    db.set_session_title("a", "x")
    assert db.set_session_title("a", empty) is True
    assert db.get_session_title("a") is None


def test_many_sessions_may_have_no_title(db: SessionDB) -> None:
    for name in ("a", "b", "c"):
        db.create_session(name, "cli")
        assert db.set_session_title(name, "") is True


def test_a_title_in_use_is_an_error_that_names_its_holder(db: SessionDB) -> None:
    for name in ("a", "b"):
        db.create_session(name, "cli")
    db.set_session_title("a", "taken")
    db.set_session_title("b", "mine")
    with pytest.raises(ValueError, match=r"^Title 'taken' is already in use by session a$") as refused:
        db.set_session_title("b", " taken ")
    assert isinstance(refused.value, errors.InvalidTitle)
    assert db.get_session_title("b") == "mine"


def test_a_session_may_be_given_its_own_title_again(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.set_session_title("a", "x")
    assert db.set_session_title("a", "x") is True


def test_titles_that_differ_in_case_are_different(db: SessionDB) -> None:
    for name, title in (("a", "Project"), ("b", "project")):
        db.create_session(name, "cli")
        assert db.set_session_title(name, title) is True


def test_a_title_that_is_too_long_changes_nothing(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.set_session_title("a", "x")
    with pytest.raises(ValueError, match="Title too long"):
        db.set_session_title("a", "y" * 101)
    assert db.get_session_title("a") == "x"


def test_a_title_held_by_an_ancestor_of_the_same_conversation_moves(db: SessionDB) -> None:
    say(db, "root", "x")
    db.set_session_title("root", "project")
    compress(db, "root", "tip")
    assert db.set_session_title("tip", "project") is True
    assert (db.get_session_title("root"), db.get_session_title("tip")) == (None, "project")


def test_a_title_held_by_the_tip_is_not_taken_away_by_an_ancestor(db: SessionDB) -> None:
    say(db, "root", "x")
    compress(db, "root", "tip")
    db.set_session_title("tip", "project")
    with pytest.raises(ValueError, match="already in use by session tip"):
        db.set_session_title("root", "project")
    assert db.get_session_title("tip") == "project"


def test_a_title_held_by_the_parent_of_a_branch_does_not_move(db: SessionDB) -> None:
    say(db, "root", "x")
    db.set_session_title("root", "project")
    db.end_session("root", "branched")
    db.create_session("branch", "cli", parent_session_id="root")
    with pytest.raises(ValueError, match="already in use by session root"):
        db.set_session_title("branch", "project")


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_a_session_is_found_by_the_title_it_was_given(shelf: SessionDB, title: str) -> None:
    cleaned = clean(title)
    with passing(shelf):
        session_id = shelf.create_session(new_id(), "cli")
        assert shelf.set_session_title(session_id, title) is True
        assert shelf.get_session_title(session_id) == cleaned
        assert cleaned is None or shelf.resolve_session_by_title(cleaned) == session_id


# Automatic titles


def test_an_automatic_title_is_for_sessions_without_one(db: SessionDB) -> None:
    db.create_session("a", "cli")
    assert db.set_auto_title_if_empty("a", "Docker help") == "Docker help"
    assert db.set_auto_title_if_empty("a", "Another") is None
    assert db.get_session_title("a") == "Docker help"


def test_an_automatic_title_that_is_taken_gets_a_number_in_brackets(db: SessionDB) -> None:
    for name in ("a", "b", "c"):
        db.create_session(name, "cli")
    assert [db.set_auto_title_if_empty(name, "Help") for name in ("a", "b", "c")] == [
        "Help",
        "Help (2)",
        "Help (3)",
    ]
