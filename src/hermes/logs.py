"""A log that costs nothing until something is said: importing `logging` takes longer than opening a store.

Where nobody set logging up, Python prints warnings to stderr as they are. In the `hermes` command they name files and
sessions, so there they are made harmless for a terminal first, and secrets are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from logging import Formatter, Logger


def log_of(name: str) -> Logger:
    """The logger of this name, which is fetched when it is used."""
    return cast("Logger", _Later(name))


def print_for_terminal() -> None:
    """From now on, what Python prints for want of a handler is safe to show on a terminal."""
    global _is_for_terminal
    _is_for_terminal = True


_is_for_terminal = False


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, verb: str) -> Any:
        import logging

        if _is_for_terminal and logging.lastResort is not None and logging.lastResort.formatter is None:
            logging.lastResort.setFormatter(_make_formatter())
        return getattr(logging.getLogger(self._name), verb)


def _make_formatter() -> Formatter:
    import logging

    from hermes.secrets import redact
    from hermes.text import readable

    class TerminalFormatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return readable(redact(super().format(record)))

    return TerminalFormatter()
