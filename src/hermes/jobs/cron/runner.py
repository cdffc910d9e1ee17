"""One run of a scheduled job: a turn in a session, without a person.

The turn is the same as on every other surface (`conversation.Conversation`). It holds the lease of its session. The
runner answers approval requests from the job's allowlist. The record of the run in the store has a lease, too, which
the runner extends while it works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hermes import clock, errors, secrets
from hermes.agent.answer import Answer, collect_answer
from hermes.agent.components import AgentComponents, ModelChoice
from hermes.agent.events import ApprovalAsked, Event, Note, NotStored, Stored, ToolStarted
from hermes.conversation.agents import AgentScope
from hermes.conversation.conversation import Conversation
from hermes.conversation.local_conversation import LocalAgentProvider
from hermes.conversation.model_choice import ModelSelector
from hermes.conversation.surface import Surface
from hermes.conversation.working_directory import describe_origin
from hermes.jobs.cron.allowlist import Allowlist
from hermes.jobs.cron.job import NEW, NOWHERE, OWN, SOURCE, Job, make_session_id
from hermes.jobs.cron.phrases import format_duration
from hermes.jobs.cron.results import Report, ResultDelivery, describe_refusals, is_silent
from hermes.logs import get_logger
from hermes.store.jobs.job_runs import PENDING, JobRun, State

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

_log = get_logger(__name__)

RENEW_S = 20.0
GRACE_S = 10.0
"""How long a turn that was stopped may take to end."""
BUSY_NAP_S, LONGEST_BUSY_S = 3.0, 10 * clock.MINUTE
"""How often, and for how long, a run waits for a session that somebody else works in."""
STORE_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
T = TypeVar("T")
COMPLETE, FAILED = "cron_complete", "cron_failed"
SHUTDOWN = "the program was shut down during the run"

ABOUT = """\
You are running as the scheduled job “{name}” ({schedule}, {zone}). Nobody reads along, nobody can answer a question: \
where something is unclear, take the likeliest reading and say which. Actions that need an approval are refused unless \
the job's allowlist names them; if something you need is refused, say so in your answer. Your last message is the \
result{where}. If there is nothing worth reporting, answer with exactly [SILENT], and nothing is delivered."""

MakeComponents = Callable[[Allowlist], AgentComponents]


class Outcome(NamedTuple):
    run: JobRun
    """The record of the run as it was stored."""
    answer: str
    is_recorded: bool = True
    """False if another process took the run over, or if the job was removed during the run."""


def make_standard_job_components(allowlist: Allowlist) -> AgentComponents:
    from hermes.agent.factory import StandardFactory

    return StandardFactory(is_job=True, grants=allowlist).parts()


class Runner:
    def __init__(
        self,
        db: SessionDB,
        delivery: ResultDelivery,
        make_components: MakeComponents = make_standard_job_components,
    ) -> None:
        self._db, self._delivery, self._make_components = db, delivery, make_components

    async def run(
        self, job: Job, run: JobRun, *, stop: asyncio.Event | None = None, report: Report = lambda _line: None
    ) -> Outcome:
        """Run a job for a due time that this process has claimed, and deliver the result. Setting `stop` ends the run
        early. Its state is then `killed`."""
        attempt = _Attempt(self._db, job, run, self._make_components, report)
        state, answer, detail = await attempt.work(stop or asyncio.Event())
        is_killed = state == "killed"
        retry_at = None if state == "done" else job.choose_retry(run.attempt, clock.now(), killed=is_killed)
        has_result = not is_silent(answer) if state == "done" else retry_at is None
        delivery = PENDING if has_result and job.deliver != NOWHERE else None
        if state == "done" and is_silent(answer):
            delivery = "silent"
        runs = self._db.job_runs
        is_recorded = await _insist(lambda: runs.finish(run, state, detail, delivery, retry_at))
        ended = await _insist(lambda: runs.find(run))
        if not is_recorded or ended is None:
            return Outcome(run, answer, is_recorded=False)
        if delivery == PENDING:
            ended = ended._replace(delivery=await self._delivery.deliver(job, ended, answer))
        await self._thin_out(job)
        return Outcome(ended, answer)

    async def _thin_out(self, job: Job) -> None:
        """Delete the older runs that the job does not keep, with their sessions. Errors of the store are ignored."""
        with suppress(errors.StoreError):
            await asyncio.to_thread(delete_old_runs, self._db, job)


async def _insist(call: Callable[[], T]) -> T:
    """Make a store call and return its result. If the store is busy or full, try again for a while, because the outcome
    of the run is stored nowhere else."""
    for pause in STORE_PAUSES_S:
        try:
            return await asyncio.to_thread(call)
        except errors.StoreError as problem:
            _log.warning("the outcome of a run cannot be recorded yet: %s", problem)
            await asyncio.sleep(pause)
    return await asyncio.to_thread(call)


def delete_old_runs(db: SessionDB, job: Job) -> int:
    """Delete all runs of a job except for the last `job.keep`. The session of a deleted run is deleted, too, if no
    remaining run used it. A pinned session, and a session that a person began, is kept. Return the number of deleted
    runs."""
    old = db.job_runs.list_old(job.id, job.keep)
    if not old:
        return 0
    gone = {run.key for run in old}
    kept = [run for run in db.job_runs.list_runs(job.id, -1) if run.key not in gone]
    # A conversation of several runs can have been compressed. Then its runs name different sessions of it.
    for root in _list_conversations(db, old) - _list_conversations(db, kept):
        session = db.get_session(root)
        # A session that the job only visits belongs to a person.
        if session is not None and session["source"] == SOURCE and session["pinned_at"] is None:
            db.delete_conversations([root], db.db_path.parent / "sessions")
    return db.job_runs.delete(old)


def _list_conversations(db: SessionDB, runs: Sequence[JobRun]) -> set[str]:
    """Return the first sessions of the conversations in which `runs` were made."""
    named = {run.session_id for run in runs if run.session_id is not None}
    return {db.get_conversation_root(session_id) or session_id for session_id in named}


class _Attempt:
    """One attempt to run a job for a due time."""

    def __init__(
        self, db: SessionDB, job: Job, run: JobRun, make_components: MakeComponents, report: Report
    ) -> None:
        self._db, self._job, self._run, self._report = db, job, run, report
        self._allowlist = Allowlist(job.allow, edits=job.allow_edits)
        self._make_components = make_components
        self._conversation: Conversation[SessionDB] | None = None
        self._answer = Answer()
        self._created: str | None = None
        """The session that this attempt created."""

    async def work(self, stop: asyncio.Event) -> tuple[State, str, str | None]:
        """Run the turn of this attempt. Return the state of the run, the answer of the agent, and a detail, such as an
        error, or None."""
        lost = asyncio.Event()
        renewing = asyncio.create_task(self._keep_renewing(lost))
        turn = asyncio.create_task(self._converse())
        limits = [asyncio.create_task(event.wait()) for event in (stop, lost)]
        try:
            await asyncio.wait(
                {turn, *limits}, timeout=self._job.timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if turn.done():
                state, detail = self._judge(turn)
            else:
                state, detail = await self._end_early(turn, stop, lost)
        except asyncio.CancelledError:
            stop.set()
            await self._end_early(turn, stop, lost)
            raise
        finally:
            for task in (renewing, *limits):
                task.cancel()
            await asyncio.gather(renewing, *limits, return_exceptions=True)
            await self._close(turn)
        return state, self._answer.text if state == "done" else "", detail

    async def _end_early(
        self, turn: asyncio.Task[None], stop: asyncio.Event, lost: asyncio.Event
    ) -> tuple[State, str | None]:
        if self._conversation is not None:
            self._conversation.stop()
        await asyncio.wait({turn}, timeout=GRACE_S)
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        if lost.is_set():
            return "killed", "another process took the run over, or the job was removed"
        if stop.is_set():
            return "killed", SHUTDOWN
        return "failed", f"timed out after {format_duration(self._job.timeout_seconds)}"

    def _judge(self, turn: asyncio.Task[None]) -> tuple[State, str | None]:
        """Return the state of the run and its detail after the turn has ended without being stopped."""
        problem = turn.exception()
        if problem is not None:
            if not isinstance(problem, errors.HermesError | OSError):
                _log.error("the job %s failed: %r", self._job.id, problem, exc_info=problem)
            is_expected = isinstance(problem, errors.HermesError | OSError)
            return "failed", secrets.redact(str(problem) if is_expected else repr(problem))
        refusals = describe_refusals(self._allowlist.refused)
        if self._answer.problem is not None:
            return "failed", "; ".join(part for part in (self._answer.problem, refusals) if part)
        return "done", refusals

    async def _keep_renewing(self, lost: asyncio.Event) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            with suppress(
                errors.StoreError
            ):  # the store may be busy; the lease is longer than several attempts
                if not await asyncio.to_thread(self._db.job_runs.renew, self._run):
                    lost.set()
                    return

    # ---------------------------------------------------------------- the conversation

    async def _converse(self) -> None:
        job, folder = self._job, Path(self._job.workspace).expanduser()
        if not folder.is_dir():
            raise errors.HermesError(f"there is no directory {folder}")
        session_id = await asyncio.to_thread(self._choose_session, folder)
        session = await asyncio.to_thread(self._db.get_session, session_id)
        if session is None:
            raise errors.HermesError(f"the session {session_id} of the job was deleted")
        is_visited = session["source"] != SOURCE
        parts = self._make_components(self._allowlist)
        models = ModelSelector(parts, ModelChoice(job.model))
        scope = AgentScope("", SOURCE, True, about=self._describe_job(), can_ask=True, cwd=folder)
        ends = COMPLETE if not is_visited or session["ended_at"] is not None else None
        surface = Surface(name=f"job {job.id}", end_reason=ends, keeps_partial=True)
        self._conversation = Conversation(self._db, LocalAgentProvider(parts, models), scope, surface, models)
        self._conversation.expect(True)
        # A person's conversation keeps its directory.
        await self._enter(self._conversation, session_id, None if is_visited else folder)
        await asyncio.to_thread(self._db.job_runs.set_session, self._run, session_id)
        await collect_answer(self._conversation.say(self._make_prompt()), self._show, self._answer)

    def _choose_session(self, folder: Path) -> str:
        """Return the id of the session in which this run takes place. Create the session if the job does not continue
        in an earlier one."""
        job, db = self._job, self._db
        if job.session not in (NEW, OWN):
            return str(db.get_compression_tip(job.session))
        if job.session == OWN:
            for known in db.job_runs.list_sessions(job.id):
                tip = str(db.get_compression_tip(known))
                session = db.get_session(tip)
                if session is not None and session["source"] == SOURCE:
                    return tip
        session_id = self._created = self._create_session(folder)
        title = job.name if job.session == OWN else f"{job.name}, {job.format_time(self._run.due_at)}"
        again = "" if self._run.attempt == 1 else f" (attempt {self._run.attempt})"
        with suppress(errors.InvalidTitle):  # another session may have it; the id tells the runs apart
            db.set_session_title(session_id, f"{title}{again}")
        return session_id

    def _create_session(self, folder: Path) -> str:
        at = clock.now()
        while True:
            session_id = make_session_id(self._job, at)
            if self._db.get_session(session_id) is None:
                with suppress(errors.SessionInTrash):
                    origin: dict[str, Any] = {**describe_origin(folder)}
                    return self._db.create_session(session_id, SOURCE, **origin)
            at += 1

    async def _enter(
        self, conversation: Conversation[SessionDB], session_id: str, folder: Path | None
    ) -> None:
        """Take the lease of the session `session_id`. If somebody else works in it, wait until it is free. Raise
        `HermesError` if this takes too long."""
        until = clock.now() + min(self._job.timeout_seconds, LONGEST_BUSY_S)
        while True:
            try:
                await conversation.switch_to(session_id, asked_cwd=folder)
                return
            except errors.LeaseHeld as held:
                if clock.now() > until:
                    raise errors.HermesError(f"its session stayed in use: {held}") from None
                self._report(f"waiting for the session: {held}")
            await asyncio.sleep(BUSY_NAP_S)

    def _describe_job(self) -> str:
        job = self._job
        where = "" if job.deliver == NOWHERE else f" and is delivered to {job.deliver.partition(':')[0]}"
        return ABOUT.format(name=job.name, schedule=job.schedule, zone=job.timezone, where=where)

    def _make_prompt(self) -> str:
        """Return the prompt of the job, followed by the due time. The due time is not in the system prompt, because the
        system prompt stays the same if the job continues in one session for days."""
        late = ", run late" if self._run.cause == "missed" else ""
        kind = "manual run" if self._run.cause == "manual" else "scheduled run"
        return f"{self._job.prompt}\n\n({kind} of {self._job.format_time(self._run.due_at)}{late})"

    async def _show(self, event: Event) -> None:
        assert self._conversation is not None
        match event:
            case Stored(message_id, "user") if self._answer.prompt_id is None:
                session_id = self._conversation.session_id
                await asyncio.to_thread(self._db.job_runs.set_session, self._run, session_id, message_id)
            case ApprovalAsked(number, request):
                decision = await asyncio.to_thread(self._allowlist.decide, request)
                if not decision.allowed:
                    self._report(f"refused, not on the allowlist: {request.subject}")
                self._conversation.decide(number, decision)
            case ToolStarted(_, name):
                self._report(f"tool: {name}")
            case Note(text, hint):
                self._report(f"{text} {hint}".rstrip())
            case NotStored(role, why, _):
                self._report(f"not stored ({role}): {why}")
            case _:
                pass

    async def _close(self, turn: asyncio.Task[None]) -> None:
        """End the session and release its lease, whether the turn succeeded or not. Delete a session that this attempt
        created if no message was stored in it."""
        if not turn.done():
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
        conversation = self._conversation
        if conversation is None:
            return
        if self._answer.problem is not None and conversation.surface.end_reason is not None:
            conversation.surface = conversation.surface._replace(end_reason=FAILED)
        with suppress(errors.HermesError):
            await conversation.close()
        if self._created is not None and self._answer.prompt_id is None:
            with suppress(errors.StoreError):  # nothing was said in it
                await asyncio.to_thread(self._db.delete_session, self._created)
