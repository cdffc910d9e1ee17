"""An agent with its real tools, a real store and a model that follows a script."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from hermes.agent.agent import Agent
from hermes.agent.approvals.grants import Grants
from hermes.agent.approvals.request import DENY, ApprovalRequest, Scope
from hermes.agent.events import Done, Interrupted, ToolEnded
from hermes.agent.prompt.memory_files import Memory
from hermes.agent.prompt.skill_files import Skills
from hermes.agent.prompt.system_prompt import build_system_prompt
from hermes.agent.tools import make_standard_tools
from hermes.agent.tools.background_processes import BackgroundProcesses
from hermes.agent.tools.todo import TodoItem, read_todo
from hermes.agent.transcript import StoredRecord
from hermes.agent.turn import Turn
from hermes_state import SessionDB
from tests.agent.approval_answers import events_of
from tests.agent.scripted import ScriptedModel, calls, says
from tests.agent.tools.processes import eventually, runs


def call(number: int, tool: str, /, **arguments: Any) -> tuple[str, str, str]:
    return f"call_{number}", tool, json.dumps(arguments)


async def test_a_turn_with_every_kind_of_tool(db: SessionDB, tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    item = {"id": "1", "content": "Write the program", "status": "completed"}
    model = ScriptedModel(
        calls(
            call(1, "todo", items=[{**item, "status": "in_progress"}]),
            call(2, "write_file", path="hello.py", content="print('hello')\n"),
        ),
        calls(
            call(3, "patch", path="hello.py", old_text="hello", new_text="good day"),
            call(4, "memory", action="add", target="user", content="Says good day."),
        ),
        calls(
            call(5, "terminal", command="python3 hello.py; rm -rf hello.py"),
            call(6, "search_files", content="good", name="*.py"),
            call(
                7, "skill_manage", action="create", name="greet", description="Greeting", content="Be kind."
            ),
            call(8, "read_file", path=7),
        ),
        calls(call(9, "todo", items=[item])),
        says("done"),
        says("yes"),
    )
    asked: list[ApprovalRequest] = []
    processes = BackgroundProcesses()
    tools = make_standard_tools(processes=processes)

    async def prompt() -> str:
        return build_system_prompt(
            tools=tools,
            cwd=folder,
            source="cli",
            model=model.name,
            started_at=0,
            memory=Memory(),
            skills=Skills(),
        )

    def agent(record: StoredRecord) -> Agent:
        return Agent(
            db,
            record,
            model,
            tools=tools,
            prompt=prompt,
            price=lambda _model, _used: (None, {}),
            cwd=folder,
            can_ask=True,
        )

    record = StoredRecord(db)
    Grants().add(folder, Scope.EDITS)
    happened = await events_of(agent(record).turn(), "write a program", DENY, asked)
    ended = {event.call_id: event for event in happened if isinstance(event, ToolEnded)}
    assert isinstance(happened[-1], Done)
    assert ended["call_2"].output == "hello.py: created, 15 bytes"
    assert "+print('good day')" in ended["call_3"].output
    assert ended["call_4"].output.startswith("kept; user holds 14 of 1,400")
    assert ended["call_5"].failed
    assert "this command was not allowed" in ended["call_5"].output
    assert ended["call_6"].output == "hello.py:1:print('good day')"
    assert ended["call_8"].output == "error: path must be a string"
    assert (folder / "hello.py").read_text() == "print('good day')\n"
    assert [request.subject for request in asked] == ["python3 hello.py; rm -rf hello.py"]

    # After a resume in another folder, the todo list is available and the prompt is unchanged, even if
    # memories were added.
    await record.close()
    assert read_todo(db, record.session_id) == [TodoItem("1", "Write the program", "completed")]
    again = StoredRecord(db, record.session_id)
    assert isinstance([event async for event in agent(again).turn().events("all of it?")][-1], Done)
    await again.close()
    systems = {request.messages[0]["content"] for request in model.requests}
    assert len(systems) == 1
    assert "Says good day." not in systems.pop()
    assert "```user-profile\nSays good day.\n```" in await prompt()
    assert "- greet: Greeting" in await prompt()
    processes.close()


async def test_stopping_a_turn_ends_its_command_and_keeps_the_messages(
    db: SessionDB, tmp_path: Path, mark: str
) -> None:
    async def prompt() -> str:
        return "be kind"

    folder = tmp_path / "work"
    folder.mkdir()
    processes, record = BackgroundProcesses(), StoredRecord(db)
    model = ScriptedModel(calls(call(1, "terminal", command=f"sleep {mark} & wait")), says("well then"))
    agent = Agent(
        db,
        record,
        model,
        tools=make_standard_tools(processes=processes),
        prompt=prompt,
        price=lambda _model, _used: (None, {}),
        cwd=folder,
        can_ask=True,
    )
    turn = agent.turn()
    stopping = asyncio.create_task(_stop_when_running(mark, turn))
    happened = await events_of(turn, "wait a while")
    await stopping
    assert isinstance(happened[-1], Interrupted)
    assert await eventually(lambda: not runs(mark))
    assert db.get_messages(record.session_id)[-1]["role"] == "tool"
    again = [event async for event in agent.turn().events("go on")]
    assert again[-1] == Done("wellthen", "stop")
    await record.close()
    processes.close()


async def _stop_when_running(mark: str, turn: Turn) -> None:
    await eventually(lambda: runs(mark))
    turn.stop()
