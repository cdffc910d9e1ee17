"""The answer of a turn is computed from its events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.answer import BETWEEN, Answer
from hermes.agent.events import (
    Counted,
    Discarded,
    Done,
    Event,
    Failed,
    Interrupted,
    Note,
    NotStored,
    Recast,
    Stored,
    TextDelta,
    ThoughtDelta,
    ToolStarted,
)
from hermes.agent.models.model import Used
from hermes.errors import HermesError


def reduce_events(*events: Event) -> Answer:
    answer = Answer()
    for event in events:
        answer.add(event)
    return answer


def test_text_before_and_after_a_tool_call() -> None:
    answer = reduce_events(
        Stored(1, "user"),
        TextDelta("I look."),
        Stored(2, "assistant"),
        ToolStarted("c1", "look", {}),
        ThoughtDelta("hm"),
        TextDelta("There "),
        TextDelta("it is."),
        Stored(3, "assistant"),
        Counted("m", Used(input_tokens=7, output_tokens=5), None),
        Done("There it is.", "stop"),
    )
    assert (answer.text, answer.whole_text) == ("There it is.", f"I look.{BETWEEN}There it is.")
    assert (answer.prompt_id, answer.message_id, answer.completed) == (1, 3, [])
    assert (answer.outcome, answer.problem, answer.reason) == ("answered", None, "stop")
    assert (answer.reasoning, answer.tokens) == ("hm", (7, 0, 5, 0))


def test_an_answer_followed_by_another_message() -> None:
    answer = reduce_events(
        Stored(1, "user"),
        TextDelta("yes"),
        Stored(2, "assistant"),
        Stored(3, "user"),
        TextDelta("no"),
        Stored(4, "assistant"),
        Done("no"),
    )
    assert (answer.completed, answer.text, answer.message_id) == ([(2, "yes")], "no", 4)


def test_discarded_text() -> None:
    answer = reduce_events(TextDelta("wro"), ThoughtDelta("hm"), Discarded("broke", 0.0), TextDelta("right"))
    assert (answer.partial, answer.reasoning) == ("right", "")
    answer = reduce_events(TextDelta("a plan"), Recast("a plan\n"), TextDelta("yes"))
    assert (answer.partial, answer.reasoning) == ("yes", "a plan\n")


@pytest.mark.parametrize(
    ("last", "outcome", "problem"),
    [
        (Done(" "), "answered", "there is no answer"),
        (Interrupted("so far"), "stopped", "interrupted"),
        (Failed("nobody answers", HermesError()), "failed", "nobody answers"),
        (Note("by the way"), "failed", "the turn ended without an answer"),
    ],
)
def test_why_there_is_no_answer(last: Event, outcome: str, problem: str) -> None:
    answer = reduce_events(Stored(1, "user"), last)
    assert (answer.outcome, answer.problem) == (outcome, problem)


TEXTS = st.text("ab\n", max_size=3)
MESSAGES = st.lists(
    st.tuples(st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3), st.booleans()), max_size=4
)


@given(MESSAGES)
def test_the_whole_text_is_that_of_its_messages(messages: list[tuple[list[str], list[str], bool]]) -> None:
    """Discarded text is not part of the answer. The text of a message that could not be stored is part of
    it."""
    answer = Answer()
    for number, (lost, kept, is_stored) in enumerate(messages):
        events: list[Event] = [TextDelta(text) for text in lost]
        events += [Discarded("broke", 0.0), *(TextDelta(text) for text in kept)]
        for event in events:
            answer.add(event)
        answer.add(Stored(number, "assistant") if is_stored else NotStored("assistant", "full", True))
    texts = ["".join(kept) for _, kept, _ in messages]
    assert answer.whole_text == BETWEEN.join(text for text in texts if text)
    assert len(answer.notes) == sum(not is_stored for *_, is_stored in messages)
