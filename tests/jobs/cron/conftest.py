"""A home with a model over HTTP, and the parts that run jobs in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes import clock
from hermes.jobs.cron.job import Job
from hermes.jobs.cron.job_files import JobFiles
from hermes.jobs.cron.new_job import make_job
from hermes.jobs.cron.ticker import Ticker
from hermes.store.jobs.job_runs import JobRun
from hermes_state import SessionDB
from tests import warm_command
from tests.agent.task_server import TaskServer, choose_server
from tests.cli.conftest import Hermes

AddJob = Callable[..., Job]


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskServer]:
    """A model over HTTP that does what the prompt says: `say WORDS`, `use TOOL {...}`, `hold NAME`, `fail`."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "HERMES_MODEL"):
        monkeypatch.setenv(name, "")  # restored after the test
    home.mkdir(mode=0o700, exist_ok=True)
    made = TaskServer()
    choose_server(made)
    yield made
    made.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def files(home: Path) -> JobFiles:
    return JobFiles()


@pytest.fixture
def add_job(files: JobFiles, workspace: Path) -> AddJob:
    """Return a function that stores a job. With `due`, its schedule became due so many seconds ago."""

    def add(prompt: str, schedule: str = "@yearly", *, due: float | None = None, **fields: Any) -> Job:
        import msgspec

        fields = {"workspace": str(workspace), "name": "job", "timezone": "UTC", **fields}
        job = make_job(schedule, prompt, **fields)
        if due is not None:
            moment = int(clock.now() - due)
            at = clock.format_iso_utc(moment).replace("Z", "+00:00")
            job = msgspec.structs.replace(job, schedule=at, since=float(moment - 60))
        return files.add(job)

    return add


def tick(db: SessionDB, sender: Any = None) -> None:
    """Run everything that is due, and wait for it."""

    async def work() -> None:
        ticker = Ticker(db, sender)
        await ticker.tick()
        await ticker.wait()

    asyncio.run(work())


def run_now(db: SessionDB, job: Job, sender: Any = None) -> JobRun:
    """Run a job as `hermes cron run` does, and return the record of the run."""

    async def work() -> JobRun:
        run = db.job_runs.claim(job.id, int(clock.now()), "manual")
        assert run is not None
        return (await Ticker(db, sender).runner.run(job, run)).run

    return asyncio.run(work())


def until(happened: Callable[[], object], seconds: float = 30.0) -> Any:
    """Wait until `happened` returns a true value, and return that value."""
    end = time.monotonic() + seconds
    while not (value := happened()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return value


@pytest.fixture
def hermes() -> Hermes:
    """Return a function that runs the real command until it ends: `hermes("cron", "list")`."""

    def run(*words: str, stdin: str = "", **environment: str) -> Any:
        return warm_command.run(words, stdin=stdin, environment=environment)

    return run
