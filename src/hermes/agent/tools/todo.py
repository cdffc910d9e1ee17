"""`todo`: the todo list of a conversation.

The list is stored only in the conversation itself, as the last result of this tool. It therefore survives a
resume or a compression, is rewound and branched with the messages, and is deleted with the conversation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools.argument_check import check_arguments, make_object_schema, make_text_field

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore

STATES = ("pending", "in_progress", "completed")
MOST_ITEMS, LONGEST = 40, 200
BEGINNING = '{"todo":'
MOST_SEGMENTS = 1_000


class TodoItem(NamedTuple):
    id: str
    content: str
    status: str


class Todo:
    name = "todo"
    description = (
        "Your list for work of several steps in this conversation. Pass `items` to replace the whole list, nothing to"
        " read it. Have one item in progress at a time, and mark it completed as soon as it is done."
    )
    parameters: Mapping[str, Any] = make_object_schema(
        [],
        items={
            "type": "array",
            "maxItems": MOST_ITEMS,
            "description": "The whole new list, in order.",
            "items": make_object_schema(
                ["id", "content", "status"],
                id=make_text_field("A short name of the item.", 40, 1),
                content=make_text_field("What is to be done.", LONGEST, 1),
                status={"type": "string", "enum": list(STATES), "description": "Its state."},
            ),
        },
    )

    def __init__(self) -> None:
        self._unstored: dict[str, list[TodoItem]] = {}

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        checked = check_arguments(self.parameters, arguments)
        if "items" not in checked:
            items = await asyncio.to_thread(read_todo, context.db, context.session_id)
            return format_items(items or self._unstored.get(context.session_id, []))
        items = [
            TodoItem(**{key: fields[key].strip() for key in TodoItem._fields}) for fields in checked["items"]
        ]
        if len({item.id for item in items}) < len(items):
            raise ToolFailed("two items have the same id")
        if await asyncio.to_thread(context.db.get_session, context.session_id) is None:  # incognito
            self._unstored = {context.session_id: items}
        return format_items(items)


def format_items(items: Sequence[TodoItem]) -> str:
    left = sum(item.status != "completed" for item in items)
    value = {"todo": [item._asdict() for item in items], "left": left}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_todo(db: AnyStore, session_id: str) -> list[TodoItem]:
    """Return the items of the todo list that the agent last set in this session or in the sessions that it continues;
    empty if there is none."""
    searched: str | None = session_id
    look = True
    for _ in range(MOST_SEGMENTS):
        session = None if searched is None else db.get_session(searched)
        if session is None or searched is None:
            return []
        for row in reversed(db.get_context(searched) if look else []):
            content = row.get("content")
            if (
                row.get("tool_name") == Todo.name
                and isinstance(content, str)
                and content.startswith(BEGINNING)
            ):
                return parse_items(content)
        # A compression leaves messages in the parent, so the parent of a continuation is searched next. The
        # context of a branch includes the context of its parent, so the parent of a branch is skipped. If
        # that parent is a continuation, its own parent is searched next.
        relation = session.get("relation")
        look = relation == "compression"
        searched = session["parent_session_id"] if relation in ("compression", "branch") else None
    return []


def parse_items(result: str) -> list[TodoItem]:
    """Return the items in a result of the tool. Return an empty list if the result cannot be parsed, for
    example because it was cut off."""
    try:
        return [
            TodoItem(str(item["id"]), str(item["content"]), str(item["status"]))
            for item in json.loads(result)["todo"]
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
