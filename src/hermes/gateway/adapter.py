"""The adapter seam: one platform behind its own library, without knowledge of sessions.

An adapter receives (`run`) and delivers (`send`, `edit`, `typing`). It reports a failed delivery as one of four errors,
because each calls for another reaction: not delivered and worth a retry, rate limited, never deliverable, or unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from hermes.errors import HermesError
from hermes.gateway.inbound_events import Event, OfferedFile, Source


class Receipt(NamedTuple):
    """The result of handing a message in. Once it is returned, the message may be acknowledged."""

    state: str
    """accepted, duplicate, answered (a command, at once), unauthorised, limited, ignored (nothing in it), or failed (it
    cannot be taken in, however often it comes)."""
    session_key: str | None = None


Receive = Callable[[Event, Sequence[OfferedFile]], Awaitable[Receipt]]
"""Hand a message in. It returns when the message is durable; if it raises, the platform must not be told that it was
accepted, so that it delivers the message again."""


class Capabilities(NamedTuple):
    """The capabilities of a platform."""

    max_length: int = 4000
    """How long one message may be, as `measure` counts."""
    edits: bool = False
    """Whether a message that was sent can be changed, so that an answer can be seen as it comes."""
    idempotent: bool = False
    """Whether a second `send` with the same `once` shows nothing twice."""
    edit_every: float = 1.0
    """Seconds between two edits of a message that the platform tolerates."""
    allows_many_replies: bool = True
    """Whether a message may get more than one reply. If not, only the final answer is sent."""


class Adapter(Protocol):
    @property
    def name(self) -> str:
        """The documented name of the platform: `telegram`."""

    @property
    def capabilities(self) -> Capabilities: ...

    def measure(self, text: str) -> int:
        """The length of a text as the platform counts it."""

    async def run(self, receive: Receive, ready: Callable[[], None]) -> None:
        """Connect, say that we are `ready`, and receive until cancelled. It may be called again after it raised."""

    async def send(
        self,
        to: Source,
        text: str,
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        """Deliver Markdown as a message in the platform's own dialect; its id there.

        `once` is the same if the same thing is sent again. `silent` asks that nobody's telephone rings.
        """

    async def edit(self, to: Source, message_id: str, text: str) -> None:
        """Change a message that was sent."""

    async def typing(self, to: Source) -> None:
        """Show for some seconds that an answer is being made, where the platform can."""

    async def open_thread(self, to: Source, name: str) -> str | None:
        """Open a thread in a chat, for a conversation that moves there; None where there are no threads."""

    async def close(self) -> None: ...


class Choice(NamedTuple):
    """A button below a message."""

    label: str
    text: str
    """What pressing it says: a command, as if the person had typed it. At most 64 bytes."""


@runtime_checkable
class OffersChoices(Protocol):
    """An adapter whose platform has buttons. Who presses one is heard as an `Event` with `chosen`.

    `edit` removes the buttons of a message. Other adapters send the text alone.
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
        """As `send`, with buttons below the message."""


# How a delivery or a connection fails, each with one line for the log. Nothing else may come out of an adapter.


class AdapterError(HermesError):
    """The platform could not be used."""


class Unreachable(AdapterError):
    """The delivery certainly failed; a retry may succeed."""


class RateLimited(AdapterError):
    """Too much at once: it did not arrive, and should be tried again after so many seconds."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Undeliverable(AdapterError):
    """The delivery can never succeed: the chat is gone, the bot was removed, or the platform refuses the message."""


class DeliveryUnknown(AdapterError):
    """The message was sent and no response came: whether it arrived is unknown."""


class Misconfigured(AdapterError):
    """A setting of the platform is missing or wrong; a retry will not help."""
