"""Builds the agents that answer in conversations, each for a scope: an owner, a surface and permissions.

At a terminal a conversation has an agent whose model is chosen for it. In the gateway one model answers everybody, and
an agent has its own memory per person or room. Only the owner of the machine, in a private chat, gets the tools that
reach the machine, and its memory. Everybody else has a private folder in the home, so that nothing one person tells the
agent appears in another's prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hermes import errors, home
from hermes.agent.agent import Agent
from hermes.agent.components import NO_WISH, AgentComponents, AgentInputs, ManualCompressor
from hermes.agent.models.model import Model
from hermes.agent.tool import Tool
from hermes.agent.transcript import IncognitoRecord, StoredRecord

if TYPE_CHECKING:
    from hermes.agent.factory import StandardFactory
    from hermes.agent.prompt.participants import SharedRoom
    from hermes.agent.subagents import Subagents
    from hermes.agent.tools.background_processes import BackgroundProcesses
    from hermes.db.session_db import AnyStore

LiveRecord = StoredRecord | IncognitoRecord


class AgentScope(NamedTuple):
    """The scope of an agent: its owner, platform and permissions."""

    owner: str
    """The owner of its sessions, as the store knows them."""
    platform: str
    """The source of its sessions."""
    machine: bool
    """Whether the machine is theirs."""
    about: str | None = None
    """Where the conversation is held and with whom, for the prompt."""
    room: SharedRoom | None = None
    """The room, if several people share the sessions; None: they are one person's."""
    can_ask: bool = False
    """Whether an approval can be asked for in this chat. If not, what needs consent is refused."""
    cwd: Path | None = None
    """The working directory; None: one that the provider chooses."""


class PreparedAgent(NamedTuple):
    """An agent with its compressor."""

    agent: Agent
    compressor: ManualCompressor | None


class AgentProvider(Protocol):
    def get_components(self, scope: AgentScope) -> AgentComponents:
        """What the agents of a scope are made of. May read files."""

    async def prepare_agent(self, scope: AgentScope, store: AnyStore, record: LiveRecord) -> PreparedAgent:
        """Build an agent. Raises if the model cannot be used; the next call tries again."""

    async def close(self) -> None: ...


async def build_agent(
    parts: AgentComponents,
    scope: AgentScope,
    store: AnyStore,
    record: LiveRecord,
    model: Model,
    tools: Sequence[Tool],
    cwd: Path,
) -> PreparedAgent:
    incognito = isinstance(record, IncognitoRecord)
    inputs = AgentInputs(store, model, tools, cwd, scope.platform, incognito, scope.about)
    compressor = None
    if parts.make_compressor is not None and isinstance(record, StoredRecord):
        compressor = await asyncio.to_thread(parts.make_compressor, record, inputs)
    room = scope.room
    agent = Agent(
        store,
        record,
        model,
        tools=tools,
        prompt=lambda: parts.make_prompt(inputs),
        price=parts.price,
        cwd=cwd,
        can_ask=scope.can_ask,
        compressor=compressor,
        most_steps=parts.get_most_steps(),
        speakers=None if room is None else partial(room.speakers, record),
    )
    return PreparedAgent(agent, compressor)


class StandardAgentProvider:
    """The agents of many people, from the factory of this installation; one model for all."""

    def __init__(self, standard: StandardFactory) -> None:
        self._standard = standard
        self._model: Model | None = None
        self._making = asyncio.Lock()
        self._parts: dict[str, tuple[AgentComponents, Path]] = {}

    @property
    def processes(self) -> BackgroundProcesses:
        return self._standard.processes

    @property
    def subagents(self) -> Subagents:
        return self._standard.subagents

    def get_components(self, scope: AgentScope) -> AgentComponents:
        return self._parts_of(scope)[0]

    async def prepare_agent(self, scope: AgentScope, store: AnyStore, record: LiveRecord) -> PreparedAgent:
        model = await self.ready()
        parts, folder = await asyncio.to_thread(self._parts_of, scope)
        tools = await asyncio.to_thread(parts.make_tools, False)
        return await build_agent(parts, scope, store, record, model, tools, folder)

    async def ready(self) -> Model:
        """The model. Raises if it cannot be used."""
        async with self._making:
            if self._model is None:
                self._model = await asyncio.to_thread(self._standard.make_model, NO_WISH)
            return self._model

    def _parts_of(self, scope: AgentScope) -> tuple[AgentComponents, Path]:
        cache_key = f"{scope.owner} {scope.machine} {scope.room is not None}"
        if cache_key not in self._parts:
            own = None if scope.machine else private_folder(scope.owner)
            parts = self._standard.for_person(
                own, machine=scope.machine, shared=scope.room is not None
            ).parts()
            self._parts[cache_key] = parts, own or Path.home()
        return self._parts[cache_key]

    async def close(self) -> None:
        for parts, _ in self._parts.values():
            if parts.close is not None:
                await parts.close()
        await self._standard.close()
        if self._model is not None:
            await self._model.close()


def private_folder(owner: str) -> Path:
    """Where the memory and the skills of a person or a room are kept. Nothing of who it is can be read off its name."""
    if not owner:
        raise errors.make_error(errors.InvalidArgument, "the machine itself has no folder among the people")
    folder = home.get_hermes_home() / "people" / sha256(owner.encode()).hexdigest()[:24]
    home.make_private_folder(folder)
    return folder
