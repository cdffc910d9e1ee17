"""Metrics of the running gateway, in the Prometheus text format.

A label can have only its declared values. Any other value is counted as `other`. Therefore no id or user text
becomes a label, and the number of series is bounded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from threading import Lock

from hermes.agent.models.model import Used

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Histogram buckets for store operations, in seconds."""
SLOW = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Histogram buckets for turns, in seconds."""

RECEIPTS = ("accepted", "duplicate", "answered", "unauthorised", "limited", "ignored", "failed")
OUTCOMES = ("answered", "stopped", "failed")
DELIVERIES = ("sent", "again", "limited", "undeliverable", "unknown")
RESETS = ("idle", "daily")
TOKENS = ("input", "output", "cache_read", "cache_write", "reasoning")

Values = tuple[str, ...]
Sample = tuple[str, list[tuple[str, str]], float]
"""The suffix of the metric name, the labels, and the value."""


class Metric(ABC):
    """A metric: a name, a help text, and a value for each combination of its labels."""

    kind: str

    def __init__(self, name: str, meaning: str, **labels: Sequence[str]) -> None:
        self.name, self._meaning = name, meaning
        self._labels = tuple(labels)
        self._known = tuple(frozenset(values) for values in labels.values())
        self._lock = Lock()

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {escape_help(self._meaning)}"
        yield f"# TYPE {self.name} {self.kind}"
        with self._lock:
            samples = list(self._samples())
        for ending, labels, value in samples:
            inside = ",".join(f'{name}="{quote_label(text)}"' for name, text in labels)
            braces = f"{{{inside}}}" if inside else ""
            yield f"{self.name}{ending}{braces} {format_value(value)}"

    @abstractmethod
    def _samples(self) -> Iterator[Sample]:
        """Yield the current value of each label combination. Called under the lock."""

    def _label_values(self, values: Values) -> Values:
        pairs = zip(values, self._known, strict=True)
        return tuple(value if value in allowed else OTHER for value, allowed in pairs)

    def _pair_labels(self, values: Values) -> list[tuple[str, str]]:
        return list(zip(self._labels, values, strict=True))


class Counter(Metric):
    kind = "counter"

    def __init__(self, name: str, meaning: str, **labels: Sequence[str]) -> None:
        super().__init__(name, meaning, **labels)
        self._counts: dict[Values, float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        if by < 0:
            raise ValueError(f"{self.name} cannot decrease")
        place = self._label_values(labels)
        with self._lock:
            self._counts[place] = self._counts.get(place, 0) + by

    def _samples(self) -> Iterator[Sample]:
        for values, count in self._counts.items():
            yield "", self._pair_labels(values), count


class Gauge(Metric):
    kind = "gauge"

    def __init__(self, name: str, meaning: str, **labels: Sequence[str]) -> None:
        super().__init__(name, meaning, **labels)
        self._values: dict[Values, float] = {}

    def set(self, value: float | None, *labels: str) -> None:
        """Set the value for these labels. None removes the value from the output."""
        place = self._label_values(labels)
        with self._lock:
            if value is None:
                self._values.pop(place, None)
            else:
                self._values[place] = value

    def _samples(self) -> Iterator[Sample]:
        for values, value in self._values.items():
            yield "", self._pair_labels(values), value


class Histogram(Metric):
    kind = "histogram"

    def __init__(self, name: str, meaning: str, bounds: Sequence[float], **labels: Sequence[str]) -> None:
        super().__init__(name, meaning, **labels)
        self._bounds = (*sorted(bounds), math.inf)
        self._counts: dict[Values, list[int]] = {}
        self._sums: dict[Values, float] = {}
        if not labels:
            self._begin(())

    def observe(self, value: float, *labels: str) -> None:
        place = self._label_values(labels)
        with self._lock:
            if place not in self._counts:
                self._begin(place)
            self._counts[place][bisect_left(self._bounds, value)] += 1
            self._sums[place] += value

    def _begin(self, place: Values) -> None:
        self._counts[place], self._sums[place] = [0] * len(self._bounds), 0.0

    def _samples(self) -> Iterator[Sample]:
        for values, counts in self._counts.items():
            named, so_far = self._pair_labels(values), 0
            for bound, count in zip(self._bounds, counts, strict=True):
                so_far += count
                yield "_bucket", [*named, ("le", format_value(bound))], so_far
            yield "_sum", named, self._sums[values]
            yield "_count", named, so_far


class GatewayMetrics:
    """All metrics of the gateway. A platform that is not in `platforms` is counted as `other`."""

    def __init__(self, platforms: Sequence[str] = ()) -> None:
        self.received = Counter(
            "hermes_messages_received_total",
            "Messages received from platforms, by result.",
            platform=platforms,
            state=RECEIPTS,
        )
        self.stored_seconds = Histogram(
            "hermes_message_stored_seconds",
            "Seconds from the receipt of a message until it is durable.",
            QUICK,
        )
        self.turns = Counter("hermes_turns_total", "Turns of the agent, by outcome.", outcome=OUTCOMES)
        self.turn_seconds = Histogram(
            "hermes_turn_seconds", "Duration of the turns of the agent, in seconds.", SLOW
        )
        self.deliveries = Counter(
            "hermes_deliveries_total",
            "Delivery attempts, by outcome.",
            platform=platforms,
            outcome=DELIVERIES,
        )
        self.platform_up = Gauge(
            "hermes_platform_up", "1 if the platform is connected, otherwise 0.", platform=platforms
        )
        self.inbox_waiting = Gauge("hermes_inbox_waiting", "Messages that are not processed yet.")
        self.outbox_waiting = Gauge("hermes_outbox_waiting", "Answers that are not delivered yet.")
        self.resets = Counter("hermes_resets_total", "Conversation resets, by reason.", reason=RESETS)
        self.tokens = Counter("hermes_model_tokens_total", "Model tokens, by kind.", kind=TOKENS)

    def count_usage(self, used: Used) -> None:
        """Count the tokens of one model call."""
        for kind in TOKENS:
            self.tokens.add(kind, by=getattr(used, f"{kind}_tokens") or 0)

    def render(self) -> str:
        """Return all metrics in the format of `CONTENT_TYPE`."""
        metrics: list[Metric] = [metric for metric in vars(self).values() if isinstance(metric, Metric)]
        return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def escape_help(text: str) -> str:
    """Escape the text of a HELP line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def quote_label(text: str) -> str:
    """Escape the value of a label."""
    return escape_help(text).replace('"', '\\"')


def format_value(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
