"""`search_conversations` uses the query language for people. It returns one row for each conversation and
marks results that match only approximately.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.stored_rows import change_rows
from tests.tiers import scale_examples

DAY = 86400
MARATHON = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
    INSERT INTO messages (session_id, role, content, timestamp) SELECT 'marathon', 'user', 'needle needle', i FROM n"""


def tell(
    db: SessionDB, session_id: str, *said: str, source: str = "cli", title: str = "", age: float = 0
) -> None:
    at = time.time() - age
    db.create_session(session_id, source, started_at=at)
    for text in said:
        db.append_message(session_id, "user", text, timestamp=at)
    if title:
        db.set_session_title(session_id, title)


def roots(db: SessionDB, query: str, **asked: object) -> list[str]:
    return [row["conversation_id"] for row in db.search_conversations(query, **asked)]  # type: ignore[arg-type]


def test_a_conversation_is_one_row_however_often_it_matches(db: SessionDB) -> None:
    tell(db, "marathon", *[f"needle {number}" for number in range(700)])
    tell(db, "short", "one needle here")
    assert sorted(roots(db, "needle")) == ["marathon", "short"]
    assert sorted(roots(db, "needle*")) == ["marathon", "short"]


def test_every_segment_belongs_to_one_row_that_names_the_tip(db: SessionDB) -> None:
    tell(db, "first", "a needle", title="haystack")
    db.begin_continuation("first", "the needle was found", session_id="second")
    [row] = db.search_conversations("needle")
    assert (row["conversation_id"], row["tip_id"], row["title"]) == ("first", "second", "haystack #2")


def test_a_title_weighs_more_than_a_mention(db: SessionDB) -> None:
    tell(db, "mentions", "the garden again, garden garden")
    tell(db, "titled", "roses and tulips", title="Garden")
    rows = db.search_conversations("garden")
    assert [row["conversation_id"] for row in rows] == ["titled", "mentions"]
    assert rows[0]["why"] == "in the title"
    assert rows[0]["snippet"] == "roses and tulips"
    assert all(row["exact"] for row in rows)


def test_titles_obey_the_filters(db: SessionDB) -> None:
    tell(db, "cron", "x", title="garden job", source="cron")
    tell(db, "phone", "x", title="garden phone", source="telegram", age=3 * DAY)
    tell(db, "put", "x", title="garden away")
    db.set_session_archived("put", True)
    assert roots(db, "garden") == ["phone"]
    assert roots(db, "garden", sources=["cron"]) == ["cron"]
    assert roots(db, "garden", after=time.time() - DAY) == []
    assert set(roots(db, "garden", include_hidden=True)) == {"cron", "phone", "put"}


def test_fields_alone_find_what_they_allow_newest_first(db: SessionDB) -> None:
    tell(db, "old", "hello", source="telegram", age=5 * DAY)
    tell(db, "new", "world", source="telegram", age=DAY)
    tell(db, "other", "hello")
    assert roots(db, "source:telegram") == ["new", "old"]
    assert roots(db, "source:telegram after:2d") == ["new"]
    assert roots(db, "source:telegram", sources=["cli"]) == []


def test_hidden_results_are_counted_by_reason(db: SessionDB) -> None:
    tell(db, "mine", "needle")
    for number in range(3):
        tell(db, f"cron{number}", "needle", source="cron")
    tell(db, "put", "needle")
    db.set_session_archived("put", True)
    found = db.search_conversations("needle")
    assert (len(found), found.hidden) == (1, {"cron": 3, "archived": 1})
    assert db.search_conversations("needle", include_hidden=True).hidden == {}


def test_an_expression_means_what_it_says(db: SessionDB) -> None:
    tell(db, "both", "apple pear")
    tell(db, "one", "apple")
    assert roots(db, "apple NOT pear") == ["one"]
    assert roots(db, '"pear apple"') == ["both", "one"]
    assert db.search_conversations('"pear apple"').relaxed
    assert not db.search_conversations("apple NOT pear").relaxed


def test_trashed_and_rewound_messages_are_not_found(db: SessionDB) -> None:
    tell(db, "gone", "needle", title="needle")
    tell(db, "back", "hello", "needle")
    db.trash_session("gone")
    db.rewind_to_message("back", db.get_messages("back")[1]["id"])
    assert roots(db, "needle") == []


@settings(max_examples=scale_examples(80))
@given(query=st.text(max_size=60))
def test_any_string_is_a_query(tmp_path_factory: pytest.TempPathFactory, query: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.db"
    with SessionDB(path) as db:
        db.ensure_session("one", "cli")
        if not db.message_count("one"):
            db.append_message("one", "user", 'any "text" (with) source:cli *stars* AND 桂林')
        for row in db.search_conversations(query):
            assert row["conversation_id"] == "one"


def test_the_last_word_of_a_live_query_is_a_prefix(db: SessionDB) -> None:
    tell(db, "one", "refactoring the auth module")
    tell(db, "two", "reading in the garden", title="Refuge")
    assert roots(db, "ref") == ["two"]
    assert roots(db, "ref", unfinished=True) == ["two", "one"]
    assert roots(db, "auth r", unfinished=True) == ["one"]
    assert roots(db, "r", unfinished=True) == ["two", "one"]
    assert roots(db, "the refac ", unfinished=True) == ["one"]  # found as a part of a word
    assert roots(db, "the rex ", unfinished=True) == []


def test_an_unclosed_group_is_a_group(db: SessionDB) -> None:
    tell(db, "one", "refactoring the auth module")
    tell(db, "two", "reading in the garden")
    assert roots(db, "(ref", unfinished=True) == ["one"]
    assert set(roots(db, "(refactoring OR gar", unfinished=True)) == {"one", "two"}
    assert roots(db, "the (garden OR xyz) (rea", unfinished=True) == ["two"]
    assert roots(db, "foo(r", unfinished=True) == []


def test_an_answer_says_whether_there_are_more_conversations(db: SessionDB) -> None:
    for number in range(3):
        tell(db, f"s{number}", "a needle", title=f"haystack {number}")
    assert [db.search_conversations("needle", limit).capped for limit in (1, 2, 3, 4)] == [
        True,
        True,
        False,
        False,
    ]
    assert [db.search_conversations("haystack", limit).capped for limit in (2, 3)] == [True, False]


def test_thousands_of_matches_in_one_conversation_hide_no_other(db: SessionDB) -> None:
    tell(
        db,
        "short",
        "among other things, and after a good deal of talk about the weather, one needle",
        age=9 * DAY,
    )
    db.create_session("marathon", "cli")
    change_rows(db, MARATHON)
    found = db.search_conversations("needle")
    assert sorted(row["conversation_id"] for row in found) == ["marathon", "short"]
    assert not found.capped


@pytest.mark.parametrize(
    "title", ["50% off", "my_plan", "Café", "wow! really", "ＦＵＬＬ width", "İstanbul", "桂林"]
)
def test_a_title_is_found_as_it_is_written(db: SessionDB, title: str) -> None:
    tell(db, "titled", "x", title=title)
    tell(db, "other", "x", title="5 percent of my plan, wow and so on")
    assert roots(db, title) == ["titled"]
    assert roots(db, title.upper()) == ["titled"]


def test_a_word_may_have_any_length(db: SessionDB) -> None:
    tell(db, "titled", "x", title="a plan")
    tell(db, "said", "y" * 300)
    assert roots(db, "x" * 100_000) == []
    assert roots(db, "plan " + "x" * 100_000) == []
    assert roots(db, "y" * 300) == ["said"]


def test_a_score_never_rises_down_the_list(db: SessionDB) -> None:
    texts = {
        "rare": "retry budget " + "and many other words about something else " * 40,
        "near": "retry retry retry. The retry of the upload: retry it.",
        "named": "what is left of it",
        "both": "the retry budget",
    }
    for name, text in texts.items():
        db.create_session(name, "cli")
        db.append_message(name, "user", text)
    db.set_session_title("named", "retry budget")
    for query in ("retry budget", "retry", "what is the retry budget?", '"retry budget"', "retry source:cli"):
        found = db.search_conversations(query)
        scores = [row["score"] for row in found]
        assert found
        assert scores == sorted(scores, reverse=True), query
    assert {row["conversation_id"] for row in db.search_conversations("retry budget")} == set(texts)


def test_a_snippet_of_a_tool_call_reads_as_text(db: SessionDB) -> None:
    arguments = '{"path": "tests/test_auth.py", "limit": 9, "edit": {"old": "pass", "new": ["raise"]}}'
    command = '{"command": "make zebra"}'
    calls = [
        {"id": "call_7", "type": "function", "function": {"name": "terminal", "arguments": command}},
        {"id": "call_8", "type": "function", "function": {"name": "read_file", "arguments": arguments}},
    ]
    db.create_session("one", "cli")
    db.append_message("one", "assistant", None, tool_calls=calls)
    expected = "terminal: make >>>zebra<<<"
    assert db.search_messages("zebra")[0]["snippet"].splitlines()[0] == expected
    assert db.search_conversations("zebra")[0]["snippet"].splitlines()[0] == expected
    assert db.search_sessions_ranked("zebra")[0]["snippet"].splitlines()[0] == expected
    assert (
        ">>>test_auth.py<<< limit=9 edit=old pass new raise"
        in db.search_messages("test_auth.py")[0]["snippet"]
    )
    assert ">>>call_7<<<" in db.search_messages("call_7")[0]["snippet"]
