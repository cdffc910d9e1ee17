"""A log that costs nothing until something is said: importing `logging` takes longer than opening a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from logging import Logger


def log_of(name: str) -> Logger:
    """The logger of this name, which is fetched when it is used."""
    return cast("Logger", _Later(name))


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, verb: str) -> Any:
        import logging

        return getattr(logging.getLogger(self._name), verb)
