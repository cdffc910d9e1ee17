"""Processes that go on in the background, each known to the conversation that started it, none of them for ever.

What they print is kept within bounds. When the program ends they are ended, so that nothing runs that nobody knows of.
"""

from __future__ import annotations

import atexit
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.agent.tool import ToolFailed
from hermes.agent.tools.running_command import Output, Running

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore

MOST_AT_ONCE = 16
MOST_REMEMBERED = 64
KEPT = 200_000
"""Bytes of output of each that are kept, the latest ones."""


class Background:
    def __init__(self, name: str, conversation: str, running: Running) -> None:
        self.name, self.conversation, self.running = name, conversation, running
        self.told = 0
        """How many bytes of its output the model has been given."""

    def news(self) -> str:
        """What it has printed since this was asked last."""
        text, self.told = self.running.output.since(self.told)
        return text


class Processes:
    def __init__(self) -> None:
        self._known: dict[str, Background] = {}
        self._started = 0
        self._lock = threading.Lock()
        atexit.register(self.close)

    def start(
        self, conversation: str, command: str, program: list[str], folder: Path, environment: dict[str, str]
    ) -> Background:
        active = [process for process in self._known.values() if not process.running.over]
        if len(active) >= MOST_AT_ONCE:
            raise ToolFailed(f"{len(active)} background processes are running; end one of them first")
        running = Running(command, program, folder, environment, Output(0, KEPT))
        with self._lock:
            self._started += 1
            made = Background(f"p{self._started}", conversation, running)
            self._known[made.name] = made
            over = [one.name for one in self._known.values() if one.running.over]
            for name in over[: max(0, len(self._known) - MOST_REMEMBERED)]:
                del self._known[name]
        return made

    def of(self, conversation: str) -> list[Background]:
        return [one for one in list(self._known.values()) if one.conversation == conversation]

    def named(self, conversation: str, name: str) -> Background:
        """That of this conversation; those of others do not exist."""
        mine = {one.name: one for one in self.of(conversation)}
        if name not in mine:
            there_are = f"there are {', '.join(mine)}" if mine else "there are none"
            raise ToolFailed(f"there is no background process {name[:40]!r}; {there_are}")
        return mine[name]

    def close(self) -> None:
        """End them all."""
        atexit.unregister(self.close)
        active = [one.running for one in self._known.values() if not one.running.over]
        ending = [threading.Thread(target=running.kill) for running in active]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()


def conversation_of(db: AnyStore, session_id: str) -> str:
    """What a process belongs to: the conversation, which a compression carries on in another session."""
    return db.get_conversation_root(session_id) or session_id
