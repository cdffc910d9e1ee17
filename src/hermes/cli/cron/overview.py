"""`hermes cron list` and `hermes cron show`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes.cli.command import Words, add_json_option, add_store_option, parse_text
from hermes.cli.cron.job_text import (
    NEVER,
    describe_process,
    find_next,
    format_schedule,
    format_state,
    format_took,
    make_json_job,
)
from hermes.cli.exit_codes import DONE
from hermes.cli.io.output import fold_line, get_terminal_width, print_error, print_json, print_lines
from hermes.cli.io.text_columns import Column, format_table, measure_table, widen_columns
from hermes.cli.store_access import get_store_path, open_store
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.jobs.cron.job import Job
    from hermes.store.jobs.job_runs import JobRun

COLUMNS = (
    *(Column("ID", 20, 18), Column("Schedule", 20, 18), Column("Next", 27, 25), Column("Last", 36, 34)),
    Column("Name"),
)
RULE = 115
SHOWN_RUNS = 5


def define_list(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, list_jobs)
    add_json_option(parser)


def define_show(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, show_job)
    parser.add_argument("job", type=parse_text, metavar="JOB", help="the id or the name of the job")
    add_json_option(parser)


def list_jobs(arguments: argparse.Namespace) -> int:
    from hermes.jobs.cron.job_files import JobFiles

    jobs, broken = JobFiles().read_all()
    last = _read_last_runs(arguments, list(jobs))
    if arguments.json:
        print_json([make_json_job(job, last[job.id]) for job in jobs.values()])
    else:
        print_lines(
            _format_jobs(list(jobs.values()), last)
            if jobs
            else ["There are no jobs; see `hermes cron add --help`."]
        )
    for file in broken:
        print_error(f"the job file {file.path} is ignored: {make_printable(file.problem)}")
    return DONE


def show_job(arguments: argparse.Namespace) -> int:
    from hermes.jobs.cron.job_files import JobFiles

    job = JobFiles().find(arguments.job)
    runs = read_runs(arguments, job.id, SHOWN_RUNS)
    if arguments.json:
        print_json(make_json_job(job, runs[0] if runs else None))
    else:
        print_lines(_describe_job(job, runs))
    return DONE


def read_runs(arguments: argparse.Namespace, job_id: str | None, limit: int, offset: int = 0) -> list[JobRun]:
    """Return the last runs of the job `job_id`, or of all jobs if it is None. At most `limit` runs are
    returned, after skipping `offset` runs. The list is empty if there is no store yet."""
    if not get_store_path(arguments).exists():
        return []
    with open_store(arguments) as db:
        return db.job_runs.list_runs(job_id, limit, offset)


def _read_last_runs(arguments: argparse.Namespace, job_ids: list[str]) -> dict[str, JobRun | None]:
    if not get_store_path(arguments).exists():
        return dict.fromkeys(job_ids)
    with open_store(arguments) as db:
        return {job_id: next(iter(db.job_runs.list_runs(job_id, 1)), None) for job_id in job_ids}


def _format_jobs(jobs: list[Job], last: dict[str, JobRun | None]) -> Iterator[str]:
    cells = []
    for job in jobs:
        due, run = find_next(job), last[job.id]
        before = NEVER if run is None else f"{job.format_time(run.due_at)}: {format_state(run, job)}"
        after = "paused" if not job.enabled else NEVER if due is None else job.format_time(due)
        cells.append([job.id, format_schedule(job), after, before, job.name])
    width = get_terminal_width()
    if width is None:
        return format_table(COLUMNS, cells, RULE)
    fitting = widen_columns(COLUMNS, cells, width)
    return format_table(fitting, cells, min(width, measure_table(fitting, cells)))


def _describe_job(job: Job, runs: list[JobRun]) -> Iterator[str]:
    from hermes.jobs.cron.new_job import list_next_times

    yield make_printable(f"{job.name} ({job.id}){'' if job.enabled else ', paused'}")
    yield make_printable(f"  schedule    {job.schedule} ({job.timezone})")
    values = {
        "deliver": job.deliver,
        "session": job.session,
        "model": job.model or "that of the settings",
        "workspace": job.workspace,
        "limits": f"{job.timeout} per run, {format_count(job.retries, 'retry', 'retries')}, missed: {job.missed}",
        "keeps": f"the last {format_count(job.keep, 'run')}",
        "made": f"{job.format_time(job.created_at)} by {job.created_by}",
    }
    for name, value in values.items():
        yield make_printable(f"  {name:<11} {value}")
    allowed = [*job.allow, *(["edits of files in the workspace"] if job.allow_edits else [])]
    yield make_printable(f"  {'allowed':<11} {'; '.join(allowed) or 'only commands that read'}")
    for number, line in enumerate(job.prompt.splitlines()):
        yield from fold_line(f"  {'prompt' if not number else '':<11} {make_printable(line)}", indent=14)
    times = list_next_times(job)
    yield "  next times  " + ("" if times else NEVER)
    yield from (f"    {time}" for time in times)
    if runs:
        yield "  last runs"
    for run in runs:
        detail = f": {run.detail}" if run.detail else ""
        took = format_took(run)
        yield make_printable(
            f"    {job.format_time(run.due_at)}  {format_state(run, job)}{f' ({took})' if took else ''}{detail}"
        )
    if job.enabled:
        yield from describe_process()
