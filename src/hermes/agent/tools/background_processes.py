"""Background processes of tools. Each process belongs to the conversation that started it.

The output of a process is kept up to a limit. All processes are ended when the program ends, so that none
keeps running unnoticed.
"""

from __future__ import annotations

import atexit
import threading
from pathlib import Path

from hermes.agent.tool import ToolFailed
from hermes.agent.tools.running_command import Output, RunningCommand

MOST_AT_ONCE = 16
MOST_REMEMBERED = 64
KEPT = 200_000
"""The number of bytes of output that are kept per process. Older output is dropped."""


class BackgroundProcess:
    def __init__(self, name: str, conversation: str, running: RunningCommand) -> None:
        self.name, self.conversation, self.running = name, conversation, running
        self.reported = 0
        """The number of output bytes that the model has received."""

    def take_output(self) -> str:
        """Return the output that the process wrote since the last call of this method."""
        text, self.reported = self.running.output.since(self.reported)
        return text


class BackgroundProcesses:
    def __init__(self) -> None:
        self._known: dict[str, BackgroundProcess] = {}
        self._started = 0
        self._lock = threading.Lock()
        atexit.register(self.close)

    def start(
        self, conversation: str, command: str, program: list[str], folder: Path, environment: dict[str, str]
    ) -> BackgroundProcess:
        active = [process for process in self._known.values() if not process.running.over]
        if len(active) >= MOST_AT_ONCE:
            raise ToolFailed(f"{len(active)} background processes are running; end one of them first")
        running = RunningCommand(command, program, folder, environment, Output(0, KEPT))
        with self._lock:
            self._started += 1
            made = BackgroundProcess(f"p{self._started}", conversation, running)
            self._known[made.name] = made
            over = [background.name for background in self._known.values() if background.running.over]
            for name in over[: max(0, len(self._known) - MOST_REMEMBERED)]:
                del self._known[name]
        return made

    def list_for(self, conversation: str) -> list[BackgroundProcess]:
        return [process for process in list(self._known.values()) if process.conversation == conversation]

    def list_running(self) -> list[str]:
        """Return the commands of the processes that are running, in any conversation."""
        known = list(self._known.values())
        return [process.running.command for process in known if not process.running.over]

    def get_process(self, conversation: str, name: str) -> BackgroundProcess:
        """Return a process of this conversation. Processes of other conversations are not found."""
        mine = {process.name: process for process in self.list_for(conversation)}
        if name not in mine:
            there_are = f"there are {', '.join(mine)}" if mine else "there are none"
            raise ToolFailed(f"there is no background process {name[:40]!r}; {there_are}")
        return mine[name]

    def close(self) -> None:
        """End all processes."""
        atexit.unregister(self.close)
        active = [process.running for process in self._known.values() if not process.running.over]
        ending = [threading.Thread(target=running.kill) for running in active]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()
