"""Runs subagents: each is a turn of its own, in a session of its own, for one task of the agent that asks.

A subagent has the model of its caller, some of its tools, and bounds of steps and time. What needs consent is asked of
the person through the caller's turn. Stopping that turn stops its subagents; what they did is stored. A subagent cannot
delegate, write memory or change skills.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from hermes import errors
from hermes.agent.approvals.request import ApprovalRequest, Decision
from hermes.agent.components import AgentInputs
from hermes.agent.events import (
    Counted,
    Done,
    Event,
    Failed,
    Interrupted,
    Note,
    NotStored,
    SubagentProgress,
    ToolEnded,
    ToolStarted,
)
from hermes.agent.subagents import (
    END_REASONS,
    Subagent,
    SubagentResult,
    Subagents,
    Task,
    find_conversation,
)
from hermes.agent.tool import Caller, Tool, ToolContext, ToolFailed
from hermes.agent.transcript import IncognitoRecord, StoredRecord
from hermes.agent.turn import Compressor, Turn
from hermes.config.settings_schema import DelegationSettings
from hermes.logs import get_logger
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore

log = get_logger(__name__)

OpenRecord = StoredRecord | IncognitoRecord

WITHHELD = ("delegate_task", "memory", "skill_manage")
"""Tools of the caller that a subagent does not get: one level of delegation, and no lasting notes of its own."""
SURFACE = "subagent"
GRACE_S = 10.0
"""How long subagents of a stopped turn may take to store what they did."""
TICK_S = 0.25
WAITS_FOR_PERSON = "waits for an approval"
CALLER_STOPPED = "the turn that asked for it was stopped"
NO_ANSWER = "it ended without an answer"
LONGEST_GOAL = 60
"""Terminal cells of the goal in a question to the person."""


class Delegation:
    """Runs the tasks of `delegate_task`, for all conversations of a program."""

    def __init__(
        self,
        subagents: Subagents,
        settings: DelegationSettings,
        make_prompt: Callable[[AgentInputs], Awaitable[str]],
        make_compressor: Callable[[StoredRecord, AgentInputs], Compressor] | None = None,
        stop_processes: Callable[[AnyStore, str], int] | None = None,
    ) -> None:
        """`make_prompt` makes the system prompt of a subagent; `stop_processes` ends what its tools left running."""
        self.settings = settings
        self._subagents, self._make_prompt = subagents, make_prompt
        self._make_compressor, self._stop_processes = make_compressor, stop_processes

    async def run(self, tasks: Sequence[Task], context: ToolContext) -> list[SubagentResult]:
        """Run all tasks, a few at a time, and wait for them. The results are in the order of the tasks."""
        if context.caller is None:
            raise ToolFailed("nothing can be delegated here")
        chosen = [choose_tools(context.caller.tools, task.tools) for task in tasks]
        conversation = await asyncio.to_thread(find_conversation, context.db, context.session_id)
        subagents = [self._subagents.add(conversation, task.goal) for task in tasks]
        for subagent in subagents:
            context.report(subagent.progress)
        runs = [
            asyncio.create_task(_Run(self, subagent, task, tools, context, context.caller).run())
            for subagent, task, tools in zip(subagents, tasks, chosen, strict=True)
        ]
        try:
            await asyncio.wait(runs)
            return [run.result() for run in runs]
        except asyncio.CancelledError:  # the turn is stopped
            for subagent in subagents:
                subagent.stop(CALLER_STOPPED)
            await asyncio.wait(runs, timeout=GRACE_S)
            raise
        finally:
            for run in runs:
                run.cancel()
            await asyncio.gather(*runs, return_exceptions=True)

    async def make_turn(
        self, task: Task, tools: Sequence[Tool], context: ToolContext, caller: Caller, record: OpenRecord
    ) -> Turn:
        """The turn of a subagent; `context` is that of its tools."""
        inputs = AgentInputs(
            context.db, caller.model, tools, context.cwd, SURFACE, isinstance(record, IncognitoRecord)
        )
        compressor = None
        if self._make_compressor is not None and isinstance(record, StoredRecord):
            compressor = await asyncio.to_thread(self._make_compressor, record, inputs)
        return Turn(
            record,
            caller.model,
            tools,
            lambda _approve, stop: context._replace(stop=stop),
            price=caller.price,
            prompt=lambda: self._make_prompt(inputs),
            compressor=compressor,
            most_steps=min(task.max_steps or self.settings.max_steps, self.settings.max_steps),
        )

    def end(self, subagent: Subagent, state: str) -> SubagentProgress:
        return self._subagents.end(subagent, state=state)

    async def clean_up(self, record: OpenRecord, db: AnyStore, state: str) -> None:
        """End what the tools of a subagent left running, and its session."""
        try:
            if self._stop_processes is not None:
                await asyncio.to_thread(self._stop_processes, db, record.session_id)
            if isinstance(record, StoredRecord):
                await asyncio.to_thread(db.end_session, record.session_id, END_REASONS[state])
        except errors.StoreError as problem:
            log.warning("the session %s of a subagent is not ended: %s", record.session_id, problem)
        finally:
            await record.close()


def choose_tools(tools: Sequence[Tool], names: Sequence[str] | None) -> list[Tool]:
    """The tools of a subagent: those that are named, or all that it can have."""
    available = {tool.name: tool for tool in tools if tool.name not in WITHHELD}
    for name in names or ():
        if name not in available:
            raise ToolFailed(f"subagents have no tool {name[:40]!r}; they have {', '.join(available)}")
    return [tool for name, tool in available.items() if names is None or name in names]


class _Run:
    """One subagent at work."""

    def __init__(
        self,
        delegation: Delegation,
        subagent: Subagent,
        task: Task,
        tools: Sequence[Tool],
        context: ToolContext,
        caller: Caller,
    ) -> None:
        """`context` and `caller` are those of the call that asked for it."""
        self._delegation, self._subagent, self._task, self._tools = delegation, subagent, task, tools
        self._context, self._caller = context, caller
        self._notes: list[str] = []
        self._answer, self._problem, self._state = "", NO_ANSWER, "failed"

    async def run(self) -> SubagentResult:
        subagent = self._subagent
        try:
            await subagent.may_start.wait()
            if subagent.stop_reason is not None:
                self._state, self._problem = "stopped", subagent.stop_reason
            else:
                await self._work()
        except (errors.HermesError, ToolFailed) as problem:
            self._state, self._problem = "failed", str(problem)
        except asyncio.CancelledError:
            self._state = "stopped"
            raise
        except Exception as problem:  # the others go on, and the model can react to it
            log.exception("a subagent broke off")
            self._state, self._problem = "failed", f"{type(problem).__name__}: {problem}"
        finally:
            progress = self._delegation.end(subagent, self._state)
            self._tell(progress)
        return SubagentResult(progress, self._answer, self._problem, tuple(dict.fromkeys(self._notes)))

    def _tell(self, progress: SubagentProgress) -> None:
        self._context.report(progress)

    async def _work(self) -> None:
        record = await self._open_record()
        subagent, context = self._subagent, self._context
        self._tell(subagent.update(session_id=record.session_id))
        timer: asyncio.Task[None] | None = None
        try:
            if isinstance(record, StoredRecord):
                await record.hold()
            own = ToolContext(context.db, record.session_id, context.cwd, self._approve, context.stop)
            turn = await self._delegation.make_turn(self._task, self._tools, own, self._caller, record)
            subagent.turn = turn
            if subagent.stop_reason is not None:  # while it was made
                turn.stop()
            timer = asyncio.create_task(self._limit_time(self._delegation.settings.timeout_minutes * 60))
            async with aclosing(turn.events(self._task.prompt)) as events:
                async for event in events:
                    self._follow(event)
        except asyncio.CancelledError:
            self._state = "stopped"
            raise
        finally:
            if timer is not None:
                timer.cancel()
            await self._delegation.clean_up(record, context.db, self._state)

    async def _open_record(self) -> OpenRecord:
        """Where the subagent's conversation is kept: below the session of its caller, or nowhere, as that is."""
        caller, db = self._caller.record, self._context.db
        if not isinstance(caller, StoredRecord):
            return IncognitoRecord()

        async def make_session() -> str:
            return await asyncio.to_thread(
                lambda: db.delegate(
                    caller.session_id, lease_epoch=caller.epoch, model=self._caller.model.name
                )
            )

        return StoredRecord(db, await make_session(), surface=SURFACE, make_session=make_session)

    async def _approve(self, request: ApprovalRequest) -> Decision:
        """Ask the person through the caller's turn; the question names the subagent."""
        subagent = self._subagent
        goal = make_printable(self._task.goal, width_limit=LONGEST_GOAL)
        activity = subagent.progress.activity
        subagent.approvals_waiting += 1
        self._tell(subagent.update(activity=WAITS_FOR_PERSON))
        try:
            reason = f"{subagent.name} ({goal}) asks: {request.reason}"
            return await self._context.approve(request._replace(reason=reason))
        finally:
            subagent.approvals_waiting -= 1
            if not subagent.approvals_waiting:
                self._tell(subagent.update(activity=activity))

    async def _limit_time(self, seconds: float) -> None:
        """Stop the subagent after so many seconds. Time in which it waits for the person does not count."""
        left = seconds
        while left > 0:
            step = min(TICK_S, left)
            await asyncio.sleep(step)
            left -= 0 if self._subagent.approvals_waiting else step
        self._subagent.stop(f"it was not done after {seconds / 60:g} minutes")

    def _follow(self, event: Event) -> None:
        subagent = self._subagent
        match event:
            case ToolStarted(_, name, _):
                self._tell(subagent.update(activity=name))
            case ToolEnded():
                self._tell(subagent.update(activity=""))
            case Counted():
                self._count(event)
            case Note(text):
                self._notes.append(text)
            case NotStored(role, why, _):
                self._context.report(Note(f"{subagent.name}: not stored ({role}): {why}"))
            case Done(text):
                self._answer = text
                self._state, self._problem = ("done", "") if text.strip() else ("failed", NO_ANSWER)
            case Interrupted(text):
                self._answer, self._state = text, "stopped"
                self._problem = subagent.stop_reason or CALLER_STOPPED
            case Failed(why):
                self._state, self._problem = "failed", why
            case _:
                pass

    def _count(self, event: Counted) -> None:
        """Add a request to the progress, and to what the caller's turn took."""
        before, used = self._subagent.progress, event.used
        is_known = before.cost_usd is not None and event.cost_usd is not None
        progress = self._subagent.update(
            steps=before.steps + (event.purpose == "main"),
            input_tokens=before.input_tokens + (used.input_tokens or 0),
            output_tokens=before.output_tokens + (used.output_tokens or 0),
            cost_usd=(before.cost_usd or 0.0) + (event.cost_usd or 0.0) if is_known else None,
        )
        self._context.report(event._replace(purpose="subagent"))
        self._tell(progress)
