"""The text of an answer is stored in one row while it is streamed. After a crash, the row contains the text
stored so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from hermes import errors
from hermes.agent import streamed_answer
from hermes.agent.events import Discarded, Done, Event, Failed, Interrupted, NotStored, Stored
from hermes.agent.models.model import CallPiece, Finished, ModelError, Retrying, Text
from hermes.agent.tool import ToolContext
from hermes.agent.transcript import StoredRecord
from hermes.agent.turn import Turn
from hermes.chat.lease_conflict import follow
from hermes_state import SessionDB
from tests.agent.scripted import Script, ScriptedModel, says
from tests.survival.processes import impatient
from tests.survival.test_spool import locked

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def save_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_answer, "SAVE_EVERY_S", 0.005)
    monkeypatch.setattr(streamed_answer, "SAVE_SHARE", 0)


def make_turn(record: StoredRecord, *scripts: Script) -> Turn:
    async def prompt() -> str:
        return "be kind"

    return Turn(
        record,
        ScriptedModel(*scripts),
        [],
        lambda approve, stop: ToolContext(record.db, "", Path("/"), approve, stop),
        price=lambda _model, _used: (None, {}),
        prompt=prompt,
    )


async def list_rows(record: StoredRecord) -> list[Row]:
    return await asyncio.to_thread(record.db.get_messages, record.session_id)


async def wait_for(record: StoredRecord, is_so: Callable[[list[Row]], bool]) -> list[Row]:
    async with asyncio.timeout(30):
        while not is_so(rows := await list_rows(record)):
            await asyncio.sleep(0.005)
        return rows


def has_text(text: str) -> Callable[[list[Row]], bool]:
    return lambda rows: bool(rows) and rows[-1]["content"] == text


async def collect(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def test_an_answer_grows_in_one_row_until_it_is_complete(db: SessionDB) -> None:
    more, end = asyncio.Event(), asyncio.Event()
    record = StoredRecord(db, keeps_partial=True)
    call = CallPiece(0, "call_1", "none", "{}")
    script: Script = [Text("one"), more, Text(" two"), end, Text(" three"), call, Finished("tool_calls")]
    running = asyncio.create_task(collect(make_turn(record, script, says("done")).events("count")))
    (_, first) = await wait_for(record, has_text("one"))
    assert (first["role"], first["finish_reason"], first["tool_calls"]) == ("assistant", "partial", None)
    more.set()
    (_, second) = await wait_for(record, has_text("one two"))
    assert second["id"] == first["id"]
    assert [hit["id"] for hit in db.search_messages("two")] == [first["id"]]
    end.set()
    events = await running
    assert events[-1] == Done("done", "stop")
    assert Stored(first["id"], "assistant") in events
    rows = await list_rows(record)
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant"]
    whole = rows[1]
    assert (whole["id"], whole["content"], whole["finish_reason"]) == (
        first["id"],
        "one two three",
        "tool_calls",
    )
    assert [call["id"] for call in whole["tool_calls"]] == ["call_1"]
    session = db.get_session(record.session_id)
    assert session is not None
    assert (session["message_count"], session["tool_call_count"]) == (4, 1)
    assert session["last_active"] == rows[-1]["timestamp"]
    assert [hit["id"] for hit in db.search_messages("three")] == [first["id"]]
    assert db.diagnose(deep=True).ok


async def test_a_stopped_answer_is_complete_and_marked(db: SessionDB) -> None:
    record = StoredRecord(db, keeps_partial=True)
    turn = make_turn(record, [Text("one"), asyncio.Event()])
    running = asyncio.create_task(collect(turn.events("count")))
    await wait_for(record, has_text("one"))
    turn.stop()
    assert (await running)[-1] == Interrupted("one")
    assert [row["finish_reason"] for row in await list_rows(record)] == [None, "interrupted"]


async def test_a_cancelled_turn_keeps_all_that_was_streamed(db: SessionDB, monkeypatch: Any) -> None:
    monkeypatch.setattr(streamed_answer, "SAVE_EVERY_S", 3600.0)
    record = StoredRecord(db, keeps_partial=True)
    async with aclosing(
        make_turn(record, [Text("one"), Text(" two"), asyncio.Event()]).events("x")
    ) as events:
        async for event in events:
            if getattr(event, "text", "") == " two":
                break
    rows = await list_rows(record)
    assert [(row["content"], row["finish_reason"]) for row in rows[1:]] == [("one two", "interrupted")]


async def test_the_beginning_of_an_answer_that_fails_is_kept(db: SessionDB) -> None:
    record, end = StoredRecord(db, keeps_partial=True), asyncio.Event()
    running = asyncio.create_task(
        collect(make_turn(record, [Text("one"), end, ModelError("it broke")]).events("count"))
    )
    await wait_for(record, has_text("one"))
    end.set()
    assert isinstance((await running)[-1], Failed)
    rows = await list_rows(record)
    assert [(row["content"], row["finish_reason"]) for row in rows[1:]] == [("one", "interrupted")]
    session = db.get_session(record.session_id)
    assert session is not None
    assert session["message_count"] == 2


async def test_a_discarded_beginning_is_removed_before_the_next_one(db: SessionDB) -> None:
    record, again, end = StoredRecord(db, keeps_partial=True), asyncio.Event(), asyncio.Event()
    script: Script = [Text("one"), again, Retrying("lost", 0), end, Text("two"), Finished("stop")]
    running = asyncio.create_task(collect(make_turn(record, script).events("count")))
    await wait_for(record, has_text("one"))
    again.set()
    await wait_for(record, lambda rows: len(rows) == 1)
    end.set()
    events = await running
    assert Discarded("lost", 0) in events
    assert [row["content"] for row in await list_rows(record)] == ["count", "two"]


async def test_a_spooled_answer_replaces_its_beginning(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "state.db", spool=True) as db:
        record, end = StoredRecord(db, keeps_partial=True), asyncio.Event()
        running = asyncio.create_task(
            collect(make_turn(record, [Text("one"), end, Text(" two"), Finished("stop")]).events("count"))
        )
        await wait_for(record, has_text("one"))
        impatient(db, 0.05)
        with locked(db.db_path):
            end.set()
            events = await running
            assert any(isinstance(event, NotStored) and event.spooled for event in events)
            assert [row["content"] for row in await record.context()] == ["count", "one two"]
        await record.say("user", "next")
        contents = [(row["content"], row["finish_reason"]) for row in await list_rows(record)]
        assert contents == [("count", None), ("one two", "stop"), ("next", None)]


def test_a_row_that_is_gone_or_complete_is_not_replaced(db: SessionDB) -> None:
    db.create_session("s", "cli")
    partial = db.append_message("s", "assistant", "one", finish_reason="partial")
    whole: Row = {"finish_reason": "stop", "replaces": partial}
    assert db.append_message("s", "assistant", "one two", **whole) == partial
    assert db.append_message("s", "assistant", "one two", **whole) == partial
    assert [row["content"] for row in db.get_messages("s")] == ["one two"]
    assert not db.drop_partial("s", partial)

    other = db.append_message("s", "assistant", "begun", finish_reason="partial")
    assert db.drop_partial("s", other)
    again = db.append_message("s", "assistant", "whole", finish_reason="stop", replaces=other)
    assert again != other
    assert [row["content"] for row in db.get_messages("s")] == ["one two", "whole"]

    lease = db.leases.acquire("s", "terminal")
    third = db.append_message("s", "assistant", "begun", finish_reason="partial", lease_epoch=lease.epoch)
    db.leases.take_over("s", "other")
    with pytest.raises(errors.LeaseLost):
        db.append_message("s", "assistant", "x", replaces=third, lease_epoch=lease.epoch)
    with pytest.raises(errors.LeaseLost):
        db.drop_partial("s", third, lease_epoch=lease.epoch)
    with pytest.raises(errors.UnknownSession):
        db.append_message("unknown", "assistant", "x", replaces=third)


async def test_an_observer_sees_a_whole_answer(db: SessionDB) -> None:
    db.create_session("s", "cli")
    lease = db.leases.acquire("s", "terminal")
    partial = db.append_message("s", "assistant", "one", finish_reason="partial")
    shown: list[str] = []
    stop = asyncio.Event()
    following = asyncio.create_task(follow(db, "s", 0, lambda row: shown.append(row["content"]), stop))
    await asyncio.sleep(0.05)
    db.append_message("s", "assistant", "one two", finish_reason="stop", replaces=partial)
    db.leases.release(lease)
    assert await following is not None
    assert shown == ["one two"]
