"""Sums of the costs of model calls. An unknown cost is None, never zero. A sum with unknown parts is a lower
bound."""

from __future__ import annotations

from collections.abc import Iterable

from hermes.store.reports.activity import ACTUAL, ESTIMATED, INCLUDED, UNKNOWN, Spent

MIXED, PARTIAL, NOTHING = "mixed", "partial", "none"
"""States of a sum: costs of several kinds, costs only partly known, no costs at all."""


class Bill:
    """A sum of costs of model calls. It records separately which costs are billed, estimated, included in a
    subscription, or unknown."""

    __slots__ = ("_by_status", "_estimated", "auxiliary")

    def __init__(self, spent: Iterable[Spent] = ()) -> None:
        self._by_status: dict[str, float] = {}
        self._estimated: float | None = None
        self.auxiliary = 0.0
        """The known cost of titles, summaries and other auxiliary calls."""
        for line in spent:
            self.add(line)

    def add(self, line: Spent) -> None:
        cost = line.cost or 0.0
        self._by_status[line.cost_status] = self._by_status.get(line.cost_status, 0.0) + cost
        if line.cost_status == ESTIMATED or (line.cost_status == ACTUAL and line.used.estimated_cost_usd):
            self._estimated = (self._estimated or 0.0) + line.used.estimated_cost_usd
        if line.purpose == "auxiliary":
            self.auxiliary += cost

    @property
    def cost(self) -> float | None:
        """The total: billed costs where available, otherwise estimates. None if no cost is known."""
        known = [cost for status, cost in self._by_status.items() if status != UNKNOWN]
        return sum(known) if known or not self._by_status else None

    @property
    def estimated(self) -> float | None:
        """The sum of all estimates, including estimates of costs for which the billed amount is now known.
        None if there are billed or unknown costs and nothing was estimated."""
        return self._estimated if self._estimated is not None or self._has_unestimated else 0.0

    @property
    def _has_unestimated(self) -> bool:
        return bool(self._by_status.keys() & {UNKNOWN, ACTUAL})

    @property
    def actual(self) -> float | None:
        """The sum of all billed costs. None if there are estimated or unknown costs and nothing was
        billed."""
        return self._by_status.get(ACTUAL, None if self._by_status.keys() - {INCLUDED} else 0.0)

    @property
    def is_known(self) -> bool:
        """Whether at least one of the summed costs is known."""
        return bool(self._by_status.keys() - {UNKNOWN})

    @property
    def has_unknown(self) -> bool:
        return UNKNOWN in self._by_status

    @property
    def has_included(self) -> bool:
        return INCLUDED in self._by_status

    @property
    def status(self) -> str:
        """How well the sum is known. If all costs have the same status, it is that status. Otherwise it is
        `partial` if some costs are unknown, or else `mixed`. It is `none` if there are no costs."""
        if len(self._by_status) > 1:
            return PARTIAL if self.has_unknown else MIXED
        return next(iter(self._by_status), NOTHING)
