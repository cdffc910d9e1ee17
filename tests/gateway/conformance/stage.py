"""What a platform is to the scenarios: where people act, and where it shows what they were answered.

A stage is the platform's side: its server, and the people on it. It knows nothing of the gateway, which is told by its
environment and its `config.yaml` how to get there, as an operator would tell it.
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

# What not every platform has. A scenario that needs something is generated for those that have it.
GROUPS = "groups"
THREADS = "threads"
EDITS = "edits"
STRANGERS = "strangers"
"""People who are not let in."""
PAIRING = "pairing"
LATER = "later"
"""An answer finds its way whoever waits for it, also after a restart."""
TWICE = "twice"
"""A message may come twice, and messages in another order than they were sent."""
LIMITS = "limits"
RECONNECTS = "reconnects"
"""It can be away for a while."""
SWALLOWS = "swallows"
"""It can be that something arrived, and that nobody says so."""
COMMANDS = "commands"
FILES = "files"
"""Files of any kind; pictures are taken everywhere."""
ASKS_AGAIN = "asks again"
"""Who waits for an answer and is cut off asks once more, by themselves."""
PREVIEWS = "previews"
"""An answer can be seen as it comes."""


class Where(NamedTuple):
    """A chat, or a thread of one, by the platform's own ids."""

    kind: str
    chat: str
    thread: str | None = None


class Person(NamedTuple):
    id: str
    name: str
    known: bool = True
    """Whether the operator let them in."""


class File(NamedTuple):
    name: str
    media_type: str
    content: bytes


Said = Any
"""What somebody said, for the stage to know it by."""


class Stage(ABC):
    """What a platform lacks it need not have here: no scenario asks for it (see `can`)."""

    platform: str
    can: frozenset[str]
    max_length: int
    """How long one message may be there."""
    idempotent: bool
    """Whether what is sent twice is shown once."""

    @property
    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """What the operator sets to connect it."""

    @property
    @abstractmethod
    def config(self) -> Mapping[str, Any]:
        """What stands below `platforms.<name>` in config.yaml."""

    # Who is there

    @abstractmethod
    def person(self, name: str, *, known: bool = True) -> Person: ...

    @abstractmethod
    def dm(self, person: Person) -> Where: ...

    def group(self, *people: Person, threads: bool = False) -> Where:
        """A group of these, in which threads can be opened if that is wanted."""
        self._lacks("groups")

    def thread(self, group: Where, by: Person) -> Where:
        self._lacks("threads")

    # What they do. Each returns when the platform has it, not when the gateway does.

    @abstractmethod
    def say(self, person: Person, where: Where, text: str, *files: File) -> Said: ...

    def edit(self, said: Said, text: str) -> None:
        self._lacks("changes")

    def deliver_again(self, said: Said) -> None:
        self._lacks("second deliveries")

    def deliver_reversed(self, person: Person, where: Where, first: str, second: str) -> None:
        """The second is delivered, and only when the gateway has taken it, the first."""
        self._lacks("another order")

    # What goes wrong

    def limit_next(self) -> None:
        """The next message is refused: too much at once."""
        self._lacks("limits")

    def was_limited(self) -> bool:
        """Whether that has happened."""
        self._lacks("limits")

    def swallow_next(self) -> None:
        """The next message is taken, and that is never said."""
        self._lacks("answers that get lost")

    def has_swallowed(self) -> bool:
        self._lacks("answers that get lost")

    def go_down(self) -> None:
        self._lacks("absences")

    def come_back(self) -> None:
        self._lacks("absences")

    # What is seen

    @abstractmethod
    def heard(self, where: Where) -> list[str]:
        """What the agent shows there, in order, each message as it is now."""

    def session_id(self, where: Where) -> str | None:
        """Where there are no chats, people are told in which session they are. Else None."""
        return None

    @abstractmethod
    def close(self) -> None: ...

    def _lacks(self, what: str) -> NoReturn:
        raise AssertionError(f"there are no {what} on {self.platform}: a scenario did not say what it needs")


def until(condition: Callable[[], T], what: Callable[[], object] = lambda: "") -> T:
    """Wait until something is so; what it was. `what` is shown if it never is."""
    patience = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > patience:
            raise AssertionError(f"it did not come to be: {what()}")
        time.sleep(0.01)
    return found


class Loop:
    """An event loop in a thread of its own, for servers and clients that need one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * PATIENCE_S)

    def call(self, work: Callable[[], T]) -> T:
        """A plain function, called where the loop is."""

        async def called() -> T:
            return work()

        return self.run(called())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
