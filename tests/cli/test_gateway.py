"""`hermes gateway`: its setup, the access of people, and its messages about missing settings."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hermes import clock
from hermes.config import config_file, dotenv
from hermes.gateway import registry
from hermes.gateway.inbound.pairing import Pairings
from hermes.gateway.ops.status_file import NAME, lock_gateway, read_status, write_status
from hermes_state import SessionDB
from tests.cli.conftest import Hermes

TOKEN = "123456:" + "MadeUpForThisTest"
SECRET = "made-up-" * 4


class Platform:
    """A server that accepts one token, as Telegram and a Matrix homeserver do."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        platform = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                platform.asked.append(self.path)
                answers = {
                    f"/bot{TOKEN}/getMe": {"ok": True, "result": {"username": "my_bot"}},
                    "/_matrix/client/versions": {"versions": []},
                }
                if self.headers.get("Authorization") == f"Bearer {SECRET}":
                    answers["/_matrix/client/v3/account/whoami"] = {"user_id": "@bot:m.org"}
                body = json.dumps(answers.get(self.path, {"ok": False})).encode()
                self.send_response(200 if self.path in answers else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def platform() -> Iterator[Platform]:
    server = Platform()
    yield server
    server.close()


# ---------------------------------------------------------------- run


def test_without_a_platform_the_error_names_the_settings(hermes: Hermes) -> None:
    for words in (("gateway",), ("gateway", "--json-logs"), ("gateway", "run", "--verbose")):
        done = hermes(*words)
        assert done.returncode == 1
        assert done.stderr.startswith("hermes: no platform can be connected\n")
        assert "TELEGRAM_BOT_TOKEN" in done.stderr


def test_a_platform_with_a_missing_setting_is_reported(hermes: Hermes, home: Path) -> None:
    config_file.change("platforms.matrix.enabled", True)
    done = hermes("gateway", "run", MATRIX_USER_ID="@bot:m.org")
    assert done.returncode == 1
    told = "matrix is not connected: set MATRIX_HOMESERVER, MATRIX_ACCESS_TOKEN or MATRIX_PASSWORD"
    assert told in done.stderr


def test_invalid_settings_are_reported_before_the_start(hermes: Hermes, home: Path) -> None:
    config_file.change("session_reset.mode", "sometimes")
    done = hermes("gateway", API_SERVER_KEY=SECRET)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "session_reset.mode must be none or idle or daily or both" in done.stderr


def test_a_second_gateway_of_a_home_is_refused(hermes: Hermes) -> None:
    write_status(clock.now(), {})
    with lock_gateway():
        done = hermes("gateway", API_SERVER_KEY=SECRET)
    assert done.returncode == 1
    assert f"is already running (process {os.getpid()})" in done.stderr


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"WEBHOOK_SECRET": "short"}, "the secret of the webhook is shorter than 16 characters"),
        ({"API_SERVER_KEY": SECRET, "API_SERVER_PORT": "taken"}, "is in use by another program"),
    ],
)
def test_a_gateway_that_cannot_connect_ends(hermes: Hermes, told: dict[str, str], why: str) -> None:
    config_file.change("gateway.health_port", 0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = hermes("gateway", **{name: value.replace("taken", port) for name, value in told.items()})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("hermes: no platform can be connected (")
    assert why in done.stderr.splitlines()[-1]


def test_the_start_reports_a_missing_model_and_a_busy_health_port(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        config_file.change("gateway.health_port", other.getsockname()[1])
        variables = {**os.environ, "WEBHOOK_SECRET": SECRET, "WEBHOOK_PORT": "0"}
        for name in ("HERMES_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
            variables.pop(name, None)
        command = [sys.executable, "-m", "hermes.cli.main", "gateway"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables) as gateway:
            assert gateway.stderr is not None
            expected = {
                "messages cannot be answered: no model is chosen",
                "cannot serve /healthz and /metrics",
            }
            for line in gateway.stderr:
                expected = {one for one in expected if one not in line}
                if not expected:
                    break
            gateway.terminate()
            gateway.stderr.read()
        assert (gateway.returncode, expected) == (0, set())


# ---------------------------------------------------------------- status


def test_the_status_of_a_gateway_that_runs(hermes: Hermes, home: Path) -> None:
    dotenv.change("TELEGRAM_BOT_TOKEN", TOKEN)
    config_file.change_all(
        [
            ("platforms.telegram.allowed_users", "@ann"),
            ("platforms.telegram.home_channel", "-100"),
            ("session_reset.mode", "both"),
            ("session_reset.timezone", "Europe/Berlin"),
            ("reset_by_type.group.mode", "none"),
        ]
    )
    seen = {"state": "reconnecting", "since": clock.now(), "error": f"GET /bot{TOKEN}/getMe: out of reach"}
    use = {"turns": {"most": 64, "in_use": 3, "waiting": 1}}
    write_status(clock.now(), {"telegram": seen}, waiting_in=2, waiting_out=1, limits=use)
    assert stat.S_IMODE((home / "gateway" / NAME).stat().st_mode) == 0o600
    done = hermes("gateway", "status")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"The gateway runs as process {os.getpid()}, started just now.",
        "Waiting: 2 messages for an answer, 1 for delivery.",
        "telegram: reconnecting since just now: GET /bot[redacted]/getMe: out of reach",
        "  who may talk: @ann",
        "  home channel: -100",
        "Conversations reset: every day at 4:00 (Europe/Berlin), or after 1440 minutes without a message",
        "  group chats: never",
        "At the same time:",
        "  turns: at most 64 (3 now, 1 waiting)",
        "Health: http://127.0.0.1:8686/healthz",
    ]
    told = json.loads(hermes("gateway", "status", "--json").stdout)
    assert (told["running"], told["waiting_in"], told["waiting_out"]) == (True, 2, 1)
    assert told["platforms"][0]["state"] == "reconnecting"
    assert told["resets"]["default"]["timezone"] == "Europe/Berlin"
    assert TOKEN not in json.dumps(told)


def test_the_status_shows_queues_fallbacks_and_limits(hermes: Hermes, home: Path) -> None:
    config_file.change_all(
        [
            ("model.default", "big"),
            ("model.fallbacks", "gpt-5-mini, small"),
            ("gateway.daily_cost_limit_usd", 1.5),
        ]
    )
    with SessionDB() as db:
        db.inbox.accept("agent:main:telegram:dm:1", "telegram", {"text": "hello"}, "m1")
    write_status(clock.now(), {}, waiting_in=1, waiting_out=0)
    lines = hermes("gateway", "status").stdout.splitlines()
    assert "  inbox: 1 queued" in lines
    at = lines.index("Model: big; fallbacks: gpt-5-mini, small")
    assert lines[at + 1] == "Daily limit per person: $1.50 (not for owners)"
    assert lines[at + 2].startswith("  the price of big, small is unknown")
    config_file.change_all([("gateway.daily_token_limit", 1000), ("gateway.limit_owners", True)])
    lines = hermes("gateway", "status").stdout.splitlines()
    assert lines[at + 1] == "Daily limit per person: $1.50 or 1000 tokens (also for owners)"
    told = json.loads(hermes("gateway", "status", "--json").stdout)
    assert told["queues"]["inbox"] == {"queued": 1}
    assert told["models"][1] == {"name": "gpt-5-mini", "has_price": True}
    assert told["limits"]["daily_token_limit"] == 1000


def test_a_gateway_that_was_killed_does_not_run(hermes: Hermes, home: Path) -> None:
    write_status(clock.now(), {"telegram": {"state": "connected"}})
    status = read_status()
    assert status is not None
    assert status.is_running
    told = {**status._asdict(), "start": "1"}  # its pid now belongs to another process
    (home / "gateway" / NAME).write_text(json.dumps(told))
    done = hermes("gateway", "status", TELEGRAM_BOT_TOKEN=TOKEN)
    assert done.returncode == 1
    assert done.stdout.startswith(
        "The gateway is not running; start it with `hermes gateway run`.\ntelegram: set up\n"
    )
    assert "who may talk: nobody yet: `hermes gateway pair telegram` makes a code" in done.stdout
    assert json.loads(hermes("gateway", "status", "--json").stdout)["running"] is False


def test_a_gateway_on_another_host_is_shown_as_running_while_it_reports() -> None:
    write_status(clock.now(), {})
    status = read_status()
    assert status is not None
    elsewhere = status._replace(host="another", pid=1 << 30)
    assert elsewhere.is_running
    assert not elsewhere._replace(said_at=clock.now() - 61).is_running
    assert not elsewhere._replace(host=status.host).is_running


def test_a_platform_is_up_even_if_only_the_gateway_has_its_secret(hermes: Hermes, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("platforms:\n  telegram:\n    home_channel: 1\n")
    write_status(clock.now(), {"telegram": {"state": "up", "since": clock.now()}})
    shown = hermes("gateway", "status").stdout
    assert "telegram: up since just now\n  who may talk: as set in the environment of the gateway\n" in shown
    assert "not enabled" not in shown


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1, "since": 1, "platforms": [1]}'])
def test_an_invalid_status_file_is_ignored(hermes: Hermes, home: Path, text: str) -> None:
    (home / "gateway").mkdir(parents=True)
    (home / "gateway" / NAME).write_text(text)
    assert read_status() is None
    assert hermes("gateway", "status").returncode == 1


# ---------------------------------------------------------------- pair


def test_a_pairing_code_is_created_used_listed_and_revoked(hermes: Hermes, home: Path) -> None:
    done = hermes("gateway", "pair", "Telegram", "--owner", "--minutes", "5")
    assert (done.returncode, done.stderr) == (0, "")
    code, how = done.stdout.splitlines()
    assert f"sends `/pair {code}` to the bot in a private chat on Telegram gets access, as an owner" in how
    assert "5 minutes" in how
    assert Pairings(home / "gateway").try_code("telegram", "1", "ann\x1b[31m", code) is not None
    listed = hermes("gateway", "pair", "--list")
    assert listed.stdout == "telegram:1 (ann), owner, since just now\n"
    (row,) = json.loads(hermes("gateway", "pair", "--list", "--json").stdout)
    assert (row["platform"], row["user_id"], row["owner"]) == ("telegram", "1", True)
    done = hermes("gateway", "pair", "--revoke", "telegram:1")
    assert done.stdout == "telegram:1 no longer has access by a code.\n"
    assert hermes("gateway", "pair", "--list").stdout == "Nobody got access by a code yet.\n"
    made = json.loads(hermes("gateway", "pair", "--json").stdout)
    assert (len(made["code"]), made["platform"], made["owner"]) == (8, None, False)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("irc",), 1, "there is no platform 'irc'; there are telegram, matrix"),
        (("webhook",), 1, "webhook needs no pairing"),
        (("api_server",), 1, "api-server needs no pairing"),
        (("--revoke", "telegram:7"), 1, "telegram:7 has no access by a code"),
        (("--revoke", "telegram"), 2, "--revoke takes PLATFORM:USER"),
        (("telegram", "--list"), 2, "without PLATFORM"),
        (("--minutes", "0"), 2, "expected minutes"),
        (("--minutes", "nan"), 2, "expected minutes"),
    ],
)
def test_an_invalid_argument_is_reported_in_one_line(
    hermes: Hermes, words: tuple[str, ...], code: int, told: str
) -> None:
    done = hermes("gateway", "pair", *words)
    assert done.returncode == code
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


# ---------------------------------------------------------------- setup


def test_a_bot_is_set_up_by_answering_questions(hermes: Hermes, home: Path, platform: Platform) -> None:
    done = hermes("gateway", "setup", stdin=f"1\nnonsense\n{TOKEN}\ny\n", TELEGRAM_BASE_URL=platform.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Invalid value: it must be as 123456:ABC…." in done.stdout
    assert "Connected. The bot is @my_bot." in done.stdout
    assert dotenv.read() == {"TELEGRAM_BOT_TOKEN": TOKEN}
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    assert "`/pair " in done.stdout
    assert "MadeUp" not in done.stdout
    assert platform.asked == [f"/bot{TOKEN}/getMe"]


def test_a_bot_is_set_up_without_questions(hermes: Hermes, home: Path, platform: Platform) -> None:
    config_file.change("platforms.telegram.enabled", False)
    done = hermes(
        "gateway", "setup", "--platform", "telegram", stdin=TOKEN, TELEGRAM_BASE_URL=platform.address
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert dotenv.read() == {"TELEGRAM_BOT_TOKEN": TOKEN}
    assert config_file.read() == {"platforms": {"telegram": {"enabled": True}}}
    assert "create a code for yourself with `hermes gateway pair telegram --owner`" in done.stdout


def test_a_token_that_does_not_work_is_not_kept(hermes: Hermes, home: Path, platform: Platform) -> None:
    wrong = "123456:" + "SomethingElse"
    words = ("gateway", "setup", "--platform", "telegram", "--token", wrong)
    done = hermes(*words, TELEGRAM_BASE_URL=platform.address)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "Telegram rejects the secret (401); nothing was changed" in done.stderr
    done = hermes(*words, TELEGRAM_BASE_URL="http://127.0.0.1:1")
    assert "Telegram cannot be reached: Connection refused" in done.stderr
    assert "SomethingElse" not in done.stderr
    assert dotenv.read() == {}
    assert hermes(*words, "--no-test").returncode == 0
    assert dotenv.read() == {"TELEGRAM_BOT_TOKEN": wrong}


def test_matrix_is_set_up_with_a_token_or_a_password(hermes: Hermes, home: Path, platform: Platform) -> None:
    words = ("gateway", "setup", "--platform", "matrix", "--homeserver", platform.address)
    done = hermes(*words, "--user-id", "@bot:m.org", stdin=f"{SECRET}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Connected. The bot is @bot:m.org." in done.stdout
    assert dotenv.read() == {"MATRIX_ACCESS_TOKEN": SECRET}
    told = {"homeserver": platform.address, "user_id": "@bot:m.org"}
    assert config_file.read() == {"platforms": {"matrix": told}}
    done = hermes(*words, "--user-id", "@other:m.org", "--token", SECRET)
    assert "the access token belongs to @bot:m.org, not to @other:m.org" in done.stderr
    assert hermes(*words, "--user-id", "@bot:m.org", "--password", "word").returncode == 0
    assert dotenv.read()["MATRIX_PASSWORD"] == "word"
    assert platform.asked[-1] == "/_matrix/client/versions"


def test_a_missing_secret_is_generated_and_not_shown(hermes: Hermes, home: Path) -> None:
    for name, variable in (("webhook", "WEBHOOK_SECRET"), ("api_server", "API_SERVER_KEY")):
        done = hermes("gateway", "setup", "--platform", name)
        assert (done.returncode, done.stderr) == (0, "")
        secret = dotenv.read()[variable]
        assert len(secret) >= 32
        assert secret not in done.stdout
    assert "api-server: set up" in hermes("gateway", "status").stdout


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--platform", "irc"), 1, "there is no platform 'irc'"),
        (("--platform", "telegram"), 1, "telegram also needs TELEGRAM_BOT_TOKEN; nothing was changed"),
        (("--platform", "telegram", "--token", "x"), 1, "bot_token: it must be as 123456:ABC…"),
        (("--platform", "telegram", "--user-id", "x"), 2, "telegram needs no --user-id"),
        (("--platform", "matrix", "--token", "x"), 2, "--homeserver is missing"),
        (("--platform", "webhook", "--token", "short"), 1, "secret: it must be at least 16 characters"),
        ((), 1, "cancelled; nothing was changed"),
    ],
)
def test_a_missing_option_is_reported_and_nothing_is_changed(
    hermes: Hermes, home: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    done = hermes("gateway", "setup", *words)
    assert done.returncode == code
    assert told in done.stderr
    assert not (home / ".env").exists()
    assert not (home / "config.yaml").exists()


def test_the_systemd_unit_starts_this_command_in_this_home(hermes: Hermes, tmp_path: Path) -> None:
    home = tmp_path / "a home 100%"
    config_file = home / "config.yaml"
    home.mkdir()
    config_file.write_text("gateway: {drain_seconds: 90}\n")
    done = hermes("gateway", "setup", "--systemd", HERMES_HOME=str(home))
    assert done.returncode == 0
    assert "systemctl --user enable --now hermes-gateway.service" in done.stderr
    parsed = configparser.RawConfigParser()
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(done.stdout)
    service = parsed["Service"]
    assert service["ExecStart"].endswith(" gateway run")
    assert Path(service["ExecStart"].split()[0]).is_absolute()
    assert service["Environment"] == f'"HERMES_HOME={tmp_path}/a home 100%%"'
    assert (service["Restart"], service["KillSignal"]) == ("on-failure", "SIGTERM")
    assert int(service["TimeoutStopSec"]) > 90
    assert (service["Type"], service["ExecReload"]) == ("notify", "/bin/kill -HUP $MAINPID")
    assert hermes("gateway", "install", "--print", HERMES_HOME=str(home)).stdout == done.stdout
    _check_unit(done.stdout, tmp_path, "--user")


def _check_unit(text: str, folder: Path, scope: str) -> None:
    """Check that systemd accepts a unit. Without systemd, check nothing."""
    checker = shutil.which("systemd-analyze")
    if checker is not None:
        unit = folder / "hermes-gateway.service"
        unit.write_text(text)
        places = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "PATH": os.environ["PATH"]}
        asked = [checker, "verify", "--man=no", scope, str(unit)]
        checked = subprocess.run(asked, capture_output=True, text=True, env=places)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.parametrize("is_chosen", [True, False])
def test_the_system_unit_runs_in_a_sandbox_as_an_account(
    is_chosen: bool, hermes: Hermes, tmp_path: Path
) -> None:
    home = tmp_path / "a home 100%"
    home.mkdir()
    words = ("gateway", "install", "--system", "--user", "daemon", "--to", str(tmp_path / "units"))
    done = hermes(*words, HERMES_HOME=str(home) if is_chosen else "", HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "units" / "hermes-gateway.service").read_text()
    parsed = configparser.RawConfigParser()
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(text)
    service = dict(parsed["Service"])
    wanted = {
        "Type": "notify", "User": "daemon", "WatchdogSec": "60", "Restart": "on-failure",
        "ExecReload": "/bin/kill -HUP $MAINPID", "NoNewPrivileges": "yes", "ProtectSystem": "strict",
        "PrivateTmp": "yes", "CapabilityBoundingSet": "",
    }  # fmt: skip
    assert {name: service[name] for name in wanted} == wanted
    if is_chosen:
        assert service["ReadWritePaths"] == f'"{tmp_path}/a home 100%%"'
        assert "StateDirectory" not in service
    else:
        assert service["StateDirectory"] == "hermes"
        assert service["Environment"] == "HERMES_HOME=/var/lib/hermes"
    assert parsed["Install"]["WantedBy"] == "multi-user.target"
    _check_unit(text, tmp_path, "--system")


def test_the_unit_of_the_account_is_written_started_and_removed(hermes: Hermes, tmp_path: Path) -> None:
    called, programs = tmp_path / "called", tmp_path / "bin"
    programs.mkdir()
    systemctl = programs / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> "{called}"\n')
    systemctl.chmod(0o755)
    places = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": "",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    assert hermes("gateway", "uninstall", **places).returncode == 1
    assert hermes("gateway", "install", **places).returncode == 0
    unit = tmp_path / ".config" / "systemd" / "user" / "hermes-gateway.service"
    assert "Type=notify" in unit.read_text()
    assert hermes("gateway", "uninstall", **places).returncode == 0
    assert not unit.exists()
    assert called.read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now hermes-gateway.service",
        "--user disable --now hermes-gateway.service",
        "--user daemon-reload",
    ]
    systemctl.write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    done = hermes("gateway", "install", **places)
    assert (done.returncode, done.stderr) == (
        1,
        "hermes: systemctl --user daemon-reload failed: Failed to connect to bus\n",
    )


def test_install_refuses_an_account_without_the_system(hermes: Hermes) -> None:
    done = hermes("gateway", "install", "--user", "hermes")
    assert (done.returncode, done.stderr) == (2, "hermes: --user needs --system\n")


# ---------------------------------------------------------------- hermes config


def test_settings_of_the_gateway_are_set_and_read_with_the_others(hermes: Hermes, home: Path) -> None:
    for key, value in (
        ("session_reset.mode", "idle"),
        ("group_sessions_per_user", "false"),
        ("gateway.health_port", "0"),
        ("platforms.telegram.allowed_users", "[1, '@ann']"),
        ("platforms.telegram.home_channel", "-100"),
        ("platforms.api-server.port", "8642"),
        ("reset_by_type.dm.at_hour", "5"),
    ):
        done = hermes("config", "set", key, value)
        assert (done.returncode, done.stderr) == (0, ""), key
    rows = {row["key"]: row["value"] for row in json.loads(hermes("config", "list", "--json").stdout)}
    assert rows["session_reset.mode"] == "idle"
    assert rows["group_sessions_per_user"] is False
    assert rows["platforms.telegram.allowed_users"] == ["1", "@ann"]
    assert rows["reset_by_type.dm.at_hour"] == 5
    assert hermes("config", "get", "gateway.health_port").stdout == "0\n"
    assert hermes("config", "get", "platforms.api-server.port").stdout == "8642\n"
    assert hermes("config", "unset", "session_reset.mode").returncode == 0
    assert hermes("config", "get", "session_reset.mode").stdout == "none\n"


def test_a_secret_of_a_platform_goes_to_the_private_file_and_is_shown_nowhere(
    hermes: Hermes, home: Path
) -> None:
    said = hermes("config", "set", "TELEGRAM_BOT_TOKEN", stdin=f"{TOKEN}\n").stdout
    assert dotenv.read() == {"TELEGRAM_BOT_TOKEN": TOKEN}
    refused = hermes("config", "set", "platforms.telegram.bot_token", TOKEN)
    assert refused.returncode == 1
    assert "set it with `hermes config set TELEGRAM_BOT_TOKEN`" in refused.stderr
    (home / "config.yaml").write_text(f"platforms: {{webhook: {{secret: '{SECRET}'}}}}\n")
    for words in (
        ("list",),
        ("list", "--json"),
        ("get", "TELEGRAM_BOT_TOKEN"),
        ("get", "platforms.telegram.bot_token"),
        ("get", "platforms.webhook.secret"),
        ("get", "platforms.webhook"),
        ("get", "platforms"),
    ):
        said += hermes("config", *words).stdout
    assert "MadeUpFor" not in said
    assert "made-up-made" not in said
    assert said.count("TELEGRAM_BOT_TOKEN") >= 2


def test_a_secret_that_no_platform_uses_is_stored_with_a_notice(hermes: Hermes) -> None:
    done = hermes("config", "set", "TELEGRAM_TOKEN", TOKEN)
    told = (
        "telegram does not read TELEGRAM_TOKEN; its secrets are TELEGRAM_BOT_TOKEN, TELEGRAM_WEBHOOK_SECRET"
    )
    assert (done.returncode, done.stderr) == (0, f"hermes: {told}\n")
    assert dotenv.read() == {"TELEGRAM_TOKEN": TOKEN}
    for platform in registry.PLATFORMS:
        for name in registry.list_secret_variables(platform):
            assert hermes("config", "set", name, TOKEN).stderr == ""


def test_an_unknown_setting_is_refused(hermes: Hermes) -> None:
    for key, value, told in (
        ("session_reset.mode", "never", "session_reset.mode must be none or idle"),
        (
            "session_rest.mode",
            "idle",
            "there is no setting session_rest.mode; did you mean session_reset.mode?",
        ),
        ("platforms.telegram.allow_al", "true", "did you mean platforms.telegram.allow_all?"),
        ("reset_by_type.dm.timezone", "Mars", "must be a time zone"),
        ("platforms.telegram.bot_token", "1:A", "set it with `hermes config set TELEGRAM_BOT_TOKEN`"),
        ("platforms.telegram.token", "1:A", "telegram has no secret token;"),
        ("platforms.api-server.token", "x", "set one with `hermes config set NAME`: API_SERVER_KEY\n"),
        ("TELEGRAM_BASE_URL", "http://x", "did you mean platforms.telegram.base_url?"),
        ("API_SERVER_PORT", "80", "did you mean platforms.api-server.port?"),
        ("SESSION_RESET_HOUR", "5", "did you mean session_reset.at_hour?"),
        ("HERMES_MODEL", "m", "did you mean model.default?"),
    ):
        done = hermes("config", "set", key, value)
        assert done.returncode == 1
        assert told in done.stderr


# ---------------------------------------------------------------- a pairing file that another program changed


MALLORY = {"platform": "telegram", "user_id": "666", "user_name": "mal\x1b[31m", "owner": True, "since": 1.0}


def changed_by_another_program(home: Path) -> None:
    pairings = Pairings(home / "gateway")
    pairings.try_code("telegram", "1", "ann", pairings.make_code())
    file = home / "gateway" / "pairing.json"
    content = json.loads(file.read_text())
    content["people"].append(MALLORY)
    file.write_text(json.dumps(content))


def test_a_changed_pairing_file_is_reported_and_accepted_by_a_person_only(hermes: Hermes, home: Path) -> None:
    changed_by_another_program(home)
    status = hermes("gateway", "status")
    assert "was changed by another program" in status.stdout
    assert status.stderr == ""
    assert (
        "was changed by another program"
        in json.loads(hermes("gateway", "status", "--json").stdout)["problem"]
    )
    examined = hermes("doctor")
    assert (examined.returncode, "was changed by another program" in examined.stdout) == (1, True)
    for words in ((), ("--list",), ("--revoke", "telegram:1")):
        done = hermes("gateway", "pair", *words)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    done = hermes("gateway", "pair", "--accept", stdin="n\n")
    assert done.returncode == 1
    assert "telegram:666 (mal), owner" in done.stdout
    assert not Pairings(home / "gateway").is_paired("telegram", "666")
    refused = hermes("gateway", "pair", "--accept", stdin="y\n", HERMES_TOOL_CALL="1")
    assert refused.returncode == 1
    assert hermes("gateway", "pair", "--accept", stdin="y\n").returncode == 0
    assert Pairings(home / "gateway").is_owner("telegram", "666")
    assert (
        hermes("gateway", "pair", "--accept").stdout
        == "No other program changed pairing.json; nothing to do.\n"
    )
    assert "pairing.accepted" in hermes("audit").stdout


def test_the_pairing_file_of_an_older_version_is_adopted_with_a_line(hermes: Hermes, home: Path) -> None:
    (home / "gateway").mkdir(parents=True)
    (home / "gateway" / "pairing.json").write_text(json.dumps({"codes": [], "people": [MALLORY]}))
    done = hermes("gateway", "pair", "--list")
    assert done.returncode == 0
    assert "of an older version is now protected" in done.stderr
    assert "telegram:666" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert hermes("gateway", "pair", "--list").stderr == ""
