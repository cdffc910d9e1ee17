"""After any sequence of loading and removing, the loaded rows equal the rows of the store at the same
positions.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from hermes.browser.rows import KEPT, PAGE, Conversation, Rows


def one(name: str) -> Conversation:
    return Conversation(
        id=name,
        root_id=name,
        title=name,
        preview="",
        source="cli",
        kind="chat",
        started_at=0,
        last_active=0,
        messages=0,
        pinned=False,
        archived=False,
    )


@example(
    total=400, steps=[("look", 20), ("look", 120), ("look", 320), ("first", 0), ("look", 221), ("look", 0)]
)
@given(
    total=st.integers(0, 1_200),
    steps=st.lists(
        st.tuples(st.sampled_from(["look", "remove", "first"]), st.integers(0, 1_300)), max_size=30
    ),
)
def test_loaded_rows_equal_the_rows_of_the_store(total: int, steps: list[tuple[str, int]]) -> None:
    store = [one(f"s{number}") for number in range(total)]
    rows, first = Rows(total), list[Conversation]()
    for what, index in steps:
        if what == "look":
            for offset in rows.find_missing(index, index + 30):
                assert rows.count_rest(offset) == len(store) - offset
                rows.put(offset, store[offset : offset + PAGE])
            for near in range(index, min(index + 30, rows.total - 1) + 1):
                assert rows.get(near) == [*first, *store][near]
        elif what == "remove" and (gone := rows.get(index)) is not None:
            rows.remove({gone.root_id})
            first = [row for row in first if row is not gone]
            store = [row for row in store if row is not gone]
        elif what == "first" and not first:
            first = [one("before all")]
            rows.put_first(first[0])
        shown = [*first, *store]
        assert rows.total == len(shown)
        assert len(rows) <= KEPT + len(first)
        assert all(rows.get(at) in (None, row) for at, row in enumerate(shown))
