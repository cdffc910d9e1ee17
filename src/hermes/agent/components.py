"""The components of an agent: model, tools, prompt, price and optional services. `factory` creates them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hermes.agent.agent import Agent
from hermes.agent.events import Event
from hermes.agent.models.model import Model, Price
from hermes.agent.tool import Tool
from hermes.agent.transcript import Record
from hermes.agent.turn import MOST_STEPS, Compressor

if TYPE_CHECKING:
    from hermes.agent.edit_journal import EditJournal
    from hermes.agent.subagents import Subagents
    from hermes.db.session_db import AnyStore


class ModelChoice(NamedTuple):
    """The model that a person selected. For a field that is None, the value from the settings is used."""

    model: str | None = None
    base_url: str | None = None
    context_window: int | None = None
    """The context window that a resumed conversation used. It applies only if the settings have no context
    window for the model."""


NO_CHOICE = ModelChoice()
"""No selection: every value comes from the settings."""


class ListedModels(NamedTuple):
    address: str
    """The address of the endpoint, without secrets."""
    names: Sequence[str]


class AgentInputs(NamedTuple):
    """The values from which `AgentComponents` makes the parts of a new agent, such as its system prompt."""

    db: AnyStore
    model: Model
    tools: Sequence[Tool]
    cwd: Path
    source: str
    incognito: bool
    about: str | None = None
    """A description of the chat and its participants, for the system prompt."""


class ManualCompressor(Compressor, Protocol):
    """A compressor that works automatically and can also be started by a person."""

    def compress_by_hand(self, focus: str | None = None) -> AsyncIterator[Event]: ...


LEAST_SAID = 4
"""A conversation that ends gets a memory flush only if the person wrote at least this many messages since the
last flush (see `memory_flush`)."""


class SaveMemory(Protocol):
    def __call__(self, agent: Agent, least: int = LEAST_SAID) -> Awaitable[bool]:
        """Save important facts of a conversation to the agent's memory. Return whether the memory flush
        completed.

        If the person wrote fewer than `least` messages since the last flush, nothing is saved and the result
        is False.
        """


class AgentComponents(NamedTuple):
    """The components of an agent. A component that is None is not available, and surfaces report this to the
    person."""

    make_model: Callable[[ModelChoice], Model]
    """Opens the model. The call can be slow and can raise an error; callers run it in a thread while the
    person types."""
    make_tools: Callable[[bool], Sequence[Tool]]
    """Makes the tools. The argument is True for an incognito conversation, which gets only tools that store
    nothing."""
    make_prompt: Callable[[AgentInputs], Awaitable[str]]
    """Makes the system prompt of a new session."""
    price: Price
    list_models: Callable[[ModelChoice], ListedModels] | None = None
    """Returns the names of the models at the endpoint that a choice selects. Raises an error if the endpoint
    does not list its models."""
    get_most_steps: Callable[[], int] = lambda: MOST_STEPS
    """Returns the maximum number of steps with tools in a turn. After them the model must answer."""
    make_compressor: Callable[[Record, AgentInputs], ManualCompressor] | None = None
    make_title: Callable[[AnyStore, str], Awaitable[str | None]] | None = None
    """Gives a title to a session that has none, after its first exchange. Returns the new title, or None."""
    save: SaveMemory | None = None
    """Runs the memory flush: one hidden turn of limited length, in which the agent saves important facts from
    a conversation that ends."""
    memory: Callable[[], str] | None = None
    """Returns the text of the memory files."""
    skills: Callable[[], Sequence[tuple[str, str]]] | None = None
    """Returns the name and the description of each skill."""
    stop_processes: Callable[[AnyStore, str], int] | None = None
    """Ends the background processes of a conversation. Returns how many were running."""
    list_processes: Callable[[], Sequence[str]] | None = None
    """Returns the commands of all running background processes. The processes end with the program."""
    edits: Callable[[bool], EditJournal] | None = None
    """Returns the journal of the files that tools edited. The argument is True for an incognito
    conversation."""
    subagents: Callable[[], Subagents] | None = None
    """Returns the subagents that this process runs, for `/agents`."""
    keep_setting: Callable[[str, object], None] | None = None
    """Writes one value to config.yaml. The key is a dotted path."""
    transcribe: Callable[[AnyStore, str], object] | None = None
    """Updates the transcript file of a conversation from the store."""
    warning: Callable[[], str | None] | None = None
    """Returns a one-line warning about the settings, or None."""
    platforms: Callable[[], Sequence[str] | None] | None = None
    """Returns the platforms that the gateway of this home is connected to; None if the gateway is not
    running."""
    close: Callable[[], Awaitable[None]] | None = None
