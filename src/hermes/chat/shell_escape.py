"""`! command`: runs a command in the person's shell, without leaving the terminal conversation.

The model does not see the command. With `!! command`, the model receives the command and its output together
with the next message.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from hermes.agent.tools.running_command import Output
from hermes.chat.input import quiet_keyboard
from hermes.recall.tool.prompt_safety import fence_text, to_one_line
from hermes.store.processes import find_start, is_gone, list_descendants
from hermes.text import format_size, make_readable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat

CHUNK = 65_536
HEAD, TAIL = 30_000, 20_000
"""How many bytes of an output the model gets, from its beginning and from its end."""
LONGEST_LABEL = 300
ENDS_WITHIN_S, POLL_S = 2.0, 0.02
"""Applies when the terminal program ends: how long a running command may take to end before it is killed, and how often
this is checked."""
_LINE = re.compile(r"(?P<mark>!!?)(?P<command>|[ \t][^\r\n]*|[\w./~$'\"-][^\r\n]*)")
USAGE = "! command runs a command in your shell. !! command also gives its output to the model."


class ShellCommand(NamedTuple):
    command: str
    is_shared: bool
    """Whether the model gets the output."""


def parse_shell_command(typed: str) -> ShellCommand | None:
    """Return the command of a line that begins with `!`, followed by a space or a word; None for any other
    line.

    `![picture](address)`, a text that begins with a space, and a text of several lines are messages, not
    commands.
    """
    found = _LINE.fullmatch(typed)
    return None if found is None else ShellCommand(found["command"].strip(), found["mark"] == "!!")


async def run_shell_command(chat: Chat, shell: ShellCommand) -> None:
    """Run a command and show its output. Ctrl-C stops the command."""
    if not shell.command:
        chat.screen.print_note(USAGE)
        return
    output = Output(HEAD, TAIL)
    is_direct = not shell.is_shared and chat.screen.console.is_terminal and sys.stdin.isatty()
    began = monotonic()
    with quiet_keyboard.restore_echo():
        try:
            process = await asyncio.create_subprocess_exec(
                os.environ.get("SHELL") or "/bin/sh",
                "-c",
                shell.command,
                cwd=chat.conversation.cwd,
                stdin=None if sys.stdin.isatty() else asyncio.subprocess.DEVNULL,
                stdout=None if is_direct else asyncio.subprocess.PIPE,
                stderr=None if is_direct else asyncio.subprocess.STDOUT,
            )
        except OSError as problem:
            chat.screen.print_problem(f"the command could not be started: {problem.strerror}")
            return
        try:
            with chat.handle_interrupts(_make_stop(process)):
                if process.stdout is not None:
                    await _show_output(chat, process.stdout, output)
                code = await process.wait()
        finally:
            if process.returncode is None:  # the terminal program ends
                await _end_command(process)
                chat.screen.print_note("Ended the running command, because the chat ends.")
    state = f"exit code {code}" if code >= 0 else f"ended by signal {-code}"
    chat.screen.print_note(f"{state} · {monotonic() - began:.1f}s")
    if shell.is_shared:
        label = to_one_line(shell.command, LONGEST_LABEL)
        chat.quoted.append(f"[output of {label}, {state}]\n{fence_text(output.text())}")
        chat.screen.print_note(
            f"The model gets this output ({format_size(output.total)}) with your next message."
        )


def _make_stop(process: asyncio.subprocess.Process) -> Callable[[], None]:
    """Return a handler for Ctrl-C while a shell command of the person runs. The handler does nothing on the
    first Ctrl-C, because the terminal already sends it to the command. On the second, it terminates the shell
    of the command with SIGTERM. On each later one, it kills the shell with SIGKILL."""
    pressed = 0

    def stop() -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1 and process.returncode is None:
            process.terminate() if pressed == 2 else process.kill()

    return stop


async def _end_command(process: asyncio.subprocess.Process) -> None:
    """End the command and all its descendants with SIGTERM, then with SIGKILL.

    Each process is signalled separately. The command has no process group of its own, because it must be able
    to use the terminal.
    """
    started = {pid: find_start(pid) for pid in (process.pid, *list_descendants(process.pid))}

    def signal_running(number: int) -> bool:
        """Send the signal `number` to each process that still runs. Return whether any process still runs."""
        host = os.uname().nodename
        running = [pid for pid, start in started.items() if not is_gone(host, pid, start)]
        for pid in running:
            with suppress(OSError):
                os.kill(pid, number)
        return bool(running)

    try:
        signal_running(signal.SIGTERM)
        deadline = monotonic() + ENDS_WITHIN_S
        while signal_running(0) and monotonic() < deadline:
            await asyncio.sleep(POLL_S)
    finally:  # also if a second signal ends the program
        signal_running(signal.SIGKILL)


async def _show_output(chat: Chat, stream: asyncio.StreamReader, output: Output) -> None:
    """Print the output of the command as it arrives, without control characters."""
    decoder, file = codecs.getincrementaldecoder("utf-8")("replace"), chat.screen.console.file
    last = "\n"
    while True:
        chunk = await stream.read(CHUNK)
        output.add(chunk)
        text = make_readable(decoder.decode(chunk, final=not chunk))
        file.write(text)
        file.flush()
        last = text[-1:] or last
        if not chunk:
            break
    if last != "\n":
        file.write("\n")
