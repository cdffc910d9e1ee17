"""Jobs and the gateway: it runs them, and delivers results to the home channel through its outbox.

`hermes gateway run` is a process, Telegram is a local server, and the model repeats the prompt.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.agent.task_server import TaskServer
from tests.gateway.conformance.echo_model import EchoModel
from tests.gateway.conformance.on_telegram import OnTelegram
from tests.gateway.conformance.stage import Person, until
from tests.gateway.operated_gateway import OperatedGateway


@pytest.fixture
def stage() -> Iterator[OnTelegram]:
    made = OnTelegram()
    yield made
    made.close()


@pytest.fixture
def ann(stage: OnTelegram) -> Person:
    return stage.person("Ann")


@pytest.fixture
def gateway(home: Path, stage: OnTelegram, ann: Person) -> Iterator[OperatedGateway]:
    """A gateway that is not started yet, with Ann's private chat as the home channel of Telegram."""
    model = EchoModel()
    made = OperatedGateway(home, stage, model)
    channel = ann.id
    made.config["platforms"]["telegram"] |= {"home_channel": channel, "home_type": "dm", "home_user": channel}
    made.save()
    yield made
    made.close()
    model.close()


def add(gateway: OperatedGateway, schedule: str, prompt: str, *more: str) -> None:
    words = ("cron", "add", schedule, prompt, "--name", "report", "--deliver", "telegram", *more)
    done = gateway.run(*words)
    assert done.returncode == 0, done.stderr


def test_the_gateway_runs_a_due_job_and_posts_the_result(gateway: OperatedGateway, ann: Person) -> None:
    gateway.start()
    add(gateway, "in 2s", "good morning")
    until(lambda: any("good morning" in text for text in gateway.heard(ann)), lambda: gateway.log)
    assert len(gateway.heard(ann)) == 1
    with gateway.open_store() as db:
        (run,) = db.job_runs.list_runs("report")
        assert (run.state, run.delivery, run.cause) == ("done", "telegram", "schedule")
    assert "job report: run of" in gateway.log


def test_a_result_of_another_process_is_posted_by_the_running_gateway(
    gateway: OperatedGateway, ann: Person
) -> None:
    gateway.start()
    add(gateway, "@yearly", "good evening")
    assert gateway.run("cron", "run", "report").returncode == 0
    until(lambda: any("good evening" in text for text in gateway.heard(ann)), lambda: gateway.log)


def test_a_result_waits_in_the_outbox_until_a_gateway_starts(gateway: OperatedGateway, ann: Person) -> None:
    add(gateway, "@yearly", "good night")
    assert gateway.run("cron", "run", "report").returncode == 0
    assert gateway.heard(ann) == []
    with gateway.open_store() as db:
        assert [entry.state for entry in db.outbox.list_open()] == ["queued"]
    gateway.start()
    until(lambda: any("good night" in text for text in gateway.heard(ann)), lambda: gateway.log)
    gateway.kill()
    gateway.start()
    assert len(gateway.heard(ann)) == 1


def test_a_gateway_that_is_killed_during_a_run_records_it_and_answers_after_its_start(
    gateway: OperatedGateway, ann: Person
) -> None:
    with closing(TaskServer()) as server:
        gateway.config["model"]["base_url"] = server.base_url
        gateway.save()
        gateway.start()
        add(gateway, "in 1s", "hold gate")
        until(lambda: server.heard, lambda: gateway.log)
        gateway.kill()
        server.let_go("gate")
        gateway.start()
        until(lambda: gateway.heard(ann), lambda: gateway.log)
        assert gateway.heard(ann) == ["well then"]
        with gateway.open_store() as db:
            second, first = db.job_runs.list_runs("report")
    assert (first.state, second.state, first.due_at) == ("killed", "done", second.due_at)


def test_a_long_result_is_split_as_the_platform_needs_it(gateway: OperatedGateway, ann: Person) -> None:
    add(gateway, "@yearly", "x" * 9_000)
    gateway.start()
    assert gateway.run("cron", "run", "report").returncode == 0
    until(lambda: "".join(gateway.heard(ann)).count("x") >= 9_000, lambda: gateway.log)
    assert all(len(text) <= 4_096 for text in gateway.heard(ann))


def test_a_gateway_that_may_not_run_jobs_leaves_them_to_the_daemon(gateway: OperatedGateway) -> None:
    gateway.config["cron"] = {"in_gateway": False}
    gateway.save()
    gateway.start()
    add(gateway, "in 1s", "good morning")
    time.sleep(3)
    with gateway.open_store() as db:
        assert db.job_runs.list_runs() == []
    assert "report" in gateway.run("cron", "tick").stdout


def test_a_platform_without_a_home_channel_is_refused_when_the_job_is_made(gateway: OperatedGateway) -> None:
    del gateway.config["platforms"]["telegram"]["home_channel"]
    gateway.save()
    for platform, problem in (
        ("telegram", "telegram has no home channel; send /sethome"),
        ("matrix", "matrix is not set up"),
        ("pigeon", "there is no platform 'pigeon'"),
    ):
        done = gateway.run("cron", "add", "@daily", "hello", "--deliver", platform)
        assert done.returncode == 1
        assert problem in done.stderr
        assert len(done.stderr.splitlines()) == 1
