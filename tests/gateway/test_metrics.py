"""Metrics are in Prometheus's documented text format, and Prometheus's own parser can read them."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from hermes.gateway.ops.metrics import QUICK, Counter, GatewayMetrics, Gauge, Histogram, Metric, format_value


def written(metric: Metric) -> str:
    return "".join(f"{line}\n" for line in metric.lines())


def read_back(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(text)
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in families
        for one in family.samples
    }


def test_a_counter_without_labels_begins_at_nought() -> None:
    counter = Counter("seen_total", "What was seen.")
    assert written(counter) == "# HELP seen_total What was seen.\n# TYPE seen_total counter\nseen_total 0\n"
    counter.add()
    counter.add(by=2.5)
    assert written(counter).endswith("\nseen_total 3.5\n")


def test_a_counter_counts_each_combination_of_labels() -> None:
    counter = Counter("in_total", "In.", platform=("a", "b"), state=("good", "bad"))
    counter.add("a", "good")
    counter.add("b", "bad", by=2)
    counter.add("a", "good")
    assert written(counter) == (
        "# HELP in_total In.\n# TYPE in_total counter\n"
        'in_total{platform="a",state="good"} 2\n'
        'in_total{platform="b",state="bad"} 2\n'
    )


def test_a_counter_never_goes_back() -> None:
    with pytest.raises(ValueError, match="seen_total cannot decrease"):
        Counter("seen_total", "Seen.").add(by=-1)


def test_what_was_not_declared_is_other_so_that_nothing_grows() -> None:
    counter = Counter("in_total", "In.", platform=("telegram",))
    for person in range(1000):
        counter.add(f"user-{person}")
    assert read_back(written(counter)) == {("in_total", (("platform", "other"),)): 1000}


def test_forgotten_labels_are_an_error_at_once() -> None:
    with pytest.raises(ValueError):
        Counter("in_total", "In.", platform=("a",), state=("b",)).add("a")


def test_a_gauge_that_nobody_knows_is_left_out() -> None:
    gauge = Gauge("waiting", "How many wait.")
    assert written(gauge) == "# HELP waiting How many wait.\n# TYPE waiting gauge\n"
    gauge.set(7)
    assert written(gauge).endswith("\nwaiting 7\n")
    gauge.set(None)
    assert "\nwaiting" not in written(gauge)


def test_the_buckets_of_a_histogram_are_cumulative_and_end_with_infinity() -> None:
    took = Histogram("took_seconds", "How long.", (1, 0.1), way=("fast",))
    for value in (0.05, 0.1, 0.5, 2.0):
        took.observe(value, "fast")
    assert written(took) == (
        "# HELP took_seconds How long.\n# TYPE took_seconds histogram\n"
        'took_seconds_bucket{way="fast",le="0.1"} 2\n'
        'took_seconds_bucket{way="fast",le="1"} 3\n'
        'took_seconds_bucket{way="fast",le="+Inf"} 4\n'
        'took_seconds_sum{way="fast"} 2.65\n'
        'took_seconds_count{way="fast"} 4\n'
    )


@given(st.lists(st.floats(0, 1e6)))
def test_a_histogram_counts_what_is_at_most_each_bound(values: list[float]) -> None:
    took = Histogram("took", "How long.", QUICK)
    for value in values:
        took.observe(value)
    result = read_back(written(took))
    for bound in (*QUICK, math.inf):
        at_most = sum(value <= bound for value in values)
        assert result["took_bucket", (("le", format_value(bound)),)] == at_most
    assert result["took_count", ()] == len(values)
    assert result["took_sum", ()] == pytest.approx(math.fsum(values))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (3.0, "3"), (2.5, "2.5"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")],
)
def test_numbers_are_spelled_as_documented(value: float, text: str) -> None:
    assert format_value(value) == text


@given(st.floats(allow_nan=False))
def test_a_number_is_read_back_as_it_was(value: float) -> None:
    assert float(format_value(value)) == value


def test_backslash_quote_and_line_end_are_escaped() -> None:
    gauge = Gauge("g", 'a "b" \\ c\nd', label=('x"y\\z\n',))
    gauge.set(1, 'x"y\\z\n')
    assert written(gauge) == ('# HELP g a "b" \\\\ c\\nd\n# TYPE g gauge\ng{label="x\\"y\\\\z\\n"} 1\n')


@given(st.text())
@example("\r\n\x85\u2028")
@example('{a="b",c="\\"} 1 # ')
def test_any_label_is_read_back_as_it_was(label: str) -> None:
    gauge = Gauge("g", "G.", label=(label,))
    gauge.set(1, label)
    assert read_back(written(gauge)) == {("g", (("label", label),)): 1.0}


def test_nothing_is_lost_when_several_threads_count() -> None:
    counter, took = Counter("c_total", "C."), Histogram("h", "H.", (1,))

    def work(_: int) -> None:
        for _ in range(2000):
            counter.add()
            took.observe(0.5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    result = read_back(written(counter) + written(took))
    assert result["c_total", ()] == result["h_count", ()] == 8000
    assert result["h_sum", ()] == 4000


def test_the_gateways_own_numbers_are_all_readable() -> None:
    metrics = GatewayMetrics(["telegram", "webhook"])
    metrics.received.add("telegram", "accepted")
    metrics.received.add("carrier pigeon", "accepted")
    metrics.turns.add("answered")
    metrics.stored_seconds.observe(0.003)
    metrics.turn_seconds.observe(4)
    metrics.deliveries.add("webhook", "sent")
    metrics.platform_up.set(1, "telegram")
    metrics.inbox_waiting.set(3)
    metrics.outbox_waiting.set(0)
    metrics.resets.add("daily")
    metrics.tokens.add("input", by=1200)
    families = {family.name: family for family in text_string_to_metric_families(metrics.render())}
    assert {name: family.type for name, family in families.items()} == {
        "hermes_messages_received": "counter",
        "hermes_message_stored_seconds": "histogram",
        "hermes_turns": "counter",
        "hermes_turn_seconds": "histogram",
        "hermes_deliveries": "counter",
        "hermes_platform_up": "gauge",
        "hermes_inbox_waiting": "gauge",
        "hermes_outbox_waiting": "gauge",
        "hermes_resets": "counter",
        "hermes_model_tokens": "counter",
    }
    assert all(family.documentation for family in families.values())
    result = read_back(metrics.render())
    assert result["hermes_messages_received_total", (("platform", "other"), ("state", "accepted"))] == 1
    assert result["hermes_model_tokens_total", (("kind", "input"),)] == 1200
