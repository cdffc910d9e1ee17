"""The recap of a resumed conversation: its documented limits, and its note on an unfinished turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.tools.todo import TodoItem, format_items
from hermes.chat.view.recap import Entry, describe_open, format_call_names, format_row_text, make_recap

Row = dict[str, Any]


def you(text: Any) -> Row:
    return {"role": "user", "content": text}


def hermes(text: str | None, *calls: str, **more: Any) -> Row:
    made = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in calls]
    return {"role": "assistant", "content": text, "tool_calls": made or None, **more}


def tool(text: str, name: str = "terminal") -> Row:
    return {"role": "tool", "content": text, "tool_name": name, "tool_call_id": name}


def exchanges(count: int) -> list[Row]:
    return [row for number in range(count) for row in (you(f"q{number}"), hermes(f"a{number}"))]


def test_ten_exchanges_are_shown_without_a_line_of_earlier_ones() -> None:
    told = make_recap(exchanges(10))
    assert told.earlier == 0
    assert len(told.entries) == 20
    assert told.entries[0] == Entry("user", "q0")


def test_the_first_of_eleven_exchanges_is_only_counted() -> None:
    told = make_recap(exchanges(11))
    assert told.earlier == 2
    assert len(told.entries) == 20
    assert told.entries[0] == Entry("user", "q1")


def test_an_exchange_is_one_message_of_a_person_with_all_that_follows() -> None:
    rows = [you("do it"), hermes(None, "terminal"), tool("ok"), hermes("first"), hermes("second")]
    assert make_recap([*rows, *exchanges(9)]).earlier == 0
    assert make_recap([*rows, *exchanges(10)]).earlier == 4


def test_a_person_is_cut_at_300_and_an_answer_at_200_characters() -> None:
    rows = [you("x" * 300), hermes("y" * 200), you("x" * 301), hermes("y" * 201), you("z"), hermes("the end")]
    texts = [entry.text for entry in make_recap(rows).entries]
    assert texts[:4] == ["x" * 300, "y" * 200, "x" * 300 + "...", "y" * 200 + "..."]


def test_an_answer_is_cut_at_three_lines() -> None:
    rows = [you("q"), hermes("1\n2\n3"), you("q"), hermes("1\n2\n3\n4"), you("q"), hermes("end")]
    assert [entry.text for entry in make_recap(rows).entries][1::2] == ["1\n2\n3", "1\n2\n3 ...", "end"]


def test_the_last_answer_stands_there_in_full() -> None:
    long = "\n".join("word " * 30 for _ in range(20)).strip()
    last = make_recap([you("q"), hermes("short"), you("q"), hermes(long)]).entries[-1]
    assert last == Entry("assistant", long, is_last=True)


def test_tool_calls_are_a_count_with_their_names() -> None:
    rows = [
        you("go"),
        hermes(None, "terminal", "web_search"),
        tool("x"),
        hermes(None, "terminal"),
        hermes("done"),
    ]
    assert [entry.text for entry in make_recap(rows).entries] == [
        "go",
        "[3 tool calls: terminal, web_search]",
        "done",
    ]


def test_at_most_four_tools_are_named() -> None:
    assert format_call_names(["a"]) == "[1 tool call: a]"
    assert format_call_names(list("abcd")) == "[4 tool calls: a, b, c, d]"
    assert format_call_names(list("abcdea")) == "[6 tool calls: a, b, c, d, ...]"


def test_system_messages_results_and_reasoning_are_hidden() -> None:
    rows = [
        {"role": "system", "content": "a summary"},
        you("q"),
        hermes("<think>hm\nhm</think>yes", reasoning="because"),
        tool("secret"),
        {"role": "session_meta", "content": "{}"},
        hermes("", "x"),
    ]
    text = " ".join(entry.text for entry in make_recap(rows).entries)
    assert text == "q yes [1 tool call: x]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<think>a</think>b", "b"),
        ("<THINKING>a</thinking> b", "b"),
        ("<reasoning>never closed", ""),
        ("a <reasoning>in the middle is text", "a <reasoning>in the middle is text"),
        ("Put it into `<think>` tags, then read on.", "Put it into `<think>` tags, then read on."),
        ("</thought>b", "b"),
        ("a plan\n</think>\n\nb", "b"),
        ("the `</think>` tag", "the `</think>` tag"),
        ("<REASONING_SCRATCHPAD>a</REASONING_SCRATCHPAD>b", "b"),
        ("1 < 2", "1 < 2"),
    ],
)
def test_reasoning_is_removed_for_every_tag(text: str, shown: str) -> None:
    assert format_row_text(hermes(text)).strip() == shown


def test_pictures_are_only_named() -> None:
    content = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    assert make_recap([you(content)]).entries[0].text == "look\n[image]"


def test_a_recap_has_no_control_sequences() -> None:
    told = make_recap([you("\x1b[31mred\x1b]0;title\x07"), hermes("\x1b[2Jgone\x9b1m")])
    assert [entry.text for entry in told.entries] == [
        r"\x1b[31mred\x1b]0;title\x07",
        r"\x1b[2Jgone\x9b1m",
    ]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], None),
        ([you("q"), hermes("a")], None),
        ([you("q"), hermes("a"), you("and this?")], "not answered yet: and this?"),
        ([you("q"), hermes(None, "terminal")], "the last turn ended before terminal was done"),
        ([you("q"), hermes(None, "terminal"), tool("x")], "the last turn ended before it gave an answer"),
        ([you("q"), hermes("Good. Shall I go on?")], "Hermes asked: Shall I go on?"),
        ([you("q"), hermes("half", finish_reason="interrupted")], "the last answer was stopped"),
        (
            [you("q"), hermes(None, "terminal"), tool("error: no such file"), hermes("I could not.")],
            "last error (terminal): error: no such file",
        ),
    ],
)
def test_an_unfinished_turn_is_one_line(rows: list[Row], told: str | None) -> None:
    assert describe_open(rows) == told


def test_a_list_that_is_not_done_is_left_open() -> None:
    def listed(*states: str) -> list[Row]:
        items = [TodoItem(str(number), f"step {number}", state) for number, state in enumerate(states)]
        return [you("q"), hermes(None, "todo"), tool(format_items(items), "todo"), hermes("so far")]

    assert describe_open(listed("completed", "in_progress", "pending")) == "2 of 3 to do, at: step 1"
    assert describe_open(listed("completed")) is None
    assert describe_open([*listed("pending"), *listed("completed")]) is None


anything = st.one_of(st.none(), st.text(), st.integers(), st.lists(st.one_of(st.text(), st.none())))
rows = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system", "session_meta", "odd"])},
        optional={
            "content": anything,
            "tool_calls": st.one_of(
                st.none(),
                st.dictionaries(st.text(), anything),
                st.lists(st.dictionaries(st.text(), anything)),
            ),
            "finish_reason": anything,
        },
    ),
    max_size=40,
)


@given(rows)
def test_any_rows_have_a_recap_within_its_bounds(given_rows: list[Row]) -> None:
    told = make_recap(given_rows)
    assert sum(entry.role == "user" for entry in told.entries) <= 10
    assert sum(entry.is_last for entry in told.entries) <= 1
    assert all(len(entry.text) <= 303 for entry in told.entries if entry.role == "user")
    assert told.open is None or "\n" not in told.open
