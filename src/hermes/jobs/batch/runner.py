"""Runs the prompts of a batch: workers in one event loop, each prompt in a conversation of its own.

The session of a prompt has a fixed id. Its messages are stored before anything depends on them. A run that continues
looks for the session of each unfinished prompt first: an answer that is stored is not requested again, and a turn
that was cut off is continued after its last stored message.

    rate limit (429, Retry-After),   all workers wait, see `rate_gate`; not a failed attempt
    endpoint not reachable
    server error, lost connection,   the prompt is tried again with backoff, at most `attempts` times
    timeout, empty answer
    refused request, too long        the prompt fails at once
    wrong key, no credit, no such    the run stops; the prompt stays queued, because all others would fail, too
    model, provider given up,
    store not writable
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hermes import errors
from hermes.agent.answer import Answer, collect_answer
from hermes.agent.events import Counted, Event, NotStored, ToolStarted
from hermes.agent.models.model import (
    BadRequest,
    ContextOverflow,
    ModelError,
    NoSuchModel,
    NotAuthorized,
    ProviderBusy,
    Unreachable,
    Used,
)
from hermes.conversation.agents import AgentScope
from hermes.conversation.conversation import Conversation
from hermes.conversation.surface import Surface
from hermes.conversation.working_directory import describe_origin
from hermes.db.store_queue import StoreQueue, call_store, call_store_early
from hermes.jobs.batch.budget import Budget
from hermes.jobs.batch.prompt_agents import SOURCE, BatchAgents
from hermes.jobs.batch.prompt_file import Prompt
from hermes.jobs.batch.rate_gate import RateGate
from hermes.jobs.batch.run_state import Result, RunState, Tokens
from hermes.message_content import INTERRUPTED, PARTIAL, read_text

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.db.session_db import SessionDB

END_REASON = "batch_complete"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
RECENT = 200
"""The rate is computed from this many of the last finished prompts."""
STOPS_RUN = (NotAuthorized, NoSuchModel, errors.BadConfig)
HOPELESS = (BadRequest, ContextOverflow, errors.LeaseHeld, errors.LeaseLost)
"""The errors of a prompt after which another attempt would fail, too."""

StopReason = Literal["budget", "interrupted", "problem"]


class RunOptions(NamedTuple):
    workers: int = 4
    limit: int | None = None
    """Run only this many prompts from the beginning of the file."""
    budget_usd: float | None = None
    timeout_s: float | None = None
    """The maximum time of one attempt, without the time in which the provider refuses requests."""
    attempts: int = 3


class Progress(NamedTuple):
    total: int
    done: int
    failed: int
    running: int
    cost_usd: float | None
    """The cost of the whole run so far; None if the price of the model is unknown."""
    per_second: float
    seconds_left: float | None
    """The probable time until the end; None if it is not known yet."""
    waits_s: float
    """The seconds until the provider is asked again after it refused requests; 0 if it is asked now."""
    is_stopping: bool

    @property
    def finished(self) -> int:
        return self.done + self.failed


class Summary(NamedTuple):
    """What this process did for a batch run, and why it ended."""

    progress: Progress
    reason: StopReason | None
    """Why the run stopped before its end; None if no prompt is left."""
    problem: str | None
    """The error that stopped the run."""
    retries: int
    refused: int
    """How many requests the provider refused, so that all workers waited."""


class StoredAnswer(NamedTuple):
    """The part of an answer that the store has for a prompt. An earlier process may have begun with the prompt."""

    session_id: str
    """The last session of the conversation, in which the turn continues."""
    has_prompt: bool = False
    answer: str | None = None
    """The answer; None if the turn did not end."""
    seconds: float = 0.0


class Usage(NamedTuple):
    tokens: Tokens
    cost_usd: float | None


NOTHING_USED = Usage(Tokens(), None)


class _StopRun(Exception):
    """An error that stops the whole batch run. The prompt during which it occurs stays queued."""


class _AttemptFailed(Exception):
    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class BatchRunner:
    def __init__(
        self,
        db: SessionDB,
        state: RunState,
        agents: BatchAgents,
        gate: RateGate,
        options: RunOptions,
        cwd: Path,
        *,
        is_resumed: bool,
        on_result: Callable[[int, Prompt, Result], object] = lambda _number, _prompt, _result: None,
        on_wait: Callable[[str], object] = lambda _problem: None,
        first_pause: float = FIRST_PAUSE_S,
    ) -> None:
        """Prepare a batch run. `is_resumed` says that earlier processes worked on it. `on_result` is called for each
        result, after it was written to the journal. `on_wait` is called with the reason when all workers begin to wait
        for the provider."""
        self._db, self._state, self._agents, self._gate, self._options = db, state, agents, gate, options
        self._cwd, self._is_resumed, self._first_pause = cwd, is_resumed, first_pause
        self._on_result, self._on_wait = on_result, on_wait
        self._origin: dict[str, Any] = {**describe_origin(cwd)}
        self._last = min(state.total, options.limit or state.total)
        self._waiting: Iterator[int] = (
            number for number in range(1, self._last + 1) if not state.is_finished(number)
        )
        states = [state.get_state(number) for number in range(1, self._last + 1)]
        self._done, self._failed = states.count("done"), states.count("failed")
        self._taken: int | None = None
        """A prompt that was taken from `_waiting` and not started, because the budget has no room for it."""
        self._budget = Budget(options.budget_usd)
        self._counted: frozenset[int] = frozenset()
        """The unfinished prompts whose earlier cost is part of the budget."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[int, asyncio.Timeout | None] = {}
        self._changed = asyncio.Condition()
        self._ends: deque[float] = deque(maxlen=RECENT)
        self._began = monotonic()
        self._retries = 0
        self._reported = 0
        self._stopped = asyncio.Event()
        self._reason: StopReason | None = None
        self._problem: str | None = None
        self._has_price = agents.compute_price(Used(1, 1)) is not None
        gate.on_close = self._handle_closure

    # ---------------------------------------------------------------- the run

    async def run(self) -> Summary:
        """Run all unfinished prompts. Return when none is left. If the run is stopped, return as soon as the prompts
        that are running at that moment are finished."""
        queue = StoreQueue(self._db)
        syncing = asyncio.create_task(self._state.keep_synced())
        try:
            await self._prepare_budget()
            self._tasks = {asyncio.create_task(self._work()) for _ in range(self._options.workers)}
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
            await self._end_workers()
        finally:
            syncing.cancel()
            await asyncio.gather(syncing, return_exceptions=True)
            await queue.close()
            await asyncio.to_thread(self._state.sync)
        progress = self.progress
        reason = self._reason if progress.finished < progress.total else None
        return Summary(progress, reason, self._problem, self._retries, self._gate.refused)

    async def _end_workers(self) -> None:
        """Wait for all workers. If one of them ended with an unexpected error, cancel the others and raise that
        error."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        problem = next((found for task in ended if (found := task.exception()) is not None), None)
        if problem is not None:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if problem is not None:
            raise problem

    def stop(self) -> int:
        """Start no more prompts. Return the number of prompts that are running. These are finished, except for prompts
        that wait for the provider, which stay queued."""
        self._stop_run("interrupted")
        return len(self._running)

    def cancel(self) -> None:
        """Start no more prompts, and interrupt those that are running. They stay queued, and the next process that
        resumes the batch run continues them."""
        self._stop_run("interrupted")
        for task in self._tasks:
            task.cancel()

    def _stop_run(self, reason: StopReason, problem: str | None = None) -> None:
        if self._reason is None or reason == "interrupted":
            self._reason, self._problem = reason, problem
        self._stopped.set()
        self._gate.stop()

    @property
    def progress(self) -> Progress:
        rate = self._compute_rate()
        left = self._last - self._done - self._failed
        return Progress(
            self._last,
            self._done,
            self._failed,
            len(self._running),
            self._budget.spent if self._has_price or self._budget.spent else None,
            rate,
            left / rate + self._gate.seconds_left if rate else None,
            self._gate.seconds_left,
            self._reason is not None,
        )

    def _compute_rate(self) -> float:
        """Return how many prompts per second were finished recently."""
        if not self._ends:
            return 0.0
        since = self._ends[0] if len(self._ends) == RECENT else self._began
        return len(self._ends) / max(monotonic() - since, 0.001)

    # ---------------------------------------------------------------- workers

    async def _work(self) -> None:
        while (number := await self._take()) is not None:
            result: Result | None = None
            try:
                result = await self._run_prompt(number, self._state.read_prompt(number))
            except _StopRun as stop:
                self._stop_run("problem", str(stop))
            finally:
                self._running.pop(number, None)
                self._budget.finish(number, is_typical=result is not None and result.status == "done")
                async with self._changed:
                    self._changed.notify_all()

    async def _take(self) -> int | None:
        """Return the number of the next prompt, which counts as running from now on. None if no prompt is left or the
        batch run is being stopped.

        If the budget does not allow another prompt, wait for the running prompts, because they can turn out to be
        cheaper than expected.
        """
        async with self._changed:
            while self._reason is None:
                if self._taken is None:
                    self._taken = next(self._waiting, None)
                if self._taken is None:
                    return None
                if self._budget.has_room():
                    number, self._taken = self._taken, None
                    self._budget.start(number)
                    self._running[number] = None
                    return number
                if not self._running:
                    self._stop_run("budget")
                else:
                    await self._changed.wait()
        return None

    async def _prepare_budget(self) -> None:
        """Create the budget. It begins with what earlier processes spent on this batch run, including prompts that they
        did not finish."""
        spent = self._state.cost_usd
        if self._is_resumed:
            begun = [
                number
                for number in range(1, self._state.total + 1)
                if self._state.get_state(number) == "running"
            ]
            for number in begun:
                used = await call_store_early(self._read_usage, self._state.info.make_session_id(number))
                before = self._state.read_result(number)  # a failed prompt that was being tried again
                spent += (used.cost_usd or 0.0) - ((before and before.cost_usd) or 0.0)
            self._counted = frozenset(begun)
        estimate = 0.0
        if self._options.budget_usd is not None and self._last:
            prompt = self._state.read_prompt(1)
            estimate = await asyncio.to_thread(self._agents.estimate_cost, prompt)
        self._budget = Budget(self._options.budget_usd, spent, estimate)

    def _handle_closure(self, seconds: float, problem: Exception) -> None:
        """Extend the time limits of the running prompts by `seconds`, because the rate gate delays their requests by
        this time. For the first closure after an answer, call `on_wait` with `problem`."""
        if self._gate.in_a_row == 1 and self._gate.refused > self._reported:
            self._on_wait(str(problem))
        self._reported = self._gate.refused
        for deadline in self._running.values():
            if deadline is not None and not deadline.expired() and (when := deadline.when()) is not None:
                deadline.reschedule(when + seconds)

    # ---------------------------------------------------------------- one prompt

    async def _run_prompt(self, number: int, prompt: Prompt) -> Result:
        session_id, began = self._state.info.make_session_id(number), monotonic()
        try:
            found = await self._open_session(session_id, prompt)
        except errors.SessionInTrash:
            why = f"session {session_id} is in the trash; restore it with `hermes sessions trash restore {session_id}`"
            return self._finish(number, prompt, Result("failed", session_id, error=why))
        except errors.StoreError as problem:
            raise _StopRun(f"the store cannot be written: {problem}") from problem
        used = await call_store_early(self._read_usage, session_id) if found.has_prompt else NOTHING_USED
        if number not in self._counted and not self._state.has_result(number):
            self._budget.spend(number, used.cost_usd)  # the journal did not know of this part
        if found.answer is not None:
            await call_store(self._db.end_session, found.session_id, END_REASON)
            attempts = max(1, self._state.get_attempts(number))
            result = Result("done", session_id, found.answer, None, attempts, *used, found.seconds)
            return self._finish(number, prompt, result)
        conversation = self._make_conversation(prompt)
        is_over = False
        try:
            answer, error = await self._try(conversation, number, prompt, found)
            is_over = True
        except errors.StoreError as problem:
            raise _StopRun(f"the store cannot be written: {problem}") from problem
        finally:
            if not is_over:
                conversation.forget()  # do not end the session: the next run continues in it
            with suppress(errors.StoreError):
                await conversation.close(0.0)
        used = await call_store_early(self._read_usage, session_id)
        status: Literal["done", "failed"] = "done" if error is None else "failed"
        attempts = max(1, self._state.get_attempts(number))
        result = Result(status, session_id, answer, error, attempts, *used, monotonic() - began)
        return self._finish(number, prompt, result)

    def _finish(self, number: int, prompt: Prompt, result: Result) -> Result:
        self._state.finish(number, result)
        self._done += result.status == "done"
        self._failed += result.status == "failed"
        self._ends.append(monotonic())
        self._on_result(number, prompt, result)
        return result

    async def _open_session(self, session_id: str, prompt: Prompt) -> StoredAnswer:
        """Return what the store has of the answer to a prompt, if an earlier process may have begun with it. If the
        session `session_id` does not exist, create it."""
        if self._is_resumed:
            found = await call_store_early(find_answer, self._db, session_id)
            if found is not None:
                return found
        system = await self._agents.get_system_prompt(prompt)
        await call_store_early(
            lambda: self._db.create_session(session_id, SOURCE, system_prompt=system, **self._origin)
        )
        return StoredAnswer(session_id)

    def _make_conversation(self, prompt: Prompt) -> Conversation[SessionDB]:
        async def refuse() -> str:
            raise _StopRun("a session of this run was deleted while the run used it")

        surface = Surface("batch", end_reason=END_REASON, make_session=refuse)
        scope = AgentScope("", SOURCE, True, cwd=self._cwd)
        return Conversation(self._db, self._agents.for_prompt(prompt), scope, surface)

    async def _try(
        self,
        conversation: Conversation[SessionDB],
        number: int,
        prompt: Prompt,
        found: StoredAnswer,
    ) -> tuple[str | None, str | None]:
        """Ask the agent until it answers or no attempt is left. Return the text of the answer and the error; one of
        them is None."""
        try:
            await conversation.enter(found.session_id)
        except errors.LeaseHeld as problem:
            return None, str(problem)
        has_prompt = found.has_prompt
        while True:
            self._state.start(number)
            try:
                answer = await self._ask(conversation, number, None if has_prompt else prompt.prompt)
                return answer.text, None
            except _AttemptFailed as failure:
                self._state.record_failed_attempt(number, str(failure))
                failures = self._state.get_failures(number)
                if failure.is_final or failures >= self._options.attempts:
                    return None, str(failure)
            self._retries += 1
            has_prompt = has_prompt or await call_store_early(self._has_messages, found.session_id)
            pause = min(self._first_pause * 2.0 ** (failures - 1), LONGEST_PAUSE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                    await self._stopped.wait()
            if self._stopped.is_set():
                raise _StopRun("the run was stopped")

    async def _ask(self, conversation: Conversation[SessionDB], number: int, content: str | None) -> Answer:
        used_tools = False

        async def follow(event: Event) -> None:
            nonlocal used_tools
            match event:
                case Counted(_, _, cost):
                    self._budget.spend(number, cost)
                case NotStored(_, why):
                    raise _StopRun(f"the store cannot be written: {why}")
                case ToolStarted():
                    used_tools = True
                case _:
                    pass

        try:
            async with asyncio.timeout(self._options.timeout_s) as deadline:
                self._running[number] = deadline
                answer = await collect_answer(conversation.say(content), follow)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise _AttemptFailed(f"no answer within {self._options.timeout_s:g} s") from None
        except errors.HermesError as problem:
            raise self._judge(problem) from problem
        finally:
            self._running[number] = None
            if used_tools:
                await conversation.stop_processes()
        if answer.failure is not None:
            raise self._judge(answer.failure.error)
        if answer.problem is not None:
            raise _AttemptFailed(answer.problem)
        return answer

    def _judge(self, problem: Exception) -> Exception:
        """Return the exception to raise for an error during a prompt: `_StopRun` if the whole batch run must stop,
        otherwise `_AttemptFailed`."""
        if isinstance(problem, STOPS_RUN):
            return _StopRun(str(problem))
        if isinstance(problem, ProviderBusy | Unreachable) and self._gate.is_hopeless:
            return _StopRun(f"the provider answered no request for a while: {problem}")
        if isinstance(problem, HOPELESS):
            return _AttemptFailed(str(problem), is_final=True)
        if isinstance(problem, errors.StoreError):
            return _StopRun(f"the store cannot be written: {problem}")
        if isinstance(problem, ModelError):
            return _AttemptFailed(str(problem))
        return _AttemptFailed(str(problem) or type(problem).__name__, is_final=True)

    # ---------------------------------------------------------------- the store

    def _has_messages(self, session_id: str) -> bool:
        return self._db.message_count(session_id) > 0

    def _read_usage(self, session_id: str) -> Usage:
        """Return the tokens and the cost of all attempts in the session of a prompt, including its subagents."""
        line = self._db.usage_of(session_id, family=True).total
        tokens = Tokens(
            line.input_tokens,
            line.output_tokens,
            line.cache_read_tokens,
            line.cache_write_tokens,
            line.reasoning_tokens,
        )
        has_cost = self._has_price or line.actual_cost_usd is not None
        cost = line.estimated_cost_usd + (line.actual_cost_usd or 0.0)
        return Usage(tokens, cost if has_cost else None)


def find_answer(db: SessionDB, session_id: str) -> StoredAnswer | None:
    """Return what the store has of the answer in the session of a prompt. None if the session does not exist."""
    if (session := db.get_session(session_id)) is None:
        return None
    tip = db.get_compression_tip(session_id)
    rows = db.get_context(tip)
    if not rows:
        return StoredAnswer(tip)
    last, text = rows[-1], ""
    is_cut_off = last.get("tool_calls") or last.get("finish_reason") in (INTERRUPTED, PARTIAL)
    if last["role"] == "assistant" and not is_cut_off:
        text = read_text(last["content"], "assistant")
    seconds = max(0.0, (session["last_active"] or 0.0) - session["started_at"])
    return StoredAnswer(tip, True, text if text.strip() else None, seconds)
