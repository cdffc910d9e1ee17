"""The types of chat commands: a command gets a `ChatCommandContext` and returns a `CommandReply`.

`make_core_context` converts the context for the shared commands (`hermes.conversation.commands`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from hermes.conversation.commands.command_types import Command
from hermes.db.scoped_store import ScopedStore
from hermes.gateway.adapter import Adapter
from hermes.gateway.inbound_events import Source
from hermes.gateway.incidents import Incident
from hermes.gateway.sessions.daily_limit import Budget
from hermes.gateway.sessions.topics import UserTopics
from hermes.gateway.settings import GatewaySettings, ResetPolicy

if TYPE_CHECKING:
    from hermes.agent.subagents import Subagents
    from hermes.conversation.conversation import Conversation
    from hermes.gateway.inbound.chat_approvals import PendingApproval

MOST_LISTS = 200
"""The maximum number of people in one chat whose last list of conversations is remembered."""


class RememberedLists:
    """The last list of conversations that was shown to each person in a chat. `/resume 3` refers to the third entry
    of the sender's list."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, Sequence[str]] = OrderedDict()

    def remember(self, source: Source, session_ids: Sequence[str]) -> None:
        reader = self._identify_reader(source)
        if reader is None:
            return
        self._ids[reader] = session_ids
        self._ids.move_to_end(reader)
        if len(self._ids) > MOST_LISTS:
            self._ids.popitem(last=False)

    def get(self, source: Source) -> Sequence[str]:
        """Return the session ids of the last list that was shown to the sender in `source`. If no list was shown,
        the result is empty."""
        return self._ids.get(self._identify_reader(source) or "", ())

    def _identify_reader(self, source: Source) -> str | None:
        """Return the user id of the sender, under which their list is remembered. Return None for an anonymous
        sender in a group, because several people can write as the same anonymous sender."""
        return source.participant or (source.chat_id if source.chat_type == "dm" else None)


class ReplyChat(Protocol):
    """The properties of a chat that affect the format of a reply."""

    @property
    def is_shared(self) -> bool:
        """Whether several people share the conversation of this chat."""

    @property
    def was_trashed(self) -> bool:
        """Whether the chat has no live session because its last conversation was moved to the trash."""

    @property
    def working_since(self) -> float | None:
        """When the running turn of this chat began, or None if no turn is running."""

    @property
    def waiting(self) -> int:
        """The number of messages of this chat that wait in the inbox for an answer."""

    @property
    def waiting_approvals(self) -> Sequence[PendingApproval]:
        """The approval requests of this chat that wait for an answer."""


class ReplyContext(Protocol):
    """The properties of a command's context that affect the format of a reply."""

    @property
    def source(self) -> Source: ...

    @property
    def chat(self) -> ReplyChat: ...

    @property
    def policy(self) -> ResetPolicy: ...

    @property
    def next_reset(self) -> Callable[[], float | None]: ...

    @property
    def reset_holds(self) -> Callable[[], Sequence[str]]: ...

    @property
    def budget(self) -> Callable[[], Budget | None]: ...

    @property
    def can_approve(self) -> bool: ...


class CommandChat(ReplyChat, Protocol):
    """The chat in which a command was sent."""

    lists: RememberedLists

    @property
    def key(self) -> str: ...

    @property
    def conversation(self) -> Conversation[ScopedStore]:
        """The conversation of the chat. In a shared chat, its store contains only the sessions of the room."""

    @property
    def session_id(self) -> str | None:
        """The id of the chat's live session, or None if the chat has none."""

    @property
    def incidents(self) -> Sequence[Incident]:
        """The incidents of this chat, in any order."""

    @property
    def subagents(self) -> Subagents:
        """The running subagents of all conversations of this process."""

    async def resend_unknown(self) -> int:
        """Put the messages to this chat whose delivery is unknown back into the queue, and return their number.
        They are sent before the reply of the command."""

    async def drop_queued(self) -> int:
        """Give up the messages to this chat that are not sent yet. Return their number."""

    def answer_approval(self, context: ChatCommandContext, words: str, *, allowed: bool) -> str:
        """Answer an approval request of this chat. `words` is the text after `/approve` or `/deny`, and `allowed`
        is True for `/approve`. Return the reply for the person."""


class ChatCommandContext(NamedTuple):
    """The context of a command: its sender, their store and their chat."""

    source: Source
    store: ScopedStore
    """The store, limited to the sessions of the sender and of this room."""
    chat: CommandChat
    settings: GatewaySettings
    adapters: Mapping[str, Adapter]
    """The connected platforms."""
    store_setting: Callable[[str, object], None]
    """Writes one setting to config.yaml. Takes its dotted path and its value."""
    topics: UserTopics | None = None
    """The Telegram topics of the sender's private chat, or None on other platforms."""
    next_reset: Callable[[], float | None] = lambda: None
    """Returns when this chat will be reset if nobody writes before. Returns None if it will not be reset."""
    is_owner: bool = False
    """Whether the sender is an owner of this installation."""
    can_approve: bool = False
    """Whether the sender may answer approval requests. Only an owner in a private chat may."""
    sent_at: float | None = None
    """When the command was sent, according to the platform. Set only for commands that are answered
    immediately."""
    message_id: str | None = None
    """The id of the message with the command. Set only for commands that are answered immediately."""
    reset_holds: Callable[[], Sequence[str]] = lambda: ()
    """Returns the reasons why an automatic reset of this chat must wait at present."""
    budget: Callable[[], Budget | None] = lambda: None
    """Returns the daily limit of the chat's owner and its use. Returns None if there is no limit."""

    @property
    def policy(self) -> ResetPolicy:
        """The reset policy of this chat. It says when the chat starts a new conversation automatically."""
        source = self.source
        return self.settings.find_policy(source.platform, source.chat_type, source.thread_id)


class CommandReply(NamedTuple):
    text: str
    """The reply in Markdown, short enough for a telephone."""
    next_content: Any = None
    """A message that the agent answers as if the person had sent it. Used by `/retry`."""
    repeats_last: bool = False
    """Whether the agent now answers the last stored message. Used by `/retry`."""


ChatCommand: TypeAlias = Command[ChatCommandContext, CommandReply]
