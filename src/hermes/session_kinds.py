"""Kinds of sessions by their source, and message roles that are not sent to models."""

from __future__ import annotations

import re
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
"""The names that the reference documents for the platforms on which people talk with the agent."""
JOB_SOURCES = ("cron", "batch")
SOURCES = ("cli", *PLATFORMS, "acp", *JOB_SOURCES)
"""All sources that the reference documents. A session may have another source."""
CHAT_TYPES = ("dm", "group", "channel", "thread")
"""The types of platform chats that the reference documents."""
SOURCE_ALIASES = {"api_server": "api-server"}

CRON_SESSION = re.compile(r"cron_([a-z0-9][a-z0-9-]{0,39})_\d{8}_\d{6}", re.ASCII)
"""The documented id of a session that a scheduled job began: the job, and the time of its start."""

IMPORTED_ROLES = {"system": "imported_system", "developer": "imported_developer"}
"""Roles that instruct a model, and the roles that replace them in messages from an untrusted file."""
KEPT_FROM_MODELS = frozenset(IMPORTED_ROLES.values())


def canonical_source(name: str) -> str:
    """Return the canonical name of a source or platform. An older spelling is replaced. Any other name is
    returned unchanged."""
    return SOURCE_ALIASES.get(name, name)


def classify_session(source: str, *, child: bool) -> Kind:
    """Return the kind of a session by its source. `child` is true if the session belongs to a subagent. The
    kind determines visibility, rank and retention."""
    if child:
        return "child"
    if source in JOB_SOURCES:
        return "job"
    return "tool" if source == "tool" else "chat"


def find_job_id(session_id: str) -> str | None:
    """Return the id of the job to which a session belongs. None if `session_id` is not the id of a session of a
    scheduled job."""
    match = CRON_SESSION.fullmatch(session_id)
    return None if match is None else match[1]
