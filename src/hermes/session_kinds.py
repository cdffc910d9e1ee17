"""What a session is, from where it comes; which roles are no part of what a model is given."""

from __future__ import annotations

from typing import Literal

Kind = Literal["chat", "job", "child", "tool"]

PLATFORMS = (
    *(
        "telegram",
        "discord",
        "slack",
        "whatsapp",
        "signal",
        "matrix",
        "mattermost",
        "email",
        "sms",
        "dingtalk",
    ),
    *("feishu", "wecom", "weixin", "bluebubbles", "qqbot", "homeassistant", "webhook", "api-server"),
)
"""The documented sources in which people talk with the agent from elsewhere."""
JOB_SOURCES = ("cron", "batch")
SOURCES = ("cli", *PLATFORMS, "acp", *JOB_SOURCES)
"""All the documented ones; a session may have any other."""
SOURCE_ALIASES = {"api_server": "api-server"}

IMPORTED_ROLES = {"system": "imported_system", "developer": "imported_developer"}
"""Roles that instruct a model, and what a message from an untrusted file gets in their place."""
KEPT_FROM_MODELS = frozenset(IMPORTED_ROLES.values())


def canonical_source(name: str) -> str:
    """The documented name of a source, or of the platform it stands for; older spellings are accepted."""
    return SOURCE_ALIASES.get(name, name)


def classify_session(source: str, *, child: bool) -> Kind:
    """What a session is, from where it comes; it decides visibility, rank and retention."""
    if child:
        return "child"
    if source in JOB_SOURCES:
        return "job"
    return "tool" if source == "tool" else "chat"
