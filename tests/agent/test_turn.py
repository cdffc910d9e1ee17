"""A turn stores each message before the next step uses it. A stop loses nothing, and failures are reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes.agent import events
from hermes.agent.approvals.request import ALLOW_ONCE, ApprovalRequest, Decision
from hermes.agent.models.model import ContextOverflow, Model, NotAuthorized, Retrying, Text, Unreachable, Used
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.transcript import IncognitoRecord, Record, StoredRecord
from hermes.agent.turn import LAST_STEP, STOPPED, Turn
from hermes_state import SessionDB
from tests.agent.approval_answers import events_of
from tests.agent.scripted import Script, ScriptedModel, calls, says

Row = dict[str, Any]


class Echo:
    name, description = "echo", "Says it again."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.entered.set()
        await self.release.wait()
        if arguments.get("text") == "fail":
            raise ToolFailed("it would not")
        if arguments.get("text") == "break":
            raise ZeroDivisionError("oops")
        return f"{context.session_id[:0]}{arguments['text']}!"


def a_turn(db: SessionDB, model: Model, record: Record, **more: Any) -> Turn:
    async def prompt() -> str:
        return "be kind"

    tools = more.pop("tools", [Echo()])
    return Turn(
        record,
        model,
        tools,
        lambda approve, stop: ToolContext(db, "", Path("/"), approve, stop),
        price=lambda _model, _used: (0.25, {"estimated_cost_usd": 0.25, "cost_status": "estimated"}),
        prompt=prompt,
        **more,
    )


async def run(
    db: SessionDB, *scripts: Script, said: Any = "hello", **more: Any
) -> tuple[list[Any], list[Row]]:
    record = StoredRecord(db)
    turn = a_turn(db, ScriptedModel(*scripts), record, **more)
    happened = [event async for event in turn.events(said)]
    await record.close()
    return happened, db.get_messages(record.session_id)


def kinds(happened: list[Any]) -> list[str]:
    return [type(event).__name__ for event in happened if not isinstance(event, events.TextDelta)]


async def test_a_question_and_its_answer_are_stored_and_counted(db: SessionDB) -> None:
    happened, rows = await run(db, says("good day to you", used=Used(10, 5)))
    assert kinds(happened) == ["Stored", "Stored", "Counted", "Done"]
    assert happened[-1] == events.Done("gooddaytoyou", "stop")
    assert [(row["role"], row["content"]) for row in rows] == [
        ("user", "hello"),
        ("assistant", "gooddaytoyou"),
    ]
    session = db.get_session(rows[0]["session_id"])
    assert session is not None
    assert (session["system_prompt"], session["input_tokens"], session["estimated_cost_usd"]) == (
        "be kind",
        10,
        0.25,
    )


async def test_the_persons_message_is_durable_before_the_model_is_asked(db: SessionDB) -> None:
    waiting = asyncio.Event()
    record = StoredRecord(db)
    turn = a_turn(db, ScriptedModel([waiting]), record)
    happened = turn.events("hello")
    assert isinstance(await anext(happened), events.Stored)
    with SessionDB(db.db_path, read_only=True) as other:
        assert [row["content"] for row in other.get_messages(record.session_id)] == ["hello"]
    await happened.aclose()
    await record.close()


async def test_tools_run_in_parallel_and_their_results_are_stored(db: SessionDB) -> None:
    wanted = calls(("a", "echo", '{"text": "one"}'), ("b", "echo", '{"text": "two"}'))
    happened, rows = await run(db, wanted, says("done"))
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "tool", "assistant"]
    assert {row["tool_call_id"]: row["content"] for row in rows[2:4]} == {"a": "one!", "b": "two!"}
    assert [event.name for event in happened if isinstance(event, events.ToolStarted)] == ["echo", "echo"]


async def test_an_answer_with_calls_is_stored_before_they_run(db: SessionDB) -> None:
    echo = Echo()
    echo.release.clear()
    record = StoredRecord(db)
    turn = a_turn(db, ScriptedModel(calls(("a", "echo", '{"text": "x"}')), says("ok")), record, tools=[echo])
    seen: list[Any] = []

    async def listen() -> None:
        seen.extend([event async for event in turn.events("go")])

    listening = asyncio.create_task(listen())
    await echo.entered.wait()
    assert [row["role"] for row in db.get_messages(record.session_id)] == ["user", "assistant"]
    echo.release.set()
    await listening
    assert isinstance(seen[-1], events.Done)
    await record.close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"text": "fail"}', "error: it would not"),
        ('{"text": "break"}', "error: ZeroDivisionError: oops"),
        ("{broken", "error: the arguments are not valid JSON"),
        ("[1, 2]", "error: the arguments are not a JSON object"),
    ],
)
async def test_an_error_of_a_tool_is_reported_to_the_model(db: SessionDB, arguments: str, told: str) -> None:
    happened, rows = await run(db, calls(("a", "echo", arguments)), says("I see"))
    assert rows[2]["content"].startswith(told)
    assert isinstance(happened[-1], events.Done)


async def test_an_unknown_tool_is_reported_to_the_model(db: SessionDB) -> None:
    _, rows = await run(db, calls(("a", "fly", "{}")), says("I see"))
    assert rows[2]["content"] == "error: there is no tool 'fly'; there are: echo"


async def test_stopping_during_an_answer_keeps_its_text(db: SessionDB) -> None:
    record = StoredRecord(db)
    turn = a_turn(db, ScriptedModel([Text("half an"), asyncio.Event()]), record)
    last: Any = None
    async for event in turn.events("hello"):
        if isinstance(event, events.TextDelta):
            turn.stop()
        last = event
    assert last == events.Interrupted("half an")
    answer = db.get_messages(record.session_id)[-1]
    assert (answer["content"], answer["finish_reason"]) == ("half an", "interrupted")
    await record.close()


async def test_stopping_while_tools_run_gives_every_call_a_result(db: SessionDB) -> None:
    echo = Echo()
    echo.release.clear()
    record = StoredRecord(db)
    turn = a_turn(db, ScriptedModel(calls(("a", "echo", '{"text": "x"}'))), record, tools=[echo])
    last: Any = None
    async for event in turn.events("go"):
        if isinstance(event, events.ToolStarted):
            asyncio.get_running_loop().call_soon(turn.stop)
        last = event
    assert isinstance(last, events.Interrupted)
    assert db.get_messages(record.session_id)[-1]["content"] == STOPPED
    await record.close()


async def test_an_error_of_the_model_is_one_line_and_can_be_tried_again(db: SessionDB) -> None:
    record = StoredRecord(db)
    model = ScriptedModel([NotAuthorized("the key is wrong")], says("now it works"))
    failed: list[Any] = [event async for event in a_turn(db, model, record).events("hello")]
    assert failed[-1].why == "the key is wrong"
    again = [event async for event in a_turn(db, model, record).events(None)]
    assert isinstance(again[-1], events.Done)
    assert [row["role"] for row in db.get_messages(record.session_id)] == ["user", "assistant"]
    await record.close()


async def test_text_before_a_retry_is_dropped(db: SessionDB) -> None:
    happened, rows = await run(
        db, [Text("half"), Retrying("lost the connection", 0.1), *says("whole answer")]
    )
    assert rows[-1]["content"] == "wholeanswer"
    assert events.Discarded("lost the connection", 0.1) in happened


async def test_an_empty_answer_is_asked_for_once_more(db: SessionDB) -> None:
    happened, _ = await run(db, says("")[1:], says("sorry"))
    assert happened[-1] == events.Done("sorry", "stop")
    happened, rows = await run(db, says("")[1:], says("")[1:])
    assert happened[-1].why == "scripted returned an empty answer twice"
    assert [row["role"] for row in rows] == ["user"]


async def test_after_the_last_step_the_model_must_answer(db: SessionDB) -> None:
    again = calls(("a", "echo", '{"text": "x"}'))
    record = StoredRecord(db)
    model = ScriptedModel(again, again, says("this is what I have"))
    happened = [event async for event in a_turn(db, model, record, most_steps=2).events("go")]
    assert isinstance(happened[-1], events.Done)
    assert events.Note("stopped after 2 steps") in happened
    assert model.requests[-1].messages[-1]["content"] == LAST_STEP
    assert not model.requests[-1].tools
    assert db.get_messages(record.session_id)[-1]["content"] == "thisiswhatIhave"
    await record.close()


class MakesRoom:
    """A compressor that drops the first messages when the context is too large."""

    def __init__(self, works: bool, *, due: bool = False, takes: asyncio.Event | None = None) -> None:
        self.asked: list[bool] = []
        self._works, self._due, self._takes = works, due, takes

    async def is_due(self, rows: Any, used: Used | None) -> bool:
        return self._due

    async def compress(self, *, overflow: bool) -> AsyncIterator[events.Event]:
        self.asked.append(overflow)
        yield events.Note("working")
        if self._takes is not None:
            await self._takes.wait()

    def fit_rows(self, rows: Any) -> Any:
        return rows[1:] if self.asked and self._works else rows


async def test_a_context_that_is_too_large_is_made_smaller_and_asked_again(db: SessionDB) -> None:
    record = StoredRecord(db)
    await record.say("user", "long ago")
    room, model = MakesRoom(True), ScriptedModel([ContextOverflow("too large")], says("ok"))
    happened = [event async for event in a_turn(db, model, record, compressor=room).events("now")]
    assert room.asked == [True]
    assert isinstance(happened[-1], events.Done)
    assert [request.messages[-1]["content"] for request in model.requests] == ["long ago\n\nnow", "now"]
    await record.close()


async def test_a_context_that_got_no_smaller_is_not_asked_again(db: SessionDB) -> None:
    happened, _ = await run(db, [ContextOverflow("too large")], compressor=MakesRoom(False))
    assert happened[-1].why == "too large"


async def test_stopping_does_not_wait_for_a_compression(db: SessionDB) -> None:
    record = StoredRecord(db)
    room = MakesRoom(True, due=True, takes=asyncio.Event())
    turn = a_turn(db, ScriptedModel(), record, compressor=room)
    last: Any = None
    async for event in turn.events("hello"):
        if isinstance(event, events.Note):
            turn.stop()
        last = event
    assert last == events.Interrupted("")
    await record.close()


async def test_incognito_leaves_nothing(home: Path) -> None:
    async def prompt() -> str:
        return "be kind"

    model = ScriptedModel(says("hi"), says("again"))
    record = IncognitoRecord()
    for text in ("hello", "more"):
        turn = Turn(
            record,
            model,
            [],
            lambda approve, stop: ToolContext(None, "", Path("/"), approve, stop),  # type: ignore[arg-type]
            price=lambda _model, _used: (None, {}),
            prompt=prompt,
        )
        happened = [event async for event in turn.events(text)]
        assert isinstance(happened[-1], events.Done)
    assert [one["content"] for one in model.requests[-1].messages] == ["be kind", "hello", "hi", "more"]
    assert not home.exists()


async def test_a_message_that_cannot_be_stored_is_reported_and_the_conversation_continues(
    db: SessionDB,
) -> None:
    record = StoredRecord(db)
    await record.say("user", "first")
    db.close()
    model = ScriptedModel([Unreachable("nobody there")])
    happened = [event async for event in a_turn(db, model, record).events("second")]
    assert isinstance(happened[0], events.NotStored)
    assert not happened[0].spooled
    assert isinstance(happened[-1], events.Failed)


async def test_a_message_during_a_tool_call_is_sent_with_the_next_step(db: SessionDB) -> None:
    echo = Echo()
    echo.release.clear()
    model = ScriptedModel(calls(("1", "echo", '{"text": "a"}')), says("both"))
    record = StoredRecord(db)
    turn = a_turn(db, model, record, tools=[echo])
    happened = []
    async for event in turn.events("first"):
        happened.append(event)
        if isinstance(event, events.ToolStarted):
            await asyncio.sleep(0)
            assert turn.steer("second", platform_message_id="m2")
            echo.release.set()
    assert isinstance(happened[-1], events.Done)
    rows = db.get_messages(record.session_id)
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "user", "assistant"]
    assert rows[3]["content"] == "second"
    assert rows[3]["platform_message_id"] == "m2"
    assert model.requests[1].messages[-1]["content"] == "second"
    assert not turn.steer("too late")
    await record.close()


async def test_a_message_during_the_last_answer_causes_another_step(db: SessionDB) -> None:
    record = StoredRecord(db)
    model = ScriptedModel(says("one"), says("two"))
    turn = a_turn(db, model, record)
    happened = []
    async for event in turn.events("first"):
        happened.append(event)
        if isinstance(event, events.TextDelta) and event.text == "one":
            assert turn.steer("and then?")
    assert happened[-1] == events.Done("two", "stop")
    assert [row["content"] for row in db.get_messages(record.session_id)] == [
        "first",
        "one",
        "and then?",
        "two",
    ]
    await record.close()


async def test_a_message_keeps_the_fields_it_came_with(db: SessionDB) -> None:
    record = StoredRecord(db)
    turn = a_turn(db, ScriptedModel(says("hi")), record)
    _ = [event async for event in turn.events("hello", platform_message_id="m1")]
    assert db.has_platform_message_id(record.session_id, "m1")
    await record.close()


class Asks:
    """A tool that needs an approval."""

    name, description = "asks", "Asks first."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}}

    async def run(self, _arguments: dict[str, Any], context: ToolContext) -> str:
        decision = await context.approve(ApprovalRequest("launch", "cannot be undone"))
        return f"{'launched' if decision.allowed else 'refused'} {decision.note}".strip()


async def test_an_approval_is_an_event_that_the_surface_answers(db: SessionDB) -> None:
    asked: list[ApprovalRequest] = []
    model = ScriptedModel(calls(("1", "asks", "{}"), ("2", "asks", "{}")), says("done"))
    turn = a_turn(db, model, StoredRecord(db), tools=[Asks()], can_ask=True)
    happened = await events_of(turn, "go", Decision(False, note="not on a Friday"), asked)
    assert asked == [ApprovalRequest("launch", "cannot be undone")] * 2
    ended = [event.output for event in happened if isinstance(event, events.ToolEnded)]
    assert ended == ["refused not on a Friday"] * 2


async def test_an_approval_is_refused_if_nobody_can_answer(db: SessionDB) -> None:
    model = ScriptedModel(calls(("1", "asks", "{}")), says("done"))
    turn = a_turn(db, model, StoredRecord(db), tools=[Asks()])
    happened = [event async for event in turn.events("go")]
    assert not any(isinstance(event, events.ApprovalAsked) for event in happened)
    [ended] = [event.output for event in happened if isinstance(event, events.ToolEnded)]
    assert ended.startswith("refused nobody can be asked for approval here")
    assert events.Note("refused, because nobody can be asked for approval here: launch") in happened


async def test_a_turn_that_is_stopped_while_it_asks_runs_nothing(db: SessionDB) -> None:
    model = ScriptedModel(calls(("1", "asks", "{}")), says("done"))
    turn = a_turn(db, model, StoredRecord(db), tools=[Asks()], can_ask=True)
    happened = []
    async for event in turn.events("go"):
        happened.append(event)
        if isinstance(event, events.ApprovalAsked):
            turn.stop()
    assert isinstance(happened[-1], events.Interrupted)
    assert not turn.decide(1, ALLOW_ONCE)
    assert not any("launched" in event.output for event in happened if isinstance(event, events.ToolEnded))


async def test_an_approval_that_comes_right_after_a_stop_runs_nothing(db: SessionDB) -> None:
    model = ScriptedModel(calls(("1", "asks", "{}")), says("done"))
    turn = a_turn(db, model, StoredRecord(db), tools=[Asks()], can_ask=True)
    happened = []
    async for event in turn.events("go"):
        happened.append(event)
        if isinstance(event, events.ApprovalAsked):
            turn.stop()
            assert not turn.decide(event.number, ALLOW_ONCE)
    assert isinstance(happened[-1], events.Interrupted)
    assert not any("launched" in event.output for event in happened if isinstance(event, events.ToolEnded))
