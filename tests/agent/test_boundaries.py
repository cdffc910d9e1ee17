"""Where compression may cut a conversation. It separates no call from its result and loses no message."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.context import tokens
from hermes.agent.context.boundaries import (
    LEAST_TAIL,
    MARK,
    SOFT,
    CompressionPlan,
    find_cuts,
    find_last_prompt,
    is_summary,
    plan_compression,
    take_tail,
)
from hermes.agent.context.tool_output_limits import LONG_OUTPUT, shorten_rows
from hermes.agent.models.replay import UNKNOWN, replay
from tests.agent.test_replay import ROWS, check

Row = dict[str, Any]


@st.composite
def conversations(draw: st.DrawFn) -> list[Row]:
    """Draw a stored conversation with tool calls. The results can be out of order, lost, late or repeated."""
    rows: list[Row] = []
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["talk", "tools", "late", "open", "same ids", "summary"]))
        size = draw(st.sampled_from([1, 40, 400, 4000]))
        if kind == "summary":
            rows = [row for row in rows if not is_summary(row)]
            rows.append({"role": "system", "content": f"{MARK} {'s' * size}"})
            continue
        if draw(st.booleans()):
            rows.append({"role": "user", "content": "q" * size})
        if kind == "talk":
            rows.append({"role": "assistant", "content": "a" * size})
            continue
        names = [f"c{number}_{at}" if kind != "same ids" else "same" for at in range(draw(st.integers(1, 4)))]
        made = [
            {"id": one, "function": {"name": "f", "arguments": '{"x": "' + "y" * size + '"}'}}
            for one in names
        ]
        rows.append({"role": "assistant", "content": None, "tool_calls": made})
        results = [{"role": "tool", "tool_call_id": one, "content": f"{one} {'r' * size}"} for one in names]
        results = draw(st.permutations(results))
        if kind == "open":
            results = results[1:]
        if kind == "late":
            results = [*results[:1], {"role": "user", "content": "are you there?"}, *results[1:]]
        rows += results
    return [{"id": at * 3 + 1, **row} for at, row in enumerate(rows)]


SIZES = {
    "first": st.integers(0, 6),
    "last": st.integers(0, 25),
    "budget": st.sampled_from([0, 50, 500, 5000]),
}


def numbered(rows: list[Row]) -> list[Row]:
    return [{"id": at + 1, **row} for at, row in enumerate(rows)]


def put_together(made: CompressionPlan) -> list[Row]:
    return [*made.head, {"role": "system", "content": f"{MARK} what was"}, *made.kept]


def answers(rows: list[Row]) -> dict[tuple[int, str], str]:
    """Return the result of each tool call in a request. The key is the id of the calling message with the
    call."""
    found: dict[tuple[int, str], str] = {}
    for at, row in enumerate(rows):
        if row["role"] == "assistant" and isinstance(row.get("tool_calls"), list):
            sent = replay(rows[at:])
            results = [one["content"] for one in sent if one["role"] == "tool"]
            for position, call in enumerate(row["tool_calls"]):
                if call.get("id"):
                    found[row["id"], f"{position} {call['id']}"] = results[position]
    return found


@given(rows=st.one_of(conversations(), ROWS.map(numbered)), **SIZES)
def test_every_message_is_in_one_part_and_in_its_order(
    rows: list[Row], first: int, last: int, budget: int
) -> None:
    made = plan_compression(rows, first=first, last=last, budget=budget)
    if made is None:
        return
    parts = [row["id"] for part in made for row in part]
    assert sorted(parts) == [row["id"] for row in rows]
    for part in made:
        assert [row["id"] for row in part] == sorted(row["id"] for row in part)
    assert [row["id"] for row in made.head] == [row["id"] for row in rows[: len(made.head)]]


@given(rows=conversations(), **SIZES)
def test_no_call_is_separated_from_its_result(rows: list[Row], first: int, last: int, budget: int) -> None:
    made = plan_compression(rows, first=first, last=last, budget=budget)
    if made is None:
        return
    before, after = answers(rows), answers(put_together(made))
    assert after == {call: before[call] for call in after}
    results = {row["id"] for row in rows if row["role"] == "tool"}
    stayed = {row["id"] for row in put_together(made) if row.get("id") in results}
    sent = [one for one in replay(put_together(made)) if one["role"] == "tool" and one["content"] != UNKNOWN]
    orphans = len(results) - len([one for one in before.values() if one != UNKNOWN])
    assert len(stayed) - orphans <= len(sent) <= len(stayed)


@given(rows=st.one_of(conversations(), ROWS.map(numbered)), **SIZES)
def test_the_remaining_messages_are_accepted_by_providers(
    rows: list[Row], first: int, last: int, budget: int
) -> None:
    made = plan_compression(rows, first=first, last=last, budget=budget)
    if made is not None:
        check(replay(put_together(made), "be kind"))


@given(rows=conversations(), **SIZES)
def test_the_last_message_of_the_person_stays(rows: list[Row], first: int, last: int, budget: int) -> None:
    made, last_prompt = plan_compression(rows, first=first, last=last, budget=budget), find_last_prompt(rows)
    if made is not None and last_prompt is not None:
        assert rows[last_prompt] in [*made.head, *made.kept]


@given(rows=conversations(), **SIZES)
def test_there_is_never_more_than_one_summary(rows: list[Row], first: int, last: int, budget: int) -> None:
    made = plan_compression(rows, first=first, last=last, budget=budget)
    if made is not None:
        assert not any(map(is_summary, [*made.head, *made.kept]))


@given(rows=conversations(), **SIZES)
def test_both_ends_keep_to_their_sizes(rows: list[Row], first: int, last: int, budget: int) -> None:
    """The head has at most the requested size, rounded up to a whole group. The tail stays within its budget
    or has at most `LEAST_TAIL` groups."""
    made = plan_compression(rows, first=first, last=last, budget=budget)
    if made is None:
        return
    may_cut = find_cuts(rows)
    assert tokens.count_rows(made.head) <= budget * SOFT
    assert not any(may_cut[first + 1 : len(made.head)])
    prompt = find_last_prompt(rows)
    # the last message of the person is kept in addition to the tail
    is_added = prompt is not None and bool(made.kept) and made.kept[0]["id"] == rows[prompt]["id"]
    start = len(rows) - len(made.kept) + is_added
    if tokens.count_rows(rows[start:]) > budget * SOFT:
        assert sum(may_cut[start + 1 : len(rows)]) < LEAST_TAIL


def test_in_a_long_run_of_tools_the_question_stays_and_the_old_rounds_go() -> None:
    rows: list[Row] = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    rows += [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "because"}]
    rows.append({"role": "user", "content": "do it all"})
    for number in range(50):
        made = {"id": f"c{number}", "function": {"name": "f", "arguments": "{}"}}
        rows.append({"role": "assistant", "content": None, "tool_calls": [made]})
        rows.append({"role": "tool", "tool_call_id": f"c{number}", "content": "x" * 400})
    parts = plan_compression(numbered(rows), first=3, last=4, budget=500)
    assert parts is not None
    assert [row["content"] for row in parts.head] == ["hello", "hi", "why?"]
    assert parts.kept[0]["content"] == "do it all"
    assert 4 <= len(parts.kept) - 1 <= 8
    assert len(parts.middle) > 80


@given(rows=conversations(), budget=st.sampled_from([0, 100, 1000, 100_000]))
def test_the_newest_messages_that_fit_keep_their_results(rows: list[Row], budget: int) -> None:
    left = take_tail(rows, budget)
    assert tokens.count_rows(left) <= budget
    assert left == rows[len(rows) - len(left) :]
    assert find_cuts(rows)[len(rows) - len(left)]


@given(rows=conversations(), before=st.integers(0, 60), pressed=st.booleans())
def test_shorter_output_changes_nothing_but_output_and_arguments(
    rows: list[Row], before: int, pressed: bool
) -> None:
    kept = [dict(row) for row in rows]
    short = shorten_rows(rows, before, pressed=pressed)
    assert rows == kept
    check(replay(short))
    assert tokens.count_rows(short) <= tokens.count_rows(rows)
    for row, cut in zip(rows, short, strict=True):
        assert (row["role"], row["id"], row.get("tool_call_id")) == (
            cut["role"],
            cut["id"],
            cut.get("tool_call_id"),
        )
        if row["role"] in ("user", "system") or (row["id"] >= before and not pressed):
            assert cut == row
        if row["role"] == "tool" and row["id"] < before:
            assert len(cut["content"]) <= LONG_OUTPUT + 60
    more = [*rows, {"id": 1000, "role": "tool", "tool_call_id": "new", "content": "x" * 4000}]
    assert shorten_rows(more, before, pressed=pressed)[:-1] == short


def test_old_pictures_leave_the_request_but_not_the_one_that_was_just_shown() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    rows = numbered([{"role": "user", "content": [picture]}, {"role": "user", "content": [picture]}])
    short = shorten_rows(rows, 10)
    assert [tokens.count_row(row) > tokens.PER_IMAGE for row in short] == [False, True]


def test_sizes_are_about_right_in_every_script() -> None:
    assert tokens.count_text("") == 0
    assert tokens.count_text("four words of text..") == 5
    assert tokens.count_text("多言語の会話") == 6
    assert tokens.count_text("สวัสดี") == 6
    assert 2 <= tokens.count_text("привет") <= 4
    assert tokens.count_text("\ud800") == 1
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    assert tokens.count_row({"role": "user", "content": [picture]}) == tokens.PER_MESSAGE + tokens.PER_IMAGE
    assert tokens.count_tools([{"name": "x" * 400}]) > 100
