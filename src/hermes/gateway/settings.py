"""Settings of the gateway: defaults, and values from config.yaml and the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hermes import errors
from hermes.config import config_file, dotenv, gateway_keys
from hermes.config.gateway_keys import GATEWAY_SETTINGS, PLATFORM_NAMES, PLATFORM_SETTINGS, RESET_SETTINGS
from hermes.config.redaction import describe_type, find_secrets
from hermes.config.setting_kinds import Kind
from hermes.config.settings import check_kind, expand_variables, make_refusal
from hermes.gateway import registry
from hermes.gateway.http.limits import Limits
from hermes.session_kinds import canonical_source

ENVIRONMENT_ALIASES = {"home_room": "home_channel"}
"""Other names of settings in the environment: `MATRIX_HOME_ROOM`."""
EVERYBODY = "*"


class Keying(NamedTuple):
    """Which people share a session."""

    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False


class ResetPolicy(NamedTuple):
    """When a conversation starts afresh by itself."""

    mode: str = "none"
    """none, idle, daily or both."""
    idle_minutes: int = 1440
    at_hour: int = 4
    timezone: str | None = None
    """An IANA name; None is that of the machine."""
    notify: bool = True
    bg_process_max_age_hours: float = 0.0
    """How old a background process may be and still keep a conversation from being reset; 0: however old."""


class PlatformSettings(NamedTuple):
    name: str
    enabled: bool = True
    home_channel: str | None = None
    """The chat to which handoffs and jobs go."""
    allowed_users: frozenset[str] = frozenset()
    allow_all: bool = False
    owners: frozenset[str] = frozenset()
    """Those of them whose machine this is: they have the tools that reach it, and its memory."""
    busy: str = "queue"
    """What a message does that comes while an answer is being made: queue, interrupt or steer."""
    stream: bool = True
    more: Mapping[str, Any] = {}
    """What only this platform knows; names in lower case, secrets among them."""
    home_thread: str | None = None
    """The thread of the home channel."""
    home_type: str | None = None
    home_user: str | None = None

    def __repr__(self) -> str:
        """Without what only the platform knows: there are secrets in it, and a log is no place for them."""
        redacted = self._replace(more=dict.fromkeys(self.more, "…"))
        return f"PlatformSettings{tuple(redacted)!r}"

    @property
    def secrets(self) -> frozenset[str]:
        """What nobody may see."""
        return frozenset(find_secrets(dict(self.more)))


class GatewaySettings(NamedTuple):
    keying: Keying = Keying()
    reset: ResetPolicy = ResetPolicy()
    reset_by_type: Mapping[str, ResetPolicy] = {}
    reset_by_platform: Mapping[str, ResetPolicy] = {}
    messages_per_minute: int = 20
    """How many messages a person may send; 0: any number."""
    largest_attachment_mb: float = 20.0
    redact_pii: bool = False
    """Whether models are told signs instead of the names and numbers of people, where those are telephone numbers."""
    drain_seconds: float = 30.0
    """How long what is under way may take when the gateway is told to end."""
    health_host: str = "127.0.0.1"
    health_port: int = 8686
    """Where /healthz and /metrics are; 0: nowhere."""
    connections: int = Limits().connections
    connections_per_address: int = Limits().connections_per_address
    bodies_mb: int = Limits().bodies_mb
    wrong_keys_per_minute: int = Limits().wrong_keys_per_minute
    platforms: Mapping[str, PlatformSettings] = {}
    """Those of which anything is set, whether or not they are enabled."""
    busy: str = "queue"
    stream: bool = True
    """What platforms do that do not say otherwise."""
    origins: Mapping[str, str] = {}
    """Where each value that is no default comes from, by its dotted path."""

    @property
    def limits(self) -> Limits:
        """For everything that listens."""
        return Limits(
            self.connections, self.connections_per_address, self.bodies_mb, self.wrong_keys_per_minute
        )

    @property
    def enabled(self) -> dict[str, PlatformSettings]:
        """The platforms that are to be connected."""
        return {name: platform for name, platform in self.platforms.items() if platform.enabled}

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset().union(*(platform.secrets for platform in self.platforms.values()))

    def policy_for(self, platform: str, chat_type: str, thread_id: str | None = None) -> ResetPolicy:
        """A platform's own policy, else that of the type of chat, else the general one."""
        return self._find_policy(platform, chat_type, thread_id)[1]

    def policy_name(self, platform: str, chat_type: str, thread_id: str | None = None) -> str:
        """Where in the file that policy stands."""
        return self._find_policy(platform, chat_type, thread_id)[0]

    def _find_policy(self, platform: str, chat_type: str, thread_id: str | None) -> tuple[str, ResetPolicy]:
        """A thread is one of a group: what is not said of threads is as in the group."""
        if platform in self.reset_by_platform:
            return f"reset_by_platform.{platform}", self.reset_by_platform[platform]
        in_thread = chat_type == "thread" or (bool(thread_id) and chat_type != "dm")
        kinds = ("thread", "group" if chat_type == "thread" else chat_type) if in_thread else (chat_type,)
        for kind in kinds:
            if kind in self.reset_by_type:
                return f"reset_by_type.{kind}", self.reset_by_type[kind]
        return "session_reset", self.reset


# ---------------------------------------------------------------- reading


def read_gateway_settings() -> GatewaySettings:
    """All of it: the environment wins over `.env`, that over `config.yaml`, and that over the defaults."""
    return parse_gateway_settings(config_file.read(), file=str(config_file.get_path()))


def parse_gateway_settings(values: Mapping[str, Any], *, file: str) -> GatewaySettings:
    """The same from what stands in a file, which need not be in its place yet."""
    reader = _SettingsReader(values, file)
    values_by_key = {key: value for key in GATEWAY_SETTINGS for value in reader.read_general(key)}
    reset = ResetPolicy(**_section_values("session_reset", values_by_key))
    settings = GatewaySettings(
        keying=Keying(**{name: value for name, value in values_by_key.items() if "." not in name}),
        reset=reset,
        reset_by_type=reader.read_policies("reset_by_type", reset),
        reset_by_platform=reader.read_policies("reset_by_platform", reset),
        **_section_values("gateway", values_by_key),
    )
    every = ((name, reader.read_platform(name, settings)) for name in PLATFORM_NAMES)
    return settings._replace(
        platforms={name: platform for name, platform in every if platform is not None},
        origins=reader.origins,
    )


def get_value(settings: GatewaySettings, key: str) -> Any:
    """What stands at a dotted path, its default if nobody set it; None if that is nothing."""
    section, _, rest = key.partition(".")
    if not rest:
        return getattr(settings.keying, section)
    if section in ("session_reset", "gateway"):
        return getattr(settings.reset if section == "session_reset" else settings, rest)
    owner, _, name = rest.partition(".")
    if section != "platforms":
        return getattr(getattr(settings, section).get(owner, settings.reset), name)
    platform = settings.platforms.get(owner, PlatformSettings(owner, enabled=False))
    value = getattr(platform, name) if name in PLATFORM_SETTINGS else platform.more.get(name)
    return sorted(value) if isinstance(value, frozenset) else value


def _section_values(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{section}."
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}


class _SettingsReader:
    """What the file and the environment say, and where each value that was taken came from."""

    def __init__(self, values: Mapping[str, Any], file: str) -> None:
        self.values, self.file = values, file
        self.origins: dict[str, str] = {}
        environment = {name: value for name, value in os.environ.items() if value.strip()}
        variables = {**dotenv.read(), **environment}
        self.variables = {name: value.strip() for name, value in variables.items() if value.strip()}

    def read_general(self, key: str) -> Iterator[Any]:
        """The value of a setting of the gateway as a whole; none if nobody set it."""
        section, _, name = key.rpartition(".")
        inner = self._section(section, key) if section else self.values
        kind = GATEWAY_SETTINGS[key].kind
        yield from self._read_value(key, kind, inner.get(name), gateway_keys.VARIABLES.get(key, ""))

    def read_policies(self, section: str, general: ResetPolicy) -> dict[str, ResetPolicy]:
        """Policies of their own; what one does not say is as in the general one."""
        names = gateway_keys.CHAT_TYPES if section == "reset_by_type" else PLATFORM_NAMES
        policies = {}
        for owner, section_values in self._read_owned(section, f"{names[0]}: {{mode: daily}}").items():
            if owner not in names:
                continue
            fields = {
                name: value
                for name, setting in RESET_SETTINGS.items()
                for value in self._read_value(
                    f"{section}.{owner}.{name}", setting.kind, section_values.get(name)
                )
            }
            policies[owner] = general._replace(**fields)
        return policies

    def read_platform(self, name: str, general: GatewaySettings) -> PlatformSettings | None:
        """What is set of a platform; None if nothing is."""
        section_values = self._read_owned("platforms", "telegram: {enabled: true}").get(name, {})
        prefix = registry.environment_variable(name, "")
        variables = {
            ENVIRONMENT_ALIASES.get(rest, rest): variable
            for variable in self.variables
            if variable.startswith(prefix) and (rest := variable.removeprefix(prefix).lower())
        }
        settings = {
            setting: value
            for setting in dict.fromkeys([*section_values, *variables])
            for value in self._read_value(
                f"platforms.{name}.{setting}",
                _kind_of(setting),
                section_values.get(setting),
                variables.get(setting, ""),
            )
        }
        if not settings:
            return None
        more = {setting: value for setting, value in settings.items() if setting not in PLATFORM_SETTINGS}
        fields = {setting: value for setting, value in settings.items() if setting in PLATFORM_SETTINGS}
        fields.setdefault("enabled", not registry.missing_settings(name, more))
        platform = PlatformSettings(
            **{"busy": general.busy, "stream": general.stream, **fields}, name=name, more=more
        )
        self._refuse_everybody(platform)
        return platform

    def _read_value(self, key: str, kind: Kind | None, written: object, variable: str = "") -> Iterator[Any]:
        if variable in self.variables:
            self.origins[key] = variable
            yield _parse_text(kind, key, self.variables[variable], variable)
        elif written is not None:
            self.origins[key] = self.file
            meaning = expand_variables(key, written, self.file)
            if kind is None:
                yield str(meaning) if gateway_keys.is_secret(key) else meaning
            elif isinstance(meaning, str) and meaning != written:
                yield _parse_text(kind, key, meaning, self.file, written=written)
            else:
                yield check_kind(kind, key, written, self.file)

    def _section(self, name: str, example: str) -> Mapping[str, Any]:
        inner = self.values.get(name)
        if inner is not None and not isinstance(inner, Mapping):
            raise errors.BadConfig(
                f"{self.file}: {name} must hold settings such as {example}, not {describe_type(inner)}"
            )
        return inner or {}

    def _read_owned(self, section: str, example: str) -> dict[str, Mapping[str, Any]]:
        """Settings of several, by the documented names of those whose they are."""
        sections: dict[str, Mapping[str, Any]] = {}
        for owner, inner in self._section(section, example).items():
            if inner is not None and not isinstance(inner, Mapping):
                raise errors.BadConfig(
                    f"{self.file}: {section}.{owner} must hold settings such as {example}, not {describe_type(inner)}"
                )
            name = canonical_source(str(owner))
            sections[name] = {
                **sections.get(name, {}),
                **{str(key): value for key, value in (inner or {}).items()},
            }
        return sections

    def _refuse_everybody(self, platform: PlatformSettings) -> None:
        """A star among names would be overlooked; who lets everybody in has to say so."""
        for field, people in (("allowed_users", platform.allowed_users), ("owners", platform.owners)):
            if EVERYBODY in people and not (
                field == "owners" and registry.PLATFORMS[platform.name].by_secret
            ):
                key = f"platforms.{platform.name}.{field}"
                instead = (
                    f"; platforms.{platform.name}.allow_all lets everybody in" if field != "owners" else ""
                )
                raise errors.BadConfig(f"{self.origins[key]}: {key} must name people, not everybody{instead}")


def _kind_of(name: str) -> Kind | None:
    setting = PLATFORM_SETTINGS.get(name)
    return setting.kind if setting else gateway_keys.PLATFORM_KINDS.get(name)


def _parse_text(kind: Kind | None, key: str, text: str, origin: str, written: object = None) -> Any:
    """What a text in a variable stands for, which may be a number or a yes. `written` is what the file says instead."""
    if kind is None:
        return text
    for meaning in _possible_values(text):
        try:
            return kind.read(meaning)
        except ValueError:
            continue
    raise make_refusal(kind, key, text if written is None else written, origin)


def _possible_values(text: str) -> Iterator[object]:
    yield text
    for words, meaning in ((("true", "yes", "on", "1"), True), (("false", "no", "off", "0"), False)):
        if text.lower() in words:
            yield meaning
    for number in (int, float):
        try:
            yield number(text)
        except ValueError:
            continue
