"""Rate limits for any number of people, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict

from hermes.clock import MOST_REMEMBERED


class _Bucket:
    __slots__ = ("at", "left", "notified_at")

    def __init__(self, left: float, at: float) -> None:
        self.left, self.at = left, at
        self.notified_at: float | None = None


class TokenBuckets:
    """Token buckets: each person has a bucket of `per_minute` tokens. Used tokens are refilled at a rate of
    `per_minute`."""

    def __init__(self, per_minute: int, most: int = MOST_REMEMBERED) -> None:
        self._size, self._most = per_minute, most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, who: str, now: float) -> tuple[bool, bool]:
        """Take a token from the bucket of the person `who`. `now` is the current time. Return two values: whether
        the bucket had a token, and if not, whether to notify the person now. A person is notified at most once a
        minute."""
        bucket = self._buckets.pop(who, None) or _Bucket(self._size, now)
        self._buckets[who] = bucket
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        passed = max(0.0, now - bucket.at)  # the clock may be set back
        bucket.left = min(float(self._size), bucket.left + passed * self._size / 60)
        bucket.at = now
        if bucket.left >= 1:
            bucket.left -= 1
            return True, False
        if bucket.notified_at is not None and 0 <= now - bucket.notified_at < 60:
            return False, False
        bucket.notified_at = now
        return False, True
