"""Data types of a conversation: the usage of its model calls and the result of a rewind."""

from __future__ import annotations

from typing import Any, NamedTuple

from hermes.agent.events import Counted
from hermes.agent.models.model import Used

NOTHING_YET = Counted("", Used(), 0.0)


class RewindResult(NamedTuple):
    messages: int
    content: Any
    """The content of the first message that the rewind removed."""


def add_usage(before: Counted, event: Counted) -> Counted:
    used = Used._make(_add_optional(left, right) for left, right in zip(before.used, event.used, strict=True))
    if before.cost_usd is None or event.cost_usd is None:  # an unknown cost makes the sum unknown, too
        return Counted(event.model, used, None)
    return Counted(event.model, used, before.cost_usd + event.cost_usd)


def _add_optional(left: Any, right: Any) -> Any:
    """Return the sum of two counts that may be None, which means unknown. One None counts as 0. If both are None, the
    sum is None."""
    if left is None and right is None:
        return None
    return (left or 0) + (right or 0)
