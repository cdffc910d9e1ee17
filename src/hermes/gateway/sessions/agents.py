"""Who answers in a chat: one model for all, and for each person or room an agent with a memory of its own.

Only who owns the machine, and only where nobody reads along, gets the tools that reach it and its memory. Everybody
else has a private folder in the home, so that nothing one person told the agent is ever in another's prompt.
"""

from __future__ import annotations

import asyncio
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hermes import errors, home
from hermes.agent.agent import Agent
from hermes.agent.components import NO_WISH, AgentComponents, AgentInputs, ManualCompressor
from hermes.agent.models.model import Model
from hermes.agent.prompt.participants import SharedRoom
from hermes.agent.transcript import StoredRecord

if TYPE_CHECKING:
    from hermes.agent.factory import StandardFactory
    from hermes.agent.tools.background_processes import BackgroundProcesses
    from hermes.db.scoped_store import ScopedStore


class Whose(NamedTuple):
    """Whose agent it is."""

    owner: str
    """The owner of its sessions, as the store knows them."""
    platform: str
    machine: bool
    """Whether the machine is theirs."""
    about: str | None = None
    """Where the conversation is held and with whom, for the prompt."""
    room: SharedRoom | None = None
    """The room, if several people share the sessions; None: they are one person's."""
    can_ask: bool = False
    """Whether an approval can be asked for in this chat. If not, what needs consent is refused."""


class Mind(NamedTuple):
    """An agent, and what can be asked of it by hand."""

    agent: Agent
    compressor: ManualCompressor | None
    parts: AgentComponents


class Minds(Protocol):
    @property
    def processes(self) -> BackgroundProcesses: ...

    async def mind(self, whose: Whose, store: ScopedStore, record: StoredRecord) -> Mind:
        """Raises what is wrong with the model; it is tried again the next time."""

    async def close(self) -> None: ...


class StandardMinds:
    """The minds of this installation."""

    def __init__(self, standard: StandardFactory) -> None:
        self._standard = standard
        self._model: Model | None = None
        self._making = asyncio.Lock()
        self._parts: dict[str, tuple[AgentComponents, Path]] = {}

    @property
    def processes(self) -> BackgroundProcesses:
        return self._standard.processes

    async def mind(self, whose: Whose, store: ScopedStore, record: StoredRecord) -> Mind:
        model = await self.ready()
        parts, folder = await asyncio.to_thread(self._parts_of, whose)
        tools = await asyncio.to_thread(parts.make_tools, False)
        room = whose.room
        working = AgentInputs(store, model, tools, folder, whose.platform, False, whose.about)
        assert parts.make_compressor is not None
        compressor = await asyncio.to_thread(parts.make_compressor, record, working)
        agent = Agent(
            store,
            record,
            model,
            tools=tools,
            prompt=lambda: parts.make_prompt(working),
            price=parts.price,
            cwd=folder,
            can_ask=whose.can_ask,
            compressor=compressor,
            most_steps=parts.most_steps,
            speakers=None if room is None else partial(room.speakers, record),
        )
        return Mind(agent, compressor, parts)

    async def ready(self) -> Model:
        """The model that answers. Raises what is wrong with it."""
        async with self._making:
            if self._model is None:
                self._model = await asyncio.to_thread(self._standard.make_model, NO_WISH)
            return self._model

    def _parts_of(self, whose: Whose) -> tuple[AgentComponents, Path]:
        known = f"{whose.owner} {whose.machine} {whose.room is not None}"
        if known not in self._parts:
            own = None if whose.machine else private_folder(whose.owner)
            parts = self._standard.for_person(
                own, machine=whose.machine, shared=whose.room is not None
            ).parts()
            self._parts[known] = parts, own or Path.home()
        return self._parts[known]

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
