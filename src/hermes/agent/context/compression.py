"""Context budget and compression: `ContextBudget` measures a conversation, `ContextCompressor` reduces it.

First, old tool output is left out of requests. If that is not enough, a summary replaces the middle of the
conversation. The summary starts a continuation session in one transaction. Any failure before that leaves the
conversation unchanged. Stored messages are never shortened.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any

from hermes import errors
from hermes.agent.auxiliary import AuxiliaryAnswer, account_call
from hermes.agent.context import summary, tokens
from hermes.agent.context.boundaries import (
    CompressionPlan,
    Row,
    find_last_prompt,
    find_tail_start,
    is_summary,
    plan_compression,
)
from hermes.agent.context.summary import gather_sections
from hermes.agent.context.tool_output_limits import shorten_rows
from hermes.agent.events import Event, Moved, Note
from hermes.agent.models.model import Model, ModelError, Price, Used
from hermes.agent.tool import Tool, make_schema
from hermes.agent.transcript import Record
from hermes.config.settings_schema import CompressionSettings

LEAST_THRESHOLD, MOST_OF_WINDOW = 64_000, 0.85
"""The minimum compression threshold in tokens, and the maximum threshold as a share of the context window.

Compressing a short conversation costs more than it saves. In a small window, the maximum is below the
minimum, and the maximum applies.
"""
LEAST_SUMMARY, MOST_SUMMARY = 2_000, 12_000
WORTH_IT = 500
"""The minimum size of the messages to summarise, in tokens. A summary needs half of this for its headings
alone."""
ENOUGH = 0.8
"""The size limit of a request without old tool output, as a share of the threshold. If the request is larger,
a summary is made too, because otherwise the context would soon be full again."""
DEFAULT = CompressionSettings()


class ContextBudget:
    """Measures the size of a conversation. Decides which tool output is left out of requests, and which
    messages are summarised."""

    def __init__(
        self, record: Record, model: Model, tools: Sequence[Tool], settings: CompressionSettings
    ) -> None:
        self.record, self.model, self.settings = record, model, settings
        self.pressed = False
        """Whether new tool output is shortened too, because the model would otherwise reject the request."""
        self._tools = tokens.count_tools(map(make_schema, tools))
        self._old_before = 0
        self._refused: int | None = None
        self._sent: int | None = None

    @property
    def window(self) -> int:
        """The context window of the model. If the model rejected a request smaller than its window, the size
        of the smallest request that it rejected."""
        window = self.model.context_window
        return window if self._refused is None else min(window, self._refused)

    @property
    def threshold(self) -> int:
        """The size of a request, in tokens, from which on the conversation is compressed."""
        threshold = max(int(self.window * self.settings.threshold), LEAST_THRESHOLD)
        return min(threshold, int(self.window * MOST_OF_WINDOW))

    async def measure(self, rows: Sequence[Row]) -> int:
        """Return the approximate number of tokens of a request that contains these messages, the system prompt and
        the tools."""
        prompt = await self.record.system_prompt()
        return self._tools + tokens.count_text(prompt or "") + tokens.count_rows(rows)

    async def measure_after(self, rows: Sequence[Row], used: Used | None) -> int:
        """Return the approximate number of tokens of the next request, which contains `rows`.

        `used` is the usage of the previous request. If the provider reported it, that count is used for the
        messages of the previous request, and only the messages added since then are estimated.
        """
        trimmed = self.trim_rows(rows)
        reported = (
            0
            if used is None
            else sum(filter(None, (used.input_tokens, used.cache_read_tokens, used.cache_write_tokens)))
        )
        if not reported or self._sent is None:
            return await self.measure(trimmed)
        return reported + tokens.count_rows(trimmed) - self._sent

    def note_refusal(self, size: int) -> None:
        """Record that the model rejected a request of `size` tokens as too large."""
        self._refused = size if self._refused is None else min(size, self._refused)

    # ---------------------------------------------------------------- requests

    def prepare_request(self, rows: Sequence[Row]) -> list[Row]:
        """Return the messages of the next request: the rows, without the tool output that is left out of requests."""
        trimmed = self.trim_rows(rows)
        self._sent = tokens.count_rows(trimmed)
        return trimmed

    def trim_rows(self, rows: Sequence[Row]) -> list[Row]:
        return shorten_rows(rows, self._old_before, pressed=self.pressed)

    def leave_out_old_output(self, rows: Sequence[Row]) -> None:
        """Leave old tool output out of all requests from now on. Old output is output before the newest
        messages that a compression would keep."""
        self._old_before = max(self._old_before, self._find_old_end(rows))

    def has_old_output(self, rows: Sequence[Row]) -> bool:
        """Return whether requests still contain old tool output."""
        until = max(self._old_before, self._find_old_end(rows))
        return shorten_rows(rows, until, pressed=self.pressed) != self.trim_rows(rows)

    def _find_old_end(self, rows: Sequence[Row]) -> int:
        newest = rows[
            find_tail_start(rows, last=self.settings.protect_last_n, budget=self._compute_end_budget(rows)) :
        ]
        return min((row["id"] for row in newest if row.get("id") is not None), default=0)

    # ---------------------------------------------------------------- compression

    def make_plan(self, rows: Sequence[Row]) -> CompressionPlan | None:
        """Return a compression plan; None if there is too little to summarise."""
        first, last = self.settings.protect_first_n, self.settings.protect_last_n
        planned = plan_compression(rows, first=first, last=last, budget=self._compute_end_budget(rows))
        return planned if planned and tokens.count_rows(planned.middle) > WORTH_IT else None

    def explain_no_plan(self, rows: Sequence[Row]) -> str:
        """Return why there is nothing to summarise."""
        first, last = self.settings.protect_first_n, self.settings.protect_last_n
        planned = plan_compression(rows, first=first, last=last, budget=self._compute_end_budget(rows))
        if planned is None:
            return "the oldest and the newest messages stay as they are, and too few are between them"
        size = tokens.count_rows(planned.middle)
        return (
            f"the {len(planned.middle)} messages between the oldest and the newest have only ~{size:,} tokens;"
            f" a summary is worthwhile only above {WORTH_IT}"
        )

    def compute_summary_budget(self, rows: Sequence[Row]) -> int:
        """Return the maximum length, in tokens, of the summary of these messages."""
        most = max(min(self.window // 20, MOST_SUMMARY), min(self.window // 8, LEAST_SUMMARY // 2))
        return min(max(tokens.count_rows(rows) // 5, LEAST_SUMMARY), most)

    def _compute_end_budget(self, rows: Sequence[Row]) -> int:
        """Return the number of tokens that a compression may keep at the beginning of the conversation, and the same
        number at its end."""
        return int(min(self.threshold, tokens.count_rows(rows)) * self.settings.target_ratio)


LITTLE, PASSES = 0.10, 2
"""Automatic compression stops if each of the last `PASSES` passes saved less than the share `LITTLE` of the
context, because another pass would probably save as little."""
REST_S = 60.0
"""The pause after a failure before the next automatic compression."""
LEAST_BY_HAND = 4

OFF = "compression is switched off (compression.enabled)"
TOO_SHORT = f"there is not enough to compress yet: it takes at least {LEAST_BY_HAND} messages"
WORKING = "compressing the conversation…"
ONCE_MORE = "the summary needs another attempt"
AGAIN = (
    "this conversation was compressed before, so the model may miss details; /new starts a new conversation"
)
PRESSED = "tool output is shortened in requests, because the model accepts no more"
ELSEWHERE = "another process compressed this conversation; it continues in the new session"


class NotCompressed(errors.HermesError):
    """A summary was written but cannot be used, or the conversation cannot be compressed now."""


class ContextCompressor:
    """Compresses the conversation of one record. The instance remembers which tool output is left out and
    when a compression failed. Use the same instance for as long as the record is open."""

    def __init__(
        self,
        record: Record,
        model: Model,
        auxiliary: Model | None,
        *,
        price: Price,
        prompt: Callable[[], Awaitable[str]],
        tools: Sequence[Tool] = (),
        settings: CompressionSettings = DEFAULT,
        todo: Callable[[str], str | None] = lambda _session_id: None,
        save: Callable[[str, Sequence[Row]], object] = lambda _session_id, _rows: None,
        seconds: float = summary.SECONDS,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """`auxiliary` writes the summaries. If it is None, they are assembled from the messages without a
        model.

        `prompt` makes the system prompt of the continuation. `todo` returns the todo list of a session for
        the summary; it is called in a thread. `save` receives the messages before they leave the context; it
        must not block.
        """
        self.record, self.auxiliary = record, auxiliary
        self.budget = ContextBudget(record, model, tools, settings)
        self._price, self._prompt, self._todo, self._save = price, prompt, todo, save
        self._seconds, self._now = seconds, now
        self._rest_until: float | None = None
        self._saved: deque[float] = deque(maxlen=PASSES)
        self._has_noted_cut = False

    async def is_due(self, rows: Sequence[Row], used: Used | None) -> bool:
        if not self.budget.settings.enabled or self._is_resting():
            return False
        if await self.budget.measure_after(rows, used) < self.budget.threshold:
            return False
        return self.budget.has_old_output(rows) or self.budget.make_plan(rows) is not None

    def fit_rows(self, rows: Sequence[Row]) -> Sequence[Row]:
        return self.budget.prepare_request(rows)

    async def compress(self, *, overflow: bool) -> AsyncGenerator[Event, None]:
        """Reduce the context. Leave out old tool output. If that is not enough, replace messages by a
        summary.

        `overflow`: whether the model rejected the last request as too large. If so, the next request must be
        smaller. If no summary can be made, new tool output is shortened too.
        """
        if not self.budget.settings.enabled:
            return
        rows = await self.record.context()
        before = await self.budget.measure(self.budget.trim_rows(rows))
        if overflow:
            self.budget.note_refusal(before)
        self.budget.leave_out_old_output(rows)
        after = await self.budget.measure(self.budget.trim_rows(rows))
        if after <= self.budget.threshold * ENOUGH:
            self._saved.append(1 - after / before)
            if not self._has_noted_cut:  # report this once: in a long turn, output is left out at every step
                self._has_noted_cut = True
                yield Note(
                    f"older tool output is left out of requests from now on; {_format_sizes(before, after)}"
                )
        elif (planned := self.budget.make_plan(rows)) is not None:
            yield Note(WORKING)
            async with aclosing(self._compress_planned(rows, planned, before, overflow=overflow)) as working:
                async for event in working:
                    yield event
        elif overflow:
            self.budget.pressed = True
            yield Note(PRESSED)

    async def compress_by_hand(self, focus: str | None = None) -> AsyncGenerator[Event, None]:
        """Summarise the conversation because the person asked for it, regardless of the size of the context. Yield
        the progress and the result as events. `focus` is the topic that the summary should keep in detail; None if
        there is none."""
        rows = await self.record.context()
        if not self.budget.settings.enabled or len(rows) < LEAST_BY_HAND:
            yield Note(TOO_SHORT if self.budget.settings.enabled else OFF)
            return
        before = await self.budget.measure(self.budget.trim_rows(rows))
        planned = self.budget.make_plan(rows)
        if planned is None:
            yield Note(f"No changes from compression: {len(rows)} messages")
            yield Note(self.budget.explain_no_plan(rows))
            yield Note(_format_sizes(before, before))
            return
        yield Note(WORKING)
        async with aclosing(self._compress_planned(rows, planned, before, focus=focus)) as working:
            async for event in working:
                yield event
                if isinstance(event, Moved):
                    after = await self.budget.measure(self.budget.trim_rows(await self.record.context()))
                    yield Note(f"Compressed: {event.before} → {event.after} messages")
                    yield Note(_format_sizes(before, after))

    # ---------------------------------------------------------------- a compression pass

    async def _compress_planned(
        self,
        rows: list[Row],
        planned: CompressionPlan,
        before: int,
        *,
        focus: str | None = None,
        overflow: bool = False,
    ) -> AsyncGenerator[Event, None]:
        try:
            if any(row.get("id") is None for row in rows):
                raise NotCompressed("a message is not stored yet")
            self._save(self.record.session_id, rows)
            lines: asyncio.Queue[str | None] = asyncio.Queue()
            making = asyncio.create_task(self._make_summary(planned, focus, lines.put_nowait))
            making.add_done_callback(lambda _: lines.put_nowait(None))
            try:
                while (line := await lines.get()) is not None:
                    yield Note(ONCE_MORE, detail=line)
                text, answered = await making
            finally:
                making.cancel()
                await asyncio.gather(making, return_exceptions=True)
            if answered is not None:
                yield await self._count(answered)
            instead = [{"role": "system", "content": text}]
            if await self.budget.measure(instead) >= await self.budget.measure(planned.middle):
                self._saved.append(0.0)
                raise NotCompressed("the summary is not shorter than the messages")
            prompt = await self._prompt()
            await _finish_undisturbed(self._continue(rows, planned, text, prompt))
        except errors.LeaseLost:
            raise
        except errors.AlreadyContinued:
            async with aclosing(self._adopt(rows)) as adopting:
                async for event in adopting:
                    yield event
            return
        except errors.HermesError as problem:
            if isinstance(problem, summary.NoSummary):
                yield await self._count(problem.answered)
            yield await self._record_failure(rows, before, overflow, problem)
            return
        now = await self.record.context()
        self._rest_until, self.budget.pressed = None, False
        after = await self.budget.measure(self.budget.trim_rows(now))
        self._saved.append(1 - after / before)
        # the turn repeats the request only once
        self.budget.pressed = overflow and after > self.budget.threshold
        if any(map(is_summary, planned.middle)):
            yield Note(AGAIN)
        yield Moved(self.record.session_id, len(rows), len(now))

    async def _make_summary(
        self, planned: CompressionPlan, focus: str | None, report: Callable[[str], None]
    ) -> tuple[str, AuxiliaryAnswer | None]:
        """Return the text of the summary, and the answer of the auxiliary model from which it was made. The answer is
        None if there is no auxiliary model. `report` is called with a line of text for each further attempt."""
        session_id = self.record.session_id
        todo = await asyncio.to_thread(self._todo, session_id)
        if self.auxiliary is None:
            return summary.format_summary(
                planned, session_id, await asyncio.to_thread(gather_sections, planned), todo
            ), None
        return await summary.summarise(
            planned,
            session_id,
            self.auxiliary,
            budget=self.budget.compute_summary_budget(planned.middle),
            focus=focus,
            todo=todo,
            seconds=self._seconds,
            report=report,
        )

    async def _continue(self, rows: list[Row], planned: CompressionPlan, text: str, prompt: str) -> None:
        """Start the continuation, with `text` as the summary and `prompt` as the system prompt. Messages that
        were added to the conversation while the summary was being written are carried over.

        `rows` is the context from which the plan was made. Raise `NotCompressed` if these messages have changed
        since.
        """
        now = [row.get("id") for row in await self.record.context()]
        before = [row.get("id") for row in rows]
        if now[: len(before)] != before:
            raise NotCompressed("the conversation changed meanwhile")
        if None in now:
            raise NotCompressed("a message is not stored yet")
        carried = [*(row["id"] for row in planned.kept), *now[len(before) :]]
        head = [row["id"] for row in planned.head]
        await self.record.continue_with(text, head=head, carried=carried, prompt=prompt)

    async def _adopt(self, rows: list[Row]) -> AsyncGenerator[Event, None]:
        """Continue in the session that another process created when it compressed the conversation. If the
        person's last message is missing there, add it."""
        await self.record.catch_up()
        yield Note(ELSEWHERE)
        at = find_last_prompt(rows)
        known = {row.get("id") for row in await self.record.context()}
        if at is not None and rows[at].get("id") not in known:
            yield await self.record.say("user", rows[at]["content"])
        yield Moved(self.record.session_id, len(rows), len(await self.record.context()))

    async def _record_failure(self, rows: list[Row], before: int, overflow: bool, problem: Exception) -> Note:
        self._rest_until = self._now() + REST_S
        self.budget.pressed = self.budget.pressed or overflow
        after = await self.budget.measure(self.budget.trim_rows(rows))
        instead = (
            "older tool output is left out of requests for now"
            if after < before
            else "it continues unchanged"
        )
        shown = f"the conversation could not be compressed: {problem}; {instead}, and nothing is lost"
        if not isinstance(problem, ModelError):
            return Note(shown)
        return Note(f"the conversation could not be compressed; {instead}, and nothing is lost", detail=shown)

    async def _count(self, answered: AuxiliaryAnswer) -> Event:
        call, counted = account_call(answered.model, answered.used, self._price)
        try:
            await self.record.count(**call)
        except errors.HermesError as problem:
            return Note(f"usage was not recorded: {problem}")
        return counted

    def _is_resting(self) -> bool:
        failed = self._rest_until is not None and self._now() < self._rest_until
        return failed or (len(self._saved) == PASSES and max(self._saved) < LITTLE)


async def _finish_undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, even if the task is cancelled, so that the store and the state in memory
    stay consistent."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


def _format_sizes(before: int, after: int) -> str:
    if before == after:
        return f"Approx request size: ~{before:,} tokens (unchanged)"
    return f"Approx request size: ~{before:,} → ~{after:,} tokens"
