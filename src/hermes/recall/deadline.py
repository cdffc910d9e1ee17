"""One deadline for everything that a search asks of the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from hermes.store.engine import Access


class Searching(Protocol):
    _engine: Access


S = TypeVar("S", bound=Searching)
P = ParamSpec("P")
R = TypeVar("R")


def within_deadline(search: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Let all searches that a method makes end before the deadline of one; else `SearchTimeout`."""

    @wraps(search)
    def searching(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._engine.share_deadline():
            return search(self, *args, **kwargs)

    return searching
