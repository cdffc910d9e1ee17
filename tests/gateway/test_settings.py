"""The settings of the gateway: where values come from, which values are valid, and how secrets are hidden."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import errors
from hermes.config import dotenv
from hermes.config.declarations import Section, Setting, list_settings
from hermes.config.key_lookup import find_key, find_setting, find_variable, list_keys
from hermes.config.redaction import is_secret_name
from hermes.config.setting_kinds import TEXT
from hermes.config.settings import read_settings
from hermes.config.settings_schema import (
    GATEWAY_SECTIONS,
    GATEWAY_SETTINGS,
    OPEN_SECTIONS,
    PlatformSection,
    get_default,
)
from hermes.gateway import registry
from hermes.gateway.platform_options import read_options
from hermes.gateway.platforms.webhook.declaration import WebhookOptions
from hermes.gateway.settings import (
    GatewaySettings,
    Keying,
    PlatformSettings,
    ResetPolicy,
    get_value,
    parse_gateway_settings,
    read_gateway_settings,
)

TOKEN = "123456:" + "MadeUpForThisTest"


def write(home: Path, text: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(text, encoding="utf-8")


def test_without_settings_every_value_is_the_default() -> None:
    assert read_gateway_settings() == GatewaySettings()


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"TELEGRAM_BOT_TOKEN": TOKEN}, "telegram"),
        (
            {"MATRIX_HOMESERVER": "https://m.org", "MATRIX_USER_ID": "@b:m.org", "MATRIX_ACCESS_TOKEN": "x"},
            "matrix",
        ),
        (
            {"MATRIX_HOMESERVER": "https://m.org", "MATRIX_USER_ID": "@b:m.org", "MATRIX_PASSWORD": "x"},
            "matrix",
        ),
        ({"WEBHOOK_SECRET": "x"}, "webhook"),
        ({"API_SERVER_KEY": "x"}, "api-server"),
    ],
)
def test_a_platform_with_its_secret_and_nothing_else_just_works(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str
) -> None:
    for variable, value in variables.items():
        assert read_gateway_settings().enabled == {}  # as long as a variable is missing
        monkeypatch.setenv(variable, value)
    (platform,) = read_gateway_settings().enabled.values()
    assert platform.name == name
    assert set(platform.more.values()) == set(variables.values())


def test_a_platform_can_be_turned_off_though_its_secret_is_there(home: Path) -> None:
    dotenv.change("TELEGRAM_BOT_TOKEN", TOKEN)
    write(home, "platforms: {telegram: {enabled: false, home_channel: -100123}}\n")
    settings = read_gateway_settings()
    assert settings.enabled == {}
    assert settings.platforms["telegram"].home_channel == "-100123"
    write(home, "platforms: {telegram: {enabled: null}}\n")
    assert "telegram" in read_gateway_settings().enabled


def test_the_environment_wins_over_the_env_file_over_the_config(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen() -> tuple[Any, ...]:
        settings = read_gateway_settings()
        telegram = settings.platforms["telegram"]
        return settings.reset.idle_minutes, telegram.more["bot_token"], telegram.allowed_users

    write(
        home,
        "session_reset: {idle_minutes: 1}\nplatforms: {telegram: {bot_token: a, allowed_users: [1, '@b']}}\n",
    )
    assert seen() == (1, "a", {"1", "@b"})
    dotenv.change("SESSION_IDLE_MINUTES", "2")
    dotenv.change("TELEGRAM_BOT_TOKEN", "b")
    dotenv.change("TELEGRAM_ALLOWED_USERS", "2, @c ,")
    assert seen() == (2, "b", {"2", "@c"})
    monkeypatch.setenv("SESSION_IDLE_MINUTES", "3")
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "c")
    monkeypatch.setenv("TELEGRAM_ALLOWED_USERS", "3")
    assert seen() == (3, "c", {"3"})
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", " ")
    assert seen() == (3, "b", {"3"})


def test_every_documented_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "TELEGRAM_BASE_URL": "http://127.0.0.1:8081/",
        "TELEGRAM_HOME_CHANNEL": "-1",
        "MATRIX_ALLOWED_USERS": "@a:m.org,@b:m.org",
        "MATRIX_HOME_ROOM": "!room:m.org",
        "API_SERVER_HOST": "0.0.0.0",
        "API_SERVER_PORT": "8642",
        "WEBHOOK_PORT": "8644",
        "WEBHOOK_ALLOW_ALL": "yes",
        "SESSION_RESET_HOUR": "0",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    settings = read_gateway_settings()
    assert settings.platforms["telegram"].more == {"base_url": "http://127.0.0.1:8081"}
    assert settings.platforms["telegram"].home_channel == "-1"
    assert settings.platforms["matrix"].allowed_users == {"@a:m.org", "@b:m.org"}
    assert settings.platforms["matrix"].home_channel == "!room:m.org"
    assert settings.platforms["api-server"].more == {"host": "0.0.0.0", "port": 8642}
    assert settings.platforms["webhook"].more == {"port": 8644}
    assert settings.platforms["webhook"].allow_all is True
    assert settings.reset.at_hour == 0
    assert settings.origins["platforms.matrix.home_channel"] == "MATRIX_HOME_ROOM"


def test_values_are_read_with_their_types(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_PORT", "9000")
    monkeypatch.setenv("ME", "77")
    write(
        home,
        "group_sessions_per_user: false\nthread_sessions_per_user: true\n"
        "gateway: {busy: steer, messages_per_minute: 0, largest_attachment_mb: 0.5, drain_seconds: 5,"
        " health_host: 0.0.0.0, health_port: 0, stream: false}\n"
        "platforms:\n  api_server: {port: '${THE_PORT}', owners: ['*']}\n"
        "  telegram: {owners: ['${ME}'], busy: interrupt, home_thread: 7, rooms: [1, 2]}\n"
        "  matrix: {stream: true, homeserver: matrix.org}\n  webhook:\n",
    )
    settings = read_gateway_settings()
    assert settings.keying == Keying(group_sessions_per_user=False, thread_sessions_per_user=True)
    assert (settings.busy, settings.stream, settings.messages_per_minute) == ("steer", False, 0)
    assert (settings.largest_attachment_mb, settings.drain_seconds) == (0.5, 5.0)
    assert (settings.health_host, settings.health_port) == ("0.0.0.0", 0)
    assert settings.platforms["api-server"].more == {"port": 9000}
    telegram = settings.platforms["telegram"]
    assert telegram.owners == {"77"}
    assert (telegram.home_thread, telegram.more["rooms"]) == ("7", [1, 2])
    # the value of the platform, and the value of the gateway
    assert (telegram.busy, telegram.stream) == ("interrupt", False)
    assert (settings.platforms["matrix"].busy, settings.platforms["matrix"].stream) == ("steer", True)
    assert settings.platforms["matrix"].more == {"homeserver": "https://matrix.org"}
    assert "webhook" not in settings.platforms


def test_missing_values_of_a_policy_come_from_the_general_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        home,
        "session_reset: {mode: daily, at_hour: 3, timezone: Australia/Lord_Howe, notify: null}\n"
        "reset_by_type: {group: {mode: both, idle_minutes: 30}, dm: }\n"
        "reset_by_platform: {api_server: {mode: none}, telegram: {at_hour: 5, notify: false}}\n",
    )
    monkeypatch.setenv("SESSION_IDLE_MINUTES", "60")
    settings = read_gateway_settings()
    general = ResetPolicy("daily", 60, 3, "Australia/Lord_Howe")
    assert settings.reset == settings.find_policy("matrix", "dm") == general
    in_groups = general.replace(mode="both", idle_minutes=30)
    assert (
        settings.find_policy("matrix", "group") == settings.find_policy("matrix", "group", "7") == in_groups
    )
    in_threads = settings.replace(reset_by_type={**settings.reset_by_type, "thread": general})
    assert (
        in_threads.find_policy("matrix", "group", "7")
        == in_threads.find_policy("matrix", "thread")
        == general
    )
    assert in_threads.find_policy_name("matrix", "group", "7") == "reset_by_type.thread"
    assert in_threads.find_policy("matrix", "group") == in_groups
    assert in_threads.find_policy_name("matrix", "dm", "7") == "reset_by_type.dm"  # a topic in a private chat
    assert settings.find_policy("api-server", "group") == general.replace(mode="none")
    assert settings.find_policy("telegram", "group") == general.replace(at_hour=5, notify=False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "session_reset: {mode: never}",
            "session_reset.mode must be none or idle or daily or both, not 'never'",
        ),
        ("session_reset: {at_hour: 24}", "session_reset.at_hour must be a whole number from 0 to 23, not 24"),
        ("session_reset: {idle_minutes: 0}", "session_reset.idle_minutes must be"),
        ("session_reset: {timezone: Mars/Base}", "session_reset.timezone must be a time zone such as"),
        ("session_reset: {timezone: Europe}", "session_reset.timezone must be a time zone"),
        ("session_reset: {timezone: ../../etc/passwd}", "session_reset.timezone must be a time zone"),
        ("session_reset: daily", "session_reset must hold settings such as session_reset.mode, not a text"),
        ("group_sessions_per_user: maybe", "group_sessions_per_user must be true or false"),
        ("reset_by_type: {group: daily}", "reset_by_type.group must hold settings such as"),
        ("reset_by_platform: {telegram: {mode: x}}", "reset_by_platform.telegram.mode must be"),
        ("platforms: telegram", "platforms must hold settings such as telegram: {enabled: true}"),
        ("platforms: {telegram: yes please}", "platforms.telegram must hold settings such as"),
        (
            "platforms: {telegram: {allow_all: 1}}",
            "platforms.telegram.allow_all must be true or false, not 1",
        ),
        ("platforms: {telegram: {allowed_users: [true]}}", "platforms.telegram.allowed_users must be people"),
        ("platforms: {telegram: {allowed_users: {a: b}}}", "platforms.telegram.allowed_users must be people"),
        (
            "platforms: {telegram: {allowed_users: '*'}}",
            "to allow everybody, set platforms.telegram.allow_all",
        ),
        (
            "platforms: {telegram: {owners: ['*']}}",
            "platforms.telegram.owners must name people, not everybody",
        ),
        ("platforms: {webhook: {port: 70000}}", "platforms.webhook.port must be a whole number"),
        (
            "platforms: {matrix: {homeserver: 'ftp://m.org'}}",
            "platforms.matrix.homeserver must be an address",
        ),
        ("platforms: {telegram: {bot_token: '${NOT_SET}'}}", "bot_token uses ${NOT_SET}, which is not set"),
        ("gateway: {health_port: -1}", "gateway.health_port must be a whole number from 0 to 65535"),
    ],
)
def test_an_invalid_value_is_reported_with_file_key_and_expectation(home: Path, text: str, told: str) -> None:
    write(home, text)
    with pytest.raises(errors.BadConfig) as problem:
        read_gateway_settings()
    assert str(problem.value).startswith(str(home / "config.yaml"))
    assert told in str(problem.value)
    assert "\n" not in str(problem.value)


def test_an_invalid_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSION_RESET_HOUR", "noon")
    with pytest.raises(errors.BadConfig, match=r"^SESSION_RESET_HOUR: session_reset\.at_hour must be"):
        read_gateway_settings()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        *filter(None, GATEWAY_SECTIONS),
                        *OPEN_SECTIONS,
                        "mode",
                        "telegram",
                        "group",
                        "allowed_users",
                        "bot_token",
                        "port",
                        "busy",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ).filter(lambda value: isinstance(value, dict))
)
def test_any_file_gives_settings_or_a_one_line_error(values: dict[str, Any]) -> None:
    text = ""
    try:
        parse_gateway_settings(values, file="config.yaml")
    except errors.BadConfig as problem:
        text = str(problem)
    assert "\n" not in text


# ---------------------------------------------------------------- secrets


def test_a_secret_is_in_no_error_and_in_nothing_that_is_printed(home: Path) -> None:
    write(home, f"platforms: {{telegram: {{bot_token: '{TOKEN}', allow_all: false}}}}\n")
    settings = read_gateway_settings()
    assert settings.secrets == {TOKEN}
    assert TOKEN not in repr(settings)
    assert "allow_all" not in repr(settings.platforms["telegram"].more)
    assert isinstance(settings.platforms["telegram"], PlatformSettings)


@pytest.mark.parametrize(
    "name", ["bot_token", "access_token", "password", "secret", "webhook_secret", "key", "API_SERVER_KEY"]
)
def test_values_that_are_hidden(name: str) -> None:
    assert is_secret_name(name)


def test_values_that_are_shown() -> None:
    names = (*list_settings(PlatformSection), "homeserver", "user_id", "key_env", "MONKEY", "port")
    assert not any(map(is_secret_name, names))


def test_a_secret_that_looks_like_a_number_stays_one(home: Path) -> None:
    write(home, "platforms: {webhook: {secret: 12345678}}\n")
    assert read_gateway_settings().platforms["webhook"].more["secret"] == "12345678"


# ---------------------------------------------------------------- unknown settings


def test_the_terminal_does_not_complain_about_the_keys_of_the_gateway(home: Path) -> None:
    write(
        home,
        "group_sessions_per_user: true\nsession_reset: {mode: idle}\nreset_by_type: {dm: {mode: none}}\n"
        "reset_by_platform: {api_server: {at_hour: 1}}\ngateway: {busy: queue}\n"
        "platforms: {telegram: {allow_all: false, webhook_url: 'https://x', allowed_rooms: [1]}}\n",
    )
    assert read_settings().warning is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("platfroms: {telegram: {}}", "unknown setting: platfroms; did you mean platforms?"),
        ("session_rest: {mode: idle}", "unknown setting: session_rest; did you mean session_reset?"),
        (
            "session_reset: {mod: idle}",
            "unknown setting: session_reset.mod; did you mean session_reset.mode?",
        ),
        ("gateway: {bussy: queue}", "unknown setting: gateway.bussy; did you mean gateway.busy?"),
        ("platforms: {telegrm: {}}", "unknown setting: platforms.telegrm; did you mean platforms.telegram?"),
        (
            "platforms: {telegram: {alow_all: true}}",
            "unknown setting: platforms.telegram.alow_all; did you mean platforms.telegram.allow_all?",
        ),
        (
            "reset_by_type: {grup: {}}",
            "unknown setting: reset_by_type.grup; did you mean reset_by_type.group?",
        ),
        (
            "reset_by_type: {dm: {at_our: 1}}",
            "unknown setting: reset_by_type.dm.at_our; did you mean reset_by_type.dm.at_hour?",
        ),
    ],
)
def test_a_misspelt_setting_is_reported(home: Path, text: str, told: str) -> None:
    write(home, text)
    assert read_settings().warning == f"{home / 'config.yaml'}: {told}"
    read_gateway_settings()


# ---------------------------------------------------------------- tables and pages


def test_a_missing_package_is_reported_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [registry.format_install_hint(name) for name in registry.PLATFORMS] == [None] * 4
    monkeypatch.setitem(sys.modules, "telegram", None)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for platform, extra in (("telegram", "telegram"), ("webhook", "gateway")):
        hint = registry.format_install_hint(platform)
        assert hint is not None
        assert hint.endswith(f"pip install 'hermes-sessions[{extra}]'")
    assert registry.format_install_hint("matrix") is None


def test_every_default_is_a_value_that_the_setting_can_have() -> None:
    for key, setting in GATEWAY_SETTINGS.items():
        assert get_default(key) == get_value(GatewaySettings(), key)
        assert get_default(key) is None or setting.kind.read(get_default(key)) == get_default(key)
    for platform in registry.PLATFORMS.values():
        options = platform.options()
        for name, setting in platform.settings.items():
            default = getattr(options, name)
            assert default is None or setting.kind.read(default) == default
        assert {name for names in platform.needs for name in names} <= platform.settings.keys()


def test_a_key_is_known_by_its_path_and_by_its_variable() -> None:
    for key in list_keys():
        assert (find_setting(key) is None) == (key.count(".") == 1 and key.split(".")[0] in OPEN_SECTIONS)
        if (variable := find_variable(key)) is not None:
            assert find_key(variable) == key
    assert find_setting("platforms.webhook.anything_else") is not None
    for key in (
        "gateway",
        "gateway.nothing",
        "reset_by_type.dm",
        "reset_by_type.dm.nothing",
        "platforms.irc.owners",
        "platforms.matrix.A-b",
        "platforms.matrix.homserver",
    ):
        assert find_setting(key) is None


def test_a_secret_must_be_named_as_one() -> None:
    """A setting is hidden if its name is that of a secret, at any depth. A secret under another name would be
    shown, so such a declaration is refused."""

    class Options(Section, frozen=True):
        pin: Annotated[str, Setting(TEXT, "a secret", is_secret=True)] = ""

    with pytest.raises(TypeError, match=r"Options\.pin: the name must show"):
        list_settings(Options)


def test_a_number_that_a_variable_holds_is_a_number_in_every_section(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("N", "7")
    write(home, "agent: {max_steps: '${N}'}\ngateway: {messages_per_minute: '${N}'}\n")
    assert read_settings().agent.max_steps == 7
    assert read_gateway_settings().messages_per_minute == 7


def test_options_of_a_platform_are_checked_when_they_are_read(home: Path) -> None:
    write(home, "platforms: {webhook: {wait_seconds: long}}\n")
    with pytest.raises(errors.BadConfig, match=r"webhook\.wait_seconds must be a number from 0 to 86400"):
        read_gateway_settings()
    write(
        home, "platforms: {matrix: {encryption: no}, webhook: {host: '', callback_hosts: 'a.org, b.org'}}\n"
    )
    platforms = read_gateway_settings().platforms
    assert platforms["matrix"].more == {"encryption": False}
    assert read_options(WebhookOptions, platforms["webhook"]).host == "127.0.0.1"
    assert read_options(WebhookOptions, platforms["webhook"]).callback_hosts == ("a.org", "b.org")


def test_the_keys_of_several_people_are_secrets_each() -> None:
    platform = PlatformSettings(
        "api-server", more={"key": "k1", "keys": {"ann": "k2", "bob": "k3"}, "port": 1}
    )
    assert platform.secrets == {"k1", "k2", "k3"}
    assert "k2" not in repr(platform)


def test_every_platform_has_an_extra_that_installs_it() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    assert {platform.extra for platform in registry.PLATFORMS.values()} <= project[
        "optional-dependencies"
    ].keys()
