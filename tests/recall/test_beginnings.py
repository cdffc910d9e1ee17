"""Prefixes of one or two letters find exactly the matching messages in a store of any size. A live search
sends such prefixes while a person types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.oracle import oracle_matches
from tests.stored_rows import change_rows

MANY = 10_400
EVERYTHING = 100_000
FILL = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
    INSERT INTO messages (session_id, role, content, timestamp)
    SELECT 's' || (i % 7), 'user', CASE WHEN i % 3000 = 0 THEN 'a rare myQuirk: ' ELSE '' END || 'the common Straße '
        || CASE WHEN i % 2 = 1 THEN 'odd foo-bar' ELSE 'even éclair' END, i FROM n"""


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionDB]:
    """Create ten thousand messages. The last ones include a long message, one that was changed after it was
    indexed, and one that was rewound."""
    with SessionDB(tmp_path_factory.mktemp("letters") / "state.db", durability="normal") as db:
        for number in range(7):
            db.create_session(f"s{number}", "cli" if number else "telegram", started_at=1.0)
        change_rows(db, FILL, MANY)
        long = db.append_message("s1", "user", f"yonder {'lorem ' * 5_000}")
        for number in range(40):
            db.append_message("s2", "assistant", f"kiwi common {number}")
        db.optimize()
        change_rows(db, "UPDATE messages SET content = 'xylophone common' WHERE id = ?", long + 1)
        db.append_message("s3", "user", "kept, not indexed yet")
        db.append_message("s4", "user", "kiwi taken back")
        db.rewind_to_message("s4", db.get_messages("s4")[-1]["id"])
        yield db


@pytest.fixture(scope="module")
def rows(letters: SessionDB) -> list[dict[str, Any]]:
    """Return all messages that a search may find."""
    return [row for number in range(7) for row in letters.get_messages(f"s{number}") if row["active"]]


USUAL_QUERIES = ("x*", "ki* common", "foo-b*", "odd OR k*", "c* NOT odd", "q* common")
MORE_QUERIES = (
    *("c*", "k*", "y*", "q*", "z*", "e*", "st*", "common c*", "e* common", "common foo-b*"),
    *("common NOT e*", "(e* odd", "k* c*", "rare c* OR x*"),
)


@pytest.mark.parametrize(
    "query", [*USUAL_QUERIES, *(pytest.param(query, marks=pytest.mark.full) for query in MORE_QUERIES)]
)
def test_a_prefix_finds_what_the_oracle_finds(
    letters: SessionDB, rows: list[dict[str, Any]], query: str
) -> None:
    different = {row["content"]: row for row in rows}
    told = {content: oracle_matches(query, row) for content, row in different.items()}
    expected = sorted(row["id"] for row in rows if told[row["content"]])
    for sort in ("relevance", "newest"):
        found = [
            row["id"] for row in letters.search_messages(query, limit=EVERYTHING, sort=sort, relax=False)
        ]
        assert sorted(found) == expected
        if sort == "newest":
            assert found == sorted(found, reverse=True)


def test_filters_and_pages_hold(letters: SessionDB) -> None:
    everything = [row["id"] for row in letters.search_messages("c*", limit=EVERYTHING, sort="newest")]
    pages = [
        letters.search_messages("c*", limit=300, offset=start, sort="newest") for start in range(0, 1200, 300)
    ]
    assert [row["id"] for page in pages for row in page] == everything[:1200]
    phone = letters.search_messages("c*", source_filter=["telegram"], limit=5)
    assert ({row["session_id"] for row in phone}, phone.order, phone.capped) == ({"s0"}, "newest", True)
    assert [row["id"] for row in letters.search_messages("c*", before=4.0)] == [3, 2, 1]


def test_conversations_are_found_while_a_word_is_being_typed(letters: SessionDB) -> None:
    assert {row["conversation_id"] for row in letters.search_conversations("c", unfinished=True)} == {
        f"s{number}" for number in range(7)
    }
    begun = letters.search_conversations("common k", unfinished=True)
    assert [row["conversation_id"] for row in begun if row["exact"]] == ["s2"]
