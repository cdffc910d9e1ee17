"""Rate limits in bounded memory, for any number of people."""

from __future__ import annotations

from collections import OrderedDict

MOST = 10_000
"""People who are remembered; of more, those are forgotten who have been quiet longest."""


class RecentEvents:
    """What happened within the last `seconds`, by who did it."""

    def __init__(self, seconds: float, most: int = MOST) -> None:
        self._seconds, self._most = seconds, most
        self._times: OrderedDict[str, list[float]] = OrderedDict()

    def count(self, who: str, now: float) -> int:
        return sum(now - then < self._seconds for then in self._times.get(who, ()))

    def add(self, who: str, now: float) -> None:
        times = [then for then in self._times.pop(who, ()) if now - then < self._seconds]
        self._times[who] = [*times, now]
        if len(self._times) > self._most:
            self._times.popitem(last=False)


class _Bucket:
    __slots__ = ("at", "left", "notified_at")

    def __init__(self, left: float, at: float) -> None:
        self.left, self.at = left, at
        self.notified_at: float | None = None


class TokenBuckets:
    """So many in a minute for each, and as many at once: what was used comes back little by little."""

    def __init__(self, per_minute: int, most: int = MOST) -> None:
        self._size, self._most = per_minute, most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, who: str, now: float) -> tuple[bool, bool]:
        """Whether there is one more for them; if not, whether it is time to tell them: once in a minute."""
        bucket = self._buckets.pop(who, None) or _Bucket(self._size, now)
        self._buckets[who] = bucket
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        passed = max(0.0, now - bucket.at)  # clocks are put back
        bucket.left = min(float(self._size), bucket.left + passed * self._size / 60)
        bucket.at = now
        if bucket.left >= 1:
            bucket.left -= 1
            return True, False
        if bucket.notified_at is not None and 0 <= now - bucket.notified_at < 60:
            return False, False
        bucket.notified_at = now
        return False, True
