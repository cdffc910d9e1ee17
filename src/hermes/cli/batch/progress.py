"""The progress of a batch of prompts, shown on stderr: a bar on a terminal, otherwise a plain line every ten
seconds."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from hermes.cli.io.output import print_error
from hermes.insights.number_format import format_dollars, format_duration

if TYPE_CHECKING:
    from hermes.jobs.batch.runner import Progress

DRAW_EVERY_S, LINE_EVERY_S = 0.2, 10.0
NARROWEST_BAR, WIDEST_BAR, TEXT_WIDTH = 8, 30, 72
"""The width of the bar, and the width that its line needs besides the bar, in columns."""

ReadProgress = Callable[[], "Progress"]


class View(Protocol):
    def begin(self, read: ReadProgress) -> None:
        """Show the progress of the batch from now on, until the view is closed. `read` is a function that
        returns the current progress."""

    def print_line(self, text: str) -> None: ...

    def show_writing(self, count: int) -> None:
        """Show that the result files of the batch are being written. `count` is the number of results written
        so far. This method is called in another thread."""

    async def close(self) -> None: ...


def make_view() -> View:
    has_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return BarView() if has_terminal and find_spec("rich") is not None else LineView()


def format_cost(cost: float | None) -> str:
    """Format a cost in dollars. A small amount has four digits after the point, because a prompt often costs
    less than a cent."""
    if cost is None:
        return "cost unknown"
    return f"${cost:.4f}" if 0 < cost < 1 else format_dollars(cost)


def describe_progress(progress: Progress) -> str:
    """Describe the progress of a batch in one line: failed prompts, speed, cost and remaining time. The number
    of finished prompts is not included, because the caller shows it."""
    parts = [f"{progress.failed:,} failed"] if progress.failed else []
    parts += [f"{progress.per_second:.1f}/s", format_cost(progress.cost_usd)]
    if progress.waits_s >= 1:
        parts.append(f"waiting {format_duration(progress.waits_s)} for the provider")
    if progress.is_stopping:
        parts.append(f"finishing {progress.running}")
    elif progress.seconds_left is not None:
        parts.append(f"{format_duration(progress.seconds_left)} left")
    return " · ".join(parts)


class LineView:
    """Shows the progress of a batch as a plain line from time to time, for logs."""

    def __init__(self) -> None:
        self._read: ReadProgress | None = None
        self._printing: asyncio.Task[None] | None = None

    def begin(self, read: ReadProgress) -> None:
        self._read = read
        self._printing = asyncio.create_task(self._print())

    async def _print(self) -> None:
        while self._read is not None:
            await asyncio.sleep(LINE_EVERY_S)
            progress = self._read()
            self.print_line(f"{progress.finished:,} of {progress.total:,} · {describe_progress(progress)}")

    def print_line(self, text: str) -> None:
        print_error(text)

    def show_writing(self, count: int) -> None:
        """Print nothing about the writing of the result files, because it is quick."""

    async def close(self) -> None:
        if self._printing is not None:
            self._printing.cancel()
            await asyncio.gather(self._printing, return_exceptions=True)


class BarView:
    """Shows the progress of a batch as a bar in the last line of the terminal. Other lines are printed above
    the bar."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._console = Console(stderr=True, highlight=False)
        # The line must not fill the terminal: the terminal shows `^C` behind it, which would wrap.
        width = max(NARROWEST_BAR, min(WIDEST_BAR, self._console.width - TEXT_WIDTH))
        self._bar = Progress(
            BarColumn(bar_width=width),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)
        self._drawing: asyncio.Task[None] | None = None
        self._written = 0

    def begin(self, read: ReadProgress) -> None:
        self._bar.start()
        self._drawing = asyncio.create_task(self._draw(read))

    async def _draw(self, read: ReadProgress) -> None:
        while True:
            progress = read()
            done, text = progress.finished, describe_progress(progress)
            if self._written:
                done, text = self._written, "writing the files"
            self._bar.update(self._task, total=progress.total, completed=done, description=text)
            with suppress(OSError):  # the terminal is closed
                self._bar.refresh()
            await asyncio.sleep(DRAW_EVERY_S)

    def print_line(self, text: str) -> None:
        with suppress(OSError):
            self._console.print(f"hermes: {text}", markup=False, soft_wrap=True)

    def show_writing(self, count: int) -> None:
        self._written = count

    async def close(self) -> None:
        if self._drawing is not None:
            self._drawing.cancel()
            await asyncio.gather(self._drawing, return_exceptions=True)
        with suppress(OSError):
            self._bar.stop()
