"""Lazy logging: importing `logging` takes longer than opening a store, so it is imported at the first log
call.

Without a logging configuration, Python prints warnings to stderr. A command can set their format.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from logging import Formatter, Logger


def get_logger(name: str) -> Logger:
    """Return an object that can be used like the logger with this name. The real logger is fetched at the first
    log call."""
    return cast("Logger", _LazyLogger(name))


def use_last_resort(make_formatter: Callable[[], Formatter]) -> None:
    """Set the formatter of the messages that Python prints to stderr when no logging handler is configured.
    `make_formatter` is called at the first log call."""
    global _make_formatter
    _make_formatter = make_formatter


_make_formatter: Callable[[], Formatter] | None = None


def _ignore(*_: object, **_options: object) -> None:
    pass


class _LazyLogger:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, verb: str, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> Any:
        if is_finalizing():
            return _ignore  # modules cannot be imported during shutdown
        import logging

        last = logging.lastResort
        if _make_formatter is not None and last is not None and last.formatter is None:
            last.setFormatter(_make_formatter())
        return getattr(logging.getLogger(self._name), verb)
