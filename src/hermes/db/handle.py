"""Base class of the handles. It declares how a handle reads and writes the store.

`SessionDB` reads and writes the whole store, `ScopedStore` the part that one person can see. Both inherit the verbs
that they share, with the same arguments and results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from hermes import errors
from hermes.store.engine import Access
from hermes.store.sessions.messages import NewMessage

T = TypeVar("T")
Row = dict[str, Any]


class Handle(ABC):
    _sees_every_owner = False
    """Whether this handle covers the whole store, in which sessions of several owners can have the same
    title."""

    @abstractmethod
    def _read_access(self) -> Access:
        """Return the interface through which this handle reads the store."""

    @abstractmethod
    def _write_access(self, *session_ids: str) -> Access:
        """Return the interface through which this handle changes the sessions `session_ids`."""

    @abstractmethod
    def _get_append(self, session_id: str) -> Callable[[NewMessage], int]:
        """Return the function that stores a new message in the session `session_id` and returns its id."""

    @staticmethod
    def _ignore_unknown(verb: Callable[[], T], otherwise: T) -> T:
        """Call `verb` and return its result. If it raises `UnknownSession`, return `otherwise`."""
        try:
            return verb()
        except errors.UnknownSession:
            return otherwise
