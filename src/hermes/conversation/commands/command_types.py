"""The types of slash commands: what a command works with, and what a command is."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from hermes.agent.events import Event
    from hermes.agent.subagents import Subagents
    from hermes.conversation.commands.replies import Reply
    from hermes.db.session_db import AnyStore

Row = dict[str, Any]

# A name, perhaps with the bot's, and nothing else before the next space: `/etc/hosts`, `/24` and `/a.b` are none.
_COMMAND = re.compile(r"\s*/(?P<name>[^\W\d_][\w-]{0,31})(?:@\w{1,64})?(?:\s+(?P<words>.*))?", re.DOTALL)


class TypedCommand(NamedTuple):
    name: str
    """As it was typed. Names of commands are in lower case."""
    words: str


def split_command(text: str) -> TypedCommand | None:
    """The name of the command in a line, and what stands behind it; None for what is said to the agent."""
    typed = _COMMAND.fullmatch(text)
    return None if typed is None else TypedCommand(typed["name"], (typed["words"] or "").strip())


class RewindOutcome(Protocol):
    @property
    def messages(self) -> int: ...

    @property
    def content(self) -> Any:
        """The message of the person at which the rewind began."""


class CommandConversation(Protocol):
    """The conversation that a command was typed in."""

    queued_title: str | None

    @property
    def session_id(self) -> str | None: ...

    @property
    def exists(self) -> bool:
        """Whether its session is stored."""

    @property
    def incognito(self) -> bool: ...

    @property
    def epoch(self) -> int | None:
        """The epoch of its lease; None for a command that is answered beside the work."""

    @property
    def previous_id(self) -> str | None:
        """The session that `begin` left for this one, as long as this one is not stored."""

    async def ensure_session(self) -> bool:
        """Store the session, if this surface does so before something is said; whether it is stored."""

    async def load_rows(self) -> list[Row]: ...

    async def take_back(self, message_id: int) -> RewindOutcome: ...

    async def bring_back(self) -> int: ...

    def compress(self, focus: str | None) -> AsyncIterator[Event]: ...

    def stop(self) -> bool:
        """Stop the running turn; whether there was one."""

    async def begin(self, title: str | None) -> None:
        """Leave the conversation for a new one, which has this title."""

    async def check_free(self, session_id: str) -> None:
        """`LeaseHeld` if somebody else works in a conversation."""

    async def switch_to(self, session_id: str) -> Sequence[str]:
        """Continue in another conversation; lines that a person should know. `LeaseHeld` if it is not free."""

    async def branch(self, title: str | None) -> str: ...


class Option(NamedTuple):
    id: str
    text: str
    row: Row | None = None
    """The session, if a conversation is to be chosen."""


class ModelDescription(NamedTuple):
    name: str
    address: str
    """Where it is; empty if that is not for the person to know."""


class CommandSurface(Protocol):
    """The person, and the agent, as the surface reaches them."""

    @property
    def waiting(self) -> int:
        """How many messages wait for an answer."""

    async def confirm(self, question: str) -> bool:
        """Ask before something is left or taken back. A chat platform does not ask: True."""

    async def choose(self, question: str, options: Sequence[Option]) -> str | None:
        """The id of the chosen option; None if the person cancels. A chat platform cannot ask: None."""

    async def read_memory(self) -> str: ...

    async def list_skills(self) -> Sequence[tuple[str, str]]:
        """Names, and what each is good for."""

    async def describe_model(self) -> ModelDescription | None: ...

    async def choose_model(self, name: str) -> str | None:
        """Continue with another model; its name. None if the model cannot be chosen here."""

    @property
    def subagents(self) -> Subagents | None:
        """The subagents that work for conversations of this program."""

    async def stop_processes(self) -> int:
        """End the background processes of the conversation; how many there were."""


class Visibility(Protocol):
    """Which conversations may be shown and opened here. Rows are those of the store."""

    @property
    def has_audience(self) -> bool:
        """Whether others read what is answered."""

    @property
    def can_show_memory(self) -> bool:
        """Whether all who read along may know what the agent remembers."""

    def can_show(self, row: Row) -> bool: ...

    def can_open(self, row: Row) -> bool: ...

    def is_own(self, row: Row) -> bool:
        """Whether it is a conversation of the person who asks."""

    def explain_closed(self, row: Row) -> str:
        """Why a conversation cannot be opened here."""


class AllVisible:
    """Everything may be shown: for the owner of the machine, at the terminal."""

    has_audience, can_show_memory = False, True

    def can_show(self, row: Row) -> bool:
        return True

    def can_open(self, row: Row) -> bool:
        return True

    def is_own(self, row: Row) -> bool:
        return True

    def explain_closed(self, row: Row) -> str:
        raise AssertionError("every conversation can be opened")


class CommandContext(NamedTuple):
    """What a command works with."""

    store: AnyStore
    """The store as the person who types may see it."""
    conversation: CommandConversation
    surface: CommandSurface
    visibility: Visibility = AllVisible()
    listed: Sequence[str] = ()
    """The ids of the list that the person saw last, where the surface remembers it: `/resume 3` means the third."""
    find_latest: Callable[[], str | None] | None = None
    """The conversation that `latest` means, if that is not simply the newest that can be opened here."""
    most_hits: int = 10
    """How many hits of a search are shown."""


class Command(NamedTuple):
    name: str
    run: Callable[[CommandContext, str], Awaitable[Reply]]
    takes: str
    """`[name]` may be left out, `<words>` may not."""
    summary: str
    at_once: bool = False
    """Answered beside the work, also while an answer is being made. It changes nothing in the conversation."""
    bare_at_once: bool = False
    """Answered at once if it is typed without words."""
    stops: bool = False
    """Stops the answer that is being made."""
    aliases: tuple[str, ...] = ()
    takes_session: bool = False
    """Its words name a conversation: titles are completed."""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.takes}".rstrip()
