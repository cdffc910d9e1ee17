"""The daily limit of a person: dollars, tokens, or both. A shared chat has a limit of its own.

The limit is checked before each turn, from the usage in the store. The day begins at midnight in the time
zone of `session_reset`. A turn that has begun is finished, so a person can exceed the limit by one turn per
chat.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from hermes import clock
from hermes.config.time_zones import load_zone
from hermes.conversation.spending_limit import LimitReached
from hermes.gateway.outbound.markdown_format import format_time
from hermes.gateway.sessions.reset_policy import find_boundary_after
from hermes.insights.number_format import format_dollars, format_plural

if TYPE_CHECKING:
    from datetime import tzinfo

    from hermes.db.session_db import AnyStore
    from hermes.gateway.settings import GatewaySettings
    from hermes.store.reports.usage import Spending


class Budget(NamedTuple):
    """How much an owner has used today, and the daily limits of the owner in dollars and tokens. A limit of 0 means
    no limit."""

    spent: Spending
    usd: float
    tokens: int
    resets_at: float

    @property
    def is_used_up(self) -> bool:
        return 0 < self.usd <= self.spent.cost_usd or 0 < self.tokens <= self.spent.tokens

    @property
    def parts(self) -> list[str]:
        """For each daily limit that is set, a text that says how much of it remains."""
        left = []
        if self.usd:
            dollars = format_dollars(max(0.0, self.usd - self.spent.cost_usd))
            left.append(f"{dollars} of {format_dollars(self.usd)}")
        if self.tokens:
            left.append(f"{max(0, self.tokens - self.spent.tokens):,} of {self.tokens:,} tokens")
        return left


class DailyLimit(NamedTuple):
    usd: float
    tokens: int
    zone: str | None
    is_shared: bool = False
    """Whether the limit is that of a shared chat."""

    def read(self, store: AnyStore, owner: str) -> Budget:
        begin, end = find_day(clock.now(), load_zone(self.zone))
        return Budget(store.usage_of_owner(owner, begin), self.usd, self.tokens, end)

    def check(self, store: AnyStore, owner: str) -> None:
        budget = self.read(store, owner)
        if budget.is_used_up:
            who = "This chat has used its" if self.is_shared else "You have used your"
            limits = [format_dollars(self.usd)] if self.usd else []
            limits += [format_plural(self.tokens, "token")] if self.tokens else []
            when = format_time(budget.resets_at, self.zone, clock.now())
            raise LimitReached(
                f"{who} limit for today ({' or '.join(limits)}); it resets {when}.", budget.resets_at
            )


def find_limit(settings: GatewaySettings, *, is_owner: bool, is_shared: bool = False) -> DailyLimit | None:
    """Return the daily limit of a person or a shared chat, or None if there is no limit. Owners of the machine
    have no limit unless `limit_owners` is set."""
    usd, tokens = settings.daily_cost_limit_usd, settings.daily_token_limit
    if not (usd or tokens) or (is_owner and not settings.limit_owners):
        return None
    return DailyLimit(usd, tokens, settings.reset.timezone, is_shared)


def find_day(now: float, place: tzinfo | None) -> tuple[float, float]:
    """Return the start and the end of the day that contains the time `now`, in the time zone `place`."""
    begin = end = now - 2 * clock.DAY
    while end <= now:
        begin, end = end, find_boundary_after(end, 0, place) or end + clock.DAY
    return begin, end


def find_month(now: float, place: tzinfo | None) -> tuple[float, float]:
    """Return the start and the end of the month that contains the time `now`, in the time zone `place`."""
    first = datetime.fromtimestamp(now, place).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0, fold=0
    )
    following = (first + timedelta(days=32)).replace(day=1)
    return first.timestamp(), following.timestamp()
