"""`hermes cron daemon` and `hermes cron tick` as processes: several at once, killed, and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.agent.task_server import TaskServer
from tests.cli.conftest import Hermes
from tests.jobs.cron.conftest import AddJob, until

StartDaemon = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start_daemon(server: TaskServer, tmp_path: Path) -> Iterator[StartDaemon]:
    """Return a function that starts a daemon and waits until it ticks."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        log = tmp_path / f"daemon-{len(started)}.log"
        with log.open("w") as output:
            command = [sys.executable, "-W", "error", "-m", "hermes.cli.main", "cron", "daemon"]
            daemon = subprocess.Popen(command, stderr=output, stdout=output, text=True)
        started.append(daemon)
        until(lambda: "running scheduled jobs" in log.read_text())
        return daemon

    yield start
    for daemon in started:
        if daemon.poll() is None:
            os.kill(daemon.pid, signal.SIGKILL)
        daemon.wait(30)


def test_two_daemons_run_each_due_time_once(
    db: SessionDB, add_job: AddJob, start_daemon: StartDaemon, server: TaskServer
) -> None:
    daemons = [start_daemon(), start_daemon()]
    job = add_job("say tick", "every 10s")
    until(lambda: sum(run.state == "done" for run in db.job_runs.list_runs(job.id)) >= 2, 60)
    for daemon in daemons:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(30) == 0
    runs = db.job_runs.list_runs(job.id, -1)
    assert len({run.due_at for run in runs}) == len(runs) == len(server.heard)
    assert {(run.due_at - int(job.since)) % 10 for run in runs} == {0}


def test_a_run_that_is_killed_is_recorded_and_finished_by_another_daemon(
    db: SessionDB, add_job: AddJob, start_daemon: StartDaemon, server: TaskServer
) -> None:
    job = add_job("hold gate", due=1)
    daemon = start_daemon()
    until(lambda: server.heard)
    daemon.kill()
    daemon.wait(30)
    server.let_go("gate")
    start_daemon()
    until(lambda: any(run.state == "done" for run in db.job_runs.list_runs(job.id)), 60)
    second, first = db.job_runs.list_runs(job.id)
    assert (first.state, first.attempt, second.state, second.attempt) == ("killed", 1, "done", 2)
    assert first.due_at == second.due_at
    left = db.get_session(str(first.session_id))
    assert left is not None
    assert left["end_reason"] == "cron_killed"


def test_a_daemon_that_is_stopped_lets_a_run_finish(
    db: SessionDB, add_job: AddJob, start_daemon: StartDaemon, server: TaskServer
) -> None:
    job = add_job("hold gate", due=1)
    daemon = start_daemon()
    until(lambda: server.heard)
    daemon.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    server.let_go("gate")
    assert daemon.wait(30) == 0
    (run,) = db.job_runs.list_runs(job.id)
    assert run.state == "done"


def test_a_second_signal_ends_the_run_which_is_recorded_as_killed(
    db: SessionDB, add_job: AddJob, start_daemon: StartDaemon, server: TaskServer
) -> None:
    job = add_job("hold gate", due=1)
    daemon = start_daemon()
    until(lambda: server.heard)
    daemon.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(30) == 0
    (run,) = db.job_runs.list_runs(job.id)
    assert (run.state, run.detail) == ("killed", "the program was shut down during the run")
    assert run.retry_at is not None


def test_a_job_that_is_removed_during_its_run_is_not_written_again(
    db: SessionDB, add_job: AddJob, start_daemon: StartDaemon, server: TaskServer, hermes: Hermes, home: Path
) -> None:
    job = add_job("hold gate", due=1)
    start_daemon()
    until(lambda: server.heard)
    assert hermes("cron", "remove", job.id, "--yes").returncode == 0
    server.let_go("gate")
    until(
        lambda: (
            [row["end_reason"] for row in db.list_conversations(include_hidden=True).rows]
            == ["cron_complete"]
        )
    )
    time.sleep(0.5)
    assert not (home / "cron" / "job.json").exists()
    assert db.job_runs.list_runs() == []


@pytest.mark.usefixtures("server")
def test_tick_runs_what_is_due_and_prints_it(db: SessionDB, add_job: AddJob, hermes: Hermes) -> None:
    job = add_job("say hello", due=5)
    first = hermes("cron", "tick")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith(f"{job.id}, ")
    assert ": done (" in first.stdout
    second = hermes("cron", "tick")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")


@pytest.mark.usefixtures("server")
def test_tick_reports_a_failed_run_and_a_bad_file(
    db: SessionDB, add_job: AddJob, hermes: Hermes, home: Path
) -> None:
    add_job("fail", due=5)
    (home / "cron" / "broken.json").write_text("{")
    done = hermes("cron", "tick")
    assert done.returncode == 1
    assert "failed" in done.stdout
    assert "broken.json is ignored" in done.stderr
