"""Search results stay exact when programs replace rows. SQLite runs no DELETE trigger for a replaced row."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.interface.test_search_exact import CHANGES, MESSAGES, QUERIES, apply, check_changes, column
from tests.tiers import scale_examples

ANY_CHANGES = CHANGES | st.tuples(st.just("replace row"), st.integers(0, 5), MESSAGES)
REPLACE = "REPLACE INTO messages (id, session_id, role, content, timestamp) VALUES (?, ?, 'user', ?, 1)"


def apply_any(db: SessionDB, sessions: list[str], kind: str, nth: int, message: dict[str, Any]) -> None:
    if kind != "replace row":
        apply(db, sessions, kind, nth, message)
        return
    numbers = [row["id"] for row in db.get_messages(sessions[0])]
    picked = numbers[nth % len(numbers)] if numbers else None
    db.raw().execute(REPLACE, (picked, sessions[0], column(message["content"])))


@settings(max_examples=scale_examples(80))
@given(
    st.lists(MESSAGES, min_size=1, max_size=5),
    st.lists(ANY_CHANGES, min_size=1, max_size=5),
    st.lists(QUERIES, min_size=3),
)
def test_the_result_set_stays_exact_when_rows_are_replaced(
    shelf: SessionDB,
    messages: list[dict[str, Any]],
    changes: list[tuple[str, int, dict[str, Any]]],
    queries: list[str],
) -> None:
    check_changes(shelf, messages, changes, queries, apply_any)
