"""`hermes cron run`, `tick` and `daemon`."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes import clock
from hermes.cli.command import Words, add_json_option, add_store_option, parse_text
from hermes.cli.cron.job_text import format_took, make_json_run
from hermes.cli.exit_codes import DONE, INTERRUPTED, REFUSED, Refused
from hermes.cli.io.output import print_error, print_json, print_lines
from hermes.cli.store_access import open_store
from hermes.text import make_printable, spell_controls

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.jobs.cron.job import Job
    from hermes.jobs.cron.runner import Outcome
    from hermes.jobs.cron.ticker import Ticker

DRAIN_S = 30.0
"""How long running jobs may take to finish when the daemon is stopped."""


def define_run(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, run_job)
    parser.add_argument("job", type=parse_text, metavar="JOB", help="the id or the name of the job")
    add_json_option(parser)


def define_tick(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, tick)


def define_daemon(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, run_daemon)
    parser.add_argument("--verbose", action="store_true", help="log in more detail")
    parser.add_argument("--json-logs", action="store_true", help="log as JSON, one object per line")


def run_job(arguments: argparse.Namespace) -> int:
    """`hermes cron run`: run a job now. The schedule of the job does not change."""
    from hermes.jobs.cron.job_files import JobFiles

    job = JobFiles().find(arguments.job)
    with open_store(arguments, makes=True) as db:
        outcome = asyncio.run(_run_now(db, job))
    if arguments.json:
        print_json({**make_json_run(job, outcome.run), "answer": outcome.answer})
    elif outcome.answer:
        print_lines([spell_controls(outcome.answer)])
    run = outcome.run
    if run.detail:
        print_error(make_printable(run.detail))
    if run.delivery:
        print_error(make_printable(f"delivered: {run.delivery}"))
    if run.retry_at is not None:
        print_error(f"it is tried again at {job.format_time(run.retry_at)}")
    if run.state == "killed":
        return INTERRUPTED
    return DONE if run.state == "done" else REFUSED


async def _run_now(db: SessionDB, job: Job) -> Outcome:
    from hermes.jobs.cron.job_files import JobFiles
    from hermes.jobs.cron.ticker import recover_runs

    ticker, stop = _make_ticker(db), asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    jobs = await asyncio.to_thread(lambda: JobFiles().read_all().jobs)
    await recover_runs(db, {**jobs, job.id: job})
    run = await asyncio.to_thread(db.job_runs.claim, job.id, int(clock.now()), "manual")
    if run is None:
        raise Refused(f"the job {job.id} is running already; see `hermes cron runs {job.id}`")
    return await ticker.runner.run(
        job, run, stop=stop, report=lambda line: print_error(make_printable(line, width_limit=300))
    )


def tick(arguments: argparse.Namespace) -> int:
    """`hermes cron tick`: run every job that is due, and wait until these runs have ended. Return the exit
    code."""
    codes: list[int] = []

    def report(job: Job, outcome: Outcome) -> None:
        run = outcome.run
        detail = f": {run.detail}" if run.detail else ""
        print_lines(
            [
                make_printable(
                    f"{job.id}, {job.format_time(run.due_at)}: {run.state} ({format_took(run)}){detail}"
                )
            ]
        )
        codes.append(DONE if run.state == "done" else REFUSED)

    async def work(db: SessionDB) -> None:
        from hermes.jobs.cron.job_files import JobFiles

        for file in JobFiles().read_all().broken:
            print_error(f"the job file {file.path} is ignored: {make_printable(file.problem)}")
        ticker = _make_ticker(db, report)
        _stop_on_signals(ticker)
        await ticker.tick()
        await ticker.wait()

    with open_store(arguments, makes=True) as db:
        asyncio.run(work(db))
    return max(codes, default=DONE)


def run_daemon(arguments: argparse.Namespace) -> int:
    """`hermes cron daemon`: run jobs at their due times until SIGTERM or Ctrl-C."""
    from hermes.config import dotenv
    from hermes.gateway.ops.logging_setup import set_up_logs
    from hermes.logs import get_logger

    set_up_logs(verbose=arguments.verbose, as_json=arguments.json_logs, secrets=dotenv.collect_secrets())
    log = get_logger("hermes.cron")

    async def work(db: SessionDB) -> None:
        ticker = _make_ticker(db)
        closing = _stop_on_signals(ticker)
        log.info("running scheduled jobs from %s", ticker.files.folder)
        await ticker.watch()
        log.info("shutting down; running jobs have %g seconds to finish", DRAIN_S)
        await asyncio.gather(*closing)

    with open_store(arguments, makes=True) as db:
        asyncio.run(work(db))
    return DONE


def _make_ticker(
    db: SessionDB, on_outcome: Callable[[Job, Outcome], None] = lambda _job, _outcome: None
) -> Ticker:
    from hermes.config.settings import read_settings
    from hermes.gateway.scheduled_jobs import HomeSender
    from hermes.jobs.cron.ticker import Ticker

    at_once = read_settings().cron.jobs_at_once
    return Ticker(db, HomeSender(db), jobs_at_once=at_once, on_outcome=on_outcome)


def _stop_on_signals(ticker: Ticker) -> list[asyncio.Task[None]]:
    """Install handlers for SIGTERM and Ctrl-C that close the ticker. After the first signal, running jobs may
    still finish for a limited time. A second signal ends them at once. Return a list, to which each signal adds
    the task that closes the ticker."""
    closing: list[asyncio.Task[None]] = []

    def close() -> None:
        closing.append(asyncio.ensure_future(ticker.close(DRAIN_S if not closing else 0.0)))

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, close)
    return closing
