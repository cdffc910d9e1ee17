"""A run continues where it stopped: after kill -9, after Ctrl-C, and if its files are behind the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hermes.jobs.batch.run_state import RunRefused, RunState
from hermes_state import SessionDB
from tests.agent.openai_server import Asked, Reply, calls, refuses, says
from tests.jobs.batch.conftest import USED, AnsweringServer, RunBatch, read_lines, write_prompts
from tests.terminal import until

PROMPTS = [f"q{number}" for number in range(12)]
DEAD = -signal.SIGKILL


def start(file: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    """Start the real command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "hermes.cli.main", "batch", "run", str(file), "--out", str(out), *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def count_results(out: Path) -> int:
    try:
        return len((out / "results.jsonl").read_text().splitlines())
    except FileNotFoundError:
        return 0


def check_answers(db: SessionDB, rows: list[dict[str, Any]], prompts: list[str]) -> None:
    """Every prompt has one result, in order, and one session with one question and one answer."""
    assert [row["prompt"] for row in rows] == prompts
    assert [row["answer"] for row in rows] == [f"answer to {prompt}" for prompt in prompts]
    for row in rows:
        roles = [message["role"] for message in db.get_messages(row["session_id"])]
        assert roles == ["user", "assistant"], row
    assert db.session_count("batch") == len(prompts)


def test_after_kill_9_nothing_is_skipped_and_no_stored_answer_is_requested_again(
    server: AnsweringServer, out: Path, tmp_path: Path, db: SessionDB
) -> None:
    file = write_prompts(tmp_path, *PROMPTS)
    stored: set[str] = set()
    for goal in (3, 7):
        gate = threading.Event()

        def reply(_prompt: str, _asked: Asked, gate: threading.Event = gate, goal: int = goal) -> None:
            if count_results(out) >= goal:
                gate.wait(20)  # the requests that are running at the kill get no answer

        server.reply = reply
        process = start(file, out, "--resume", "--workers", "3")
        until(lambda goal=goal: count_results(out) >= goal, lambda: f"{count_results(out)} results")  # type: ignore[misc]
        process.kill()
        assert process.wait() == DEAD
        process.communicate()
        gate.set()
        answered = {row["content"] for row in _list_prompts_with_answer(db)}
        assert len(answered) >= goal
        repeated = [prompt for prompt in server.asked if prompt in stored]
        assert repeated == [], "an answer that was stored was requested again"
        stored |= answered
        server.asked.clear()
    server.reply = lambda _prompt, _asked: None
    process = start(file, out, "--resume", "--workers", "3")
    output, problems = process.communicate(timeout=60)
    assert (process.returncode, problems) == (0, "")
    assert output.startswith("12 done, ")
    assert not stored & set(server.asked)
    assert stored | set(server.asked) == set(PROMPTS)
    check_answers(db, read_lines(out / "results.jsonl"), PROMPTS)
    assert [line["prompt_index"] for line in read_lines(out / "trajectories.jsonl")] == list(range(12))


def _list_prompts_with_answer(db: SessionDB) -> list[dict[str, Any]]:
    found = []
    for session in db.search_sessions("batch", limit=100):
        messages = db.get_messages(session["id"])
        if [message["role"] for message in messages] == ["user", "assistant"]:
            found.append(messages[0])
    return found


def test_an_answer_that_is_stored_but_not_in_the_journal_is_taken_from_the_store(
    server: AnsweringServer, run_batch: RunBatch, out: Path, db: SessionDB
) -> None:
    """The process can die after the answer is stored and before its result is written."""
    _, rows = run_batch("one", "two", "three")
    journal = out / "state" / "journal.jsonl"
    kept = [line for line in journal.read_bytes().splitlines(keepends=True) if b'"finished"' not in line]
    journal.write_bytes(b"".join(kept))
    server.asked.clear()
    _, again = run_batch("one", "two", "three", resumes=True)
    assert server.asked == []
    same = ("id", "answer", "status", "tokens", "cost_usd", "session_id")
    assert [{name: row[name] for name in same} for row in again] == [
        {name: row[name] for name in same} for row in rows
    ]


def test_a_journal_that_is_lost_completely_costs_no_answer(
    server: AnsweringServer, run_batch: RunBatch, out: Path, db: SessionDB
) -> None:
    """After a power cut, the end of the journal can be missing. The store has every answer."""
    run_batch("one", "two")
    (out / "state" / "journal.jsonl").write_bytes(b"")
    server.asked.clear()
    _, rows = run_batch("one", "two", resumes=True)
    assert server.asked == []
    check_answers(db, rows, ["one", "two"])


def test_a_line_of_the_journal_that_was_cut_off_is_removed(
    server: AnsweringServer, run_batch: RunBatch, out: Path, db: SessionDB
) -> None:
    run_batch("one", "two")
    journal = out / "state" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-30])
    with RunState(out) as state:  # a reader ignores the line
        assert state.counts.done == 1
    _, rows = run_batch("one", "two", resumes=True)
    check_answers(db, rows, ["one", "two"])
    assert sorted(server.asked) == ["one", "two"]
    with RunState(out) as state:  # the next line did not join the rest of the old one
        assert state.counts.done == 2


def test_a_turn_that_was_cut_off_continues_after_its_last_stored_message(
    server: AnsweringServer, out: Path, tmp_path: Path, db: SessionDB
) -> None:
    """The tool has run before the kill. It does not run again."""
    note = tmp_path / "note.txt"
    note.write_text("The code is 4711.")
    gate = threading.Event()

    def reply(_prompt: str, asked: Asked) -> Reply | None:
        if asked.body["messages"][-1]["role"] != "tool":
            return calls(("c1", "read_file", json.dumps({"path": str(note)})))
        gate.wait(20)
        return says("It is 4711.", used=USED)

    server.reply = reply
    file = write_prompts(tmp_path, "Which code?")
    process = start(file, out)
    until(lambda: len(server.asked) == 2, lambda: f"{server.asked}")
    process.kill()
    process.communicate()
    gate.set()
    server.asked.clear()
    process = start(file, out, "--resume")
    process.communicate(timeout=60)
    (row,) = read_lines(out / "results.jsonl")
    assert (row["answer"], row["attempts"]) == ("It is 4711.", 2)
    assert len(server.asked) == 1
    assert [message["role"] for message in db.get_messages(row["session_id"])] == [
        *("user", "assistant", "tool", "assistant")
    ]


def test_a_conversation_that_was_compressed_continues_in_its_last_session(
    server: AnsweringServer, run_batch: RunBatch, out: Path, db: SessionDB
) -> None:
    is_broken = True
    server.reply = lambda _prompt, _asked: refuses(500, "out of order") if is_broken else says("Yes.")
    _, (row,) = run_batch("one", attempts=1)
    (question,) = db.get_messages(row["session_id"])
    child = db.begin_continuation(row["session_id"], "What happened so far.", [question["id"]])
    is_broken = False
    _, (row,) = run_batch(retries=True)
    assert (row["status"], row["answer"]) == ("done", "Yes.")
    assert row["session_id"] != child, "a result names the first session of its conversation"
    assert [message["role"] for message in db.get_messages(child)] == ["system", "assistant"]
    (line,) = read_lines(out / "trajectories.jsonl")
    assert [turn["from"] for turn in line["conversations"]] == ["system", "human", "system", "gpt"]
    assert len(read_lines(out / "sessions.jsonl")) == 2
    (out / "state" / "journal.jsonl").write_bytes(b"")
    server.asked.clear()
    _, (again,) = run_batch("one", resumes=True)
    assert (again["answer"], server.asked) == ("Yes.", [])


def test_ctrl_c_finishes_what_runs_and_says_how_to_continue(
    server: AnsweringServer, out: Path, tmp_path: Path, db: SessionDB
) -> None:
    gate = threading.Event()

    def reply(_prompt: str, _asked: Asked) -> None:
        gate.wait(20)

    server.reply = reply
    file = write_prompts(tmp_path, *PROMPTS)
    process = start(file, out, "--workers", "2")
    until(lambda: len(server.asked) == 2, lambda: f"{server.asked}")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() == "hermes: finishing 2 running prompts; Ctrl-C again stops them\n"
    gate.set()
    output, problems = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output.startswith("2 done, 10 left, ")
    assert f"continue with: hermes batch run {file} --out {out} --resume" in problems
    assert [row["prompt"] for row in read_lines(out / "results.jsonl")] == ["q0", "q1"]
    assert len(read_lines(out / "trajectories.jsonl")) == 2


def test_ctrl_c_does_not_wait_for_prompts_that_wait_for_the_provider(
    server: AnsweringServer, out: Path, tmp_path: Path
) -> None:
    server.reply = lambda _prompt, _asked: refuses(429, "slow down", {"Retry-After": "100"})
    process = start(write_prompts(tmp_path, "one", "two"), out)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("hermes: all workers wait: ")
    assert "slow down" in line
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert output.startswith("0 done, 2 left, ")


def test_ctrl_c_twice_stops_what_runs_and_the_next_run_continues_it(
    server: AnsweringServer, out: Path, tmp_path: Path, db: SessionDB
) -> None:
    gate = threading.Event()

    def reply(_prompt: str, _asked: Asked) -> None:
        gate.wait(20)

    server.reply = reply
    file = write_prompts(tmp_path, "one", "two", "three")
    process = start(file, out, "--workers", "2")
    until(lambda: len(server.asked) == 2, lambda: f"{server.asked}")
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert read_lines(out / "results.jsonl") == []
    gate.set()
    process = start(file, out, "--resume")
    process.communicate(timeout=60)
    assert process.returncode == 0
    check_answers(db, read_lines(out / "results.jsonl"), ["one", "two", "three"])


def test_only_one_process_works_on_a_run(
    server: AnsweringServer, out: Path, tmp_path: Path, run_batch: RunBatch
) -> None:
    gate = threading.Event()

    def reply(_prompt: str, _asked: Asked) -> None:
        gate.wait(20)

    server.reply = reply
    file = write_prompts(tmp_path, "one")
    process = start(file, out)
    until(lambda: len(server.asked) == 1, lambda: f"{server.asked}")
    with pytest.raises(RunRefused, match="another process works on"):
        run_batch("one", resumes=True)
    gate.set()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert Counter(server.asked) == {"one": 1}


def test_the_files_of_a_run_are_private(server: AnsweringServer, run_batch: RunBatch, out: Path) -> None:
    run_batch("one")
    for path in (out, *out.rglob("*")):
        assert os.stat(path).st_mode & 0o077 == 0, path
