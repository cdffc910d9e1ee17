"""What a person can set, every default, and where a value comes from.

Arguments win over the environment, the environment over `.env` in the home, that over `config.yaml`, and that over the
defaults, which stand here and nowhere else. `docs/configuration.md` is made from this file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from hermes import errors
from hermes.config import config_file, dotenv, gateway_keys
from hermes.config.redaction import describe_type, is_secret_name, redact_text
from hermes.config.setting_kinds import (
    DAYS,
    FLAG,
    FOLDERS,
    RATE,
    RATES,
    TEXT,
    URL,
    VARIABLE,
    VARIABLE_NAMES,
    Kind,
    Setting,
    make_choice,
    make_integer,
    make_number,
)


class ModelSettings(NamedTuple):
    default: str | None = None
    base_url: str | None = None
    key_env: str | None = None
    context_window: int | None = None
    timeout_seconds: float = 300.0
    max_retries: int = 5


class AuxiliarySettings(NamedTuple):
    model: str | None = None
    base_url: str | None = None
    key_env: str | None = None


class AgentSettings(NamedTuple):
    max_steps: int = 60
    auto_title: bool = True
    save_memory: bool = True


class DelegationSettings(NamedTuple):
    max_concurrent: int = 3
    max_steps: int = 30
    timeout_minutes: float = 15.0


class CompressionSettings(NamedTuple):
    enabled: bool = True
    threshold: float = 0.50
    target_ratio: float = 0.20
    protect_first_n: int = 3
    protect_last_n: int = 20


class DisplaySettings(NamedTuple):
    resume_display: str = "full"


class ApprovalSettings(NamedTuple):
    mode: str = "ask"
    destructive_slash_confirm: bool = True
    timeout_minutes: float = 10.0


class SandboxSettings(NamedTuple):
    network: bool | None = None
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


class SessionSettings(NamedTuple):
    auto_prune: bool = False
    retention_days: float = 90.0
    vacuum_after_prune: bool = True
    min_interval_hours: float = 24.0
    trash_days: float = 30.0
    thin_days: float | None = None
    spool: bool = False
    transcripts: str | None = None
    index_file: bool | None = None


class StoreSettings(NamedTuple):
    key_file: str | None = None


Rates = Mapping[str, float]


class Settings(NamedTuple):
    model: ModelSettings = ModelSettings()
    auxiliary: AuxiliarySettings = AuxiliarySettings()
    agent: AgentSettings = AgentSettings()
    delegation: DelegationSettings = DelegationSettings()
    compression: CompressionSettings = CompressionSettings()
    display: DisplaySettings = DisplaySettings()
    approvals: ApprovalSettings = ApprovalSettings()
    sandbox: SandboxSettings = SandboxSettings()
    sessions: SessionSettings = SessionSettings()
    store: StoreSettings = StoreSettings()
    prices: Mapping[str, Rates] = {}
    """Dollars per million tokens of a model: `input`, `output`, `cache_read`, `cache_write`."""
    windows: Mapping[str, int] = {}
    """`model.context_window` by the names of the usual model, for when another one answers."""
    origins: Mapping[str, str] = {}
    """Where each value that is no default comes from."""
    warning: str | None = None
    """One line about what nobody understands; for whoever has a person to tell it to."""


SETTINGS = {
    "model.default": Setting(TEXT, "the model that answers; `offline` and `smollm2-135m` need no network"),
    "model.base_url": Setting(
        URL, "its endpoint, which speaks OpenAI's interface; else that of the key there is"
    ),
    "model.key_env": Setting(VARIABLE, "the variable that holds its key; else that of its provider"),
    "model.context_window": Setting(
        make_integer(1_000, 100_000_000), "how many tokens the usual model takes; else what is known of it"
    ),
    "model.timeout_seconds": Setting(make_number(1, 86_400), "the longest silence before it is asked again"),
    "model.max_retries": Setting(
        make_integer(0, 100), "how often it is asked again when it is busy or out of reach"
    ),
    "auxiliary.model": Setting(TEXT, "the model for titles and summaries; else the one that answers"),
    "auxiliary.base_url": Setting(URL, "its endpoint; else that of the other"),
    "auxiliary.key_env": Setting(VARIABLE, "the variable that holds its key; else that of its provider"),
    "agent.max_steps": Setting(make_integer(1, 10_000), "how often it may use tools before it has to answer"),
    "agent.auto_title": Setting(FLAG, "whether a new conversation gets a title after the first answer"),
    "agent.save_memory": Setting(FLAG, "whether it may note what matters before a conversation ends"),
    "delegation.max_concurrent": Setting(
        make_integer(1, 100), "how many subagents of a conversation work at a time; the others wait"
    ),
    "delegation.max_steps": Setting(
        make_integer(1, 10_000), "how often a subagent may use tools before it has to answer"
    ),
    "delegation.timeout_minutes": Setting(
        make_number(0.01, 1440), "how long a subagent may work; waiting for an approval does not count"
    ),
    "compression.enabled": Setting(FLAG, "whether long conversations are summarised to make room"),
    "compression.threshold": Setting(
        make_number(0.05, 0.95), "how full the context may be before that, as a share"
    ),
    "compression.target_ratio": Setting(
        make_number(0, 1, clamp=(0.10, 0.80)), "how much of that room the newest messages keep; 0.1 to 0.8"
    ),
    "compression.protect_first_n": Setting(
        make_integer(0, 10_000), "messages at the beginning that are never summarised"
    ),
    "compression.protect_last_n": Setting(
        make_integer(1, 10_000), "messages at the end that are never summarised"
    ),
    "display.resume_display": Setting(
        make_choice("full", "minimal"), "what is shown of a conversation that is resumed"
    ),
    "approvals.mode": Setting(
        make_choice("ask", "auto", "off"),
        "`ask` before tools change something; `auto`: only before they leave the sandbox; `off`: no sandbox and no"
        " questions, for containers, set by editing the file only",
    ),
    "approvals.destructive_slash_confirm": Setting(FLAG, "whether /new, /clear and /undo ask first"),
    "approvals.timeout_minutes": Setting(
        make_number(0.01, 1440), "how long the gateway waits for `/approve` in a chat before it refuses"
    ),
    "sandbox.network": Setting(
        FLAG, "whether commands reach the network; else they do, but not in jobs (cron, batch)"
    ),
    "sandbox.readable": Setting(FOLDERS, "further folders that commands and file tools can read"),
    "sandbox.writable": Setting(FOLDERS, "further folders that they can change"),
    "sandbox.environment": Setting(VARIABLE_NAMES, "further environment variables that commands get"),
    "sessions.auto_prune": Setting(FLAG, "whether old conversations are deleted when the chat starts"),
    "sessions.retention_days": Setting(DAYS, "how long they are kept then"),
    "sessions.vacuum_after_prune": Setting(FLAG, "whether the file is made smaller afterwards"),
    "sessions.min_interval_hours": Setting(DAYS, "how many hours must pass before the next time"),
    "sessions.trash_days": Setting(DAYS, "how long what was thrown away can be brought back"),
    "sessions.thin_days": Setting(
        DAYS, "after how many days large tool output is cut, together with auto_prune"
    ),
    "sessions.spool": Setting(
        FLAG, "whether what cannot be stored waits beside an encrypted store, in plain text"
    ),
    "sessions.transcripts": Setting(
        make_choice("gateway", "all", "off"),
        "whose text is also kept in `sessions/`, in plain files; else `gateway`, and `off` for an encrypted store",
    ),
    "sessions.index_file": Setting(
        FLAG, "whether `sessions/sessions.json` is written; else yes, and no for an encrypted store"
    ),
    "store.key_file": Setting(TEXT, "the file with the key of an encrypted store"),
}
SECTIONS = tuple(dict.fromkeys(key.split(".")[0] for key in SETTINGS))
VARIABLES = {"model.default": "HERMES_MODEL", "model.base_url": "OPENAI_BASE_URL"}
"""Which settings the environment can give. Keys are no settings; they are asked for when they are needed."""


def get_default(key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(Settings(), section), name)


# ---------------------------------------------------------------- reading


def read_settings(arguments: Mapping[str, object] | None = None) -> Settings:
    """All settings. `arguments` are those of a command, by their key; one that is None was not given."""
    file = config_file.get_path()
    return make_settings(config_file.read(), file=str(file), arguments=arguments)


def make_settings(
    values: Mapping[str, Any], *, file: str, arguments: Mapping[str, object] | None = None
) -> Settings:
    """The same from what stands in a file, which need not be in its place yet."""
    found: dict[str, tuple[object, str]] = {}
    for key in SETTINGS:
        found |= _choose_value(key, values, file, arguments or {})
    usual = _list_usual_models(values, file)
    in_file = found.get("model.context_window", ("", ""))[1] == file
    chosen_model = (arguments or {}).get("model.default")
    if in_file and usual and chosen_model is not None and chosen_model not in usual:
        window, _ = found.pop("model.context_window")  # it is that of the usual model
    else:
        window = found["model.context_window"][0] if in_file else None
    checked = {key: check_value(key, value, origin) for key, (value, origin) in found.items()}
    sections = {
        section: getattr(Settings(), section)._replace(
            **{key.split(".")[1]: value for key, value in checked.items() if key.startswith(f"{section}.")}
        )
        for section in SECTIONS
    }
    return Settings(
        **sections,
        prices=_parse_prices(values.get("prices"), file),
        windows={}
        if window is None
        else dict.fromkeys(usual, check_value("model.context_window", window, file)),
        origins={key: origin for key, (_, origin) in found.items()},
        warning=_make_warning(_find_unknown(values), file),
    )


def check_value(key: str, value: object, origin: str) -> Any:
    """The value as it is used; BadConfig if it cannot be."""
    return check_kind(SETTINGS[key].kind, key, value, origin)


def check_kind(kind: Kind, key: str, value: object, origin: str) -> Any:
    """The same for a value of any kind."""
    try:
        return kind.read(expand_variables(key, value, origin))
    except ValueError:
        raise make_refusal(kind, key, value, origin) from None


def make_refusal(kind: Kind, key: str, value: object, origin: str) -> errors.BadConfig:
    """That a value is not what it must be, in one line. What may be a secret is not told."""
    but = "" if is_secret_name(key) or kind is VARIABLE else f", not {format_value(value)}"
    return errors.BadConfig(f"{origin}: {key} must be {kind.expected}{but}")


def check_rates(model: str, rates: object, origin: str) -> Rates:
    """The prices of one model; BadConfig if they are none."""
    if (
        not isinstance(rates, dict)
        or not rates.keys() <= set(RATES)
        or not {"input", "output"} <= rates.keys()
    ):
        expected = "input and output, and cache_read and cache_write if it has them"
        raise errors.BadConfig(f"{origin}: prices.{model} must say {expected}")
    try:
        return {name: RATE.read(rate) for name, rate in rates.items()}
    except ValueError:
        raise errors.BadConfig(f"{origin}: prices.{model} must be dollars per million tokens") from None


def suggest_key(key: str) -> str:
    """What may have been meant by a key that does not exist, as the end of a sentence; empty if nothing comes near."""
    from difflib import get_close_matches

    if meant := _find_key(key):
        return f"; is {meant} meant?"
    known = (*SETTINGS, *gateway_keys.list_keys(), *SECTIONS, *gateway_keys.SECTIONS)
    close = get_close_matches(key, known, n=1, cutoff=0.7)
    return f"; is {close[0]} meant?" if close else ""


def list_below(key: str) -> list[str]:
    """The settings right below a key that is none itself, or groups of them; none if nothing is."""
    every = (
        candidate for candidate in (*SETTINGS, *gateway_keys.list_keys()) if candidate.startswith(f"{key}.")
    )
    depth = key.count(".") + 2
    return list(dict.fromkeys(".".join(candidate.split(".")[:depth]) for candidate in every))


def _find_key(variable: str) -> str | None:
    """The setting that a variable of the environment gives, if it gives one: it has another name in the file."""
    for key, name in (*VARIABLES.items(), *gateway_keys.VARIABLES.items()):
        if name == variable:
            return key
    return gateway_keys.find_key(variable)


def _choose_value(
    key: str, values: Mapping[str, Any], file: str, arguments: Mapping[str, object]
) -> dict[str, tuple[object, str]]:
    """The value that wins, and where it comes from; nothing if there is none."""
    if arguments.get(key) is not None:
        return {key: (arguments[key], "the command line")}
    if (name := VARIABLES.get(key)) and (variable := dotenv.get_variable(name)):
        return {key: (variable, name)}
    return _read_from_file(key, values, file)


def _read_from_file(key: str, values: Mapping[str, Any], file: str) -> dict[str, tuple[object, str]]:
    section, _, rest = key.partition(".")
    inner = values.get(section)
    if inner is not None and not isinstance(inner, Mapping):
        raise errors.BadConfig(
            f"{file}: {section} must hold settings such as {key}, not {describe_type(inner)}"
        )
    value = inner.get(rest) if inner is not None else None
    return {} if value is None else {key: (value, file)}


def _list_usual_models(values: Mapping[str, Any], file: str) -> list[str]:
    """The models that `model.context_window` in the file is about: the one in the file, and that of the environment."""
    choices = (
        _choose_value("model.default", values, file, {}),
        _read_from_file("model.default", values, file),
    )
    names: list[str] = []
    for value, origin in (pair for choice in choices for pair in choice.values()):
        with suppress(errors.BadConfig):  # told by whoever reads it
            names.append(str(expand_variables("model.default", value, origin)))
    return list(dict.fromkeys(names))


def expand_variables(key: str, value: object, origin: str) -> object:
    """`${NAME}` in a text stands for what that variable says."""
    if isinstance(value, list):
        return [expand_variables(key, item, origin) for item in value]
    if not isinstance(value, str) or "${" not in value:
        return value

    def replace(match: re.Match[str]) -> str:
        variable = dotenv.get_variable(match[1])
        if variable is None:
            raise errors.BadConfig(f"{origin}: {key} names ${{{match[1]}}}, which is not set")
        return variable

    return re.sub(r"\$\{(\w+)\}", replace, value)


def _parse_prices(values: object, file: str) -> Mapping[str, Rates]:
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise errors.BadConfig(f"{file}: prices must name models, not {describe_type(values)}")
    return {str(model): check_rates(str(model), rates, file) for model, rates in values.items()}


def _find_unknown(values: Mapping[str, Any]) -> list[str]:
    names = []
    for section, inner in values.items():
        if section in SECTIONS and isinstance(inner, Mapping):
            names += [f"{section}.{name}" for name in inner if f"{section}.{name}" not in SETTINGS]
        elif section not in (*SECTIONS, *gateway_keys.SECTIONS, "prices"):
            names.append(str(section))
    return [*names, *gateway_keys.find_unknown(values)]


def _make_warning(unknown: list[str], file: str) -> str | None:
    if not unknown:
        return None
    hint = suggest_key(unknown[0]) if len(unknown) == 1 else ""
    return f"{file}: nobody knows {redact_text(', '.join(unknown))}{hint}"


def format_value(value: object) -> str:
    text = redact_text(repr(value)) if not isinstance(value, dict | list) else describe_type(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
