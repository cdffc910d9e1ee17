"""`hermes cron add` and `hermes cron edit`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import audit_log, clock
from hermes.cli.command import Words, add_json_option, add_store_option, parse_text
from hermes.cli.cron.job_text import describe_new_job, make_json_job
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.io.output import print_json, print_lines
from hermes.cli.store_access import get_store_path

if TYPE_CHECKING:
    from hermes.jobs.cron.job import Job

STDIN = "-"
RESCHEDULING = ("schedule", "timezone", "enabled")
"""Values after whose change past due times no longer count."""


def define_add(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, add_job)
    parser.add_argument(
        "schedule",
        type=parse_text,
        metavar="SCHEDULE",
        help='when: "0 9 * * 1-5", @daily, "every 2h", "weekdays at 9", "tomorrow at 9"',
    )
    parser.add_argument(
        "prompt", type=parse_text, metavar="PROMPT", help="what the agent is asked; `-` reads it from stdin"
    )
    _add_options(parser)
    parser.add_argument("--paused", action="store_true", help="do not run the job until it is resumed")
    add_json_option(parser)


def define_edit(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, edit_job)
    parser.add_argument("job", type=parse_text, metavar="JOB", help="the id or the name of the job")
    parser.add_argument("--schedule", type=parse_text, metavar="S", help="when the job runs")
    parser.add_argument("--prompt", type=parse_text, metavar="P", help="what the agent is asked")
    _add_options(parser)
    parser.add_argument("--no-allow", action="store_true", help="clear the list of allowed commands")
    parser.add_argument("--no-edits", action="store_true", help="do not allow edits of files any more")
    parser.add_argument("--default-model", action="store_true", help="use the model of the settings again")
    add_json_option(parser)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", type=parse_text, metavar="N", help="the name of the job")
    parser.add_argument(
        "--deliver",
        type=parse_text,
        metavar="WHERE",
        help="where results go: a platform such as telegram, file, file:PATH or none (none)",
    )
    parser.add_argument(
        "--session",
        type=parse_text,
        metavar="S",
        help="`new` for each run, `job` for one conversation of all runs, or the id of a session (new)",
    )
    parser.add_argument("--model", type=parse_text, metavar="M", help="the model that answers")
    parser.add_argument(
        "--workspace", type=Path, metavar="DIR", help="the directory of the runs (this directory)"
    )
    parser.add_argument(
        "--retries", type=int, metavar="N", help="how often a failed or killed run is tried again (1)"
    )
    parser.add_argument("--timeout", type=parse_text, metavar="T", help="the time limit of a run (30m)")
    parser.add_argument(
        "--allow",
        action="extend",
        nargs="+",
        type=parse_text,
        metavar="COMMAND",
        help='commands that runs may use: whole, or the first words such as "git pull"',
    )
    parser.add_argument(
        "--allow-edits", action="store_true", help="runs may also change files of the workspace"
    )
    parser.add_argument(
        "--timezone",
        type=parse_text,
        metavar="TZ",
        help="the time zone of the schedule (that of the machine)",
    )
    parser.add_argument(
        "--missed",
        type=parse_text,
        metavar="P",
        help="due times at which nothing was running: skip, once, all, or all:24h (once)",
    )
    parser.add_argument("--keep", type=int, metavar="N", help="how many runs are kept (50)")


def add_job(arguments: argparse.Namespace) -> int:
    from hermes.jobs.cron.job_files import JobFiles
    from hermes.jobs.cron.new_job import make_job

    prompt = sys.stdin.read() if arguments.prompt == STDIN else arguments.prompt
    fields = _collect_fields(arguments)
    fields.setdefault("workspace", str(Path.cwd()))
    if arguments.paused:
        fields["enabled"] = False
    with explain_usage():
        job = make_job(
            arguments.schedule,
            prompt,
            name=fields.pop("name", None),
            timezone=fields.pop("timezone", None),
            **fields,
        )
    _check_places(arguments, job)
    with explain_usage():
        job = JobFiles().add(job)
    audit_log.record("job added", job=job.id, schedule=job.schedule, deliver=job.deliver)
    _print_job(arguments, job, f"Added the job {job.id}")
    return DONE


def edit_job(arguments: argparse.Namespace) -> int:
    import msgspec

    from hermes.jobs.cron.job_files import JobFiles

    files = JobFiles()
    before = files.find(arguments.job)
    fields = _collect_fields(arguments)
    for name in ("schedule", "prompt"):
        if getattr(arguments, name) is not None:
            fields[name] = getattr(arguments, name)
    fields |= {"allow": ()} if arguments.no_allow else {}
    fields |= {"allow_edits": False} if arguments.no_edits else {}
    fields |= {"model": None} if arguments.default_model else {}
    changed = _change_job(before, fields) if fields else _edit_file(before)
    if changed == before:
        print_lines(["Nothing was changed."])
        return DONE
    if any(getattr(changed, name) != getattr(before, name) for name in RESCHEDULING):
        changed = msgspec.structs.replace(changed, since=float(int(clock.now())))
    _check_places(arguments, changed, before)

    def replace(current: Job) -> Job:
        if current != before:
            raise Refused(f"the job {before.id} was changed meanwhile; try again")
        return changed

    with explain_usage():
        job = files.change(before.id, replace)
    audit_log.record("job changed", job=job.id, schedule=job.schedule, deliver=job.deliver)
    _print_job(arguments, job, f"Changed the job {job.id}")
    return DONE


def _change_job(before: Job, fields: dict[str, Any]) -> Job:
    import msgspec

    from hermes.config.time_zones import UnknownZone, find_zone
    from hermes.jobs.cron.job import check_job
    from hermes.jobs.cron.phrases import parse_phrase

    with explain_usage():
        zone = fields.get("timezone", before.timezone)
        try:
            found = find_zone(zone)
        except UnknownZone as hint:
            raise WrongUsage(f"there is no time zone {zone!r}{hint}") from None
        if "schedule" in fields:
            fields["schedule"] = parse_phrase(fields["schedule"], found, clock.now()).text
        return check_job(msgspec.structs.replace(before, **fields))


def _edit_file(before: Job) -> Job:
    """Let the user change the job `before` in an editor, as JSON in a temporary file. Return the changed job.
    The stored job is not changed here."""
    import tempfile

    from hermes.cli.io.editor import find_editor, run_editor
    from hermes.jobs.cron.job import decode_job, encode_job

    editor = find_editor("name what to change, for example --schedule")
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        copy = Path(folder) / f"{before.id}.json"
        copy.write_bytes(encode_job(before))
        run_editor(editor, copy, keeps_file=False)
        with explain_usage():
            job = decode_job(copy.read_bytes())
    if job.id != before.id:
        raise Refused("the id of a job cannot be changed; nothing was changed")
    return job


def _collect_fields(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a job that the flags on the command line set, with their values."""
    names = ("name", "deliver", "session", "model", "retries", "timeout", "timezone", "missed", "keep")
    fields = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if arguments.workspace is not None:
        fields["workspace"] = str(arguments.workspace.expanduser().absolute())
    if arguments.allow:
        fields["allow"] = tuple(dict.fromkeys(arguments.allow))
    if arguments.allow_edits:
        fields["allow_edits"] = True
    if (deliver := fields.get("deliver", "")).startswith("file:") and len(deliver) > len("file:"):
        fields["deliver"] = f"file:{Path(deliver.removeprefix('file:')).expanduser().absolute()}"
    return fields


def _check_places(arguments: argparse.Namespace, job: Job, before: Job | None = None) -> None:
    """Raise an error if the workspace, the session or the destination of a job does not exist."""
    from hermes.gateway.scheduled_jobs import HomeSender
    from hermes.jobs.cron.job import FILE, NEW, NOWHERE, OWN

    if not Path(job.workspace).expanduser().is_dir():
        raise Refused(f"there is no directory '{job.workspace}'")
    kind, _, path = job.deliver.partition(":")
    if kind == FILE and path and not Path(path).parent.is_dir():
        raise Refused(f"there is no directory '{Path(path).parent}'")
    if kind not in (NOWHERE, FILE) and (before is None or before.deliver != job.deliver):
        HomeSender(None).check(job.deliver)
    if job.session not in (NEW, OWN) and (before is None or before.session != job.session):
        from hermes.db.session_db import SessionDB

        path_of_store = get_store_path(arguments)
        if not path_of_store.exists():
            raise Refused(f"there is no session '{job.session}'")
        with SessionDB(path_of_store, read_only=True) as db:
            if db.get_session(job.session) is None:
                raise Refused(f"there is no session '{job.session}'; name its whole id, or say new or job")


@contextmanager
def explain_usage() -> Iterator[None]:
    """If the `with` block fails because a schedule or another value of a job is invalid, raise `WrongUsage`
    with the same message."""
    from hermes.jobs.cron.job import BadJob
    from hermes.jobs.cron.schedule import BadSchedule

    try:
        yield
    except (BadJob, BadSchedule) as problem:
        raise WrongUsage(str(problem)) from None


def _print_job(arguments: argparse.Namespace, job: Job, headline: str) -> None:
    if arguments.json:
        print_json(make_json_job(job))
    else:
        print_lines(describe_new_job(job, headline))
