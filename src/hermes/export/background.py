"""An export beside an event loop: in a thread, watched and ended from the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from hermes.errors import OutputRefused
from hermes.export.plan import Plan
from hermes.export.writer import Destination, Export, Options, Progress, Result

POLL_S = 0.1
"""Between two reports of the progress."""


async def write_in_thread(
    make_plan: Callable[[], Plan],
    options: Options,
    destination: Destination,
    *,
    report: Callable[[Progress], object] = bool,
    stop: threading.Event | None = None,
) -> Result:
    """Plan an export and write its files. `make_plan` is called in the thread, `report` in the loop.

    An error of the file system is an `OutputRefused`. Setting `stop` ends the export with `ExportCancelled`.
    Cancelling the task ends it, too. In both cases the call returns when nothing of the export is left on the disk.
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
        writing.exception()  # which nobody wants to know any more
        raise
    return writing.result()
