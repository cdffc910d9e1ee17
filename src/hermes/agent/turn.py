"""One turn: a person says something, the model answers, using tools on the way. A stream of events.

The person's message is stored before the model is asked; each answer with its calls before the tools run; each result
as it arrives. So a crash at any point leaves a conversation that can be taken up, and `stop` keeps what happened.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeVar

from hermes import reasoning
from hermes.agent.approvals.request import Approve, Decision
from hermes.agent.events import (
    Counted,
    Discarded,
    Done,
    Event,
    Failed,
    Interrupted,
    Note,
    NotStored,
    Recast,
    TextDelta,
    ThoughtDelta,
    ToolEnded,
    ToolStarted,
)
from hermes.agent.models import model as models
from hermes.agent.models.finish_reasons import explain_reason, normalize_reason
from hermes.agent.models.model import Model, ModelError, Request
from hermes.agent.models.replay import replay
from hermes.agent.tool import Tool, ToolContext, ToolFailed, make_schema, shorten_middle
from hermes.agent.tool_events import ToolEvents
from hermes.agent.transcript import Record
from hermes.errors import HermesError
from hermes.reasoning import Piece, ReasoningSplitter

T = TypeVar("T")

MOST_STEPS = 60
REPLACED = "Session {old} was deleted or moved to the trash. This continues in a new session, {new}."
TRASH_HINT = "`hermes sessions trash list` shows what can be brought back."
STOPPED = "[stopped by the person; effect unknown]"
LAST_STEP = (
    "You have used all the steps of this turn. Answer now, with what you have, and say what is left to do."
)

Price = Callable[[str, models.Used], tuple[float | None, Mapping[str, Any]]]
"""What a model call costs (None: unknown), and how that is told in the accounts."""


class Compressor(Protocol):
    """Makes room in a context. It tells what it did as events; where it can do nothing, it gives none."""

    async def is_due(self, rows: Sequence[dict[str, Any]], used: models.Used | None) -> bool:
        """Whether a request with these messages would be too large; `used` is what the last one took."""

    def compress(self, *, overflow: bool) -> AsyncIterator[Event]: ...

    def fit_rows(self, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """The messages as they are sent: some of them shorter than they are stored."""


class Answer(NamedTuple):
    """What one request gave."""

    text: str
    """As the model sent it: this is stored."""
    visible_text: str
    """The same without the reasoning at its beginning."""
    thought: str
    """Reasoning that came beside the text."""
    calls: list[dict[str, Any]]
    reason: str | None
    used: models.Used | None
    stopped: bool = False

    @property
    def must_be_repeated(self) -> bool:
        """Whether the model sent nothing, for no reason that it names."""
        is_empty = not (self.text.strip() or self.calls or self.stopped)
        return is_empty and normalize_reason(self.reason) is None


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
        """`context` makes what tools are given; `prompt` the system prompt, once per session.

        `can_ask`: the caller answers each `ApprovalAsked` event with `decide`. If not, approvals are refused.
        """
        self._record, self._model, self._price, self._prompt = record, model, price, prompt
        self._tools = {tool.name: tool for tool in tools}
        self._stop = asyncio.Event()
        self._tool_events = ToolEvents(self._stop, can_ask=can_ask)
        self._context = context(self._tool_events.approve, self._stop)
        self._compressor = compressor
        self._most_steps = most_steps
        self._used: models.Used | None = None
        self._said_meanwhile: list[tuple[Any, dict[str, Any]]] = []
        self._over = False

    def steer(self, content: Any, **fields: Any) -> bool:
        """Say something more while the turn runs: the model hears it at its next step. False if it is too late.

        If the turn is stopped, fails or runs out of steps before that, it was not said: whoever said it looks whether a
        message with these `fields` was stored.
        """
        if not self._over:
            self._said_meanwhile.append((content, fields))
        return not self._over

    def stop(self) -> None:
        """End the turn at the next moment; what happened so far is kept."""
        self._stop.set()

    def decide(self, number: int, decision: Decision) -> bool:
        """Answer the approval of that number; False if nobody waits for it (any longer)."""
        return self._tool_events.decide(number, decision)

    async def events(self, content: Any, **fields: Any) -> AsyncGenerator[Event, None]:
        """Say something, and hear what comes of it. The last event is Done, Interrupted or Failed.

        `fields` are further ones of the message, as in `append_message`.
        """
        try:
            if content is not None:  # None: try again with what was said last
                async for event in self._say("user", content, **fields):
                    yield event
            if await self._record.system_prompt() is None:
                await self._record.keep_prompt(await self._prompt())
            await self._record.keep_model_config(models.describe_model(self._model))
            async with aclosing(self._run_steps()) as steps:
                async for event in steps:
                    yield event
        except HermesError as problem:
            self._over = True
            yield Failed(str(problem), problem)

    async def _run_steps(self) -> AsyncGenerator[Event, None]:
        """Ask, run what the answer calls for, ask again, until there is nothing more to run."""
        text = ""
        for step in range(1, self._most_steps + 2):
            last = step > self._most_steps
            if last:
                yield Note(f"stopped after {self._most_steps} steps")
            answer: Answer | None = None
            async with aclosing(self._ask(last)) as asking:
                async for event in asking:
                    if isinstance(event, Answer):
                        answer = event
                    else:
                        yield event
            assert answer is not None
            text = answer.visible_text or text
            if answer.calls and not last and not answer.stopped:
                async with aclosing(self._run(answer.calls)) as running:
                    async for event in running:
                        yield event
            if self._stop.is_set():
                self._over = True
                yield Interrupted(text)
                return
            is_empty = not answer.visible_text.strip() and not answer.calls
            if explanation := explain_reason(answer.reason, is_empty=is_empty):
                yield Note(explanation)
            if (not answer.calls and not self._said_meanwhile) or last:
                self._over = True
                yield Done(text, answer.reason)
                return
            while self._said_meanwhile:
                content, fields = self._said_meanwhile.pop(0)
                async for event in self._say("user", content, **fields):
                    yield event

    async def _say(self, role: str, content: Any, **fields: Any) -> AsyncGenerator[Event, None]:
        """Store a message. If its session is gone and another took its place, a note says so."""
        before = self._record.session_id
        stored = await self._record.say(role, content, **fields)
        if self._record.session_id != before:
            yield Note(REPLACED.format(old=before, new=self._record.session_id), TRASH_HINT)
        yield stored

    # ---------------------------------------------------------------- asking

    async def _ask(self, last: bool) -> AsyncGenerator[Event | Answer, None]:
        """One answer of the model, kept; it is the last that is given. An empty one is asked for once more."""
        if self._compressor is not None and await self._compressor.is_due(
            await self._record.context(), self._used
        ):
            async with aclosing(self._make_room(self._compressor, overflow=False)) as making:
                async for event in making:
                    yield event
        answer: Answer | None = None
        for _ in range(2):
            async with aclosing(self._stream_within_context(last)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Answer):
                        answer = piece
                    else:
                        yield piece
            if answer is not None and not answer.must_be_repeated:
                self._used = answer.used
                async for event in self._keep(answer):
                    yield event
                yield answer
                return
        raise ModelError(f"{self._model.name} gave an empty answer, twice")

    async def _stream_within_context(self, last: bool) -> AsyncGenerator[Event | Answer, None]:
        """The answer; if the context was too large for the model, once more with a smaller one."""
        try:
            async with aclosing(self._stream_answer(last)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        except models.ContextOverflow:
            if self._compressor is None:
                raise
            before = await self._read_rows()
            async with aclosing(self._make_room(self._compressor, overflow=True)) as making:
                async for event in making:
                    yield event
            if not self._stop.is_set() and await self._read_rows() == before:
                raise
        async with aclosing(self._stream_answer(last)) as pieces:
            async for piece in pieces:
                yield piece

    def _make_room(self, compressor: Compressor, *, overflow: bool) -> AsyncGenerator[Event, None]:
        return _stream_until(compressor.compress(overflow=overflow), self._stop)

    async def _read_rows(self) -> Sequence[dict[str, Any]]:
        rows = await self._record.context()
        return rows if self._compressor is None else self._compressor.fit_rows(rows)

    async def _stream_answer(self, last: bool) -> AsyncGenerator[Event | Answer, None]:
        """The pieces of an answer as they come, then the Answer they make."""
        messages = replay(await self._read_rows(), await self._record.system_prompt())
        if last:
            messages.append({"role": "user", "content": LAST_STEP})
        tools = [] if last else [make_schema(tool) for tool in self._tools.values()]
        text: list[str] = []
        visible: list[str] = []
        thought: list[str] = []
        splitter = ReasoningSplitter()
        calls: dict[int, dict[str, str]] = {}
        used: models.Used | None = None
        reason: str | None = None
        async with aclosing(
            _stream_until(self._model.stream(Request(messages, tools)), self._stop)
        ) as pieces:
            async for piece in pieces:
                match piece:
                    case models.Text(said):
                        text.append(said)
                        for delta in _make_deltas(splitter.add(said), visible):
                            yield delta
                    case models.Thought(said):
                        thought.append(said)
                        yield ThoughtDelta(said)
                    case models.CallPiece():
                        _join(calls, piece)
                    case models.Used():
                        used = piece
                    case models.Finished(why):
                        reason = why
                    case models.Retrying(why, seconds):
                        text, visible, thought, calls, used = [], [], [], {}, None
                        splitter = ReasoningSplitter()
                        yield Discarded(why, seconds)
        for delta in _make_deltas(splitter.end(), visible):
            yield delta
        stopped = self._stop.is_set()
        made = [] if stopped else [_format_call(number, call) for number, call in sorted(calls.items())]
        yield Answer("".join(text), "".join(visible), "".join(thought), made, reason, used, stopped)

    async def _keep(self, answer: Answer) -> AsyncGenerator[Event, None]:
        used = answer.used or models.Used()
        is_cut = normalize_reason(answer.reason) is not None
        if answer.text or answer.calls or (answer.thought and is_cut):
            async for event in self._say(
                "assistant",
                answer.text or None,
                tool_calls=answer.calls or None,
                finish_reason="interrupted" if answer.stopped else answer.reason,
                reasoning=answer.thought or None,
                token_count=used.output_tokens or None,
            ):
                yield event
        cost, details = self._price(self._model.name, used)
        try:
            await self._record.count(
                model=self._model.name,
                provider=self._model.provider,
                base_url=self._model.base_url,
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cache_read_tokens=used.cache_read_tokens,
                cache_write_tokens=used.cache_write_tokens,
                reasoning_tokens=used.reasoning_tokens,
                **details,
            )
        except HermesError as problem:
            yield Note(f"not in the accounts: {problem}")
        yield Counted(self._model.name, used, cost)

    # ---------------------------------------------------------------- tools

    async def _run(self, calls: Sequence[dict[str, Any]]) -> AsyncGenerator[Event, None]:
        """All calls of an answer at once; each result is kept as it arrives."""
        running: dict[asyncio.Task[ToolEnded], dict[str, Any]] = {}
        for call in calls:
            name, arguments = call["function"]["name"], _parse_arguments(call)
            yield ToolStarted(call["id"], name, arguments if isinstance(arguments, dict) else {})
            running[asyncio.create_task(self._run_one(call["id"], name, arguments))] = call
        stopping = asyncio.create_task(self._stop.wait())
        reporting = asyncio.create_task(self._tool_events.wait())
        try:
            while running and not self._stop.is_set():
                done, _ = await asyncio.wait(
                    [*running, stopping, reporting], return_when=asyncio.FIRST_COMPLETED
                )
                async for event in self._tool_events.take():  # before the result of the tool that made them
                    yield event
                if reporting in done:
                    reporting = asyncio.create_task(self._tool_events.wait())
                for task in [task for task in running if task in done]:
                    running.pop(task)
                    async for event in self._keep_result(task.result()):
                        yield event
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            async for event in self._tool_events.take():
                yield event
            for call in running.values():
                ended = ToolEnded(call["id"], call["function"]["name"], STOPPED, True, 0.0)
                async for event in self._keep_result(ended):
                    yield event
        finally:
            for waiting in (*running, stopping, reporting):
                waiting.cancel()

    async def _run_one(self, call_id: str, name: str, arguments: dict[str, Any] | str) -> ToolEnded:
        began = monotonic()
        output, failed = await self._run_tool(name, arguments)
        return ToolEnded(call_id, name, shorten_middle(output), failed, monotonic() - began)

    async def _run_tool(self, name: str, arguments: dict[str, Any] | str) -> tuple[str, bool]:
        tool = self._tools.get(name)
        if tool is None:
            return f"error: there is no tool {name!r}; there are: {', '.join(self._tools)}", True
        if isinstance(arguments, str):
            return f"error: {arguments}", True
        try:
            context = self._context._replace(
                session_id=self._record.session_id, report=self._tool_events.report
            )
            return await tool.run(arguments, context), False
        except (ToolFailed, HermesError) as problem:
            return f"error: {problem}", True
        except Exception as problem:  # noqa: BLE001  a tool that breaks is something the model can react to
            return f"error: {type(problem).__name__}: {problem}", True

    async def _keep_result(self, ended: ToolEnded) -> AsyncGenerator[Event, None]:
        fields = {"tool_name": ended.name, "tool_call_id": ended.call_id}
        happened = [event async for event in self._say("tool", ended.output, **fields)]
        yield ended
        for event in happened:
            if isinstance(event, NotStored | Note):
                yield event


async def _stream_until(pieces: AsyncIterator[T], stop: asyncio.Event) -> AsyncGenerator[T, None]:
    """The same pieces, until somebody says stop; whoever makes them is told to end."""
    stopping = asyncio.create_task(stop.wait())
    following: asyncio.Task[T] | None = None
    try:
        while not stop.is_set():
            following = asyncio.ensure_future(anext(pieces))
            await asyncio.wait([following, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                break
            try:
                piece = following.result()
            except StopAsyncIteration:
                break
            yield piece
    finally:
        stopping.cancel()
        if following is not None and not following.done():
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        if hasattr(pieces, "aclose"):
            await pieces.aclose()


def _make_deltas(pieces: Sequence[Piece | reasoning.Recast], visible: list[str]) -> Iterator[Event]:
    """Pieces of the text as surfaces are told them; what belongs to the answer is added to `visible_text`."""
    for piece in pieces:
        if isinstance(piece, reasoning.Recast):
            if visible:
                yield Recast(piece.text)
            elif piece.text:
                yield ThoughtDelta(piece.text)
            visible.clear()
        elif piece.is_reasoning:
            yield ThoughtDelta(piece.text)
        else:
            visible.append(piece.text)
            yield TextDelta(piece.text)


def _join(calls: dict[int, dict[str, str]], piece: models.CallPiece) -> None:
    call = calls.setdefault(piece.position, {"id": "", "name": "", "arguments": ""})
    call["id"] = piece.id or call["id"]
    call["name"] = piece.name or call["name"]
    call["arguments"] += piece.arguments


def _format_call(number: int, call: dict[str, str]) -> dict[str, Any]:
    """A call as it is stored, in the shape of the chat completions interface."""
    function = {"name": call["name"] or "unknown", "arguments": call["arguments"] or "{}"}
    return {"id": call["id"] or f"call_{number}", "type": "function", "function": function}


def _parse_arguments(call: dict[str, Any]) -> dict[str, Any] | str:
    """The arguments of a call, or what is wrong with them."""
    try:
        read = json.loads(call["function"]["arguments"])
    except (ValueError, RecursionError) as problem:
        return f"the arguments are not valid JSON: {problem}"
    return read if isinstance(read, dict) else "the arguments are not a JSON object"
