"""Records of runs: one process takes a due time, however many try, and a killed run is recorded as such."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from hermes import clock
from hermes.jobs.cron.job_files import JobFiles
from hermes.jobs.cron.results import read_answer
from hermes.store.jobs.job_runs import JobRun
from hermes_state import SessionDB
from tests.agent.task_server import TaskServer
from tests.cli.conftest import Hermes
from tests.jobs.cron.conftest import AddJob, tick

CLAIM = """
import sys
from pathlib import Path
from hermes_state import SessionDB
with SessionDB(Path(sys.argv[1])) as db:
    sys.stdin.readline()
    runs = db.job_runs
    taken = [due for due in range(100, 120) if (run := runs.claim("job", due)) and runs.finish(run, "done")]
    print(*taken)
"""


def test_each_due_time_is_taken_by_one_of_several_processes(db: SessionDB) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, str(db.db_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    with ThreadPoolExecutor(3) as pool:
        outputs = list(pool.map(lambda process: process.communicate("go\n", timeout=60)[0], started))
    taken = [int(due) for output in outputs for due in output.split()]
    assert len(taken) == len(set(taken))
    assert {run.due_at for run in db.job_runs.list_runs("job", -1)} == set(taken)
    assert {run.state for run in db.job_runs.list_runs("job", -1)} == {"done"}


def test_a_job_has_one_run_at_a_time(db: SessionDB) -> None:
    first = db.job_runs.claim("job", 100)
    assert first is not None
    assert db.job_runs.claim("job", 200) is None
    assert db.job_runs.claim("other", 100) is not None
    assert db.job_runs.finish(first, "done")
    assert db.job_runs.claim("job", 100) is None
    assert db.job_runs.claim("job", 200) is not None


def die_during_a_run(db: SessionDB, job_id: str, due_at: int) -> None:
    """Let another process take a due time and end without a word."""
    script = (
        "import os, sys; from pathlib import Path; from hermes_state import SessionDB\n"
        "assert SessionDB(Path(sys.argv[1])).job_runs.claim(sys.argv[2], int(sys.argv[3]))\n"
        "os._exit(9)"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(db.db_path), job_id, str(due_at)], timeout=60, check=False
    )


def test_a_run_whose_process_died_is_recorded_as_killed(db: SessionDB) -> None:
    die_during_a_run(db, "job", 100)
    assert db.job_runs.claim("job", 200) is None
    (killed,) = db.job_runs.recover(lambda run: 1_000.0)
    assert (killed.state, killed.retry_at) == ("killed", 1_000.0)
    (record,) = db.job_runs.list_runs("job")
    assert record.state == "killed"
    assert "ended during the run" in (record.detail or "")
    again = db.job_runs.claim_retry(record)
    assert again is not None
    assert again.attempt == 2
    assert db.job_runs.claim_retry(record) is None


def test_a_run_that_does_not_extend_its_lease_is_lost_and_cannot_finish(db: SessionDB) -> None:
    """This is how a process on another host is found dead."""
    run = db.job_runs.claim("job", 100, seconds=0.0)
    assert run is not None
    assert db.job_runs.renew(run, seconds=60)
    assert db.job_runs.recover(lambda _: None) == []
    assert db.job_runs.renew(run, seconds=-1)
    assert len(db.job_runs.recover(lambda _: None)) == 1
    assert not db.job_runs.renew(run)
    assert not db.job_runs.finish(run, "done")


@pytest.mark.usefixtures("server")
def test_a_process_that_slept_with_its_machine_is_not_taken_for_dead(db: SessionDB, add_job: AddJob) -> None:
    """After a suspend, leases have expired although their processes run. They get a minute to extend them."""
    job = add_job("say hello", due=5)
    run = db.job_runs.claim(job.id, 100, seconds=-60)
    assert run is not None
    tick(db)
    assert [record.state for record in db.job_runs.list_runs(job.id)] == ["running"]
    assert db.job_runs.renew(run)


@pytest.mark.usefixtures("server")
def test_a_retry_from_before_a_pause_does_not_run_after_it(
    db: SessionDB, add_job: AddJob, hermes: Hermes
) -> None:
    job = add_job("say hello", due=5)
    run = db.job_runs.claim(job.id, int(job.since) + 1)
    assert run is not None
    db.job_runs.finish(run, "failed", retry_at=clock.now())
    assert hermes("cron", "pause", job.id).returncode == 0
    assert hermes("cron", "resume", job.id).returncode == 0
    tick(db)
    assert [(record.attempt, record.state) for record in db.job_runs.list_runs(job.id)] == [(1, "failed")]


@pytest.mark.usefixtures("server")
def test_a_killed_run_is_tried_again_by_the_next_tick(db: SessionDB, add_job: AddJob) -> None:
    job = add_job("say hello", due=5)
    (due,) = {job.read_schedule().next_after(job.since)}
    die_during_a_run(db, job.id, int(due or 0))
    tick(db)
    states = [(run.attempt, run.state) for run in db.job_runs.list_runs(job.id)]
    assert states == [(2, "done"), (1, "killed")]


@pytest.mark.usefixtures("server")
def test_without_retries_the_kill_itself_is_reported(db: SessionDB, add_job: AddJob, files: JobFiles) -> None:
    job = add_job("say hello", due=5, retries=0, deliver="file")
    (due,) = {job.read_schedule().next_after(job.since)}
    die_during_a_run(db, job.id, int(due or 0))
    tick(db)
    assert [run.state for run in db.job_runs.list_runs(job.id)] == ["killed"]
    (report,) = (files.output_folder / job.id).iterdir()
    assert "ended during the run" in report.read_text()


def test_a_result_that_was_not_handed_over_is_handed_over_by_the_next_tick(
    db: SessionDB, add_job: AddJob, files: JobFiles, server: TaskServer
) -> None:
    """The process died after the answer was stored, and before it was in the file."""
    job = add_job("say hello", deliver="file")
    db.create_session("cron_job_20260101_000000", "cron")
    prompt = db.append_message("cron_job_20260101_000000", "user", "say hello")
    db.append_message("cron_job_20260101_000000", "assistant", "hello")
    script = (
        "import os, sys; from pathlib import Path; from hermes_state import SessionDB\n"
        "runs = SessionDB(Path(sys.argv[1])).job_runs; run = runs.claim(sys.argv[2], 100)\n"
        "runs.set_session(run, 'cron_job_20260101_000000', int(sys.argv[3]))\n"
        "runs.finish(run, 'done', None, 'pending')\n"
        "os._exit(9)"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(db.db_path), job.id, str(prompt)], timeout=60, check=False
    )
    tick(db)
    (result,) = (files.output_folder / job.id).iterdir()
    assert result.read_text() == "hello\n"
    (run,) = db.job_runs.list_runs(job.id)
    assert run.delivery == f"file {result}"
    assert server.requests == []


def test_removing_a_job_ends_its_retries_and_its_run(db: SessionDB) -> None:
    run = db.job_runs.claim("job", 100)
    assert run is not None
    db.job_runs.finish(run, "failed", retry_at=clock.now())
    running = db.job_runs.claim("job", 200)
    assert running is not None
    assert db.job_runs.forget("job") == 2
    assert db.job_runs.list_retries(clock.now() + 1) == []
    assert not db.job_runs.renew(running)
    assert not db.job_runs.finish(running, "done")
    assert db.job_runs.list_runs() == []


def test_the_answer_of_a_run_ends_where_the_next_run_begins(db: SessionDB) -> None:
    db.create_session("s", "cron")
    first = db.append_message("s", "user", "one")
    db.append_message("s", "assistant", "answer one")
    db.append_message("s", "user", "two")
    db.append_message("s", "assistant", "answer two")
    run = db.job_runs.claim("job", 100)
    assert run is not None
    assert db.job_runs.set_session(run, "s", first)
    found = db.job_runs.find(run)
    assert isinstance(found, JobRun)
    assert read_answer(db, found) == "answer one"


@pytest.mark.parametrize("verb", ["claim", "skip"])
def test_a_manual_run_in_the_second_of_a_due_time_counts_for_it(db: SessionDB, verb: str) -> None:
    manual = db.job_runs.claim("job", 100, "manual")
    assert manual is not None
    db.job_runs.finish(manual, "done")
    taken = db.job_runs.claim("job", 100) if verb == "claim" else db.job_runs.skip("job", 100, "late")
    assert not taken
    assert db.job_runs.find_last_due() == {"job": 100}


def test_a_manual_run_leaves_the_retries_of_other_jobs(
    db: SessionDB, add_job: AddJob, hermes: Hermes
) -> None:
    killed = add_job("say hello", name="killed", retries=1)
    add_job("say hello", name="other")
    die_during_a_run(db, killed.id, 100)
    assert hermes("cron", "run", "other", HERMES_MODEL="offline").returncode == 0
    (run,) = db.job_runs.list_runs(killed.id)
    assert (run.state, run.retry_at is not None) == ("killed", True)
