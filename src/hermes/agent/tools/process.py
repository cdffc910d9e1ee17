"""`process`: look after what `terminal` started in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any

from hermes.agent.tool import ToolContext, ToolFailed, bounded
from hermes.agent.tools.argument_check import checked, objects, text_field
from hermes.agent.tools.background_processes import Background, Processes, conversation_of
from hermes.agent.tools.running_command import how_it_ended
from hermes.text import printable

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
    parameters: Mapping[str, Any] = objects(
        ["action"],
        action={"type": "string", "enum": list(ACTIONS), "description": "What to do."},
        id=text_field("Which one, for all but list: the id that `terminal` gave.", 40, 1),
        timeout={
            "type": "integer",
            "minimum": 1,
            "maximum": LONGEST_S,
            "description": f"Seconds to wait at most, {WAIT_S} if not said.",
        },
    )

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        given = checked(self.parameters, arguments)
        conversation = await asyncio.to_thread(conversation_of, context.db, context.session_id)
        if given["action"] == "list":
            lines = [_line(one) for one in self._processes.of(conversation)]
            return "\n".join(lines) or "there are no background processes in this conversation"
        if "id" not in given:
            raise ToolFailed(f"to {given['action']}, say which: id is missing")
        one = self._processes.named(conversation, given["id"].strip())
        if given["action"] == "wait":
            await _until_over(one, given.get("timeout", WAIT_S), context.stop)
        elif given["action"] == "kill":
            await asyncio.to_thread(one.running.kill)
        return f"{_line(one)}\n{bounded(one.news(), SHOWN) or NOTHING}"


def _line(one: Background) -> str:
    running = one.running
    state = how_it_ended(running.exit_code) if running.over else "running"
    return f"{one.name}  {state}  {running.seconds:.0f} s  {printable(running.command, width_limit=80)}"


async def _until_over(one: Background, seconds: float, stop: asyncio.Event) -> None:
    until = monotonic() + seconds
    while not one.running.over and not stop.is_set() and monotonic() < until:
        await asyncio.sleep(LOOK_S)
