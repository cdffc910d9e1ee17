"""`memory`: save facts for later conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.agent.prompt.memory_files import BETWEEN, BUDGETS, Memory, MemoryContent
from hermes.agent.prompt.participants import UNKNOWN, Speaker, attribute
from hermes.agent.prompt.room_memory import RoomMemory
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools.argument_check import check_arguments, make_object_schema, make_text_field
from hermes.recall.tool.prompt_safety import fence_text

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
    parameters: Mapping[str, Any] = make_object_schema(
        ["action", "target"],
        action={"type": "string", "enum": list(ACTIONS), "description": "What to do."},
        target={"type": "string", "enum": list(BUDGETS), "description": "Which of the two memories."},
        content=make_text_field("The entry, for add and replace.", LONGEST, 1),
        old_text=make_text_field("A piece of the text of the entry, for replace and remove.", LONGEST, 1),
    )

    def __init__(self, memory: Memory, *, shared: bool = False) -> None:
        """`shared`: whether the memory belongs to a room that several people share."""
        self._memory, self._shared = memory, shared
        self._room = RoomMemory(memory)
        self.description = IN_A_ROOM if shared else ALONE

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        checked = check_arguments(self.parameters, arguments)
        _demand_arguments(checked)
        if not self._shared:
            return await asyncio.to_thread(self._change, checked)
        speakers = [UNKNOWN] if context.speakers is None else await context.speakers()
        return await asyncio.to_thread(self._change_room, checked, speakers)

    def _change(self, arguments: dict[str, Any]) -> str:
        action, target = arguments["action"], arguments["target"]
        if action == "add":
            return f"kept; {_format_fullness(self._memory.add(target, arguments['content']))}"
        if action == "replace":
            made = self._memory.replace(target, arguments["old_text"], arguments["content"])
            return f"replaced; {_format_fullness(made)}"
        if action == "remove":
            return f"removed; {_format_fullness(self._memory.remove(target, arguments['old_text']))}"
        return _format_content(self._memory.read(target))

    def _change_room(self, arguments: dict[str, Any], speakers: Sequence[Speaker]) -> str:
        action, target = arguments["action"], arguments["target"]
        whose = attribute(speakers)
        if action == "add":
            made = self._room.add(target, arguments["content"], speakers)
            return f"kept as the word of {whose}; {_format_fullness(made)}"
        if action == "replace":
            made = self._room.replace(target, arguments["old_text"], arguments["content"], speakers)
            return f"replaced, as the word of {whose}; {_format_fullness(made)}"
        if action == "remove":
            return f"removed; {_format_fullness(self._room.remove(target, arguments['old_text'], speakers))}"
        return _format_content(self._room.read(target), "\n")


def _demand_arguments(arguments: dict[str, Any]) -> None:
    needed = {"add": ("content",), "replace": ("old_text", "content"), "remove": ("old_text",)}
    for key in needed.get(arguments["action"], ()):
        if key not in arguments:
            raise ToolFailed(f"to {arguments['action']}, {key} is needed")


def _format_content(there: MemoryContent, between: str = BETWEEN) -> str:
    if not there.entries:
        return f"{there.target} is empty"
    return f"{_format_fullness(there)}\n{fence_text(between.join(there.entries))}"


def _format_fullness(made: MemoryContent) -> str:
    return f"{made.target} holds {made.fullness}"
