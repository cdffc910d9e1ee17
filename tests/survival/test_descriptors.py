"""A program without free file descriptors gets one correct error. No row that was stored is reported as
failed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.store.sqlite.reader_pool import MOST_OPEN
from tests.survival.processes import Refused, Worker

FEW = 256
PER_CONNECTION, OF_THE_STORE = 2, 2


@pytest.fixture
def path(home: Path) -> str:
    return str(home / "state.db")


def _ask(worker: Worker, command: str, **arguments: object) -> str | None:
    """Run a command. Return the message of its error, or None if it succeeded."""
    try:
        worker.ask(command, **arguments)
    except Refused as refused:
        return refused.message
    return None


def test_many_reading_threads_share_a_few_connections(path: str) -> None:
    with Worker() as worker:
        worker.ask("limit_descriptors", most=FEW)
        worker.ask("open_store", path=path)
        worker.ask("append", session="s", texts=["one", "two"])
        before = worker.ask("count_descriptors")
        worker.ask("read_in_threads", session="s", threads=150, times=20)
        assert worker.ask("count_descriptors") <= before + PER_CONNECTION * MOST_OPEN + OF_THE_STORE
        worker.ask("close_idle_readers_at_once")
        assert worker.ask("contents", session="s") == ["one", "two"]
        assert worker.ask("contents", session="s") == ["one", "two"]
        # SQLite keeps the database descriptor of a closed connection and uses it for the next one.
        assert worker.ask("count_descriptors") <= before + MOST_OPEN + PER_CONNECTION + OF_THE_STORE


def test_readers_wait_for_each_other_if_no_connection_can_be_opened(path: str) -> None:
    with Worker() as worker:
        worker.ask("limit_descriptors", most=FEW)
        worker.ask("open_store", path=path)
        worker.ask("append", session="s", texts=["one", "two"])
        assert worker.ask("contents", session="s") == ["one", "two"]
        worker.ask("use_up_descriptors", but=PER_CONNECTION)
        worker.ask("read_in_threads", session="s", threads=20, times=4)


@pytest.mark.parametrize("left", range(8))
def test_opening_without_descriptors_says_so(path: str, left: int) -> None:
    with Worker() as worker:
        # load everything that the program needs later
        worker.ask("visit", path=path, session="s", texts=["one"])
        worker.ask("limit_descriptors", most=FEW)
        worker.ask("use_up_descriptors", but=left)
        refusal = _ask(worker, "open_store", path=path)
        if refusal is not None:
            assert "too many open files" in refusal.lower()
            assert "write-ahead" not in refusal
        else:
            assert left > 3
        worker.ask("free_descriptors")
        worker.ask("open_store", path=path)
        assert worker.ask("contents", session="s") == ["one"]
        assert worker.ask("health") == []


@pytest.mark.parametrize("left", range(10))
def test_creating_a_store_without_descriptors_says_so(path: str, left: int) -> None:
    """The error does not claim that the store cannot be written. A file that is left behind can be opened
    later."""
    with Worker() as worker:
        # load everything that the program needs later
        worker.ask("visit", path=f"{path}.other", session="s", texts=["one"])
        worker.ask("limit_descriptors", most=FEW)
        worker.ask("use_up_descriptors", but=left)
        refused = _ask(worker, "open_store", path=path)
        worker.ask("free_descriptors")
        assert refused is None or "too many open files" in refused
        if refused is not None:
            worker.ask("open_store", path=path)
        worker.ask("append", session="s", texts=["two"])
        assert worker.ask("contents", session="s") == ["two"]


@pytest.mark.parametrize("left", range(8))
def test_no_stored_row_is_reported_as_failed(path: str, left: int) -> None:
    """A row is either stored and acknowledged, or neither. This is true even if the write must open further
    files."""
    with Worker() as worker:
        worker.ask("visit", path=path, session="s", texts=["first"])
        worker.ask("limit_descriptors", most=FEW)
        worker.ask("use_up_descriptors", but=left)
        refusal, acknowledged = _ask(worker, "open_store", path=path), 0
        while refusal is None and acknowledged < 140:  # enough for a checkpoint and for the index
            refusal = _ask(worker, "append_only", session="s", texts=[f"n{acknowledged}"])
            acknowledged += refusal is None
        assert refusal is None or "too many open files" in refusal.lower()
        worker.kill()
    with Worker() as fresh:
        fresh.ask("open_store", path=path)
        assert len(fresh.ask("contents", session="s")) == 1 + acknowledged
        assert fresh.ask("health") == []
