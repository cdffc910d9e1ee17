"""`memory`: keep something for the conversations to come."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.agent.prompt.memory_files import BETWEEN, BUDGETS, Memory, Remembered
from hermes.agent.prompt.participants import UNKNOWN, Speaker, attribute
from hermes.agent.prompt.room_memory import RoomMemory
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools.argument_check import checked, objects, text_field
from hermes.recall.tool.prompt_safety import fenced

ACTIONS = ("add", "replace", "remove", "read")
LONGEST = max(BUDGETS.values())


ALONE = (
    "Remember across conversations. `user` is about the person: who they are, what they prefer, how they want to be"
    " answered. `memory` is about the work: facts of the environment and the projects, conventions, what was"
    " learned the hard way. Keep what will still matter in a month, short, one thing in each entry; not what is in"
    " the conversation anyway, and never a secret. A change is seen from the next session on. To replace or remove,"
    " pass a piece of the entry's text as `old_text`."
)
IN_A_ROOM = (
    "Keep notes of this room across conversations; everybody here sees them. `user` is about whoever speaks now: what"
    " they prefer, how they want to be answered. `memory` is about the work of this room. The program adds whose word"
    " it is, by who speaks in this turn. Note only what a person says for themselves, not what one says about another."
    " Keep what will still matter in a month, short, one thing in each entry, on one line; never a secret. A change is"
    " seen from the next session on. To replace or remove, pass a piece of the entry's text as `old_text`; people can"
    " have only their own entries changed."
)


class MemoryTool:
    name = "memory"
    parameters: Mapping[str, Any] = objects(
        ["action", "target"],
        action={"type": "string", "enum": list(ACTIONS), "description": "What to do."},
        target={"type": "string", "enum": list(BUDGETS), "description": "Which of the two."},
        content=text_field("The entry, for add and replace.", LONGEST, 1),
        old_text=text_field("A piece of the entry that is meant, for replace and remove.", LONGEST, 1),
    )

    def __init__(self, memory: Memory, *, shared: bool = False) -> None:
        """`shared`: it is the memory of a room that several people share."""
        self._memory, self._shared = memory, shared
        self._room = RoomMemory(memory)
        self.description = IN_A_ROOM if shared else ALONE

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        given = checked(self.parameters, arguments)
        _demand_arguments(given)
        if not self._shared:
            return await asyncio.to_thread(self._change, given)
        speakers = [UNKNOWN] if context.speakers is None else await context.speakers()
        return await asyncio.to_thread(self._change_room, given, speakers)

    def _change(self, given: dict[str, Any]) -> str:
        action, target = given["action"], given["target"]
        if action == "add":
            return f"kept; {_fullness(self._memory.add(target, given['content']))}"
        if action == "replace":
            made = self._memory.replace(target, given["old_text"], given["content"])
            return f"replaced; {_fullness(made)}"
        if action == "remove":
            return f"removed; {_fullness(self._memory.remove(target, given['old_text']))}"
        return _read(self._memory.read(target))

    def _change_room(self, given: dict[str, Any], speakers: Sequence[Speaker]) -> str:
        action, target = given["action"], given["target"]
        whose = attribute(speakers)
        if action == "add":
            made = self._room.add(target, given["content"], speakers)
            return f"kept as the word of {whose}; {_fullness(made)}"
        if action == "replace":
            made = self._room.replace(target, given["old_text"], given["content"], speakers)
            return f"replaced, as the word of {whose}; {_fullness(made)}"
        if action == "remove":
            return f"removed; {_fullness(self._room.remove(target, given['old_text'], speakers))}"
        return _read(self._room.read(target), "\n")


def _demand_arguments(given: dict[str, Any]) -> None:
    needed = {"add": ("content",), "replace": ("old_text", "content"), "remove": ("old_text",)}
    for key in needed.get(given["action"], ()):
        if key not in given:
            raise ToolFailed(f"to {given['action']}, {key} is needed")


def _read(there: Remembered, between: str = BETWEEN) -> str:
    if not there.entries:
        return f"{there.target} is empty"
    return f"{_fullness(there)}\n{fenced(between.join(there.entries))}"


def _fullness(made: Remembered) -> str:
    return f"{made.target} holds {made.fullness}"
