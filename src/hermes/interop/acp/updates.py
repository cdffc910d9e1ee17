"""Translates the events of a turn, and the messages of a stored conversation, to session updates for an editor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from acp import (
    plan_entry,
    text_block,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message,
)
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    Cost,
    CurrentModeUpdate,
    SessionInfoUpdate,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

from hermes.agent.answer import Answer, StreamText
from hermes.agent.events import (
    Counted,
    Event,
    Moved,
    Note,
    NotStored,
    Stored,
    SubagentProgress,
    ThoughtDelta,
    ToolEnded,
    ToolStarted,
)
from hermes.agent.subagents import describe_work
from hermes.agent.tools.todo import parse_items
from hermes.agent.turn import STOPPED
from hermes.export.ancestry import read_ancestors
from hermes.interop.acp.prompt_content import list_blocks
from hermes.interop.acp.tool_calls import DELEGATE, TODO, EditTexts, ToolCalls, make_text_content
from hermes.message_content import PARTIAL, list_tool_calls, read_text
from hermes.reasoning import extract_reasoning
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.agent.edit_journal import EditJournal
    from hermes.conversation.conversation import Conversation
    from hermes.db.session_db import SessionDB

Row = dict[str, Any]
Update = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)

BROKE_OFF = "[the answer broke off here: the program ended before it was complete]"
PLAN_STATES: dict[str, Literal["pending", "in_progress", "completed"]] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
}
"""The state of a plan entry for each state of a todo item. An item with another state is not part of the plan."""
NO_RESULT = "[no result is recorded; effect unknown]"


class TurnUpdates:
    """Translates the events of one turn to session updates for the editor. `answer` is the answer that the caller
    collects from the same events."""

    def __init__(self, conversation: Conversation[SessionDB], calls: ToolCalls, answer: Answer) -> None:
        self._conversation, self._calls = conversation, calls
        self._text = StreamText(answer)
        self._message_id = str(uuid4())
        self._subagents: dict[int | None, SubagentProgress] = {}

    async def translate(self, event: Event) -> list[Update]:
        """Return the session updates for an event. Call this before the event is added to the answer."""
        if text := self._text.render(event):
            return [make_message(text, self._message_id)]
        match event:
            case ThoughtDelta(text) if text:
                return [update_agent_thought_text(text)]
            case Stored(_, "assistant"):
                self._message_id = str(uuid4())  # the next text belongs to another message
            case NotStored(role, why, _):
                return [make_message(f"[not stored ({role}): {why}]\n\n", str(uuid4()))]
            case Note(text, hint):
                return [update_agent_thought_text(f"{text} {hint}".strip() + "\n")]
            case Moved(_, before, after):
                return [update_agent_thought_text(f"Compressed: {before} → {after} messages.\n")]
            case ToolStarted(call_id, name, arguments):
                call = self._calls.start(call_id, name, arguments)
                return [] if name == TODO else [self._calls.describe_start(call)]
            case ToolEnded():
                return await self._end_call(event)
            case SubagentProgress():
                return self._describe_subagents(event)
            case Counted() if event.purpose == "main":
                return self._count(event)
            case _:
                pass
        return []

    async def _end_call(self, event: ToolEnded) -> list[Update]:
        conversation = self._conversation
        make_journal = conversation.parts.edits
        journal = None if make_journal is None else make_journal(False)
        texts = EditTexts(journal, conversation.store, conversation.session_id, conversation.cwd)
        return await end_call(self._calls, texts, event.call_id, event.name, event.output, event.failed)

    def _describe_subagents(self, progress: SubagentProgress) -> list[Update]:
        """Return the update that shows the states of the subagents in the tool call that started them."""
        self._subagents[progress.number] = progress
        running = self._calls.list_running(DELEGATE)
        if not running:
            return []
        lines = [
            f"- {make_printable(known.goal, width_limit=80)}: {known.state}"
            f"{f' ({make_printable(known.activity, width_limit=40)})' if known.activity else ''},"
            f" {describe_work(known)}"
            for known in self._subagents.values()
        ]
        return [update_tool_call(running[-1].id, content=[make_text_content("\n".join(lines))])]

    def _count(self, event: Counted) -> list[Update]:
        """Return the update that tells the editor how full the context is, and the cost of the session so far."""
        models = self._conversation.models
        window = None if models is None or models.model is None else models.model.context_window
        prompt = event.used.prompt_tokens
        if window is None or prompt is None:
            return []
        total = self._conversation.total.cost_usd
        cost = None if total is None or event.cost_usd is None else total + event.cost_usd
        return [
            UsageUpdate(
                session_update="usage_update",
                used=prompt + (event.used.output_tokens or 0),
                size=window,
                cost=None if cost is None else Cost(amount=cost, currency="USD"),
            )
        ]


def make_message(text: str, message_id: str) -> AgentMessageChunk:
    return AgentMessageChunk(
        session_update="agent_message_chunk", content=text_block(text), message_id=message_id
    )


def make_plan(todo_result: str) -> AgentPlanUpdate | None:
    """Return the todo list in a result of the tool `todo` as a plan; None if the result is not a list."""
    if not todo_result.startswith("{"):
        return None
    return update_plan(
        plan_entry(item.content, status=PLAN_STATES[item.status])
        for item in parse_items(todo_result)
        if item.status in PLAN_STATES
    )


async def end_call(
    calls: ToolCalls, texts: EditTexts, call_id: str, name: str, output: str, failed: bool
) -> list[Update]:
    """Return the session updates for the end of a tool call. A todo list is sent as a plan, not as a tool call."""
    call = calls.end(call_id, name)
    if name == TODO:
        plan = None if failed else make_plan(output)
        if plan is not None:
            return [plan]
        return [calls.describe_start(call), calls.describe_end(call, output, failed, None)]
    diff = None if failed else await asyncio.to_thread(texts.make_diff, call)
    return [calls.describe_end(call, output, failed, diff)]


# ---------------------------------------------------------------- stored conversations


async def replay_conversation(
    store: SessionDB, session_id: str, cwd: Path, calls: ToolCalls, journal: EditJournal | None
) -> AsyncIterator[Update]:
    """Yield the session updates that show a whole stored conversation, including the messages from before a compression
    or a branch. Rewound messages are left out."""
    history = _History(calls, EditTexts(journal, store, session_id, cwd))
    for row in await asyncio.to_thread(_read_rows, store, session_id):
        for update in await history.describe(row):
            yield update
    for update in await history.end():
        yield update


class _History:
    """Translates the stored messages of a conversation to session updates, in the order of the messages."""

    def __init__(self, calls: ToolCalls, texts: EditTexts) -> None:
        self._calls, self._texts = calls, texts
        self._waiting: dict[str, str] = {}
        """The names of the tools whose results have not been read yet, by the id of the call."""

    async def describe(self, row: Row) -> list[Update]:
        match row["role"]:
            case "user":
                return [*await self.end(), *map(update_user_message, list_blocks(row.get("content")))]
            case "assistant":
                return [*await self.end(), *_describe_answer(row), *self._start_calls(row)]
            case "tool":
                return await self._end_call(row)
            case _:
                return []

    def _start_calls(self, row: Row) -> list[Update]:
        started = list[Update]()
        for call_id, name, arguments in list_tool_calls(row.get("tool_calls")):
            if name:
                self._waiting[call_id] = name
                call = self._calls.start(call_id, name, _read_arguments(arguments))
                started += [] if name == TODO else [self._calls.describe_start(call)]
        return started

    async def _end_call(self, row: Row) -> list[Update]:
        call_id = str(row.get("tool_call_id") or "")
        if call_id not in self._waiting:
            return []
        output = read_text(row.get("content"))
        failed = output == STOPPED or output.startswith("error:")
        return await end_call(self._calls, self._texts, call_id, self._waiting.pop(call_id), output, failed)

    async def end(self) -> list[Update]:
        """Return the session updates for tool calls whose result is not stored, because the program ended while they
        ran."""
        ended = list[Update]()
        for call_id, name in self._waiting.items():
            ended += await end_call(self._calls, self._texts, call_id, name, NO_RESULT, True)
        self._waiting.clear()
        return ended


def _read_rows(store: SessionDB, session_id: str) -> list[Row]:
    sessions = [session["messages"] for session in read_ancestors(store, session_id)]
    rows, seen = list[Row](), set[tuple[str, str, str]]()
    for row in (row for messages in reversed(sessions) for row in messages if row.get("active", 1)):
        # Other programs copy messages into the continuation after a compression. The copies have no uid.
        key = (row["role"], repr(row.get("content")), str(row.get("tool_call_id") or row.get("tool_calls")))
        if row.get("uid", "") is None and key in seen:
            continue
        seen.add(key)
        rows.append(row)
    return rows


def _describe_answer(row: Row) -> Iterable[Update]:
    if reasoning := extract_reasoning(row):
        yield update_agent_thought_text(reasoning)
    text, message_id = read_text(row.get("content"), "assistant"), str(row.get("uid") or uuid4())
    if text.strip():
        yield make_message(text, message_id)
    if row.get("finish_reason") == PARTIAL:
        yield update_agent_message_text(f"\n\n{BROKE_OFF}")


def _read_arguments(raw: object) -> Mapping[str, Any]:
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            return {"arguments": raw}
    return raw if isinstance(raw, dict) else {}
