"""Job files: one private JSON file per job in `<home>/cron/`.

A file that cannot be read is reported and does not affect the others. Only commands of the owner write job files. A run
never does, so a job that was removed during its run does not come back. The state of a job, such as its last run, is in
the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hermes import clock, errors, home
from hermes.atomic_files import lock_private_folder, replace_file
from hermes.jobs.cron.job import BadJob, Job, check_job, decode_job, encode_job

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIX = ".json"
LARGEST_FILE = 1_000_000
OUTPUT = "output"


class BrokenFile(NamedTuple):
    path: Path
    problem: str


class JobList(NamedTuple):
    jobs: dict[str, Job]
    """The jobs by id, in the order of their creation."""
    broken: list[BrokenFile]


class UnknownJob(errors.HermesError):
    """No job, or more than one job, has the id or name that a person gave."""


class JobFiles:
    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or home.get_hermes_home() / "cron"
        self._known: dict[str, tuple[tuple[int, int, int], Job | BrokenFile]] = {}
        """The parsed files with their inode, size and time of change."""

    @property
    def output_folder(self) -> Path:
        """The folder for the results of jobs that deliver their results to files."""
        return self.folder / OUTPUT

    def read_all(self) -> JobList:
        """Read all job files. A file that has not changed since the last call is not read again."""
        found: dict[str, tuple[tuple[int, int, int], Job | BrokenFile]] = {}
        try:
            with os.scandir(self.folder) as entries:
                names = sorted(entry.name for entry in entries if _is_job_file(entry.name))
        except FileNotFoundError:
            names = []
        except OSError as problem:
            raise errors.HermesError(f"{self.folder} cannot be read: {problem.strerror}") from None
        for name in names:
            path = self.folder / name
            try:
                status = path.stat()
            except OSError as problem:
                if not isinstance(problem, FileNotFoundError) or path.is_symlink():
                    found[name] = (0, 0, 0), BrokenFile(path, problem.strerror or str(problem))
                continue
            mark = (status.st_ino, status.st_size, status.st_mtime_ns)
            known = self._known.get(name)
            found[name] = known if known is not None and known[0] == mark else (mark, _read_file(path))
        self._known = found
        read = [entry for _, entry in found.values()]
        jobs = sorted((job for job in read if isinstance(job, Job)), key=lambda job: (job.created_at, job.id))
        return JobList(
            {job.id: job for job in jobs}, [entry for entry in read if isinstance(entry, BrokenFile)]
        )

    def list_known(self) -> list[Job]:
        """Return the jobs that the last `read_all` found."""
        return [job for _, job in self._known.values() if isinstance(job, Job)]

    def get(self, job_id: str) -> Job | None:
        """Return the job `job_id` as its file describes it at this moment. None if there is no such file or if it
        cannot be read."""
        job = _read_file(self.folder / f"{job_id}{SUFFIX}")
        return job if isinstance(job, Job) else None

    def find(self, name: str) -> Job:
        """Return the job that `name` refers to: an id, the name of a job, or the beginning of an id. Raise `UnknownJob`
        if not exactly one job matches."""
        jobs, broken = self.read_all()
        if name in jobs:
            return jobs[name]
        matches = [job for job in jobs.values() if job.name.casefold() == name.casefold()]
        matches = matches or [job for job in jobs.values() if name and job.id.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UnknownJob(f"'{name}' could be any of {', '.join(job.id for job in matches)}")
        for file in broken:
            if file.path.stem == name:
                raise UnknownJob(f"{file.path} is broken: {file.problem}")
        raise UnknownJob(f"there is no job '{name}'; see `hermes cron list`")

    def add(self, job: Job) -> Job:
        """Write the file of a new job and return the job. Raise `BadJob` if another job has the same name. If another
        job has the same id, a number is added to the id."""
        check_job(job)
        with self._lock():
            jobs, broken = self.read_all()
            _refuse_name(job, jobs)
            taken = {*jobs, *(file.path.stem for file in broken)}
            number, first = 1, job.id
            while job.id in taken or (self.output_folder / job.id).exists():
                number += 1
                job = _with_id(job, f"{first[:36]}-{number}")
            replace_file(self.folder / f"{job.id}{SUFFIX}", encode_job(job))
        return job

    def change(self, job_id: str, change: Callable[[Job], Job]) -> Job:
        """Replace the job `job_id` by the result of calling `change` with it, write its file, and return the changed
        job. Raise `UnknownJob` if the job no longer exists."""
        with self._lock():
            current = self.get(job_id)
            if current is None:
                raise UnknownJob(f"there is no job '{job_id}'; it was removed or its file is broken")
            job = check_job(change(current))
            _refuse_name(
                job, {other: known for other, known in self.read_all().jobs.items() if other != job_id}
            )
            replace_file(self.folder / f"{job.id}{SUFFIX}", encode_job(job))
        return job

    def remove(self, job_id: str) -> bool:
        """Delete the file of the job `job_id`, even if its content is invalid. Return whether the file existed."""
        with self._lock(), suppress(FileNotFoundError):
            (self.folder / f"{job_id}{SUFFIX}").unlink()
            return True
        return False

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with lock_private_folder(self.folder):
            yield


def _is_job_file(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")


def _read_file(path: Path) -> Job | BrokenFile:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise BadJob("it is too large for a job file")
        job = decode_job(data)
        if job.id != path.stem:
            raise BadJob(f"its id {job.id!r} is not its file name")
        job.read_schedule().next_after(clock.now())  # a time out of range shows here, not in the ticker
    except OSError as problem:
        return BrokenFile(path, problem.strerror or str(problem))
    except (errors.HermesError, ValueError, ArithmeticError) as problem:
        return BrokenFile(path, str(problem))
    return job


def _refuse_name(job: Job, jobs: dict[str, Job]) -> None:
    for other in jobs.values():
        if other.name.casefold() == job.name.casefold():
            raise BadJob(f"there is a job '{other.name}' already ({other.id}); choose another name")


def _with_id(job: Job, job_id: str) -> Job:
    import msgspec

    return msgspec.structs.replace(job, id=job_id)
