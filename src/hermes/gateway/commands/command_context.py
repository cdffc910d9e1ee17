"""The types of slash commands in a chat: a command gets a `ChatCommandContext` and returns a `CommandReply`.

`make_core_context` makes of it what the commands that every surface has (`hermes.conversation.commands`) work with.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hermes.agent.components import AgentComponents
from hermes.agent.events import Event
from hermes.db.scoped_store import ScopedStore
from hermes.gateway.adapter import Adapter
from hermes.gateway.inbound_events import Source
from hermes.gateway.incidents import Incident
from hermes.gateway.sessions.topics import UserTopics
from hermes.gateway.settings import GatewaySettings, ResetPolicy

if TYPE_CHECKING:
    from hermes.agent.subagents import Subagents
    from hermes.gateway.inbound.chat_approvals import PendingApproval


class CommandChat(Protocol):
    """The chat that a command was typed in."""

    @property
    def key(self) -> str: ...

    @property
    def is_shared(self) -> bool:
        """Whether several people talk in it."""

    @property
    def session_id(self) -> str | None:
        """The live session; None if there is none."""

    @property
    def was_trashed(self) -> bool:
        """Whether there is no conversation because the last one was moved to the trash."""

    @property
    def epoch(self) -> int | None:
        """The lease it is worked on under; None for a command that is answered at once, beside the work."""

    @property
    def working_since(self) -> float | None:
        """When the running turn began."""

    @property
    def waiting(self) -> int:
        """How many messages wait."""

    @property
    def incidents(self) -> Sequence[Incident]:
        """Incidents of this chat, in any order."""

    @property
    def waiting_approvals(self) -> Sequence[PendingApproval]:
        """Approvals that the running turn waits for."""

    @property
    def subagents(self) -> Subagents:
        """The subagents that work for conversations of this program."""

    def answer_approval(self, context: ChatCommandContext, *, allowed: bool) -> str:
        """Answer an approval; returns the text for the person."""

    def stop(self) -> bool:
        """Stop the running turn; whether there was one."""

    async def begin(self) -> str:
        """The session of this chat; created if there is none."""

    async def switch_to(self, session_id: str) -> None:
        """Continue in another session: take its lease and release the old one."""

    async def save(self) -> None:
        """Let the agent save its memory, in a silent, bounded turn, before the conversation is left."""

    def compress(self, focus: str | None) -> AsyncIterator[Event]:
        """Compress now; the events of it."""

    def get_components(self) -> AgentComponents:
        """What the agent of this chat is made of. May read files."""


class ChatCommandContext(NamedTuple):
    """A command with its arguments, its sender and their chat."""

    source: Source
    words: str
    """The text after the command's name."""
    store: ScopedStore
    """The store as the sender may see it: their own sessions, and this room's."""
    chat: CommandChat
    settings: GatewaySettings
    adapters: Mapping[str, Adapter]
    """The platforms that are connected."""
    store_setting: Callable[[str, object], None]
    """Writes one value of config.yaml, by its dotted path."""
    topics: UserTopics | None = None
    """Telegram's topics in private chats; None on other platforms."""
    next_reset: Callable[[], float | None] = lambda: None
    """When this chat would start afresh by itself if nobody spoke; None if it never would."""
    is_owner: bool = False
    """Whether the machine is theirs."""
    can_approve: bool = False
    """Whether they may answer approvals: an owner, in a private chat."""
    sent_at: float | None = None
    """When the platform says that the command was sent; only of what is answered at once."""
    message_id: str | None = None
    """What makes it the same command if it is delivered twice; only of what is answered at once."""

    @property
    def policy(self) -> ResetPolicy:
        """When this chat starts afresh by itself."""
        source = self.source
        return self.settings.policy_for(source.platform, source.chat_type, source.thread_id)


class CommandReply(NamedTuple):
    text: str
    """Markdown, for a telephone."""
    next_content: Any = None
    """A message for the agent, as if the person had sent it: for `/retry`."""
    repeats_last: bool = False
    """Whether the last message, which is stored, is to be answered now: for `/retry`."""


class Command(NamedTuple):
    name: str
    run: Callable[[ChatCommandContext], Awaitable[CommandReply]]
    usage: str
    """How it is typed: `/title [name]`."""
    summary: str
    at_once: bool = False
    """Answered beside the work, also while an answer is being made; it changes nothing in the conversation."""
    bare_at_once: bool = False
    """Without words it only shows something: then, and only then, it is answered at once."""
    stops: bool = False
    """Stops the answer that is being made."""
    aliases: tuple[str, ...] = ()
    """Other names."""
