"""`hermes batch run` and `hermes batch retry-failed`: run prompts, show the progress, and handle Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.command import (
    MOST_ROWS,
    Words,
    add_json_option,
    add_store_option,
    parse_row_count,
    parse_text,
)
from hermes.cli.exit_codes import DONE, INTERRUPTED, REFUSED, USAGE
from hermes.cli.io.output import print_details, print_error, print_json, print_lines
from hermes.cli.store_access import get_store_path
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.jobs.batch.launcher import OpenedRun, RunRequest
    from hermes.jobs.batch.prompt_file import Prompt
    from hermes.jobs.batch.result_files import Written
    from hermes.jobs.batch.run_state import Result
    from hermes.jobs.batch.runner import BatchRunner, RunOptions, Summary

MOST_WORKERS = 256
LONGEST_ERROR = 200
REPEAT_WAIT_S = 60.0


def define_run(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="prompts: .jsonl, .csv, or .txt with one per line"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the folder of the run and its results"
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in DIR")
    parser.add_argument(
        "--limit", type=parse_row_count, metavar="N", help="run only the first N prompts of FILE"
    )
    parser.add_argument("-m", "--model", type=parse_text, metavar="NAME", help="the model that answers")
    _add_options(parser)
    add_store_option(parser, run_file)


def define_retry(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.add_argument("out", type=Path, metavar="DIR", help="the folder of the run")
    _add_options(parser)
    add_store_option(parser, retry_failed)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers", type=_parse_workers, default=4, metavar="N", help="prompts that run at the same time (4)"
    )
    parser.add_argument(
        "--budget",
        type=_parse_amount,
        metavar="USD",
        help="start no prompt that would cost more than this in total",
    )
    parser.add_argument(
        "--timeout", type=_parse_amount, metavar="SECONDS", help="the maximum time of one attempt at a prompt"
    )
    parser.add_argument(
        "--attempts",
        type=_parse_attempts,
        default=3,
        metavar="N",
        help="attempts at a prompt before it fails (3)",
    )
    add_json_option(parser)


def _parse_workers(text: str) -> int:
    return _parse_up_to(text, MOST_WORKERS)


def _parse_attempts(text: str) -> int:
    return _parse_up_to(text, 100)


def _parse_up_to(text: str, most: int) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {most}, not {text!r}")
    return int(text)


def _parse_amount(text: str) -> float:
    """Parse a number of dollars or seconds from the command line. It must be more than 0."""
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount <= MOST_ROWS:
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return amount


def run_file(arguments: argparse.Namespace) -> int:
    from hermes.jobs.batch.launcher import RunRequest
    from hermes.jobs.batch.prompt_file import BadPrompts

    request = RunRequest(
        arguments.out,
        _make_options(arguments, arguments.limit),
        arguments.file,
        arguments.model,
        resumes=arguments.resume,
    )
    try:
        return _run(arguments, request)
    except BadPrompts as problem:
        print_error(str(problem))
        return USAGE


def retry_failed(arguments: argparse.Namespace) -> int:
    from hermes.jobs.batch.launcher import RunRequest

    return _run(arguments, RunRequest(arguments.out, _make_options(arguments), retries_failed=True))


def _make_options(arguments: argparse.Namespace, limit: int | None = None) -> RunOptions:
    from hermes.jobs.batch.runner import RunOptions

    return RunOptions(arguments.workers, limit, arguments.budget, arguments.timeout, arguments.attempts)


def _run(arguments: argparse.Namespace, request: RunRequest) -> int:
    from hermes.db.session_db import SessionDB
    from hermes.jobs.batch.launcher import open_run

    store = get_store_path(arguments).absolute()
    opened = open_run(request, store)
    with opened.state, SessionDB(store) as db:
        command = _describe_continuation(request, opened.state.info.file)
        summary, written = asyncio.run(_execute(opened, db, request.options))
    return _report(arguments, request, summary, written, command)


async def _execute(opened: OpenedRun, db: SessionDB, options: RunOptions) -> tuple[Summary, Written]:
    from hermes.cli.batch.progress import make_view
    from hermes.jobs.batch.launcher import execute_run

    view = make_view()
    loop = asyncio.get_running_loop()

    def begin(runner: BatchRunner) -> None:
        interrupts = 0

        def interrupt() -> None:
            nonlocal interrupts
            interrupts += 1
            if interrupts > 1:
                runner.cancel()
            elif running := runner.stop():
                view.print_line(
                    f"finishing {format_count(running, 'running prompt')}; Ctrl-C again stops them"
                )

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
        view.begin(lambda: runner.progress)

    def show_failure(prompt: Prompt, result: Result) -> None:
        if result.error is not None:
            name = make_printable(prompt.id, width_limit=60)
            view.print_line(f"{name} failed: {make_printable(result.error, width_limit=LONGEST_ERROR)}")

    silent_until = 0.0

    def show_wait(problem: str) -> None:
        nonlocal silent_until
        if loop.time() >= silent_until:  # a strict rate limit lets the workers wait again and again
            silent_until = loop.time() + REPEAT_WAIT_S
            view.print_line(f"all workers wait: {make_printable(problem, width_limit=LONGEST_ERROR)}")

    try:
        return await execute_run(
            opened,
            db,
            options,
            on_begin=begin,
            on_result=show_failure,
            on_wait=show_wait,
            on_writing=view.show_writing,
        )
    finally:
        await view.close()


def _describe_continuation(request: RunRequest, file: str) -> str:
    """Return the shell command that continues a batch which stopped before its end. `file` is the path of the
    prompts if the request does not name it."""
    given = request.file if request.file is not None else Path(file)
    return shlex.join(["hermes", "batch", "run", str(given), "--out", str(request.folder), "--resume"])


def _report(
    arguments: argparse.Namespace, request: RunRequest, summary: Summary, written: Written, command: str
) -> int:
    """Print how the batch ended, as text or as JSON. Return the exit code of the command. `command` is the
    shell command that continues the batch."""
    from hermes.cli.batch.progress import format_cost
    from hermes.jobs.batch.result_files import RESULTS

    progress = summary.progress
    left = progress.total - progress.finished
    if arguments.json:
        print_json(
            {
                "out": str(request.folder),
                "total": progress.total,
                "done": progress.done,
                "failed": progress.failed,
                "left": left,
                "stopped": summary.reason,
                "error": summary.problem,
                "cost_usd": progress.cost_usd,
                "retries": summary.retries,
                "refused": summary.refused,
                "continue": command if left else None,
            }
        )
    else:
        counts = [f"{progress.done:,} done", *([f"{progress.failed:,} failed"] if progress.failed else [])]
        counts += [f"{left:,} left"] if left else []
        counts += [f"{summary.retries:,} retried"] if summary.retries else []
        counts += [f"{format_count(summary.refused, 'request')} refused"] if summary.refused else []
        counts += [format_cost(progress.cost_usd)]
        print_lines([", ".join(counts), f"results: {make_printable(str(request.folder / RESULTS))}"])
    if written.missing:
        print_error(
            f"{format_count(written.missing, 'session')} of the run no longer in the store: no trajectory"
        )
    if summary.reason == "problem":
        print_error(summary.problem or "the run stopped")
    elif summary.reason == "budget":
        print_error(f"the budget of ${request.options.budget_usd:g} allows no further prompt")
    elif summary.reason == "interrupted":
        print_error("interrupted")
    if left and not arguments.json:
        print_details([f"continue with: {command}"])
    elif progress.failed and not arguments.json:
        retry = shlex.join(["hermes", "batch", "retry-failed", str(request.folder)])
        print_details([f"try the failed prompts again: {retry}"])
    if summary.reason == "interrupted":
        return INTERRUPTED
    return REFUSED if left or progress.failed else DONE
