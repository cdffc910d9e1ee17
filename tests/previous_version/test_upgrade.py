"""The previous and the current version of this program use the same store, in turn and at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import hermes

HERE = Path(__file__).parent
NEW = Path(hermes.__file__).parents[1]
ROUNDS = 12
MEBIBYTE = 1 << 20


class Version:
    """A process that runs one version of the program and has the store open."""

    def __init__(self, source: Path, store: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(source)},
        )
        assert Path(self.call("open", str(store))) == source / "hermes"

    def start(self, verb: str, *arguments: Any, **named: Any) -> None:
        assert self._process.stdin is not None
        order = {"verb": verb, "arguments": arguments, "named": named}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def finish(self) -> Any:
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def call(self, verb: str, *arguments: Any, **named: Any) -> Any:
        self.start(verb, *arguments, **named)
        return self.finish()

    def end(self) -> None:
        self._process.communicate(timeout=60)


@contextmanager
def opened(source: Path, store: Path) -> Iterator[Version]:
    version = Version(source, store)
    try:
        yield version
        version.call("close")
    finally:
        version.end()


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the unpacked previous version."""
    folder = tmp_path_factory.mktemp("previous")
    (wheel,) = HERE.glob("*.whl")
    assert wheel.stat().st_size < MEBIBYTE
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    return folder


@pytest.fixture
def store(home: Path, old: Path) -> Path:
    """Create a store with the previous version."""
    home.mkdir()
    path = home / "state.db"
    with opened(old, path) as version:
        version.call("fill")
        assert version.call("check") == []
    return path


def differences(first: dict[str, Any], second: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the data that the two versions read differently. The data is shortened for the failure
    message."""
    return {name: (first[name], second[name]) for name in first if first[name] != second[name]}


def test_nothing_is_lost_by_the_upgrade(store: Path, old: Path) -> None:
    with opened(old, store) as version:
        before = version.call("read")
    with opened(NEW, store) as version:
        assert differences(before, version.call("read")) == {}
        assert version.call("check") == []
        assert version.call("restore_session", "thrown") == ["thrown"]
        assert len(version.call("search_messages", "heron")) == len(before["found"]["heron"]) + 1
        assert version.call("trash_session", "thrown") == ["thrown"]
    for value in before.values():
        assert value


def test_the_previous_version_reads_a_store_of_the_current_version(store: Path, old: Path) -> None:
    with opened(NEW, store) as version:
        version.call("create_session", "shared", "cli")
        last = version.call("work", "new", ROUNDS)
        version.call("set_session_title", last, "Written by the new one")
        version.call("optimize")
        after = version.call("read")
    with opened(old, store) as version:
        assert differences(after, version.call("read")) == {}
        assert version.call("check") == []
        assert version.call("resolve_session_by_title", "Written by the new one") == last
        version.call("append_message", last, "user", "the previous version goes on")
    with opened(NEW, store) as version:
        assert [row["session_id"] for row in version.call("search_messages", "previous goes")] == [last]
        assert version.call("check") == []


def test_both_versions_write_in_turn(store: Path, old: Path) -> None:
    with opened(old, store) as first, opened(NEW, store) as second:
        for n in range(ROUNDS):
            writer, reader = (first, second) if n % 2 else (second, first)
            written = writer.call("append_message", "plain", "user", f"lapwing{n}")
            assert [row["id"] for row in reader.call("search_messages", f"lapwing{n}")] == [written]
            assert reader.call("get_messages", "plain")[-1]["id"] == written
            writer.call("set_session_title", "plain", f"Title {n}")
            assert reader.call("get_session_title", "plain") == f"Title {n}"
            listed = reader.call("list_sessions_rich", order_by_last_active=True)
            assert (listed[0]["id"], listed[0]["title"]) == ("plain", f"Title {n}")
            tip = writer.call("get_compression_tip", "long")
            child = writer.call("begin_continuation", tip, f"summary {n}", session_id=f"tip-{n}")
            assert reader.call("get_compression_tip", "long") == child
        assert differences(first.call("read"), second.call("read")) == {}
        assert first.call("check") == second.call("check") == []


@pytest.mark.full
def test_both_versions_write_at_the_same_time(store: Path, old: Path) -> None:
    with ExitStack() as stack:
        versions = {
            tag: stack.enter_context(opened(source, store))
            for tag, source in (("old", old), ("new", NEW), ("older", old), ("newer", NEW))
        }
        versions["new"].call("create_session", "shared", "cli")
        for tag, version in versions.items():
            version.start("work", tag, ROUNDS)
        assert {tag: version.finish() for tag, version in versions.items()} == {
            tag: f"{tag}-{ROUNDS}" for tag in versions
        }
        reads = [version.call("read") for version in versions.values()]
        assert [differences(reads[0], read) for read in reads] == [{}] * len(reads)
        shared = [row["content"] for row in reads[0]["messages"]["shared"]]
        assert sorted(shared) == sorted(
            f"{tag} wrote round {n + 1}" for tag in versions for n in range(ROUNDS)
        )
        for tag, version in versions.items():
            assert version.call("get_compression_tip", f"{tag}-0") == f"{tag}-{ROUNDS}"
            for other in versions:
                assert len(version.call("search_messages", f'"{other} heron"', limit=100)) == ROUNDS
            assert version.call("check") == []
    for source in (NEW, old):
        with opened(source, store) as version:
            assert version.call("check") == []
            assert differences(reads[0], version.call("read")) == {}
