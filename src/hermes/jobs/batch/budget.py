"""The budget of a run: no prompt is started if its probable cost does not fit into the rest."""

from __future__ import annotations

ROUNDING = 1e-9


class Budget:
    def __init__(self, limit: float | None, spent: float = 0.0, first_estimate: float = 0.0) -> None:
        """`spent` is the cost of earlier work on the same run. `first_estimate` is the probable cost of a prompt,
        until the cost of finished prompts is known."""
        self.limit, self.spent = limit, spent
        self._first_estimate = first_estimate
        self._running: dict[int, float] = {}
        """The cost so far of each running prompt."""
        self._finished, self._finished_cost = 0, 0.0

    @property
    def estimate(self) -> float:
        """The probable cost of a prompt: the average of the finished ones."""
        return self._finished_cost / self._finished if self._finished else self._first_estimate

    @property
    def expected(self) -> float:
        """The cost so far, and the probable rest of the cost of the running prompts."""
        return self.spent + sum(max(0.0, self.estimate - cost) for cost in self._running.values())

    def has_room(self) -> bool:
        """Return whether another prompt may be started."""
        if self.limit is None:
            return True
        if self.spent >= self.limit and self.estimate > 0:
            return False
        return self.expected + self.estimate <= self.limit + ROUNDING

    def start(self, number: int) -> None:
        self._running[number] = 0.0

    def spend(self, number: int, cost: float | None) -> None:
        """Add the cost of one request. An unknown cost counts as 0."""
        self.spent += cost or 0.0
        if number in self._running:
            self._running[number] += cost or 0.0

    def finish(self, number: int, *, is_typical: bool) -> None:
        """Forget a running prompt. With `is_typical`, its cost is part of the average."""
        cost = self._running.pop(number, 0.0)
        if is_typical:
            self._finished += 1
            self._finished_cost += cost
