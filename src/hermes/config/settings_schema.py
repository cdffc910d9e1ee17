"""Every setting of the product, each once: type, default, environment variable, limits and meaning.

A platform declares its own settings in its folder, in the same way (`config/declarations.py`). The tables in
`docs/configuration.md` are made from these declarations: `python -m tools.settings_tables` writes them.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from hermes.config.declarations import Section, Setting, list_settings
from hermes.config.setting_kinds import (
    DAYS,
    FLAG,
    FOLDERS,
    ID,
    PEOPLE,
    PORT,
    TEXT,
    URL,
    VARIABLE,
    VARIABLE_NAMES,
    ZONE,
    make_choice,
    make_integer,
    make_number,
)

CHAT_TYPES = ("dm", "group", "channel", "thread")
BUSY = make_choice("queue", "interrupt", "steer")


class ModelSettings(Section, frozen=True):
    """The model that answers."""

    default: Annotated[
        str | None,
        Setting(
            TEXT,
            "the model that answers; `offline` and `smollm2-135m` need no network",
            variable="HERMES_MODEL",
        ),
    ] = None
    base_url: Annotated[
        str | None,
        Setting(
            URL,
            "its endpoint, which speaks OpenAI's interface; else that of the key there is",
            variable="OPENAI_BASE_URL",
        ),
    ] = None
    key_env: Annotated[
        str | None, Setting(VARIABLE, "the variable that holds its key; else that of its provider")
    ] = None
    context_window: Annotated[
        int | None,
        Setting(
            make_integer(1_000, 100_000_000),
            "how many tokens the usual model takes; else what is known of it",
        ),
    ] = None
    timeout_seconds: Annotated[
        float, Setting(make_number(1, 86_400), "the longest silence before it is asked again")
    ] = 300.0
    max_retries: Annotated[
        int, Setting(make_integer(0, 100), "how often it is asked again when it is busy or out of reach")
    ] = 5


class AuxiliarySettings(Section, frozen=True):
    """The model for titles and summaries."""

    model: Annotated[
        str | None, Setting(TEXT, "the model for titles and summaries; else the one that answers")
    ] = None
    base_url: Annotated[str | None, Setting(URL, "its endpoint; else that of the other")] = None
    key_env: Annotated[
        str | None, Setting(VARIABLE, "the variable that holds its key; else that of its provider")
    ] = None


class AgentSettings(Section, frozen=True):
    """The turn of the agent."""

    max_steps: Annotated[
        int, Setting(make_integer(1, 10_000), "how often it may use tools before it has to answer")
    ] = 60
    auto_title: Annotated[
        bool, Setting(FLAG, "whether a new conversation gets a title after the first answer")
    ] = True
    save_memory: Annotated[
        bool, Setting(FLAG, "whether it may note what matters before a conversation ends")
    ] = True


class DelegationSettings(Section, frozen=True):
    """Subagents."""

    max_concurrent: Annotated[
        int,
        Setting(make_integer(1, 100), "how many subagents of a conversation work at a time; the others wait"),
    ] = 3
    max_steps: Annotated[
        int, Setting(make_integer(1, 10_000), "how often a subagent may use tools before it has to answer")
    ] = 30
    timeout_minutes: Annotated[
        float,
        Setting(
            make_number(0.01, 1440), "how long a subagent may work; waiting for an approval does not count"
        ),
    ] = 15.0


class CompressionSettings(Section, frozen=True):
    """How long conversations are summarised to make room."""

    enabled: Annotated[bool, Setting(FLAG, "whether long conversations are summarised to make room")] = True
    threshold: Annotated[
        float, Setting(make_number(0.05, 0.95), "how full the context may be before that, as a share")
    ] = 0.5
    target_ratio: Annotated[
        float,
        Setting(
            make_number(0, 1, clamp=(0.1, 0.8)), "how much of that room the newest messages keep; 0.1 to 0.8"
        ),
    ] = 0.2
    protect_first_n: Annotated[
        int, Setting(make_integer(0, 10_000), "messages at the beginning that are never summarised")
    ] = 3
    protect_last_n: Annotated[
        int, Setting(make_integer(1, 10_000), "messages at the end that are never summarised")
    ] = 20


class DisplaySettings(Section, frozen=True):
    """What the terminal shows."""

    resume_display: Annotated[
        str, Setting(make_choice("full", "minimal"), "what is shown of a conversation that is resumed")
    ] = "full"


class ApprovalSettings(Section, frozen=True):
    """What the tools ask for."""

    mode: Annotated[
        str,
        Setting(
            make_choice("ask", "auto", "off"),
            "`ask` before tools change something; `auto`: only before they leave the sandbox; `off`: no"
            " sandbox and no questions, for containers, set by editing the file only",
            file_only=("off",),
        ),
    ] = "ask"
    destructive_slash_confirm: Annotated[
        bool, Setting(FLAG, "whether /new, /clear, /undo and /rewind ask first")
    ] = True
    timeout_minutes: Annotated[
        float,
        Setting(
            make_number(0.01, 1_440), "how long the gateway waits for `/approve` in a chat before it refuses"
        ),
    ] = 10.0


class SandboxSettings(Section, frozen=True):
    """What commands of the tools can reach."""

    network: Annotated[
        bool | None,
        Setting(FLAG, "whether commands reach the network; else they do, but not in jobs (cron, batch)"),
    ] = None
    readable: Annotated[
        tuple[str, ...], Setting(FOLDERS, "further folders that commands and file tools can read")
    ] = ()
    writable: Annotated[tuple[str, ...], Setting(FOLDERS, "further folders that they can change")] = ()
    environment: Annotated[
        tuple[str, ...], Setting(VARIABLE_NAMES, "further environment variables that commands get")
    ] = ()


class SessionSettings(Section, frozen=True):
    """How long conversations are kept, and where else."""

    auto_prune: Annotated[
        bool, Setting(FLAG, "whether old conversations are deleted when the chat starts")
    ] = False
    retention_days: Annotated[float, Setting(DAYS, "how long they are kept then")] = 90.0
    vacuum_after_prune: Annotated[bool, Setting(FLAG, "whether the file is made smaller afterwards")] = True
    min_interval_hours: Annotated[float, Setting(DAYS, "how many hours must pass before the next time")] = (
        24.0
    )
    trash_days: Annotated[float, Setting(DAYS, "how long what was thrown away can be brought back")] = 30.0
    thin_days: Annotated[
        float | None, Setting(DAYS, "after how many days large tool output is cut, together with auto_prune")
    ] = None
    spool: Annotated[
        bool, Setting(FLAG, "whether what cannot be stored waits beside an encrypted store, in plain text")
    ] = False
    transcripts: Annotated[
        str | None,
        Setting(
            make_choice("gateway", "all", "off"),
            "whose text is also kept in `sessions/`, in plain files; else `gateway`, and `off` for an encrypted store",
        ),
    ] = None
    index_file: Annotated[
        bool | None,
        Setting(FLAG, "whether `sessions/sessions.json` is written; else yes, and no for an encrypted store"),
    ] = None


class StoreSettings(Section, frozen=True):
    """The store itself."""

    key_file: Annotated[str | None, Setting(TEXT, "the file with the key of an encrypted store")] = None


class Settings(Section, frozen=True):
    """The settings of everything but the gateway. Each section that is a field here is one of config.yaml."""

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
    prices: Mapping[str, Mapping[str, float]] = {}
    """Dollars per million tokens of a model: `input`, `output`, `cache_read`, `cache_write`."""
    windows: Mapping[str, int] = {}
    """`model.context_window` by the names of the usual model, for when another one answers."""
    origins: Mapping[str, str] = {}
    """Where each value that is no default comes from."""
    warning: str | None = None
    """One line about unknown keys; for whoever has a person to tell it to."""


# ---------------------------------------------------------------- the gateway


class Keying(Section, frozen=True):
    """Which people share a session. These stand in no section."""

    group_sessions_per_user: Annotated[
        bool, Setting(FLAG, "whether everybody in a group has a conversation of their own")
    ] = True
    thread_sessions_per_user: Annotated[
        bool, Setting(FLAG, "the same for a thread, which else is one for all in it")
    ] = False


class ResetPolicy(Section, frozen=True):
    """When a conversation starts afresh by itself."""

    mode: Annotated[
        str,
        Setting(
            make_choice("none", "idle", "daily", "both"),
            "when a conversation starts afresh by itself: never, …",
        ),
    ] = "none"
    idle_minutes: Annotated[
        int,
        Setting(
            make_integer(1, 10_000_000),
            "… after so many minutes without a message of a person, …",
            variable="SESSION_IDLE_MINUTES",
        ),
    ] = 1440
    at_hour: Annotated[
        int, Setting(make_integer(0, 23), "… at this hour of the day, …", variable="SESSION_RESET_HOUR")
    ] = 4
    timezone: Annotated[str | None, Setting(ZONE, "… of this place; else that of the machine")] = None
    notify: Annotated[bool, Setting(FLAG, "whether a reset is announced in the chat")] = True
    bg_process_max_age_hours: Annotated[
        float,
        Setting(
            make_number(0, 1_000_000),
            "how old a background process may be and still keep its conversation from a reset; 0: however old",
        ),
    ] = 0.0


class GatewaySection(Section, frozen=True, kw_only=True):
    """The section `gateway`."""

    busy: Annotated[str, Setting(BUSY, "what a message does that comes while an answer is being made")] = (
        "queue"
    )
    stream: Annotated[
        bool, Setting(FLAG, "whether an answer is seen as it comes, where a platform can edit messages")
    ] = True
    messages_per_minute: Annotated[
        int, Setting(make_integer(0, 100_000), "how many messages a person may send; 0: any number")
    ] = 20
    largest_attachment_mb: Annotated[
        float, Setting(make_number(0, 100_000), "how large a file may be that somebody sends")
    ] = 20.0
    redact_pii: Annotated[
        bool,
        Setting(
            FLAG, "whether models are told signs instead of names and numbers, where those lead to a person"
        ),
    ] = False
    drain_seconds: Annotated[
        float,
        Setting(make_number(0, 3_600), "how long what is under way may take when the gateway is told to end"),
    ] = 30.0
    health_host: Annotated[str, Setting(TEXT, "where /healthz and /metrics are")] = "127.0.0.1"
    health_port: Annotated[int, Setting(PORT, "on this port; 0: nowhere")] = 8686
    connections: Annotated[
        int,
        Setting(
            make_integer(16, 100_000),
            "how many HTTP connections may be open, over all that listens; fewer if there are few file descriptors",
        ),
    ] = 1000
    connections_per_address: Annotated[
        int,
        Setting(
            make_integer(1, 100_000),
            "how many of them from one address; a proxy in front of the gateway is one address",
        ),
    ] = 256
    bodies_mb: Annotated[
        int,
        Setting(
            make_integer(1, 100_000),
            "how many MB of request bodies may be in memory; one key or address gets half",
        ),
    ] = 128
    wrong_keys_per_minute: Annotated[
        int,
        Setting(
            make_integer(1, 100_000), "how many requests with a wrong key or signature an address may send"
        ),
    ] = 100


class PlatformSection(Section, frozen=True, kw_only=True):
    """What every platform has under `platforms.<name>`, beside its own options."""

    enabled: Annotated[bool, Setting(FLAG, "whether it is connected; else it is if its secret is there")] = (
        True
    )
    home_channel: Annotated[str | None, Setting(ID, "the chat to which handoffs and jobs go")] = None
    home_thread: Annotated[str | None, Setting(ID, "the thread of that chat")] = None
    home_type: Annotated[
        str | None, Setting(make_choice(*CHAT_TYPES), "what kind of chat that is; `/sethome` knows")
    ] = None
    home_user: Annotated[str | None, Setting(ID, "whose private chat it is; `/sethome` knows")] = None
    allowed_users: Annotated[frozenset[str], Setting(PEOPLE, "who may talk with the agent")] = frozenset()
    allow_all: Annotated[bool, Setting(FLAG, "whether everybody may, who finds it")] = False
    owners: Annotated[
        frozenset[str],
        Setting(
            PEOPLE,
            "those whose machine this is: they may talk, and have the tools that reach it, and its memory",
        ),
    ] = frozenset()
    busy: Annotated[str, Setting(BUSY, "as `gateway.busy`, for this platform")] = "queue"
    stream: Annotated[bool, Setting(FLAG, "as `gateway.stream`, for this platform")] = True


# ---------------------------------------------------------------- tables


def list_sections(owner: type[Section]) -> Mapping[str, type[Section]]:
    """The fields of a class that are sections themselves."""
    return {
        field.name: field.type
        for field in msgspec.structs.fields(owner)
        if isinstance(field.type, type) and issubclass(field.type, Section)
    }


def _list_keys(sections: Mapping[str, type[Section]]) -> Mapping[str, Setting]:
    return {
        f"{section}.{name}" if section else name: setting
        for section, declared in sections.items()
        for name, setting in list_settings(declared).items()
    }


SECTIONS = list_sections(Settings)
GATEWAY_SECTIONS: Mapping[str, type[Section]] = {
    "": Keying,
    "session_reset": ResetPolicy,
    "gateway": GatewaySection,
}
SETTINGS = _list_keys(SECTIONS)
"""By their dotted path, as are those of the gateway."""
GATEWAY_SETTINGS = _list_keys(GATEWAY_SECTIONS)
RESETS = ("reset_by_type", "reset_by_platform")
"""Sections with a reset policy for each type of chat, and for each platform."""
OPEN_SECTIONS = (*RESETS, "platforms")
"""Sections whose keys are names of chats and platforms."""


def get_default(key: str) -> Any:
    """The default of a setting that does not belong to a platform."""
    section, _, name = key.rpartition(".")
    return getattr({**SECTIONS, **GATEWAY_SECTIONS}[section](), name)
