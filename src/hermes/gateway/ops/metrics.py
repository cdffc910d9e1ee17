"""Metrics of the running gateway, in the Prometheus text format.

A label can have only its declared values, or a limited number of values that the operator chooses, such as
names of models. Any other value is counted as `other`. Therefore no id or user text becomes a label, and the
number of series is bounded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from hermes.agent.models import model as models
from hermes.agent.models.model import CallReport

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Histogram buckets for store operations, in seconds."""
WAITS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
"""Histogram buckets for the time until the first piece of an answer, in seconds."""
SLOW = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Histogram buckets for turns, in seconds."""

RECEIPTS = ("accepted", "duplicate", "answered", "unauthorised", "limited", "ignored", "failed")
OUTCOMES = ("answered", "stopped", "failed")
DELIVERIES = ("sent", "again", "limited", "undeliverable", "unknown")
RESETS = ("idle", "daily")
INBOX_STATES = ("queued", "working", "failed")
OUTBOX_STATES = ("queued", "sending", "unknown", "failed")
AUTH_FAILURES = ("key", "signature", "code")
STORE_FILES = ("store", "log")
MOST_MODELS = 20
"""Maximum number of models that have their own series. Further models are counted as `other`."""
MODEL_ERRORS: dict[type[models.ModelError], str] = {
    models.ProviderBusy: "busy",
    models.Unreachable: "unreachable",
    models.QuotaExceeded: "quota",
    models.NotAuthorized: "not_authorized",
    models.NoSuchModel: "no_such_model",
    models.ContextOverflow: "too_long",
    models.BadRequest: "bad_request",
}
"""The label value for each type of model error. A derived type must precede its base."""
TOKENS = ("input", "output", "cache_read", "cache_write", "reasoning")

Values = tuple[str, ...]
Sample = tuple[str, list[tuple[str, str]], float]
"""The suffix of the metric name, the labels, and the value."""


class Metric(ABC):
    """A metric: a name, a help text, and a value for each combination of its labels."""

    kind: str

    def __init__(self, name: str, meaning: str, **labels: Sequence[str] | int) -> None:
        """Create a metric. `meaning` is the help text. `labels` gives, for each label, its allowed values or the
        maximum number of values."""
        self.name, self._meaning = name, meaning
        self._labels = tuple(labels)
        self._known = tuple(set() if isinstance(values, int) else set(values) for values in labels.values())
        self._room = tuple(values if isinstance(values, int) else 0 for values in labels.values())
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
        """Yield the current value for each combination of label values. The caller holds the lock of the metric."""

    def _label_values(self, values: Values) -> Values:
        """Return `values`, one for each label of the metric, with each value that is not allowed replaced by
        `OTHER`. The caller holds the lock of the metric."""
        for value, allowed, room in zip(values, self._known, self._room, strict=True):
            if len(allowed) < room:
                allowed.add(value)
        pairs = zip(values, self._known, strict=True)
        return tuple(value if value in allowed else OTHER for value, allowed in pairs)

    def _pair_labels(self, values: Values) -> list[tuple[str, str]]:
        return list(zip(self._labels, values, strict=True))


class Counter(Metric):
    kind = "counter"

    def __init__(self, name: str, meaning: str, **labels: Sequence[str] | int) -> None:
        super().__init__(name, meaning, **labels)
        self._counts: dict[Values, float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        if by < 0:
            raise ValueError(f"{self.name} cannot decrease")
        with self._lock:
            place = self._label_values(labels)
            self._counts[place] = self._counts.get(place, 0) + by

    def _samples(self) -> Iterator[Sample]:
        for values, count in self._counts.items():
            yield "", self._pair_labels(values), count


class Gauge(Metric):
    kind = "gauge"

    def __init__(self, name: str, meaning: str, **labels: Sequence[str] | int) -> None:
        super().__init__(name, meaning, **labels)
        self._values: dict[Values, float] = {}

    def set(self, value: float | None, *labels: str) -> None:
        """Set the value for this combination of label values (`labels`). None removes the combination from the
        output."""
        with self._lock:
            place = self._label_values(labels)
            if value is None:
                self._values.pop(place, None)
            else:
                self._values[place] = value

    def _samples(self) -> Iterator[Sample]:
        for values, value in self._values.items():
            yield "", self._pair_labels(values), value

    @contextmanager
    def count_inside(self) -> Iterator[None]:
        """Increase the gauge by 1 while the `with` block runs. The gauge must have no labels."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def _change(self, by: int) -> None:
        with self._lock:
            self._values[()] = self._values.get((), 0) + by


class Total(Gauge):
    """A metric of the Prometheus type counter whose value is set and not increased here, because something else
    counts it, for example the operating system."""

    kind = "counter"


class Histogram(Metric):
    kind = "histogram"

    def __init__(
        self, name: str, meaning: str, bounds: Sequence[float], **labels: Sequence[str] | int
    ) -> None:
        super().__init__(name, meaning, **labels)
        self._bounds = (*sorted(bounds), math.inf)
        self._counts: dict[Values, list[int]] = {}
        self._sums: dict[Values, float] = {}
        if not labels:
            self._begin(())

    def observe(self, value: float, *labels: str) -> None:
        with self._lock:
            place = self._label_values(labels)
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
        self.turns_running = Gauge("hermes_turns_running", "Turns that are running.")
        self.turns_running.set(0)
        self.inbox_entries = Gauge(
            "hermes_inbox_entries", "Messages in the inbox, by state.", state=INBOX_STATES
        )
        self.outbox_entries = Gauge(
            "hermes_outbox_entries", "Messages in the outbox, by state.", state=OUTBOX_STATES
        )
        self.auth_failures = Counter(
            "hermes_auth_failures_total",
            "Wrong keys, signatures and pairing codes, by surface.",
            surface=platforms,
            kind=AUTH_FAILURES,
        )
        self.store_bytes = Gauge("hermes_store_bytes", "Size of the files of the store.", file=STORE_FILES)
        self._add_model_metrics()
        self._add_process_metrics()
        self._registered: dict[str, Metric] = {}
        """The metrics that platforms have registered, by name."""

    def register(self, metrics: Sequence[Metric]) -> None:
        """Add metrics that an adapter has defined. A metric replaces one that was added before with the same name."""
        self._registered |= {metric.name: metric for metric in metrics}

    def _add_model_metrics(self) -> None:
        self.model_seconds = Histogram(
            "hermes_model_call_seconds", "Duration of answered model calls.", SLOW, model=MOST_MODELS
        )
        self.model_first_seconds = Histogram(
            "hermes_model_first_piece_seconds",
            "Seconds until the first piece of an answer.",
            WAITS,
            model=MOST_MODELS,
        )
        self.model_errors = Counter(
            "hermes_model_errors_total",
            "Failed attempts of model calls, by kind.",
            model=MOST_MODELS,
            kind=tuple(MODEL_ERRORS.values()),
        )
        self.tokens = Counter(
            "hermes_model_tokens_total", "Model tokens, by model and kind.", model=MOST_MODELS, kind=TOKENS
        )
        self.cost = Counter(
            "hermes_model_cost_usd_total", "Known cost of model calls in dollars.", model=MOST_MODELS
        )

    def _add_process_metrics(self) -> None:
        self.process_cpu = Total("process_cpu_seconds_total", "CPU time of the process in seconds.")
        self.process_memory = Gauge("process_resident_memory_bytes", "Resident memory of the process.")
        self.process_files = Gauge("process_open_fds", "Open file descriptors.")
        self.process_most_files = Gauge("process_max_fds", "Limit on open file descriptors.")
        self.process_start = Gauge("process_start_time_seconds", "Start of the process, as Unix time.")

    def count_call(self, report: CallReport, cost: float | None) -> None:
        """Add one attempt of a model call to the metrics. `cost` is the cost of the attempt in dollars, or None if
        it is unknown."""
        model, used, error = report.model, report.used, report.error
        if error is not None:
            kind = next((name for known, name in MODEL_ERRORS.items() if isinstance(error, known)), OTHER)
            self.model_errors.add(model, kind)
        else:
            self.model_seconds.observe(report.seconds, model)
            if report.first_seconds is not None:
                self.model_first_seconds.observe(report.first_seconds, model)
        if used is not None:
            for token_kind in TOKENS:
                if count := getattr(used, f"{token_kind}_tokens"):
                    self.tokens.add(model, token_kind, by=count)
            self.cost.add(model, by=cost or 0.0)

    def render(self) -> str:
        """Return the text of all metrics for a Prometheus response. Its media type is `CONTENT_TYPE`."""
        metrics = [metric for metric in vars(self).values() if isinstance(metric, Metric)]
        metrics += self._registered.values()
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
