"""The limit on concurrent model calls of this program.

Without a limit, thousands of calls wait inside the HTTP client, which looks at all of them at every event.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext

from hermes.slots import Slots

_limit: Slots | None = None


def set_limit(limit: Slots | None) -> None:
    """Limit the model calls of this program. None removes the limit."""
    global _limit
    _limit = limit


def take_call_slot() -> AbstractAsyncContextManager[None]:
    """Return the context in which one model call is made."""
    return nullcontext() if _limit is None else _limit
