"""A scheduled job: what to ask, when, with which permissions, and where the result goes."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

import msgspec

from hermes import clock, errors
from hermes.config.time_zones import UnknownZone, find_zone
from hermes.jobs.cron.phrases import format_duration, parse_duration
from hermes.jobs.cron.schedule import Schedule, read_schedule

VERSION = 1
SOURCE = "cron"
ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
NEW, OWN = "new", "job"
"""Each run gets a session of its own, or all runs of the job share a conversation. Any other value is the id of a
session."""
NOWHERE, FILE = "none", "file"
MOST_RETRIES, MOST_KEPT = 20, 10_000
LATEST = 253_402_300_799.0
"""The last second of the year 9999, the end of the calendar."""
LONGEST_NAME, LONGEST_PROMPT = 80, 100_000
LEAST_TIMEOUT_S, LONGEST_TIMEOUT_S = 5, 7 * clock.DAY
FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, float(clock.HOUR)


class BadJob(errors.HermesError):
    """A job file, or a value of a job, is invalid. The error message is one line."""


class MissedPolicy(NamedTuple):
    """The rule for missed due times of a job: those at which no process was running that could start the job."""

    mode: str
    """`skip`: none runs. `once`: one run for all of them. `all`: each of them runs."""
    within: int | None
    """Only due times of the last so many seconds. None: no limit."""


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    name: str
    schedule: str
    timezone: str
    prompt: str
    version: int = VERSION
    deliver: str = NOWHERE
    session: str = NEW
    model: str | None = None
    workspace: str = "~"
    retries: int = 1
    timeout: str = "30m"
    missed: str = "once"
    keep: int = 50
    """How many runs are kept with their sessions."""
    allow: tuple[str, ...] = ()
    """Commands that may run without approval: whole commands, or the words with which they begin."""
    allow_edits: bool = False
    enabled: bool = True
    created_at: float = 0.0
    created_by: str = "owner"
    since: float = 0.0
    """Due times up to this time never run. It is the time at which the job was made, resumed or rescheduled."""

    @property
    def zone(self) -> tzinfo:
        return find_zone(self.timezone)

    @property
    def timeout_seconds(self) -> int:
        return parse_duration(self.timeout) or 0

    @property
    def missed_policy(self) -> MissedPolicy:
        return parse_missed(self.missed)

    def read_schedule(self) -> Schedule:
        """Return the parsed schedule of the job. Raise `BadSchedule` if it is invalid."""
        return read_schedule(self.schedule, self.zone, self.since)

    def format_time(self, at: float, pattern: str = "%a %Y-%m-%d %H:%M:%S %Z") -> str:
        """Return the time `at` as text in the job's time zone, such as `Wed 2026-11-18 09:00 CET`. Seconds are left out
        if they are 0."""
        wall = datetime.fromtimestamp(at, self.zone)
        return wall.strftime(pattern if wall.second else pattern.replace(":%S", ""))

    def choose_retry(self, attempt: int, now: float, *, killed: bool = False) -> float | None:
        """Return the time of the next attempt after the attempt number `attempt` of a run has failed. None if no
        attempt is left. With `killed`, the process died during the attempt. The next attempt is then made at once,
        because the job was not at fault."""
        if attempt > self.retries or not self.enabled:
            return None
        if killed:
            return now
        return now + min(FIRST_PAUSE_S * float(2 ** (attempt - 1)), LONGEST_PAUSE_S)


def parse_missed(text: str) -> MissedPolicy:
    """Parse the setting `missed` of a job: `skip`, `once`, `all`, `once:6h` or `all:24h`."""
    mode, colon, within = text.partition(":")
    seconds = parse_duration(within) if colon else None
    if mode not in ("skip", "once", "all") or (colon and (seconds is None or mode == "skip")):
        raise BadJob(f"missed runs: say skip, once, all, once:6h or all:24h, not {text[:40]!r}")
    return MissedPolicy(mode, seconds)


def check_job(job: Job) -> Job:
    """Return the job unchanged if all its values are valid. Otherwise raise `BadJob` or `BadSchedule`."""
    limits: list[tuple[bool, str]] = [
        (bool(job.prompt.strip()), "the prompt is empty"),
        (0 <= job.since <= LATEST and 0 <= job.created_at <= LATEST, "a time is out of range"),
        (job.version == VERSION, f"its version {job.version} is not known to this program"),
        (ID.fullmatch(job.id) is not None, f"{job.id[:60]!r} is not an id: small letters, digits and `-`"),
        (
            bool(job.name.strip()) and len(job.name) <= LONGEST_NAME,
            f"a name has 1 to {LONGEST_NAME} characters",
        ),
        (job.name.isprintable(), "a name has no control characters"),
        (len(job.prompt) <= LONGEST_PROMPT, f"a prompt has at most {LONGEST_PROMPT} characters"),
        (0 <= job.retries <= MOST_RETRIES, f"retries: a number from 0 to {MOST_RETRIES}"),
        (1 <= job.keep <= MOST_KEPT, f"keep: a number from 1 to {MOST_KEPT}"),
        (bool(job.session.strip()), "session: say new, job or the id of a session"),
        (all(command.strip() for command in job.allow), "an allowed command is empty"),
        (
            bool(job.deliver.strip()) and job.deliver != "file:",
            "deliver: say a platform, file, file:PATH or none",
        ),
    ]
    for is_right, problem in limits:
        if not is_right:
            raise BadJob(problem)
    seconds = parse_duration(job.timeout)
    if seconds is None or not LEAST_TIMEOUT_S <= seconds <= LONGEST_TIMEOUT_S:
        least, longest = format_duration(LEAST_TIMEOUT_S), format_duration(LONGEST_TIMEOUT_S)
        raise BadJob(f"timeout: a duration such as 30m, from {least} to {longest}, not {job.timeout[:40]!r}")
    try:
        find_zone(job.timezone)
    except UnknownZone as hint:
        raise BadJob(f"there is no time zone {job.timezone[:60]!r}{hint}") from None
    parse_missed(job.missed)
    job.read_schedule()
    return job


def decode_job(data: bytes) -> Job:
    """Return the job that the content of a job file describes. Raise `BadJob` or `BadSchedule` if the content is
    invalid."""
    try:
        job = msgspec.json.decode(data, type=Job)
    except msgspec.ValidationError as problem:
        raise BadJob(str(problem)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadJob(f"it is not JSON: {problem}") from None
    return check_job(job)


def encode_job(job: Job) -> bytes:
    return msgspec.json.format(msgspec.json.encode(job), indent=2) + b"\n"


def make_session_id(job: Job, at: float) -> str:
    """Return the id of the session for a run that starts at the time `at`: `cron_<job>_<YYYYmmdd_HHMMSS>`, with the
    time in the job's time zone. The reference documents this format."""
    return f"cron_{job.id}_{datetime.fromtimestamp(at, job.zone):%Y%m%d_%H%M%S}"


def describe_job(job: Job) -> dict[str, Any]:
    """Return the name and the value of every field of a job, including the fields that have their default value."""
    return msgspec.structs.asdict(job)
