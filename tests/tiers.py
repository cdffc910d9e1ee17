"""Which tests run when: `make test-fast`, `make test` and `make test-full` are `pytest --tier fast`, `test` and `full`.

`fast`  for the inner loop: what `test` runs, without the modules in `slow_modules.txt`. That list is made from measured
        times (`python -m tools.slow_modules`).
`test`  every test without the mark `full`.
`full`  what `test` leaves out: tests with the mark `full`, and all property tests again, with many more examples.

The mark `full` stands at a test that needs a server or a model of its own, kills a process at every step, or does what
another test does with many more inputs. Without `--tier`, pytest runs all it is given.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Literal, get_args

Tier = Literal["fast", "test", "full"]
TIERS: tuple[Tier, ...] = get_args(Tier)
EXAMPLES: dict[Tier, int] = {"fast": 10, "test": 50, "full": 300}
"""How many examples a property test tries that asks for no number of its own."""
PROFILE = "HYPOTHESIS_PROFILE"
"""The variable that names the tier whose number of examples is used. `--tier` sets it; it also works alone."""
TESTS = Path(__file__).parent
SLOW_MODULES = TESTS / "slow_modules.txt"


def is_in_tier(tier: Tier, markers: Collection[str]) -> bool:
    """Whether a test with these marks runs in that tier. Hypothesis marks its tests `hypothesis`."""
    if tier == "full":
        return "full" in markers or "hypothesis" in markers
    return "full" not in markers


def is_slow(file: Path) -> bool:
    """Whether a module of tests is left out in the tier `fast`."""
    return (
        file.is_relative_to(TESTS.parent) and file.relative_to(TESTS.parent).as_posix() in read_slow_modules()
    )


@cache
def read_slow_modules() -> frozenset[str]:
    lines = SLOW_MODULES.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def scale_examples(in_full: int) -> int:
    """How many examples to try now, for a test that tries `in_full` in the tier `full`."""
    profile = os.environ.get(PROFILE, "test")
    return max(1, in_full * next(EXAMPLES[tier] for tier in TIERS if tier == profile) // EXAMPLES["full"])
