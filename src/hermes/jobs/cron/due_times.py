"""Selects the due times of a job that should run now. The functions receive the current time as an argument. They read
neither the clock nor the store."""

from __future__ import annotations

from typing import NamedTuple

from hermes import clock
from hermes.jobs.cron.job import Job
from hermes.jobs.cron.schedule import Schedule, find_latest, list_between
from hermes.store.jobs.job_runs import Cause

ON_TIME_S = 5 * clock.MINUTE
"""A due time that is not older than this is on time. System cron may call `hermes cron tick` every few minutes."""
MOST_CAUGHT_UP = 100
"""With the policy `all`, at most so many due times run."""


class DueTime(NamedTuple):
    at: int
    cause: Cause
    skipped: str | None = None
    """Why the due time does not run. None if it runs."""


def find_due(job: Job, schedule: Schedule, last_due: int | None, now: float) -> list[DueTime]:
    """Return the due times of a job that a process should take at the time `now`, the oldest first. `last_due` is the
    last due time that a process has taken before, or None."""
    after = max(job.since, last_due or 0.0)
    latest = find_latest(schedule, after, now)
    if latest is None:
        return []
    mode, within = job.missed_policy
    is_on_time = now - latest <= ON_TIME_S
    earliest = after if within is None else max(after, now - within)
    if mode == "all":
        times = list_between(schedule, earliest, now, MOST_CAUGHT_UP)
        due = [DueTime(at, "schedule" if now - at <= ON_TIME_S else "missed") for at in times]
        if due:
            return due
    if is_on_time:
        return [DueTime(latest, "schedule")]
    if mode == "once" and latest > earliest:
        return [DueTime(latest, "missed")]
    policy = f"no process was running at the due time (missed: {job.missed})"
    return [DueTime(latest, "missed", policy)]
