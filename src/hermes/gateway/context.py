"""The objects that all parts of the gateway share: store, settings, platforms, agents, access control, metrics,
delivery and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from hermes import audit_log, clock
from hermes.conversation.agents import AgentProvider
from hermes.gateway.adapter import Adapter
from hermes.gateway.inbound_events import Source
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.gateway.outbound.delivery import Delivery
from hermes.gateway.settings import GatewaySettings, PlatformSettings
from hermes.gateway.work_limits import WorkLimits

if TYPE_CHECKING:
    from hermes.agent.subagents import Subagents
    from hermes.agent.tools.background_processes import BackgroundProcesses
    from hermes.db.session_db import SessionDB
    from hermes.gateway.inbound.access_control import AccessControl


class GatewayAgents(AgentProvider, Protocol):
    @property
    def processes(self) -> BackgroundProcesses:
        """The background processes that tools of the agents started."""

    @property
    def subagents(self) -> Subagents:
        """The running subagents of all conversations of this process."""


class GatewayContext:
    def __init__(
        self,
        db: SessionDB,
        settings: GatewaySettings,
        adapters: Mapping[str, Adapter],
        agents: GatewayAgents,
        access: AccessControl,
        metrics: GatewayMetrics,
        delivery: Delivery,
        limits: WorkLimits,
    ) -> None:
        self.db, self.settings, self.adapters = db, settings, adapters
        self.agents, self.access, self.metrics, self.delivery = agents, access, metrics, delivery
        self.limits = limits
        self.notify_chat_changed: Callable[[], None] = lambda: None
        """Called when a chat has changed, so that `sessions.json` is written again."""
        self.approval_seconds: float = 10 * clock.MINUTE
        """How long an approval request waits for an answer, in seconds."""

    def platform(self, name: str) -> PlatformSettings:
        return self.settings.platforms.get(name) or PlatformSettings(name)

    def store_setting(self, key: str, value: object, by: Source | None = None) -> None:
        """Write a platform setting to config.yaml and apply it at once. `key` is its dotted path, such as
        `platforms.telegram.home_channel`. `by` is the person who changed it in a chat, or None."""
        from hermes.config import config_file

        config_file.change(key, value)
        if by is not None:
            audit_log.record("chat.setting", key=key, platform=by.platform, user=by.participant)
        _, name, field = key.split(".")
        fields: dict[str, Any] = {field: value}
        changed = self.platform(name).replace(**fields)
        self.settings = self.settings.replace(platforms={**self.settings.platforms, name: changed})
