"""Measures what `hermes batch` costs besides the model: processor time and memory per prompt.

    python bench/batch_bench.py [--sizes 100,1000] [--workers 8] [--most-ms 15] [--work DIR]

Each size runs in a new process with a new home. The model is scripted: it answers after a few milliseconds of waiting,
so that only the batch is measured: sessions, journal, results and trajectories. The figures are the processor
time of the run without start-up, per prompt, and the memory after it. The last lines are the ratios between the largest
and the smallest size; they say whether the costs grow with the number of prompts. The program exits with 1 if a
prompt of the largest size costs more than `--most-ms`, or if the memory grows by more than a tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic, process_time
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

ANSWER_S = 0.005
MOST_GROWTH = 1.1
WARM_UP = 20
"""The number of prompts that run before the measurement, so that imports and caches are not measured."""


class ScriptedModel:
    """A model that answers with the text of the prompt, in a few pieces."""

    name, provider, base_url, context_window = "scripted", "bench", None, 128_000

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        from hermes.agent.models.model import Finished, Text, Used

        await asyncio.sleep(ANSWER_S)
        prompt = request.messages[-1]["content"]
        for piece in ("The answer", " to ", prompt, "."):
            yield Text(piece)
        yield Used(input_tokens=1200, output_tokens=20)
        yield Finished("stop")

    async def close(self) -> None:
        pass


def read_memory_kb() -> int:
    """Return the resident memory of this process, in kilobytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


async def run_batch(folder: Path, prompts: int, workers: int) -> dict[str, float]:
    """Run a batch. Return the processor time in seconds and the wall time in seconds."""
    from hermes.agent.factory import StandardFactory
    from hermes.db.session_db import SessionDB
    from hermes.jobs.batch.launcher import RunRequest, execute_run, open_run
    from hermes.jobs.batch.runner import RunOptions

    class Scripted(StandardFactory):
        def make_only_model(self, name: str, *, most_retries: int | None = None) -> Any:
            return ScriptedModel()

    folder.mkdir()
    file = folder / "prompts.jsonl"
    with file.open("w") as stream:
        for number in range(prompts):
            prompt = f"Question {number}: what is the retry budget of the service, and why?"
            stream.write(json.dumps({"id": f"q{number}", "prompt": prompt, "metadata": {"n": number}}) + "\n")
    options = RunOptions(workers)
    with SessionDB() as db:
        began, used = monotonic(), process_time()
        request = RunRequest(folder / "out", options, file, "scripted")
        opened = open_run(request, db.db_path, Scripted(is_job=True))
        with opened.state:
            summary, _ = await execute_run(
                opened, db, options, on_begin=lambda _runner: None, on_result=lambda _prompt, _result: None
            )
        used, wall = process_time() - used, monotonic() - began
    assert summary.progress.done == prompts, summary
    return {"cpu": used, "wall": wall}


def measure(prompts: int, workers: int, work: Path) -> None:
    """Run a short batch, then the measured one. Print the figures as JSON."""
    asyncio.run(run_batch(work / "warm-up", WARM_UP, workers))
    figures = asyncio.run(run_batch(work / "measured", prompts, workers))
    print(json.dumps({**figures, "memory": read_memory_kb()}))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--most-ms", type=float, default=15.0)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.workers, arguments.work)
        return 0
    found: dict[int, dict[str, float]] = {}
    print(f"{'prompts':>8} {'CPU ms/prompt':>14} {'prompts/s':>10} {'memory MB':>10}")
    for size in map(int, arguments.sizes.split(",")):
        with tempfile.TemporaryDirectory(dir=arguments.work) as work:
            done = subprocess.run(
                [
                    sys.executable,
                    __file__,
                    "--measure",
                    str(size),
                    "--workers",
                    str(arguments.workers),
                    "--work",
                    work,
                ],
                env={**os.environ, "HERMES_HOME": f"{work}/home"},
                cwd=work,
                check=True,
                capture_output=True,
                text=True,
            )
        figures = found[size] = json.loads(done.stdout)
        cpu, rate = 1000 * figures["cpu"] / size, size / figures["wall"]
        print(f"{size:>8} {cpu:>14.2f} {rate:>10.1f} {figures['memory'] / 1000:>10.1f}", flush=True)
    least, most = min(found), max(found)
    cpu = 1000 * found[most]["cpu"] / most
    cpu_ratio = cpu / (1000 * found[least]["cpu"] / least)
    memory_ratio = found[most]["memory"] / found[least]["memory"]
    print(f"CPU per prompt, {most} against {least} prompts: {cpu_ratio:.2f}")
    print(f"memory, {most} against {least} prompts: {memory_ratio:.2f}")
    print(f"CPU per prompt against the limit of {arguments.most_ms:g} ms: {cpu / arguments.most_ms:.2f}")
    return int(cpu > arguments.most_ms or memory_ratio > MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
