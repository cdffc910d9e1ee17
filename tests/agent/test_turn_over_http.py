"""A whole turn with a model over HTTP: its request, the stored messages and the usage."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes.agent import events
from hermes.agent.models.openai import OpenAIModel
from hermes.agent.models.prices import make_price
from hermes.agent.tool import ToolContext
from hermes.agent.transcript import StoredRecord
from hermes.agent.turn import Turn
from hermes_state import SessionDB
from tests.agent.openai_server import DROP, ModelServer, Reply, calls, chunk, refuses, says, usage
from tests.agent.test_turn import Echo
from tests.stored_rows import change_rows

DONE = b"data: [DONE]\n\n"
RATES = {"small-model": {"input": 1.0, "output": 10.0}}


def a_turn(
    db: SessionDB, server: ModelServer, record: StoredRecord, base_url: str | None = None
) -> tuple[Turn, OpenAIModel]:
    async def prompt() -> str:
        return "be kind"

    model = OpenAIModel("small-model", base_url=base_url or server.base_url, first_pause=0.01)
    context = lambda approve, stop: ToolContext(db, "", Path("/"), approve, stop)  # noqa: E731
    return Turn(
        record, model, [Echo()], context, price=make_price(model.base_url, RATES), prompt=prompt
    ), model


async def run(db: SessionDB, server: ModelServer) -> tuple[list[Any], list[dict[str, Any]], str]:
    record = StoredRecord(db)
    turn, model = a_turn(db, server, record)
    happened = [event async for event in turn.events("hello")]
    await record.close()
    await model.close()
    return happened, db.get_messages(record.session_id), record.session_id


async def test_tools_are_called_answered_and_counted(db: SessionDB, model_server: ModelServer) -> None:
    reported = usage(prompt_tokens=1_000, completion_tokens=100, total_tokens=1_100)
    model_server.will(
        calls(("c1", "echo", '{"text": "one"}'), ("c2", "echo", '{"text": "two"}')),
        says("all done", used=reported),
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


async def test_stopping_a_turn_keeps_its_text(db: SessionDB, model_server: ModelServer) -> None:
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
    assert "requires a key: name its variable in model.key_env" in happened[-1].why
    assert [row["content"] for row in rows] == ["hello"]


async def test_the_configuration_and_the_tokens_of_each_answer_are_stored(
    db: SessionDB, model_server: ModelServer
) -> None:
    model_server.will(
        Reply([*calls(("c1", "echo", '{"text": "one"}')).steps[:-1], usage(completion_tokens=7), DONE]),
        says("all done", used=usage(prompt_tokens=1_000, completion_tokens=100)),
    )
    _happened, rows, session_id = await run(db, model_server)
    counts = [(row["role"], row["token_count"]) for row in rows]
    assert counts == [("user", None), ("assistant", 7), ("tool", None), ("assistant", 100)]
    session = db.get_session(session_id)
    assert session is not None
    config = json.loads(session["model_config"])
    assert config == {
        "model": "small-model",
        "provider": "local",
        "endpoint": model_server.base_url,
        "context_window": OpenAIModel("small-model", base_url=model_server.base_url).context_window,
    }


async def test_without_usage_from_the_provider_the_count_is_unknown(
    db: SessionDB, model_server: ModelServer
) -> None:
    model_server.will(says("hello"))
    _happened, rows, _id = await run(db, model_server)
    assert [row["token_count"] for row in rows] == [None, None]


async def test_keys_in_the_address_are_not_stored_with_the_configuration(
    db: SessionDB, model_server: ModelServer
) -> None:
    model_server.will(says("hello"))
    record = StoredRecord(db)
    secret = model_server.base_url.replace("http://", "http://ann:hunter2@")
    turn, _model = a_turn(db, model_server, record, base_url=secret)
    assert isinstance([event async for event in turn.events("hello")][-1], events.Done)
    await record.close()
    await _model.close()
    session = db.get_session(record.session_id)
    assert session is not None
    assert json.loads(session["model_config"])["endpoint"] == model_server.base_url
    assert "hunter2" not in session["model_config"]


async def test_a_configuration_follows_the_model_and_keeps_what_others_put_there(
    db: SessionDB, model_server: ModelServer
) -> None:
    db.create_session("mine", "cli", model_config={"temperature": 0.2, "model": "older"})
    db.create_session("theirs", "cli", model_config={"imported": True})
    db.create_session("broken", "cli")
    change_rows(db, "UPDATE sessions SET model_config = 'no JSON' WHERE id = 'broken'")
    for session_id in ("mine", "theirs", "broken"):
        model_server.will(says("hello"))
        record = StoredRecord(db, session_id)
        turn, model = a_turn(db, model_server, record)
        assert isinstance([event async for event in turn.events("hello")][-1], events.Done)
        await record.close()
        await model.close()
    stored = {row["id"]: row["model_config"] for row in db.search_sessions()}
    mine = json.loads(stored["mine"])
    assert (mine["temperature"], mine["model"]) == (0.2, "small-model")
    assert (stored["theirs"], stored["broken"]) == ('{"imported":true}', "no JSON")
