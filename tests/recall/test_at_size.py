"""Searches for words that occur in more than ten thousand messages, and searches that are ordered by time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hermes.store.values import SearchResults
from hermes_state import SessionDB
from tests.stored_rows import change_rows

MANY = 10_400
EVERYTHING = 100_000

FILL = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
    INSERT INTO messages (session_id, role, content, timestamp)
    SELECT 's' || (i % 7), 'user', CASE WHEN i % 3000 = 0 THEN 'the common thread and a rare one'
        ELSE 'the common thread' END || CASE WHEN i % 2 = 1 THEN ' odd' ELSE ' even' END, i FROM n"""


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionDB]:
    with SessionDB(tmp_path_factory.mktemp("crowd") / "state.db", durability="normal") as db:
        for number in range(7):
            db.create_session(f"s{number}", "cli" if number else "telegram", started_at=1.0)
        change_rows(db, FILL, MANY)
        db.optimize()
        yield db


def numbers(rows: SearchResults) -> list[int]:
    return [row["id"] for row in rows]


@pytest.mark.parametrize(
    "query", ["common", "common thread", '"common thread"', "comm*", "common NOT absent"]
)
def test_a_query_of_only_common_words_returns_the_newest_first(crowd: SessionDB, query: str) -> None:
    found = crowd.search_messages(query, limit=5, offset=2)
    assert numbers(found) == [MANY - 2 - back for back in range(5)]
    assert (found.order, found.capped) == ("newest", True)


def test_the_result_of_a_query_of_common_words_is_exact(crowd: SessionDB) -> None:
    found = crowd.search_messages("common", limit=EVERYTHING)
    assert sorted(numbers(found)) == list(range(1, MANY + 1))
    assert not found.capped
    some = crowd.search_messages("common odd", limit=EVERYTHING)
    assert (len(some), some.order) == (MANY // 2, "relevance")


def test_filters_apply_to_a_query_of_common_words(crowd: SessionDB) -> None:
    found = crowd.search_messages("common", source_filter=["telegram"], limit=3)
    assert [row["session_id"] for row in found] == ["s0"] * 3
    assert crowd.search_messages("common", source_filter=["discord"], limit=3) == []
    early = crowd.search_messages("common", before=4.0, limit=10)
    assert (numbers(early), early.capped) == ([3, 2, 1], False)


def test_the_rare_branches_of_an_or_come_before_the_common_ones(crowd: SessionDB) -> None:
    found = crowd.search_messages("common OR rare", limit=6)
    assert sorted(numbers(found)[:3]) == [3000, 6000, 9000]
    assert numbers(found)[3:] == [MANY, MANY - 1, MANY - 2]
    assert (found.order, found.capped) == ("relevance", True)
    everything = crowd.search_messages("common OR rare", limit=EVERYTHING)
    assert sorted(numbers(everything)) == list(range(1, MANY + 1))


def test_conversations_too_are_answered_newest_first_when_every_word_is_very_common(crowd: SessionDB) -> None:
    rows = crowd.search_sessions_ranked("common thread")
    assert [row["session_id"] for row in rows] == [f"s{(MANY - back) % 7}" for back in range(7)]
    assert {row["order"] for row in rows} == {rows.order} == {"newest"}
    assert "very common" in rows[0]["why"]
    ranked = crowd.search_sessions_ranked("a rare common thread", limit=1)
    assert (ranked.order, ranked[0]["message_id"] % 3000) == ("relevance", 0)
    either = crowd.search_sessions_ranked(["common thread", "rare"], limit=7)
    assert [row["order"] for row in either][:3] == ["relevance"] * 3
    assert {row["session_id"] for row in either} == {f"s{number}" for number in range(7)}


COMMON = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
    INSERT INTO messages (session_id, role, content, timestamp) SELECT 's' || (i % 7), 'user',
        CASE i % 4 WHEN 0 THEN 'alder' WHEN 1 THEN 'birch' WHEN 2 THEN 'cedar' ELSE 'other' END || ' talk', i FROM n"""


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionDB]:
    """Create many messages with three words, each word in a quarter of the messages, and one conversation
    that contains two of the words."""
    with SessionDB(tmp_path_factory.mktemp("forest") / "state.db", durability="normal") as db:
        for number in range(7):
            db.create_session(f"s{number}", "cli", started_at=1.0)
        db.create_session("answer", "cli", started_at=1.0)
        db.append_message("answer", "user", "birch or cedar for the table?", timestamp=0.5)
        change_rows(db, COMMON, MANY)
        db.optimize()
        yield db


@pytest.mark.parametrize("query", ["alder birch cedar", "birch cedar", "which table, alder, birch or cedar?"])
def test_a_conversation_with_two_words_is_found_among_thousands_with_one(
    forest: SessionDB, query: str
) -> None:
    found = forest.search_sessions_ranked(query)
    assert (found[0]["session_id"], found.order) == ("answer", "relevance")


def test_another_form_of_a_word_is_found_beside_common_ones(forest: SessionDB) -> None:
    found = forest.search_sessions_ranked("tables alder birch")
    assert (found[0]["session_id"], found.order) == ("answer", "relevance")


def test_a_query_without_a_strict_match_is_ranked(forest: SessionDB) -> None:
    found = forest.search_sessions_ranked("alder NOT talk")
    assert (found.order, {row["order"] for row in found}) == ("relevance", {"relevance"})


def test_a_word_in_every_message_returns_the_newest_first(forest: SessionDB) -> None:
    found = forest.search_sessions_ranked("talk")
    assert (found[0]["session_id"], found.order) == (f"s{MANY % 7}", "newest")


@pytest.mark.parametrize("sort", ["relevance", "newest", "oldest"])
def test_an_answer_says_whether_more_match(db: SessionDB, sort: str) -> None:
    db.create_session("s", "cli")
    for number in range(6):
        db.append_message("s", "user", f"heron {number}")
    assert db.search_messages("heron", limit=5, sort=sort).capped
    assert not db.search_messages("heron", limit=6, sort=sort).capped
    assert db.search_messages("heron", limit=2, offset=3, sort=sort).capped
    assert not db.search_messages("heron", limit=2, offset=4, sort=sort).capped
    assert not db.search_messages("heron", limit=-1, sort=sort).capped


def test_results_have_the_requested_order_of_time(db: SessionDB) -> None:
    db.create_session("s", "cli")
    ids = [db.append_message("s", "user", f"plover {n}" + " plover" * (n % 3)) for n in range(20)]
    db.search_sessions_ranked("plover")  # indexes everything
    ids += [db.append_message("s", "user", f"plover {n}") for n in range(5)]
    change_rows(db, "UPDATE messages SET content = 'plover changed' WHERE id = ?", ids[3])
    newest = db.search_messages("plover", sort="newest", limit=EVERYTHING)
    assert (numbers(newest), newest.order, newest.capped) == (ids[::-1], "newest", False)
    oldest = db.search_messages("plover", sort="oldest", limit=4)
    assert (numbers(oldest), oldest.order, oldest.capped) == (ids[:4], "oldest", True)
    with SessionDB(db.db_path, read_only=True) as reader:
        assert numbers(reader.search_messages("plover", sort="oldest", limit=EVERYTHING)) == ids
    assert numbers(db.search_messages("!", sort="oldest")) == []
    last = db.append_message("s", "user", "plover!")
    assert numbers(db.search_messages("!", sort="newest")) == [last]


def test_unindexed_messages_are_found_with_their_current_text(db: SessionDB) -> None:
    db.create_session("s", "cli")
    first, second = (db.append_message("s", "user", text) for text in ("a heron", "another heron"))
    with SessionDB(db.db_path, read_only=True) as reader:
        for _ in range(2):
            assert numbers(reader.search_messages("heron")) == [second, first]
        change_rows(db, "UPDATE messages SET content = 'an egret' WHERE id = ?", first)
        assert numbers(reader.search_messages("heron")) == [second]
        assert numbers(reader.search_messages("egret")) == [first]
        change_rows(db, "DELETE FROM messages WHERE id = ?", second)
        assert numbers(reader.search_messages("heron")) == []


def test_a_time_range_holds_for_messages(db: SessionDB) -> None:
    db.create_session("s", "cli")
    ids = [db.append_message("s", "user", "teal", timestamp=float(at)) for at in (10, 20, 30)]
    assert numbers(db.search_messages("teal", after=20.0, sort="oldest")) == ids[1:]
    assert numbers(db.search_messages("teal", before=20.0)) == ids[:1]
    assert numbers(db.search_messages("teal", after=11, before=29)) == [ids[1]]


QUESTION = "which birds did we see on the pond near the mill?"


@pytest.fixture
def pond(db: SessionDB) -> SessionDB:
    db.create_session("s", "cli")
    db.append_message("s", "user", "we saw two grebes on the pond")
    db.append_message("s", "assistant", "grebes are shy birds, and the mill is near")
    db.append_message("s", "user", "I had soup for lunch")
    return db


def test_a_question_without_a_match_returns_approximate_matches(pond: SessionDB) -> None:
    found = pond.search_messages(QUESTION)
    assert found.relaxed
    assert [row["role"] for row in found] == ["assistant", "user"]
    assert ">>>birds<<<" in found[0]["snippet"]
    assert set(found[0]) == set(pond.search_messages("grebes")[0])
    assert [row["role"] for row in pond.search_messages(QUESTION, offset=1)] == ["user"]
    assert [row["role"] for row in pond.search_messages(QUESTION, role_filter=["user"])] == ["user"]
    assert pond.search_messages(QUESTION, relax=False) == []


def test_strict_and_approximate_matches_are_never_mixed(pond: SessionDB) -> None:
    found = pond.search_messages("what grebes did we see near the pond? grebes OR soup")
    assert not found.relaxed
    pond.append_message("s", "user", QUESTION)
    exact = pond.search_messages(QUESTION)
    assert (len(exact), exact.relaxed) == (1, False)
    assert pond.search_messages(QUESTION, offset=1) == []


@pytest.mark.parametrize(
    "query", ["grebes soup", "grebes AND soup", '"soup pond"', "soup NOT lunch", "mill soup shy"]
)
def test_short_queries_and_expressions_are_strict_by_default(pond: SessionDB, query: str) -> None:
    assert pond.search_messages(query) == []
    found = pond.search_messages(query, relax=True)
    assert found
    assert found.relaxed
