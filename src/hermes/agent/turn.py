"""One turn of a conversation: the person's message, the model's answers and its tool calls, as a stream of
events.

The person's message is stored before the model request. The text of a running answer is saved about once a
second if the record keeps partial answers. Each answer is stored with its calls before the tools run, and
each tool result as soon as it arrives. A crash at any point therefore leaves a conversation that can be
resumed, and `stop` keeps the messages so far.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import partial
from time import monotonic
from typing import Any, Protocol, TypeVar

from hermes.agent.approvals.request import Approve, Decision
from hermes.agent.events import (
    Counted,
    Done,
    Event,
    Failed,
    Interrupted,
    Note,
    NotStored,
    Stored,
    ToolEnded,
    ToolStarted,
)
from hermes.agent.models import model as models
from hermes.agent.models.call_limit import take_call_slot
from hermes.agent.models.finish_reasons import explain_reason
from hermes.agent.models.model import Model, ModelError, Price, Request
from hermes.agent.models.replay import replay
from hermes.agent.streamed_answer import ModelAnswer, PartialSaver, StreamedAnswer
from hermes.agent.tool import Tool, ToolContext, ToolFailed, make_schema, shorten_middle
from hermes.agent.tool_events import ToolEvents
from hermes.agent.transcript import Record
from hermes.errors import HermesError

T = TypeVar("T")

MOST_STEPS = 60
REPLACED = "Session {old} was deleted or moved to the trash. This continues in a new session, {new}."
TRASH_HINT = "`hermes sessions trash list` lists the sessions that can be restored."
FALLBACK = "{first} is not available just now; {other} answered."
STOPPED = "[stopped by the person; effect unknown]"
LAST_STEP = (
    "You have used all the steps of this turn. Answer now, with what you have, and say what is left to do."
)


class Compressor(Protocol):
    """Reduces the size of a context. `compress` reports its progress as events. If it cannot reduce the
    context, it yields no events."""

    async def is_due(self, rows: Sequence[dict[str, Any]], used: models.Used | None) -> bool:
        """Return whether a request with these messages would be too large. `used` is the usage of the last
        request."""

    def compress(self, *, overflow: bool) -> AsyncIterator[Event]: ...

    def fit_rows(self, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Return the messages of the next request. Some of them can be shorter than in the store."""


class Turn:
    def __init__(
        self,
        record: Record,
        model: Model,
        tools: Sequence[Tool],
        context: Callable[[Approve, asyncio.Event], ToolContext],
        *,
        price: Price,
        prompt: Callable[[], Awaitable[str]],
        compressor: Compressor | None = None,
        most_steps: int = MOST_STEPS,
        can_ask: bool = False,
    ) -> None:
        """`context` makes the `ToolContext` in which the tools run. `prompt` makes the system prompt; it is
        called once per session.

        `can_ask` says whether the caller answers each `ApprovalAsked` event with `decide`. If it is False, all
        approval requests are refused.
        """
        self._record, self._model, self._price, self._prompt = record, model, price, prompt
        self._tools = {tool.name: tool for tool in tools}
        self._stop = asyncio.Event()
        self._events: deque[Event] = deque()
        """The events that the consumer has not handled yet."""
        self._has_events: asyncio.Future[None] | None = None
        """The consumer waits for it."""
        self._all_handled: asyncio.Future[None] | None = None
        """The turn waits for it."""
        self._tool_events = ToolEvents(self._stop, can_ask=can_ask)
        self._make_context = context
        self._compressor = compressor
        self._most_steps = most_steps
        self._used: models.Used | None = None
        self._answered_by = model.name
        self._steering: list[tuple[Any, dict[str, Any]]] = []
        self._over = False
        self._interrupt: Callable[[], object] | None = None
        """Cancels the running model request or compression; None if there is none, or if it is cancelled."""

    def steer(self, content: Any, **fields: Any) -> bool:
        """Add a message by the person to the running turn. The model receives it at its next step.

        Return False if the turn is already over. Even if the result is True, the message is lost if the turn
        is stopped, fails or reaches its step limit before the next step. When the turn is over, the caller
        must therefore check whether a message with these `fields` was stored.
        """
        if not self._over:
            self._steering.append((content, fields))
        return not self._over

    def stop(self) -> None:
        """Stop the turn as soon as possible. The messages so far remain stored."""
        self._stop.set()
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            interrupt()

    def decide(self, number: int, decision: Decision) -> bool:
        """Answer the approval request with this number. Return False if no tool is waiting for the answer."""
        return self._tool_events.decide(number, decision)

    async def events(self, content: Any, **fields: Any) -> AsyncGenerator[Event, None]:
        """Run the turn and yield its events. The last event is Done, Interrupted or Failed.

        After each event, the turn waits until the caller asks for the next one. Closing the iterator ends the
        turn. `content` is the person's message; None means to answer the last stored message again. `fields`
        are further fields of the message, as in `append_message`.
        """
        working = asyncio.create_task(self._work(content, fields), name="turn")
        working.add_done_callback(lambda _: _wake(self._has_events))
        try:
            while self._events or not working.done():
                if not self._events:
                    self._has_events = asyncio.get_running_loop().create_future()
                    await self._has_events
                    continue
                yield self._events[0]
                self._events.popleft()
                if not self._events:
                    _wake(self._all_handled)
            await working
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _emit(self, *events: Event) -> None:
        """Send these events to the consumer of `events`, and wait until the consumer has handled all of them."""
        if events:
            self._events.extend(events)
            _wake(self._has_events)
            self._all_handled = asyncio.get_running_loop().create_future()
            await self._all_handled

    async def _work(self, content: Any, fields: dict[str, Any]) -> None:
        """Alternate between model requests and tool calls until an answer contains no calls."""
        text = ""
        try:
            if content is not None:
                await self._emit(*await self._store("user", content, **fields))
            if await self._record.system_prompt() is None:
                await self._record.keep_prompt(await self._prompt())
            await self._record.keep_model_config(models.describe_model(self._model))
            for step in range(1, self._most_steps + 2):
                last = step > self._most_steps
                if last:
                    await self._emit(Note(f"stopped after {self._most_steps} steps"))
                answer = await self._ask(last)
                text = answer.visible_text or text
                if answer.calls and not last and not answer.stopped:
                    await self._run(answer.calls)
                if self._stop.is_set():
                    return await self._end(Interrupted(text))
                is_empty = not answer.visible_text.strip() and not answer.calls
                if explanation := explain_reason(answer.reason, is_empty=is_empty):
                    await self._emit(Note(explanation))
                if (not answer.calls and not self._steering) or last:
                    return await self._end(Done(text, answer.reason))
                while self._steering:
                    content, fields = self._steering.pop(0)
                    await self._emit(*await self._store("user", content, **fields))
        except HermesError as problem:
            await self._end(Failed(str(problem), problem))

    async def _end(self, event: Event) -> None:
        """Emit the last event of the turn. From now on, `steer` accepts no messages."""
        self._over = True
        await self._emit(event)

    async def _store(self, role: str, content: Any, **fields: Any) -> list[Note | Stored | NotStored]:
        """Store a message of the turn. Return the events that tell the surface about it."""
        before = self._record.session_id
        return self._report_stored(await self._record.say(role, content, **fields), before)

    def _report_stored(self, stored: Stored | NotStored, before: str) -> list[Note | Stored | NotStored]:
        """Return the events that tell the surface how a message was stored. `stored` is the result of storing it.
        `before` is the id of the session that the record used before that. If that session was deleted and another
        one replaced it, a note says so."""
        if self._record.session_id == before:
            return [stored]
        return [Note(REPLACED.format(old=before, new=self._record.session_id), TRASH_HINT), stored]

    # ---------------------------------------------------------------- model requests

    async def _ask(self, last: bool) -> ModelAnswer:
        """Request an answer from the model, store it and return it. If the answer is empty, request it once more.
        `last` says whether this is the last step of the turn."""
        rows: Sequence[dict[str, Any]] | None = await self._record.context()
        if self._compressor is not None and await self._compressor.is_due(rows or (), self._used):
            await self._make_room(self._compressor, overflow=False)
            rows = None
        for _ in range(2):
            answer = await self._request_within_context(last, rows)
            rows = None
            if not answer.must_be_repeated:
                self._used = answer.used
                await self._keep_answer(answer)
                return answer
        raise ModelError(f"{self._model.name} returned an empty answer twice")

    async def _request_within_context(self, last: bool, rows: Sequence[dict[str, Any]] | None) -> ModelAnswer:
        """Request an answer from the model. If the model rejects the request because the context is too large,
        compress the context and request the answer once more. `rows` are the messages of the context; None if they
        must be read from the record."""
        try:
            return await self._request(last, rows)
        except models.ContextOverflow:
            if self._compressor is None:
                raise
            before = await self._read_rows()
            await self._make_room(self._compressor, overflow=True)
            if not self._stop.is_set() and await self._read_rows() == before:
                raise
        return await self._request(last)

    async def _request(self, last: bool, rows: Sequence[dict[str, Any]] | None = None) -> ModelAnswer:
        """Stream one answer until it ends or the turn is stopped. In the last step, the model gets no tools
        and is told to answer now."""
        messages = replay(await self._read_rows(rows), await self._record.system_prompt())
        if last:
            messages.append({"role": "user", "content": LAST_STEP})
        tools = [] if last else [make_schema(tool) for tool in self._tools.values()]
        streamed = StreamedAnswer()
        request = Request(messages, tools)
        saver = PartialSaver(self._record, streamed) if self._record.keeps_partial else nullcontext()
        async with saver:
            await self._run_until_stopped(self._stream(request, streamed))
        await self._emit(*streamed.end())
        answer = streamed.build(stopped=self._stop.is_set())
        if answer.model is not None and answer.model.name != self._answered_by and not answer.stopped:
            self._answered_by = answer.model.name
            await self._emit(Note(FALLBACK.format(first=self._model.name, other=self._answered_by)))
        return answer

    async def _stream(self, request: Request, streamed: StreamedAnswer) -> None:
        async with take_call_slot():
            await self._consume(self._model.stream(request), streamed.add)

    async def _make_room(self, compressor: Compressor, *, overflow: bool) -> None:
        events = compressor.compress(overflow=overflow)
        await self._run_until_stopped(self._consume(events, lambda event: [event]))

    async def _consume(self, stream: AsyncIterator[T], convert: Callable[[T], list[Event]]) -> None:
        """Call `convert` for each item of the stream and emit the events that it returns, until the stream ends or
        the turn is stopped. Then close the stream."""
        try:
            async for piece in stream:
                await self._emit(*convert(piece))
                if self._stop.is_set():
                    return
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    async def _run_until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine. Cancel it when the turn is stopped."""
        if self._stop.is_set():
            work.close()
            return
        task = asyncio.current_task()
        assert task is not None
        cancelled_before = task.cancelling()
        self._interrupt = task.cancel
        try:
            await work
        except asyncio.CancelledError:
            # Raise it if not `stop`, or not `stop` alone, has cancelled the task.
            if not self._stop.is_set() or task.uncancel() > cancelled_before:
                raise
        except Exception:
            if not self._stop.is_set():  # otherwise the request failed because it was cancelled
                raise
        finally:
            self._interrupt = None

    async def _read_rows(self, rows: Sequence[dict[str, Any]] | None = None) -> Sequence[dict[str, Any]]:
        if rows is None:
            rows = await self._record.context()
        return rows if self._compressor is None else self._compressor.fit_rows(rows)

    async def _keep_answer(self, answer: ModelAnswer) -> None:
        """Store an answer, and add its model call to the usage accounts."""
        used, model = answer.used or models.Used(), answer.model or self._model
        cost, details = self._price(model.name, used)
        call = {
            "model": model.name,
            "provider": model.provider,
            "base_url": model.base_url,
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "cache_read_tokens": used.cache_read_tokens,
            "cache_write_tokens": used.cache_write_tokens,
            "reasoning_tokens": used.reasoning_tokens,
            **details,
        }
        events: list[Event] = []
        problem: HermesError | None = None
        if (message := answer.to_message()) is not None:
            before = self._record.session_id
            stored, problem = await self._record.say_and_count(message, call)
            events += self._report_stored(stored, before)
        else:
            try:
                await self._record.count(**call)
            except HermesError as failure:
                problem = failure
        if problem is not None:
            events.append(Note(f"usage was not recorded: {problem}"))
        await self._emit(*events, Counted(model.name, used, cost))

    # ---------------------------------------------------------------- tools

    async def _run(self, calls: Sequence[dict[str, Any]]) -> None:
        """Run all calls of an answer concurrently. Each result is stored as soon as it arrives."""
        running: dict[asyncio.Task[ToolEnded], dict[str, Any]] = {}
        for call in calls:
            name, arguments = call["function"]["name"], _parse_arguments(call)
            await self._emit(ToolStarted(call["id"], name, arguments if isinstance(arguments, dict) else {}))
            running[asyncio.create_task(self._run_one(call["id"], name, arguments))] = call
        stopping = asyncio.create_task(self._stop.wait())
        reporting = asyncio.create_task(self._tool_events.wait())
        try:
            while running and not self._stop.is_set():
                done, _ = await asyncio.wait(
                    [*running, stopping, reporting], return_when=asyncio.FIRST_COMPLETED
                )
                async for event in self._tool_events.take():  # emit the events of a tool before its result
                    await self._emit(event)
                if reporting in done:
                    reporting = asyncio.create_task(self._tool_events.wait())
                for task in [task for task in running if task in done]:
                    running.pop(task)
                    await self._keep_result(task.result())
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            async for event in self._tool_events.take():
                await self._emit(event)
            for call in running.values():
                ended = ToolEnded(call["id"], call["function"]["name"], STOPPED, True, 0.0)
                await self._keep_result(ended)
        finally:
            for waiting in (*running, stopping, reporting):
                waiting.cancel()
            # wait for them, because a cancelled tool may still store its work
            await asyncio.gather(*running, return_exceptions=True)

    async def _run_one(self, call_id: str, name: str, arguments: dict[str, Any] | str) -> ToolEnded:
        began = monotonic()
        output, failed = await self._run_tool(call_id, name, arguments)
        return ToolEnded(call_id, name, shorten_middle(output), failed, monotonic() - began)

    async def _run_tool(self, call_id: str, name: str, arguments: dict[str, Any] | str) -> tuple[str, bool]:
        tool = self._tools.get(name)
        if tool is None:
            return f"error: there is no tool {name!r}; there are: {', '.join(self._tools)}", True
        if isinstance(arguments, str):
            return f"error: {arguments}", True
        try:
            context = self._make_context(partial(self._tool_events.approve, call_id=call_id), self._stop)
            context = context._replace(session_id=self._record.session_id, report=self._tool_events.report)
            return await tool.run(arguments, context), False
        except (ToolFailed, HermesError) as problem:
            return f"error: {problem}", True
        except Exception as problem:  # noqa: BLE001  the model gets the error and can react
            return f"error: {type(problem).__name__}: {problem}", True

    async def _keep_result(self, ended: ToolEnded) -> None:
        fields = {"tool_name": ended.name, "tool_call_id": ended.call_id}
        stored = await self._store("tool", ended.output, **fields)
        await self._emit(ended, *(event for event in stored if not isinstance(event, Stored)))


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _parse_arguments(call: dict[str, Any]) -> dict[str, Any] | str:
    """Return the arguments of a call, or a message that says why they are invalid."""
    try:
        read = json.loads(call["function"]["arguments"])
    except (ValueError, RecursionError) as problem:
        return f"the arguments are not valid JSON: {problem}"
    return read if isinstance(read, dict) else "the arguments are not a JSON object"
