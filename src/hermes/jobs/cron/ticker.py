"""The ticker starts the runs of scheduled jobs that are due. Several tickers may work on the same home and store at the
same time.

A tick does four things. It records runs whose process died as killed. It delivers results that such processes did not
deliver. It starts the next attempts of failed runs. It takes due times and starts their runs. The store decides which
ticker gets a due time. The runs of one job follow one another; a few jobs can run at the same time.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from hermes import clock, errors, secrets
from hermes.jobs.cron.due_times import find_due
from hermes.jobs.cron.job import NOWHERE, SOURCE, Job
from hermes.jobs.cron.job_files import BrokenFile, JobFiles
from hermes.jobs.cron.results import ResultDelivery, read_answer
from hermes.jobs.cron.runner import MakeComponents, Outcome, Runner, make_standard_job_components
from hermes.logs import get_logger
from hermes.store.jobs.job_runs import PENDING, JobRun
from hermes.store.processes import is_gone

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from hermes.db.session_db import SessionDB
    from hermes.jobs.cron.results import Sender

_log = get_logger(__name__)

LOOK_EVERY_S = 5.0
"""How often job files are read, so that a new or changed job is noticed."""
RECOVER_EVERY_S = 15.0
"""How often killed runs of other processes are looked for."""
KILLED = "cron_killed"
SUSPECT_S = 60.0
"""A running process of this machine has so long to extend a lease that has expired. After the machine was asleep, all
leases have expired."""
LEFT_S = 60.0
"""A result that was not handed over for so long was left, even if its process is running."""
SHORTEST_WAIT_S = 0.05


class Ticker:
    def __init__(
        self,
        db: SessionDB,
        sender: Sender | None,
        *,
        files: JobFiles | None = None,
        jobs_at_once: int = 2,
        make_components: MakeComponents = make_standard_job_components,
        on_outcome: Callable[[Job, Outcome], None] = lambda _job, _outcome: None,
    ) -> None:
        """Create a ticker. At most `jobs_at_once` jobs run at the same time. `on_outcome` is called after each run that
        this ticker started."""
        self.files = files or JobFiles()
        self._db, self._on_outcome = db, on_outcome
        self._delivery = ResultDelivery(db, self.files, sender)
        self.runner = Runner(db, self._delivery, make_components)
        self._slots = asyncio.Semaphore(jobs_at_once)
        self._working: dict[str, asyncio.Task[None]] = {}
        self._closing, self._stop_runs = asyncio.Event(), asyncio.Event()
        self._last_due: dict[str, int] = {}
        """The last due time of each job that was taken, as far as this process knows."""
        self._reported: dict[str, str] = {}
        self._suspects: dict[JobRun, float] = {}
        """Runs of this machine whose lease has expired, and when this was first seen."""
        self._recovered_at = 0.0

    @property
    def running(self) -> list[str]:
        """The ids of the jobs that this ticker is running or is about to run."""
        return sorted(self._working)

    async def watch(self) -> None:
        """Call `tick` again and again until `close` is called. An error is logged and does not end the loop."""
        while not self._closing.is_set():
            try:
                await self.tick()
                wait = await self._find_wait()
            except Exception as problem:  # noqa: BLE001 - the other jobs must go on
                is_expected = isinstance(problem, errors.HermesError | OSError)
                reason = secrets.redact(str(problem) or repr(problem))
                _log.warning("scheduled jobs are delayed: %s", reason, exc_info=not is_expected)
                wait = LOOK_EVERY_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._closing.wait()

    async def tick(self) -> None:
        """Start all runs that are due. This returns before they end; `wait` waits for them."""
        jobs, broken = await asyncio.to_thread(self.files.read_all)
        self._report_broken(broken)
        now = clock.now()
        if now - self._recovered_at >= RECOVER_EVERY_S or now < self._recovered_at:
            await self._recover(jobs)
            self._recovered_at = now
        now = clock.now()  # killed runs are tried again at once
        for run in await asyncio.to_thread(self._db.job_runs.list_retries, now):
            job = jobs.get(run.job_id)
            # A job that was rescheduled or resumed begins anew.
            if job is not None and job.enabled and (run.due_at > job.since or run.cause == "manual"):
                self._start(job.id, self._retry(run))
        if await asyncio.to_thread(self._list_due, jobs, now):
            self._last_due = await asyncio.to_thread(self._db.job_runs.find_last_due)
            for job in await asyncio.to_thread(self._list_due, jobs, now):
                self._start(job.id, self._run_due(job.id, now))

    async def wait(self) -> None:
        """Wait until all runs that this ticker started have ended."""
        while self._working:
            await asyncio.wait(list(self._working.values()))

    async def close(self, seconds: float) -> None:
        """Start no more runs. Wait up to `seconds` for the runs that are in progress. Then stop them and record them as
        killed."""
        self._closing.set()
        if self._working:
            await asyncio.wait(list(self._working.values()), timeout=max(0.0, seconds))
        self._stop_runs.set()
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    def _list_due(self, jobs: Mapping[str, Job], now: float) -> list[Job]:
        """Return the jobs that are due at the time `now`. This can take a second after a long pause, so it runs in a
        thread."""
        return [job for job in jobs.values() if self._is_due(job, now)]

    def _is_due(self, job: Job, now: float) -> bool:
        if not job.enabled or job.id in self._working:
            return False
        return bool(find_due(job, job.read_schedule(), self._last_due.get(job.id), now))

    async def _find_wait(self) -> float:
        """Return the seconds until the next tick: until the next due time, until the next attempt of a failed run, or
        until the job files must be read again."""
        now = clock.now()
        times: list[float] = [
            due
            for job in self.files.list_known()
            if job.enabled and (due := job.read_schedule().next_after(now)) is not None
        ]
        retry = await asyncio.to_thread(self._db.job_runs.find_next_retry)
        # A retry that is overdue waits for something else: a free slot, or a job that is paused.
        times += [] if retry is None or retry <= now else [retry]
        return max(SHORTEST_WAIT_S, min([LOOK_EVERY_S, *(due - now for due in times)]))

    # ---------------------------------------------------------------- runs

    def _start(self, job_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Start `work`, the coroutine of a run, in a task. Discard it if this ticker already works on the same job or
        is closing."""
        if job_id in self._working or self._closing.is_set():
            work.close()
            return
        task = asyncio.create_task(work, name=f"job {job_id}")
        self._working[job_id] = task
        task.add_done_callback(lambda done: self._on_done(job_id, done))

    def _on_done(self, job_id: str, task: asyncio.Task[None]) -> None:
        del self._working[job_id]
        if not task.cancelled() and (problem := task.exception()) is not None:
            _log.error("the job %s cannot run: %s", job_id, secrets.redact(str(problem) or repr(problem)))

    async def _run_due(self, job_id: str, moment: float) -> None:
        """Run a job for each of its due times, one after the other. Before each run, read the job file and the last due
        time in the store again. `moment` is when the job was found to be due: a job that waits for a free slot is not
        late."""
        async with self._slots:
            while not self._closing.is_set():
                job = await asyncio.to_thread(self.files.get, job_id)
                if job is None or not job.enabled or await asyncio.to_thread(self._is_running, job_id):
                    return
                self._last_due = await asyncio.to_thread(self._db.job_runs.find_last_due)
                last = self._last_due.get(job_id)
                due = await asyncio.to_thread(find_due, job, job.read_schedule(), last, moment)
                if not due:
                    return
                moment = clock.now()
                if due[0].skipped is not None:
                    if not await asyncio.to_thread(self._db.job_runs.skip, job_id, due[0].at, due[0].skipped):
                        return
                    continue
                run = await asyncio.to_thread(self._db.job_runs.claim, job_id, due[0].at, due[0].cause)
                if run is None:  # another process has taken it
                    return
                await self._run(job, run)

    async def _retry(self, failed: JobRun) -> None:
        async with self._slots:
            job = await asyncio.to_thread(self.files.get, failed.job_id)
            if job is None or not job.enabled or self._closing.is_set():
                return
            run = await asyncio.to_thread(self._db.job_runs.claim_retry, failed)
            if run is not None:
                await self._run(job, run)

    async def _run(self, job: Job, run: JobRun) -> None:
        _log.info("job %s: run of %s begins", job.id, job.format_time(run.due_at))
        outcome = await self.runner.run(job, run, stop=self._stop_runs)
        _log.info("job %s: run of %s is %s", job.id, job.format_time(run.due_at), outcome.run.state)
        self._on_outcome(job, outcome)

    def _is_running(self, job_id: str) -> bool:
        return bool(self._db.job_runs.find_running(job_id))

    # ---------------------------------------------------------------- after a crash

    async def _recover(self, jobs: Mapping[str, Job]) -> None:
        """Record the runs whose process died as killed, and deliver the results that such processes did not deliver."""
        await recover_runs(self._db, jobs, self._is_spared)
        now = clock.now()
        for run in await asyncio.to_thread(self._db.job_runs.list_undelivered):
            is_left = is_gone(run.holder_host, run.holder_pid, run.holder_start)
            job = jobs.get(run.job_id)
            if not is_left and now - (run.ended_at or now) < LEFT_S:
                continue
            if job is None:
                await asyncio.to_thread(self._db.job_runs.set_delivery, run, None)
                continue
            answer = await asyncio.to_thread(read_answer, self._db, run)
            await self._delivery.deliver(job, run, answer)

    def _is_spared(self, run: JobRun) -> bool:
        """Return whether a run with an expired lease may still be in progress. This is so for about a minute if its
        process is on this machine, because the machine may have been asleep."""
        if run.holder_host != os.uname().nodename:
            return False
        first = self._suspects.setdefault(run, monotonic())
        return monotonic() - first < SUSPECT_S

    def _report_broken(self, broken: Sequence[BrokenFile]) -> None:
        """Log a warning for each job file that cannot be read. The same problem of the same file is logged once."""
        now = {str(file.path): file.problem for file in broken}
        for path, problem in now.items():
            if self._reported.get(path) != problem:
                _log.warning("the job file %s is ignored: %s", path, problem)
        self._reported = now


async def recover_runs(
    db: SessionDB, jobs: Mapping[str, Job], is_spared: Callable[[JobRun], bool] = lambda _run: True
) -> list[JobRun]:
    """Record the runs whose process died as killed, and return them. The retry settings of their jobs decide whether
    there is another attempt.

    `is_spared` decides about runs whose lease has expired (see `JobRuns.recover`). By default all of them are spared,
    and a run is recorded as killed only if its process is known to have ended.
    """

    def choose_retry(run: JobRun) -> float | None:
        job = jobs.get(run.job_id)
        return None if job is None else job.choose_retry(run.attempt, clock.now(), killed=True)

    def recover() -> list[JobRun]:
        killed = db.job_runs.recover(choose_retry, is_spared)
        for run in killed:
            with suppress(errors.StoreError):
                _end_session(db, run)
            job = jobs.get(run.job_id)
            if job is not None and run.retry_at is None and job.deliver != NOWHERE:
                db.job_runs.set_delivery(run, PENDING)  # the failure is reported like a result
        return killed

    return await asyncio.to_thread(recover)


def _end_session(db: SessionDB, run: JobRun) -> None:
    """End the session that a killed run left open."""
    session = None if run.session_id is None else db.get_session(run.session_id)
    if session is not None and session["source"] == SOURCE and session["ended_at"] is None:
        db.end_session(str(run.session_id), KILLED)
