"""Makes new jobs from the values that a person typed or the agent proposed, and lists their next due times."""

from __future__ import annotations

import re
from typing import Any

from hermes import clock
from hermes.config.settings import read_settings
from hermes.config.time_zones import UnknownZone, find_local_name, find_zone
from hermes.jobs.cron.job import BadJob, Job, check_job
from hermes.jobs.cron.phrases import parse_phrase
from hermes.jobs.cron.schedule import list_next
from hermes.text import make_printable

NEXT_TIMES = 5
LONGEST_GIVEN_NAME = 40
LONGEST_ID = 36


def make_job_id(name: str) -> str:
    """Return an id for a job with this name: small letters, digits and `-`."""
    words = re.findall(r"[a-z0-9]+", name.casefold())
    return "-".join(words)[:LONGEST_ID].strip("-") or "job"


def make_job(
    schedule: str,
    prompt: str,
    *,
    name: str | None = None,
    timezone: str | None = None,
    **fields: Any,
) -> Job:
    """Return a new job. `schedule` is a schedule as a person types it. Raise `BadJob` or `BadSchedule` if a value is
    invalid. The job is not written to a file."""
    now = float(int(clock.now()))
    zone = timezone or read_settings().cron.timezone or find_local_name()
    try:
        found = find_zone(zone)
    except UnknownZone as hint:
        raise BadJob(f"there is no time zone {zone[:60]!r}{hint}") from None
    title = " ".join((name or make_printable(prompt)[:LONGEST_GIVEN_NAME]).split())
    return check_job(
        Job(
            id=make_job_id(title),
            name=title,
            schedule=parse_phrase(schedule, found, now).text,
            timezone=zone,
            prompt=prompt.strip(),
            created_at=now,
            since=now,
            **fields,
        )
    )


def list_next_times(job: Job, count: int = NEXT_TIMES) -> list[str]:
    """Return the next due times of a job as text, in the job's time zone."""
    return [job.format_time(at) for at in list_next(job.read_schedule(), max(clock.now(), job.since), count)]
