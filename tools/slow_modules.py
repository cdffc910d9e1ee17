"""Writes `tests/slow_modules.txt` from the times of a test run.

    make test ARGS="--junitxml report.xml"
    python -m tools.slow_modules report.xml

A module is slow if its tests take longer than `LIMIT_S` seconds on average, including their fixtures. `make
test-fast` leaves out the listed modules.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "slow_modules.txt"
LIMIT_S = 0.06
HEAD = """\
# Modules that `make test-fast` leaves out, because their tests took long when they were measured.
# Written by `python -m tools.slow_modules`, see there.
"""


def read_times(report: Path) -> dict[str, list[float]]:
    """Return the times of the tests in a JUnit report, by module."""
    times: dict[str, list[float]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        times.setdefault(_find_module(case.get("classname", "")), []).append(float(case.get("time", "0")))
    return times


def _find_module(dotted: str) -> str:
    """Return the file of a dotted name such as `tests.store.test_trash`, or of a class in that module."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        file = Path(*parts[:length]).with_suffix(".py")
        if (ROOT / file).is_file():
            return file.as_posix()
    raise SystemExit(f"slow_modules: there is no file of {dotted}")


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("slow_modules: name a JUnit report of `make test`")
    times = read_times(Path(sys.argv[1]))
    slow = sorted(module for module, seconds in times.items() if sum(seconds) / len(seconds) > LIMIT_S)
    LIST.write_text(HEAD + "".join(f"{module}\n" for module in slow), encoding="utf-8")
    quick = [second for module in times.keys() - slow for second in times[module]]
    print(
        f"{len(slow)} of {len(times)} modules are slow; the {len(quick)} tests of the others take {sum(quick):.0f} s"
    )


if __name__ == "__main__":
    main()
