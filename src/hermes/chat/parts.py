"""What a chat is made of: who answers, with which tools, at which price. `cli/chat.py` says which they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hermes.agent.agent import Agent
from hermes.agent.model import Model
from hermes.agent.record import StoredRecord
from hermes.agent.tool import Tool
from hermes.agent.turn import Compressor, Price

if TYPE_CHECKING:
    from hermes.sessiondb import SessionDB


class Wish(NamedTuple):
    """Which model a person asked for; None is what their settings say."""

    model: str | None = None
    base_url: str | None = None


NO_WISH = Wish()


class Parts(NamedTuple):
    """What is None does not exist, and the chat says so where it is asked for."""

    make_model: Callable[[SessionDB, Wish], Model]
    """May take its time, and may raise: it is called in a thread, while the person types."""
    make_tools: Callable[[bool], Sequence[Tool]]
    """True asks for those only that keep nothing, for an incognito conversation."""
    make_prompt: Callable[[Path, Sequence[Tool]], Awaitable[str]]
    """The system prompt of a new session that works in this directory with these tools."""
    price: Price
    make_compressor: Callable[[SessionDB, StoredRecord, Model, str | None], Compressor | None] | None = None
    """The last is what `/compress` was asked to keep in mind."""
    make_title: Callable[[SessionDB, str], Awaitable[str | None]] | None = None
    """Titles a session after its first exchange if it has no title; the title it got."""
    save: Callable[[Agent], Awaitable[None]] | None = None
    """One silent, bounded turn in which the agent keeps what matters of a conversation that ends."""
    memory: Callable[[], str] | None = None
    skills: Callable[[], Sequence[tuple[str, str]]] | None = None
    """Names, and what each is good for."""
    stop_processes: Callable[[Sequence[Tool]], Awaitable[int]] | None = None
    """Ends what tools left running; how many there were."""
    keep_setting: Callable[[str, str, object], None] | None = None
    """Writes one value of a section of config.yaml."""
