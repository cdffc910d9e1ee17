"""A progress bar on one line of a terminal. Nothing is shown if stderr is not a terminal."""

from __future__ import annotations

import sys
from contextlib import suppress

from hermes import clock

WIDTH = 30
SECONDS = 0.1
"""Minimum time between two updates, so that drawing does not slow down the work."""


class Progress:
    """A progress bar, used as `with Progress("Exporting", 1200) as bar: bar.step(3)`."""

    def __init__(self, doing: str, total: int, *, is_visible: bool = True) -> None:
        self.doing = doing
        self.total = max(total, 1)
        self.done = 0
        self._drawn_at = clock.now()
        self._is_visible = is_visible and sys.stderr.isatty()
        self._is_drawn = False

    def __enter__(self) -> Progress:
        return self

    def step(self, count: int) -> None:
        self.done += count
        if self._is_visible and abs(clock.now() - self._drawn_at) >= SECONDS:
            self._draw()

    def _draw(self) -> None:
        self._drawn_at = clock.now()
        self._is_drawn = True
        share = min(self.done / self.total, 1.0)
        filled = int(share * WIDTH)
        self._write(f"\r{self.doing} {'█' * filled}{'░' * (WIDTH - filled)} {share:4.0%}")

    def __exit__(self, *_: object) -> None:
        if self._is_drawn:
            self._write(f"\r{' ' * (len(self.doing) + WIDTH + 7)}\r")

    def _write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()
