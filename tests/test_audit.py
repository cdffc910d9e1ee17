"""audit.log has one line per change and contains no secrets. An operation succeeds even if the log cannot be
written."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hermes import audit_log, caller

MADE_UP_KEY = "sk-" + "proj-" + "MadeUpForThisTest0123456789abcdefABCDEF"


def entries(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "audit.log").read_text().splitlines()]


def test_an_entry_has_the_time_the_action_and_the_caller(home: Path) -> None:
    audit_log.record("pairing.code", platform="telegram", owner=True, minutes=10, user=None)
    (entry,) = entries(home)
    assert entry["action"] == "pairing.code"
    assert entry["details"] == {"platform": "telegram", "owner": True, "minutes": 10, "user": None}
    assert entry["pid"] == os.getpid()
    assert entry["by_tool"] is False
    assert set(entry) == {"time", "action", "details", "pid", "by_tool", "tty"}
    age = datetime.now(UTC) - datetime.fromisoformat(entry["time"])
    assert abs(age.total_seconds()) < 60
    assert stat.S_IMODE((home / "audit.log").stat().st_mode) == 0o600


def test_an_entry_contains_no_secrets(home: Path) -> None:
    audit_log.record(
        "config.set", key="model", value=f"key is {MADE_UP_KEY}", api_key="Tr0ub4dor-and-3-and-4"
    )
    text = (home / "audit.log").read_text()
    assert MADE_UP_KEY not in text
    assert "Tr0ub4dor" not in text


def test_a_value_cannot_make_a_second_line_or_a_huge_one(home: Path) -> None:
    audit_log.record("x", text="a\nb\u2028c", long="y" * 100_000)
    assert len((home / "audit.log").read_bytes().splitlines()) == 1
    assert (home / "audit.log").stat().st_size < 10_000


def test_a_symbolic_link_is_not_followed_and_the_operation_continues(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    home.mkdir()
    (home / "audit.log").symlink_to(target)
    audit_log.record("x")
    assert target.read_text() == "mine"
    assert "audit.log" in caplog.text


def test_the_operation_continues_if_the_log_cannot_be_written(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.write_text("no folder")
    audit_log.record("x")
    assert "could not be written" in caplog.text


def test_a_full_file_is_rotated(home: Path) -> None:
    audit_log.record("first")
    with (home / "audit.log").open("ab") as file:
        file.truncate(audit_log.LARGEST)
    audit_log.record("second")
    assert [entry["action"] for entry in entries(home)] == ["second"]
    assert (home / "audit.log.1").stat().st_size == audit_log.LARGEST
    assert [entry["action"] for entry in audit_log.read(10)][-1] == "second"


def test_some_older_files_are_kept_and_read_in_order(home: Path) -> None:
    for number in range(audit_log.OLDER_FILES + 2):
        audit_log.record("x", number=number)
        with (home / "audit.log").open("ab") as file:
            file.truncate(audit_log.LARGEST)
    audit_log.record("last")
    files = sorted(file.name for file in home.glob("audit.log*"))
    assert files == ["audit.log", *(f"audit.log.{number + 1}" for number in range(audit_log.OLDER_FILES))]
    kept = [entry["details"].get("number") for entry in audit_log.read()]
    assert kept == [*range(2, audit_log.OLDER_FILES + 2), None]
    assert [entry["action"] for entry in audit_log.read(2)] == ["x", "last"]


def test_new_entries_are_followed_across_a_full_file(home: Path) -> None:
    def next_entries() -> list[int]:
        found: list[int] = []
        for entry in following:
            if entry is None and found:
                return found
            if entry is not None:
                found.append(entry["details"]["number"])
        return found

    audit_log.record("x", number=0)
    following = audit_log.follow()
    assert next(following) is None
    audit_log.record("x", number=1)
    assert next_entries() == [1]
    with (home / "audit.log").open("ab") as file:
        file.truncate(audit_log.LARGEST)
    audit_log.record("x", number=2)
    assert next_entries() == [2]
    assert (home / "audit.log.1").exists()


def test_the_command_prints_new_entries(home: Path) -> None:
    audit_log.record("first")
    command = [sys.executable, "-m", "hermes.cli.main", "audit", "--follow", "--json", "action"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline()) == {"action": "first"}
        audit_log.record("second")
        assert json.loads(following.stdout.readline()) == {"action": "second"}
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 0


def _record_many(count: int) -> None:
    for number in range(count):
        audit_log.record("x", number=number, text="y" * 500)


def test_concurrent_processes_lose_no_line(home: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        pool.map(_record_many, [25] * 4)
    assert len(entries(home)) == 100


def test_a_tool_is_recognised_by_a_variable_of_any_ancestor() -> None:
    asks = [sys.executable, "-c", "from hermes import caller; print(caller.is_started_by_tool())"]

    def run(words: list[str], **marker: str) -> str:
        return subprocess.check_output(words, env={**os.environ, **marker}, text=True).strip()

    assert run(asks) == "False"
    assert run(asks, **{caller.TOOL_MARKER: "1"}) == "True"
    if Path("/proc/self/environ").exists():
        unset = ["sh", "-c", f'unset {caller.TOOL_MARKER}; "$@"; exit 0', "sh", *asks]
        assert run(unset, **{caller.TOOL_MARKER: "1"}) == "True"
