"""Updates the metrics that are read when Prometheus asks: queue lengths, store size, and process figures."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hermes import clock
from hermes.gateway.ops.metrics import INBOX_STATES, OUTBOX_STATES, STORE_FILES, GatewayMetrics, Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes.db.session_db import SessionDB

_IMPORTED_AT = clock.now()


class ProcessReading(NamedTuple):
    """Figures of this process. `open_files` is None if the operating system does not report it."""

    cpu_seconds: float
    resident_bytes: int
    open_files: int | None
    most_files: int
    started_at: float


def take_readings(db: SessionDB, metrics: GatewayMetrics) -> None:
    """Read the current values from the store and the operating system, and set the metrics."""
    _set_all(metrics.inbox_entries, INBOX_STATES, db.inbox.count_by_state())
    _set_all(metrics.outbox_entries, OUTBOX_STATES, db.outbox.count_by_state())
    _set_all(metrics.store_bytes, STORE_FILES, db.file_sizes())
    process = read_process()
    metrics.process_cpu.set(process.cpu_seconds)
    metrics.process_memory.set(process.resident_bytes)
    metrics.process_files.set(process.open_files)
    metrics.process_most_files.set(process.most_files)
    metrics.process_start.set(process.started_at)


def _set_all(gauge: Gauge, names: Sequence[str], values: Mapping[str, int]) -> None:
    for name in names:
        gauge.set(values.get(name, 0), name)


def read_process() -> ProcessReading:
    """Return the figures of this process. They come from /proc if it exists, otherwise from less exact sources."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    resident = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    started = _IMPORTED_AT
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        resident = pages * resource.getpagesize()
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        booted = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines()
            if line.startswith("btime ")
        )
        started = booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    files: int | None = None
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            files = sum(1 for _ in Path(folder).iterdir()) - 1  # without the descriptor of the folder itself
            break
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessReading(used.ru_utime + used.ru_stime, resident, files, most, started)
