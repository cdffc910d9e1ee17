"""Chooses where temporary folders are: in memory in `make test` if possible, otherwise on the disk.

A test with a store spends half of its time waiting for the disk. In memory, SQLite works as on a disk, with
real files, locks and a log. `make test-full`, a run without `--tier` and a run with `--basetemp` use the
disk. `--basetemp` keeps the folders of failed tests.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MEMORY = Path("/dev/shm")
LEAST_FREE = 2 << 30
VARIABLE = "HERMES_TESTS_MEMORY"
START_TOOLS = ("agent", "chat", "conversation", "interop", "jobs", "server")
"""Folders whose tests start tools. A sandbox replaces `/dev`, so a workspace in memory is not visible inside it."""
ON_DISK = (*START_TOOLS, "survival")


def choose(tier: str | None, base_folder: object) -> None:
    """Decide whether this run uses folders in memory: on Linux, if there is enough memory. Worker processes
    read the decision from the environment variable `VARIABLE`."""
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= LEAST_FREE
    is_chosen = tier in {"fast", "test"} and base_folder is None and has_room
    os.environ[VARIABLE] = str(MEMORY) if is_chosen else ""


@contextmanager
def make_factory() -> Iterator[pytest.TempPathFactory | None]:
    """Yield the factory for folders in memory, which are removed at the end. Yield None if this run uses the
    disk."""
    root = os.environ.get(VARIABLE)
    if not root:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="hermes-tests-", dir=root, ignore_cleanup_errors=True) as folder:
        base = Path(folder)
        yield pytest.TempPathFactory(base, 0, "failed", lambda *_: None, base, _ispytest=True)


def needs_disk(file: Path) -> bool:
    return not file.is_relative_to(TESTS) or file.relative_to(TESTS).parts[0] in ON_DISK
