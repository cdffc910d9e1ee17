"""The tiers of tests: `make test-fast`, `make test` and `make test-full` run `pytest --tier fast`, `test` and `full`.

`fast`  for frequent runs: the tests of `test` without the modules in `slow_modules.txt`. That list is generated from
        measured times (`python -m tools.slow_modules`).
`test`  every test without the mark `full`.
`full`  the tests that `test` leaves out: those with the mark `full`, and all property tests again, with many more
        examples.

A test gets the mark `full` if it needs a separate server or a real model, kills a process at every step, lets
several processes damage the files of a store, or repeats another test with many more inputs.
Without `--tier`, pytest runs everything that it is asked to run.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Literal, get_args

Tier = Literal["fast", "test", "full"]
TIERS: tuple[Tier, ...] = get_args(Tier)
EXAMPLES: dict[Tier, int] = {"fast": 10, "test": 25, "full": 300}
"""The number of examples for a property test that does not set its own."""
PROFILE = "HYPOTHESIS_PROFILE"
"""The environment variable with the tier that determines the number of examples. `--tier` sets the variable;
it can also be set without `--tier`."""
TESTS = Path(__file__).parent
SLOW_MODULES = TESTS / "slow_modules.txt"


def is_in_tier(tier: Tier, markers: Collection[str]) -> bool:
    """Return whether a test with the marks `markers` runs in `tier`. Property tests have the mark
    `hypothesis`."""
    if tier == "full":
        return "full" in markers or "hypothesis" in markers
    return "full" not in markers


def is_slow(file: Path) -> bool:
    """Return whether the tier `fast` leaves out this test module."""
    return (
        file.is_relative_to(TESTS.parent) and file.relative_to(TESTS.parent).as_posix() in read_slow_modules()
    )


@cache
def read_slow_modules() -> frozenset[str]:
    lines = SLOW_MODULES.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def scale_examples(in_full: int) -> int:
    """Return the number of examples to try in the current tier. `in_full` is the number in the tier
    `full`."""
    profile = os.environ.get(PROFILE, "test")
    return max(1, in_full * next(EXAMPLES[tier] for tier in TIERS if tier == profile) // EXAMPLES["full"])
