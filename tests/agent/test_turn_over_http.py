"""A whole turn with a model behind HTTP: asked, stored, and paid for."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from hermes.agent import events
from hermes.agent.openai_model import OpenAIModel
from hermes.agent.prices import price_at
from hermes.agent.record import StoredRecord
from hermes.agent.tool import ToolContext
from hermes.agent.turn import Turn
from hermes_state import SessionDB
from tests.agent.openai_server import DROP, ModelServer, Reply, calls, chunk, refuses, says, usage
from tests.agent.test_turn import Echo

RATES = {"small-model": {"input": 1.0, "output": 10.0}}


def a_turn(db: SessionDB, server: ModelServer, record: StoredRecord) -> tuple[Turn, OpenAIModel]:
    async def prompt() -> str:
        return "be kind"

    model = OpenAIModel("small-model", base_url=server.base_url, first_pause=0.01)
    context = lambda approve, stop: ToolContext(db, "", Path("/"), approve, stop)  # noqa: E731
    return Turn(record, model, [Echo()], context, price=price_at(model.base_url, RATES), prompt=prompt), model


async def run(db: SessionDB, server: ModelServer) -> tuple[list[Any], list[dict[str, Any]], str]:
    record = StoredRecord(db)
    turn, model = a_turn(db, server, record)
    happened = [event async for event in turn.events("hello")]
    await record.close()
    await model.close()
    return happened, db.get_messages(record.session_id), record.session_id


async def test_tools_are_called_answered_and_counted(db: SessionDB, model_server: ModelServer) -> None:
    told = usage(prompt_tokens=1_000, completion_tokens=100, total_tokens=1_100)
    model_server.will(
        calls(("c1", "echo", '{"text": "one"}'), ("c2", "echo", '{"text": "two"}')),
        says("all done", used=told),
    )
    happened, rows, session_id = await run(db, model_server)
    assert happened[-1] == events.Done("all done", "stop")
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "tool", "assistant"]
    sent = model_server.requests[1].body["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert {message["content"] for message in sent[3:]} == {"one!", "two!"}
    assert db.usage_of(session_id).total.estimated_cost_usd == pytest.approx(0.002)
    assert [event.cost_usd for event in happened if isinstance(event, events.Counted)] == [
        None,
        pytest.approx(0.002),
    ]


async def test_an_answer_that_broke_off_is_stored_once_and_whole(
    db: SessionDB, model_server: ModelServer
) -> None:
    model_server.will(
        Reply([chunk({"content": "half an"}), DROP]), refuses(503, "busy"), says("a whole answer")
    )
    happened, rows, _ = await run(db, model_server)
    assert [row["content"] for row in rows] == ["hello", "a whole answer"]
    assert sum(isinstance(event, events.Discarded) for event in happened) == 2


async def test_a_person_who_stops_keeps_what_was_said(db: SessionDB, model_server: ModelServer) -> None:
    never = threading.Event()
    model_server.will(Reply([chunk({"content": "so far"}), never]))
    record = StoredRecord(db)
    turn, model = a_turn(db, model_server, record)
    happened = []
    async for event in turn.events("hello"):
        happened.append(event)
        if isinstance(event, events.TextDelta):
            turn.stop()
    never.set()
    await record.close()
    await model.close()
    assert happened[-1] == events.Interrupted("so far")
    assert [row["content"] for row in db.get_messages(record.session_id)] == ["hello", "so far"]


async def test_a_refusal_is_one_line_and_the_question_is_kept(
    db: SessionDB, model_server: ModelServer
) -> None:
    model_server.will(refuses(401, "no"))
    happened, rows, _ = await run(db, model_server)
    assert isinstance(happened[-1], events.Failed)
    assert "wants a key: set OPENAI_API_KEY" in happened[-1].why
    assert [row["content"] for row in rows] == ["hello"]
