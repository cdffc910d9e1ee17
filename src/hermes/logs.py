"""A log that costs nothing until something is said: importing `logging` takes longer than opening a store.

Where nobody set logging up, Python prints warnings to stderr as they are; a command can say how they are laid out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from logging import Formatter, Logger


def get_logger(name: str) -> Logger:
    """The logger of this name, which is fetched when it is used."""
    return cast("Logger", _LazyLogger(name))


def use_last_resort(make_formatter: Callable[[], Formatter]) -> None:
    """Lay out with this, made when it is needed, what Python prints to stderr for want of a handler."""
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
            return _ignore  # nothing can be imported any more
        import logging

        last = logging.lastResort
        if _make_formatter is not None and last is not None and last.formatter is None:
            last.setFormatter(_make_formatter())
        return getattr(logging.getLogger(self._name), verb)
