"""Queries for which the full-text index can reduce the number of messages that are examined."""

from __future__ import annotations

import pytest

from hermes.recall.query.operators import parse
from hermes.store.sqlite.search.index_walk import format_fts5


@pytest.mark.parametrize(
    ("query", "can_narrow"),
    [
        ("a b", True),
        ("a-b", True),
        ("->", False),
        ("a ->", True),
        ("a OR ->", False),
        ("a NOT b", True),
        ("a OR NOT b", False),
    ],
)
def test_which_queries_use_the_index(query: str, can_narrow: bool) -> None:
    tree = parse(query)
    assert tree is not None
    assert (format_fts5(tree) is not None) == can_narrow
