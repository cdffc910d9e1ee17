"""The text that is passed to the full-text table results in the right index terms. The index and the
evaluator of queries find the same messages.
"""

from __future__ import annotations

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.store.query_tree import Literal, MessageText, make_phrase, make_word, matches
from hermes.store.sqlite.search.fts_input import distinct_words, list_tokens, split_tokens
from hermes.terms import MAX_TERM, index_text, index_texts, join_fields
from tests.test_terms import texts


@pytest.fixture(scope="module")
def table() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(words, parts, tokenize='ascii')")
    connection.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")
    return connection


def in_table(table: apsw.Connection, texts: tuple[str, str]) -> tuple[str, str]:
    table.execute("DELETE FROM t")
    table.execute("INSERT INTO t VALUES (?, ?)", texts)
    held_in: dict[str, list[str]] = {"words": [], "parts": []}
    for column, term in table.execute('SELECT col, term FROM v ORDER BY "offset"'):
        held_in[column].append(term)
    return " ".join(held_in["words"]), " ".join(held_in["parts"])


runs = st.text(st.sampled_from("aB3"), min_size=200, max_size=300)


@example("a" * (MAX_TERM + 1))
@given(texts | runs | st.lists(texts | runs, max_size=3).map(" ".join))
def test_the_input_of_the_full_text_table_gives_the_right_terms(table: apsw.Connection, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert in_table(table, split_tokens(text)) == index_text(text)
    assert tuple(" ".join(list_tokens(given)) for given in split_tokens(text)) == index_text(text)
    assert distinct_words(text).split() == list(dict.fromkeys(index_text(text)[0].split()))


@example(["...", "a"])
@given(st.lists(texts, max_size=4))
def test_fields_in_the_full_text_table_stay_separate(table: apsw.Connection, fields: list[str]) -> None:
    fields = [field.encode("utf-8", "replace").decode() for field in fields]
    assert in_table(table, join_fields([split_tokens(field) for field in fields])) == index_texts(*fields)


@given(text=texts, typed=texts, start=st.integers(0, 20), length=st.integers(1, 6), star=st.booleans())
def test_fts5_finds_the_terms_that_the_evaluator_finds(
    table: apsw.Connection, text: str, typed: str, start: int, length: int, star: bool
) -> None:
    text = text.encode("utf-8", "replace").decode()
    for leaf in (
        make_word(text[start : start + length], prefix=star),
        make_phrase(text[start:]),
        make_word(typed, prefix=star),
    ):
        if leaf is None or isinstance(leaf, Literal):
            continue
        demand = " + ".join(f'"{term}"' for term in leaf.terms) + (" *" if leaf.prefix_last else "")
        table.execute("DELETE FROM t")
        table.execute("INSERT INTO t VALUES (?, ?)", split_tokens(text))
        by_index = table.execute("SELECT count(*) FROM t WHERE t MATCH ?", (demand,)).get == 1
        message = MessageText.of(text)
        assert by_index == message.has_terms(leaf.terms, leaf.prefix_last)
        assert matches(leaf, message) == (
            by_index and (leaf.literal is None or message.has_literal(leaf.literal))
        )
