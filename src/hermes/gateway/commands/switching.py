"""Commands that go from one conversation to another, or say what this one is called."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from hermes import clock, errors
from hermes.gateway.commands.command_context import Answer, Asked, Command
from hermes.gateway.commands.markdown_format import code, line_of, name_of, plain
from hermes.gateway.commands.visible_conversations import (
    NOT_FOUND,
    busy_elsewhere,
    describe_empty,
    listed,
    may_open,
    meant,
    private_ones,
)
from hermes.insights.number_format import format_plural
from hermes.reasoning import strip_reasoning
from hermes.store.sessions.titles import sanitize_title
from hermes.text import extract_text

Row = dict[str, Any]


async def new(asked: Asked) -> Answer:
    here, problem, title = asked.here, "", None
    try:
        title = sanitize_title(asked.words)
    except errors.InvalidTitle as refused:
        problem = f"\n{plain(str(refused), 200)}; it has no title."
    left = here.session_id
    if left is None or not await asyncio.to_thread(asked.store.get_context, left):
        return await _already_new(asked, title, problem)
    await here.save()
    left = here.session_id or left  # that turn may have made room
    before = await asyncio.to_thread(asked.store.get_session, left)
    started = await asyncio.to_thread(
        partial(
            asked.store.reset,
            left,
            reason="session_reset",
            lease_epoch=here.epoch,
            session_key=here.key,
            title=title,
        )
    )
    await here.moved(started)
    now = await asyncio.to_thread(asked.store.get_session, started)
    called = f": {name_of(now)}" if now is not None and now["title"] else ""
    old = "The old one" if before is None else f"You left {name_of(before)}"
    return Answer(
        f"✨ **New conversation**{called}{problem}\n{old}: `/undo` before your next message brings it back,"
        f" {code(f'/resume {left}')} at any time."
    )


async def _already_new(asked: Asked, title: str | None, problem: str) -> Answer:
    if title is None:
        return Answer(f"{describe_empty(asked)} It is a new conversation already.{problem}")
    return await _called(asked, title)


async def title(asked: Asked) -> Answer:
    if asked.words:
        return await _called(asked, asked.words)
    session = asked.here.session_id
    row = None if session is None else await asyncio.to_thread(asked.store.get_session, session)
    if row is None or not row["title"]:
        known = f"Session: {code(session)}\n" if session else ""
        return Answer(f"{known}No title yet. Usage: `/title name`")
    return Answer(f"Session: {code(row['id'])}\nTitle: {name_of(row)}")


async def _called(asked: Asked, words: str) -> Answer:
    cleaned = sanitize_title(words)
    session = await asked.here.begin()
    try:
        found = await asyncio.to_thread(asked.store.set_session_title, session, words)
    except errors.InvalidTitle as problem:
        return Answer(await asyncio.to_thread(_taken, asked, cleaned, str(problem)))
    if not found:
        return Answer(NOT_FOUND)
    return Answer(f"Session title set: {plain(cleaned, 200)}" if cleaned else "The title is removed.")


def _taken(asked: Asked, cleaned: str | None, problem: str) -> str:
    """Where others read along, the id of a private conversation is not told."""
    holder = asked.store.get_session_by_title(cleaned) if cleaned else None
    if holder is None or may_open(asked)(holder):
        return f"{plain(problem, 200)}."
    return "Another conversation of yours has that title."


async def resume(asked: Asked) -> Answer:
    if not asked.words:
        return Answer(await asyncio.to_thread(_list, asked))
    row, problem = await asyncio.to_thread(meant, asked, asked.words)
    if row is None:
        return Answer(problem)
    if row["id"] == asked.here.session_id:
        return Answer("You are in that conversation already.")
    return Answer(await go_to(asked, row))


async def go_to(asked: Asked, row: Row) -> str:
    """Go on in another conversation in this chat; what to say of it."""
    here, store, target = asked.here, asked.store, row["id"]
    busy = await asyncio.to_thread(busy_elsewhere, asked, target)
    if busy is not None:
        return busy
    await here.begin()
    route = await asyncio.to_thread(lambda: store.switch_session(here.key, target, lease_epoch=here.epoch))
    if route is None:
        return NOT_FOUND
    await here.moved(route.session_id)
    said = await asyncio.to_thread(spoken, asked, route.session_id)
    return (
        f"↻ Back in {name_of(row)} ({format_plural(len(said), 'message')}).\nIts id: {code(route.session_id)}"
    )


def spoken(asked: Asked, session_id: str) -> list[Row]:
    """What people and the agent said in a conversation, as far as it is live."""
    context = asked.store.get_context(session_id)
    return [
        row
        for row in context
        if row["role"] in ("user", "assistant")
        and extract_text(strip_reasoning(row["content"], row["role"])).strip()
    ]


def _list(asked: Asked) -> str:
    found, now = listed(asked), clock.now()
    lines = [
        f"{number}. {line_of(row, now)}{' ← here' if row['id'] == asked.here.session_id else ''}"
        for number, row in enumerate(found.rows, 1)
    ]
    if found.more:
        lines.append("… and more: `/sessions words` finds them.")
    if found.private:
        lines.append(private_ones(found.private))
    lines.append("`/resume` with a number, an id or a title goes on there." if found.rows else "")
    return "\n".join(filter(None, ("" if found.rows else "There are no conversations yet.", *lines)))


async def branch(asked: Asked) -> Answer:
    here, left = asked.here, asked.here.session_id
    if left is None or not await asyncio.to_thread(asked.store.get_context, left):
        return Answer(f"{describe_empty(asked)} There is nothing to branch from.")
    wanted = sanitize_title(asked.words)
    child = await asyncio.to_thread(
        partial(asked.store.branch, left, lease_epoch=here.epoch, session_key=here.key, title=wanted)
    )
    await here.moved(child)
    row = await asyncio.to_thread(asked.store.get_session, child)
    called = f": {name_of(row)}" if row is not None and row["title"] else ""
    return Answer(
        f"⑂ **On a branch now**{called}\nIt knows all that was said. What you left stays as it is:"
        f" {code(f'/resume {left}')}"
    )


async def handoff(asked: Asked) -> Answer:
    session = asked.here.session_id
    if session is None:
        return Answer(f"{describe_empty(asked)} There is nothing to hand over.")
    return Answer(
        f"On the machine that I run on, {code(f'hermes -r {session}')} goes on with this conversation in the terminal."
        "\n`/handoff` there brings it back to a chat."
    )


COMMANDS = (
    Command(
        "new",
        new,
        "/new [title]",
        "start a new conversation (also /reset); the old one is kept",
        stops=True,
        also=("reset",),
    ),
    Command("title", title, "/title [name]", "show or set the title of this conversation", bare_at_once=True),
    Command(
        "resume",
        resume,
        "/resume [number, id or title]",
        "your conversations, or go on in one of them",
        bare_at_once=True,
    ),
    Command(
        "branch",
        branch,
        "/branch [name]",
        "try something else from here; what was said stays as it is",
        also=("fork",),
    ),
    Command("handoff", handoff, "/handoff", "how to go on with this conversation in the terminal"),
)
