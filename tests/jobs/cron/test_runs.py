"""Runs: a turn without a person, in a session of its own or in one that goes on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes import clock
from hermes.jobs.cron.job_files import JobFiles
from hermes_state import SessionDB
from tests.agent.task_server import TaskServer
from tests.jobs.cron.conftest import AddJob, run_now, tick

pytestmark = pytest.mark.usefixtures("server")


def use_terminal(command: str) -> str:
    return f"use terminal {json.dumps({'command': command})}"


def texts(db: SessionDB, session_id: str | None) -> list[str]:
    return [str(row["content"]) for row in db.get_messages(str(session_id))]


# Sessions


def test_a_run_has_a_session_of_its_own_that_lists_hide(db: SessionDB, add_job: AddJob) -> None:
    job = add_job("say good morning", name="Morning report", timezone="Europe/Berlin")
    run = run_now(db, job)
    assert run.state == "done"
    session = db.get_session(str(run.session_id))
    assert session is not None
    assert re.fullmatch(r"cron_morning-report_\d{8}_\d{6}", session["id"])
    assert (session["source"], session["kind"], session["end_reason"]) == ("cron", "job", "cron_complete")
    assert texts(db, run.session_id)[1] == "good morning"
    assert db.list_conversations().rows == []
    assert db.list_conversations().hidden == {"cron": 1}


def test_the_prompt_says_when_the_run_was_due_in_the_zone_of_the_job(db: SessionDB, add_job: AddJob) -> None:
    job = add_job("say hello", timezone="Asia/Tokyo")
    run = run_now(db, job)
    assert texts(db, run.session_id)[0] == f"say hello\n\n(manual run of {job.format_time(run.due_at)})"
    assert "JST" in texts(db, run.session_id)[0]


def test_with_session_job_today_s_run_knows_yesterday_s(
    db: SessionDB, add_job: AddJob, server: TaskServer
) -> None:
    job = add_job("say hello", session="job")
    first, second = run_now(db, job), run_now(db, job)
    assert first.session_id == second.session_id
    roles = [message["role"] for message in server.requests[-1].body["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    session = db.get_session(str(first.session_id))
    assert session is not None
    assert session["end_reason"] == "cron_complete"


def test_with_session_job_a_deleted_conversation_is_followed_by_a_new_one(
    db: SessionDB, add_job: AddJob
) -> None:
    job = add_job("say hello", session="job")
    first = run_now(db, job)
    db.delete_session(str(first.session_id))
    second = run_now(db, job)
    assert second.state == "done"
    assert len(texts(db, second.session_id)) == 2


def test_a_run_in_a_person_s_session_leaves_it_open(db: SessionDB, add_job: AddJob) -> None:
    db.create_session("mine", "cli")
    db.append_message("mine", "user", "remember the milk")
    db.append_message("mine", "assistant", "I will")
    job = add_job("say noted", session="mine", timeout="5s")
    assert run_now(db, job).state == "done"
    assert texts(db, "mine")[-1] == "noted"
    session = db.get_session("mine")
    assert session is not None
    assert session["ended_at"] is None


def test_a_session_that_was_deleted_fails_the_run_with_its_reason(db: SessionDB, add_job: AddJob) -> None:
    job = add_job("say noted", session="gone", retries=0)
    run = run_now(db, job)
    assert (run.state, run.detail) == ("failed", "the session gone of the job was deleted")


def test_only_the_last_runs_are_kept_and_pinned_sessions_stay(db: SessionDB, add_job: AddJob) -> None:
    job = add_job("say hello", keep=2)
    runs = [run_now(db, job)]
    db.pin_session(str(runs[0].session_id))
    runs += [run_now(db, job) for _ in range(3)]
    kept = [run.session_id for run in db.job_runs.list_runs(job.id)]
    assert kept == [runs[3].session_id, runs[2].session_id]
    assert db.get_session(str(runs[0].session_id)) is not None
    assert db.get_session(str(runs[1].session_id)) is None


def test_a_compressed_conversation_of_the_job_is_kept_with_its_last_run(
    db: SessionDB, add_job: AddJob
) -> None:
    job = add_job("say noted", session="job", keep=1)
    first = str(run_now(db, job).session_id)
    child = db.begin_continuation(first, "a summary", [])
    second = run_now(db, job)
    assert second.session_id == child
    assert [run.session_id for run in db.job_runs.list_runs(job.id)] == [child]
    assert db.get_session(first) is not None
    assert db.get_session(child) is not None


def test_the_last_due_time_is_remembered_although_its_run_is_not_kept(db: SessionDB, add_job: AddJob) -> None:
    job = add_job("say hello", due=10, keep=1)
    tick(db)
    run_now(db, job)
    run_now(db, job)
    tick(db)
    assert sum(run.cause != "manual" for run in db.job_runs.list_runs(job.id)) == 1


# Permissions


def test_a_command_that_is_not_on_the_allowlist_is_refused_and_the_result_says_so(
    db: SessionDB, add_job: AddJob, workspace: Path, files: JobFiles
) -> None:
    job = add_job(use_terminal("touch made"), deliver="file")
    run = run_now(db, job)
    assert not (workspace / "made").exists()
    assert run.state == "done"
    assert run.detail == "refused, because the job's allowlist does not name it: `touch made`"
    (result,) = (files.output_folder / job.id).iterdir()
    assert "⚠ Refused, because the job's allowlist does not name it: `touch made`" in result.read_text()
    assert "nobody can be asked" in texts(db, run.session_id)[2]


def test_an_allowed_command_runs(db: SessionDB, add_job: AddJob, workspace: Path) -> None:
    job = add_job(use_terminal("touch made"), allow=("touch made",))
    run = run_now(db, job)
    assert run.detail is None
    assert (workspace / "made").exists()


def test_the_first_words_of_a_command_allow_all_that_begin_so(
    db: SessionDB, add_job: AddJob, workspace: Path
) -> None:
    assert run_now(db, add_job(use_terminal("touch made here"), allow=("touch made",))).detail is None
    assert (workspace / "here").exists()


@pytest.mark.parametrize(
    "command", ["touch made && rm made", "touch $(echo made)", "touch made > other", "sh -c 'touch made'"]
)
def test_an_allowed_command_does_not_carry_another_one(
    command: str, db: SessionDB, add_job: AddJob, workspace: Path
) -> None:
    run = run_now(db, add_job(use_terminal(command), allow=("touch made", "sh")))
    assert "touch" in (run.detail or "")
    assert list(workspace.iterdir()) == []


def test_what_a_person_allowed_in_the_workspace_does_not_apply_to_jobs(
    db: SessionDB, add_job: AddJob, workspace: Path
) -> None:
    from hermes.agent.approvals.grants import Grants
    from hermes.agent.approvals.request import Scope
    from hermes.config import config_file

    Grants().add(workspace, Scope.COMMAND, "touch made")
    config_file.change("approvals.mode", "auto")
    assert "touch made" in (run_now(db, add_job(use_terminal("touch made"))).detail or "")


def test_edits_need_their_own_permission(db: SessionDB, add_job: AddJob, workspace: Path) -> None:
    prompt = f"use write_file {json.dumps({'path': 'notes.txt', 'content': 'milk'})}"
    assert "notes.txt" in (run_now(db, add_job(prompt, name="a")).detail or "")
    assert run_now(db, add_job(prompt, name="b", allow_edits=True)).detail is None
    assert (workspace / "notes.txt").read_text() == "milk"


def test_a_job_has_neither_memory_nor_the_tool_that_makes_jobs(
    db: SessionDB, add_job: AddJob, server: TaskServer, home: Path
) -> None:
    (home / "memories").mkdir(mode=0o700)
    (home / "memories" / "USER.md").write_text("The person likes tea.")
    run_now(db, add_job("say hello"))
    asked = server.requests[-1].body
    names = {tool["function"]["name"] for tool in asked["tools"]}
    assert "terminal" in names
    assert not names & {"memory", "schedule_job"}
    assert "likes tea" not in asked["messages"][0]["content"]
    assert "scheduled job" in asked["messages"][0]["content"]


# Outcomes


def test_a_silent_result_is_kept_and_not_delivered(db: SessionDB, add_job: AddJob, files: JobFiles) -> None:
    run = run_now(db, add_job("say [SILENT]", deliver="file"))
    assert (run.state, run.delivery) == ("done", "silent")
    assert not files.output_folder.exists()
    assert texts(db, run.session_id)[-1] == "[SILENT]"


def test_a_result_replaces_the_named_file(db: SessionDB, add_job: AddJob, workspace: Path) -> None:
    job = add_job("say hello", deliver="file:result.md")
    run_now(db, job)
    run = run_now(db, job)
    assert run.delivery == f"file {workspace / 'result.md'}"
    assert (workspace / "result.md").read_text() == "hello\n"


def test_as_many_result_files_are_kept_as_runs(db: SessionDB, add_job: AddJob, files: JobFiles) -> None:
    job = add_job("say hello", deliver="file", keep=2)
    folder = files.output_folder / job.id
    folder.mkdir(parents=True)
    for day in range(1, 5):
        (folder / f"2026010{day}_090000.md").write_text("old")
    run_now(db, job)
    assert sorted(file.name for file in folder.iterdir())[0] == "20260104_090000.md"
    assert len(list(folder.iterdir())) == 2


def test_a_run_in_a_person_s_session_does_not_move_it_to_another_directory(
    db: SessionDB, add_job: AddJob, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    db.create_session("mine", "cli", cwd=str(elsewhere), workspace=str(elsewhere))
    run_now(db, add_job("say noted", session="mine"))
    session = db.get_session("mine")
    assert session is not None
    assert session["cwd"] == str(elsewhere)


def test_a_failed_run_is_tried_again_and_reported_when_the_attempts_are_used_up(
    db: SessionDB, add_job: AddJob, files: JobFiles
) -> None:
    job = add_job("fail", due=5, retries=1, deliver="file")
    tick(db)
    (first,) = db.job_runs.list_runs(job.id)
    assert first.state == "failed"
    assert first.retry_at is not None
    assert 50 < first.retry_at - clock.now() < 70
    assert not files.output_folder.exists()
    second = db.job_runs.claim_retry(first)
    assert second is not None
    import asyncio

    from hermes.jobs.cron.ticker import Ticker

    ended = asyncio.run(Ticker(db, None).runner.run(job, second)).run
    assert (ended.state, ended.attempt, ended.retry_at) == ("failed", 2, None)
    (report,) = (files.output_folder / job.id).iterdir()
    assert "did not succeed" in report.read_text()


def test_a_run_that_takes_too_long_is_stopped(db: SessionDB, add_job: AddJob) -> None:
    run = run_now(db, add_job("hold forever", timeout="5s", retries=0))
    assert (run.state, run.detail) == ("failed", "timed out after 5s")
    session = db.get_session(str(run.session_id))
    assert session is not None
    assert session["end_reason"] == "cron_failed"


def test_a_missing_workspace_or_model_fails_the_run_and_leaves_no_empty_session(
    db: SessionDB, add_job: AddJob, files: JobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job("say hello", retries=0)
    away = msgspec.structs.replace(job, workspace="/nowhere")
    assert run_now(db, away).detail == "there is no directory /nowhere"
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    assert run_now(db, job).state == "failed"
    assert db.list_conversations(include_hidden=True).rows == []


def test_two_runs_of_a_job_do_not_overlap(db: SessionDB, add_job: AddJob) -> None:
    job = add_job("say hello", due=5)
    running = db.job_runs.claim(job.id, int(clock.now()), "manual")
    assert running is not None
    tick(db)
    assert [run.key for run in db.job_runs.list_runs(job.id)] == [running.key]
    db.job_runs.finish(running, "done")
    tick(db)
    assert len(db.job_runs.list_runs(job.id)) == 2


def test_a_bad_file_does_not_stop_the_others(
    db: SessionDB, add_job: AddJob, files: JobFiles, caplog: pytest.LogCaptureFixture
) -> None:
    job = add_job("say hello", due=5)
    (files.folder / "broken.json").write_text("{")
    tick(db)
    assert [run.state for run in db.job_runs.list_runs(job.id)] == ["done"]
    assert "broken.json is ignored" in caplog.text


def test_a_paused_job_does_not_run_and_a_one_time_job_runs_once(db: SessionDB, add_job: AddJob) -> None:
    add_job("say hello", due=5, name="paused", enabled=False)
    add_job("say hello", due=5, name="once")
    tick(db)
    tick(db)
    assert [run.job_id for run in db.job_runs.list_runs()] == ["once"]


# Records and deletion


def test_deleting_a_session_keeps_the_record_of_the_run_without_its_text(
    db: SessionDB, add_job: AddJob
) -> None:
    job = add_job(use_terminal("touch secret-name"))
    run = run_now(db, job)
    db.delete_session(str(run.session_id))
    (kept,) = db.job_runs.list_runs(job.id)
    assert (kept.state, kept.session_id, kept.detail) == ("done", None, None)


def test_a_person_on_a_platform_sees_no_runs(db: SessionDB, add_job: AddJob) -> None:
    from hermes.store.people import Principal

    run = run_now(db, add_job("say hello"))
    store: Any = db.scoped(Principal("telegram", "7"))
    assert store.get_session(str(run.session_id)) is None
    assert store.list_conversations(include_hidden=True).rows == []
