"""Make a hundred small changes to the source, one at a time, and count how many of them make a test fail.

    python -m tools.mutation_run --python PYTHON3.12 [--tree FOLDER] [--mutants 100] [--seed 19] [--map FILE]

The program works on a temporary copy of the tree, and selects the same mutants every time. First all tests
run once, to record which tests call which functions; `--map FILE` keeps the record for the next run. This needs
Python 3.12, where recording costs little. Then, for each mutant, the tests that call the changed function run, the
fastest first, until one fails. A mutant that hangs counts as killed.

To compare the tests of two trees, change only what both contain, and keep the outcomes:

    python -m tools.mutation_run --tree NEW --same-as OLD --outcomes new.json
    python -m tools.mutation_run --tree OLD --same-as NEW --outcomes old.json --compare new.json

The second run begins with the mutants that survive the new tests, and ends with a list of those that only the old tests
kill: behaviour that is no longer tested. A run that was interrupted continues from its file of outcomes.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tools.mutation.call_map import CallMap
from tools.mutation.mutants import Mutant, choose_mutants

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build"
)

LEFT_OUT_VARIABLES = frozenset({"CI", "HYPOTHESIS_PROFILE", "PYTHONDONTWRITEBYTECODE"})
REPETITIONS = 3
"""How often a test that killed a mutant must pass without the mutant."""
TEST_TIMEOUT = 60
"""Seconds for one test. A test that hangs with a mutant has killed it."""
START_RECORDER = """\
from tools.mutation import recorder
recorder.start({record!r}, {sources!r})
"""
"""The `sitecustomize.py` of all processes of the run that records calls."""

Outcome = Literal["killed", "hung", "survived", "not called"]
Outcomes = dict[str, Outcome]
"""The outcome of each mutant, by its name."""
KILLED: frozenset[Outcome] = frozenset({"killed", "hung"})


@dataclass(frozen=True)
class Workplace:
    """A copy of a tree in which pytest runs."""

    tree: Path
    python: Path
    jobs: int

    @property
    def startup(self) -> Path:
        """The folder of a `sitecustomize.py`, which every Python runs when it starts."""
        return self.tree / ".startup"

    def compile_sources(self) -> None:
        """Compile the modules such that Python recognizes a changed source by its content. A mutant can have the size
        and the time of the original."""
        subprocess.run(
            [
                self.python,
                "-m",
                "compileall",
                "-qq",
                "--invalidation-mode",
                "checked-hash",
                self.tree / "src",
            ],
            check=True,
        )

    def run_tests(self, *arguments: str, timeout: float | None = None, **environment: str) -> tuple[int, str]:
        """Run pytest and return (exit code, output). All processes that it started are ended.

        Raises `subprocess.TimeoutExpired`. Temporary files are in a folder of the copy, which the next run
        empties.
        """
        started = subprocess.Popen(
            [
                *(str(self.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"),
                *("-n", str(self.jobs if self.jobs > 1 else 0), "--timeout", str(TEST_TIMEOUT)),
                *("--basetemp", str(self.tree / ".temporary"), "--hypothesis-seed", "0"),
                *arguments,
            ],
            cwd=self.tree,
            env={
                **{name: value for name, value in os.environ.items() if name not in LEFT_OUT_VARIABLES},
                "PYTHONPATH": os.pathsep.join(map(str, (self.startup, self.tree / "src", self.tree))),
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
    with tempfile.TemporaryDirectory() as folder:
        record, durations = Path(folder, "calls.txt"), Path(folder, "durations")
        durations.mkdir()
        workplace.startup.mkdir()
        (workplace.startup / "sitecustomize.py").write_text(
            START_RECORDER.format(record=str(record), sources=str(workplace.tree / "src")), encoding="utf-8"
        )
        _, output = workplace.run_tests(
            *("-p", "tools.mutation.coverage_map", "-m", marker, *tests), HERMES_DURATIONS=str(durations)
        )
        shutil.rmtree(workplace.startup)
        print(output.rstrip().rpartition("\n")[2], flush=True)
        if not record.exists() or not any(durations.iterdir()):
            raise SystemExit(f"no test passed:\n{output}")
        return CallMap.collect(record, durations)


def judge(mutant: Mutant, calls: CallMap, workplace: Workplace, seconds: float) -> tuple[Outcome, str]:
    """Run the tests that call a mutant. Return the outcome and a detail, such as the test that killed the mutant.

    A test that does not fail again, or also fails without the mutant, depends on chance or on the load of the machine.
    It is left out from then on.
    """
    while tests := calls.list_tests(mutant, seconds):
        try:
            with put_into(workplace, mutant):
                killer = find_failure(workplace, tests, seconds)
                fails_again = killer is not None and find_failure(workplace, [killer], seconds) is not None
        except subprocess.TimeoutExpired:
            return "hung", ""
        if killer is None:
            return "survived", f"{len(tests)} tests"
        repeated = (find_failure(workplace, [killer], seconds) for _ in range(REPETITIONS))
        if killer not in tests or (fails_again and not any(repeated)):
            return "killed", killer
        del calls.durations[killer]
    return "not called", ""


@contextmanager
def put_into(workplace: Workplace, mutant: Mutant) -> Iterator[None]:
    """Change the file of a mutant during the block."""
    path = workplace.tree / "src" / mutant.file
    source = path.read_bytes()
    path.write_bytes(mutant.apply(source))
    try:
        yield
    finally:
        path.write_bytes(source)


def find_failure(workplace: Workplace, tests: list[str], seconds: float) -> str | None:
    """Return the first test that fails, or the file that cannot be imported. None means that all tests pass."""
    listing = workplace.tree / ".tests"
    listing.write_text("\n".join(tests), encoding="utf-8")
    code, output = workplace.run_tests("-x", f"@{listing}", timeout=60 + 3 * seconds)
    if code == 0:
        return None
    for line in output.rpartition("short test summary info")[2].splitlines():
        verdict, _, rest = line.partition(" ")
        if verdict in {"FAILED", "ERROR"}:
            return rest.partition(" - ")[0]
    return "pytest"


def report(mutants: list[Mutant], outcomes: Outcomes) -> str:
    lines = []
    for folder in dict.fromkeys(mutant.folder for mutant in mutants):
        counts = Counter(outcomes[mutant.name] for mutant in mutants if mutant.folder == folder)
        killed = sum(counts[outcome] for outcome in KILLED)
        detail = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        lines.append(f"{folder}: {killed} of {counts.total()} killed ({detail})")
    killed = sum(outcomes[mutant.name] in KILLED for mutant in mutants)
    return "\n".join((*lines, f"all: {killed} of {len(mutants)} killed"))


def compare(mutants: list[Mutant], outcomes: Outcomes, others: Outcomes) -> str:
    """Return how many mutants the tests of both trees kill, and which ones only the tests of one tree."""
    ours, theirs = (
        {name for name, outcome in some.items() if outcome in KILLED} for some in (outcomes, others)
    )
    compared = [mutant for mutant in mutants if mutant.name in others]
    lines = [f"both: {len(ours & theirs)} of {len(compared)} killed"]
    for title, names in (("only these tests", ours - theirs), ("only the other tests", theirs - ours)):
        only = [mutant for mutant in compared if mutant.name in names]
        lines.append(f"{title}: {len(only)} killed")
        lines += (f"  {mutant.file}:{mutant.line}: {mutant.kind}: {mutant.text}" for mutant in only)
    return "\n".join(lines)


def read_outcomes(file: Path | None) -> Outcomes:
    if file is None or not file.exists():
        return {}
    outcomes: Outcomes = json.loads(file.read_text(encoding="utf-8"))
    return outcomes


def main() -> None:
    options = read_options()
    sources = options.tree / "src"
    other_sources = options.same_as and options.same_as / "src"
    mutants = choose_mutants(
        sources, options.folders.split(","), options.mutants, options.seed, other_sources
    )
    if options.list:
        for mutant in mutants:
            print(f"{mutant.file}:{mutant.line}: {mutant.kind}: {mutant.text}")
        return
    outcomes, others = read_outcomes(options.outcomes), read_outcomes(options.compare)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(options.tree, tree, ignore=LEFT_OUT, symlinks=True)
        shutil.copytree(ROOT / "tools", tree / "tools", dirs_exist_ok=True, ignore=LEFT_OUT)
        python = options.python or options.tree / ".venv/bin/python"
        workplace = Workplace(tree, python.absolute(), options.jobs)
        workplace.compile_sources()
        if options.map is not None and options.map.exists():
            calls = CallMap.read(options.map)
        else:
            calls = learn_calls(workplace, options.marker, options.tests.split())
            if options.map is not None:
                calls.write(options.map)
        print(f"{len(mutants)} mutants, {len(calls.durations)} tests", flush=True)
        # First what the other tests do not kill: only there can these tests show that behaviour was lost.
        for mutant in sorted(mutants, key=lambda mutant: others.get(mutant.name) in KILLED):
            if mutant.name in outcomes:
                continue
            started = time.monotonic()
            outcomes[mutant.name], detail = judge(mutant, calls, workplace, options.seconds)
            taken = f"{time.monotonic() - started:.0f} s"
            print(
                f"{outcomes[mutant.name]}: {mutant.file}:{mutant.line}: {mutant.kind} ({taken}) {detail}",
                flush=True,
            )
            if options.outcomes is not None:
                options.outcomes.write_text(json.dumps(outcomes, indent=1), encoding="utf-8")
    print(report(mutants, outcomes))
    if others:
        print(compare(mutants, outcomes, others))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Count how many small changes of the source the tests notice."
    )
    parser.add_argument("--tree", type=Path, default=ROOT, help="whose sources and tests (default: this one)")
    parser.add_argument(
        "--python",
        type=Path,
        help="Python 3.12 or newer with what the tests need (default: .venv of the tree)",
    )
    parser.add_argument(
        "--same-as", type=Path, metavar="TREE", help="change only functions that are the same in this tree"
    )
    parser.add_argument("--mutants", type=int, default=100, help="how many mutants (default: 100)")
    parser.add_argument(
        "--folders", default="store,recall,gateway", help="which folders of hermes are changed"
    )
    parser.add_argument("--seed", type=int, default=19, help="chooses the mutants (default: 19)")
    parser.add_argument(
        "--marker", default="", help="only tests with this marker expression, such as 'not full'"
    )
    parser.add_argument(
        "--tests", default="", help="only tests in these folders or files, such as 'tests/store'"
    )
    parser.add_argument("--map", type=Path, help="keep what tests call in this file, and take it from there")
    parser.add_argument(
        "--outcomes", type=Path, help="keep the outcome of each mutant in this file, and continue from there"
    )
    parser.add_argument(
        "--compare", type=Path, metavar="OUTCOMES", help="show which mutants only the tests of one tree kill"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many processes run tests (default: 2)")
    parser.add_argument(
        "--seconds", type=float, default=120, help="seconds of tests per mutant (default: 120)"
    )
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    return parser.parse_args()


if __name__ == "__main__":
    main()
