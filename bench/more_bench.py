"""Measurements that store_bench.py does not make. The result is one table, with ratios within one run:

- threads of one process that share commits, compared with one thread;
- the memory of the streaming export, compared with the size of the exported text;
- the CPU time of `hermes sessions list` over 1,000 sessions, compared with `python -c pass`.

    .venv/bin/python bench/more_bench.py [--messages 20000]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from hermes_state import SessionDB

TEXT = "the retry budget is three attempts, then tell the person what happened and how to go on. " * 13


def threads_rate(folder: Path, threads: int, messages: int) -> float:
    """Return how many durable appends per second all threads achieve together."""
    with SessionDB(folder / f"threads-{threads}.db") as db:
        for number in range(threads):
            db.create_session(f"s{number}", "cli")

        def work(number: int) -> None:
            for at in range(messages // threads):
                db.append_message(f"s{number}", "user", f"message {at} of thread {number}")

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return messages / (time.perf_counter() - started)


def fill(path: Path, messages: int) -> int:
    """Create a store with `messages` messages, in sessions of 50. Return the number of bytes of text in
    it."""
    size = 0
    with SessionDB(path, durability="normal") as db:
        for at in range(messages):
            if at % 50 == 0:
                db.create_session(f"s{at // 50:06d}", "cli")
            content = f"{TEXT}{at}"
            size += len(content)
            db.append_message(f"s{at // 50:06d}", "user", content)
    return size


EXPORT = """
import json, sys
from pathlib import Path
from hermes_state import SessionDB
with SessionDB(Path(sys.argv[1])) as db, open("/dev/null", "w") as out:
    for session in db.export_each():
        json.dump(session, out)
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def export_peak_mb(path: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", EXPORT, str(path)], capture_output=True, text=True, check=True
    )
    return int(done.stdout) / 1024


def cpu_of(command: list[str], env: dict[str, str], rounds: int = 9) -> float:
    """Return the median CPU time of a command in milliseconds."""
    spent = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return sorted(spent)[rounds // 2]


def list_cost(folder: Path) -> tuple[float, float]:
    """Return the CPU milliseconds of `python -c pass` and of `hermes sessions list` with 1,000 sessions."""
    with SessionDB(folder / "state.db", durability="normal") as db:
        for number in range(1000):
            db.create_session(f"20260101_000000_{number:08x}", "cli")
            db.append_message(
                f"20260101_000000_{number:08x}", "user", f"question {number} about the retry budget"
            )
    env = dict(os.environ, HERMES_HOME=str(folder))
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # as in normal use: byte code is compiled once
    return cpu_of([sys.executable, "-c", "pass"], env), cpu_of(
        [sys.executable, "-m", "hermes.cli.main", "sessions", "list"], env
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        single, sixteen = threads_rate(folder, 1, 4000), threads_rate(folder, 16, 16000)
        text = fill(folder / "export.db", arguments.messages)
        idle = export_peak_mb_of_nothing(folder)
        peak = export_peak_mb(folder / "export.db")
        bare, listed = list_cost(folder)
    figures = {
        "1 thread, durable: msgs/s": single,
        "16 threads, durable: msgs/s": sixteen,
        "16 threads compared with one": sixteen / single,
        "text exported: MB": text / 1e6,
        "streaming export of nothing: peak MB": idle,
        "streaming export: peak MB": peak,
        "python -c pass: CPU ms": bare,
        "hermes sessions list: CPU ms": listed,
        "list compared with python -c pass": listed / bare,
    }
    print("| metric | value |\n|---|---|")
    for metric, value in figures.items():
        print(f"| {metric} | {value:.1f} |")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def export_peak_mb_of_nothing(folder: Path) -> float:
    SessionDB(folder / "nothing.db").close()
    return export_peak_mb(folder / "nothing.db")


if __name__ == "__main__":
    main()
