"""`hermes cron pause`, `resume` and `remove`."""

from __future__ import annotations

import argparse

from hermes import audit_log, clock
from hermes.cli.command import Words, add_store_option, add_yes_option, parse_text
from hermes.cli.cron.job_text import describe_new_job
from hermes.cli.exit_codes import DONE
from hermes.cli.io.output import print_lines
from hermes.cli.io.prompts import require_consent
from hermes.cli.store_access import get_store_path
from hermes.text import format_count, make_printable


def define_pause(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=pause_job)
    _add_job(parser)


def define_resume(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=resume_job)
    _add_job(parser)


def define_remove(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, remove_job)
    _add_job(parser)
    parser.add_argument(
        "--sessions", action="store_true", help="also move the sessions of its runs to the trash"
    )
    add_yes_option(parser)


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=parse_text, metavar="JOB", help="the id or the name of the job")


def pause_job(arguments: argparse.Namespace) -> int:
    import msgspec

    from hermes.jobs.cron.job_files import JobFiles

    files = JobFiles()
    job = files.change(
        files.find(arguments.job).id, lambda current: msgspec.structs.replace(current, enabled=False)
    )
    audit_log.record("job paused", job=job.id)
    print_lines([f"Paused the job {job.id}. A run that has begun goes on."])
    return DONE


def resume_job(arguments: argparse.Namespace) -> int:
    import msgspec

    from hermes.jobs.cron.job_files import JobFiles

    files, now = JobFiles(), float(int(clock.now()))
    job = files.change(
        files.find(arguments.job).id,
        # The due times of the pause do not count as missed.
        lambda current: (
            current if current.enabled else msgspec.structs.replace(current, enabled=True, since=now)
        ),
    )
    audit_log.record("job resumed", job=job.id)
    print_lines(describe_new_job(job, f"Resumed the job {job.id}"))
    return DONE


def remove_job(arguments: argparse.Namespace) -> int:
    from hermes.jobs.cron.job_files import JobFiles, UnknownJob

    files = JobFiles()
    try:
        job_id = files.find(arguments.job).id
    except UnknownJob:
        # The file of a broken job can be removed by its id.
        broken = [file.path.stem for file in files.read_all().broken]
        if arguments.job not in broken:
            raise
        job_id = arguments.job
    require_consent(f"Remove the job {make_printable(job_id)}?", yes=arguments.yes)
    files.remove(job_id)
    moved = _forget_runs(arguments, job_id)
    audit_log.record("job removed", job=job_id)
    trashed = f" {format_count(moved, 'conversation')} moved to the trash." if arguments.sessions else ""
    print_lines([f"Removed the job {make_printable(job_id)}.{trashed}"])
    return DONE


def _forget_runs(arguments: argparse.Namespace, job_id: str) -> int:
    """Delete the records of all runs of a job from the store. With `--sessions`, also move the sessions of
    these runs to the trash. Return the number of sessions moved."""
    from hermes.db.session_db import SessionDB
    from hermes.jobs.cron.job import SOURCE

    path = get_store_path(arguments)
    if not path.exists():
        return 0
    with SessionDB(path) as db:
        sessions = db.job_runs.list_sessions(job_id, -1) if arguments.sessions else []
        db.job_runs.forget(job_id)
        rows = [row for row in map(db.get_session, sessions) if row is not None and row["source"] == SOURCE]
        return sum(bool(db.trash_session(row["id"])) for row in rows)
