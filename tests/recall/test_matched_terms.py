"""Finds which words of a query occur in a text of any length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.recall.ranking.matched_terms import LONG, find_matched_terms
from hermes_state import SessionDB

FILLER = "lorem ipsum dolor sit amet, "
WORDS = [
    "retry",
    "retries",
    "retrying",
    "budgets",
    "budget",
    "k",
    "key",
    "Zürich",
    "zurich",
    "桂林",
    "我们去桂林",
    "x1",
]
TERMS = ["retry", "budget", "k", "zurich", "桂林", "桂", "x1", "nothing", "ke"]


@given(
    st.lists(st.sampled_from(WORDS), max_size=5), st.lists(st.sampled_from(TERMS), min_size=1, unique=True)
)
def test_a_long_text_gives_the_same_result_as_a_short_one(words: list[str], terms: list[str]) -> None:
    said = " ".join(words)
    assert find_matched_terms(FILLER * (LONG // len(FILLER) + 1) + said, terms) == find_matched_terms(
        FILLER + said, terms
    )


@pytest.mark.parametrize("filler", ["kk ", "ké ", "桂"])
def test_a_word_inside_another_does_not_count(filler: str) -> None:
    assert find_matched_terms(filler * LONG, ["k", "ky", "林"]) == []


def test_a_text_of_thirteen_megabytes(db: SessionDB) -> None:
    db.create_session("log", "cli")
    db.append_message("log", "user", "key value line " * 850_000 + "the needles are here")
    [row] = db.search_sessions_ranked("where are the needles?")
    assert row["why"] == "matches needles"
    assert row["snippet"].endswith("the >>>needles<<< are here")
