"""What a model call costs, and how that is known.

    actual     the provider said so
    estimated  from a price list: that of config.yaml, else the dated one beside this file
    included   it ran on a machine of one's own, from where no bill comes; its power is not counted
    unknown    everything else, which is not the same as nothing

A server at home may still pass requests on to somebody who bills: so a model that has a price is estimated there, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.agent.models.endpoints import is_local
from hermes.agent.models.model import Used

if TYPE_CHECKING:
    from hermes.agent.models.model import Model, Price

MILLION = 1_000_000
KINDS = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
}
UNKNOWN: tuple[None, Mapping[str, Any]] = (None, {"cost_status": "unknown"})


def make_price(
    base_url: str | None, own: Mapping[str, Mapping[str, float]] | None = None, *, at: float | None = None
) -> Price:
    """What calls at an address cost (None: a model inside this program); `own` are the prices of config.yaml.

    `at` is the moment whose prices count; now, if it is not told.
    """
    is_own = base_url is None or is_local(base_url)
    listed = {_normalise_name(name): rates for name, rates in (own or {}).items()}

    def compute_price(model: str, used: Used) -> tuple[float | None, Mapping[str, Any]]:
        if used.cost_usd is not None:
            details = {"actual_cost_usd": used.cost_usd, "cost_status": "actual", "cost_source": "provider"}
            return used.cost_usd, details
        if (rates := listed.get(_normalise_name(model))) is not None:
            return _estimate_cost(rates, used, "config.yaml", "config")
        if (entry := _find_entry(model)) is not None:
            return _estimate_cost(
                _choose_rates(entry, used, clock.now() if at is None else at),
                used,
                "list",
                _load_list()["version"],
            )
        if is_own:
            return 0.0, {"cost_status": "included", "cost_source": "local"}
        return UNKNOWN

    return compute_price


class Prices:
    """The price of a call, whichever of the models was asked: each where it is."""

    def __init__(self, own: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self._own = own
        self._places: dict[str, str | None] = {}

    def know(self, model: Model) -> Model:
        """Remember where a model is; the same model."""
        self._places[model.name] = model.base_url
        return model

    def __call__(self, model: str, used: Used) -> tuple[float | None, Mapping[str, Any]]:
        return make_price(self._places.get(model, ""), self._own)(model, used)


def find_window(model: str) -> int | None:
    """How many tokens a well-known model takes."""
    entry = _find_entry(model)
    return None if entry is None else entry.get("context")


def _estimate_cost(
    rates: Mapping[str, float] | None, used: Used, source: str, version: str
) -> tuple[float | None, Mapping[str, Any]]:
    """What the tokens cost at these prices; unknown if they were not counted, or one kind of them has no price."""
    if rates is None or used.input_tokens is None or used.output_tokens is None:
        return UNKNOWN
    cost = 0.0
    for name, kind in KINDS.items():
        count = getattr(used, name)
        if count:
            if kind not in rates:
                return UNKNOWN
            cost += count * rates[kind] / MILLION
    return cost, {
        "estimated_cost_usd": cost,
        "cost_status": "estimated",
        "cost_source": source,
        "pricing_version": version,
    }


def _choose_rates(entry: Mapping[str, Any], used: Used, at: float) -> Mapping[str, float] | None:
    """Prices for a prompt of this length; some providers ask more for long ones, or less for a while."""
    until = entry.get("until")
    if until is not None and at >= _parse_day_end(until):
        return None
    if "up_to" in entry and (used.prompt_tokens or 0) > entry["up_to"]:
        above: Mapping[str, float] | None = entry.get("above")
        return above
    return entry


def _parse_day_end(day: str) -> float:
    from datetime import UTC, datetime, time, timedelta

    return datetime.combine(date.fromisoformat(day) + timedelta(days=1), time(), UTC).timestamp()


def _find_entry(model: str) -> Mapping[str, Any] | None:
    """The line of the list for a model, under any of the names that it goes by."""
    if ":" in model:  # a variant of a name, such as `:free`, has a price of its own
        return None
    found: Mapping[str, Any] | None = _index_by_name().get(_normalise_name(model))
    return found


def _normalise_name(model: str) -> str:
    """A name without its provider, date and spelling: `anthropic/claude-opus-4.5` and `claude-opus-4-5-20251101`."""
    name = model.strip().lower().rpartition("/")[2].replace(".", "-")
    return re.sub(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest|preview(-\d{2}-\d{2,4})?)$", "", name)


@cache
def _load_list() -> Any:
    import json

    return json.loads((Path(__file__).with_name("models.json")).read_text(encoding="utf-8"))


@cache
def _index_by_name() -> dict[str, Any]:
    return {_normalise_name(name): entry for name, entry in _load_list()["models"].items()}
