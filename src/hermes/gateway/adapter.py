"""The adapter interface: connects one platform, through its own library, without access to sessions.

An adapter receives (`run`) and delivers (`send`, `edit`, `typing`). It reports a failed delivery as one of
four errors, because each needs a different reaction: not delivered and worth a retry, rate limited, never
deliverable, or unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from hermes.errors import HermesError
from hermes.gateway.inbound_events import Event, OfferedFile, Source


class Receipt(NamedTuple):
    """The result of handing in a message. When it is returned, the message may be acknowledged."""

    state: str
    """One of `accepted`, `duplicate`, `answered` (a command, answered at once), `unauthorised`, `limited`,
    `ignored` (an empty message) or `failed` (the message can never be accepted)."""
    session_key: str | None = None


Receive = Callable[[Event, Sequence[OfferedFile]], Awaitable[Receipt]]
"""Hands in a message. Returns when the message is durable. If it raises, the adapter must not acknowledge the
message, so that the platform delivers it again."""


class Capabilities(NamedTuple):
    """The capabilities of a platform."""

    max_length: int = 4000
    """Maximum length of a message, in units of `measure`."""
    edits: bool = False
    """Whether a sent message can be edited. Needed for live previews of answers."""
    idempotent: bool = False
    """Whether the platform ignores a second `send` with the same `idempotency_key`."""
    edit_every: float = 1.0
    """Minimum seconds between two edits of a message."""
    allows_many_replies: bool = True
    """Whether a message may get more than one reply. If not, only the final answer is sent."""


class Adapter(Protocol):
    @property
    def name(self) -> str:
        """The documented name of the platform: `telegram`."""

    @property
    def capabilities(self) -> Capabilities: ...

    def measure(self, text: str) -> int:
        """Return the length of a text as the platform counts it."""

    async def run(self, receive: Receive, ready: Callable[[], None]) -> None:
        """Connect, call `ready`, and receive until cancelled. May be called again after it has raised."""

    async def send(
        self,
        to: Source,
        text: str,
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        """Deliver Markdown as a message in the platform's own format. Return the id of the message on the
        platform.

        A repeated send of the same message has the same `idempotency_key`. `silent` requests delivery without
        a notification.
        """

    async def edit(self, to: Source, message_id: str, text: str) -> None:
        """Replace the text of a sent message."""

    async def typing(self, to: Source) -> None:
        """Show the typing indicator for some seconds, if the platform has one."""

    async def open_thread(self, to: Source, name: str) -> str | None:
        """Open a thread in a chat and return its id. Return None if the platform has no threads."""

    async def close(self) -> None: ...


class Choice(NamedTuple):
    """A button below a message."""

    label: str
    text: str
    """The command that a press sends, as if the person had typed it. At most 64 bytes."""


@runtime_checkable
class OffersChoices(Protocol):
    """An adapter whose platform has buttons. A press is received as an `Event` with `chosen`.

    `edit` removes the buttons of a message. Other adapters send only the text.
    """

    async def offer(
        self,
        to: Source,
        text: str,
        choices: Sequence[Choice],
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        """Deliver a message as `send` does, with buttons below it."""


# The errors of deliveries and connections, each with one line for the log. Adapters raise no others.


class AdapterError(HermesError):
    """Base class: the platform could not be used."""


class Unreachable(AdapterError):
    """The message was certainly not delivered. A retry may succeed."""


class RateLimited(AdapterError):
    """The message was not delivered because of a rate limit. Retry after `seconds`."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Undeliverable(AdapterError):
    """The message can never be delivered: the chat is gone, the bot was removed, or the platform refuses it."""


class DeliveryUnknown(AdapterError):
    """The message was sent, but no response came. It is unknown whether it was delivered."""


class Misconfigured(AdapterError):
    """A setting of the platform is missing or wrong. A retry does not help."""
