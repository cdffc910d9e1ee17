"""`memory`: keep something for the conversations to come."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hermes.agent.memory import BUDGETS, Memory, Remembered
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools.checking import checked, objects, text_field

ACTIONS = ("add", "replace", "remove", "read")
LONGEST = max(BUDGETS.values())


class MemoryTool:
    name = "memory"
    description = (
        "Remember across conversations. `user` is about the person: who they are, what they prefer, how they want to be"
        " answered. `memory` is about the work: facts of the environment and the projects, conventions, what was"
        " learned the hard way. Keep what will still matter in a month, short, one thing in each entry; not what is in"
        " the conversation anyway, and never a secret. A change is seen from the next session on. To replace or remove,"
        " pass a piece of the entry's text as `old_text`."
    )
    parameters: Mapping[str, Any] = objects(
        ["action", "target"],
        action={"type": "string", "enum": list(ACTIONS), "description": "What to do."},
        target={"type": "string", "enum": list(BUDGETS), "description": "Which of the two."},
        content=text_field("The entry, for add and replace.", LONGEST, 1),
        old_text=text_field("A piece of the entry that is meant, for replace and remove.", LONGEST, 1),
    )

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        given = checked(self.parameters, arguments)
        return await asyncio.to_thread(self._done, given)

    def _done(self, given: dict[str, Any]) -> str:
        action, target = given["action"], given["target"]
        needed = {"add": ("content",), "replace": ("old_text", "content"), "remove": ("old_text",)}
        for key in needed.get(action, ()):
            if key not in given:
                raise ToolFailed(f"to {action}, {key} is needed")
        if action == "add":
            return f"kept; {_fullness(self._memory.add(target, given['content']))}"
        if action == "replace":
            made = self._memory.replace(target, given["old_text"], given["content"])
            return f"replaced; {_fullness(made)}"
        if action == "remove":
            return f"removed; {_fullness(self._memory.remove(target, given['old_text']))}"
        there = self._memory.read(target)
        return f"{_fullness(there)}\n{there.text}" if there.entries else f"{target} is empty"


def _fullness(made: Remembered) -> str:
    return f"{made.target} holds {made.fullness}"
