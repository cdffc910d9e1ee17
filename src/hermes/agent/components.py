"""What a chat is made of: who answers, with which tools, at which price. `factory` makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hermes.agent.agent import Agent
from hermes.agent.events import Event
from hermes.agent.models.model import Model, Price
from hermes.agent.tool import Tool
from hermes.agent.transcript import StoredRecord
from hermes.agent.turn import MOST_STEPS, Compressor

if TYPE_CHECKING:
    from hermes.agent.subagents import Subagents
    from hermes.db.session_db import AnyStore


class ModelChoice(NamedTuple):
    """Which model a person asked for; None is what their settings say."""

    model: str | None = None
    base_url: str | None = None
    context_window: int | None = None
    """That of a conversation which is resumed, where the settings know none for its model."""


NO_WISH = ModelChoice()


class AgentInputs(NamedTuple):
    """What an agent is about to work with."""

    db: AnyStore
    model: Model
    tools: Sequence[Tool]
    cwd: Path
    source: str
    incognito: bool
    about: str | None = None
    """Where the conversation is held and with whom, for the prompt."""


class ManualCompressor(Compressor, Protocol):
    """One that a person can ask, too."""

    def compress_by_hand(self, focus: str | None = None) -> AsyncIterator[Event]: ...


LEAST_SAID = 4
"""New messages by the person from which a conversation that ends is worth a turn to save; see `memory_flush`."""


class SaveMemory(Protocol):
    def __call__(self, agent: Agent, least: int = LEAST_SAID) -> Awaitable[bool]:
        """Whether it came to its end; False also if the person said less than `least` since the last time."""


class AgentComponents(NamedTuple):
    """What is None does not exist, and the chat says so where it is asked for."""

    make_model: Callable[[ModelChoice], Model]
    """May take its time, and may raise: it is called in a thread, while the person types."""
    make_tools: Callable[[bool], Sequence[Tool]]
    """True asks for those only that keep nothing, for an incognito conversation."""
    make_prompt: Callable[[AgentInputs], Awaitable[str]]
    """The system prompt of a session that begins now."""
    price: Price
    get_most_steps: Callable[[], int] = lambda: MOST_STEPS
    """How often a turn may use tools before the model has to answer."""
    make_compressor: Callable[[StoredRecord, AgentInputs], ManualCompressor] | None = None
    make_title: Callable[[AnyStore, str], Awaitable[str | None]] | None = None
    """Titles a session after its first exchange if it has no title; the title it got."""
    save: SaveMemory | None = None
    """One silent, bounded turn in which the agent keeps what matters of a conversation that ends."""
    memory: Callable[[], str] | None = None
    skills: Callable[[], Sequence[tuple[str, str]]] | None = None
    """Names, and what each is good for."""
    stop_processes: Callable[[AnyStore, str], int] | None = None
    """Ends what the tools of a conversation left running; how many there were."""
    subagents: Callable[[], Subagents] | None = None
    """Those that work for conversations of this program, for `/agents`."""
    keep_setting: Callable[[str, object], None] | None = None
    """Writes one value of config.yaml, by its dotted path."""
    transcribe: Callable[[AnyStore, str], object] | None = None
    """Brings the transcript of a conversation into step with the store."""
    warning: Callable[[], str | None] | None = None
    """What is odd about the settings, in one line."""
    platforms: Callable[[], Sequence[str] | None] | None = None
    """Those that the gateway of this home is connected to; None if it does not run."""
    close: Callable[[], Awaitable[None]] | None = None
