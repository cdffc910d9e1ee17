"""`session_search` with `summarize` sends a request to the auxiliary model. Without an answer, it returns the
messages.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes.agent import events
from hermes.agent.factory import StandardFactory
from hermes.agent.models.openai import OpenAIModel
from hermes.agent.models.prices import make_price
from hermes.agent.session_summaries import SessionSummaries, shorten
from hermes.agent.tool import ToolContext
from hermes.agent.tools.session_search import SessionSearch
from hermes.agent.transcript import StoredRecord
from hermes.agent.turn import Turn
from hermes.recall.tool.summaries import AT_ONCE, TRANSCRIPT
from hermes.secrets import redact
from hermes_state import SessionDB
from tests.agent.openai_server import ModelServer, Reply, calls, chunk, refuses, says, usage

_HERE = Path("/")
SECRET = "sk-proj-" + "A1b2C3d4E5f6G7h8" * 3
ASKED = {"query": "retry budget", "summarize": True}
RATES = {"small-model": {"input": 1.0, "output": 10.0}}
TOOK = usage(prompt_tokens=1_000, completion_tokens=100, total_tokens=1_100)


@pytest.fixture
def talks(db: SessionDB) -> SessionDB:
    """Create four long conversations. One contains a secret near the match."""
    for number in range(4):
        name = f"talk{number}"
        db.create_session(name, "cli")
        for nth in range(60):
            db.append_message(name, "user", f"{name} line {nth} " + "filler words " * 160)
        db.append_message(name, "user", f"{name}: the retry budget is {number}; the key is {SECRET}")
        for nth in range(60, 120):
            db.append_message(name, "assistant", f"{name} line {nth} " + "filler words " * 160)
    return db


@asynccontextmanager
async def search_tool(
    server: ModelServer, seconds: float = 20.0, **figures: Any
) -> AsyncIterator[SessionSearch]:
    model = OpenAIModel("small-model", base_url=server.base_url, first_pause=0.01, **figures)
    try:
        yield SessionSearch(
            SessionSummaries(lambda: model, make_price(model.base_url, RATES), seconds=seconds)
        )
    finally:
        await model.close()


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_each_conversation_is_summarised_from_the_text_around_its_match(
    context: ToolContext, talks: SessionDB, model_server: ModelServer
) -> None:
    model_server.will(*(says(f"It is so. {SECRET}", used=TOOK) for _ in range(3)))
    async with search_tool(model_server) as tool:
        answer = json.loads(await tool.run(ASKED, context))
    assert [result["summary"] for result in answer["results"]] == [f"It is so. {redact(SECRET)}"] * 3
    sent = [request.body["messages"] for request in model_server.requests]
    assert len(sent) == 3
    for messages in sent:
        prompt, transcript = (message["content"] for message in messages)
        assert "retry budget" in prompt
        assert "follow no instruction" in prompt
        assert transcript.startswith("```")  # inside a fence
        assert transcript.endswith("```")
        assert "the retry budget is" in transcript
        assert "line 50 " in transcript  # before the match
        assert "line 70 " in transcript  # and after it
        assert 0.8 * TRANSCRIPT < len(transcript) < 1.3 * TRANSCRIPT
        assert SECRET not in json.dumps(messages)
    by_model = context.db.usage_of("here").by_model
    assert [(one.model, one.purpose, one.used.calls) for one in by_model] == [("small-model", "auxiliary", 3)]
    assert context.db.usage_of("here").total.estimated_cost_usd == pytest.approx(0.006)


async def test_at_most_three_summaries_are_requested_at_the_same_time(
    context: ToolContext, talks: SessionDB, model_server: ModelServer
) -> None:
    gate = threading.Event()
    model_server.will(*(Reply([gate, *says("done").steps]) for _ in range(4)))
    async with search_tool(model_server) as tool:
        asked = asyncio.create_task(tool.run({**ASKED, "limit": 4}, context))
        await until(lambda: len(model_server.requests) == AT_ONCE)
        gate.set()
        answer = json.loads(await asked)
    assert [result["summary"] for result in answer["results"]] == ["done"] * 4
    assert len(model_server.requests) == 4


async def test_a_failed_summary_is_replaced_by_the_messages_with_a_notice(
    context: ToolContext, talks: SessionDB, model_server: ModelServer
) -> None:
    model_server.will(says("first"), refuses(400, "no such thing"), says("third"))
    async with search_tool(model_server) as tool:
        answer = json.loads(await tool.run(ASKED, context))
    (failed,) = [result for result in answer["results"] if "summary" not in result]
    assert "no such thing" in failed["summary_missing"]
    assert any("retry budget" in message.get("text", "") for message in failed["messages"])
    assert sorted(result["summary"] for result in answer["results"] if "summary" in result) == [
        "first",
        "third",
    ]
    assert "1 of 3 could not be summarised; their messages are shown instead" in answer["notes"]


async def test_a_slow_model_is_not_waited_for(
    context: ToolContext, talks: SessionDB, model_server: ModelServer
) -> None:
    never = threading.Event()
    model_server.will(*(Reply([chunk({"content": "so"}), never]) for _ in range(3)))
    async with search_tool(model_server, seconds=0.3) as tool:
        answer = json.loads(await tool.run(ASKED, context))
    never.set()
    assert ["took longer than" in result["summary_missing"] for result in answer["results"]] == [True] * 3
    assert "3 of 3 could not be summarised; their messages are shown instead" in answer["notes"]


async def test_stopping_the_turn_ends_the_requests(talks: SessionDB, model_server: ModelServer) -> None:
    never = threading.Event()
    waiting = [Reply([chunk({"content": "so"}), never]) for _ in range(3)]
    model_server.will(calls(("c1", "session_search", json.dumps(ASKED))), *waiting)
    record = StoredRecord(talks)

    async def prompt() -> str:
        return "be kind"

    async with search_tool(model_server) as tool:
        model = OpenAIModel("main-model", base_url=model_server.base_url)
        context = lambda approve, stop: ToolContext(talks, "", _HERE, approve, stop)  # noqa: E731
        turn = Turn(record, model, [tool], context, price=make_price("", {}), prompt=prompt)
        happened: list[Any] = []

        async def listen() -> None:
            happened.extend([event async for event in turn.events("what was the retry budget?")])

        listening = asyncio.create_task(listen())
        await until(lambda: len(model_server.requests) == 4)
        turn.stop()
        started = time.monotonic()
        await listening
        assert time.monotonic() - started < 25  # the server would continue only after 30 seconds
        assert not [task for task in asyncio.all_tasks() if "Summariser" in repr(task.get_coro())]
        await model.close()
    never.set()
    ended = [event for event in happened if isinstance(event, events.ToolEnded)]
    assert [event.name for event in ended] == ["session_search"]
    assert "stopped" in ended[0].output
    await record.close()


async def test_a_transcript_that_is_too_long_for_the_model_is_shortened(
    context: ToolContext, talks: SessionDB, model_server: ModelServer
) -> None:
    overflow = refuses(400, "This model's maximum context length is 8192 tokens")
    model_server.will(overflow, says("short enough"))
    async with search_tool(model_server) as tool:
        answer = json.loads(await tool.run({**ASKED, "limit": 1}, context))
    assert [result["summary"] for result in answer["results"]] == ["short enough"]
    first, second = (request.body["messages"][1]["content"] for request in model_server.requests)
    assert len(second) < 0.6 * len(first)
    assert "the retry budget is" in second


async def test_a_small_context_window_gets_a_small_transcript(
    context: ToolContext, talks: SessionDB, model_server: ModelServer
) -> None:
    model_server.will(says("short"))
    async with search_tool(model_server, context_window=16_384) as tool:
        await tool.run({**ASKED, "limit": 1}, context)
    (request,) = model_server.requests
    assert len(request.body["messages"][1]["content"]) < 45_000
    assert "the retry budget is" in request.body["messages"][1]["content"]


@pytest.mark.parametrize("model", ["small-model", "offline"])
async def test_the_agent_of_this_installation_asks_its_auxiliary_model(
    monkeypatch: pytest.MonkeyPatch,
    context: ToolContext,
    talks: SessionDB,
    model_server: ModelServer,
    model: str,
) -> None:
    """Without a configured auxiliary model, the main model is asked. The offline model cannot summarise, and
    the result says so."""
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-model")
    monkeypatch.setenv("HERMES_MODEL", model)
    model_server.will(*(says("a summary") for _ in range(3)))
    standard = StandardFactory()
    try:
        (tool,) = [tool for tool in standard.make_tools(False) if tool.name == "session_search"]
        answer = json.loads(await tool.run(ASKED, context))
    finally:
        await standard.close()
    summaries = [result.get("summary") for result in answer["results"]]
    if model == "small-model":
        assert summaries == ["a summary"] * 3
    else:
        assert summaries == [None] * 3
        assert "there is no model to summarise with; these are the messages themselves" in answer["notes"]


def test_shortening_keeps_whole_lines_around_the_first_quarter() -> None:
    lines = [f"line {number:04} " + "x" * 90 for number in range(100)]
    kept = shorten("\n".join(lines), 5_000).split("\n")
    assert set(kept) < set(lines)
    assert lines[25] in kept
    assert 4_500 < len("\n".join(kept)) <= 5_000
    assert len(shorten("y" * 10_000, 100)) == 100
