"""Reasoning and finish reasons are passed from the endpoint to the store and to the surfaces."""

from __future__ import annotations

import pytest

from hermes.agent import events
from hermes.agent.models.finish_reasons import CUT_AT_LENGTH, FILTERED_ANSWER, NO_ANSWER_WITHIN_LENGTH
from hermes_state import SessionDB
from tests.agent.openai_server import ModelServer, Reply, chunk, says
from tests.agent.test_turn_over_http import run

DONE = b"data: [DONE]\n\n"


def pieces(*texts: str, finish: str = "stop") -> Reply:
    return Reply([*(chunk({"content": text}) for text in texts), chunk({}, finish), DONE])


def heard(happened: list[events.Event], kind: type[events.TextDelta | events.ThoughtDelta]) -> str:
    return "".join(event.text for event in happened if isinstance(event, kind))


@pytest.mark.parametrize(
    ("sent", "thought", "answer"),
    [
        (("<think>hm</think>yes",), "hm", "yes"),
        (("<", "thi", "nk>h", "m</t", "hink>", "\n", "\nyes\n"), "hm", "yes\n"),
        (("\n<thinking>", "hm", "</thinking>", " yes"), "hm", " yes"),
        (("a <think> in a text\x00\x1b\n ",), "", "a <think> in a text\x00\x1b\n "),
        (("<th", "ree>"), "", "<three>"),
    ],
)
async def test_a_block_in_tags_is_reasoning_and_stored_as_it_was_sent(
    db: SessionDB, model_server: ModelServer, sent: tuple[str, ...], thought: str, answer: str
) -> None:
    model_server.will(pieces(*sent))
    happened, rows, _ = await run(db, model_server)
    assert heard(happened, events.ThoughtDelta) == thought
    assert heard(happened, events.TextDelta) == answer
    assert happened[-1] == events.Done(answer, "stop")
    assert rows[-1]["content"] == "".join(sent)
    assert rows[-1]["reasoning"] is None


@pytest.mark.parametrize(
    ("sent", "streamed", "recast", "answer"),
    [
        (("a plan", "\n</thi", "nk>\n", "\nyes"), "a plan\n</thiyes", "a plan\n", "yes"),
        (("a plan\n</think>\n\nyes",), "yes", None, "yes"),
        (("the `</thi", "nk>` tag"), "the `</think>` tag", None, "the `</think>` tag"),
        (("use `x\n\ny", "</think>", "yes"), "use `x\n\nyyes", "use `x\n\ny", "yes"),
    ],
)
async def test_reasoning_without_an_opening_tag_is_removed_from_the_answer(
    db: SessionDB,
    model_server: ModelServer,
    sent: tuple[str, ...],
    streamed: str,
    recast: str | None,
    answer: str,
) -> None:
    model_server.will(pieces(*sent))
    happened, rows, _ = await run(db, model_server)
    assert heard(happened, events.TextDelta) == streamed
    assert [event.text for event in happened if isinstance(event, events.Recast)] == (
        [] if recast is None else [recast]
    )
    assert happened[-1] == events.Done(answer, "stop")
    assert rows[-1]["content"] == "".join(sent)


async def test_a_block_that_is_never_closed_is_reported_as_no_answer(
    db: SessionDB, model_server: ModelServer
) -> None:
    model_server.will(pieces("<think>on and", " on", finish="length"))
    happened, rows, _ = await run(db, model_server)
    assert heard(happened, events.ThoughtDelta) == "on and on"
    assert events.Note(NO_ANSWER_WITHIN_LENGTH) in happened
    assert happened[-1] == events.Done("", "length")
    assert rows[-1]["content"] == "<think>on and on"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_an_answer_of_only_reasoning_is_reported_and_kept(
    db: SessionDB, model_server: ModelServer, field: str
) -> None:
    model_server.will(Reply([chunk({field: "hm"}), chunk({}, "length"), DONE]))
    happened, rows, _ = await run(db, model_server)
    assert events.Note(NO_ANSWER_WITHIN_LENGTH) in happened
    assert happened[-1] == events.Done("", "length")
    assert len(model_server.requests) == 1
    assert (rows[-1]["role"], rows[-1]["reasoning"], rows[-1]["finish_reason"]) == (
        "assistant",
        "hm",
        "length",
    )


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("length", CUT_AT_LENGTH),
        ("max_tokens", CUT_AT_LENGTH),
        ("content_filter", FILTERED_ANSWER),
        ("stop", None),
    ],
)
async def test_a_truncated_answer_is_reported(
    db: SessionDB, model_server: ModelServer, reason: str, told: str | None
) -> None:
    model_server.will(says("half an answer", finish=reason))
    happened, rows, _ = await run(db, model_server)
    assert [event.text for event in happened if isinstance(event, events.Note)] == ([told] if told else [])
    assert happened[-1] == events.Done("half an answer", reason)
    assert rows[-1]["finish_reason"] == reason
