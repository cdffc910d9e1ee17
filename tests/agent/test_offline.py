"""The offline model uses every tool and answers from the sessions of the person. It says that it is not a
real model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes.agent import events
from hermes.agent.agent import Agent
from hermes.agent.models.model import Request, Text
from hermes.agent.models.offline import OfflineModel
from hermes.agent.tools import make_standard_tools
from hermes.agent.transcript import StoredRecord
from hermes_state import SessionDB
from tests.agent.approval_answers import events_of

Say = Any


@pytest.fixture
async def say(db: SessionDB, tmp_path: Path) -> Say:
    """Send a message to an agent with every tool and return the answer."""
    record = StoredRecord(db)

    async def prompt() -> str:
        return "be kind"

    agent = Agent(
        db,
        record,
        OfflineModel(),
        tools=make_standard_tools(),
        prompt=prompt,
        price=lambda _model, _used: (0.0, {}),
        cwd=tmp_path,
        can_ask=True,
    )

    async def answer_to(text: str) -> str:
        happened = await events_of(agent.turn(), text)
        assert isinstance(happened[-1], events.Done), happened[-1]
        return happened[-1].text

    return answer_to


async def test_the_offline_model_says_what_it_is(say: Say) -> None:
    for greeting in ("hello", "help", "who are you?"):
        assert "not a language model" in await say(greeting)


async def test_the_model_searches_and_quotes_the_sessions_of_the_person(db: SessionDB, say: Say) -> None:
    db.create_session("old", "cli")
    db.append_message("old", "user", "The retry budget is five tries.")
    db.set_session_title("old", "retries")
    for asked in ("search retry budget", "What did we decide about the retry budget?"):
        answer = await say(asked)
        assert "*retries*" in answer
        assert "**retry** **budget**" in answer
    assert "Nothing about that" in await say("search zebra crossing")
    assert "retries" in await say("list my sessions")


async def test_the_model_runs_commands_and_uses_files_memory_and_the_todo_list(
    say: Say, tmp_path: Path, home: Path
) -> None:
    assert "hello there" in await say("run echo hello there")
    await say("write notes.txt: buy milk")
    assert (tmp_path / "notes.txt").read_text().strip() == "buy milk"
    assert "buy milk" in await say("read notes.txt")
    await say("remember I prefer tabs")
    assert "I prefer tabs" in (home / "memories" / "USER.md").read_text()
    assert "call Ann" in await say("todo buy milk, call Ann")


async def test_without_tools_it_picks_sentences(say: Say) -> None:
    request = Request([{"role": "user", "content": "First point. More of it.\n\nSecond point."}])
    text = "".join([piece.text async for piece in OfflineModel().stream(request) if isinstance(piece, Text)])
    assert text == "- First point.\n- Second point."
