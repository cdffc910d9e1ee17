"""What of config.yaml belongs to the gateway: the keys, what they may be, and what they mean.

The gateway reads them (`gateway/settings.py`). They stand down here because a terminal without a gateway reads the same
file, and must be able to tell a key of the gateway's from one that nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hermes.config.setting_kinds import FLAG, TEXT, URL, Kind, Setting, make_choice, make_integer, make_number
from hermes.session_kinds import canonical_source

PLATFORM_NAMES = ("telegram", "matrix", "webhook", "api-server")
CHAT_TYPES = ("dm", "group", "channel", "thread")
MISSPELT = 0.85
"""How like a known name one must be that cannot be told from what only a platform knows."""


def _check_id(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ValueError
    return str(value).strip()


def _check_people(value: object) -> frozenset[str]:
    names = value.split(",") if isinstance(value, str) else [value] if isinstance(value, int) else value
    if not isinstance(names, list) or (isinstance(value, str) and value.lstrip().startswith("[")):
        raise ValueError
    return frozenset(_check_id(name) for name in names if name != "" and not str(name).isspace())


def _check_zone(value: object) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    name: str = TEXT.read(value)
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError):  # a folder of zones is no zone
        raise ValueError from None
    return name


def _check_server(value: object) -> str:
    name: str = TEXT.read(value)
    address: str = URL.read(name if "://" in name else f"https://{name}")
    return address


ID = Kind("an id", _check_id)
PEOPLE = Kind("people by their id or @name, in a list or with commas between them", _check_people)
ZONE = Kind("a time zone such as Europe/Berlin", _check_zone)
SERVER = Kind("an address such as https://matrix.org", _check_server)
PORT = make_integer(0, 65_535)
BUSY = make_choice("queue", "interrupt", "steer")

RESET_SETTINGS = {
    "mode": Setting(
        make_choice("none", "idle", "daily", "both"), "when a conversation starts afresh by itself: never, …"
    ),
    "idle_minutes": Setting(
        make_integer(1, 10_000_000), "… after so many minutes without a message of a person, …"
    ),
    "at_hour": Setting(make_integer(0, 23), "… at this hour of the day, …"),
    "timezone": Setting(ZONE, "… of this place; else that of the machine"),
    "notify": Setting(FLAG, "whether a reset is announced in the chat"),
    "bg_process_max_age_hours": Setting(
        make_number(0, 1_000_000),
        "how old a background process may be and still keep its conversation from a reset; 0: however old",
    ),
}
GATEWAY_SETTINGS = {
    "group_sessions_per_user": Setting(FLAG, "whether everybody in a group has a conversation of their own"),
    "thread_sessions_per_user": Setting(FLAG, "the same for a thread, which else is one for all in it"),
    **{f"session_reset.{name}": setting for name, setting in RESET_SETTINGS.items()},
    "gateway.busy": Setting(BUSY, "what a message does that comes while an answer is being made"),
    "gateway.stream": Setting(
        FLAG, "whether an answer is seen as it comes, where a platform can edit messages"
    ),
    "gateway.messages_per_minute": Setting(
        make_integer(0, 100_000), "how many messages a person may send; 0: any number"
    ),
    "gateway.largest_attachment_mb": Setting(
        make_number(0, 100_000), "how large a file may be that somebody sends"
    ),
    "gateway.redact_pii": Setting(
        FLAG, "whether models are told signs instead of names and numbers, where those lead to a person"
    ),
    "gateway.drain_seconds": Setting(
        make_number(0, 3_600), "how long what is under way may take when the gateway is told to end"
    ),
    "gateway.health_host": Setting(TEXT, "where /healthz and /metrics are"),
    "gateway.health_port": Setting(PORT, "on this port; 0: nowhere"),
    "gateway.connections": Setting(
        make_integer(16, 100_000),
        "how many HTTP connections may be open, over all that listens; fewer if there are few file descriptors",
    ),
    "gateway.connections_per_address": Setting(
        make_integer(1, 100_000),
        "how many of them from one address; a proxy in front of the gateway is one address",
    ),
    "gateway.bodies_mb": Setting(
        make_integer(1, 100_000),
        "how many MB of request bodies may be in memory; one key or address gets half",
    ),
    "gateway.wrong_keys_per_minute": Setting(
        make_integer(1, 100_000), "how many requests with a wrong key or signature an address may send"
    ),
}
"""By their dotted path."""
PLATFORM_SETTINGS = {
    "enabled": Setting(FLAG, "whether it is connected; else it is if its secret is there"),
    "home_channel": Setting(ID, "the chat to which handoffs and jobs go"),
    "home_thread": Setting(ID, "the thread of that chat"),
    "home_type": Setting(make_choice(*CHAT_TYPES), "what kind of chat that is; `/sethome` knows"),
    "home_user": Setting(ID, "whose private chat it is; `/sethome` knows"),
    "allowed_users": Setting(PEOPLE, "who may talk with the agent"),
    "allow_all": Setting(FLAG, "whether everybody may, who finds it"),
    "owners": Setting(
        PEOPLE,
        "those whose machine this is: they may talk, and have the tools that reach it, and its memory",
    ),
    "busy": Setting(BUSY, "as `gateway.busy`, for this platform"),
    "stream": Setting(FLAG, "as `gateway.stream`, for this platform"),
}
"""Under `platforms.<name>`; whatever else stands there is for the platform itself."""
PLATFORM_KINDS = {
    "port": PORT,
    "webhook_port": PORT,
    "base_url": URL,
    "homeserver": SERVER,
    "respond": make_choice("addressed", "all"),
    "requests_per_minute": make_integer(1, 1_000_000),
    "concurrent_requests": make_integer(1, 1_000_000),
    "most_messages": make_integer(1, 1_000_000),
    "search_words": make_integer(1, 1_000_000),
}
"""Of that what has a shape that can be checked before the platform is connected."""
VARIABLES = {
    "session_reset.idle_minutes": "SESSION_IDLE_MINUTES",
    "session_reset.at_hour": "SESSION_RESET_HOUR",
}

RESETS = ("reset_by_type", "reset_by_platform")
SECTIONS = tuple(dict.fromkeys(key.split(".")[0] for key in (*GATEWAY_SETTINGS, *RESETS, "platforms")))


def get_kind(key: str) -> Kind | None:
    """What the setting at a dotted path may be; None if there is no such."""
    if key in GATEWAY_SETTINGS:
        return GATEWAY_SETTINGS[key].kind
    section, _, rest = key.partition(".")
    owner, _, name = rest.partition(".")
    if section in RESETS and owner in _list_owners(section) and name in RESET_SETTINGS:
        return RESET_SETTINGS[name].kind
    if (
        section != "platforms"
        or owner not in _list_owners(section)
        or not re.fullmatch(r"[a-z][a-z0-9_]*", name)
    ):
        return None
    if name in PLATFORM_SETTINGS:
        return PLATFORM_SETTINGS[name].kind
    return PLATFORM_KINDS.get(name, None if _is_misspelt(name) else TEXT)


def find_key(variable: str) -> str | None:
    """The setting of a platform that a variable gives: `TELEGRAM_BASE_URL` is `platforms.telegram.base_url`."""
    for name in PLATFORM_NAMES:
        prefix = f"{name.upper().replace('-', '_')}_"
        if variable.startswith(prefix):
            return f"platforms.{name}.{variable.removeprefix(prefix).lower()}"
    return None


def is_secret(name: str) -> bool:
    """Whether what stands under this name is shown to nobody: `bot_token`, `API_SERVER_KEY`."""
    return re.search(r"(?:^|[_.])(?:token|secret|password|passphrase|key)$", name.lower()) is not None


def list_keys() -> Iterator[str]:
    """All of them, for whoever looks for one that is meant."""
    yield from GATEWAY_SETTINGS
    for section in (*RESETS, "platforms"):
        for owner in _list_owners(section):
            yield f"{section}.{owner}"
            names = PLATFORM_SETTINGS if section == "platforms" else RESET_SETTINGS
            yield from (f"{section}.{owner}.{name}" for name in names)


def find_unknown(values: Mapping[str, Any]) -> Iterator[str]:
    """Keys in the gateway's part of the file that it does not know."""
    for section in ("session_reset", "gateway"):
        for name in _list_names(values.get(section)):
            if f"{section}.{name}" not in GATEWAY_SETTINGS:
                yield f"{section}.{name}"
    for section in (*RESETS, "platforms"):
        for owner in _list_names(values.get(section)):
            if canonical_source(owner) not in _list_owners(section):
                yield f"{section}.{owner}"
                continue
            for name in _list_names(values[section][owner]):
                if _is_misspelt(name) if section == "platforms" else name not in RESET_SETTINGS:
                    yield f"{section}.{owner}.{name}"


def _list_names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, Mapping) else []


def _list_owners(section: str) -> tuple[str, ...]:
    return CHAT_TYPES if section == "reset_by_type" else PLATFORM_NAMES


def _is_misspelt(name: str) -> bool:
    from difflib import get_close_matches  # most names are known

    return name not in PLATFORM_SETTINGS and bool(get_close_matches(name, PLATFORM_SETTINGS, 1, MISSPELT))
