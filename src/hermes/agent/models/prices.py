"""The cost of a model call, and the source of the figure.

    actual     the provider reported the cost
    estimated  computed from a price list: config.yaml, or the dated list in this package
    included   the model ran on the user's own machine or network, where no provider charges for it
    unknown    all other calls; unknown is not zero

A local server can forward requests to a paid provider. If the price of a model is known, the cost is
therefore estimated even for a local server.
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
"""Maps each field of `Used` with a token count to the name of its rate in a price list."""
UNKNOWN: tuple[None, Mapping[str, Any]] = (None, {"cost_status": "unknown"})


def make_price(
    base_url: str | None, own: Mapping[str, Mapping[str, float]] | None = None, *, at: float | None = None
) -> Price:
    """Return a function that computes the cost of a call to a model at the address `base_url`. None as `base_url`
    means that the model runs inside this program.

    `own` contains the prices from config.yaml by model name. `at` is the time at which the prices apply; the
    default is now.
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
    """Computes the price of a call for every model in use. The price depends on the model and on the model's
    address."""

    def __init__(self, own: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self._own = own
        self._places: dict[str, str | None] = {}

    def know(self, model: Model) -> Model:
        """Register the addresses of a model and of its fallbacks, so that their prices can be computed. Return the
        model."""
        for known in getattr(model, "models", (model,)):
            place = self._places.get(known.name, known.base_url)
            # If a model is available on this machine and at a provider, use the price of the provider.
            if place is None or is_local(place):
                place = known.base_url
            self._places[known.name] = place
        return model

    def __call__(self, model: str, used: Used) -> tuple[float | None, Mapping[str, Any]]:
        return make_price(self._places.get(model, ""), self._own)(model, used)


def find_window(model: str) -> int | None:
    """Return the context window of a well-known model; None if the model is not in the list."""
    entry = _find_entry(model)
    return None if entry is None else entry.get("context")


def _estimate_cost(
    rates: Mapping[str, float] | None, used: Used, source: str, version: str
) -> tuple[float | None, Mapping[str, Any]]:
    """Return the cost of the tokens in `used` at these rates, and the columns of `model_usage` that say how the
    cost was computed.

    The cost is None, that is, unknown, if the tokens were not counted or if one kind of token has no rate.
    """
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
    """Return the rates in an entry of the price list that apply at the time `at` to a prompt of the length in
    `used`. Return None if the rates have expired or are not known.

    Some providers charge more for long prompts, or have rates for a limited time.
    """
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
    """Return the entry for a model in the price list; None if the list does not have it. The name may be
    spelled in any known way."""
    if ":" in model:  # a variant such as `:free` has its own price
        return None
    found: Mapping[str, Any] | None = _index_by_name().get(_normalise_name(model))
    return found


def _normalise_name(model: str) -> str:
    """Return a model name without its provider and date, with hyphens instead of dots.

    `anthropic/claude-opus-4.5` and `claude-opus-4-5-20251101` give the same name.
    """
    name = model.strip().lower().rpartition("/")[2].replace(".", "-")
    return re.sub(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest|preview(-\d{2}-\d{2,4})?)$", "", name)


@cache
def _load_list() -> Any:
    import json

    return json.loads((Path(__file__).with_name("models.json")).read_text(encoding="utf-8"))


@cache
def _index_by_name() -> dict[str, Any]:
    return {_normalise_name(name): entry for name, entry in _load_list()["models"].items()}
