"""`process`: list, poll, await and end the background processes that `terminal` started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any

from hermes.agent.tool import ToolContext, ToolFailed, find_conversation_root, shorten_middle
from hermes.agent.tools.argument_check import check_arguments, make_object_schema, make_text_field
from hermes.agent.tools.background_processes import BackgroundProcess, BackgroundProcesses
from hermes.agent.tools.running_command import format_exit
from hermes.text import make_printable

ACTIONS = ("list", "poll", "wait", "kill")
WAIT_S, LONGEST_S = 60, 600
LOOK_S = 0.1
SHOWN = 40_000
NOTHING = "(nothing new was printed)"


class Process:
    name = "process"
    description = (
        "Background processes of this conversation. `list` names them; `poll` gives what one has printed since the"
        " last look; `wait` does so once it has ended or the timeout is over; `kill` ends it with all that it started."
    )
    parameters: Mapping[str, Any] = make_object_schema(
        ["action"],
        action={"type": "string", "enum": list(ACTIONS), "description": "What to do."},
        id=make_text_field("Which one, for all but list: the id that `terminal` gave.", 40, 1),
        timeout={
            "type": "integer",
            "minimum": 1,
            "maximum": LONGEST_S,
            "description": f"The maximum number of seconds to wait; default {WAIT_S}.",
        },
    )

    def __init__(self, processes: BackgroundProcesses) -> None:
        self._processes = processes

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        checked = check_arguments(self.parameters, arguments)
        conversation = await asyncio.to_thread(find_conversation_root, context.db, context.session_id)
        if checked["action"] == "list":
            lines = [_format_process(process) for process in self._processes.list_for(conversation)]
            return "\n".join(lines) or "there are no background processes in this conversation"
        if "id" not in checked:
            raise ToolFailed(f"id is missing; {checked['action']} needs the id of a process")
        process = self._processes.get_process(conversation, checked["id"].strip())
        if checked["action"] == "wait":
            await _wait_until_over(process, checked.get("timeout", WAIT_S), context.stop)
        elif checked["action"] == "kill":
            await asyncio.to_thread(process.running.kill)
        return f"{_format_process(process)}\n{shorten_middle(process.take_output(), SHOWN) or NOTHING}"


def _format_process(process: BackgroundProcess) -> str:
    running = process.running
    state = format_exit(running.exit_code) if running.over else "running"
    return (
        f"{process.name}  {state}  {running.seconds:.0f} s  {make_printable(running.command, width_limit=80)}"
    )


async def _wait_until_over(process: BackgroundProcess, seconds: float, stop: asyncio.Event) -> None:
    until = monotonic() + seconds
    while not process.running.over and not stop.is_set() and monotonic() < until:
        await asyncio.sleep(LOOK_S)
