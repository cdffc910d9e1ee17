"""`hermes config` shows values with their sources and changes them, without printing keys."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.agent.openai_server import ModelServer, says
from tests.cli.conftest import COMMAND, Hermes

KEY = "sk-" + "proj-" + "MadeUpForThisTest0123456789"


def editor(tmp_path: Path, *texts: str) -> str:
    """Return an editor program. At its first start it writes the first of these texts, at its second start
    the second, and so on."""
    for number, text in enumerate(texts):
        (tmp_path / f"text{number}").write_text(text)
    script = tmp_path / "editor"
    count = tmp_path / "count"
    script.write_text(
        f'#!/bin/sh\nn=$(cat "{count}" 2>/dev/null || echo 0)\ncp "{tmp_path}/text$n" "$1"\necho $((n+1)) > "{count}"\n'
    )
    script.chmod(0o755)
    return str(script)


def test_a_setting_is_set_and_read_back(hermes: Hermes, home: Path) -> None:
    done = hermes("config", "set", "agent.max_steps", "7")
    assert (done.returncode, done.stderr) == (0, "")
    assert hermes("config", "get", "agent.max_steps").stdout == "7\n"
    assert (home / "config.yaml").read_text() == "agent:\n  max_steps: 7\n"
    assert json.loads(hermes("config", "get", "agent.max_steps", "--json").stdout) == {
        "key": "agent.max_steps",
        "value": 7,
        "origin": str(home / "config.yaml"),
    }
    assert hermes("config", "unset", "agent.max_steps").returncode == 0
    assert hermes("config", "get", "agent.max_steps").stdout == "60\n"


def test_a_text_that_looks_like_a_number_stays_a_text(hermes: Hermes) -> None:
    assert hermes("config", "set", "model.default", "7").returncode == 0
    assert json.loads(hermes("config", "get", "model.default", "--json").stdout)["value"] == "7"


def test_comments_are_kept(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    written = "# mine\nmodel:\n  default: a # why\n\n# looks\ndisplay:\n  resume_display: full\n"
    (home / "config.yaml").write_text(written)
    assert hermes("config", "set", "model.default", "b").returncode == 0
    assert (home / "config.yaml").read_text() == written.replace("default: a", "default: b")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("set", "agent.max_steps", "many"), 1, "agent.max_steps must be a whole number"),
        (
            ("set", "agent.max_step", "7"),
            1,
            "there is no setting agent.max_step; did you mean agent.max_steps?",
        ),
        (("set", "prices.m.input", "7"), 1, "set them with `hermes config edit`"),
        (("set", "agent.max_steps"), 2, "a value is missing"),
        (("get", "model"), 1, "model is several settings: model.default, model.base_url, model.key_env,"),
        (("set", "model", "m"), 1, "model is several settings: model.default,"),
        (("get", "platforms"), 1, "platforms is several settings: platforms.telegram, platforms.matrix,"),
        (("get", "prices"), 1, "prices is not set"),
        (("get", "nothing.there"), 1, "there is no setting nothing.there"),
        (("get", "model.default"), 1, "model.default is not set"),
        (("get", "OPENAI_API_KEY"), 1, "OPENAI_API_KEY is not set"),
        (("unset", "model.default"), 1, "model.default is not set in"),
        (("unset", "OPENAI_API_KEY"), 1, "OPENAI_API_KEY is not set in"),
        (("set", "b a d_API_KEY", "x"), 1, "not a valid variable name"),
    ],
)
def test_an_invalid_value_is_reported_in_one_line(
    hermes: Hermes, home: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    done = hermes("config", *words)
    assert done.returncode == code
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (home / "config.yaml").exists()


def test_a_key_goes_to_the_private_file_and_is_shown_nowhere(hermes: Hermes, home: Path) -> None:
    said = hermes("config", "set", "OPENAI_API_KEY", KEY).stdout
    said += hermes("config", "set", "OTHER_API_KEY", stdin=f"{KEY}\n").stdout
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    assert (home / ".env").read_text() == f"OPENAI_API_KEY={KEY}\nOTHER_API_KEY={KEY}\n"
    said += hermes("config", "get", "OPENAI_API_KEY").stdout
    said += hermes("config", "list").stdout + hermes("config", "list", "--json").stdout
    assert KEY not in said
    assert "sk-…6789" in said
    assert hermes("config", "unset", "OTHER_API_KEY").returncode == 0
    assert (home / ".env").read_text() == f"OPENAI_API_KEY={KEY}\n"


def test_the_list_says_where_each_value_comes_from(hermes: Hermes, home: Path) -> None:
    hermes("config", "set", "model.default", "in-file")
    done = hermes("config", "list", "--json", HERMES_MODEL="in-environment", GROQ_API_KEY="short")
    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads(done.stdout)}
    assert rows["model.default"] == ("in-environment", "HERMES_MODEL")
    assert rows["GROQ_API_KEY"] == ("…", "environment")
    assert rows["agent.max_steps"] == (60, None)
    assert "OPENAI_API_KEY" not in rows


def test_setting_a_value_that_the_environment_overrides_shows_a_notice(hermes: Hermes) -> None:
    done = hermes("config", "set", "model.default", "x", HERMES_MODEL="y")
    assert (done.returncode, done.stderr) == (
        0,
        "hermes: HERMES_MODEL is set in the environment, which overrides it\n",
    )


def test_a_password_in_an_address_is_not_shown(hermes: Hermes) -> None:
    done = hermes("config", "set", "model.base_url", "https://me:Tr0ub4dor3@example.org/v1")
    assert "Tr0ub4dor3" not in done.stdout + hermes("config", "list").stdout


def test_an_unknown_setting_is_reported_once(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("modle:\n  default: x\n")
    assert (
        hermes("config", "list").stderr
        == f"hermes: {home / 'config.yaml'}: unknown setting: modle; did you mean model?\n"
    )


def test_the_path_is_printed_whether_or_not_it_exists(hermes: Hermes, home: Path) -> None:
    assert hermes("config", "path").stdout == f"{home / 'config.yaml'}\n"


def test_an_edited_file_is_checked_before_it_takes_effect(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    program = editor(tmp_path, "agent: {max_steps: many}\n", "agent: {max_steps: 9}\n")
    done = hermes("config", "edit", stdin="y\n", EDITOR=program, VISUAL="")
    assert done.returncode == 0
    assert "agent.max_steps must be a whole number" in done.stderr
    assert "Edit it again?" in done.stdout
    assert (home / "config.yaml").read_text() == "agent: {max_steps: 9}\n"
    assert stat.S_IMODE((home / "config.yaml").stat().st_mode) == 0o600
    assert sorted(path.name for path in home.iterdir()) == ["audit.log", "config.yaml"]


def test_an_invalid_edit_is_kept_in_a_file(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    hermes("config", "set", "agent.max_steps", "5")
    before = (home / "config.yaml").read_text()
    done = hermes("config", "edit", EDITOR=editor(tmp_path, "model: [", "model:\n  default: x\n"), VISUAL="")
    assert done.returncode == 1
    assert (home / "config.yaml").read_text() == before
    assert (home / "config.yaml.edited").read_text() == "model: ["
    done = hermes("config", "edit", EDITOR=str(tmp_path / "editor"), VISUAL="")
    assert done.returncode == 0
    assert "continuing with your earlier changes" in done.stderr
    assert (home / "config.yaml").read_text() == "model:\n  default: x\n"


def test_without_a_terminal_no_editor_waits_for_keys(hermes: Hermes, home: Path) -> None:
    done = hermes("config", "edit", EDITOR="", VISUAL="")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    expected = "hermes: no editor is set, and the default (vi) needs a terminal; use `hermes config set`"
    assert done.stderr.startswith(expected)
    assert not home.exists()
    reads_all = [*COMMAND, "config", "edit"]
    named = {**os.environ, "EDITOR": "sh -c 'cat >/dev/null'", "VISUAL": ""}
    with subprocess.Popen(reads_all, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=named) as waiting:
        assert waiting.wait(60) == 0  # the stdin of the editor is still open


@pytest.mark.parametrize("program", ["/nowhere/at/all", "false"])
def test_an_editor_that_fails_changes_nothing(hermes: Hermes, home: Path, program: str) -> None:
    done = hermes("config", "edit", EDITOR=program, VISUAL="")
    assert done.returncode == 1
    assert done.stderr.startswith("hermes: the editor")
    assert not (home / "config.yaml").exists()


def test_a_resumed_conversation_keeps_the_context_window_it_was_held_with(
    home: Path, hermes: Hermes, model_server: ModelServer
) -> None:
    """The conversation was started with a model that HERMES_MODEL named. It is resumed without that
    variable."""
    model_server.will(*[says("Yes.")] * 6)
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text(
        f"model: {{default: usual, base_url: '{model_server.base_url}', context_window: 5000}}\n"
    )
    assert hermes("-q", "hello", HERMES_MODEL="another", OPENAI_API_KEY="x").returncode == 0
    with SessionDB() as db:
        (row,) = db.list_sessions_rich()
    assert hermes("-r", row["id"], "-q", "and again", OPENAI_API_KEY="x").returncode == 0
    with SessionDB() as db:
        resumed = db.get_session(row["id"])
    assert resumed is not None
    config = json.loads(resumed["model_config"])
    assert (config["model"], config["context_window"]) == ("another", 5000)
