"""A decorator that gives all store searches of one method call a common deadline."""

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
    """Decorate a method so that all its store searches share one deadline.

    The method raises `SearchTimeout` if the searches together exceed the time limit of a single search.
    """

    @wraps(search)
    def searching(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._engine.share_deadline():
            return search(self, *args, **kwargs)

    return searching
