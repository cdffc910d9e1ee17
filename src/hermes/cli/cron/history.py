"""`hermes cron runs` and `hermes cron logs`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hermes.cli.command import Words, add_json_option, add_store_option, parse_row_count, parse_text
from hermes.cli.cron.job_text import format_state, format_took, make_json_run
from hermes.cli.cron.overview import read_runs
from hermes.cli.exit_codes import DONE, Refused
from hermes.cli.io.output import get_terminal_width, print_json, print_lines
from hermes.cli.io.text_columns import Column, format_table, measure_table, widen_columns
from hermes.cli.store_access import open_store
from hermes.text import make_printable, spell_controls

if TYPE_CHECKING:
    from hermes.jobs.cron.job import Job
    from hermes.store.jobs.job_runs import JobRun

COLUMNS = (
    *(Column("Job", 20, 18), Column("Due", 29, 27), Column("State", 24, 22), Column("Took", 8)),
    *(Column("Result", 30, 28), Column("Session or detail")),
)
RULE = 130
SHOWN_OUTPUT = 12
"""How many lines of a tool's output `logs` shows."""


def define_runs(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, list_runs)
    parser.add_argument(
        "job", nargs="?", type=parse_text, metavar="JOB", help="only runs of this job: its id or name"
    )
    parser.add_argument(
        "--limit", type=parse_row_count, default=20, metavar="N", help="at most this many (20)"
    )
    add_json_option(parser)


def define_logs(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, show_logs)
    parser.add_argument("job", type=parse_text, metavar="JOB", help="the id or the name of the job")
    parser.add_argument(
        "--run",
        dest="number",
        type=parse_row_count,
        default=1,
        metavar="N",
        help="the Nth last run instead of the last",
    )
    add_json_option(parser)


def list_runs(arguments: argparse.Namespace) -> int:
    from hermes.jobs.cron.job_files import JobFiles

    files = JobFiles()
    jobs = files.read_all().jobs
    chosen = None if arguments.job is None else files.find(arguments.job).id
    runs = read_runs(arguments, chosen, arguments.limit)
    if arguments.json:
        print_json([make_json_run(jobs.get(run.job_id), run) for run in runs])
    else:
        print_lines(_format_runs(runs, jobs) if runs else ["No job has run yet."])
    return DONE


def _format_runs(runs: list[JobRun], jobs: dict[str, Job]) -> Iterator[str]:
    from hermes import clock

    cells = []
    for run in runs:
        job = jobs.get(run.job_id)
        due = clock.format_iso(run.due_at) if job is None else job.format_time(run.due_at)
        note = run.detail if run.detail and run.state != "done" else run.session_id or run.detail or ""
        late = " (late)" if run.cause == "missed" and run.state != "skipped" else ""
        cells.append(
            [run.job_id, due, format_state(run, job) + late, format_took(run), run.delivery or "", note]
        )
    width = get_terminal_width()
    if width is None:
        return format_table(COLUMNS, cells, RULE)
    fitting = widen_columns(COLUMNS, cells, width)
    return format_table(fitting, cells, min(width, measure_table(fitting, cells)))


def show_logs(arguments: argparse.Namespace) -> int:
    from hermes.jobs.cron.job_files import JobFiles

    job = JobFiles().find(arguments.job)
    runs = read_runs(arguments, job.id, 1, arguments.number - 1)
    if not runs:
        which = "has not run yet" if arguments.number == 1 else f"has fewer than {arguments.number} runs"
        raise Refused(f"the job {job.id} {which}")
    run = runs[0]
    with open_store(arguments) as db:
        first = None if run.message_id is None else run.message_id - 1
        has_session = run.session_id is not None and first is not None
        rows = _cut_run(db.leases.follow(str(run.session_id), first or 0)) if has_session else []
    if arguments.json:
        print_json({**make_json_run(job, run), "messages": rows})
        return DONE
    print_lines(_describe_run(job, run, rows))
    return DONE


def _cut_run(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of one run. `rows` begins with the prompt of the run. The run ends before the next
    message of role `user`."""
    later = [place for place, row in enumerate(rows) if place and row["role"] == "user"]
    return rows[: later[0]] if later else rows


def _describe_run(job: Job, run: JobRun, rows: list[dict[str, Any]]) -> Iterator[str]:
    took = format_took(run)
    yield make_printable(
        f"{job.name}, {job.format_time(run.due_at)}: {format_state(run, job)}{f' after {took}' if took else ''}"
    )
    for name, value in (("session", run.session_id), ("delivered", run.delivery), ("detail", run.detail)):
        if value:
            yield make_printable(f"  {name}: {value}")
    if not rows:
        yield "  Nothing of this run is stored."
    for row in rows:
        yield from _describe_message(row)


def _describe_message(row: dict[str, Any]) -> Iterator[str]:
    text = row["content"] if isinstance(row["content"], str) else ""
    calls = row.get("tool_calls") or ()
    if row["role"] == "tool":
        lines = text.splitlines()
        yield from (f"    {make_printable(line)}" for line in lines[:SHOWN_OUTPUT])
        if len(lines) > SHOWN_OUTPUT:
            yield f"    … {len(lines) - SHOWN_OUTPUT} more lines"
        return
    if text.strip():
        yield ""
        yield f"[{row['role']}]"
        yield from spell_controls(text.strip()).splitlines()
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function", {}) if isinstance(call, dict) else {}
        yield make_printable(f"  → {function.get('name')} {function.get('arguments')}", width_limit=200)
