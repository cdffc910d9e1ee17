"""How much room a conversation takes in a model's window, what is left out of its requests, and what would leave it."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.agent.context import tokens
from hermes.agent.context.boundaries import CompressionPlan, Row, find_tail_start, plan_compression
from hermes.agent.context.tool_output_limits import shorten_rows
from hermes.agent.models.model import Model, Used
from hermes.agent.tool import Tool, make_schema
from hermes.agent.transcript import Record
from hermes.config.schema import CompressionSettings

LEAST_THRESHOLD, MOST_OF_WINDOW = 64_000, 0.85
"""Compression costs more than it gives in a short conversation; but a small window is full before that."""
LEAST_SUMMARY, MOST_SUMMARY = 2_000, 12_000
WORTH_IT = 500
"""Tokens. The headings of a summary alone take half of it."""
ENOUGH = 0.8
"""The part of the threshold below which a request stays small for a while."""


DEFAULT = CompressionSettings()


class ContextBudget:
    def __init__(
        self, record: Record, model: Model, tools: Sequence[Tool], settings: CompressionSettings
    ) -> None:
        self.record, self.model, self.settings = record, model, settings
        self.pressed = False
        """Whether new tool output is shortened, too: the model would not take the request otherwise."""
        self._tools = tokens.count_tools(map(make_schema, tools))
        self._old_before = 0
        self._refused: int | None = None
        self._sent: int | None = None

    @property
    def window(self) -> int:
        """That of the model, unless it refused a request that was smaller."""
        window = self.model.context_window
        return window if self._refused is None else min(window, self._refused)

    @property
    def threshold(self) -> int:
        threshold = max(int(self.window * self.settings.threshold), LEAST_THRESHOLD)
        return min(threshold, int(self.window * MOST_OF_WINDOW))

    async def measure(self, rows: Sequence[Row]) -> int:
        """Tokens of a request with these messages, about."""
        prompt = await self.record.system_prompt()
        return self._tools + tokens.count_text(prompt or "") + tokens.count_rows(rows)

    async def measure_after(self, rows: Sequence[Row], used: Used | None) -> int:
        """The same, from what the provider told of the last request and what was added since, if it told."""
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
        """A model would not take so large a request."""
        self._refused = size if self._refused is None else min(size, self._refused)

    # ---------------------------------------------------------------- requests

    def prepare_request(self, rows: Sequence[Row]) -> list[Row]:
        """The messages of the next request."""
        trimmed = self.trim_rows(rows)
        self._sent = tokens.count_rows(trimmed)
        return trimmed

    def trim_rows(self, rows: Sequence[Row]) -> list[Row]:
        return shorten_rows(rows, self._old_before, pressed=self.pressed)

    def leave_out_old_output(self, rows: Sequence[Row]) -> None:
        """From now on: of what stands before the newest messages."""
        self._old_before = max(self._old_before, self._find_old_end(rows))

    def has_old_output(self, rows: Sequence[Row]) -> bool:
        """Whether there is some that requests still hold."""
        until = max(self._old_before, self._find_old_end(rows))
        return shorten_rows(rows, until, pressed=self.pressed) != self.trim_rows(rows)

    def _find_old_end(self, rows: Sequence[Row]) -> int:
        newest = rows[
            find_tail_start(rows, last=self.settings.protect_last_n, budget=self._compute_end_budget(rows)) :
        ]
        return min((row["id"] for row in newest if row.get("id") is not None), default=0)

    # ---------------------------------------------------------------- compression

    def make_plan(self, rows: Sequence[Row]) -> CompressionPlan | None:
        """What a summary would stand for; None if that is nothing."""
        first, last = self.settings.protect_first_n, self.settings.protect_last_n
        planned = plan_compression(rows, first=first, last=last, budget=self._compute_end_budget(rows))
        return planned if planned and tokens.count_rows(planned.middle) > WORTH_IT else None

    def compute_summary_budget(self, rows: Sequence[Row]) -> int:
        """Tokens for the summary of these messages."""
        most = max(min(self.window // 20, MOST_SUMMARY), min(self.window // 8, LEAST_SUMMARY // 2))
        return min(max(tokens.count_rows(rows) // 5, LEAST_SUMMARY), most)

    def _compute_end_budget(self, rows: Sequence[Row]) -> int:
        """Tokens that stay at each end."""
        return int(min(self.threshold, tokens.count_rows(rows)) * self.settings.target_ratio)
