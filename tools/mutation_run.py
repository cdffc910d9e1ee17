"""Makes small changes to the source, one at a time, and counts how many of them make a test fail.

    python -m tools.mutation_run [--tree FOLDER] [--mutants 100] [--folders store,recall,gateway] [--seed 19]

The program works on a temporary copy of the tree. With the same seed, it selects the same mutants. First it
runs all tests once, to record which tests call which functions; `--map FILE` keeps the record for the next
run. Then, for each mutant, it runs the tests that call the changed function, the fastest first, until one
fails. A mutant that makes a test hang counts as killed.

To compare the tests of two trees with the same sources, run the program on both. The new tests must kill
every mutant that the old tests kill.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tools.mutation.mutants import Mutant, choose_mutants

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build"
)

Outcome = Literal["killed", "hung", "survived", "not called"]
CallMap = dict[str, tuple[float, list[str]]]
"""For each test that passes: its duration and the functions that it calls."""


@dataclass(frozen=True)
class Workplace:
    """A copy of a tree in which pytest runs."""

    tree: Path
    python: Path
    jobs: int

    def run_tests(self, *arguments: str, timeout: float | None = None, **environment: str) -> tuple[int, str]:
        """Run pytest and return (exit code, output). All processes that pytest started are ended.

        Raise `subprocess.TimeoutExpired` after `timeout` seconds. Temporary files are written to a folder of
        the copy, which the next run empties.
        """
        started = subprocess.Popen(
            [
                *(str(self.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"),
                *(
                    "-n",
                    str(self.jobs),
                    "--basetemp",
                    str(self.tree / ".temporary"),
                    "--hypothesis-seed",
                    "0",
                ),
                *arguments,
            ],
            cwd=self.tree,
            env={
                **{
                    name: value
                    for name, value in os.environ.items()
                    if name not in {"CI", "HYPOTHESIS_PROFILE"}
                },
                "PYTHONPATH": os.pathsep.join((str(self.tree / "src"), str(self.tree))),
                "PYTHONDONTWRITEBYTECODE": "1",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = started.communicate(timeout=timeout)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
        return started.returncode, output


def learn_calls(workplace: Workplace, marker: str, tests: list[str]) -> CallMap:
    """Run the tests once without a mutant, and record the calls."""
    with tempfile.TemporaryDirectory() as records:
        _, output = workplace.run_tests(
            *("-p", "tools.mutation.coverage_map", "-m", marker, *tests),
            HERMES_MAP=records,
            HERMES_MAP_SOURCES=str(workplace.tree / "src"),
        )
        print(output.rstrip().rpartition("\n")[2], flush=True)
        calls: CallMap = {}
        for file in Path(records).iterdir():
            calls |= json.loads(file.read_text(encoding="utf-8"))
    if not calls:
        raise SystemExit(f"no test passed:\n{output}")
    return calls


def list_tests(mutant: Mutant, calls: CallMap, seconds: float) -> list[str]:
    """Return the tests that call the mutated function, the fastest first. The tests take at most about
    `seconds` in total.

    For a change outside of functions, return the tests that call any function of the module.
    """
    start = f"{mutant.file}:{mutant.function or ''}"
    found = sorted(
        (duration, test)
        for test, (duration, functions) in calls.items()
        if any(name == start or (mutant.function is None and name.startswith(start)) for name in functions)
    )
    chosen: list[str] = []
    for duration, test in found:
        seconds -= duration
        if chosen and seconds < 0:
            break
        chosen.append(test)
    return chosen


def judge(mutant: Mutant, calls: CallMap, workplace: Workplace, seconds: float) -> tuple[Outcome, str]:
    """Put a mutant into the copy, run the tests that call it, and restore the file. Return the outcome and a
    detail, such as the test that killed the mutant."""
    tests = list_tests(mutant, calls, seconds)
    if not tests:
        return "not called", ""
    path = workplace.tree / "src" / mutant.file
    source = path.read_bytes()
    listing = workplace.tree / ".tests"
    listing.write_text("\n".join(tests), encoding="utf-8")
    path.write_bytes(mutant.apply(source))
    try:
        code, output = workplace.run_tests("-x", f"@{listing}", timeout=60 + 3 * seconds)
    except subprocess.TimeoutExpired:
        return "hung", ""
    finally:
        path.write_bytes(source)
    if code == 0:
        return "survived", f"{len(tests)} tests"
    first = next((line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    return "killed", first.partition(" - ")[0]


def report(outcomes: list[tuple[Mutant, Outcome]]) -> str:
    lines = []
    folders = list(dict.fromkeys(mutant.folder for mutant, _ in outcomes))
    for folder in folders:
        counts = Counter(outcome for mutant, outcome in outcomes if mutant.folder == folder)
        killed = counts["killed"] + counts["hung"]
        detail = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        lines.append(f"{folder}: {killed} of {counts.total()} killed ({detail})")
    killed = sum(outcome in {"killed", "hung"} for _, outcome in outcomes)
    return "\n".join((*lines, f"all: {killed} of {len(outcomes)} killed"))


def main() -> None:
    options = read_options()
    sources = options.tree / "src"
    mutants = choose_mutants(sources, options.folders.split(","), options.mutants, options.seed)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.file}:{mutant.line}: {mutant.kind}: {mutant.text}")
        return
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(options.tree, tree, ignore=LEFT_OUT, symlinks=True)
        shutil.copytree(ROOT / "tools", tree / "tools", dirs_exist_ok=True, ignore=LEFT_OUT)
        workplace = Workplace(
            tree, (options.python or options.tree / ".venv/bin/python").absolute(), options.jobs
        )
        if options.map is not None and options.map.exists():
            calls: CallMap = json.loads(options.map.read_text(encoding="utf-8"))
        else:
            calls = learn_calls(workplace, options.marker, options.tests.split())
            if options.map is not None:
                options.map.write_text(json.dumps(calls), encoding="utf-8")
        print(f"{len(mutants)} mutants, {len(calls)} tests", flush=True)
        outcomes: list[tuple[Mutant, Outcome]] = []
        for mutant in mutants:
            started = time.monotonic()
            outcome, detail = judge(mutant, calls, workplace, options.seconds)
            outcomes.append((mutant, outcome))
            taken = f"{time.monotonic() - started:.0f} s"
            print(f"{outcome}: {mutant.file}:{mutant.line}: {mutant.kind} ({taken}) {detail}", flush=True)
    print(report(outcomes))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Count how many small changes of the source the tests notice."
    )
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="the tree with the sources and tests (default: this one)"
    )
    parser.add_argument(
        "--python", type=Path, help="the interpreter that runs the tests (default: that in .venv of the tree)"
    )
    parser.add_argument("--mutants", type=int, default=100, help="the number of mutants (default: 100)")
    parser.add_argument(
        "--folders", default="store,recall,gateway", help="the folders of hermes in which code is changed"
    )
    parser.add_argument(
        "--seed", type=int, default=19, help="the seed that selects the mutants (default: 19)"
    )
    parser.add_argument(
        "--marker", default="", help="only tests with this marker expression, such as 'not full'"
    )
    parser.add_argument(
        "--tests", default="", help="only tests in these folders or files, such as 'tests/store'"
    )
    parser.add_argument("--map", type=Path, help="the file that keeps the record of calls between runs")
    parser.add_argument(
        "--jobs", type=int, default=2, help="the number of processes that run tests (default: 2)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=120,
        help="the seconds that the tests of a mutant may take (default: 120)",
    )
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    return parser.parse_args()


if __name__ == "__main__":
    main()
