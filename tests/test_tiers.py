"""No test is left out: each belongs to `make test` or to `make test-full`, and CI runs both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import chain, combinations
from pathlib import Path

import pytest

from tests import tiers
from tests.tiers import TIERS, is_in_tier

ROOT = Path(__file__).parents[1]
MARKERS = ("full", "hypothesis", "sqlite", "parametrize")
COMBINATIONS = list(chain.from_iterable(combinations(MARKERS, size) for size in range(len(MARKERS) + 1)))

MODULE = """
import pytest
from hypothesis import given, strategies

def test_plain(): pass

@pytest.mark.full
def test_full(): pass

@given(strategies.integers())
def test_property(number): pass
"""


def read_command(target: str) -> str:
    """Return the recipe of a target in the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:.*\n\t(.+)$", makefile, re.MULTILINE)
    assert found is not None
    return found[1]


def test_a_test_with_any_marks_runs_in_test_or_in_full() -> None:
    for markers in COMBINATIONS:
        assert is_in_tier("test", markers) or is_in_tier("full", markers), markers


def test_only_property_tests_run_in_both() -> None:
    for markers in COMBINATIONS:
        is_in_both = is_in_tier("test", markers) and is_in_tier("full", markers)
        assert is_in_both == ("hypothesis" in markers and "full" not in markers), markers


def test_by_its_marks_fast_runs_what_test_runs() -> None:
    for markers in COMBINATIONS:
        assert is_in_tier("fast", markers) == is_in_tier("test", markers), markers


def test_each_target_runs_its_tier_and_ci_runs_test_and_full() -> None:
    targets = {"fast": "test-fast", "test": "test", "full": "test-full"}
    assert targets.keys() == set(TIERS)
    for tier, target in targets.items():
        assert read_command(target) == f"$(PYTEST) --tier {tier} $(ARGS)"
    steps = [line.strip() for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]
    assert {"make lint", "make test", "make test-full"} <= {*steps}
    # In CI, `make coverage` may run instead of `make test`. It runs the same tests.
    assert steps[steps.index("make test") - 2 : steps.index("make test") + 2] == [
        *("make coverage", "else", "make test", "fi")
    ]
    assert re.search(r"^coverage: test\b", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_listed_slow_module_exists() -> None:
    for module in tiers.read_slow_modules():
        assert (ROOT / module).is_file(), f"{module} is gone: take it out of {tiers.SLOW_MODULES.name}"
        assert tiers.is_slow(ROOT / module)
    assert not tiers.is_slow(Path(__file__).with_name("test_text.py"))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ((), ["test_full", "test_plain", "test_property"]),
        (("--tier", "fast"), ["test_plain", "test_property"]),
        (("--tier", "test"), ["test_plain", "test_property"]),
        (("--tier", "full"), ["test_full", "test_property"]),
    ],
)
def test_the_option_selects_the_tests_of_a_tier(
    tmp_path: Path, options: tuple[str, ...], names: list[str]
) -> None:
    (tmp_path / "test_it.py").write_text(MODULE, encoding="utf-8")
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--collect-only",
                "-p",
                "no:cacheprovider",
                "-p",
                "tests.conftest",
            ),
            *("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), *options, str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r"::(\w+)", done.stdout)) == names


def test_examples_grow_with_the_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for tier in TIERS:
        monkeypatch.setenv(tiers.PROFILE, tier)
        counts.append(tiers.scale_examples(150))
    assert counts == [5, 12, 150]
    monkeypatch.setenv(tiers.PROFILE, "fast")
    assert tiers.scale_examples(10) == 1
