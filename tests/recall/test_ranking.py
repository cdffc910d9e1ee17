"""The right conversation is ranked first. In each case another conversation contains the same words more
often.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hermes import clock, errors
from hermes.store.people import Principal
from hermes.store.values import SearchResults
from hermes_state import SessionDB
from tests.stored_rows import change_rows
from tests.tiers import scale_examples

ANSWER = "we settled on a retry budget of ten percent for the payment gateway"
QUESTION = "What did we decide about the retry budget of the payment gateway?"


def chat(db: SessionDB, name: str, *texts: str, source: str = "cli", at: float | None = None) -> str:
    """Create a session in which a person and the agent take turns."""
    db.create_session(name, source, started_at=at)
    for number, text in enumerate(texts):
        stamp = None if at is None else at + number
        db.append_message(name, "assistant" if number % 2 else "user", text, timestamp=stamp)
    return name


def ids(rows: Iterable[dict[str, Any]]) -> list[str]:
    return [row["session_id"] for row in rows]


@pytest.fixture
def answer(db: SessionDB) -> SessionDB:
    """Create a store with a few everyday conversations. One of them contains the answer."""
    chat(db, "garden", "when do I plant tomatoes?", "after the last frost, in a sunny place")
    chat(db, "answer", "how do we handle errors of the payment gateway?", ANSWER, "fine, ten percent it is")
    chat(db, "travel", "book a train to Lisbon", "there is a night train on Friday")
    return db


def marathon(db: SessionDB) -> None:
    db.create_session("marathon", "cli")
    words = ["retry", "budget", "payment", "gateway", "decide", "percent"]
    for number in range(400):
        text = f"step {number}: now we look at the {words[number % 6]} again, and at other things of the day"
        db.append_message("marathon", "assistant" if number % 2 else "user", text)


def pasted_log(db: SessionDB) -> None:
    lines = (
        f"2026-05-0{n % 9 + 1} WARN payment gateway retry {n} budget left, decide later" for n in range(800)
    )
    chat(db, "log", "look at this log\n" + "\n".join(lines), "it is long")


def repetition(db: SessionDB) -> None:
    chat(db, "echo", *["retry retry retry budget budget budget"] * 60)


def tool_output(db: SessionDB) -> None:
    db.create_session("tool", "cli")
    db.append_message("tool", "user", "run the tests")
    for _ in range(30):
        text = "retry budget payment gateway: PASSED\n" * 20
        db.append_message("tool", "tool", text, tool_name="terminal", tool_call_id="1")


def cron_noise(db: SessionDB) -> None:
    for number in range(40):
        chat(
            db,
            f"cron{number}",
            f"check the retry budget of the payment gateway {number}",
            "ok",
            source="cron",
        )


def subagents(db: SessionDB) -> None:
    for number in range(20):
        child = db.delegate("garden", session_id=f"child{number}")
        db.append_message(child, "user", "research the retry budget of a payment gateway")


LOUD = [marathon, pasted_log, repetition, tool_output, cron_noise, subagents]


@pytest.mark.parametrize("loud", LOUD, ids=lambda loud: loud.__name__)
def test_a_short_answer_is_ranked_above_frequent_mentions(answer: SessionDB, loud: Any) -> None:
    loud(answer)
    rows = answer.search_sessions_ranked(QUESTION)
    assert rows[0]["session_id"] == "answer"
    assert len(set(ids(rows))) == len(rows)


def test_a_conversation_with_very_many_matches_does_not_hide_others(answer: SessionDB) -> None:
    answer.create_session("obsessed", "cli")
    for number in range(2000):
        text = f"retry budget of the payment gateway, the payment gateway and its retry budget {number}"
        answer.append_message("obsessed", "user", text)
    assert set(ids(answer.search_sessions_ranked(QUESTION))) == {"obsessed", "answer"}


def test_the_answer_is_first_with_all_distractions_together(answer: SessionDB) -> None:
    for loud in LOUD:
        loud(answer)
    assert ids(answer.search_sessions_ranked(QUESTION))[0] == "answer"
    everything = answer.search_sessions_ranked(QUESTION, limit=100, include_hidden=True)
    assert everything[0]["session_id"] == "answer"
    assert {"job", "child", "chat"} == {row["kind"] for row in everything}


NOISE = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)
    INSERT INTO messages (session_id, role, content, timestamp) SELECT 'noise' || (i % 50), 'user',
        CASE i % 4 WHEN 0 THEN 'retry' WHEN 1 THEN 'budget' WHEN 2 THEN 'payment' ELSE 'gateway' END || ' talk', i
    FROM n"""


def test_the_answer_is_first_if_each_word_is_in_thousands_of_messages(answer: SessionDB) -> None:
    for number in range(50):
        answer.create_session(f"noise{number}", "cli")
    change_rows(answer, NOISE)
    for loud in LOUD:
        loud(answer)
    answer.optimize()
    found = answer.search_sessions_ranked(QUESTION)
    assert (ids(found)[0], found.order) == ("answer", "relevance")
    assert answer.search_conversations("retry budget payment gateway")[0]["conversation_id"] == "answer"


def test_a_row_has_the_match_its_place_and_the_reason(answer: SessionDB) -> None:
    answer.set_session_title("answer", "payments")
    row = answer.search_sessions_ranked(QUESTION)[0]
    shown = next(m for m in answer.get_messages("answer") if m["content"] == ANSWER)
    assert (row["message_id"], row["role"]) == (shown["id"], "assistant")
    assert ">>>retry<<<" in row["snippet"]
    assert row["why"] == "matches retry, budget, payment, gateway"
    assert (row["conversation_id"], row["tip_id"], row["title"]) == ("answer", "answer", "payments")
    assert (row["source"], row["kind"], row["order"]) == ("cli", "chat", "relevance")
    assert row["started_at"] <= row["last_active"]
    assert row["score"] > 0


def test_other_forms_of_a_word_are_found_and_shown(answer: SessionDB) -> None:
    (row,) = answer.search_sessions_ranked("planting tomato")
    assert row["session_id"] == "garden"
    assert ">>>plant<<< >>>tomatoes<<<" in row["snippet"]
    assert row["why"] == "matches plant, tomatoes"


def test_several_phrasings_find_what_each_of_them_finds(answer: SessionDB) -> None:
    assert ids(answer.search_sessions_ranked("railway journey")) == []
    found = answer.search_sessions_ranked(["railway journey", "night train", "frost"])
    assert set(ids(found)) == {"travel", "garden"}
    alone = answer.search_sessions_ranked("night train")[0]["score"]
    assert next(row["score"] for row in found if row["session_id"] == "travel") == alone


def test_a_conversation_is_one_row_and_shows_the_segment_that_holds_the_match(db: SessionDB) -> None:
    chat(db, "first", "the pelican is ringed", "noted")
    second = db.begin_continuation("first", "a summary of birds")
    db.append_message(second, "user", "the albatross is ringed as well")
    third = db.begin_continuation(second, "more birds")
    (row,) = db.search_sessions_ranked("ringed albatross")
    assert (row["session_id"], row["conversation_id"], row["tip_id"]) == (second, "first", third)
    (row,) = db.search_sessions_ranked("ringed pelican")
    assert (row["session_id"], row["conversation_id"], row["tip_id"]) == ("first", "first", third)


def test_the_current_conversation_is_left_out_before_the_limit_applies(db: SessionDB) -> None:
    chat(db, "old", "the heron stands in the pond")
    now = chat(db, "now", "heron heron pond", "heron pond")
    for number in range(5):
        now = db.begin_continuation(now, f"heron pond {number}")
    assert ids(db.search_sessions_ranked("heron pond", limit=1)) != ["old"]
    for segment in ("now", now):
        assert ids(db.search_sessions_ranked("heron pond", limit=1, exclude_session=segment)) == ["old"]
    assert len(db.search_sessions_ranked("heron pond", exclude_session="no such session")) == 2


def test_hidden_kinds_and_the_archive_are_found_when_asked_for(db: SessionDB) -> None:
    chat(db, "chat", "the kestrel hovers")
    chat(db, "job", "the kestrel hovers", source="cron")
    chat(db, "tool", "the kestrel hovers", source="tool")
    db.append_message(db.delegate("chat", session_id="child"), "user", "the kestrel hovers")
    chat(db, "archived", "the kestrel hovers")
    db.set_session_archived("archived", True)

    def found(**how: Any) -> set[str]:
        return set(ids(db.search_sessions_ranked("kestrel", **how)))

    assert found() == {"chat"}
    assert found(source_filter=["cron", "cli"]) == {"chat", "job"}
    assert found(include_hidden=True) == {"chat", "job", "tool", "child", "archived"}
    assert found(exclude_sources=["cli"]) == set()
    db.trash_session("chat")
    assert found() == set()


def test_roles_and_times_narrow_what_counts(db: SessionDB) -> None:
    chat(db, "a", "where do puffins nest?", "puffins nest in burrows", at=1_000.0)
    chat(db, "b", "puffins again", "yes", at=2_000.0)
    assert ids(db.search_sessions_ranked("puffins", role_filter=["assistant"])) == ["a"]
    assert ids(db.search_sessions_ranked("puffins", after=1_500.0)) == ["b"]
    assert ids(db.search_sessions_ranked("puffins", before=1_500.0)) == ["a"]
    # a form of the word that only blocks match
    assert ids(db.search_sessions_ranked("puffin", before=1_500.0)) == ["a"]


def test_an_order_by_time_shows_only_good_matches(db: SessionDB) -> None:
    chat(db, "old", "the curlew calls over the marsh", at=1_000.0)
    chat(db, "new", "again the curlew calls over the marsh", at=3_000.0)
    chat(db, "off", "a marsh " + "and other things " * 30, at=4_000.0)
    newest = db.search_sessions_ranked("curlew calls over the marsh", sort="newest")
    assert (ids(newest), newest.order) == (["new", "old"], "newest")
    assert ids(db.search_sessions_ranked("curlew calls over the marsh", sort="oldest")) == ["old", "new"]
    with pytest.raises(errors.InvalidArgument):
        db.search_sessions_ranked("curlew", sort="best")


def noon(year: int, month: int, day: int) -> float:
    return datetime(year, month, day, 12).astimezone().timestamp()


@pytest.mark.parametrize(
    "day", ["May 2nd", "2 May", "the 2nd of May", "May 2, 2024", "2024-05-02", "5月2日", "2024年5月2号"]
)
def test_a_day_that_is_named_brings_its_conversations_first(db: SessionDB, day: str) -> None:
    for number in range(1, 5):
        texts = (f"I visited museum number {number}", "how was it?")
        chat(db, f"may{number}", *texts, at=noon(2024, 5, number))
    chat(db, "silent", "nothing of that kind", at=noon(2024, 5, 2))
    rows = db.search_sessions_ranked(f"which museum did I visit on {day}?")
    assert rows[0]["session_id"] == "may2"
    assert rows[0]["why"].endswith("said on 2024-05-02")
    assert "silent" in ids(rows)
    assert set(ids(db.search_sessions_ranked(f"{day}"))) >= {"may2", "silent"}


def test_a_month_that_is_named_weighs_a_little(db: SessionDB) -> None:
    for month in (3, 5, 7):
        chat(db, f"month{month}", "we talked about the roof", at=noon(2024, month, 10))
    assert ids(db.search_sessions_ranked("what about the roof in May?"))[0] == "month5"
    assert ids(db.search_sessions_ranked("what about the roof in 2024-03?"))[0] == "month3"
    assert ids(db.search_sessions_ranked("5月 roof"))[0] == "month5"
    # "may" is not a month here, so the newest is first.
    assert ids(db.search_sessions_ranked("may we talk about the roof?"))[0] == "month7"


def test_a_question_about_the_words_of_the_agent_finds_its_messages(db: SessionDB) -> None:
    chat(db, "a", "do tell me about painters", "painters such as Klimt")
    assert db.search_sessions_ranked("which painters did you recommend?")[0]["role"] == "assistant"
    assert db.search_sessions_ranked("which painters was I asking for?")[0]["role"] == "user"


def test_operators_apply_if_something_matches_them(db: SessionDB) -> None:
    chat(db, "draft", "the exact phrase of the draft")
    chat(db, "final", "the exact phrase, in the end")
    chat(db, "loose", "a phrase that is exact")
    assert set(ids(db.search_sessions_ranked('"exact phrase"'))) == {"draft", "final"}
    assert ids(db.search_sessions_ranked('"exact phrase" NOT draft')) == ["final"]
    assert set(ids(db.search_sessions_ranked('"no such phrase"'))) == {"draft", "final", "loose"}


def test_chinese_questions_find_their_conversation(db: SessionDB) -> None:
    chat(db, "museum", "我今天去了博物馆，看了一个关于敦煌的展览", "听起来很有意思")
    chat(db, "food", "我做了糖醋排骨", "味道怎么样？")
    rows = db.search_sessions_ranked("你还记得我在博物馆看了什么展览吗？")
    assert rows[0]["session_id"] == "museum"
    assert "博物馆" in rows[0]["why"]


def test_a_person_finds_only_their_own_conversations(db: SessionDB) -> None:
    ann, bob = (db.scoped(Principal("telegram", name, f"dm-{name}")) for name in ("ann", "bob"))
    for store, name in ((ann, "ann"), (bob, "bob")):
        mine = store.create_session()
        store.append_message(mine, "user", f"the gull of {name}")
    chat(db, "local", "the gull of nobody")
    for store, name in ((ann, "ann"), (bob, "bob")):
        (row,) = store.search_sessions_ranked("which gulls are there?")
        assert row["snippet"].endswith(f"of {name}")
        assert len(store.search_messages("which of the gull are there?")) == 1
    assert len(db.search_sessions_ranked("gull", include_hidden=True)) == 3


def test_a_reading_handle_ranks_what_is_not_indexed_yet(db: SessionDB) -> None:
    chat(db, "a", "the dipper walks under water")
    assert ids(db.search_sessions_ranked("waters")) == ["a"]  # now the message is in a block
    with SessionDB(db.db_path, read_only=True) as reader:
        chat(db, "b", "the wren sings, and the dipper does not")
        assert ids(reader.search_sessions_ranked("wren")) == ["b"]
        change_rows(db, "UPDATE messages SET content = 'a goldcrest' WHERE session_id = 'a'")
        assert ids(reader.search_sessions_ranked("goldcrest")) == ["a"]
        assert ids(reader.search_sessions_ranked("water")) == []
        assert ids(reader.search_sessions_ranked("waters")) == []


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> SessionDB:
    store = SessionDB(tmp_path_factory.mktemp("birds") / "state.db")
    chat(store, "birds", "the swift and the swallow", "and the martin 🐦", at=noon(2024, 5, 2))
    return store


ODD = [
    "",
    " ",
    "?",
    '"',
    "NOT",
    "*",
    "the of and",
    "May 31 2024 02-30",
    "9999-99-99",
    "\x00",
    "a" * 5000,
    "🐦",
    "的",
]


@settings(max_examples=scale_examples(150))
@given(st.text() | st.sampled_from(ODD) | st.lists(st.text() | st.none(), max_size=3), st.integers(-1, 5))
@example("on May 99th or 0 May or 13月45日 or 2024-02-30", 3)
@example(None, 3)
@example([["x"]], 3)
def test_any_query_has_a_result(birds: SessionDB, query: Any, limit: int) -> None:
    rows = birds.search_sessions_ranked(query, limit)
    assert isinstance(rows, SearchResults)
    assert len(rows) <= max(0, limit)
    if isinstance(query, str):
        assert birds.search_messages(query, relax=True) is not None


@pytest.fixture
def hyphens(db: SessionDB) -> SessionDB:
    chat(db, "space", "foo bar baz")
    chat(db, "hyphen", "a foo-bar here")
    chat(db, "zebra", "zebra fish -> deployment")
    return db


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"foo-bar"', ["hyphen"]),
        ("foo NOT foo-bar", ["space"]),
        ("zebra NOT foo-bar", ["zebra"]),
        ("*oo-b*", ["hyphen"]),
        ("deplo*", ["zebra"]),
        ("->", ["zebra"]),
        ('"--"', []),
    ],
)
def test_a_strict_query_is_found_as_typed(hyphens: SessionDB, query: str, expected: list[str]) -> None:
    found = hyphens.search_sessions_ranked(query)
    assert (ids(found), found.relaxed) == (expected, False)
    assert all("exactly" not in row["why"] for row in found)


@pytest.mark.parametrize(
    "name", ["alice@example.com", "$5", "50%", "C:\\Users\\demo", "src/main.py:42", "don't"]
)
def test_a_name_with_punctuation_is_looked_for_as_it_is_written(db: SessionDB, name: str) -> None:
    chat(db, "written", f"of all the things that were said, some at great length, one was {name}")
    chat(db, "pieces", "alice example com 5 50 C Users demo src main py 42 don t", "alice example com 5 50")
    found = db.search_sessions_ranked(name)
    assert (ids(found), found.relaxed) == (["written"], False)
    assert ids(db.search_sessions_ranked("example?"))[0] == ids(db.search_sessions_ranked("example"))[0]


def test_approximate_matches_are_marked_and_come_last(hyphens: SessionDB) -> None:
    near = hyphens.search_sessions_ranked('"bar foo"')
    assert (set(ids(near)), near.relaxed) == ({"space", "hyphen"}, True)
    assert all(row["why"].startswith("nothing matches exactly; matches ") for row in near)
    day = clock.format_day(clock.now())
    assert set(ids(hyphens.search_sessions_ranked(f'"bar foo" {day}'))) >= {"space", "hyphen"}
    several = hyphens.search_sessions_ranked(['"bar foo"', "zebra"])
    assert (ids(several)[0], several.relaxed) == ("zebra", False)


def test_names_in_a_question_weigh_more_than_its_other_words(db: SessionDB) -> None:
    for number in range(40):
        chat(db, f"danielle{number}", f"Danielle likes tea and cake, number {number}")
    chat(db, "named", "Danielle was there for an hour, we reviewed the essay line by line in the office")
    chat(db, "other", "Peter was there, and we reviewed the essay line by line in the office")
    assert ids(db.search_sessions_ranked("what did danielle say when she reviewed the essay?"))[0] == "other"
    assert ids(db.search_sessions_ranked("What did Danielle say when she reviewed the essay?"))[0] == "named"


def test_words_that_are_together_in_the_question_and_in_a_message_weigh_more(db: SessionDB) -> None:
    filler = " ".join(f"and then we walked along the river {number}" for number in range(4))
    chat(db, "close", f"{filler} the garden shed needs new paint, said the neighbour who walked with us")
    chat(db, "apart", f"shed {filler} paint {filler[:40]} garden")
    for number in range(8):
        chat(db, f"other{number}", f"the river {number}")
    assert ids(db.search_sessions_ranked("What about the garden shed paint?"))[0] == "close"
    assert db.search_conversations("what about the garden shed paint")[0]["conversation_id"] == "close"


@pytest.mark.parametrize(
    "query",
    [
        "garden shed paint",
        "What did we say about the garden shed and its paint?",
        "shed",
        ["garden shed", '"no such phrase" garden', "$5.00"],
        "paint OR gate",
    ],
)
def test_scores_never_rise_down_the_list(db: SessionDB, query: Any) -> None:
    for number in range(50):
        said = [f"the garden {number} needs paint", f"the shed costs $5.00 {number}", "gate " * number]
        chat(db, f"s{number}", *said[number % 3 :], "garden shed" if number % 7 == 0 else "fine")
        if number % 10 == 0:
            db.set_session_title(f"s{number}", f"the shed and the garden paint {number}")
    found = [db.search_sessions_ranked(query, limit=50)]
    if isinstance(query, str):
        found.append(db.search_conversations(query, limit=50))
    for rows in found:
        scores = [row["score"] for row in rows]
        assert scores
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    "question",
    [
        "我曾经和你推荐过一部科幻电影，它的名字是？",
        "我喜欢的科幻电影,名字叫什么",
        "你推荐过《科幻》电影吗",
        "我用Python,你推荐了科幻电影",
    ],
)
def test_a_sentence_without_spaces_is_a_question_and_not_a_name(db: SessionDB, question: str) -> None:
    chat(db, "film", "我想看科幻电影", "推荐你看流浪地球")
    (row,) = found = db.search_sessions_ranked(question)
    assert not found.relaxed
    assert "nothing matches exactly" not in row["why"]
