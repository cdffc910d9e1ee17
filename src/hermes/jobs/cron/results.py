"""Results of runs of scheduled jobs: composes the text that a person gets, and sends it to a platform or writes it to a
file.

First the end of a run is recorded in the store, with the delivery state `pending`. Then the result is delivered. If the
process dies in between, the next tick reads the answer from the session of the run and delivers it. A delivery to a
platform has an idempotency key, so it is made only once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hermes import errors, home
from hermes.atomic_files import replace_file
from hermes.jobs.cron.job import FILE, NOWHERE, Job
from hermes.jobs.cron.job_files import JobFiles
from hermes.store.jobs.job_runs import PENDING

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.jobs.job_runs import JobRun

SILENT = re.compile(r"\s*\[SILENT\]", re.IGNORECASE)
"""A result that begins with this mark is stored and not delivered."""
REFUSED = "refused, because the job's allowlist does not name it: "


class Sender(Protocol):
    """Sends results to the home channels of platforms. Both the gateway and the `hermes cron` command use it."""

    def check(self, platform: str) -> None:
        """Raise `HermesError` if results cannot be sent to this platform."""

    async def send(self, platform: str, text: str, idempotency_key: str, session_id: str | None) -> None:
        """Put a message for the home channel of a platform into the outbox. A second call with the same
        `idempotency_key` adds nothing."""


def is_silent(text: str) -> bool:
    return SILENT.match(text) is not None


def describe_refusals(refused: list[str]) -> str | None:
    """Return a sentence that names the actions that were refused in a run. None if none were refused."""
    return f"{REFUSED}{'; '.join(f'`{subject}`' for subject in refused)}" if refused else None


def compose_text(job: Job, run: JobRun, answer: str) -> str:
    """Return the text that a person gets after a run: the answer of the agent, or a message that the run did not
    succeed."""
    if run.state == "done":
        note = f"\n\n⚠ {run.detail[0].upper()}{run.detail[1:]}" if run.detail else ""
        return f"{answer.strip()}{note}"
    due = job.format_time(run.due_at)
    return f"⚠ The job “{job.name}” of {due} did not succeed: {run.detail or run.state}"


def read_answer(db: SessionDB, run: JobRun) -> str:
    """Return the last text that the agent wrote in a run, from the session of the run. Empty if there is none."""
    if run.session_id is None or run.message_id is None:
        return ""
    text, is_first = "", True
    for row in db.leases.follow(run.session_id, run.message_id - 1):
        if row["role"] == "user" and not is_first:
            break
        is_first = False
        if row["role"] == "assistant" and isinstance(row["content"], str) and row["content"].strip():
            text = row["content"]
    return text


class ResultDelivery:
    def __init__(self, db: SessionDB, files: JobFiles, sender: Sender | None) -> None:
        self._db, self._files, self._sender = db, files, sender

    def check(self, deliver: str) -> None:
        """Raise `HermesError` if results cannot be delivered to the destination `deliver`: a platform, `file`,
        `file:PATH` or `none`."""
        if deliver in (NOWHERE, FILE) or deliver.startswith(f"{FILE}:"):
            return
        if self._sender is None:
            raise errors.HermesError(f"results cannot be sent to {deliver} from here")
        self._sender.check(deliver)

    async def deliver(self, job: Job, run: JobRun, answer: str) -> str | None:
        """Deliver the result of a run to the destination of its job, and record in the store where it went. Return this
        record: a platform, a file, a failure or, if the store could not be written, `pending`."""
        text = compose_text(job, run, answer)
        try:
            where = await self._hand_over(job, run, text)
        except errors.StoreError:  # the next tick hands the result over
            return PENDING
        except (
            errors.HermesError,
            OSError,
            ValueError,
            RuntimeError,
        ) as problem:  # such as `~nobody` in a path
            where = f"failed: {problem}"
        await asyncio.to_thread(self._db.job_runs.set_delivery, run, where)
        return where

    async def _hand_over(self, job: Job, run: JobRun, text: str) -> str | None:
        if job.deliver == NOWHERE:
            return None
        if job.deliver == FILE or job.deliver.startswith(f"{FILE}:"):
            return f"file {await asyncio.to_thread(self._write_file, job, run, text)}"
        self.check(job.deliver)
        assert self._sender is not None
        await self._sender.send(job.deliver, text, make_key(run), run.session_id)
        return job.deliver

    def _write_file(self, job: Job, run: JobRun, text: str) -> Path:
        _, _, named = job.deliver.partition(":")
        if named:
            path = Path(named).expanduser()
            path = path if path.is_absolute() else Path(job.workspace).expanduser() / path
            if not path.parent.is_dir():
                raise errors.HermesError(f"there is no folder {path.parent}")
        else:
            folder = self._files.output_folder / job.id
            home.make_private_folder(folder)
            stamp = datetime.fromtimestamp(run.started_at, job.zone)
            path = folder / f"{stamp:%Y%m%d_%H%M%S}.md"
        replace_file(path, f"{text}\n".encode("utf-8", "replace"))
        if not named:
            for old in sorted(path.parent.glob("*.md"))[: -job.keep]:
                old.unlink(missing_ok=True)
        return path


def make_key(run: JobRun) -> str:
    return f"cron:{run.job_id}:{run.due_at}:{run.attempt}"


Report = Callable[[str], None]
"""Receives one line about the progress of a run."""
