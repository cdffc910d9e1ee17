"""The metrics have Prometheus's documented text format. Prometheus's own parser can read them."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from hermes import clock
from hermes.agent.models.model import CallReport, QuotaExceeded, Used
from hermes.gateway.ops.metrics import QUICK, Counter, GatewayMetrics, Gauge, Histogram, Metric, format_value
from hermes.gateway.ops.readings import read_process
from tests.agent.openai_server import ModelServer, refuses, says, usage
from tests.gateway.local_gateway import ANN, settings_of
from tests.gateway.served_gateway import ServedGateway
from tests.ports import reserve_port


def written(metric: Metric) -> str:
    return "".join(f"{line}\n" for line in metric.lines())


def read_back(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(text)
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in families
        for one in family.samples
    }


def test_a_counter_without_labels_begins_at_zero() -> None:
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


def test_an_undeclared_label_value_is_counted_as_other() -> None:
    counter = Counter("in_total", "In.", platform=("telegram",))
    for person in range(1000):
        counter.add(f"user-{person}")
    assert read_back(written(counter)) == {("in_total", (("platform", "other"),)): 1000}


def test_forgotten_labels_are_an_error_at_once() -> None:
    with pytest.raises(ValueError):
        Counter("in_total", "In.", platform=("a",), state=("b",)).add("a")


def test_a_gauge_without_a_value_is_left_out() -> None:
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
    used = Used(input_tokens=1200, output_tokens=0)
    metrics.count_call(CallReport("big", 2.0, 0.3, used), 0.25)
    metrics.count_call(CallReport("big", 2.0, error=QuotaExceeded("no credit")), None)
    metrics.auth_failures.add("webhook", "signature")
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
        "hermes_turns_running": "gauge",
        "hermes_inbox_entries": "gauge",
        "hermes_outbox_entries": "gauge",
        "hermes_auth_failures": "counter",
        "hermes_store_bytes": "gauge",
        "hermes_model_call_seconds": "histogram",
        "hermes_model_first_piece_seconds": "histogram",
        "hermes_model_errors": "counter",
        "hermes_model_tokens": "counter",
        "hermes_model_cost_usd": "counter",
        "process_cpu_seconds": "counter",
        "process_resident_memory_bytes": "gauge",
        "process_open_fds": "gauge",
        "process_max_fds": "gauge",
        "process_start_time_seconds": "gauge",
    }
    assert all(family.documentation for family in families.values())
    result = read_back(metrics.render())
    assert result["hermes_messages_received_total", (("platform", "other"), ("state", "accepted"))] == 1
    assert result["hermes_model_tokens_total", (("kind", "input"), ("model", "big"))] == 1200
    assert result["hermes_model_cost_usd_total", (("model", "big"),)] == 0.25
    assert result["hermes_model_errors_total", (("kind", "quota"), ("model", "big"))] == 1
    assert result["hermes_model_call_seconds_count", (("model", "big"),)] == 1
    assert result["hermes_auth_failures_total", (("kind", "signature"), ("surface", "webhook"))] == 1


def test_a_label_with_a_number_of_values_takes_only_so_many() -> None:
    counter = Counter("calls_total", "Calls.", model=2)
    for model in ("a", "b", "c", "a", "d"):
        counter.add(model)
    counts = {labels[0][1]: value for (_, labels), value in read_back(written(counter)).items()}
    assert counts == {"a": 2, "b": 1, "other": 2}


def test_running_work_is_counted_until_it_ends() -> None:
    gauge = Gauge("running", "Running.")
    with gauge.count_inside(), gauge.count_inside():
        assert written(gauge).endswith("\nrunning 2\n")
    assert written(gauge).endswith("\nrunning 0\n")


def test_the_readings_of_the_process_are_those_of_the_system() -> None:
    reading = read_process()
    with open(os.devnull, "rb"):
        assert read_process().open_files == (reading.open_files or 0) + 1
    assert 0 < reading.cpu_seconds <= sum(os.times()[:2]) + 0.1
    assert 10_000_000 < reading.resident_bytes < 10_000_000_000
    assert clock.now() - 7200 < reading.started_at <= clock.now() + 1


async def test_a_gateway_measures_its_model_its_queues_its_store_and_itself(
    home: Path, model_server: ModelServer
) -> None:
    second = ModelServer()
    settings = settings_of(health_port=reserve_port())
    async with ServedGateway(home, model_server, second, settings=settings, title=True) as gateway:
        model_server.will(refuses(503, "down"))
        second.will(
            says("hello", used=usage(prompt_tokens=1_000, completion_tokens=50)),
            says("A title", used=usage(prompt_tokens=10, completion_tokens=5)),
        )
        await gateway.asks(ANN, "hello")
        await gateway.until(lambda: gateway.db.get_session_title(gateway.session_of(ANN)))
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{settings.health_port}/metrics")
        result = read_back(answer.text)
        other = ("model", "fallback-1")
        assert result["hermes_model_errors_total", (("kind", "busy"), ("model", "first"))] == 1
        assert result["hermes_model_call_seconds_count", (other,)] == 2
        assert result["hermes_model_first_piece_seconds_count", (other,)] == 2
        assert result["hermes_model_tokens_total", (("kind", "input"), other)] == 1_010
        assert result["hermes_model_tokens_total", (("kind", "output"), other)] == 55
        assert result["hermes_turns_running", ()] == 0
        assert result["hermes_inbox_entries", (("state", "queued"),)] == 0
        assert result["hermes_outbox_entries", (("state", "unknown"),)] == 0
        assert result["hermes_store_bytes", (("file", "store"),)] > 0
        assert result["hermes_store_bytes", (("file", "log"),)] > 0
        assert result["process_open_fds", ()] > 3
    second.close()
