"""Settings of the gateway, as declared in `config/settings_schema.py`, and settings of the configured
platforms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes import errors
from hermes.config import config_file
from hermes.config.declarations import list_settings, make_variable
from hermes.config.redaction import describe_type, find_secrets
from hermes.config.settings_reader import SettingsReader
from hermes.config.settings_schema import (
    GATEWAY_SECTIONS,
    GatewaySection,
    PlatformSection,
)
from hermes.config.settings_schema import Keying as Keying
from hermes.config.settings_schema import ResetPolicy as ResetPolicy
from hermes.gateway import registry
from hermes.gateway.http.limits import Limits
from hermes.session_kinds import CHAT_TYPES, canonical_source

EVERYBODY = "*"
EXAMPLE = "telegram: {enabled: true}"


class PlatformSettings(PlatformSection, frozen=True):
    name: str
    more: Mapping[str, Any] = {}
    """The platform's own options that are set, including secrets, by name in lower case."""

    def __repr__(self) -> str:
        """Return the settings as text, for error messages and the log. The values of the options are left out,
        because they include secrets."""
        fields = {field: getattr(self, field) for field in self.__struct_fields__}
        fields["more"] = dict.fromkeys(self.more, "…")
        return f"PlatformSettings({', '.join(f'{field}={value!r}' for field, value in fields.items())})"

    @property
    def secrets(self) -> frozenset[str]:
        """The values of this platform's options that are secret, such as its token."""
        return frozenset(find_secrets(dict(self.more)))


class GatewaySettings(GatewaySection, frozen=True, kw_only=True):
    keying: Keying = Keying()
    reset: ResetPolicy = ResetPolicy()
    reset_by_type: Mapping[str, ResetPolicy] = {}
    reset_by_platform: Mapping[str, ResetPolicy] = {}
    platforms: Mapping[str, PlatformSettings] = {}
    """All platforms with at least one setting, enabled or not."""
    origins: Mapping[str, str] = {}
    """The origin (file or variable) of each value that is not a default, by the dotted path of the setting."""

    @property
    def limits(self) -> Limits:
        """The limits that all HTTP servers of the gateway share."""
        return Limits(
            self.connections,
            self.connections_per_address,
            self.bodies_mb,
            self.wrong_keys_per_minute,
            self.trusted_proxies,
        )

    @property
    def enabled(self) -> dict[str, PlatformSettings]:
        """The settings of the platforms that are enabled, by the name of the platform."""
        return {name: platform for name, platform in self.platforms.items() if platform.enabled}

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset().union(*(platform.secrets for platform in self.platforms.values()))

    def find_policy(self, platform: str, chat_type: str, thread_id: str | None = None) -> ResetPolicy:
        """Return the reset policy for a chat. This is the policy of its platform. If none is set, it is that of the
        chat type, and otherwise the general one."""
        return self._find_named_policy(platform, chat_type, thread_id)[1]

    def find_policy_name(self, platform: str, chat_type: str, thread_id: str | None = None) -> str:
        """Return the config key of the policy that `find_policy` returns."""
        return self._find_named_policy(platform, chat_type, thread_id)[0]

    def _find_named_policy(
        self, platform: str, chat_type: str, thread_id: str | None
    ) -> tuple[str, ResetPolicy]:
        """Return the reset policy for a chat, and the config key under which it is set. A policy for the platform
        comes first. In a thread of a group, the policy for threads comes next. Then follow the policy for the type
        of the chat and the general policy."""
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
    """Read all settings. The environment overrides `.env`, which overrides `config.yaml`, which overrides the
    defaults."""
    return parse_gateway_settings(config_file.read(), file=str(config_file.get_path()))


def parse_gateway_settings(values: Mapping[str, Any], *, file: str) -> GatewaySettings:
    """Return the settings of the gateway from `values`, the parsed content of `config.yaml`. `file` is the path of
    config.yaml, for error messages and for the origins of the settings."""
    reader = _GatewayReader(values, file)
    found = {name: reader.read_section(name, declared) for name, declared in GATEWAY_SECTIONS.items()}
    general = GatewaySection(**found["gateway"])
    reset = ResetPolicy(**found["session_reset"])
    platforms = {name: reader.read_platform(name, general) for name in registry.PLATFORMS}
    return GatewaySettings(
        **found["gateway"],
        keying=Keying(**found[""]),
        reset=reset,
        reset_by_type=reader.read_policies("reset_by_type", CHAT_TYPES, reset),
        reset_by_platform=reader.read_policies("reset_by_platform", tuple(registry.PLATFORMS), reset),
        platforms={name: platform for name, platform in platforms.items() if platform is not None},
        origins=reader.origins,
    )


def get_value(settings: GatewaySettings, key: str) -> Any:
    """Return the value of the setting with the dotted path `key`, such as `platforms.telegram.home_channel`, or its
    default. Return None if there is neither."""
    section, _, rest = key.partition(".")
    if not rest:
        return getattr(settings.keying, section)
    if section in ("session_reset", "gateway"):
        return getattr(settings.reset if section == "session_reset" else settings, rest)
    owner, _, name = rest.partition(".")
    if section != "platforms":
        return getattr(getattr(settings, section).get(owner, settings.reset), name)
    platform = settings.platforms.get(owner, PlatformSettings(owner, enabled=False))
    value = getattr(platform, name) if name in list_settings(PlatformSection) else platform.more.get(name)
    if value is None and owner in registry.PLATFORMS:
        value = getattr(registry.PLATFORMS[owner].options(), name, None)
    return sorted(value) if isinstance(value, frozenset) else value


class _GatewayReader(SettingsReader):
    """Reads the settings of the gateway from config.yaml, including those of chat types and platforms."""

    def read_policies(
        self, section: str, owners: tuple[str, ...], general: ResetPolicy
    ) -> dict[str, ResetPolicy]:
        """Read the reset policies in a section of config.yaml. The keys of the section are those in `owners`: chat
        types or platforms. Return the policies by these keys. A field that a policy does not set gets its value
        from `general`."""
        policies = {}
        for owner, written in self._read_owned(section, f"{owners[0]}: {{mode: daily}}").items():
            if owner in owners:
                fields = {
                    name: value
                    for name, setting in list_settings(ResetPolicy).items()
                    for value in self.read_value(f"{section}.{owner}.{name}", setting.kind, written.get(name))
                }
                policies[owner] = general.replace(**fields)
        return policies

    def read_platform(self, name: str, general: GatewaySection) -> PlatformSettings | None:
        """Read the settings of a platform. Return None if nothing is set. Options that are not declared are
        kept without a check."""
        declared = registry.PLATFORMS[name]
        common = list_settings(PlatformSection)
        known = {**common, **declared.settings}
        written = self._read_owned("platforms", EXAMPLE).get(name, {})
        variables = self._find_variables(name)
        values = {
            setting: value
            for setting in dict.fromkeys([*written, *variables])
            for value in self.read_value(
                f"platforms.{name}.{setting}",
                known[setting].kind if setting in known else None,
                written.get(setting),
                variables.get(setting),
            )
        }
        if not values and not registry.has_secret_file(name):
            return None
        more = {setting: value for setting, value in values.items() if setting not in common}
        fields = {setting: value for setting, value in values.items() if setting in common}
        fields.setdefault("enabled", not registry.list_missing(name, more))
        platform = PlatformSettings(
            **{"busy": general.busy, "stream": general.stream, **fields}, name=name, more=more
        )
        self._refuse_everybody(platform, is_open=declared.by_secret)
        return platform

    def _find_variables(self, platform: str) -> dict[str, str]:
        """Return the names of the environment variables that hold settings of the platform, by the name of the
        setting."""
        prefix, aliases = make_variable(platform, ""), registry.PLATFORMS[platform].variable_aliases
        names = {
            variable: variable.removeprefix(prefix).lower()
            for variable in self.variables
            if variable.startswith(prefix) and variable != prefix
        }
        return {aliases.get(name, name): variable for variable, name in names.items()}

    def _read_owned(self, section: str, example: str) -> dict[str, Mapping[str, Any]]:
        """Return the inner sections of a section of config.yaml whose keys are platforms or chat types. The result
        is by the documented name of the platform or chat type. `example` shows a valid value in error messages."""
        sections: dict[str, Mapping[str, Any]] = {}
        for owner, inner in self.get_section(section, example).items():
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

    def _refuse_everybody(self, platform: PlatformSettings, *, is_open: bool) -> None:
        """Raise `BadConfig` if a list of people contains `*`. To give everybody access, the operator must set
        `allow_all`. With `is_open`, which is for platforms with a shared secret, `*` is allowed in `owners`."""
        for field, people in (("allowed_users", platform.allowed_users), ("owners", platform.owners)):
            if EVERYBODY in people and not (field == "owners" and is_open):
                key = f"platforms.{platform.name}.{field}"
                instead = (
                    f"; to allow everybody, set platforms.{platform.name}.allow_all"
                    if field != "owners"
                    else ""
                )
                raise errors.BadConfig(f"{self.origins[key]}: {key} must name people, not everybody{instead}")
