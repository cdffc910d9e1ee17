"""What a command in a chat is given, and what it gives back. The commands are in `commands*.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hermes.db.scoped_store import ScopedStore
from hermes.gateway.adapter import Adapter
from hermes.gateway.inbound_events import Source
from hermes.gateway.settings import GatewaySettings, ResetPolicy

if TYPE_CHECKING:
    from hermes.gateway.inbound.chat_approvals import PendingApproval


class Happening(NamedTuple):
    """Something that befell a chat and that its sessions do not tell: it was paused, a delivery is unknown."""

    at: float
    text: str
    """A sentence of ours, as Markdown; whatever comes from outside is made harmless in it."""


class Here(Protocol):
    """The conversation that a command was typed in, as it is at work."""

    @property
    def key(self) -> str: ...

    @property
    def shared(self) -> bool:
        """Whether several people talk in it."""

    @property
    def session_id(self) -> str | None:
        """Where it goes on; None if nothing was ever said."""

    @property
    def was_trashed(self) -> bool:
        """Whether there is no conversation because the last one was moved to the trash."""

    @property
    def epoch(self) -> int | None:
        """The lease it is worked on under; None for a command that is answered at once, beside the work."""

    @property
    def working_since(self) -> float | None:
        """When the answer that is being made now was begun."""

    @property
    def waiting(self) -> int:
        """How many messages wait behind it."""

    @property
    def happened(self) -> Sequence[Happening]:
        """What befell this chat, in any order."""

    @property
    def waiting_approvals(self) -> Sequence[PendingApproval]:
        """What the answer that is being made waits for."""

    def answer_approval(self, asked: Asked, *, allowed: bool) -> str:
        """Answer one of them; what the person is told."""

    def stop(self) -> bool:
        """Stop the answer that is being made; whether there was one."""

    async def begin(self) -> str:
        """The session of this chat; made if there is none."""

    async def moved(self, session_id: str) -> None:
        """The chat goes on in another session now; its lease is taken, the old one let go."""

    async def save(self) -> None:
        """Give the agent its silent, bounded turn to keep what matters, before the conversation is left."""

    async def compress(self, focus: str | None) -> list[str]:
        """Make room by hand; what happened, a line each."""


class Asked(NamedTuple):
    """A command, and who gave it."""

    source: Source
    words: str
    """What stands behind its name."""
    store: ScopedStore
    """As the person who asks may see it: their own sessions, and this room's."""
    here: Here
    settings: GatewaySettings
    adapters: Mapping[str, Adapter]
    """The platforms that are connected."""
    keep_setting: Callable[[str, object], None]
    """Writes one value of config.yaml, by its dotted path."""
    topics: Topics | None = None
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


class Topics(Protocol):
    """The documented verbs of Telegram's topic mode, for one person's chat."""

    def is_enabled(self) -> bool: ...

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def binding(self, thread_id: str) -> dict[str, Any] | None: ...

    def bind(self, thread_id: str, session_key: str, session_id: str) -> None:
        """`ValueError` if the session is linked to another topic."""

    def unlinked(self, limit: int = 10) -> list[dict[str, Any]]: ...


class Answer(NamedTuple):
    text: str
    """Markdown, for a telephone."""
    say: Any = None
    """To be said to the agent next, as if the person had: for /retry."""


class Command(NamedTuple):
    name: str
    run: Callable[[Asked], Awaitable[Answer]]
    usage: str
    """How it is typed: `/title [name]`."""
    summary: str
    at_once: bool = False
    """Answered beside the work, also while an answer is being made; it changes nothing in the conversation."""
    bare_at_once: bool = False
    """Without words it only shows something: then, and only then, it is answered at once."""
    stops: bool = False
    """Stops the answer that is being made."""
    also: tuple[str, ...] = ()
    """Other names."""
