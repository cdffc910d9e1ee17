"""What the gateway can be told in config.yaml, every default, and what of it the environment gives."""

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
from hermes.gateway.sessions.session_keys import Keying
from hermes.session_kinds import canonical_source

ALSO = {"home_room": "home_channel"}
"""Other names of settings in the environment: `MATRIX_HOME_ROOM`."""
EVERYBODY = "*"


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
        told = self._replace(more=dict.fromkeys(self.more, "…"))
        return f"PlatformSettings{tuple(told)!r}"

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
        return {name: one for name, one in self.platforms.items() if one.enabled}

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset().union(*(one.secrets for one in self.platforms.values()))

    def policy_for(self, platform: str, chat_type: str, thread_id: str | None = None) -> ResetPolicy:
        """A platform's own policy, else that of the type of chat, else the general one."""
        return self._decided(platform, chat_type, thread_id)[1]

    def policy_name(self, platform: str, chat_type: str, thread_id: str | None = None) -> str:
        """Where in the file that policy stands."""
        return self._decided(platform, chat_type, thread_id)[0]

    def _decided(self, platform: str, chat_type: str, thread_id: str | None) -> tuple[str, ResetPolicy]:
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
    return gateway_settings_from(config_file.read(), file=str(config_file.get_path()))


def gateway_settings_from(values: Mapping[str, Any], *, file: str) -> GatewaySettings:
    """The same from what stands in a file, which need not be in its place yet."""
    reading = _Reading(values, file)
    found = {key: value for key in GATEWAY_SETTINGS for value in reading.general(key)}
    reset = ResetPolicy(**_inside("session_reset", found))
    settings = GatewaySettings(
        keying=Keying(**{name: value for name, value in found.items() if "." not in name}),
        reset=reset,
        reset_by_type=reading.policies("reset_by_type", reset),
        reset_by_platform=reading.policies("reset_by_platform", reset),
        **_inside("gateway", found),
    )
    every = ((name, reading.platform(name, settings)) for name in PLATFORM_NAMES)
    return settings._replace(
        platforms={name: one for name, one in every if one is not None}, origins=reading.origins
    )


def value_at(settings: GatewaySettings, key: str) -> Any:
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


def _inside(section: str, found: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{section}."
    return {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}


class _Reading:
    """What the file and the environment say, and where each value that was taken came from."""

    def __init__(self, values: Mapping[str, Any], file: str) -> None:
        self.values, self.file = values, file
        self.origins: dict[str, str] = {}
        here = {name: told for name, told in os.environ.items() if told.strip()}
        kept = {**dotenv.read(), **here}
        self.variables = {name: told.strip() for name, told in kept.items() if told.strip()}

    def general(self, key: str) -> Iterator[Any]:
        """The value of a setting of the gateway as a whole; none if nobody set it."""
        section, _, name = key.rpartition(".")
        inner = self._section(section, key) if section else self.values
        kind = GATEWAY_SETTINGS[key].kind
        yield from self._value(key, kind, inner.get(name), gateway_keys.VARIABLES.get(key, ""))

    def policies(self, section: str, general: ResetPolicy) -> dict[str, ResetPolicy]:
        """Policies of their own; what one does not say is as in the general one."""
        names = gateway_keys.CHAT_TYPES if section == "reset_by_type" else PLATFORM_NAMES
        made = {}
        for owner, said in self._owned(section, f"{names[0]}: {{mode: daily}}").items():
            if owner not in names:
                continue
            known = {
                name: value
                for name, setting in RESET_SETTINGS.items()
                for value in self._value(f"{section}.{owner}.{name}", setting.kind, said.get(name))
            }
            made[owner] = general._replace(**known)
        return made

    def platform(self, name: str, general: GatewaySettings) -> PlatformSettings | None:
        """What is set of a platform; None if nothing is."""
        said = self._owned("platforms", "telegram: {enabled: true}").get(name, {})
        prefix = registry.variable(name, "")
        variables = {
            ALSO.get(rest, rest): variable
            for variable in self.variables
            if variable.startswith(prefix) and (rest := variable.removeprefix(prefix).lower())
        }
        found = {
            one: value
            for one in dict.fromkeys([*said, *variables])
            for value in self._value(
                f"platforms.{name}.{one}", _kind(one), said.get(one), variables.get(one, "")
            )
        }
        if not found:
            return None
        more = {one: value for one, value in found.items() if one not in PLATFORM_SETTINGS}
        known = {one: value for one, value in found.items() if one in PLATFORM_SETTINGS}
        known.setdefault("enabled", not registry.missing(name, more))
        made = PlatformSettings(
            **{"busy": general.busy, "stream": general.stream, **known}, name=name, more=more
        )
        self._refuse_everybody(made)
        return made

    def _value(self, key: str, kind: Kind | None, said: object, variable: str = "") -> Iterator[Any]:
        if variable in self.variables:
            self.origins[key] = variable
            yield _of_text(kind, key, self.variables[variable], variable)
        elif said is not None:
            self.origins[key] = self.file
            meant = expand_variables(key, said, self.file)
            if kind is None:
                yield str(meant) if gateway_keys.is_secret(key) else meant
            elif isinstance(meant, str) and meant != said:
                yield _of_text(kind, key, meant, self.file, written=said)
            else:
                yield check_kind(kind, key, said, self.file)

    def _section(self, name: str, example: str) -> Mapping[str, Any]:
        inner = self.values.get(name)
        if inner is not None and not isinstance(inner, Mapping):
            raise errors.BadConfig(
                f"{self.file}: {name} must hold settings such as {example}, not {describe_type(inner)}"
            )
        return inner or {}

    def _owned(self, section: str, example: str) -> dict[str, Mapping[str, Any]]:
        """Settings of several, by the documented names of those whose they are."""
        made: dict[str, Mapping[str, Any]] = {}
        for owner, inner in self._section(section, example).items():
            if inner is not None and not isinstance(inner, Mapping):
                raise errors.BadConfig(
                    f"{self.file}: {section}.{owner} must hold settings such as {example}, not {describe_type(inner)}"
                )
            name = canonical_source(str(owner))
            made[name] = {**made.get(name, {}), **{str(key): value for key, value in (inner or {}).items()}}
        return made

    def _refuse_everybody(self, made: PlatformSettings) -> None:
        """A star among names would be overlooked; who lets everybody in has to say so."""
        for field, people in (("allowed_users", made.allowed_users), ("owners", made.owners)):
            if EVERYBODY in people and not (field == "owners" and registry.PLATFORMS[made.name].by_secret):
                key = f"platforms.{made.name}.{field}"
                instead = f"; platforms.{made.name}.allow_all lets everybody in" if field != "owners" else ""
                raise errors.BadConfig(f"{self.origins[key]}: {key} must name people, not everybody{instead}")


def _kind(name: str) -> Kind | None:
    known = PLATFORM_SETTINGS.get(name)
    return known.kind if known else gateway_keys.PLATFORM_KINDS.get(name)


def _of_text(kind: Kind | None, key: str, text: str, origin: str, written: object = None) -> Any:
    """What a text in a variable stands for, which may be a number or a yes. `written` is what the file says instead."""
    if kind is None:
        return text
    for meant in _meanings(text):
        try:
            return kind.read(meant)
        except ValueError:
            continue
    raise make_refusal(kind, key, text if written is None else written, origin)


def _meanings(text: str) -> Iterator[object]:
    yield text
    for words, meant in ((("true", "yes", "on", "1"), True), (("false", "no", "off", "0"), False)):
        if text.lower() in words:
            yield meant
    for number in (int, float):
        try:
            yield number(text)
        except ValueError:
            continue
