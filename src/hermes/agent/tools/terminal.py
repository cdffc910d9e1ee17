"""`terminal`: run a command in a shell. What could destroy something is asked about first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from hermes.agent.approvals.request import ApprovalRequest
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools.checking import checked, objects, text_field
from hermes.agent.tools.dangers import dangers_of
from hermes.agent.tools.files import LONGEST_PATH, place
from hermes.agent.tools.processes import Processes, conversation_of
from hermes.agent.tools.running import PATIENCE_S, Output, Running, how_it_ended

TIMEOUT_S, LONGEST_S = 120, 600
HEAD, TAIL = 20_000, 20_000
LONGEST_COMMAND = 20_000
LOOK_S = 0.1
LINGER_S = 0.3
"""How long what a command started may hold its output open once it has ended, before it counts as a process."""


class End(NamedTuple):
    why: str = ""
    """If not by itself."""
    lingers: bool = False
    """The shell has ended, and something that it started goes on."""


class Terminal:
    name = "terminal"
    description = (
        "Run a shell command in the working directory and get what it printed and its exit code. It has no keyboard:"
        " pass flags instead of answering questions. A command that outlasts its timeout is ended with all that it"
        " started; for servers and long work use `background`, and look at them with the tool `process`. Destructive"
        " commands are shown to the person first, who may refuse. Prefer read_file, write_file, patch and"
        " search_files for files."
    )
    parameters: Mapping[str, Any] = objects(
        ["command"],
        command=text_field("What to run, as for a shell.", LONGEST_COMMAND, 1),
        timeout={
            "type": "integer",
            "minimum": 1,
            "maximum": LONGEST_S,
            "description": f"Seconds that it may take, {TIMEOUT_S} if not said.",
        },
        background={"type": "boolean", "description": "Let it run on, and get an id for the tool `process`."},
        folder=text_field("Where to run it, if not in the working directory.", LONGEST_PATH, 1),
    )

    def __init__(self, processes: Processes, *, ask: bool = True) -> None:
        """`ask`: whether a person is asked before something destructive (`approvals.mode`)."""
        self._processes, self._ask = processes, ask

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        given = checked(self.parameters, arguments)
        command: str = given["command"]
        if "\0" in command:
            raise ToolFailed("the command holds a NUL character, which no shell takes")
        folder = place(given.get("folder", "."), context)
        if not folder.is_dir():
            raise ToolFailed(f"there is no folder {folder}")
        await self._asked(command, context)
        conversation = await asyncio.to_thread(conversation_of, context.db, context.session_id)
        if given.get("background"):
            made = self._processes.start(conversation, command, folder)
            return f"started in the background as {made.name} (process {made.running.pid})"
        running = Running(command, folder, Output(HEAD, TAIL))
        try:
            end = await _end_of(running, given.get("timeout", TIMEOUT_S), context.stop)
        except asyncio.CancelledError:
            if not running.over:
                running.signal(signal.SIGKILL)
            raise
        output, told = running.output.since(0)
        state = end.why or how_it_ended(running.exit_code)
        if end.lingers:
            made = self._processes.adopt(conversation, running)
            made.told = told
            state += f"; what it started goes on in the background as {made.name}"
        return f"{output}\n[{state}]".lstrip("\n")

    async def _asked(self, command: str, context: ToolContext) -> None:
        """The person agrees, or `ToolFailed`."""
        why = dangers_of(command) if self._ask else []
        if not why:
            return
        decision = await context.approve(ApprovalRequest(command, "; ".join(why)))
        if not decision.allowed:
            because = f" ({decision.note})" if decision.note else ""
            raise ToolFailed(
                f"the person did not allow this command{because}, which {' and '.join(why)}. Do not try the same in"
                " other words: find another way, or ask."
            )


async def _end_of(running: Running, timeout: int, stop: asyncio.Event) -> End:
    """Wait for the end of a command, and see to it that there is one."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    running.when_over(lambda: _tell(loop, over))
    shell_ended: float | None = None
    waiting = [asyncio.create_task(over.wait()), asyncio.create_task(stop.wait())]
    try:
        while not running.over:
            await asyncio.wait(waiting, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                await _kill(running, over)
                return End("the person stopped the turn; it was ended with all that it started")
            if shell_ended is None and running.shell_over:
                shell_ended = running.seconds
            if shell_ended is not None and running.seconds - shell_ended > LINGER_S:
                return End(lingers=True)
            if running.seconds > timeout and shell_ended is None:
                await _kill(running, over)
                return End(f"not done after {timeout} seconds; it was ended with all that it started")
        return End()
    finally:
        for task in waiting:
            task.cancel()


async def _kill(running: Running, over: asyncio.Event) -> None:
    """Ask, then make; it is made to even if nobody waits for this any longer."""
    running.signal(signal.SIGTERM)
    try:
        await _at_most(over, PATIENCE_S)
    finally:
        running.signal(signal.SIGKILL)
    await _at_most(over, PATIENCE_S)


async def _at_most(over: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(over.wait(), seconds)
    except TimeoutError:
        pass


def _tell(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(over.set)
    except RuntimeError:  # that loop has ended meanwhile; nobody waits
        pass
