"""Parts of words are found exactly beside programs that replace rows."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.interface.sqlite.test_search_exact import ANY_CHANGES, apply_any
from tests.interface.test_search_exact import MESSAGES
from tests.recall.test_parts import QUERIES, UPKEEP, Asked, Row, check_changes


@settings(max_examples=80)
@given(
    st.lists(MESSAGES, min_size=1, max_size=5),
    st.lists(ANY_CHANGES | UPKEEP, min_size=1, max_size=5),
    st.lists(QUERIES, min_size=2, max_size=4),
)
def test_it_stays_exact_whatever_replaces_the_rows(
    shelf: SessionDB, messages: list[Row], changes: list[tuple[str, int, Row]], queries: list[Asked]
) -> None:
    check_changes(shelf, messages, changes, queries, apply_any)
