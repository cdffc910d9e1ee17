"""The chat with the standard components: a model over HTTP or offline, real tools, titles and memory."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.agent.factory import list_inferior_models, make_standard_components
from hermes.agent.models import local
from hermes.agent.models.choice import OFFLINE
from hermes.cli.chat import MISSING
from hermes.config import config_file
from hermes.config.extras import format_install
from hermes.config.settings import read_settings
from hermes_state import SessionDB
from tests import warm_command
from tests.agent.openai_server import ModelServer, calls, says, usage
from tests.chat.conftest import Typing

HERMES = [sys.executable, "-W", "error", "-m", "hermes.cli.main"]


@pytest.fixture
def chosen(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("HERMES_MODEL", "large-model")
    return model_server


async def test_a_conversation_with_a_model_behind_http(
    chosen: ModelServer, db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("buy milk")
    chosen.will(
        calls(("call_1", "read_file", json.dumps({"path": "notes.txt"}))),
        says("You want milk.", used=usage(prompt_tokens=100, completion_tokens=5)),
        says("Notes About Milk"),
    )
    shown = await typing("what is in my notes?", parts=make_standard_components())
    (row,) = db.search_sessions()
    assert "✓ read_file notes.txt" in shown
    assert "You want milk." in shown
    assert (row["title"], row["model"]) == ("Notes About Milk", "large-model")
    assert "buy milk" in json.dumps(chosen.requests[1].body)
    session = db.get_session(row["id"])
    assert session is not None
    assert "session_search" in session["system_prompt"]
    config = json.loads(session["model_config"])
    assert (config["model"], config["endpoint"]) == ("large-model", chosen.base_url)
    assert config["context_window"] > 0
    assert "sk-test" not in session["model_config"]
    answers = [message for message in db.get_messages(row["id"]) if message["role"] == "assistant"]
    assert [answer["token_count"] for answer in answers] == [None, 5]


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm_command.run(words, environment=environment)


def test_one_question_to_a_model_behind_http(chosen: ModelServer, db: SessionDB) -> None:
    chosen.will(says("Paris.", used=usage(prompt_tokens=20, completion_tokens=2)))
    done = run("-q", "capital of France?", "--json")
    told = json.loads(done.stdout)
    assert (told["answer"], told["model"], told["usage"]["input_tokens"]) == ("Paris.", "large-model", 20)
    chosen.will(says("Rome."))
    assert run("-c", "-q", "and of Italy?", "-m", "small-model").stdout == "Rome.\n"
    assert [message["role"] for message in chosen.requests[-1].body["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert chosen.requests[-1].body["model"] == "small-model"
    assert told["session_id"] == db.search_sessions()[0]["id"]


def test_the_offline_model_needs_nothing(db: SessionDB, tmp_path: Path) -> None:
    done = run("-q", "run echo hello", "--model", "offline", "--in", str(tmp_path))
    assert done.returncode == 0
    assert "hello" in done.stdout


def test_a_question_prints_commands_and_edits_to_stderr_and_the_answer_to_stdout(
    tmp_path: Path,
) -> None:
    config_file.change("approvals.mode", "off")

    def lines(question: str) -> list[str]:
        done = run("-q", question, "--model", "offline", "--in", str(tmp_path))
        assert done.returncode == 0
        assert "hermes:" not in done.stdout
        return [line for line in done.stderr.splitlines() if line.startswith("hermes: ")]

    assert lines(f"run echo {'a' * 300};\n false \x1b]0; true #\x07") == [
        f"hermes: terminal echo {'a' * 300}; ⏎  false \\x1b]0; true #\\x07"
    ]
    first, second = lines("run exit 3")
    assert (first, second) == ("hermes: terminal exit 3", "hermes: terminal exit 3: exit code 3")
    assert lines("write notes.txt: hello") == ["hermes: write_file notes.txt: created, +1 −0"]
    assert lines("write notes.txt: good day") == ["hermes: write_file notes.txt: replaced, +1 −1"]
    (told,) = lines(f"write {tmp_path}: hello")
    assert told.startswith(f"hermes: write_file {tmp_path}: error: ")
    assert lines("read notes.txt") == []


def test_one_question_gets_a_title_as_any_conversation_does(db: SessionDB) -> None:
    assert run("-q", "run echo retry budget", "--model", "offline").returncode == 0
    assert db.search_sessions()[0]["title"] == "Run echo retry budget"


def test_without_a_model_the_error_says_how_to_choose_one(home: Path) -> None:
    done = run("-q", "hello", OPENAI_API_KEY="", HERMES_MODEL="", OPENROUTER_API_KEY="", OPENAI_BASE_URL="")
    assert done.returncode == 1
    assert "hermes setup" in done.stderr


def test_without_the_extra_the_error_says_how_to_install_it(home: Path, tmp_path: Path) -> None:
    """The libraries are hidden from the process, as if they were not installed."""
    blocker = "import sys\nimport importlib.util as u\nfind = u.find_spec\n"
    blocker += "u.find_spec = lambda name, package=None: None if name == 'rich' else find(name, package)\n"
    blocker += "sys.modules.update(dict.fromkeys(['rich', 'prompt_toolkit', 'openai']))\n"
    (tmp_path / "sitecustomize.py").write_text(blocker)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    asked = run("-q", "hello", OPENAI_API_KEY="k", HERMES_MODEL="large-model", PYTHONPATH=path)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert "pip install 'hermes-sessions[chat]'" in asked.stderr
    assert "hello" in run("-q", "run echo hello", "--model", "offline", PYTHONPATH=path).stdout
    shown = run("demo", PYTHONPATH=path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Hermes Insights" in shown.stdout
    ours, its = pty.openpty()
    chat = [*HERMES, "--model", "offline"]
    talking = subprocess.run(
        chat,
        stdin=its,
        stdout=its,
        stderr=subprocess.PIPE,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path},
    )
    os.close(ours)
    os.close(its)
    assert talking.stderr.decode() == f"hermes: {MISSING.format(format_install('chat', 'tui'))}\n"


async def test_memory_skills_and_background_processes_are_those_of_the_agent(
    db: SessionDB, typing: Typing, home: Path
) -> None:
    config_file.change("model.default", "offline")
    config_file.change("agent.nonsense", True)
    shown = await typing(
        "remember I like tea", "/memory", "/skills", "/stop", "/compress", parts=make_standard_components()
    )
    assert "I like tea" in shown
    assert "There are no skills yet." in shown
    assert "Nothing is running." in shown
    assert "No changes from compression: 4 messages" in shown
    assert "agent.nonsense" in shown
    assert db.search_sessions()[0]["title"]


def test_the_small_model_makes_titles_and_summaries_only_where_it_was_named_for_them() -> None:
    assert list_inferior_models(read_settings({"model.default": local.NAME})) == {OFFLINE, local.NAME}
    named = read_settings({"model.default": "large", "auxiliary.model": local.NAME})
    assert list_inferior_models(named) == {OFFLINE}
