"""Compression in real processes. A process dies at any step, or two processes compress the same conversation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.agent import events
from hermes.agent.context.boundaries import is_summary
from hermes.agent.models.replay import replay
from hermes.agent.transcript import StoredRecord
from hermes_state import SessionDB
from tests.agent.compression_worker import DIED
from tests.agent.long_talk import Summarizer, compressor, done, stored, talk
from tests.agent.test_replay import check
from tests.survival.processes import LONG

PROGRAM = Path(__file__).with_name("compression_worker.py")


def start(path: Path, *mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(path), "talk", *mode],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("of", "step"), [("calls", 1), pytest.param("statements", 1 if LONG else 5, marks=pytest.mark.full)]
)
async def test_a_process_that_dies_at_any_step_leaves_a_valid_conversation(
    tmp_path: Path, of: str, step: int
) -> None:
    first = SessionDB(tmp_path / "first" / "state.db")
    talk(first, exchanges=20)
    first.update_system_prompt("talk", "be kind")
    before = stored(first)
    first.close()
    outcomes: list[int] = []
    for number in range(1, 100, step):
        home = tmp_path / str(number)
        shutil.copytree(tmp_path / "first", home)
        with start(home / "state.db", of, str(number)) as process:
            process.communicate(timeout=60)
        with SessionDB(home / "state.db") as db:
            sessions = stored(db)
            outcomes.append(len(sessions))
            if len(sessions) == 1:
                assert sessions == before
            await _goes_on(db)
        shutil.rmtree(home)
        if process.returncode == 0:
            break
        assert process.returncode == DIED
    assert outcomes == sorted(outcomes)
    assert (outcomes[0], outcomes[-1]) == (1, 2)
    # Some processes died after the continuation was created. No step inside a transaction is after it.
    if of == "calls":
        assert outcomes.count(2) > 1
    else:
        assert outcomes.count(1) > 2


async def _goes_on(db: SessionDB) -> None:
    """Check that the next process compresses the conversation or finds it compressed. Check that no message
    is missing."""
    record = StoredRecord(db, "talk")
    message_ids = {row["id"] for row in db.get_messages("talk")}
    happened = await done(compressor(record, Summarizer()).compress(overflow=False))
    assert isinstance(happened[-1], events.Moved)
    assert db.tip("talk") == record.session_id
    assert len(stored(db)) == 2
    rows = await record.context()
    assert sum(map(is_summary, rows)) == 1
    check(replay(rows, await record.system_prompt()))
    assert await record.system_prompt() == "a new prompt"
    assert {row["id"] for row in db.get_messages("talk")} == message_ids
    assert db.diagnose().ok


def test_two_concurrent_processes_create_one_continuation(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        talk(db, exchanges=20)
    with start(path, "wait") as one, start(path, "wait") as other:
        both = (one, other)
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in both:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        tips = {process.communicate(timeout=60)[0].strip() for process in both}
        assert [process.returncode for process in both] == [0, 0]
    with SessionDB(path) as db:
        assert tips == {db.tip("talk")}
        assert len(stored(db)) == 2
        assert sum(map(is_summary, db.get_context(tips.pop()))) == 1
