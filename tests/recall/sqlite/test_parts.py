"""A search for a part of a word is exact, even if other programs replace rows. It reads a limited number of
the terms that contain the part.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.store.people import Principal
from hermes.store.sqlite.search.substring import MOST_TERMS
from hermes_state import SessionDB
from tests.interface.sqlite.test_search_exact import ANY_CHANGES, apply_any
from tests.interface.test_search_exact import EVERYTHING, MESSAGES
from tests.recall.test_parts import QUERIES, UPKEEP, Asked, Row, check_changes, found
from tests.tiers import scale_examples

ANN = Principal("telegram", "ann", "dm", "dm-ann")
BOB = Principal("telegram", "bob", "dm", "dm-bob")


@settings(max_examples=scale_examples(80))
@given(
    st.lists(MESSAGES, min_size=1, max_size=5),
    st.lists(ANY_CHANGES | UPKEEP, min_size=1, max_size=5),
    st.lists(QUERIES, min_size=2, max_size=4),
)
def test_the_result_stays_exact_when_rows_are_replaced(
    shelf: SessionDB, messages: list[Row], changes: list[tuple[str, int, Row]], queries: list[Asked]
) -> None:
    check_changes(shelf, messages, changes, queries, apply_any)


def test_a_person_finds_only_their_own_messages(db: SessionDB) -> None:
    ann, bob = db.scoped(ANN), db.scoped(BOB)
    mine, his = ann.create_session(), bob.create_session()
    terms = [f"key{number:03}x" for number in range(MOST_TERMS)]
    number = ann.append_message(mine, "user", " ".join(terms))
    assert found(ann, "*key*") == [number]
    other = bob.append_message(his, "user", "key999secret anotherTerm")
    assert found(bob, "*key*") == [other]
    # Another term contains the part, but only in Bob's session. It must not affect Ann's results.
    assert found(ann, "*key*") == [number]
    assert found(ann, "*y999se*") == found(ann, "*herter*") == []
    db._engine.catch_up(5)
    assert found(ann, "*key*") == [number]
    assert found(bob, "*key*") == [other]
    assert db.search("*key*").cut == ("key",)


def test_a_search_of_only_the_most_frequent_terms_is_reported(db: SessionDB) -> None:
    db.create_session("s", "cli")
    often = [db.append_message("s", "user", f"prefix0 again {number}") for number in range(3)]
    for number in range(1, MOST_TERMS + 10):
        db.append_message("s", "user", f"prefix{number} last{'' if number > 5 else ' few'}")
    db._engine.catch_up(5)
    results = db.search("*refix*", limit=EVERYTHING)
    assert results.cut == ("refix",)
    assert len(results) == MOST_TERMS + 2
    assert {row["id"] for row in results} > set(often)
    # other words and exclusions are still exact
    assert len(found(db, "*refix* few")) == 5
    assert len(found(db, "last NOT *refix*")) == 0
    assert len(found(db, "again NOT *efix1*")) == 3
