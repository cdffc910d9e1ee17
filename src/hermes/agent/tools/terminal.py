"""`terminal`: run a command in a shell, inside a sandbox if one is available."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes.agent.approvals.policy import Policy, Refused, Walls
from hermes.agent.sandbox.sandbox import make_outside_command
from hermes.agent.tool import ToolContext, ToolFailed, find_conversation_root
from hermes.agent.tools.access import Access
from hermes.agent.tools.argument_check import check_arguments, make_object_schema, make_text_field
from hermes.agent.tools.background_processes import BackgroundProcesses
from hermes.agent.tools.files import LONGEST_PATH, locate
from hermes.agent.tools.running_command import PATIENCE_S, Output, RunningCommand, format_exit

TIMEOUT_S, LONGEST_S = 120, 600
HEAD, TAIL = 20_000, 20_000
LONGEST_COMMAND = 20_000
LONGEST_REASON = 300
LOOK_S = 0.1
LINGER_S = 1.0
"""How long the output may stay open after the shell has ended. After that, the processes that keep it open
are killed."""
DENIALS = ("Permission denied", "Read-only file system", "Operation not permitted", "Could not resolve host")
"""Messages that programs print if the sandbox denies an operation."""
HINT = "[it ran in the sandbox; if it must reach something outside, run it again with `outside` saying what]"


class Terminal:
    name = "terminal"
    description = (
        "Run a shell command in the working directory and get what it printed and its exit code. It runs in a sandbox:"
        " the workspace and $TMPDIR can be written, the rest of the person's files cannot be seen. Commands that only"
        " read run at once; others may be shown to the person first, who may refuse. A command that must reach"
        " something outside says what in `outside`, which is always asked. It has no keyboard: pass flags instead of"
        " answering questions. What a command leaves running ends with it; for servers and long work use `background`,"
        " and look at them with the tool `process`. Prefer read_file, write_file, patch and search_files for files."
    )
    parameters: Mapping[str, Any] = make_object_schema(
        ["command"],
        command=make_text_field("The shell command.", LONGEST_COMMAND, 1),
        timeout={
            "type": "integer",
            "minimum": 1,
            "maximum": LONGEST_S,
            "description": f"The time limit in seconds; default {TIMEOUT_S}.",
        },
        background={
            "type": "boolean",
            "description": "Run it in the background, and return an id for the tool `process`.",
        },
        folder=make_text_field("The folder to run it in; default: the working directory.", LONGEST_PATH, 1),
        outside=make_text_field(
            "Run it without the sandbox: what it needs to reach, for the person who decides.",
            LONGEST_REASON,
            1,
        ),
    )

    def __init__(self, processes: BackgroundProcesses, access: Access) -> None:
        self._processes, self._access = processes, access

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        checked = check_arguments(self.parameters, arguments)
        command: str = checked["command"]
        if "\0" in command:
            raise ToolFailed("the command contains a NUL character")
        policy = await asyncio.to_thread(self._access.policy_of, context)
        folder = locate(checked.get("folder", "."), context, policy)
        if not folder.is_dir():
            raise ToolFailed(f"there is no folder {folder}")
        reach = checked.get("outside")
        if not policy.view.can_read(folder) and policy.sandbox.is_there and reach is None:
            raise ToolFailed(
                f"{folder} is outside the sandbox; run it with `outside` saying why it must be there"
            )
        walls = await _check_command(command, policy, context, reach, folder)
        program = self._access.shell_program(command)
        if walls:
            only_reads = walls is Walls.READ_ONLY
            network = self._access.settings.network and not only_reads
            program = policy.sandbox.start(program, folder, network=network, read_only=only_reads)
        else:
            program = make_outside_command(program)
        environment = self._access.environment()
        conversation = await asyncio.to_thread(find_conversation_root, context.db, context.session_id)
        if checked.get("background"):
            made = self._processes.start(conversation, command, program, folder, environment)
            return f"started in the background as {made.name} (process {made.running.pid})"
        running = RunningCommand(command, program, folder, environment, Output(HEAD, TAIL))
        try:
            problem = await _wait_for_end(running, checked.get("timeout", TIMEOUT_S), context.stop)
        except asyncio.CancelledError:
            await _kill(running)
            raise
        output = running.output.text()
        lines = [output] if output else []
        if walls and running.exit_code and any(denial in output for denial in DENIALS):
            lines.append(HINT)
        return "\n".join([*lines, f"[{problem or format_exit(running.exit_code)}]"])


async def _check_command(
    command: str, policy: Policy, context: ToolContext, reach: str | None, folder: Path
) -> Walls:
    """Return the isolation of a command. Raise `ToolFailed` if it must not run."""
    try:
        return await policy.check_command(command, context.approve, outside=reach, folder=folder)
    except Refused as refusal:
        raise ToolFailed(str(refusal)) from None


async def _wait_for_end(running: RunningCommand, timeout: int, stop: asyncio.Event) -> str:
    """Wait until a command ends. End it at the time limit, or when the turn is stopped.

    Return why it was ended; empty if it ended by itself.
    """
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    running.call_when_over(lambda: _signal_over(loop, over))
    shell_ended: float | None = None
    waiting = [asyncio.create_task(over.wait()), asyncio.create_task(stop.wait())]
    try:
        while not running.over:
            await asyncio.wait(waiting, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                await _kill(running)
                return "the person stopped the turn; the command and its child processes were ended"
            if shell_ended is None and running.is_shell_over:
                shell_ended = running.seconds
            if shell_ended is not None and running.seconds - shell_ended > LINGER_S:
                await _kill(running)
                return format_exit(running.exit_code)
            if running.seconds > timeout and shell_ended is None:
                await _kill(running)
                return (
                    f"not finished within {timeout} seconds; the command and its child processes were ended"
                )
        return ""
    finally:
        for task in waiting:
            task.cancel()


async def _kill(running: RunningCommand) -> None:
    """End a command with SIGTERM, then with SIGKILL. SIGKILL is sent even if this task is cancelled."""
    running.signal(signal.SIGTERM)
    try:
        await asyncio.to_thread(running.wait, PATIENCE_S)
    finally:
        running.signal(signal.SIGKILL)
    await asyncio.to_thread(running.wait, PATIENCE_S)


def _signal_over(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(over.set)
    except RuntimeError:  # the event loop has ended, so no task waits
        pass
