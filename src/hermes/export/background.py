"""Run an export in a thread, with progress and cancellation from the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from hermes.errors import OutputRefused
from hermes.export.plan import Plan
from hermes.export.writer import Destination, Export, Options, Progress, Result

POLL_S = 0.1
"""Seconds between two progress reports."""


async def write_in_thread(
    make_plan: Callable[[], Plan],
    options: Options,
    destination: Destination,
    *,
    report: Callable[[Progress], object] = bool,
    stop: threading.Event | None = None,
) -> Result:
    """Plan an export and write its files, in a thread. `make_plan` makes the plan and is called in the thread.
    `report` receives the progress and is called in the event loop.

    A file system error is raised as `OutputRefused`. If `stop` is set, the export ends with `ExportCancelled`.
    It also ends if the task is cancelled. In both cases, all partial files have been removed when the call
    returns.
    """
    stop = threading.Event() if stop is None else stop
    progress = Progress(0, 0)

    def note_progress(latest: Progress) -> None:
        nonlocal progress
        progress = latest

    def run() -> Result:
        export = Export(make_plan(), options, report=note_progress, is_cancelled=stop.is_set)
        try:
            return export.write_files(destination)
        except OSError as problem:
            place = problem.filename or destination.path
            raise OutputRefused(f"{problem.strerror or problem}: {place}") from problem

    writing = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        while not (await asyncio.wait([writing], timeout=POLL_S))[0]:
            report(progress)
    except BaseException:
        stop.set()
        await asyncio.wait([writing])
        writing.exception()  # retrieve the exception, so that asyncio does not log it
        raise
    return writing.result()
