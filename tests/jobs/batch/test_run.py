"""A run: each prompt is answered in a session of its own, and the files of the run have the results."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hermes.jobs.batch.run_state import RunRefused
from hermes_state import SessionDB
from tests.agent.openai_server import Asked, Reply, calls, refuses, says
from tests.jobs.batch.conftest import COST, MODEL, AnsweringServer, RunBatch, read_lines
from tests.ports import reserve_port


def test_the_results_are_in_the_order_of_the_prompts(server: AnsweringServer, run_batch: RunBatch) -> None:
    def reply(prompt: str, _asked: Asked) -> None:
        time.sleep(0.3 if prompt == "one" else 0.0)  # the first prompt is answered last

    server.reply = reply
    summary, rows = run_batch({"prompt": "one", "id": "a", "metadata": {"set": 1}}, "two", "three", workers=3)
    assert [row["answer"] for row in rows] == ["answer to one", "answer to two", "answer to three"]
    assert rows[0] == {
        "id": "a",
        "prompt": "one",
        "answer": "answer to one",
        "status": "done",
        "error": None,
        "attempts": 1,
        "tokens": {"input": 1000, "output": 100, "cache_read": 0, "cache_write": 0, "reasoning": 0},
        "cost_usd": pytest.approx(COST),
        "seconds": rows[0]["seconds"],
        "model": MODEL,
        "session_id": rows[0]["session_id"],
        "metadata": {"set": 1},
    }
    assert summary.progress.done == 3
    assert summary.progress.cost_usd == pytest.approx(3 * COST)


def test_each_prompt_is_a_session_that_lists_hide(
    server: AnsweringServer, run_batch: RunBatch, db: SessionDB
) -> None:
    _, rows = run_batch("one", "two")
    for row in rows:
        session = db.get_session(row["session_id"])
        assert session is not None
        assert (session["source"], session["kind"], session["end_reason"]) == (
            "batch",
            "job",
            "batch_complete",
        )
        assert [message["content"] for message in db.get_messages(row["session_id"])] == [
            row["prompt"],
            row["answer"],
        ]
    assert db.list_conversations().rows == []


def test_a_prompt_can_have_its_own_system_prompt_and_tools(
    server: AnsweringServer, run_batch: RunBatch
) -> None:
    run_batch(
        {"prompt": "a", "system": "Answer in French.", "tools": []}, {"prompt": "b", "tools": ["todo"]}, "c"
    )
    sent = {asked.body["messages"][-1]["content"]: asked.body for asked in server.requests}
    assert sent["a"]["messages"][0] == {"role": "system", "content": "Answer in French."}
    assert "tools" not in sent["a"]
    assert [tool["function"]["name"] for tool in sent["b"]["tools"]] == ["todo"]
    usual = {tool["function"]["name"] for tool in sent["c"]["tools"]}
    assert "terminal" in usual
    assert not usual & {"memory", "skill_manage", "session_search"}, "prompts would influence each other"


def test_an_action_that_needs_approval_is_refused_and_the_trajectory_says_so(
    server: AnsweringServer, run_batch: RunBatch, out: Path, tmp_path: Path
) -> None:
    def reply(_prompt: str, asked: Asked) -> Reply | None:
        if asked.body["messages"][-1]["role"] == "tool":
            return None
        return calls(("c1", "terminal", json.dumps({"command": f"touch {tmp_path / 'made'}"})))

    server.reply = reply
    run_batch({"prompt": "make a file", "id": "f", "metadata": {"level": 2}})
    assert not (tmp_path / "made").exists()
    (line,) = read_lines(out / "trajectories.jsonl")
    assert [turn["from"] for turn in line["conversations"]] == ["system", "human", "gpt", "tool", "gpt"]
    _, human, call, response, answer = [turn["value"] for turn in line["conversations"]]
    assert human == "make a file"
    assert call.startswith("<think>\n</think>\n<tool_call>\n{")
    assert json.loads(call.partition("<tool_call>")[2].partition("</tool_call>")[0])["name"] == "terminal"
    assert response.startswith("<tool_response>\n")
    assert "nobody can be asked for approval" in response
    assert answer == "<think>\n</think>\nanswer to make a file"
    assert (line["prompt_index"], line["completed"], line["partial"], line["api_calls"]) == (
        0,
        True,
        False,
        2,
    )
    assert line["metadata"]["level"] == 2
    assert line["tool_stats"]["terminal"] == {"count": 1, "success": 0, "failure": 1}
    assert line["tool_stats"]["read_file"] == {"count": 0, "success": 0, "failure": 0}
    assert line["tool_error_counts"]["terminal"] == 1


def test_reasoning_is_in_the_trajectory_and_not_in_the_answer(
    server: AnsweringServer, run_batch: RunBatch, out: Path
) -> None:
    server.reply = lambda _prompt, _asked: says("<think>Light scatters.</think>Rayleigh.")
    _, rows = run_batch("Why is the sky blue?")
    assert rows[0]["answer"] == "Rayleigh."
    (line,) = read_lines(out / "trajectories.jsonl")
    assert line["conversations"][-1]["value"] == "<think>\nLight scatters.\n</think>\nRayleigh."


def test_the_sessions_can_be_imported_elsewhere(
    server: AnsweringServer, run_batch: RunBatch, out: Path, tmp_path: Path
) -> None:
    run_batch("one", "two")
    with SessionDB(tmp_path / "other.db") as other:
        other.import_sessions(read_lines(out / "sessions.jsonl"))
        assert other.session_count("batch") == 2


def test_a_failed_prompt_does_not_stop_the_others_and_can_be_tried_again(
    server: AnsweringServer, run_batch: RunBatch, out: Path, db: SessionDB
) -> None:
    is_broken = True
    server.reply = lambda prompt, _: refuses(400, "bad words") if is_broken and prompt == "bad" else None
    summary, rows = run_batch("one", "bad", "three")
    assert [row["status"] for row in rows] == ["done", "failed", "done"]
    assert rows[1]["answer"] is None
    assert "bad words" in rows[1]["error"]
    assert rows[1]["attempts"] == 1, "the same request would be refused again"
    assert len(read_lines(out / "failed_trajectories.jsonl")) == 1
    is_broken = False
    server.asked.clear()
    summary, again = run_batch(retries=True)
    assert server.asked == ["bad"]
    assert [row["status"] for row in again] == ["done", "done", "done"]
    assert (again[0], again[2]) == (rows[0], rows[2])
    assert again[1]["session_id"] == rows[1]["session_id"]
    assert [message["role"] for message in db.get_messages(again[1]["session_id"])] == ["user", "assistant"]
    assert read_lines(out / "failed_trajectories.jsonl") == []
    assert summary.progress.failed == 0
    with pytest.raises(RunRefused, match=r"no prompt of .* has failed"):
        run_batch(retries=True)


def test_a_server_error_is_tried_again_and_counted(server: AnsweringServer, run_batch: RunBatch) -> None:
    replies = [refuses(500, "out of order"), refuses(503, "out of order")]
    server.reply = lambda prompt, _: replies.pop() if prompt == "hard" and replies else None
    summary, rows = run_batch("easy", "hard")
    assert [(row["status"], row["attempts"]) for row in rows] == [("done", 1), ("done", 3)]
    assert summary.retries == 2


def test_a_prompt_fails_after_its_last_attempt(server: AnsweringServer, run_batch: RunBatch) -> None:
    server.reply = lambda _prompt, _asked: refuses(500, "out of order")
    summary, rows = run_batch("one", attempts=2)
    assert (rows[0]["status"], rows[0]["attempts"], len(server.asked)) == ("failed", 2, 2)
    assert summary.reason is None


def test_the_time_limit_is_for_each_attempt(server: AnsweringServer, run_batch: RunBatch) -> None:
    def reply(prompt: str, _asked: Asked) -> None:
        time.sleep(1.0 if prompt == "slow" and server.asked.count("slow") == 1 else 0.0)

    server.reply = reply
    summary, rows = run_batch("slow", timeout_s=0.5)
    assert (rows[0]["status"], rows[0]["attempts"], summary.retries) == ("done", 2, 1)


def test_a_wrong_key_stops_the_run_and_fails_no_prompt(server: AnsweringServer, run_batch: RunBatch) -> None:
    server.reply = lambda _prompt, _asked: refuses(401, "wrong key")
    summary, rows = run_batch("one", "two", "three", workers=1)
    assert (summary.reason, rows) == ("problem", [])
    assert "does not accept the key" in (summary.problem or "")
    assert len(server.asked) == 1
    server.reply = lambda _prompt, _asked: None
    _, rows = run_batch("one", "two", "three", resumes=True)
    assert [row["status"] for row in rows] == ["done", "done", "done"]


def test_an_endpoint_that_is_away_for_a_moment_fails_no_prompt(
    server: AnsweringServer, run_batch: RunBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = reserve_port()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    late: list[AnsweringServer] = []
    starting = threading.Timer(1.0, lambda: late.append(AnsweringServer(port)))
    starting.start()
    summary, rows = run_batch("one", "two", "three")
    starting.join()
    late[0].close()
    assert [(row["status"], row["attempts"]) for row in rows] == [("done", 1)] * 3
    assert summary.refused >= 1


def test_the_limit_is_the_first_prompts_and_can_be_raised(
    server: AnsweringServer, run_batch: RunBatch
) -> None:
    summary, rows = run_batch("one", "two", "three", limit=2)
    assert [row["id"] for row in rows] == ["1", "2"]
    assert summary.progress.total == 2
    _, rows = run_batch("one", "two", "three", resumes=True)
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert sorted(server.asked) == ["one", "three", "two"]


class TestBudget:
    def test_no_prompt_starts_that_does_not_fit(self, server: AnsweringServer, run_batch: RunBatch) -> None:
        prompts = [{"prompt": f"q{number}", "tools": [], "system": "s"} for number in range(20)]
        summary, rows = run_batch(*prompts, budget_usd=0.002, workers=2)
        assert summary.reason == "budget"
        spent = sum(row["cost_usd"] for row in rows)
        assert spent <= 0.002
        assert spent + COST > 0.002, "another prompt would have fitted"
        assert len(server.asked) == len(rows) == 9

    def test_it_counts_what_an_earlier_part_of_the_run_spent(
        self, server: AnsweringServer, run_batch: RunBatch
    ) -> None:
        prompts = [{"prompt": f"q{number}", "tools": [], "system": "s"} for number in range(20)]
        run_batch(*prompts, limit=5)
        summary, rows = run_batch(*prompts, resumes=True, budget_usd=0.002)
        assert (summary.reason, len(rows)) == ("budget", 9)
        summary, rows = run_batch(*prompts, resumes=True, budget_usd=1.0)
        assert (summary.reason, len(rows), len(server.asked)) == (None, 20, 20)

    def test_it_counts_answers_that_the_journal_has_lost(
        self, server: AnsweringServer, run_batch: RunBatch, out: Path
    ) -> None:
        prompts = [{"prompt": f"q{number}", "tools": [], "system": "s"} for number in range(20)]
        run_batch(*prompts, limit=5)
        (out / "state" / "journal.jsonl").write_bytes(b"")
        summary, rows = run_batch(*prompts, resumes=True, budget_usd=0.002)
        assert (summary.reason, len(rows), len(server.asked)) == ("budget", 9, 9)
        assert summary.progress.cost_usd == pytest.approx(9 * COST)

    def test_a_model_without_a_known_price_is_refused(
        self, run_batch: RunBatch, monkeypatch: pytest.MonkeyPatch, out: Path
    ) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", "https://models.example/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("HERMES_MODEL", "unheard-of")
        with pytest.raises(RunRefused, match="the price of unheard-of is unknown"):
            run_batch("one", budget_usd=1.0)
        assert not out.exists()


class TestRateLimit:
    def test_all_workers_wait_as_long_as_the_provider_asks(
        self, server: AnsweringServer, run_batch: RunBatch
    ) -> None:
        refused_at: list[float] = []
        asked_at: list[float] = []

        def reply(_prompt: str, _asked: Asked) -> Reply | None:
            if not refused_at:
                refused_at.append(time.monotonic())
                return refuses(429, "slow down", {"Retry-After": "1"})
            if time.monotonic() - refused_at[0] < 0.2:  # requests that were on their way
                return refuses(429, "slow down", {"Retry-After": "1"})
            asked_at.append(time.monotonic())
            return None

        server.reply = reply
        summary, rows = run_batch(*(f"q{number}" for number in range(8)), workers=4)
        assert [(row["status"], row["attempts"]) for row in rows] == [("done", 1)] * 8
        assert min(asked_at) - refused_at[0] >= 0.95
        assert summary.refused >= 1
        assert summary.retries == 0, "a refused request is no failed attempt"

    def test_the_time_in_which_the_provider_refuses_does_not_count_for_the_time_limit(
        self, server: AnsweringServer, run_batch: RunBatch
    ) -> None:
        replies = [refuses(429, "slow down", {"Retry-After": "1.5"})]
        server.reply = lambda _prompt, _asked: replies.pop() if replies else None
        summary, rows = run_batch("one", timeout_s=1.0)
        assert (rows[0]["status"], rows[0]["attempts"], summary.retries) == ("done", 1, 0)


def test_prompts_that_a_run_does_not_have_are_refused(
    server: AnsweringServer, run_batch: RunBatch, out: Path
) -> None:
    run_batch("one", "two")
    before = {file.name: file.read_bytes() for file in out.glob("*.jsonl")}
    with pytest.raises(RunRefused, match="are not those of the run"):
        run_batch("one", "three", resumes=True)
    with pytest.raises(RunRefused, match="continue it with --resume, or choose another --out"):
        run_batch("one", "two")
    assert {file.name: file.read_bytes() for file in out.glob("*.jsonl")} == before
    assert sorted(server.asked) == ["one", "two"]


def test_files_that_are_not_of_a_batch_are_kept(
    server: AnsweringServer, run_batch: RunBatch, out: Path
) -> None:
    out.mkdir()
    (out / "results.jsonl").write_text("mine")
    with pytest.raises(RunRefused, match=r"already has a file results\.jsonl"):
        run_batch("one")
    assert (out / "results.jsonl").read_text() == "mine"
    assert server.asked == []


def test_a_session_in_the_trash_fails_its_prompt_only(
    server: AnsweringServer, run_batch: RunBatch, db: SessionDB
) -> None:
    prompts: list[dict[str, Any]] = [{"prompt": "one"}, {"prompt": "bad"}]
    server.reply = lambda prompt, _: refuses(400, "bad words") if prompt == "bad" else None
    _, rows = run_batch(*prompts)
    db.trash_session(rows[1]["session_id"])
    _, rows = run_batch(retries=True)
    assert [row["status"] for row in rows] == ["done", "failed"]
    assert "is in the trash" in rows[1]["error"]
