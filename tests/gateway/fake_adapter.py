"""A platform for tests. It records all calls, receives messages from the test, and fails on request.

    adapter = FakeAdapter(can=Can(longest=100, edits=True))
    adapter.fail("send", Limited("slow down", 3), times=2)
    ...
    async with adapter.connected(receive):
        receipt = await adapter.hear(event)
    assert adapter.texts == ["Hello"]

`messages` contains the visible messages by id, in their current state. `calls` contains every call in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from hermes.gateway.adapter import AdapterError, Capabilities, Receipt, Receive, Undeliverable, Unreachable
from hermes.gateway.inbound_events import Event, OfferedFile, Source


class Call(NamedTuple):
    """A call to the adapter, successful or failed."""

    verb: str
    """`send`, `edit`, `typing` or `open_thread`."""
    to: Source
    text: str = ""
    message_id: str | None = None
    """The message that was edited or replied to."""
    once: str = ""
    silent: bool = False
    at: float = 0.0
    """When the call was made, as the event loop counts time."""


class FakeAdapter:
    def __init__(
        self,
        name: str = "telegram",
        can: Capabilities | None = None,
        *,
        measure: Callable[[str], int] = len,
        slow: float = 0.0,
        threads: bool = True,
    ) -> None:
        self.name = name
        self.capabilities = can or Capabilities(max_length=4000, edits=True)
        self.slow = slow
        """The number of seconds that every delivery takes."""
        self.calls: list[Call] = []
        self.messages: dict[str, str] = {}
        self.is_closed = False
        self._measure = measure
        self._threads = threads
        self._sent: dict[str, str] = {}
        self._failures: dict[str, list[tuple[Exception, bool]]] = {}
        self._receive: Receive | None = None
        self._broken: asyncio.Future[None] | None = None

    # For the tests

    @property
    def texts(self) -> list[str]:
        """The visible messages, oldest first."""
        return list(self.messages.values())

    def calls_of(self, verb: str) -> list[Call]:
        return [call for call in self.calls if call.verb == verb]

    def fail(self, verb: str, error: Exception, *, times: int = 1, arrives: bool = False) -> None:
        """Make the next `times` calls of `verb` raise `error`. With `arrives`, the call takes effect before
        it fails."""
        self._failures.setdefault(verb, []).extend([(error, arrives)] * times)

    async def hear(self, event: Event, offered: Sequence[OfferedFile] = ()) -> Receipt:
        """Deliver a message of a person to the gateway and return the receipt. An error of `receive` is
        raised here."""
        if self._receive is None:
            raise Unreachable("nobody listens")
        return await self._receive(event, offered)

    def disconnect(self, error: Exception | None = None) -> None:
        """Lose the connection, so that `run` raises."""
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error or Unreachable("the connection was lost"))

    @asynccontextmanager
    async def connected(self, receive: Receive) -> AsyncIterator[None]:
        """Run the adapter in the background, from the moment it is ready."""
        ready = asyncio.Event()
        running = asyncio.create_task(self.run(receive, ready.set))
        await ready.wait()
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError, AdapterError):
                await running

    # The protocol

    def measure(self, text: str) -> int:
        return self._measure(text)

    async def run(self, receive: Receive, ready: Callable[[], None]) -> None:
        self._fail_or_not("run")
        self._receive, self._broken = receive, asyncio.get_running_loop().create_future()
        ready()
        try:
            await self._broken
        finally:
            self._receive = self._broken = None

    async def send(
        self,
        to: Source,
        text: str,
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        error = await self._told(Call("send", to, text, reply_to, idempotency_key, silent))
        if not (self.capabilities.idempotent and idempotency_key in self._sent):
            self._sent[idempotency_key] = f"m{len(self.messages) + 1}"
            self.messages[self._sent[idempotency_key]] = text
        if error:
            raise error
        return self._sent[idempotency_key]

    async def edit(self, to: Source, message_id: str, text: str) -> None:
        error = await self._told(Call("edit", to, text, message_id))
        if message_id not in self.messages:
            raise Undeliverable(f"there is no message {message_id}")
        self.messages[message_id] = text
        if error:
            raise error

    async def typing(self, to: Source) -> None:
        if error := await self._told(Call("typing", to)):
            raise error

    async def open_thread(self, to: Source, name: str) -> str | None:
        if error := await self._told(Call("open_thread", to, name)):
            raise error
        return f"t{len(self.calls_of('open_thread'))}" if self._threads else None

    async def close(self) -> None:
        self.is_closed = True

    async def _told(self, call: Call) -> Exception | None:
        """Record the call, wait for the delay, and raise the planned error if there is one. If the call must
        take effect first, return the error instead; the caller raises it."""
        self.calls.append(call._replace(at=asyncio.get_running_loop().time()))
        if self._measure(call.text) > self.capabilities.max_length:
            raise Undeliverable(f"longer than {self.capabilities.max_length}")
        await asyncio.sleep(self.slow)
        return self._fail_or_not(call.verb)

    def _fail_or_not(self, verb: str) -> Exception | None:
        waiting = self._failures.get(verb)
        if not waiting:
            return None
        error, arrives = waiting.pop(0)
        if arrives:
            return error
        raise error
