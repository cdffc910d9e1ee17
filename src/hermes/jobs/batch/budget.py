"""The budget of a batch run in dollars. A prompt is started only if its probable cost fits into what is left of the
budget."""

from __future__ import annotations

ROUNDING = 1e-9


class Budget:
    def __init__(self, limit: float | None, spent: float = 0.0, first_estimate: float = 0.0) -> None:
        """Create a budget of `limit` dollars; None means no limit. `spent` is what earlier processes spent on the same
        batch run. `first_estimate` is the probable cost of a prompt until the cost of finished prompts is known."""
        self.limit, self.spent = limit, spent
        self._first_estimate = first_estimate
        self._running: dict[int, float] = {}
        """The cost so far of each running prompt."""
        self._finished, self._finished_cost = 0, 0.0

    @property
    def estimate(self) -> float:
        """The probable cost of a prompt in dollars: the average cost of the finished prompts."""
        return self._finished_cost / self._finished if self._finished else self._first_estimate

    @property
    def expected(self) -> float:
        """The cost of the batch run so far, plus the probable cost of what the running prompts still have to do."""
        return self.spent + sum(max(0.0, self.estimate - cost) for cost in self._running.values())

    def has_room(self) -> bool:
        """Return whether the budget allows another prompt to be started."""
        if self.limit is None:
            return True
        if self.spent >= self.limit and self.estimate > 0:
            return False
        return self.expected + self.estimate <= self.limit + ROUNDING

    def start(self, number: int) -> None:
        self._running[number] = 0.0

    def spend(self, number: int, cost: float | None) -> None:
        """Add the cost of one model request to the cost of the prompt `number`. An unknown cost counts as 0."""
        self.spent += cost or 0.0
        if number in self._running:
            self._running[number] += cost or 0.0

    def finish(self, number: int, *, is_typical: bool) -> None:
        """Note that the prompt `number` is no longer running. With `is_typical`, its cost is included in the average
        cost of finished prompts."""
        cost = self._running.pop(number, 0.0)
        if is_typical:
            self._finished += 1
            self._finished_cost += cost
