"""Base class of the handles: access for reading and access for writing.

`SessionDB` reads and writes the whole store, `ScopedStore` the part that one person can see. Both inherit the
methods that apply to both, with the same arguments and results.
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
        """Return the access for reading."""

    @abstractmethod
    def _write_access(self, *session_ids: str) -> Access:
        """Return the access for changing the sessions `session_ids`."""

    @abstractmethod
    def _get_append(self, session_id: str) -> Callable[[NewMessage], int]:
        """Return the function that stores a message in this session."""

    @staticmethod
    def _ignore_unknown(verb: Callable[[], T], otherwise: T) -> T:
        """Call `verb`. Return `otherwise` if the session does not exist."""
        try:
            return verb()
        except errors.UnknownSession:
            return otherwise
