"""What a handle on the store is made of: where its verbs read, and where they write.

`SessionDB` reads and writes the whole store, `ScopedStore` what one person may see of it. Both inherit the verbs that
make sense for both, so that they take the same arguments and give the same answers.
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
    """Whether this is a handle on the whole store, on which several people's sessions have the same title."""

    @abstractmethod
    def _read_access(self) -> Access:
        """Where verbs look things up."""

    @abstractmethod
    def _write_access(self, *session_ids: str) -> Access:
        """Where a verb writes that changes these sessions."""

    @abstractmethod
    def _get_append(self, session_id: str) -> Callable[[NewMessage], int]:
        """What stores a message of this session."""

    @staticmethod
    def _ignore_unknown(verb: Callable[[], T], otherwise: T) -> T:
        """For verbs that say nothing of a session that is not there."""
        try:
            return verb()
        except errors.UnknownSession:
            return otherwise
