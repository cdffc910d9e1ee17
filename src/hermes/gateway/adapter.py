"""What an adapter is: one platform, spoken to with its own library. It knows nothing of sessions.

An adapter receives (`run`) and delivers (`send`, `edit`, `typing`). What goes wrong it says in one of four ways,
because what is to be done differs: it did not arrive and may be tried again, it was too much at once, it will never
arrive, or nobody can tell whether it arrived.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from hermes.errors import HermesError
from hermes.gateway.inbound_events import Event, Offered, Source


class Receipt(NamedTuple):
    """What became of a message that was handed in. When it is given, the message may be acknowledged."""

    state: str
    """accepted, duplicate, answered (a command, at once), unauthorised, limited, ignored (nothing in it), or failed (it
    cannot be taken in, however often it comes)."""
    session_key: str | None = None


Receive = Callable[[Event, Sequence[Offered]], Awaitable[Receipt]]
"""Hand a message in. It returns when the message is durable; if it raises, the platform must not be told that it was
accepted, so that it delivers the message again."""


class Can(NamedTuple):
    """What a platform can do."""

    longest: int = 4000
    """How long one message may be, as `measure` counts."""
    edits: bool = False
    """Whether a message that was sent can be changed, so that an answer can be seen as it comes."""
    idempotent: bool = False
    """Whether a second `send` with the same `once` shows nothing twice."""
    edit_every: float = 1.0
    """Seconds between two edits of a message that nobody minds."""
    says_more: bool = True
    """Whether a message may get more than one answer. If not, nothing is said before the one that counts."""


class Adapter(Protocol):
    @property
    def name(self) -> str:
        """The documented name of the platform: `telegram`."""

    @property
    def can(self) -> Can: ...

    def measure(self, text: str) -> int:
        """How long a text is, as the platform counts."""

    async def run(self, receive: Receive, ready: Callable[[], None]) -> None:
        """Connect, say that we are `ready`, and receive until cancelled. It may be called again after it raised."""

    async def send(
        self, to: Source, text: str, *, once: str, reply_to: str | None = None, silent: bool = False
    ) -> str | None:
        """Deliver Markdown as a message in the platform's own dialect; its id there.

        `once` is the same if the same thing is sent again. `silent` asks that nobody's telephone rings.
        """

    async def edit(self, to: Source, message_id: str, text: str) -> None:
        """Change a message that was sent."""

    async def typing(self, to: Source) -> None:
        """Show that an answer is on its way, where that can be shown; for some seconds."""

    async def open_thread(self, to: Source, name: str) -> str | None:
        """A new thread in a chat, for a conversation that moves there; None where there are no threads."""

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
        once: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        """As `send`, with buttons below the message."""


# How a delivery or a connection fails, each with one line for the log. Nothing else may come out of an adapter.


class AdapterError(HermesError):
    """The platform could not be used."""


class Unreachable(AdapterError):
    """It certainly did not arrive; it may the next time."""


class Limited(AdapterError):
    """Too much at once: it did not arrive, and should be tried again after so many seconds."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Undeliverable(AdapterError):
    """It will never arrive: the chat is gone, we were thrown out, the platform does not take it."""


class Doubtful(AdapterError):
    """It was handed over, and no answer came: nobody can tell whether it arrived."""


class Misconfigured(AdapterError):
    """What the platform needs is missing or wrong; trying again will not help."""
