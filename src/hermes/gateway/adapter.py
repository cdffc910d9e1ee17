"""The adapter interface. An adapter connects one platform to the gateway. It has no access to sessions.

An adapter receives messages (`run`) and delivers messages (`send`, `edit`, `typing`). It reports a failed
delivery as one of four errors, because each needs a different reaction: `Unreachable`, `RateLimited`,
`Undeliverable` or `DeliveryUnknown`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from hermes.errors import HermesError
from hermes.gateway.inbound_events import Event, OfferedFile, Source


class Receipt(NamedTuple):
    """The result that the gateway returns for a received message. With a receipt, the adapter may acknowledge
    the message to the platform."""

    state: str
    """One of `accepted`, `duplicate`, `answered` (a command, answered at once), `unauthorised`, `limited`,
    `ignored` (an empty message) or `failed` (the message can never be accepted)."""
    session_key: str | None = None


Receive = Callable[[Event, Sequence[OfferedFile]], Awaitable[Receipt]]
"""A function that passes a received message to the gateway. It returns when the message is durable. If it
raises, the adapter must not acknowledge the message, so that the platform delivers the message again."""


class Capabilities(NamedTuple):
    """The capabilities of a platform."""

    max_length: int = 4000
    """Maximum length of a message, in units of `measure`."""
    edits: bool = False
    """Whether a sent message can be edited. Needed for live previews of answers."""
    idempotent: bool = False
    """Whether the platform ignores a second `send` with an `idempotency_key` that it has already received."""
    edit_every: float = 1.0
    """Minimum seconds between two edits of a message."""
    allows_many_replies: bool = True
    """Whether a message may get more than one reply. If False, a command that starts a turn sends only the answer
    of the turn."""


class Adapter(Protocol):
    @property
    def name(self) -> str:
        """The documented name of the platform, such as `telegram`."""

    @property
    def capabilities(self) -> Capabilities: ...

    def measure(self, text: str) -> int:
        """Return the length of a text as the platform counts it."""

    async def run(self, receive: Receive, ready: Callable[[], None]) -> None:
        """Connect to the platform, call `ready` once connected, and pass each received message to `receive` until
        cancelled. If `run` raises an error, the gateway may call it again."""

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

        `idempotency_key` is the same if the same message is sent again. `reply_to` is the id of the message to
        reply to. `silent` requests delivery without a notification.
        """

    async def edit(self, to: Source, message_id: str, text: str) -> None:
        """Replace the text of an earlier message of the bot. `message_id` is the id that `send` returned."""

    async def typing(self, to: Source) -> None:
        """Show the typing indicator for some seconds, if the platform has one."""

    async def open_thread(self, to: Source, name: str) -> str | None:
        """Open a thread with the title `name` in the chat `to`, and return the id of the thread. Return None if the
        platform has no threads."""

    async def close(self) -> None: ...


class Choice(NamedTuple):
    """A button below a message."""

    label: str
    text: str
    """The command that is sent when the button is pressed, as if the person had typed it. At most 64
    bytes."""


@runtime_checkable
class OffersChoices(Protocol):
    """An adapter whose platform has buttons. A button press is received as an `Event` with `chosen`.

    When `edit` changes a message, it also removes the buttons of the message. On platforms without buttons,
    only the text of the message is sent.
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
        """Deliver a message as `send` does, with one button below it for each of `choices`."""


@runtime_checkable
class SendsFiles(Protocol):
    """An adapter whose platform accepts files. A very long answer is sent as a file."""

    async def send_file(
        self,
        to: Source,
        name: str,
        content: bytes,
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        """Deliver a text file with the file name `name` and the bytes `content`. The other parameters and the
        result are those of `send`."""


@runtime_checkable
class FetchesFiles(Protocol):
    """An adapter that can fetch the files of a message later, even in another process. The gateway then stores
    and acknowledges the message before it fetches the files, so that a slow file delays only its own chat."""

    async def fetch(self, reference: Mapping[str, Any]) -> bytes:
        """Fetch a file from the platform and return its bytes. `reference` is the one that the adapter put into the
        `OfferedFile`."""


@runtime_checkable
class Drains(Protocol):
    """An adapter whose clients receive the answer in the response to their HTTP request."""

    async def drain(self) -> None:
        """Refuse new requests, and wait until every open request is answered."""


# The errors of deliveries and connections. Their message is one line for the log. Adapters raise no other errors.


class AdapterError(HermesError):
    """Base class of the errors that an adapter raises."""


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
