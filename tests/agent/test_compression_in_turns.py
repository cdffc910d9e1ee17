"""Long turns. A model with a small context window processes far more text than fits into the window."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from hermes.agent import events
from hermes.agent.context import tokens
from hermes.agent.context.boundaries import is_summary
from hermes.agent.models.model import CallPiece, ContextOverflow, Finished, Piece, Request, Text, Used
from hermes.agent.tool import ToolContext
from hermes.agent.transcript import IncognitoRecord, Record, StoredRecord
from hermes.config.settings_schema import CompressionSettings
from hermes_state import SessionDB
from tests.agent.long_talk import Summarizer, compressor
from tests.agent.test_replay import check
from tests.agent.test_turn import a_turn


class Reads:
    name, description = "read", "Reads a file."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}

    def __init__(self, size: int) -> None:
        self.size = size

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        return f"{arguments['path']} " + "content " * (self.size // 8)


class Small:
    """A model that calls a tool `left` times and then answers. It refuses a request that is larger than its
    window."""

    name, provider, base_url = "small", "test", None

    def __init__(self, window: int, says: int, at_once: int, tells: bool) -> None:
        self.window, self.context_window, self.at_once, self.tells = window, says, at_once, tells
        self.left = 0
        self.asked = ""
        self.refused = self.taken = 0

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        size = tokens.count_text(json.dumps([list(request.messages), list(request.tools)]))
        if size > self.window:
            self.refused += 1
            raise ContextOverflow("the request is too large")
        self.taken += 1
        check(list(request.messages))
        assert any(self.asked in str(one["content"]) for one in request.messages if one["role"] == "user")
        if self.tells:
            yield Used(size // 3, 20, cache_read_tokens=size - size // 3)
        if self.left:
            self.left -= 1
            for at in range(self.at_once):
                path = json.dumps({"path": f"/src/{self.left}_{at}.py"})
                yield CallPiece(at, f"call_{self.left}_{at}", "read", path)
            yield Finished("tool_calls")
        else:
            yield Text(f"I have read it all for {self.asked}. " + "More of it. " * 40)
            yield Finished("stop")

    async def close(self) -> None: ...


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize(
    ("window", "says", "at_once", "size"),
    [
        (8_000, 8_000, 1, 2_000),
        (8_000, 128_000, 1, 4_000),
        (16_000, 16_000, 4, 8_000),
        (6_000, 6_000, 3, 200),
    ],
)
async def test_a_turn_can_be_far_longer_than_the_window(
    db: SessionDB, window: int, says: int, at_once: int, size: int, tells: bool
) -> None:
    record = StoredRecord(db)
    model, tool = Small(window, says, at_once, tells), Reads(size)
    made = compressor(record, Summarizer(), main=model, tools=[tool], settings=CompressionSettings())
    for number in range(6):
        model.left, model.asked = 8, f"question number {number}"
        turn = a_turn(db, model, record, tools=[tool], compressor=made)
        happened = [event async for event in turn.events(model.asked + " please " * 100)]
        assert isinstance(happened[-1], events.Done), happened[-1]
    assert model.taken == 6 * 9
    assert model.refused <= 12
    family = db.family(record.session_id)
    assert family is not None
    members = [one.id for _, one in family.walk()]
    assert len(members) > 1
    assert sum(map(is_summary, await record.context())) == 1
    everything = db.get_messages_as_conversation(record.session_id, include_ancestors=True)
    assert len([row for row in everything if row["role"] == "tool"]) == 6 * 8 * at_once
    assert all(len(row["content"]) >= size // 2 for row in everything if row["role"] == "tool")
    assert len([row for row in everything if row["role"] == "user"]) == 6
    await record.close()


async def test_a_prompt_that_is_larger_than_the_window_fails_in_one_line(db: SessionDB) -> None:
    record: Record = IncognitoRecord(prompt="word " * 10_000)
    model = Small(4_000, 4_000, 1, False)
    made = compressor(record, Summarizer(), main=model)
    turn = a_turn(db, model, record, tools=[], compressor=made)
    happened = [event async for event in turn.events("hello")]
    assert isinstance(happened[-1], events.Failed)
    assert happened[-1].why == "the request is too large"
