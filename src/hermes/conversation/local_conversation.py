"""Conversations of the person at this machine, in a terminal or as a one-shot question."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.agent.components import NO_CHOICE, AgentComponents, ModelChoice
from hermes.conversation.agents import AgentScope, LiveRecord, PreparedAgent, build_agent
from hermes.conversation.conversation import Conversation
from hermes.conversation.model_choice import ModelSelector
from hermes.conversation.surface import Surface

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore, SessionDB


def open_local_conversation(
    db: SessionDB,
    parts: AgentComponents,
    *,
    can_ask: bool = False,
    wish: ModelChoice = NO_CHOICE,
    source: str = "cli",
    cwd: Path | None = None,
    incognito: bool = False,
) -> Conversation[SessionDB]:
    """Return a new conversation of the person at this machine. `wish` says which model the person asked for."""
    models = ModelSelector(parts, wish, incognito=incognito)
    scope = AgentScope("", source, True, can_ask=can_ask, cwd=cwd or Path.cwd())
    surface = Surface(incognito=incognito, end_reason="cli_close", keeps_partial=True)
    return Conversation(db, LocalAgentProvider(parts, models), scope, surface, models)


class LocalAgentProvider:
    """Builds the agent of one conversation at this machine, with the model that is selected in the
    conversation."""

    def __init__(self, parts: AgentComponents, models: ModelSelector) -> None:
        self._parts, self._models = parts, models

    def get_components(self, _scope: AgentScope) -> AgentComponents:
        return self._parts

    async def prepare_agent(self, scope: AgentScope, store: AnyStore, record: LiveRecord) -> PreparedAgent:
        model = await self._models.load_model()
        cwd = scope.cwd or Path.cwd()
        return await asyncio.to_thread(
            build_agent, self._parts, scope, store, record, model, self._models.tools, cwd
        )

    async def close(self) -> None:
        await self._models.close()
        if self._parts.close is not None:
            await self._parts.close()
