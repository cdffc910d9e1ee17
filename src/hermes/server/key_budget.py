"""The budget of a key: dollars or tokens per day or month, checked before a turn from the usage in the store.

A turn that has begun is finished. Therefore a key can exceed its budget by the turns that were running when the budget
was used up. The day and the month begin at midnight in the time zone of `session_reset`.
"""

from __future__ import annotations

import math

from hermes import clock
from hermes.config.time_zones import load_zone
from hermes.db.scoped_store import ScopedStore
from hermes.gateway.ops.key_file import KeyLimits
from hermes.gateway.sessions.daily_limit import find_day, find_month
from hermes.insights.number_format import format_dollars, format_plural
from hermes.server.api_errors import DO_NOT_RETRY, Refused
from hermes.server.api_keys import Person


def check_budget(person: Person, store: ScopedStore, zone: str | None) -> None:
    """Raise a 429 error if the API key of the person has used up its budget. The day and the month of the budget begin
    at midnight in the time zone `zone`. Reads the store."""
    limits, now = person.limits, clock.now()
    place = load_zone(zone)
    budgets = (
        ("today", find_day(now, place), limits.cost_per_day, limits.tokens_per_day),
        ("this month", find_month(now, place), limits.cost_per_month, limits.tokens_per_month),
    )
    for period, (begin, end), cost, tokens in budgets:
        if cost is None and tokens is None:
            continue
        spent = store.usage_of_owner(person.principal.person or "", begin)
        if cost is not None and spent.cost_usd >= cost:
            raise _refuse(f"{format_dollars(cost)} for {period}", end - now)
        if tokens is not None and spent.tokens >= tokens:
            raise _refuse(f"{format_plural(tokens, 'token')} for {period}", end - now)


def has_budget(limits: KeyLimits) -> bool:
    budgets = (limits.cost_per_day, limits.cost_per_month, limits.tokens_per_day, limits.tokens_per_month)
    return any(budget is not None for budget in budgets)


def _refuse(budget: str, seconds: float) -> Refused:
    headers = {**DO_NOT_RETRY, "Retry-After": str(math.ceil(max(1.0, seconds)))}
    return Refused(
        429, f"this key has used its budget of {budget}", code="insufficient_quota", headers=headers
    )
