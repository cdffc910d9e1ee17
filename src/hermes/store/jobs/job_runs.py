"""Records of the runs of scheduled jobs, one row per attempt.

The key (job, due time, attempt) lets exactly one process take a due time, even if several processes look for
due jobs. A partial unique index lets a job have one run at a time. The row of a run is also its lease: the
process extends `expires_at` while it works on the run. If the process has ended, or if it has not extended the
lease in time, `recover` records the run as killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from hermes import clock
from hermes.store.arguments import check_integer, check_time, require_text, row_limit
from hermes.store.engine import Access, Row, Writer
from hermes.store.processes import identify_process, is_gone

LEASE_S = 90.0
LONGEST_DETAIL = 2_000

State = Literal["running", "done", "failed", "killed", "skipped"]
Cause = Literal["schedule", "missed", "manual"]
PENDING = "pending"
"""The delivery of a result that is not in the outbox or in its file yet."""

COLUMNS = """SELECT job_id, due_at, attempt, cause, state, session_id, message_id, detail, delivery, retry_at,
    holder_host, holder_pid, holder_start, expires_at, started_at, ended_at FROM job_runs"""
ONE = " ".join((COLUMNS, "WHERE job_id = ? AND due_at = ? AND attempt = ?"))
RUNNING = " ".join((COLUMNS, "WHERE state = 'running' AND (? IS NULL OR job_id = ?)"))
NEWEST = "ORDER BY started_at DESC, due_at DESC, attempt DESC LIMIT ? OFFSET ?"
OF_JOB = " ".join((COLUMNS, "WHERE job_id = ?", NEWEST))
ALL = " ".join((COLUMNS, NEWEST))
RETRIES = " ".join((COLUMNS, "WHERE retry_at IS NOT NULL AND retry_at <= ? ORDER BY retry_at, due_at"))
UNDELIVERED = " ".join((COLUMNS, "WHERE delivery = ? AND state <> 'running' ORDER BY started_at, due_at"))
LAST_DUE = "SELECT job_id, max(due_at) FROM job_runs WHERE cause <> 'manual' GROUP BY job_id"
NEXT_RETRY = "SELECT min(retry_at) FROM job_runs WHERE retry_at IS NOT NULL"
IS_RUNNING = "SELECT 1 FROM job_runs WHERE job_id = ? AND state = 'running'"
LAST_SESSIONS = """SELECT session_id FROM job_runs WHERE job_id = ? AND session_id IS NOT NULL
    ORDER BY started_at DESC, due_at DESC LIMIT ?"""
# A result that still waits in the outbox would be deleted with its session. The last due time of a job stays, because
# the ticker continues after it.
OLD = " ".join(
    (
        COLUMNS,
        """WHERE job_id = ? AND state <> 'running' AND retry_at IS NULL AND coalesce(delivery, '') <> ?
    AND (cause = 'manual' OR due_at < (SELECT max(w.due_at) FROM job_runs w
        WHERE w.job_id = job_runs.job_id AND w.cause <> 'manual'))
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.session_id = job_runs.session_id
        AND o.state <> 'sent' AND o.state IN ('queued', 'sending'))
    ORDER BY started_at DESC, due_at DESC, attempt DESC LIMIT ? OFFSET ?""",
    )
)

# No conflict target: the key and the index of running jobs both refuse a second run.
START = """INSERT INTO job_runs (job_id, due_at, attempt, cause, state, holder_host, holder_pid, holder_start,
        expires_at, started_at)
    VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
SKIP = """INSERT INTO job_runs (job_id, due_at, attempt, cause, state, detail, started_at, ended_at)
    VALUES (?, ?, 1, 'missed', 'skipped', ?, ?, ?) ON CONFLICT DO NOTHING"""
# A person ran the job by hand in the second of a due time: that run counts for the due time.
COUNT_MANUAL = """UPDATE job_runs SET cause = 'schedule'
    WHERE job_id = ? AND due_at = ? AND attempt = 1 AND cause = 'manual'"""
TAKE_RETRY = """UPDATE job_runs SET retry_at = NULL
    WHERE job_id = ? AND due_at = ? AND attempt = ? AND retry_at IS NOT NULL"""
HELD = """WHERE job_id = ? AND due_at = ? AND attempt = ? AND state = 'running'
    AND holder_host = ? AND holder_pid = ? AND holder_start IS NOT DISTINCT FROM ?"""
RENEW = " ".join(("UPDATE job_runs SET expires_at = ?", HELD))
SET_SESSION = " ".join(("UPDATE job_runs SET session_id = ?, message_id = ?", HELD))
END = """UPDATE job_runs SET state = ?, detail = ?, delivery = ?, retry_at = ?, ended_at = ?, expires_at = NULL
    WHERE job_id = ? AND due_at = ? AND attempt = ? AND state = 'running'"""
SET_DELIVERY = "UPDATE job_runs SET delivery = ? WHERE job_id = ? AND due_at = ? AND attempt = ?"
DELETE = "DELETE FROM job_runs WHERE job_id = ? AND due_at = ? AND attempt = ? AND state <> 'running'"
FORGET = "DELETE FROM job_runs WHERE job_id = ?"


class JobRun(NamedTuple):
    job_id: str
    due_at: int
    attempt: int
    cause: Cause
    """`schedule`: on time. `missed`: later, because no process ticked at the due time. `manual`: by a person."""
    state: State
    session_id: str | None
    message_id: int | None
    """The first message of the run in its session."""
    detail: str | None
    """Why the run failed or was skipped, or which actions were refused."""
    delivery: str | None
    """Where the result went. `pending` until it is there; None if there was nothing to deliver."""
    retry_at: float | None
    """When the run is tried again. None if it is not."""
    holder_host: str | None
    holder_pid: int | None
    holder_start: str | None
    expires_at: float | None
    started_at: float
    ended_at: float | None

    @property
    def key(self) -> tuple[str, int, int]:
        return self.job_id, self.due_at, self.attempt


class JobRuns:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    # ---------------------------------------------------------------- one run

    def claim(
        self, job_id: str, due_at: int, cause: Cause = "schedule", seconds: float = LEASE_S
    ) -> JobRun | None:
        """Start the run of a job for the due time `due_at`, and return the run. Its lease lasts `seconds`.
        Return None if a process has taken this due time before, or if the job is running.

        With the cause `manual`, a due time that was taken before is replaced by the next free second.
        """
        job, due = require_text("job_id", job_id), check_integer("due_at", due_at)

        def work(writer: Writer) -> JobRun | None:
            first = due
            while cause == "manual" and not writer.repeating and writer.rows(ONE, job, first, 1):
                first += 1
            run = _start(writer, (job, first, 1), cause, seconds)
            if run is None and cause != "manual":
                writer.run(COUNT_MANUAL, job, due)
            return run

        return self._engine.write(work)

    def claim_retry(self, run: JobRun, seconds: float = LEASE_S) -> JobRun | None:
        """Start the next attempt of a failed or killed run, and return it. Return None if another process has
        started this attempt, or if the job is running."""

        def work(writer: Writer) -> JobRun | None:
            if writer.value(IS_RUNNING, run.job_id) is not None and not writer.repeating:
                return None
            if not writer.run(TAKE_RETRY, *run.key) and not writer.repeating:
                return None
            return _start(writer, (run.job_id, run.due_at, run.attempt + 1), run.cause, seconds)

        return self._engine.write(work)

    def skip(self, job_id: str, due_at: int, detail: str) -> bool:
        """Record that a job is not run for the due time `due_at`. `detail` is the reason. Return False if a
        process has taken the due time before."""
        values = (require_text("job_id", job_id), check_integer("due_at", due_at), detail[:LONGEST_DETAIL])
        now = clock.now()

        def work(writer: Writer) -> bool:
            if writer.run(SKIP, *values, now, now) > 0 or writer.repeating:
                return True
            writer.run(COUNT_MANUAL, *values[:2])
            return False

        return self._engine.write(work)

    def renew(self, run: JobRun, seconds: float = LEASE_S) -> bool:
        """Extend the lease of a run to `seconds` from now. Return False if this process no longer holds the
        lease."""
        until = clock.now() + check_time("seconds", seconds)
        return self._engine.write(lambda writer: writer.run(RENEW, until, *run.key, *identify_process()) > 0)

    def set_session(self, run: JobRun, session_id: str, message_id: int | None = None) -> bool:
        """Record in which session a run works, and the id of its first message in that session. Return False if
        this process no longer holds the lease of the run."""
        return self._engine.write(
            lambda writer: writer.run(SET_SESSION, session_id, message_id, *run.key, *identify_process()) > 0
        )

    def finish(
        self,
        run: JobRun,
        state: State,
        detail: str | None = None,
        delivery: str | None = None,
        retry_at: float | None = None,
    ) -> bool:
        """Record the end of a run, with its final state. Return False if another process has recorded the run
        as killed, or if the job was removed."""
        text = None if detail is None else detail[:LONGEST_DETAIL]
        values = (state, text, delivery, retry_at, clock.now(), *run.key)
        return self._engine.write(lambda writer: writer.run(END, *values) > 0 or writer.repeating)

    def set_delivery(self, run: JobRun, delivery: str | None) -> None:
        """Record whether, and where, the result of a run was delivered."""
        self._engine.write(lambda writer: writer.run(SET_DELIVERY, delivery, *run.key))

    def recover(
        self,
        choose_retry: Callable[[JobRun], float | None],
        is_spared: Callable[[JobRun], bool] = lambda _run: False,
    ) -> list[JobRun]:
        """Find the runs whose process has ended or has not extended its lease in time. Record them as killed,
        and return them. `choose_retry` returns the time of the next attempt of a run, or None if there is to be
        none. A run whose lease has expired stays unchanged if `is_spared` is true for it."""
        killed: dict[tuple[str, int, int], JobRun] = {}

        def work(writer: Writer) -> list[JobRun]:
            now = clock.now()
            for row in writer.rows(RUNNING, None, None):
                run = JobRun._make(row)
                if not _is_lost(run, now, is_spared):
                    continue
                retry_at = choose_retry(run)
                writer.run(END, "killed", _describe_loss(run), None, retry_at, now, *run.key)
                killed[run.key] = run._replace(state="killed", retry_at=retry_at, ended_at=now)
            return list(killed.values())

        with self._engine.read() as reader:  # the usual case writes nothing
            now = clock.now()
            running = [JobRun._make(row) for row in reader.rows(RUNNING, None, None)]
            if not any(_is_lost(run, now, is_spared) for run in running):
                return []
        return self._engine.write(work)

    # ---------------------------------------------------------------- reading

    def find(self, run: JobRun) -> JobRun | None:
        """Return the stored record of a run. None if it was deleted."""
        with self._engine.read() as reader:
            row = reader.row(ONE, *run.key)
        return None if row is None else JobRun._make(row)

    def find_running(self, job_id: str | None = None) -> list[JobRun]:
        """Return the runs that are recorded as running: those of a job, or all."""
        with self._engine.read() as reader:
            return _make_runs(reader.rows(RUNNING, job_id, job_id))

    def list_runs(self, job_id: str | None = None, limit: int = 20, offset: int = 0) -> list[JobRun]:
        """Return the runs of a job, or of all jobs, the newest first."""
        page = (row_limit(limit), check_integer("offset", offset))
        with self._engine.read() as reader:
            return _make_runs(
                reader.rows(ALL, *page) if job_id is None else reader.rows(OF_JOB, job_id, *page)
            )

    def find_last_due(self) -> dict[str, int]:
        """Return, for each job, the last due time for which a run was started or skipped. Runs with the cause
        `manual` do not count."""
        with self._engine.read() as reader:
            return {str(job_id): int(due_at) for job_id, due_at in reader.rows(LAST_DUE)}

    def find_next_retry(self) -> float | None:
        """Return the time of the next attempt of any failed or killed run. None if there is none."""
        with self._engine.read() as reader:
            found = reader.value(NEXT_RETRY)
        return None if found is None else float(found)

    def list_retries(self, until: float) -> list[JobRun]:
        """Return the failed and killed runs whose next attempt is due at the time `until` or before, the most
        urgent first."""
        with self._engine.read() as reader:
            return _make_runs(reader.rows(RETRIES, until))

    def list_undelivered(self) -> list[JobRun]:
        """Return the ended runs whose result is still to be delivered, the oldest first."""
        with self._engine.read() as reader:
            return _make_runs(reader.rows(UNDELIVERED, PENDING))

    def list_sessions(self, job_id: str, limit: int = 20) -> list[str]:
        """Return the ids of the sessions in which the last runs of a job worked, the newest first, without
        duplicates."""
        with self._engine.read() as reader:
            return list(
                dict.fromkeys(str(row[0]) for row in reader.rows(LAST_SESSIONS, job_id, row_limit(limit)))
            )

    # ---------------------------------------------------------------- retention

    def list_old(self, job_id: str, keep: int) -> list[JobRun]:
        """Return the ended runs of a job except the last `keep`. Runs that will be tried again, or whose result is not
        delivered yet, are left out."""
        with self._engine.read() as reader:
            return _make_runs(reader.rows(OLD, job_id, PENDING, row_limit(-1), check_integer("keep", keep)))

    def delete(self, runs: Sequence[JobRun]) -> int:
        """Delete the records of ended runs. Return their number."""
        return self._engine.write(lambda writer: sum(writer.run(DELETE, *run.key) for run in runs))

    def forget(self, job_id: str) -> int:
        """Delete the records of all runs of a job that was removed. A process that is running the job notices
        this when it extends its lease."""
        job = require_text("job_id", job_id)
        return self._engine.write(lambda writer: writer.run(FORGET, job))


def _start(writer: Writer, key: tuple[str, int, int], cause: Cause, seconds: float) -> JobRun | None:
    me, now = identify_process(), clock.now()
    started = writer.run(START, *key, cause, *me, now + check_time("seconds", seconds), now)
    row = writer.row(ONE, *key)
    if row is None:
        return None
    run = JobRun._make(row)
    # After a lost commit, the row may be there already.
    is_ours = started > 0 or (writer.repeating and run.state == "running" and _get_holder(run) == me)
    return run if is_ours else None


def _get_holder(run: JobRun) -> tuple[str | None, int | None, str | None]:
    return run.holder_host, run.holder_pid, run.holder_start


def _is_lost(run: JobRun, now: float, is_spared: Callable[[JobRun], bool]) -> bool:
    if is_gone(*_get_holder(run)):
        return True
    return (run.expires_at is None or run.expires_at < now) and not is_spared(run)


def _describe_loss(run: JobRun) -> str:
    if is_gone(*_get_holder(run)):
        return f"the process {run.holder_pid} ended during the run"
    return f"the process {run.holder_pid} on {run.holder_host} did not report for {LEASE_S:.0f} seconds"


def _make_runs(rows: Sequence[Row]) -> list[JobRun]:
    return [JobRun._make(row) for row in rows]
