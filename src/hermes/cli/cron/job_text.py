"""Jobs and runs as text for people and as JSON for programs. Times are shown in the zone of the job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.jobs.cron.job import Job
    from hermes.store.jobs.job_runs import JobRun

NEVER = "never"


def find_next(job: Job) -> int | None:
    """Return the next due time of a job. Return None if the job is paused or has no further due time."""
    return job.read_schedule().next_after(max(clock.now(), job.since)) if job.enabled else None


def format_schedule(job: Job) -> str:
    """Return the schedule of a job for a list of jobs. For a job that runs at a single time, this is `once`,
    because the list shows that time in a column of its own."""
    from hermes.jobs.cron.schedule import OneTime

    return "once" if isinstance(job.read_schedule(), OneTime) else job.schedule


def describe_new_job(job: Job, headline: str) -> Iterator[str]:
    from hermes.jobs.cron.new_job import list_next_times

    yield make_printable(f"{headline}: {job.schedule} ({job.timezone}).")
    if not job.enabled:
        yield "It is paused. Resumed, it would run at:"
    times = list_next_times(job)
    yield from (f"  {time}" for time in times)
    if not times:
        yield "  It has no time in the future."
    if job.enabled:
        yield from describe_process()


def describe_process() -> Iterator[str]:
    """Yield a hint on how to run jobs if no process of this home runs them now. Otherwise yield nothing."""
    from hermes.gateway.ops.status_file import read_status

    status = read_status()
    if status is None or not status.is_running:
        yield (
            "Jobs run while `hermes gateway` or `hermes cron daemon` runs, or when system cron calls"
            " `hermes cron tick`."
        )


def make_json_job(job: Job, last: JobRun | None = None) -> dict[str, Any]:
    from hermes.jobs.cron.job import describe_job
    from hermes.jobs.cron.new_job import NEXT_TIMES
    from hermes.jobs.cron.schedule import list_next

    start = max(clock.now(), job.since)
    times = list_next(job.read_schedule(), start, NEXT_TIMES) if job.enabled else []
    return {
        **describe_job(job),
        "next": times,
        "next_iso": [_format_iso(job, at) for at in times],
        "last": None if last is None else make_json_run(job, last),
    }


def _format_iso(job: Job, at: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(at, job.zone).isoformat(timespec="seconds")


def make_json_run(job: Job | None, run: JobRun) -> dict[str, Any]:
    fields = run._asdict()
    for name in ("holder_start", "expires_at"):
        del fields[name]
    if job is not None:
        fields["due_iso"] = _format_iso(job, run.due_at)
    return fields


def format_took(run: JobRun) -> str:
    from hermes.jobs.cron.phrases import format_duration

    end = run.ended_at if run.ended_at is not None else clock.now()
    return "" if run.state == "skipped" else format_duration(max(1.0, end - run.started_at))


def format_state(run: JobRun, job: Job | None) -> str:
    if run.retry_at is not None and job is not None:
        return f"{run.state}, again {job.format_time(run.retry_at, '%H:%M:%S')}"
    return run.state if run.attempt == 1 else f"{run.state} (attempt {run.attempt})"
