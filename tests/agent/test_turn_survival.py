"""A turn runs in a real process that dies at any step. Nothing that a person saw is lost or duplicated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes.agent.events import Done
from hermes.agent.models.replay import replay
from hermes.agent.transcript import StoredRecord
from hermes_state import SessionDB
from tests.agent.compression_worker import DIED
from tests.agent.scripted import ScriptedModel, says
from tests.agent.test_replay import check
from tests.agent.turn_worker import ANSWER, NEVER, QUESTION, turn_of
from tests.survival.processes import LONG

PROGRAM = Path(__file__).with_name("turn_worker.py")
WHOLE = ["user", "assistant", "tool", "tool", "assistant"]
"""The messages that an uninterrupted turn stores."""


def die(path: Path, of: str, number: int) -> tuple[int, list[dict[str, Any]]]:
    """Run the turn in a process that dies at step `number`. Return (exit status, printed events)."""
    process = subprocess.run(
        [sys.executable, str(PROGRAM), str(path), of, str(number)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    return process.returncode, [json.loads(line) for line in process.stdout.splitlines()]


@pytest.mark.parametrize(
    ("of", "stride"),
    [
        ("after", 1),
        pytest.param("before", 1, marks=pytest.mark.full),
        pytest.param("statements", 1 if LONG else 11, marks=pytest.mark.full),
    ],
)
async def test_a_process_that_dies_at_any_step_keeps_every_shown_message_once(
    tmp_path: Path, of: str, stride: int
) -> None:
    kept: list[int] = []
    for number in range(1, NEVER, stride):
        path = tmp_path / str(number) / "state.db"
        ended, (begun, *result) = die(path, of, number)
        with SessionDB(path) as db:
            rows = db.get_messages(begun["session_id"])
            kept.append(len(rows))
            is_what_was_told(rows, result)
            await goes_on(db, begun["session_id"], rows)
        if ended == 0:
            assert result[-1] == {"done": ANSWER}
            break
        assert ended == DIED
    assert kept == sorted(kept)
    assert (kept[0], kept[-1]) == (0, len(WHOLE))
    if stride == 1:
        assert set(kept) == set(range(len(WHOLE) + 1)), "it died between any two messages"


def is_what_was_told(rows: list[dict[str, Any]], told: list[dict[str, Any]]) -> None:
    """Check that every shown message is stored once and in order. At most one further message may be
    stored."""
    assert [row["role"] for row in rows] == WHOLE[: len(rows)]
    stored_texts = [(row["content"], row["tool_call_id"]) for row in rows]
    assert len(set(stored_texts)) == len(stored_texts)
    heard = [one for one in told if "role" in one]
    assert len(heard) <= len(rows) <= len(heard) + 1
    for row, one in zip(rows, heard, strict=False):
        assert row["role"] == one["role"]
        assert row["id"] == one.get("id", row["id"])
        if one["role"] == "tool":
            assert (row["tool_call_id"], row["content"]) == (one["call"], one["output"])


async def goes_on(db: SessionDB, session_id: str, rows: list[dict[str, Any]]) -> None:
    """Check that the next process gets the lease, answers the open question, and then answers a new one."""
    check(replay(db.get_context(session_id), "be kind"))
    exists = db.get_session(session_id) is not None
    record = StoredRecord(db, session_id if exists else None)
    await record.hold()
    assert (record.lease is not None) == exists
    model = ScriptedModel(says("here"), says("there"))
    if rows and (rows[-1]["role"] != "assistant" or rows[-1]["tool_calls"]):
        happened = [event async for event in turn_of(record, model, [NEVER]).events(None)]
        assert happened[-1] == Done("here", "stop")
    else:
        model.scripts.pop(0)
    happened = [event async for event in turn_of(record, model, [NEVER]).events("and you?")]
    assert happened[-1] == Done("there", "stop")
    for request in model.requests:
        check(list(request.messages))
        assert request.messages[0] == {"role": "system", "content": "be kind"}
    await record.close()
    after = db.get_messages(record.session_id)
    assert [row["id"] for row in after[: len(rows)]] == [row["id"] for row in rows]
    assert [row["content"] for row in after[-2:]] == ["and you?", "there"]
    assert not rows or rows[0]["content"] == QUESTION
    answers = sum(row["role"] == "assistant" for row in after)
    assert db.usage_of(record.session_id).total.calls in (answers - 1, answers)
    assert db.diagnose().ok
