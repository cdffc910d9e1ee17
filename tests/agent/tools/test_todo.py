"""The todo list belongs to a conversation. It stays when the conversation continues in another session."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools.todo import Todo, TodoItem, read_todo
from hermes_state import SessionDB

TESTS = {"id": "1", "content": "Run the tests", "status": "pending"}
FIRST = [TodoItem("1", "Run the tests", "pending")]
SECOND = [TodoItem("2", "Tag it", "in_progress")]


async def kept(context: ToolContext, session_id: str, items: list[TodoItem] | None) -> str:
    """Call the tool and store its result in the way a turn does."""
    arguments: dict[str, Any] = {} if items is None else {"items": [item._asdict() for item in items]}
    result = await Todo().run(arguments, context._replace(session_id=session_id))
    context.db.append_message(session_id, "user", "go on")
    context.db.append_message(session_id, "tool", result, tool_name="todo", tool_call_id="c")
    return result


async def test_the_list_is_replaced_and_read(context: ToolContext, db: SessionDB) -> None:
    assert await kept(context, "here", None) == '{"todo":[],"left":0}'
    assert json.loads(await kept(context, "here", FIRST)) == {"todo": [TESTS], "left": 1}
    assert read_todo(db, "here") == FIRST
    await kept(context, "here", SECOND)
    assert json.loads(await kept(context, "here", None))["todo"] == [SECOND[0]._asdict()]
    await kept(context, "here", [])
    assert read_todo(db, "here") == []


async def test_the_list_survives_compressions_that_do_not_carry_it(
    context: ToolContext, db: SessionDB
) -> None:
    await kept(context, "here", FIRST)
    second = db.begin_continuation("here", "so far")
    third = db.begin_continuation(second, "so far, again")
    assert read_todo(db, third) == FIRST
    await kept(context, third, SECOND)
    assert (read_todo(db, third), read_todo(db, "here")) == (SECOND, FIRST)


async def test_a_rewind_restores_the_earlier_list(context: ToolContext, db: SessionDB) -> None:
    await kept(context, "here", FIRST)
    later = db.append_message("here", "user", "now the other thing")
    await kept(context, "here", SECOND)
    db.rewind_to_message("here", later)
    assert read_todo(db, "here") == FIRST
    db.restore_rewound("here")
    assert read_todo(db, "here") == SECOND


async def test_a_branch_has_the_list_of_its_start(context: ToolContext, db: SessionDB) -> None:
    await kept(context, "here", FIRST)
    second = db.begin_continuation("here", "so far")
    at = db.append_message(second, "user", "a fork in the road")
    await kept(context, second, SECOND)
    assert read_todo(db, db.branch(second, at, end_parent=False)) == FIRST
    assert read_todo(db, db.branch(second, end_parent=False)) == SECOND


async def test_a_reset_begins_without_one(context: ToolContext, db: SessionDB) -> None:
    await kept(context, "here", FIRST)
    assert read_todo(db, db.reset("here")) == []


async def test_a_message_that_only_looks_like_a_list_is_ignored(context: ToolContext, db: SessionDB) -> None:
    db.append_message(
        "here", "tool", '{"todo":[{"id":"x","content":"y","status":"z"}]}', tool_name="terminal"
    )
    db.append_message("here", "tool", "error: items must be a list", tool_name="todo")
    assert read_todo(db, "here") == []
    db.append_message("here", "tool", '{"todo":[{"id":"x"', tool_name="todo")
    assert read_todo(db, "here") == []
    assert read_todo(db, "nowhere") == []


async def test_an_incognito_conversation_has_one_too(context: ToolContext) -> None:
    todo, unstored = Todo(), context._replace(session_id="never stored")
    await todo.run({"items": [TESTS]}, unstored)
    assert json.loads(await todo.run({}, unstored))["todo"] == [TESTS]
    assert json.loads(await todo.run({}, context))["todo"] == []


async def test_bad_items_are_refused(context: ToolContext) -> None:
    for items, message in (
        ([TESTS, TESTS], "two items have the same id"),
        ([{**TESTS, "status": "soon"}], r"items\[0\].status must be one of pending, in_progress, completed"),
        ([{"id": "1"}], r"items\[0\].content is missing"),
        (["x"], r"items\[0\] must be an object"),
        ([TESTS] * 41, "items has 41 items; the limit is 40"),
        ("x", "items must be a list"),
    ):
        with pytest.raises(ToolFailed, match=message):
            await Todo().run({"items": items}, context)
