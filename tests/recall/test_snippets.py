"""A snippet shows the text unchanged, at the place where the query matches best. This is true for every
input.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.recall.query.operators import parse
from hermes.recall.snippets.snippets import make_snippet
from hermes.store.query_tree import MessageText, matches
from tests.recall.test_query import fragments, texts


def show(query: str, text: str, tokens: int = 40) -> str:
    tree = parse(query)
    assert tree is not None
    return make_snippet(text, tree, tokens=tokens)


@pytest.mark.parametrize(
    ("query", "text", "shown"),
    [
        ("deploy", "we Deploy now", "we >>>Deploy<<< now"),
        ("deploy now", "we deploy it now", "we >>>deploy<<< it >>>now<<<"),
        ("a OR now NOT we", "we deploy now", "we deploy >>>now<<<"),
        ('"retry budget"', "retry the retry\nbudget", "retry the >>>retry\nbudget<<<"),
        ("src/main.py", "see src/main.py:42", "see >>>src/main.py<<<:42"),
        ("$5", "only $5 or 5", "only >>>$5<<< or 5"),
        ("->", "f() -> None", "f() >>>-><<< None"),
        ("dep*", "deployment", ">>>dep<<<loyment"),
        ("user", "call getUserName()", "call get>>>User<<<Name()"),
        ('"user name"', "call getUserName()", "call get>>>UserName<<<()"),
        ("cafe", "un Café noir", "un >>>Café<<< noir"),
        ("cafe", "un Cafe\u0301 noir", "un >>>Cafe\u0301<<< noir"),
        ("strasse", "die Straße lang", "die >>>Straße<<< lang"),
        ("abc", "ＡＢＣ …", ">>>ＡＢＣ<<< …"),
        ("елка", "новая Ёлка!", "новая >>>Ёлка<<<!"),
        ("youer", "修改youer服务端", "修改>>>youer<<<服务端"),
        ("服务", "修改youer服务端", "修改youer>>>服务<<<端"),
        ("改youer服", "修改youer服务端", "修>>>改youer服<<<务端"),
        ("ガ", "ｶﾞｽ", ">>>ｶﾞ<<<ｽ"),
        ("한국", "여기 한국어", "여기 >>>한국<<<어"),
        ("absent", "nothing here", "nothing here"),
        ("absent", "", ""),
    ],
)
def test_matches_are_marked_in_the_text_as_written(query: str, text: str, shown: str) -> None:
    assert show(query, text) == shown


def test_a_long_text_is_cut_on_both_sides() -> None:
    text = f"{'lead ' * 100}the retry budget was agreed{' tail' * 100}"
    shown = show("budget", text, tokens=5)
    assert shown == "...the retry >>>budget<<< was agreed..."


def test_the_best_cluster_is_shown_and_not_the_first_match() -> None:
    text = f"budget {'and so on ' * 60} the retry budget {'and so on ' * 60}"
    shown = show("retry budget", text, tokens=10)
    assert ">>>retry<<< >>>budget<<<" in shown


def test_a_text_without_spaces_is_measured_in_characters() -> None:
    shown = show("桂林", "广" * 1000 + "桂林" + "西" * 1000)
    assert shown.startswith("...广广")
    assert ">>>桂林<<<" in shown
    assert len(shown) < 60


@pytest.mark.parametrize("filler", ["lorem ipsum ", "ipsumlorem", "日本語の文章、", "naïve café — "])
@pytest.mark.parametrize("place", [0, 1_000_000, -1])
def test_a_match_is_found_in_millions_of_characters_and_the_work_is_bounded(filler: str, place: int) -> None:
    text = filler * (1_500_000 // len(filler))
    at = len(text) if place < 0 else place - place % len(filler)
    text = f"{text[:at]} the Retry budget {text[at:]}"
    started = time.process_time()
    shown = show("retry budget", text)
    assert time.process_time() - started < 2
    if at <= 900_000 or text.isascii():
        assert ">>>Retry<<< >>>budget<<<" in shown
    assert len(shown) < 800


def test_a_word_repeated_over_thirteen_megabytes() -> None:
    started = time.process_time()
    shown = show("absent", "x" * 13_000_000)
    assert time.process_time() - started < 2
    assert len(shown) < 800


def test_a_short_word_is_not_taken_for_a_piece_of_a_longer_one_far_away() -> None:
    text = f"{'category ' * 5_000}the cat sat. {'category ' * 5_000}"
    assert "the >>>cat<<< sat" in show("cat", text)


@given(st.lists(fragments, min_size=1, max_size=4).map(" ".join), texts, st.integers(-1, 60))
def test_a_snippet_is_the_text_with_marks_for_any_query(query: str, text: str, tokens: int) -> None:
    tree = parse(query)
    if tree is None:
        return
    shown = make_snippet(text, tree, tokens=tokens)
    bare = shown.replace(">>>", "").replace("<<<", "").replace("...", "").replace("<", "").replace(">", "")
    assert bare in text.replace("...", "").replace("<", "").replace(">", "")
    assert shown.count(">>>") >= shown.count("<<<") - text.count("<")


@example("deploy", "deploy\u00c5\u3099")
@given(fragments, texts)
def test_matches_in_a_short_text_are_marked(query: str, text: str) -> None:
    tree = parse(query)
    if tree is not None and ">" not in text and matches(tree, MessageText.of(text)):
        assert ">>>" in make_snippet(text, tree, tokens=400)


@given(st.text(), st.text())
def test_nothing_raises(query: str, text: str) -> None:
    tree = parse(query)
    if tree is not None:
        make_snippet(text, tree)
