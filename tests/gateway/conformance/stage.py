"""The interface through which scenarios use a platform. People send messages, and the platform shows the
answers.

A stage represents the platform: its server and the people on it. A stage does not know the gateway. The
gateway is connected by environment variables and `config.yaml`, as an operator does it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0

# Optional features. A scenario that needs a feature is generated only for the platforms that have it.
GROUPS = "groups"
THREADS = "threads"
EDITS = "edits"
STRANGERS = "strangers"
"""People without access."""
PAIRING = "pairing"
LATER = "later"
"""An answer is delivered even if no client waits for it, and even after a restart."""
TWICE = "twice"
"""A message can arrive twice, and messages can arrive out of order."""
LIMITS = "limits"
RECONNECTS = "reconnects"
"""The platform can be unavailable for a while."""
SWALLOWS = "swallows"
"""A message can arrive without a confirmation."""
COMMANDS = "commands"
FILES = "files"
"""Files of any kind can be sent. (Pictures can be sent on every platform.)"""
ASKS_AGAIN = "asks again"
"""A client that loses its connection while it waits for an answer sends the request again."""
PREVIEWS = "previews"
"""An answer is visible while it is generated."""


class Where(NamedTuple):
    """A chat or a thread, by the platform's own ids."""

    kind: str
    chat: str
    thread: str | None = None


class Person(NamedTuple):
    id: str
    name: str
    known: bool = True
    """Whether the operator has given this person access."""


class File(NamedTuple):
    name: str
    media_type: str
    content: bytes


Said = Any
"""A message that was sent, in a form that the stage can use to refer to it again."""


class Stage(ABC):
    """A platform and the people on it. A method need not be implemented if its feature is not in `can`."""

    platform: str
    can: frozenset[str]
    max_length: int
    """The maximum length of a message on the platform."""
    idempotent: bool
    """Whether a message that is sent twice is shown once."""

    @property
    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Return the environment variables that connect the gateway to this platform."""

    @property
    @abstractmethod
    def config(self) -> Mapping[str, Any]:
        """Return the settings below `platforms.<name>` in config.yaml."""

    # People and chats

    @abstractmethod
    def person(self, name: str, *, known: bool = True) -> Person: ...

    @abstractmethod
    def dm(self, person: Person) -> Where: ...

    def group(self, *people: Person, threads: bool = False) -> Where:
        """Create a group of these people. If `threads` is set, threads can be opened in the group."""
        self._lacks("groups")

    def thread(self, group: Where, by: Person) -> Where:
        self._lacks("threads")

    # Actions of people. Each returns when the platform has the message, not when the gateway has it.

    @abstractmethod
    def say(self, person: Person, where: Where, text: str, *files: File) -> Said: ...

    def edit(self, said: Said, text: str) -> None:
        self._lacks("changes")

    def deliver_again(self, said: Said) -> None:
        self._lacks("second deliveries")

    def deliver_reversed(self, person: Person, where: Where, first: str, second: str) -> None:
        """Deliver `second` first. Deliver `first` when the gateway has accepted `second`."""
        self._lacks("another order")

    # Failures

    def limit_next(self) -> None:
        """Refuse the next message because of a rate limit."""
        self._lacks("limits")

    def was_limited(self) -> bool:
        """Return whether a message was refused because of the rate limit."""
        self._lacks("limits")

    def swallow_next(self) -> None:
        """Accept the next message, but never confirm it."""
        self._lacks("answers that get lost")

    def has_swallowed(self) -> bool:
        self._lacks("answers that get lost")

    def go_down(self) -> None:
        self._lacks("absences")

    def come_back(self) -> None:
        self._lacks("absences")

    # Results

    @abstractmethod
    def heard(self, where: Where) -> list[str]:
        """Return the messages of the agent in a chat, in order, each in its current state."""

    def session_id(self, where: Where) -> str | None:
        """Return the session id that the platform has reported for `where`, or None if it reports no session
        ids."""
        return None

    @abstractmethod
    def close(self) -> None: ...

    def _lacks(self, what: str) -> NoReturn:
        raise AssertionError(f"there are no {what} on {self.platform}: a scenario did not say what it needs")


def until(condition: Callable[[], T], what: Callable[[], object] = lambda: "") -> T:
    """Wait until `condition` returns a true value, and return that value. On a timeout, `what` is printed."""
    patience = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > patience:
            raise AssertionError(f"it did not come to be: {what()}")
        time.sleep(0.01)
    return found


class Loop:
    """An event loop in a separate thread, for servers and clients that need an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * PATIENCE_S)

    def call(self, work: Callable[[], T]) -> T:
        """Call a plain function in the thread of the loop."""

        async def called() -> T:
            return work()

        return self.run(called())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
