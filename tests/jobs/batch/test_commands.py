"""`hermes batch`: what the commands print, their exit codes, and the progress on a terminal."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.agent.openai_server import Asked, refuses
from tests.cli.conftest import COMMAND, Hermes
from tests.jobs.batch.conftest import AnsweringServer, read_lines, write_prompts
from tests.terminal import INTERRUPT, Terminal


def test_a_run_prints_how_it_ended_and_where_the_results_are(
    server: AnsweringServer,
    hermes: Hermes,
    out: Path,
    tmp_path: Path,
) -> None:
    file = write_prompts(tmp_path, "one", "two")
    done = hermes("batch", "run", str(file), "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"2 done, $0.0004\nresults: {out}/results.jsonl\n"
    listed = hermes("sessions", "list")
    assert "2 batch hidden" in listed.stdout
    assert "one" in hermes("sessions", "list", "--source", "batch").stdout
    again = hermes("batch", "run", str(file), "--out", str(out), "--resume")
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert len(server.asked) == 2


def test_failed_prompts_give_exit_code_1_and_can_be_tried_again(
    server: AnsweringServer,
    hermes: Hermes,
    out: Path,
    tmp_path: Path,
) -> None:
    is_broken = True
    server.reply = lambda prompt, _: refuses(400, "bad words") if is_broken and prompt == "two" else None
    file = write_prompts(tmp_path, "one", {"prompt": "two", "id": "b"})
    done = hermes("batch", "run", str(file), "--out", str(out))
    assert done.returncode == 1
    assert done.stdout.startswith("1 done, 1 failed, ")
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("hermes: b failed: ")
    assert last == f"  try the failed prompts again: hermes batch retry-failed {out}"

    status = hermes("batch", "status", str(out)).stdout
    assert "1 done, 1 failed, 0 running, 0 queued" in status
    failed = hermes("batch", "results", str(out), "--status", "failed").stdout
    assert failed.startswith("b ")
    assert "bad words" in failed

    is_broken = False
    done = hermes("batch", "retry-failed", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 done, ")
    assert hermes("batch", "results", str(out), "--status", "failed").stdout == "No prompt is failed.\n"


def test_programs_read_json(
    server: AnsweringServer,
    hermes: Hermes,
    out: Path,
    tmp_path: Path,
) -> None:
    file = write_prompts(tmp_path, "one", "two", "three")
    ended = json.loads(hermes("batch", "run", str(file), "--out", str(out), "--limit", "2", "--json").stdout)
    assert (ended["total"], ended["done"], ended["left"], ended["stopped"]) == (2, 2, 0, None)
    status = json.loads(hermes("batch", "status", str(out), "--json").stdout)
    assert (status["total"], status["done"], status["queued"], status["is_running"]) == (3, 2, 1, False)
    assert status["continue"] == f"hermes batch run {file} --out {out} --resume"
    rows = json.loads(hermes("batch", "results", str(out), "--json", "id,answer").stdout)
    assert rows == [{"id": "1", "answer": "answer to one"}, {"id": "2", "answer": "answer to two"}]


def test_wrong_input_is_reported_before_anything_runs(
    server: AnsweringServer,
    hermes: Hermes,
    out: Path,
    tmp_path: Path,
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "fine"}\n{"prompt": ""}\n')
    done = hermes("batch", "run", str(file), "--out", str(out))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"hermes: {file}, line 2: `prompt` is missing or empty\n"
    assert server.asked == []
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--workers", "0"), "argument --workers: expected a whole number from 1 to 256"),
        (("--workers", "257"), "argument --workers: expected a whole number from 1 to 256"),
        (("--budget", "-1"), "argument --budget: expected a number above 0"),
        (("--timeout", "nan"), "argument --timeout: expected a number above 0"),
        (("--limit", "0"), "argument --limit: expected a whole number"),
    ],
)
def test_wrong_flags_are_wrong_usage(
    hermes: Hermes,
    out: Path,
    words: tuple[str, str],
    problem: str,
) -> None:
    done = hermes("batch", "run", "prompts.jsonl", "--out", str(out), *words)
    assert done.returncode == 2
    assert problem in done.stderr


def test_a_folder_without_a_run_is_refused(hermes: Hermes, tmp_path: Path) -> None:
    for command in ("status", "results", "retry-failed"):
        done = hermes("batch", command, str(tmp_path))
        assert done.returncode == 1
        assert f"{tmp_path} contains no batch" in done.stderr


def test_without_a_model_the_error_says_how_to_choose_one(hermes: Hermes, out: Path, tmp_path: Path) -> None:
    done = hermes("batch", "run", str(write_prompts(tmp_path, "one")), "--out", str(out))
    assert done.returncode == 1
    assert "no model is chosen: run `hermes setup`" in done.stderr


def test_a_terminal_shows_a_bar_with_rate_cost_and_time_left_and_ctrl_c_ends_the_run(
    server: AnsweringServer, out: Path, tmp_path: Path, db: SessionDB
) -> None:
    gate = threading.Event()

    def reply(prompt: str, _asked: Asked) -> None:
        if prompt == "q2":
            gate.wait(20)
        time.sleep(0.1)

    server.reply = reply
    file = write_prompts(tmp_path, *(f"q{number}" for number in range(50)))
    command = [*COMMAND, "batch", "run", str(file), "--out", str(out), "--workers", "1"]
    with Terminal(command) as terminal:
        terminal.sees("2/50", "/s · $0.0004 · ", " left")
        terminal.types(INTERRUPT)
        terminal.sees("finishing 1 running prompt; Ctrl-C again stops them", "finishing 1")
        gate.set()
        assert terminal.ends() == 130
        assert "3 done, 47 left, " in terminal.output
        assert f"continue with: hermes batch run {file} --out {out} --resume" in terminal.output
    assert [row["id"] for row in read_lines(out / "results.jsonl")] == ["1", "2", "3"]
