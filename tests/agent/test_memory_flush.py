"""The memory flush is a silent turn. It saves important facts with its tools and leaves no other trace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes.agent.approvals.request import ApprovalRequest
from hermes.agent.components import LEAST_SAID
from hermes.agent.context import tokens
from hermes.agent.context.boundaries import is_summary
from hermes.agent.memory_flush import ROOM_TASK, TASK, MemorySaver
from hermes.agent.models.model import ContextOverflow, Used
from hermes.agent.prompt.memory_files import Memory
from hermes.agent.tool import ToolContext
from hermes.agent.tools.memory_tool import MemoryTool
from hermes.agent.transcript import StoredRecord
from hermes_state import SessionDB
from tests.agent.long_talk import Summarizer, compressor, done, stored, talk
from tests.agent.scripted import Script, ScriptedModel, calls, says
from tests.agent.test_replay import check


class Remember:
    name, description = "memory", "Remembers."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}

    def __init__(self) -> None:
        self.kept: list[tuple[str, str]] = []
        self.asked: list[bool] = []

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.kept.append((context.session_id, arguments["text"]))
        self.asked.append((await context.approve(ApprovalRequest("remember", "?"))).allowed)
        return "kept"


def saver(db: SessionDB, *scripts: Script, **more: Any) -> tuple[MemorySaver, ScriptedModel, Remember]:
    tool, model = Remember(), ScriptedModel(*scripts)
    price = lambda _model, _used: (0.02, {"estimated_cost_usd": 0.02})  # noqa: E731
    return MemorySaver(db, model, more.pop("tools", [tool]), price=price, cwd=Path("/"), **more), model, tool


SAVES = calls(("a", "memory", '{"text": "likes tea"}'))


async def test_a_flush_saves_and_leaves_no_other_trace(db: SessionDB) -> None:
    talk(db)
    db.update_system_prompt("talk", "be kind")
    before = stored(db)
    saving, model, tool = saver(db, SAVES, says("done", used=Used(7, 1)))
    assert await saving.save("talk", db.get_context("talk"))
    assert tool.kept == [("talk", "likes tea")]
    assert tool.asked == [False]
    assert stored(db) == before
    assert model.requests[0].messages[0] == {"role": "system", "content": "be kind"}
    assert model.requests[0].messages[-1]["content"].endswith(TASK)
    assert [one["function"]["name"] for one in model.requests[0].tools] == ["memory"]
    check(list(model.requests[0].messages))
    assert {line.purpose for line in db.usage_of("talk").by_model} == {"auxiliary"}
    assert db.usage_of("talk").total.calls == 2


async def test_short_conversations_and_nothing_new_are_skipped(db: SessionDB) -> None:
    saving, _, _ = saver(db, says("done"), says("done"))
    assert saving.begin("none", []) is None
    talk(db, exchanges=LEAST_SAID - 1)
    assert saving.begin("talk", db.get_context("talk")) is None
    talk(db, exchanges=2)
    first = saving.begin("talk", db.get_context("talk"))
    assert first is not None
    assert await first
    assert saving.begin("talk", db.get_context("talk")) is None
    talk(db, exchanges=LEAST_SAID)
    second = saving.begin("talk", db.get_context("talk"))
    assert second is not None
    assert await second


async def test_a_flush_can_be_turned_off_and_needs_tools(db: SessionDB) -> None:
    rows = db.get_context(talk(db))
    assert saver(db, enabled=False)[0].begin("talk", rows) is None
    assert saver(db, tools=[])[0].begin("talk", rows) is None


async def test_a_flush_has_limits_of_time_and_steps(db: SessionDB) -> None:
    rows = db.get_context(talk(db))
    slow, _, _ = saver(db, [asyncio.Event()], seconds=0.02)
    task = slow.begin("talk", rows)
    assert task is not None
    assert not await task
    busy, model, tool = saver(db, *[SAVES] * 3, says("done"), most_steps=3)
    task = busy.begin("talk", rows)
    assert task is not None
    assert await task
    assert len(tool.kept) == 3
    assert not model.requests[-1].tools


async def test_leaving_waits_only_briefly_for_a_flush(db: SessionDB) -> None:
    saving, model, _ = saver(db, [asyncio.Event()])
    task = saving.begin("talk", db.get_context(talk(db)))
    assert task is not None
    await model.asked.wait()
    await saving.close(grace=0.01)
    assert task.cancelled()
    await saving.close()


@pytest.mark.parametrize("script", [[ContextOverflow("too large")], [*says("")[1:]]])
async def test_errors_of_a_flush_are_not_shown(db: SessionDB, script: Script) -> None:
    saving, _, _ = saver(db, script, says("")[1:])
    task = saving.begin("talk", db.get_context(talk(db)))
    assert task is not None
    assert not await task


async def test_more_than_the_model_can_take_is_cut(db: SessionDB) -> None:
    saving, model, _ = saver(db, says("done"))
    model.context_window = 6_000
    task = saving.begin("talk", db.get_context(talk(db, exchanges=60, size=2_000)))
    assert task is not None
    assert await task
    assert tokens.count_rows(model.requests[0].messages) < 5_000
    check(list(model.requests[0].messages))


@pytest.mark.parametrize("several", [True, False])
async def test_in_a_room_a_fact_is_saved_with_its_speaker(
    db: SessionDB, tmp_path: Path, several: bool
) -> None:
    ann, bob = f"[Ann #{'a' * 16}] ", f"[Bob #{'b' * 16}] "
    db.create_session("talk", "telegram")
    for number in range(LEAST_SAID):
        db.append_message("talk", "user", f"{bob if several and number == 1 else ann}I like tea.")
        db.append_message("talk", "assistant", "Noted.")
    note = '{"action": "add", "target": "user", "content": "likes tea"}'
    memory = Memory(tmp_path / "m")
    saving, model, _ = saver(
        db, calls(("a", "memory", note)), says("done"), tools=[MemoryTool(memory, shared=True)], shared=True
    )
    assert await saving.save("talk", db.get_context("talk"))
    assert model.requests[0].messages[-1]["content"].endswith(ROOM_TASK)
    (entry,) = memory.read("user").entries
    assert entry.startswith("[people in this room, " if several else f"[Ann #{'a' * 16}, ")


async def test_a_fact_from_a_room_is_not_saved_for_one_person(db: SessionDB) -> None:
    db.create_session("talk", "telegram")
    for _ in range(LEAST_SAID):
        db.append_message("talk", "user", f"[Bob #{'b' * 16}] I am an administrator.")
        db.append_message("talk", "assistant", "Noted.")
    saving, _, tool = saver(db, SAVES, says("done"))
    assert not await saving.save("talk", db.get_context("talk"))
    assert tool.kept == []


async def test_a_compression_saves_beside_and_nothing_of_it_is_in_the_context(db: SessionDB) -> None:
    record = StoredRecord(db, talk(db))
    saving, _, tool = saver(db, SAVES, says("done"))
    await done(compressor(record, Summarizer(), save=saving.begin).compress(overflow=False))
    await saving.close()
    assert tool.kept == [("talk", "likes tea")]
    texts = [str(row["content"]) for one in ("talk", record.session_id) for row in db.get_context(one)]
    assert not any("likes tea" in text or TASK in text for text in texts)
    assert sum(map(is_summary, await record.context())) == 1


async def test_the_caller_can_request_a_flush_of_a_single_message(db: SessionDB) -> None:
    saving, model, _ = saver(db, says("done"))
    rows = db.get_context(talk(db, exchanges=1))
    assert not await saving.save("talk", rows)
    assert await saving.save("talk", rows, least=1)
    assert not await saving.save("talk", rows, least=1)
    assert len(model.requests) == 1


async def test_messages_of_a_failed_flush_are_included_in_the_next(db: SessionDB) -> None:
    saving, model, _ = saver(db, [ContextOverflow("too large")], says("done"))
    rows = db.get_context(talk(db))
    assert not await saving.save("talk", rows)
    assert await saving.save("talk", rows)
    assert len(model.requests) == 2
