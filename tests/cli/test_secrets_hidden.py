"""No command prints a key. Each secret setting contains a unique canary text. Every command that shows
settings is run, and its output is searched for the canaries.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from hermes.agent.models.endpoints import PROVIDERS
from hermes.config import config_file
from hermes.config.declarations import make_variable
from hermes.config.redaction import is_secret_name, redact_setting, redact_text
from hermes.gateway import registry
from hermes.gateway.settings import read_gateway_settings
from tests.cli.conftest import Hermes

CANARY = "canary-of-mine"
"""No secret pattern matches the canary, so a command hides it only if it recognises the setting by name."""
NESTED = {
    "keys": {"ann": f"{CANARY}-1-abcdefgh", "bob": [f"{CANARY}-2-abcdefgh"]},
    "routes": [{"path": "/a", "token": f"{CANARY}-3-abcdefgh"}, {"deep": {"apiKey": f"{CANARY}-4-abcdefgh"}}],
    "api_keys": [f"{CANARY}-5-abcdefgh"],
    "headers": {"Authorization": f"Bearer {CANARY}-6"},
    "proxy": f"http://me:{CANARY}-7@127.0.0.1:1/?q={CANARY}",
}
COMMANDS = (
    ("config", "list"),
    ("config", "list", "--json"),
    ("config", "get", "platforms"),
    ("config", "get", "platforms", "--json"),
    *(("config", "get", f"platforms.{name}") for name in registry.PLATFORMS),
    *(("config", "get", f"platforms.api-server.{name}") for name in NESTED),
    ("config", "get", "platforms.api-server.keys.ann"),
    ("config", "get", "platforms.api-server.headers.Authorization"),
    *(("config", "get", one.key_env) for one in PROVIDERS),
    *(
        ("config", "get", variable)
        for name in registry.PLATFORMS
        for variable in registry.list_secret_variables(name)
    ),
    ("config", "get", "model.base_url"),
    ("config", "set", "agent.max_steps", "9"),
    ("config", "unset", "agent.max_steps"),
    ("gateway", "status"),
    ("gateway", "status", "--json"),
    ("gateway", "setup", "--systemd"),
    ("doctor",),
    ("audit",),
)


def write_canaries(home: Path, where: str) -> None:
    """Write a canary into every secret setting of every platform and provider, in `config.yaml` or `.env`,
    and into nested settings."""
    platforms = {
        name: {
            option: f"{CANARY}-{name}-{option}"
            for option, setting in platform.settings.items()
            if setting.is_secret and setting.has_variable
        }
        for name, platform in registry.PLATFORMS.items()
    }
    variables = {one.key_env: f"{CANARY}-{one.name}-abcdefgh" for one in PROVIDERS}
    home.mkdir(exist_ok=True)
    values = {
        "model": {"base_url": f"https://me:{CANARY}-8@127.0.0.1/v1?key={CANARY}", "default": "m"},
        "platforms": {"api-server": NESTED},
    }
    if where == "config.yaml":
        values["platforms"] = {**platforms, "api-server": {**platforms["api-server"], **NESTED}}
    else:
        variables |= {
            make_variable(name, secret): value
            for name, secrets in platforms.items()
            for secret, value in secrets.items()
        }
    YAML(typ="safe").dump(values, home / "config.yaml")
    (home / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))


@pytest.mark.parametrize("where", ["config.yaml", ".env"])
def test_no_command_prints_a_key(hermes: Hermes, home: Path, where: str) -> None:
    write_canaries(home, where)
    for words in COMMANDS:
        done = hermes(*words)
        assert CANARY not in done.stdout + done.stderr, words
        assert "unexpected" not in done.stderr, words
    listed = json.loads(hermes("config", "list", "--json").stdout)
    assert any(row["key"] == "platforms.api-server.keys" for row in listed)


def test_the_name_of_a_variable_is_shown_and_its_value_is_not(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(
        "platforms:\n  api-server: {keys: {ann: '${ANNS}'}}\n  telegram: {proxy: '${PROXY}', bot_token: '${TOKEN}'}\n"
        "model: {base_url: '${BASE}'}\n"
    )
    variables = {"ANNS": CANARY, "PROXY": CANARY, "TOKEN": f"1:{CANARY}", "BASE": f"http://x:{CANARY}@h/v1"}
    for words in (("config", "list"), ("config", "get", "platforms.telegram.proxy")):
        done = hermes(*words, **variables)
        assert done.returncode == 0, done.stderr
        assert CANARY not in done.stdout + done.stderr
        assert "${PROXY}" in done.stdout
    assert "${ANNS}" in hermes("config", "get", "platforms.api-server.keys", **variables).stdout


BROKEN = (
    f"platforms:\n  telegram:\n    bot_token: {CANARY}: x\n",
    f"platforms:\n  telegram:\n    bot_token: '{CANARY}\n",
    f'platforms:\n  telegram:\n    bot_token: "{CANARY}\\q"\n',
    f"platforms:\n  telegram:\n   bot_token: a\n  {CANARY}\n",
    f"platforms:\n  telegram:\n    bot_token: *{CANARY}\n",
    f"platforms:\n  telegram:\n    bot_token: !{CANARY} x\n",
    f"platforms:\n  telegram:\n    bot_token: a\n    bot_token: {CANARY}\n",
    f"platforms:\n  telegram: [{CANARY}\n",
    f"platforms:\n  telegram:\n    bot_token {CANARY}\n",
    f"platforms:\n  - {CANARY}\n",
    f"platforms: {CANARY}\n",
    f"{CANARY}\n",
    f"model: {CANARY}\n",
    f"prices: {CANARY}\n",
    f"model: {{key_env: '{CANARY} x'}}\n",
    f"\t{CANARY}: x\n",
)


@pytest.mark.parametrize("text", BROKEN)
def test_an_error_in_the_file_does_not_quote_it(hermes: Hermes, home: Path, text: str) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(text)
    listed = hermes("config", "list")
    assert listed.returncode == 1
    assert "config.yaml" in listed.stderr
    traced = hermes("gateway", "run", HERMES_TRACEBACK="1")
    asked = hermes("-q", "hello", HERMES_MODEL="offline")
    assert CANARY not in "".join(done.stdout + done.stderr for done in (listed, traced, asked))
    program = home.parent / "editor"
    program.write_text(f"#!/bin/sh\ncat > \"$1\" <<'END'\n{text}END\n")
    program.chmod(0o700)
    edited = hermes("config", "edit", stdin="n\n", EDITOR=str(program), VISUAL="")
    assert CANARY not in edited.stdout + edited.stderr


def test_a_syntax_error_names_the_line(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(f"model:\n  default: m\nplatforms: {CANARY}: x\n")
    assert "line 3, column " in hermes("config", "list").stderr


def test_a_wrong_value_from_a_variable_is_not_quoted(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("platforms: {telegram: {enabled: '${SWITCH}', bot_token: a}}\n")
    done = hermes("gateway", "status", SWITCH=CANARY)
    assert (done.returncode, CANARY in done.stderr) == (1, False)


def test_a_key_that_an_unexpected_error_mentions_is_hidden(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / ".env").write_text(f"OPENAI_API_KEY={CANARY}-abcdefgh\n")
    done = hermes("sessions", "show", f"{CANARY}-abcdefgh")
    assert done.returncode != 0
    assert CANARY not in done.stderr


def test_keys_in_a_file_that_others_can_read_make_it_private_with_a_line(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    file = home / "config.yaml"
    file.write_text("agent: {max_steps: 9}\n")
    file.chmod(0o644)
    assert hermes("config", "list").stderr == ""
    assert file.stat().st_mode & 0o777 == 0o644  # this file contains no secrets
    file.write_text("platforms: {api-server: {keys: {ann: " + CANARY + "}}}\n")
    told = hermes("config", "get", "agent.max_steps").stderr
    assert told == f"hermes: others could read the keys in {file}; it is private now\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert hermes("config", "get", "agent.max_steps").stderr == ""


def test_several_secrets_are_not_set_on_the_command_line(hermes: Hermes, home: Path) -> None:
    done = hermes("config", "set", "platforms.api-server.keys", f"{{ann: {CANARY}}}")
    assert done.returncode == 1
    assert "config edit" in done.stderr
    assert CANARY not in done.stdout + done.stderr
    assert not (home / "config.yaml").exists()


def test_the_log_of_the_gateway_knows_every_secret(home: Path) -> None:
    write_canaries(home, "config.yaml")
    secrets = read_gateway_settings().secrets
    assert f"{CANARY}-3-abcdefgh" in secrets
    assert f"{CANARY}-telegram-bot_token" in secrets
    assert config_file.hide_secrets(f"x {CANARY}-2-abcdefgh y") == "x … y"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("bot_token", True),
        ("platforms.api-server.keys.ann", True),
        ("apiKey", True),
        ("OPENAI_API_KEY", True),
        ("model.key_env", False),
        ("store.key_file", False),
        ("monkey", False),
        ("agent.max_steps", False),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


def test_harmless_text_is_not_changed() -> None:
    values = {"base_url": "http://127.0.0.1:1/v1", "enabled": True, "port": 8, "list": ["a", 1], "none": None}
    assert redact_setting("platforms.telegram", values) == values
    assert redact_text("https://me:pass@host/a?b=c") == "https://…@host/a?…"


def test_names_from_files_and_logs_cannot_act_on_a_terminal(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text('platforms: {telegram: {"x\\e[31mfoo": "\\e]0;owned\\a"}}\n')
    listed = hermes("config", "list")
    assert listed.returncode == 0
    assert "platforms.telegram.xfoo" in listed.stdout
    assert "\x1b" not in listed.stdout + listed.stderr


def test_a_warning_that_is_only_logged_cannot_act_on_a_terminal() -> None:
    program = (
        "from hermes.cli.io import output; output.prepare_streams()\n"
        "from hermes.logs import get_logger\n"
        "get_logger('hermes.x').warning('a %s and %s', 'file\\x1b[2J', 'OPENAI_API_KEY=' + 'Tr0ub4dor' + '-and-3')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == "a file and OPENAI_API_KEY=[redacted exported value]\n"
