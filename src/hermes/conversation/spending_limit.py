"""The spending limit of a person for model calls. A surface provides the limit. The conversation checks it before each
turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hermes.errors import HermesError

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore


class LimitReached(HermesError):
    """The person has used up their limit. The error message says when the limit is reset."""

    def __init__(self, message: str, resets_at: float) -> None:
        super().__init__(message)
        self.resets_at = resets_at


class SpendingLimit(Protocol):
    def check(self, store: AnyStore, owner: str) -> None:
        """Raise `LimitReached` if the person `owner` has used up the spending limit. Reads the store."""
