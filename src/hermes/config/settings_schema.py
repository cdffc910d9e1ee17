"""The declaration of every setting: type, default, environment variable, limits and meaning.

The settings of models are in `config/model_settings.py`. A platform declares its own settings in its folder
in the same way (`config/declarations.py`). `python -m tools.settings_tables` generates the tables in
`docs/configuration.md` from these declarations.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from hermes.config.declarations import Section, Setting, list_settings
from hermes.config.model_settings import AuxiliarySettings as AuxiliarySettings
from hermes.config.model_settings import ModelSettings as ModelSettings
from hermes.config.setting_kinds import (
    DAYS,
    FLAG,
    FOLDERS,
    ID,
    NETWORKS,
    PEOPLE,
    PORT,
    TEXT,
    VARIABLE_NAMES,
    ZONE,
    make_choice,
    make_integer,
    make_number,
)
from hermes.session_kinds import CHAT_TYPES

BUSY = make_choice("queue", "interrupt", "steer")


class AgentSettings(Section, frozen=True):
    """Settings of the agent's turns."""

    max_steps: Annotated[
        int,
        Setting(make_integer(1, 10_000), "the number of tool steps in a turn before the agent must answer"),
    ] = 60
    auto_title: Annotated[bool, Setting(FLAG, "generate a title after the first answer")] = True
    save_memory: Annotated[
        bool, Setting(FLAG, "let the agent update its memory before a conversation ends")
    ] = True


class DelegationSettings(Section, frozen=True):
    """Settings of subagents."""

    max_concurrent: Annotated[
        int,
        Setting(
            make_integer(1, 100),
            "the number of subagents of a conversation that run at the same time; the others wait",
        ),
    ] = 3
    max_steps: Annotated[
        int, Setting(make_integer(1, 10_000), "the number of tool steps before a subagent must answer")
    ] = 30
    timeout_minutes: Annotated[
        float,
        Setting(
            make_number(0.01, 1440), "the time limit of a subagent; waiting for an approval does not count"
        ),
    ] = 15.0
    tasks_per_hour: Annotated[
        int,
        Setting(
            make_integer(0, 100_000),
            "the number of subagents per hour that a person may start through the gateway; 0: no limit, as for owners",
        ),
    ] = 12


class CompressionSettings(Section, frozen=True):
    """Settings of the compression of long conversations."""

    enabled: Annotated[
        bool, Setting(FLAG, "compress long conversations to stay within the context window")
    ] = True
    threshold: Annotated[
        float,
        Setting(
            make_number(0.05, 0.95), "compress when the context is fuller than this fraction of the window"
        ),
    ] = 0.5
    target_ratio: Annotated[
        float,
        Setting(
            make_number(0, 1, clamp=(0.1, 0.8)),
            "the fraction of the threshold that is reserved for the newest messages; limited to 0.1 to 0.8",
        ),
    ] = 0.2
    protect_first_n: Annotated[
        int,
        Setting(make_integer(0, 10_000), "the number of messages at the beginning that are never summarised"),
    ] = 3
    protect_last_n: Annotated[
        int, Setting(make_integer(1, 10_000), "the number of messages at the end that are never summarised")
    ] = 20


class DisplaySettings(Section, frozen=True):
    """Settings of the terminal's display."""

    resume_display: Annotated[
        str,
        Setting(
            make_choice("full", "minimal"),
            "the recap of a resumed conversation: the last exchanges, or one line",
        ),
    ] = "full"


class ApprovalSettings(Section, frozen=True):
    """Settings of the approvals of tool actions."""

    mode: Annotated[
        str,
        Setting(
            make_choice("ask", "auto", "off"),
            "`ask`: ask before a tool changes something; `auto`: ask only before it leaves the sandbox; `off`: no"
            " sandbox and no questions, for containers; `off` can only be set by editing the file",
            file_only=("off",),
        ),
    ] = "ask"
    destructive_slash_confirm: Annotated[
        bool, Setting(FLAG, "ask before /new, /clear, /undo and /rewind")
    ] = True
    timeout_minutes: Annotated[
        float,
        Setting(
            make_number(0.01, 1_440), "how long the gateway waits for `/approve`; then the action is refused"
        ),
    ] = 10.0


class SandboxSettings(Section, frozen=True):
    """Settings that limit the access of tool commands to files and the network."""

    network: Annotated[
        bool | None,
        Setting(FLAG, "network access of commands; default: allowed, except in jobs (cron, batch)"),
    ] = None
    readable: Annotated[
        tuple[str, ...], Setting(FOLDERS, "additional folders that commands and file tools can read")
    ] = ()
    writable: Annotated[
        tuple[str, ...], Setting(FOLDERS, "additional folders that commands and file tools can write")
    ] = ()
    environment: Annotated[
        tuple[str, ...],
        Setting(VARIABLE_NAMES, "additional environment variables that are passed to commands"),
    ] = ()


class SessionSettings(Section, frozen=True):
    """Settings of the retention of conversations, and of their copies."""

    auto_prune: Annotated[bool, Setting(FLAG, "delete old conversations when the chat starts")] = False
    retention_days: Annotated[
        float, Setting(DAYS, "the number of days that `auto_prune` keeps a conversation")
    ] = 90.0
    vacuum_after_prune: Annotated[bool, Setting(FLAG, "shrink the file after pruning")] = True
    min_interval_hours: Annotated[
        float, Setting(DAYS, "the minimum number of hours between two runs of `auto_prune`")
    ] = 24.0
    trash_days: Annotated[float, Setting(DAYS, "the number of days that conversations stay in the trash")] = (
        30.0
    )
    thin_days: Annotated[
        float | None,
        Setting(
            DAYS,
            "with `auto_prune`: shorten large tool output of conversations unused for this number of days",
        ),
    ] = None
    spool: Annotated[
        bool,
        Setting(
            FLAG, "for an encrypted store: save messages that cannot be stored to the spool, in plain text"
        ),
    ] = False
    transcripts: Annotated[
        str | None,
        Setting(
            make_choice("gateway", "all", "off"),
            "which conversations are also written to `sessions/` as plain text;"
            " default: `gateway`, or `off` for an encrypted store",
        ),
    ] = None
    index_file: Annotated[
        bool | None,
        Setting(FLAG, "write `sessions/sessions.json`; default: true, or false for an encrypted store"),
    ] = None


class CronSettings(Section, frozen=True):
    """Settings of scheduled jobs."""

    timezone: Annotated[
        str | None, Setting(ZONE, "the time zone of new jobs; default: the time zone of the machine")
    ] = None
    jobs_at_once: Annotated[
        int, Setting(make_integer(1, 100), "how many jobs a process runs at the same time; the others wait")
    ] = 2
    in_gateway: Annotated[
        bool, Setting(FLAG, "let the gateway run scheduled jobs; otherwise only `hermes cron` does")
    ] = True


class StoreSettings(Section, frozen=True):
    """Settings of the store."""

    key_file: Annotated[str | None, Setting(TEXT, "the file that contains the key of an encrypted store")] = (
        None
    )


class Settings(Section, frozen=True):
    """All settings except those of the gateway. Each field whose type is a section holds the section of that
    name in config.yaml."""

    model: ModelSettings = ModelSettings()
    auxiliary: AuxiliarySettings = AuxiliarySettings()
    agent: AgentSettings = AgentSettings()
    delegation: DelegationSettings = DelegationSettings()
    compression: CompressionSettings = CompressionSettings()
    display: DisplaySettings = DisplaySettings()
    approvals: ApprovalSettings = ApprovalSettings()
    sandbox: SandboxSettings = SandboxSettings()
    sessions: SessionSettings = SessionSettings()
    cron: CronSettings = CronSettings()
    store: StoreSettings = StoreSettings()
    prices: Mapping[str, Mapping[str, float]] = {}
    """The prices of each model in dollars per million tokens: `input`, `output`, `cache_read`,
    `cache_write`."""
    windows: Mapping[str, int] = {}
    """The context window of each model that `model.context_window` applies to, by the name of the model."""
    origins: Mapping[str, str] = {}
    """The origin of each value that is not a default."""
    warning: str | None = None
    """One line about unknown keys, to be shown to a person."""


# ---------------------------------------------------------------- the gateway


class Keying(Section, frozen=True):
    """Settings that determine which people share a session. They are top-level keys."""

    group_sessions_per_user: Annotated[
        bool, Setting(FLAG, "each person in a group has their own conversation")
    ] = True
    thread_sessions_per_user: Annotated[
        bool,
        Setting(FLAG, "each person in a thread has their own conversation; otherwise the thread is shared"),
    ] = False


class ResetPolicy(Section, frozen=True):
    """Settings that determine when a conversation is reset automatically."""

    mode: Annotated[
        str,
        Setting(
            make_choice("none", "idle", "daily", "both"),
            "when a conversation is reset: never, after an idle time, daily, or both",
        ),
    ] = "none"
    idle_minutes: Annotated[
        int,
        Setting(
            make_integer(1, 10_000_000),
            "for `idle`: minutes without a message from a person",
            variable="SESSION_IDLE_MINUTES",
        ),
    ] = 1440
    at_hour: Annotated[
        int, Setting(make_integer(0, 23), "for `daily`: the hour of the reset", variable="SESSION_RESET_HOUR")
    ] = 4
    timezone: Annotated[
        str | None, Setting(ZONE, "the time zone of `at_hour`; default: the time zone of the machine")
    ] = None
    notify: Annotated[bool, Setting(FLAG, "announce a reset in the chat")] = True
    bg_process_max_age_hours: Annotated[
        float,
        Setting(
            make_number(0, 1_000_000),
            "a background process younger than this prevents the reset of its conversation; 0: a process of any age",
        ),
    ] = 0.0


class GatewaySection(Section, frozen=True, kw_only=True):
    """The section `gateway`."""

    busy: Annotated[
        str,
        Setting(
            BUSY,
            "a message during an answer waits (`queue`), stops the answer (`interrupt`) or is passed to it (`steer`)",
        ),
    ] = "queue"
    stream: Annotated[
        bool, Setting(FLAG, "show an answer while it is generated, if the platform can edit messages")
    ] = True
    messages_per_minute: Annotated[
        int,
        Setting(
            make_integer(0, 100_000), "the number of messages that a person may send per minute; 0: no limit"
        ),
    ] = 20
    daily_cost_limit_usd: Annotated[
        float,
        Setting(
            make_number(0, 1_000_000),
            "what the model calls for a person may cost per day, in dollars; 0: no limit",
        ),
    ] = 0.0
    daily_token_limit: Annotated[
        int,
        Setting(
            make_integer(0, 1_000_000_000_000),
            "the number of tokens per day for a person, for models without a known price; 0: no limit",
        ),
    ] = 0
    limit_owners: Annotated[bool, Setting(FLAG, "apply the daily limits to owners, too")] = False
    largest_attachment_mb: Annotated[
        float, Setting(make_number(0, 100_000), "the maximum size of an attachment in MB")
    ] = 20.0
    redact_pii: Annotated[
        bool,
        Setting(
            FLAG,
            "send pseudonyms to models instead of names and ids, on platforms whose ids identify a person",
        ),
    ] = False
    drain_seconds: Annotated[
        float,
        Setting(
            make_number(0, 3_600), "how long running turns may take to finish when the gateway is stopped"
        ),
    ] = 30.0
    turns_at_once: Annotated[
        int,
        Setting(
            make_integer(1, 10_000),
            "how many chats are answered at the same time; the others wait, and each gets one answer in turn",
        ),
    ] = 64
    model_calls_at_once: Annotated[
        int, Setting(make_integer(1, 10_000), "how many requests to models run at the same time")
    ] = 32
    deliveries_at_once: Annotated[
        int,
        Setting(
            make_integer(1, 1_000),
            "how many messages are sent to a platform at the same time; after a crash, the delivery of at most this"
            " many is unknown",
        ),
    ] = 16
    attachments_at_once: Annotated[
        int, Setting(make_integer(1, 1_000), "how many attachments are fetched at the same time")
    ] = 8
    health_host: Annotated[str, Setting(TEXT, "the address of /healthz, /readyz and /metrics")] = "127.0.0.1"
    health_port: Annotated[int, Setting(PORT, "the port of /healthz, /readyz and /metrics; 0: disabled")] = (
        8686
    )
    connections: Annotated[
        int,
        Setting(
            make_integer(16, 100_000),
            "the maximum number of open HTTP connections of all servers; lower if there are few file descriptors",
        ),
    ] = 1000
    connections_per_address: Annotated[
        int,
        Setting(
            make_integer(1, 100_000),
            "the maximum number of connections from one address; a proxy counts as one address",
        ),
    ] = 256
    bodies_mb: Annotated[
        int,
        Setting(
            make_integer(1, 100_000),
            "the maximum size in MB of all request bodies in memory; one key or address may use half of it",
        ),
    ] = 128
    wrong_keys_per_minute: Annotated[
        int,
        Setting(
            make_integer(1, 100_000),
            "wrong keys or signatures per minute after which an address must wait, each time twice as long",
        ),
    ] = 100
    trusted_proxies: Annotated[
        tuple[str, ...],
        Setting(
            NETWORKS,
            "proxies whose header `X-Forwarded-For` names the client: `[127.0.0.1, 10.0.0.0/8]`",
        ),
    ] = ()


class PlatformSection(Section, frozen=True, kw_only=True):
    """The settings that every platform has under `platforms.<name>`, beside its own options."""

    enabled: Annotated[bool, Setting(FLAG, "connect this platform; default: true if its secret is set")] = (
        True
    )
    home_channel: Annotated[str | None, Setting(ID, "the chat that receives handoffs and jobs")] = None
    home_thread: Annotated[str | None, Setting(ID, "the thread in `home_channel`")] = None
    home_type: Annotated[
        str | None, Setting(make_choice(*CHAT_TYPES), "the type of `home_channel`; `/sethome` sets it")
    ] = None
    home_user: Annotated[
        str | None, Setting(ID, "the person of `home_channel`, if it is a private chat; `/sethome` sets it")
    ] = None
    allowed_users: Annotated[frozenset[str], Setting(PEOPLE, "people who may talk to the agent")] = (
        frozenset()
    )
    allow_all: Annotated[bool, Setting(FLAG, "let everybody talk to the agent")] = False
    owners: Annotated[
        frozenset[str],
        Setting(
            PEOPLE,
            "people who may talk to the agent and whose agent may use the tools and the memory of this machine",
        ),
    ] = frozenset()
    busy: Annotated[str, Setting(BUSY, "`gateway.busy` for this platform")] = "queue"
    stream: Annotated[bool, Setting(FLAG, "`gateway.stream` for this platform")] = True


# ---------------------------------------------------------------- tables


def list_sections(owner: type[Section]) -> Mapping[str, type[Section]]:
    """Return the sections within the section class `owner`: the fields whose type is a section class too, each
    with that class."""
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
"""All settings outside the gateway, by dotted path."""
GATEWAY_SETTINGS = _list_keys(GATEWAY_SECTIONS)
RESETS = ("reset_by_type", "reset_by_platform")
"""Sections with a reset policy for each chat type or for each platform."""
OPEN_SECTIONS = (*RESETS, "platforms")
"""Sections whose keys are names of chat types or platforms."""


def get_default(key: str) -> Any:
    """Return the default of a setting that does not belong to a platform."""
    section, _, name = key.rpartition(".")
    return getattr({**SECTIONS, **GATEWAY_SECTIONS}[section](), name)
