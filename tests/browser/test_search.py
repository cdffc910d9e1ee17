"""The browser searches titles and contents while the person types. It shows the results of the last query."""

from __future__ import annotations

import pytest

from hermes.browser.view_state import View
from hermes_state import SessionDB
from tests.browser.conftest import HOUR, AddSession, Browsing


async def test_matching_text_is_shown_below_the_name(browsing: Browsing, add_session: AddSession) -> None:
    add_session("a", "how do I brew coffee", title="Mornings")
    add_session("b", "the kubernetes ingress is down", title="Work")
    async with browsing() as screen:
        await screen.type("ingress")
        assert screen.names == ["Work"]
        assert "the kubernetes ingress is down" in screen.lines[2]
        assert screen.status == "1 of 1 found · best first"


async def test_words_that_match_only_inside_others_are_named(
    browsing: Browsing, add_session: AddSession
) -> None:
    add_session("a", "call getUserByIdAndName", title="Code")
    async with browsing() as screen:
        await screen.type("serById")
        assert screen.names == ["Code"]
        assert screen.status == "1 of 1 found · as part of a word: serById · best first"


async def test_the_best_of_more_are_called_so(browsing: Browsing, add_session: AddSession) -> None:
    for name in ("a", "b", "c"):
        add_session(name, "the zebra of today")
    async with browsing(View(limit=2)) as screen:
        await screen.type("zebra")
        assert screen.status.startswith("1 of the best 2 found")
    async with browsing(View(limit=3)) as screen:
        await screen.type("zebra")
        assert screen.status.startswith("1 of 3 found")


async def test_a_snippet_that_fits_is_shown_from_its_beginning(
    browsing: Browsing, add_session: AddSession
) -> None:
    add_session("a", f"{'so ' * 14}zebra", title="Stripes")
    async with browsing() as screen:
        await screen.type("zebra")
        assert f"{'so ' * 14}zebra" in screen.lines[2]


@pytest.mark.parametrize("typed", ["kuber", "k", "Kubernetes ing", "work", "the WORK", "source:cli kube"])
async def test_the_beginning_of_a_word_or_title_is_enough(
    browsing: Browsing, add_session: AddSession, typed: str
) -> None:
    add_session("a", "how do I brew coffee", title="Mornings")
    add_session("b", "the kubernetes ingress is down", title="The work of a day")
    async with browsing() as screen:
        await screen.type(typed)
        assert screen.names == ["The work of a day"]


@pytest.mark.parametrize("typed", ["桂", "桂林", "广西"])
async def test_chinese_is_found(browsing: Browsing, add_session: AddSession, typed: str) -> None:
    add_session("a", "我们去广西桂林")
    add_session("b", "something else")
    async with browsing() as screen:
        await screen.type(typed)
        assert screen.names == ["我们去广西桂林"]


async def test_a_conversation_is_shown_once_and_as_its_live_session(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("root", "zebra one", "zebra two", title="Stripes")
    db.begin_continuation("root", "summary with a zebra", session_id="tip")
    async with browsing() as screen:
        await screen.type("zebra")
        assert len(screen.names) == 1
        await screen.press("enter")
    assert screen.app.return_value == "tip"


async def test_escape_clears_the_query_and_then_leaves(browsing: Browsing, add_session: AddSession) -> None:
    add_session("a")
    async with browsing() as screen:
        await screen.type("nothing like it")
        assert screen.names == []
        assert screen.status.startswith("nothing found")
        await screen.press("escape")
        assert screen.names == ["hello from a"]
        await screen.press("escape")
    assert screen.app.return_value is None
    assert screen.app.return_code == 0


async def test_enter_opens_the_result_of_the_whole_query(browsing: Browsing, add_session: AddSession) -> None:
    add_session("newest", "tea", age=1)
    add_session("wanted", "the zebra", age=HOUR)
    async with browsing() as screen:
        await screen.pilot.press(*"zebra", "enter")
        await screen.settle()
    assert screen.app.return_value == "wanted"


async def test_results_that_filters_hide_are_counted(browsing: Browsing, add_session: AddSession) -> None:
    add_session("a", "the zebra")
    add_session("nightly", "a zebra again", source="cron")
    async with browsing() as screen:
        await screen.type("zebra")
        assert screen.names == ["the zebra"]
        assert "1 cron hidden" in screen.status
    async with browsing(View(query="zebra", sources=("cron",))) as screen:
        assert screen.names == ["a zebra again"]


async def test_results_can_be_sorted(browsing: Browsing, add_session: AddSession) -> None:
    add_session("old", "zebra zebra zebra", title="b", age=HOUR)
    add_session("new", "one zebra among a good many other words", title="a")
    async with browsing(View(query="zebra")) as screen:
        await screen.press("ctrl+s")
        assert screen.names == ["a", "b"]
        assert screen.status.endswith("by last activity")


async def test_the_browser_can_be_opened_at_a_hit(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("a", "zebra")
    add_session("b", "zebra zebra")
    add_session("c", "no stripes", "here is the place")
    message = db.get_messages("c")[1]["id"]
    async with browsing(View(query="zebra"), at=("c", message)) as screen:
        assert screen.current == "no stripes"
        assert "here is the place" in screen.text
    async with browsing(View(query="zebra"), at=("a", None)) as screen:
        assert screen.current == "zebra"
        assert len(screen.names) == 2


async def test_opened_at_a_conversation_far_down_the_list_the_pages_still_fit(
    browsing: Browsing, add_session: AddSession
) -> None:
    for number in range(120):
        add_session(f"s{number:03}", age=number * 60)
    async with browsing(at=("s110", None)) as screen:
        assert screen.current == "hello from s110"
        await screen.press("end")
        assert screen.current == "hello from s119"
        await screen.press("home", *["pagedown"] * 6)
        expected = ["hello from s110", *[f"hello from s{number:03}" for number in range(120)]]
        assert screen.names == expected


async def test_a_question_mark_helps_only_where_nothing_is_typed(
    browsing: Browsing, add_session: AddSession
) -> None:
    add_session("a", "why?")
    async with browsing() as screen:
        await screen.press("question_mark")
        assert "move it to the trash" in screen.text
        await screen.press("escape")
        await screen.type("why")
        await screen.press("question_mark")
        assert screen.app.search.value == "why?"
        assert screen.names == ["why?"]
