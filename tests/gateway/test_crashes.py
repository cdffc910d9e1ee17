"""A gateway dies at any step. No message is lost or answered twice, and no command runs twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway.inbound.mailbox import GIVEN_UP
from hermes.gateway.inbound.message_processor import HALF_WAY
from hermes.gateway.outbound.delivery import UNKNOWN
from tests.gateway.crash_worker import GONE

ROOT = Path(__file__).parents[2]
EVERY = [pytest.param(1, 1, marks=pytest.mark.full), (1, 12)]
BRANCHED, CUT_OFF = "⑂ **On a branch now**", HALF_WAY.format(command="/branch")


def run(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    completed = subprocess.run(
        [sys.executable, "-m", "tests.gateway.crash_worker", str(folder), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in completed.stdout.splitlines()]


def deaths(folder: Path, first: int, stride: int, *texts: str) -> list[dict[str, Any]]:
    """Return the outcome for each step at which the gateway died. The last outcome is that of a run without a
    crash."""
    lines = run(folder, str(first), str(stride), *texts)
    assert len(lines) > 5
    assert lines[-1]["died_at"] is None
    assert {one["ended"] for one in lines} == {0}
    return lines


def is_answered_once(saw: list[str], answer: str) -> bool:
    """Return whether the answer arrived once. If it did not arrive, one notice must say that its delivery is
    unknown."""
    times = sum(text.startswith(answer) for text in saw)
    return times == 1 or (times == 0 and saw.count(UNKNOWN) == 1)


@pytest.mark.parametrize(("first", "stride"), EVERY)
def test_no_message_is_lost_and_no_command_is_done_twice(tmp_path: Path, first: int, stride: int) -> None:
    for line in deaths(tmp_path, first, stride, "hello", "/branch"):
        saw = line["saw"]
        assert is_answered_once(saw, "you said: hello"), line
        assert line["talk"] == ["hello", "you said: hello"], line
        assert line["branches"] <= 1, line
        assert line["sessions"] == 1 + line["branches"], line
        done, half_way = any(text.startswith(BRANCHED) for text in saw), CUT_OFF in saw
        assert done + half_way == 1 or (not done and not half_way and saw.count(UNKNOWN) == 1), line
        assert line["branches"] or half_way, line


@pytest.mark.full
def test_a_change_of_a_message_is_not_lost_either(tmp_path: Path) -> None:
    for line in deaths(tmp_path, 1, 1, "hello", "edit it"):
        assert is_answered_once(line["saw"], "you said: edit it"), line
        assert line["talk"] == ["edit it", "you said: edit it"], line


def test_a_message_that_kills_every_process_is_given_up(tmp_path: Path) -> None:
    *dead, last = run(tmp_path, "poison")
    assert [one["code"] for one in dead] == [GONE] * 3
    assert not any("saw" in line for one in dead for line in one["told"])
    assert last["code"] == 0
    assert [line["saw"] for line in last["told"] if "saw" in line] == [GIVEN_UP, "you said: poison\n\nhello"]
