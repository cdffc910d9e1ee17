"""Builds the agents that answer in conversations. Each agent has a scope: an owner, a platform and permissions.

At a terminal, each conversation has its own agent and its own choice of model. In the gateway, one model
answers everybody, and each person or room has an agent with its own memory. Only the owner of the machine, in
a private chat, gets the machine's memory and the tools that access the machine. Every other person, and every
shared room, has a private folder in the home for memory and skills. Therefore, text that one person writes to the
agent never appears in the prompt of another person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hermes import errors, home
from hermes.agent.agent import Agent
from hermes.agent.components import NO_CHOICE, AgentComponents, AgentInputs, ManualCompressor
from hermes.agent.models.model import CallReport, Model
from hermes.agent.tool import Tool
from hermes.agent.transcript import IncognitoRecord, StoredRecord

if TYPE_CHECKING:
    from hermes.agent.factory import StandardFactory
    from hermes.agent.prompt.participants import SharedRoom
    from hermes.agent.subagents import Subagents
    from hermes.agent.tools.background_processes import BackgroundProcesses
    from hermes.conversation.spending_limit import SpendingLimit
    from hermes.db.session_db import AnyStore

LiveRecord = StoredRecord | IncognitoRecord


class AgentScope(NamedTuple):
    """The scope of an agent: its owner, platform and permissions."""

    owner: str
    """The owner of the agent's sessions, in the form in which the store keeps it."""
    platform: str
    """The platform, which is stored as the source of the agent's sessions."""
    machine: bool
    """Whether the agent may use the tools and the memory of the machine."""
    about: str | None = None
    """A description of the place and the participants of the conversation, for the prompt."""
    room: SharedRoom | None = None
    """The shared room, if several people share the sessions. None if the sessions belong to one person."""
    can_ask: bool = False
    """Whether the agent can request approvals in this chat. If False, actions that need an approval are
    refused."""
    cwd: Path | None = None
    """The working directory. None means that the agent provider chooses it."""
    is_owner: bool = False
    """Whether the person owns the machine, in whatever chat they write. The limit on the number of subagents does not
    apply to an owner."""
    limit: SpendingLimit | None = None
    """The spending limit for model calls on behalf of `owner`. None means no limit."""
    model: str | None = None
    """The only model that may answer. None means the configured model with its fallbacks."""


class PreparedAgent(NamedTuple):
    """An agent, and the object that compresses the agent's context on request. `compressor` is None if compression is
    off."""

    agent: Agent
    compressor: ManualCompressor | None


class AgentProvider(Protocol):
    def get_components(self, scope: AgentScope) -> AgentComponents:
        """Return the components of the agents of a scope. May read files."""

    async def prepare_agent(self, scope: AgentScope, store: AnyStore, record: LiveRecord) -> PreparedAgent:
        """Build the agent for the session of `record`. Raises `HermesError` if the model cannot be used. A later call
        can succeed."""

    async def close(self) -> None: ...


def build_agent(
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
    if parts.make_compressor is not None:
        compressor = parts.make_compressor(record, inputs)
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
    """Builds the agents of many people with the factory of this installation. All agents share one model."""

    def __init__(self, standard: StandardFactory) -> None:
        self._standard = standard
        self._model: Model | None = None
        self._only_models: dict[str, Model] = {}
        self._making = asyncio.Lock()
        self._parts: dict[str, tuple[AgentComponents, Path]] = {}
        self._retired: list[AgentComponents] = []
        self._old_models: list[Model] = []
        """The models from before a reload. Like the components in `_retired`, they are closed when the program ends,
        because turns may still use them."""

    @property
    def processes(self) -> BackgroundProcesses:
        return self._standard.processes

    @property
    def subagents(self) -> Subagents:
        return self._standard.subagents

    def get_components(self, scope: AgentScope) -> AgentComponents:
        return self._parts_of(scope)[0]

    async def prepare_agent(self, scope: AgentScope, store: AnyStore, record: LiveRecord) -> PreparedAgent:
        model = await self.open_model() if scope.model is None else await self._open_only_model(scope.model)

        def build() -> PreparedAgent:
            parts, folder = self._parts_of(scope)
            return build_agent(parts, scope, store, record, model, parts.make_tools(False), folder)

        return await asyncio.to_thread(build)

    async def open_model(self) -> Model:
        """Return the model that answers everybody. The model is opened once and then reused. Raises an error
        if it cannot be used."""
        async with self._making:
            if self._model is None:
                self._model = await asyncio.to_thread(self._standard.make_model, NO_CHOICE)
            return self._model

    async def _open_only_model(self, name: str) -> Model:
        """Return the model with the given name, without fallbacks. Each model is opened once and then reused."""
        async with self._making:
            if name not in self._only_models:
                self._only_models[name] = await asyncio.to_thread(self._standard.make_only_model, name)
            return self._only_models[name]

    async def reload(self) -> None:
        """Read the settings of the model and the agent again, for agents that are built from now on. Running turns
        keep their model.
        If the new model cannot be used and the old one could be used, raise `HermesError` and change nothing.
        """
        renewed = self._standard.renew()
        try:
            model: Model | None = await asyncio.to_thread(renewed.make_model, NO_CHOICE)
        except errors.HermesError:
            if self._model is not None:
                raise
            model = None
        async with self._making:
            self._retired += [parts for parts, _ in self._parts.values()]
            opened = (self._model, self._standard.get_open_auxiliary(), *self._only_models.values())
            self._old_models += [old for old in opened if old is not None]
            self._parts, self._only_models = {}, {}
            self._standard, self._model = renewed, model

    def _parts_of(self, scope: AgentScope) -> tuple[AgentComponents, Path]:
        has_quota = not (scope.machine or scope.is_owner)
        cache_key = f"{scope.owner} {scope.machine} {scope.room is not None} {has_quota}"
        if cache_key not in self._parts:
            own = None if scope.machine else make_person_folder(scope.owner)
            parts = self._standard.for_person(
                own, machine=scope.machine, shared=scope.room is not None, has_quota=has_quota
            ).parts()
            self._parts[cache_key] = parts, own or Path.home()
        return self._parts[cache_key]

    def observe_calls(self, observe: Callable[[CallReport, float | None], None]) -> None:
        """Call `observe` after each attempt of a model call, with a report and the cost in dollars. The cost is None
        if it is unknown."""
        self._standard.observe_call = observe

    async def close(self) -> None:
        for parts in (*self._retired, *(parts for parts, _ in self._parts.values())):
            if parts.close is not None:
                await parts.close()
        await self._standard.close()
        for model in (self._model, *self._only_models.values(), *self._old_models):
            if model is not None:
                await model.close()


def move_person_folder(owner: str, new_owner: str) -> None:
    """Give the folder with the memory and the skills of one owner to another owner. Do nothing if the new owner already
    has such a folder."""
    old, new = _person_folder(owner), _person_folder(new_owner)
    if old.is_dir() and not new.exists():
        old.rename(new)


def _person_folder(owner: str) -> Path:
    return home.get_hermes_home() / "people" / sha256(owner.encode()).hexdigest()[:24]


def make_person_folder(owner: str) -> Path:
    """Create and return the folder for the memory and the skills of a person or a room.

    The folder's name is a hash, so it does not reveal the owner. Raises `InvalidArgument` if `owner` is
    empty, because an empty owner stands for the machine.
    """
    if not owner:
        raise errors.make_error(
            errors.InvalidArgument, "the owner is empty; only a person or a room can have a folder"
        )
    folder = _person_folder(owner)
    home.make_private_folder(folder)
    return folder
