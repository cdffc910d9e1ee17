"""`hermes batch status` and `hermes batch results`: read the state and the results of a batch, also while
another process works on it."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from hermes import clock
from hermes.cli.command import Words, add_json_option
from hermes.cli.exit_codes import DONE
from hermes.cli.io.output import print_json, print_lines
from hermes.text import format_count, make_printable

FIELDS = (
    *("id", "prompt", "answer", "status", "error", "attempts", "tokens", "cost_usd", "seconds", "model"),
    *("session_id", "metadata"),
)
WIDEST_ID, WIDEST_TEXT = 24, 100


def define_status(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=show_status)
    parser.add_argument("out", type=Path, metavar="DIR", help="the folder of the run")
    add_json_option(parser)


def define_results(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=show_results)
    parser.add_argument("out", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument("--status", choices=("done", "failed"), help="only results with this status")
    add_json_option(parser, FIELDS)


def show_status(arguments: argparse.Namespace) -> int:
    from hermes.cli.batch.progress import format_cost
    from hermes.jobs.batch.run_state import RunState, is_running

    works = is_running(arguments.out)
    with RunState(arguments.out) as state:
        info, counts = state.info, state.counts
        # without a process, nothing runs: such prompts were cut off and are continued by --resume
        left = counts.queued + counts.running
        running = counts.running if works else 0
        changed_at, cost = state.changed_at, state.cost_usd
    command = shlex.join(["hermes", "batch", "run", info.file, "--out", str(arguments.out), "--resume"])
    if arguments.json:
        print_json(
            {
                "run_id": info.run_id,
                "file": info.file,
                "model": info.model,
                "is_running": works,
                "total": info.total,
                "done": counts.done,
                "failed": counts.failed,
                "running": running,
                "queued": left - running,
                "cost_usd": cost,
                "created_at": info.created_at,
                "changed_at": changed_at,
                "continue": command if left and not works else None,
            }
        )
        return DONE
    described = (
        f"{counts.done:,} done, {counts.failed:,} failed, {running:,} running, {left - running:,} queued"
    )
    lines = [
        f"Run {info.run_id}: {format_count(info.total, 'prompt')} of {info.file}, model {info.model}",
        f"  {described}, {format_cost(cost)}",
    ]
    if changed_at is not None:
        lines.append(f"  last change {clock.format_relative(changed_at, clock.now())}")
    if works:
        lines.append("  a process works on it")
    elif left:
        lines.append(f"  continue with: {command}")
    if counts.failed and not works:
        lines.append(f"  try again: {shlex.join(['hermes', 'batch', 'retry-failed', str(arguments.out)])}")
    print_lines(map(make_printable, lines))
    return DONE


def show_results(arguments: argparse.Namespace) -> int:
    from hermes.cli.batch.progress import format_cost
    from hermes.jobs.batch.result_files import make_row
    from hermes.jobs.batch.run_state import RunState

    with RunState(arguments.out) as state:
        if arguments.json:
            rows = [
                make_row(prompt, result, state.info.model)
                for _, prompt, result in state.list_results(arguments.status)
            ]
            print_json(rows, arguments.json)
            return DONE
        count = 0
        for _, prompt, result in state.list_results(arguments.status):
            count += 1
            text = make_printable(result.error or result.answer or "", width_limit=WIDEST_TEXT)
            name = make_printable(prompt.id, width_limit=WIDEST_ID).ljust(WIDEST_ID)
            print_lines([f"{name}  {result.status:<6}  {format_cost(result.cost_usd):>9}  {text}"])
        if not count:
            print_lines(
                ["No results yet." if arguments.status is None else f"No prompt is {arguments.status}."]
            )
    return DONE
