"""Records in the audit log who was admitted and who was refused.

Anybody can send messages, so the number of entries is limited. Each outcome of a person is recorded once an
hour, and at most `MOST_PER_HOUR` entries are written in an hour. Entries beyond that are only counted, and the
next entry contains their number.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hermes import audit_log, clock
from hermes.clock import RecentEvents
from hermes.gateway.inbound_events import Source

MOST_PER_HOUR = 500


class AccessLog:
    def __init__(self) -> None:
        self._recent = RecentEvents(clock.HOUR)
        self._hour, self._written, self._omitted = 0, 0, 0
        self._writer = ThreadPoolExecutor(1, "access log")

    def flush(self) -> None:
        """Wait until the writer thread has written all recorded entries to the audit log."""
        self._writer.submit(int).result()

    def record(self, action: str, source: Source, reason: str) -> None:
        """Record that the sender in `source` was admitted or refused (`action`), and why (`reason`). No text of
        their message is recorded."""
        now = clock.now()
        person = f"{action} {reason} {source.platform}:{source.participant or source.chat_id}"
        if self._recent.count(person, now):
            return
        self._recent.add(person, now)
        if int(now // clock.HOUR) != self._hour:
            self._hour, self._written = int(now // clock.HOUR), 0
        if self._written >= MOST_PER_HOUR:
            self._omitted += 1
            return
        self._written += 1
        omitted, self._omitted = self._omitted, 0
        # Entries are written by a thread, because a write takes as long as storing a message.
        self._writer.submit(
            audit_log.record,
            action,
            platform=source.platform,
            user=source.participant or source.chat_id,
            user_name=source.handle or source.user_name,
            chat_type=source.chat_type,
            reason=reason,
            **({"omitted_before": omitted} if omitted else {}),
        )
