"""`hermes cron` as a person uses it: one-line errors, times in the zone of the job, and nothing lost."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from hermes import audit_log
from hermes.jobs.cron.job_files import JobFiles
from hermes_state import SessionDB
from tests.agent.task_server import TaskServer
from tests.cli.conftest import Hermes
from tests.jobs.cron.conftest import AddJob, run_now


def read(hermes: Hermes, *words: str) -> Any:
    done = hermes(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_new_job_is_shown_back_with_its_next_five_times_in_its_zone(hermes: Hermes, home: Path) -> None:
    done = hermes(
        "cron", "add", "0 9 * * 1-5", "Summarise my mail", "--name", "Mail", "--timezone", "Asia/Tokyo"
    )
    assert done.returncode == 0, done.stderr
    first, *times = done.stdout.splitlines()
    assert first == "Added the job mail: 0 9 * * 1-5 (Asia/Tokyo)."
    assert len([line for line in times if line.endswith(" 09:00 JST")]) == 5
    assert not any(day in line for line in times[:5] for day in ("Sat", "Sun"))
    assert "hermes cron daemon" in times[-1]
    assert stat.S_IMODE((home / "cron" / "mail.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("soon", "x"), 2, "not understood"),
        (("61 * * * *", "x"), 2, "bad minute"),
        (("@daily", "  "), 2, "the prompt is empty"),
        (("@daily", "x", "--timezone", "Berlin"), 2, "did you mean Europe/Berlin"),
        (("@daily", "x", "--timeout", "soon"), 2, "timeout: a duration such as 30m"),
        (("@daily", "x", "--retries", "1000"), 2, "retries: a number from 0 to 20"),
        (("@daily", "x", "--keep", "0"), 2, "keep: a number"),
        (("@daily", "x", "--missed", "maybe"), 2, "missed runs: say skip"),
        (("@daily", "x", "--workspace", "/nowhere"), 1, "there is no directory '/nowhere'"),
        (("@daily", "x", "--deliver", "file:/nowhere/a.md"), 1, "there is no directory '/nowhere'"),
        (("@daily", "x", "--deliver", "pigeon"), 1, "there is no platform 'pigeon'"),
        (("@daily", "x", "--session", "unknown"), 1, "there is no session 'unknown'"),
        (("@daily",), 2, "required: PROMPT"),
    ],
)
def test_wrong_input_is_refused_in_one_line(
    words: tuple[str, ...], code: int, problem: str, hermes: Hermes, home: Path
) -> None:
    done = hermes("cron", "add", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list((home / "cron").glob("*.json")) if (home / "cron").exists() else True


def test_every_option_is_kept_and_can_be_edited(hermes: Hermes, db: SessionDB, workspace: Path) -> None:
    db.create_session("mine", "cli")
    made = read(
        hermes,
        *("cron", "add", "every 2h", "look at the weather", "--name", "weather", "--deliver", "file"),
        *("--session", "mine", "--model", "small-model", "--workspace", str(workspace), "--retries", "3"),
        *("--timeout", "1h30m", "--missed", "all:24h", "--keep", "7", "--timezone", "Europe/Berlin"),
        *("--allow", "git pull", "make test", "--allow-edits", "--paused"),
    )
    assert made["enabled"] is False
    assert (made["allow"], made["allow_edits"]) == (["git pull", "make test"], True)
    assert (made["retries"], made["timeout"], made["missed"], made["keep"]) == (3, "1h30m", "all:24h", 7)
    assert (made["session"], made["model"], made["workspace"]) == ("mine", "small-model", str(workspace))
    changed = read(
        hermes, "cron", "edit", "weather", "--schedule", "weekdays at 7", "--no-allow", "--default-model"
    )
    assert (changed["schedule"], changed["allow"], changed["model"]) == ("0 7 * * 1-5", [], None)
    assert changed["since"] >= made["since"]
    assert changed["retries"] == 3
    for words, problem in (
        (("--schedule", "soon"), "not understood"),
        (("--name", ""), "a name has"),
        (("--session", "unknown"), "there is no session"),
    ):
        done = hermes("cron", "edit", "weather", *words)
        assert done.returncode in (1, 2)
        assert problem in done.stderr
    assert read(hermes, "cron", "show", "weather")["schedule"] == "0 7 * * 1-5"


def test_a_job_can_be_changed_in_an_editor(hermes: Hermes, add_job: AddJob, tmp_path: Path) -> None:
    add_job("say hello", name="one")
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/say hello/say goodbye/' \"$1\"\n")
    editor.chmod(0o755)
    assert hermes("cron", "edit", "one", EDITOR=str(editor)).returncode == 0
    assert JobFiles().find("one").prompt == "say goodbye"
    editor.write_text('#!/bin/sh\necho "{" > "$1"\n')
    done = hermes("cron", "edit", "one", EDITOR=str(editor))
    assert done.returncode == 2
    assert "not JSON" in done.stderr
    assert JobFiles().find("one").prompt == "say goodbye"


def test_pause_and_resume_leave_out_the_time_between(
    hermes: Hermes, add_job: AddJob, files: JobFiles
) -> None:
    job = add_job("say hello", name="one")
    assert hermes("cron", "pause", "one").returncode == 0
    assert not files.find("one").enabled
    assert "paused" in hermes("cron", "list").stdout
    assert hermes("cron", "resume", "one").returncode == 0
    assert files.find("one").enabled
    assert files.find("one").since >= job.since


@pytest.mark.usefixtures("server")
def test_run_prints_the_answer_and_records_the_run(hermes: Hermes, db: SessionDB, add_job: AddJob) -> None:
    add_job("say good morning", name="one")
    done = hermes("cron", "run", "one")
    assert (done.returncode, done.stdout) == (0, "good morning\n")
    assert "manual" in {run["cause"] for run in read(hermes, "cron", "runs", "one")}
    assert "done" in hermes("cron", "runs").stdout
    logs = hermes("cron", "logs", "one").stdout
    assert "[user]\nsay good morning" in logs
    assert "[assistant]\ngood morning" in logs
    assert hermes("cron", "logs", "one", "--run", "2").returncode == 1


@pytest.mark.usefixtures("server")
def test_run_reports_refusals_and_failures(hermes: Hermes, db: SessionDB, add_job: AddJob) -> None:
    add_job('use terminal {"command": "touch made"}', name="refused")
    done = hermes("cron", "run", "refused")
    assert done.returncode == 0
    assert "refused, not on the allowlist: touch made" in done.stderr
    add_job("fail", name="failing", retries=0)
    done = hermes("cron", "run", "failing")
    assert done.returncode == 1
    assert "the model wants nothing of that" in done.stderr
    assert "the model wants nothing of that" in hermes("cron", "runs", "failing").stdout


def test_remove_asks_and_the_job_stays_removed(
    hermes: Hermes, db: SessionDB, add_job: AddJob, server: TaskServer, home: Path
) -> None:
    job = add_job("say hello", name="one")
    run = run_now(db, job)
    assert hermes("cron", "remove", "one", stdin="n\n").returncode == 1
    assert hermes("cron", "remove", "one", "--sessions", "--yes").returncode == 0
    assert hermes("cron", "tick").stdout == ""
    assert read(hermes, "cron", "list") == []
    assert db.job_runs.list_runs() == []
    assert db.get_session(str(run.session_id)) is None
    assert [row["id"] for row in db.list_trash()] == [run.session_id]
    done = hermes("cron", "show", "one")
    assert (done.returncode, done.stderr) == (1, "hermes: there is no job 'one'; see `hermes cron list`\n")
    recorded = [entry["action"] for entry in audit_log.read()]
    assert "job removed" in recorded


def test_a_broken_file_is_named_and_can_be_removed(hermes: Hermes, add_job: AddJob, home: Path) -> None:
    add_job("say hello", name="good")
    (home / "cron" / "bad.json").write_text("{")
    done = hermes("cron", "list")
    assert done.returncode == 0
    assert "good" in done.stdout
    assert "bad.json is ignored: it is not JSON" in done.stderr
    assert "is broken" in hermes("cron", "show", "bad").stderr
    assert hermes("cron", "remove", "bad", "--yes").returncode == 0
    assert hermes("cron", "list").stderr == ""


@pytest.mark.usefixtures("server")
def test_lists_of_sessions_group_the_runs_of_each_job(hermes: Hermes, db: SessionDB, add_job: AddJob) -> None:
    db.create_session("mine", "cli")
    db.append_message("mine", "user", "a conversation of a person")
    for name in ("alpha", "beta"):
        job = add_job("say hello", name=name)
        run_now(db, job)
        run_now(db, job)
    plain = hermes("sessions", "list").stdout
    assert "a conversation of a person" in plain
    assert "cron_" not in plain
    assert "4 cron hidden" in plain
    grouped = hermes("sessions", "list", "--source", "cron").stdout
    beta, alpha = grouped.index("Job beta: 2 conversations"), grouped.index("Job alpha: 2 conversations")
    assert all(beta < place < alpha for place in find_all(grouped, "cron_beta_"))
    assert all(place > alpha for place in find_all(grouped, "cron_alpha_"))
    everything = hermes("sessions", "list", "--all").stdout
    assert everything.index("a conversation of a person") < everything.index("Job beta")
    rows = json.loads(hermes("sessions", "list", "--all", "--json", "id,job").stdout)
    assert {row["job"] for row in rows} == {None, "alpha", "beta"}


def find_all(text: str, part: str) -> list[int]:
    return [place for place in range(len(text)) if text.startswith(part, place)]


def test_without_the_package_for_cron_expressions_the_error_says_what_to_install(
    hermes: Hermes, tmp_path: Path
) -> None:
    (tmp_path / "cronsim.py").write_text("raise ImportError('not here')")
    done = hermes("cron", "add", "0 9 * * *", "x", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "a cron expression needs the package cronsim; run: " in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert hermes("cron", "add", "every 2h", "x", PYTHONPATH=str(tmp_path)).returncode == 0


def test_the_tools_of_the_agent_cannot_make_or_run_jobs() -> None:
    from hermes.cli.command import Access
    from hermes.cli.cron import COMMANDS

    reading = {name for name, command in COMMANDS.items() if command.access is Access.READS}
    assert reading == {"list", "show", "runs", "logs"}
