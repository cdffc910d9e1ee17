"""The call map: which tests call which functions, and which tests to run for a mutant."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.mutation.mutants import Mutant


@dataclass(frozen=True)
class CallMap:
    durations: dict[str, float]
    """The duration of each test that passes without a mutant, in seconds."""
    callers: dict[str, list[str]]
    """For each function, the tests that call it."""

    def list_tests(self, mutant: Mutant, seconds: float) -> list[str]:
        """Return the tests to run, the most promising first. The list ends when the tests take `seconds` in total.

        The tests that call the mutated function come first, then the other tests of their modules: they may use what
        a fixture of the module has made with that function. If no test calls the function (the code runs when the
        module is imported), these are the tests that call any function of the same file.
        """
        callers = self._list_callers(mutant)
        modules = {_get_module(test) for test in callers}
        others = [test for test in self.durations if _get_module(test) in modules and test not in callers]
        chosen: list[str] = []
        for test in (*self._sort(callers), *self._sort(others)):
            seconds -= self.durations[test]
            if chosen and seconds < 0:
                break
            chosen.append(test)
        return chosen

    def _list_callers(self, mutant: Mutant) -> set[str]:
        found = set(self.callers.get(f"{mutant.file}:{mutant.function}", ()))
        if not found:
            start = f"{mutant.file}:"
            found.update(*(tests for name, tests in self.callers.items() if name.startswith(start)))
        return found & self.durations.keys()

    def _sort(self, tests: Iterable[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self.durations[test], test))

    @classmethod
    def read(cls, file: Path) -> CallMap:
        return cls(**json.loads(file.read_text(encoding="utf-8")))

    def write(self, file: Path) -> None:
        content = {"durations": self.durations, "callers": self.callers}
        file.write_text(json.dumps(content), encoding="utf-8")

    @classmethod
    def collect(cls, record: Path, durations: Path) -> CallMap:
        """Put together what `recorder` and `coverage_map` wrote."""
        callers: dict[str, set[str]] = {}
        with record.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                test, _, function = line.rstrip("\n").partition("\t")
                callers.setdefault(function, set()).add(test)
        return cls(
            {
                test: duration
                for file in durations.iterdir()
                for test, duration in json.loads(file.read_text(encoding="utf-8")).items()
            },
            {function: sorted(tests) for function, tests in callers.items()},
        )


def _get_module(test: str) -> str:
    return test.partition("::")[0]
