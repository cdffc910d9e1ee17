"""Runs subagents. A subagent performs one task for another agent, its caller, in its own turn and its own
session.

A subagent has the caller's model, a subset of the caller's tools, and limits on steps and time. The caller's
turn asks the person for approvals. Stopping the caller's turn stops its subagents; their messages so far
remain stored. A subagent cannot delegate, write memory or change skills.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from hermes import errors
from hermes.agent.answer import Answer, collect_answer
from hermes.agent.approvals.request import ApprovalRequest, Decision
from hermes.agent.components import AgentInputs
from hermes.agent.events import (
    Counted,
    Event,
    Note,
    NotStored,
    SubagentProgress,
    ToolEnded,
    ToolStarted,
)
from hermes.agent.models.provider_errors import hide_detail
from hermes.agent.prompt.participants import UNKNOWN, make_sign
from hermes.agent.subagents import (
    END_REASONS,
    Subagent,
    SubagentResult,
    Subagents,
    Task,
    TaskQuota,
)
from hermes.agent.tool import Caller, Tool, ToolContext, ToolFailed, find_conversation_root
from hermes.agent.transcript import IncognitoRecord, StoredRecord
from hermes.agent.turn import Compressor, Turn
from hermes.config.settings_schema import DelegationSettings
from hermes.db.scoped_store import ScopedStore
from hermes.insights.number_format import format_plural
from hermes.logs import get_logger
from hermes.secrets import redact
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore

log = get_logger(__name__)

OpenRecord = StoredRecord | IncognitoRecord

WITHHELD = ("delegate_task", "memory", "skill_manage")
"""Tools that a subagent never gets. A subagent cannot delegate, and it writes neither memory nor skills."""
SURFACE = "subagent"
GRACE_S = 10.0
"""How long the subagents of a stopped turn may take to store their results."""
TICK_S = 0.25
WAITS_FOR_PERSON = "waits for an approval"
CALLER_STOPPED = "the turn that started it was stopped"
NO_ANSWER = "it ended without an answer"
LONGEST_GOAL = 60
"""The width limit of the goal in an approval request, in terminal cells."""


class Delegation:
    """Runs the tasks of `delegate_task` for all conversations of this process."""

    def __init__(
        self,
        subagents: Subagents,
        settings: DelegationSettings,
        make_prompt: Callable[[AgentInputs], Awaitable[str]],
        make_compressor: Callable[[StoredRecord, AgentInputs], Compressor] | None = None,
        stop_processes: Callable[[AnyStore, str], int] | None = None,
        quota: TaskQuota | None = None,
        shows_detail: bool = True,
    ) -> None:
        """`make_prompt` makes the system prompt of a subagent. `stop_processes` ends the background processes of
        a subagent. `quota` limits the tasks of each person; None means no limit.

        If `shows_detail` is False, errors of the model do not include the provider's error message.
        """
        self.settings = settings
        self._subagents, self._make_prompt = subagents, make_prompt
        self._make_compressor, self._stop_processes = make_compressor, stop_processes
        self._quota, self._shows_detail = quota, shows_detail

    async def run(self, tasks: Sequence[Task], context: ToolContext) -> list[SubagentResult]:
        """Run all tasks, a limited number of them at the same time, and wait for them. Return the results in
        the order of the tasks."""
        if context.caller is None:
            raise ToolFailed("nothing can be delegated here")
        chosen = [choose_tools(context.caller.tools, task.tools) for task in tasks]
        if self._quota is not None:
            await _take_from_quota(self._quota, len(tasks), context)
        conversation = await asyncio.to_thread(find_conversation_root, context.db, context.session_id)
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

    def describe_error(self, problem: Exception) -> str:
        """Return an error of a subagent as a text for the model that started it."""
        if self._shows_detail or not isinstance(problem, errors.HermesError):
            return str(problem)
        hidden = hide_detail(problem)
        if hidden is not problem:
            log.warning("a subagent failed: %s", redact(str(problem)))
        return str(hidden)

    async def make_turn(
        self, task: Task, tools: Sequence[Tool], context: ToolContext, caller: Caller, record: OpenRecord
    ) -> Turn:
        """Return the turn of a subagent. `context` is the context in which the tools of the subagent run."""
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
        """End the background processes of a subagent, then its session."""
        try:
            if self._stop_processes is not None:
                await asyncio.to_thread(self._stop_processes, db, record.session_id)
            if isinstance(record, StoredRecord):
                await asyncio.to_thread(db.end_session, record.session_id, END_REASONS[state])
        except errors.StoreError as problem:
            log.warning("could not end the session %s of a subagent: %s", record.session_id, problem)
        finally:
            await record.close()


def choose_tools(tools: Sequence[Tool], names: Sequence[str] | None) -> list[Tool]:
    """Return the tools of a subagent: the named tools, or all available tools if `names` is None."""
    available = {tool.name: tool for tool in tools if tool.name not in WITHHELD}
    for name in names or ():
        if name not in available:
            raise ToolFailed(f"subagents have no tool {name[:40]!r}; they have {', '.join(available)}")
    return [tool for name, tool in available.items() if names is None or name in names]


async def _take_from_quota(quota: TaskQuota, tasks: int, context: ToolContext) -> None:
    """Charge the tasks to the quota of each person on whose behalf the tool call is made. If this would exceed the
    quota of one of them, charge nothing and raise `ToolFailed`."""
    people = await find_people(context)
    if not quota.take(people, tasks):
        left = max(0, min(map(quota.count_left, people)))
        raise ToolFailed(
            f"a person may start {format_plural(quota.per_hour, 'subagent')} per hour here, and {left}"
            f" {'is' if left == 1 else 'are'} left; do the work yourself, or use fewer tasks"
        )


async def find_people(context: ToolContext) -> list[str]:
    """Return the people on whose behalf a tool call is made: the person, or in a room the speakers of this turn.

    Owners of the machine are left out, because the quota does not apply to them.
    """
    if not isinstance(context.db, ScopedStore):
        return []
    principal = context.db.principal
    if context.speakers is None:
        signs = [make_sign(principal.user) if principal.user else UNKNOWN.sign]
    else:
        speakers = await context.speakers() or [UNKNOWN]
        signs = [speaker.sign for speaker in speakers if not speaker.owns_machine]
    return [f"{principal.platform}:{sign}" if sign else principal.room for sign in signs]


class _Run:
    """One subagent at work on its task, from the start of its turn to the result."""

    def __init__(
        self,
        delegation: Delegation,
        subagent: Subagent,
        task: Task,
        tools: Sequence[Tool],
        context: ToolContext,
        caller: Caller,
    ) -> None:
        """`context` is the context of the tool call that started the subagent. `caller` is the agent that made this
        tool call."""
        self._delegation, self._subagent, self._task, self._tools = delegation, subagent, task, tools
        self._context, self._caller = context, caller
        self._answer, self._problem, self._state = Answer(), NO_ANSWER, "failed"

    async def run(self) -> SubagentResult:
        subagent = self._subagent
        try:
            await subagent.may_start.wait()
            if subagent.stop_reason is not None:
                self._state, self._problem = "stopped", subagent.stop_reason
            else:
                await self._work()
        except (errors.HermesError, ToolFailed) as problem:
            self._state, self._problem = "failed", self._delegation.describe_error(problem)
        except asyncio.CancelledError:
            self._state = "stopped"
            raise
        except Exception as problem:  # the other subagents continue, and the model gets the error
            log.exception("a subagent failed with an unexpected error")
            self._state, self._problem = "failed", f"{type(problem).__name__}: {problem}"
        finally:
            progress = self._delegation.end(subagent, self._state)
            self._tell(progress)
        notes = dict.fromkeys(note.text for note in self._answer.notes if isinstance(note, Note))
        return SubagentResult(progress, self._answer.text, self._problem, tuple(notes))

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
            if subagent.stop_reason is not None:  # the subagent was stopped while its turn was created
                turn.stop()
            timer = asyncio.create_task(self._limit_time(self._delegation.settings.timeout_minutes * 60))
            await collect_answer(turn.events(self._task.prompt), self._follow, self._answer)
            self._conclude()
        except asyncio.CancelledError:
            self._state = "stopped"
            raise
        finally:
            if timer is not None:
                timer.cancel()
            await self._delegation.clean_up(record, context.db, self._state)

    async def _open_record(self) -> OpenRecord:
        """Open the record of the subagent's conversation.

        The conversation is stored as a child of the caller's session. If the caller's conversation is
        incognito, that of the subagent is too.
        """
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
        """Ask the person for an approval through the caller's turn. The request names the subagent."""
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
        """Stop the subagent after `seconds`. Time spent waiting for an approval does not count."""
        left = seconds
        while left > 0:
            step = min(TICK_S, left)
            await asyncio.sleep(step)
            left -= 0 if self._subagent.approvals_waiting else step
        self._subagent.stop(f"it did not finish within {seconds / 60:g} minutes")

    async def _follow(self, event: Event) -> None:
        """Report the progress of the subagent to the caller's turn."""
        match event:
            case ToolStarted(_, name, _):
                self._tell(self._subagent.update(activity=name))
            case ToolEnded():
                self._tell(self._subagent.update(activity=""))
            case Counted():
                self._count(event)
            case NotStored(role, why, _):
                self._context.report(Note(f"{self._subagent.name}: not stored ({role}): {why}"))
            case _:
                pass

    def _conclude(self) -> None:
        """Set the final state of the subagent and the reason why it has no answer, according to how its turn
        ended."""
        answer = self._answer
        if answer.outcome == "stopped":
            self._state, self._problem = "stopped", self._subagent.stop_reason or CALLER_STOPPED
        elif answer.outcome == "answered" and answer.text.strip():
            self._state, self._problem = "done", ""
        elif answer.failure is not None:
            self._problem = self._delegation.describe_error(answer.failure.error)

    def _count(self, event: Counted) -> None:
        """Add the usage of one model request to the progress of the subagent and to the usage of the caller's
        turn."""
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
