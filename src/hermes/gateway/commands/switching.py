"""Commands that switch to another conversation (new, resume, branch, handoff), and `/title`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from hermes import clock, errors
from hermes.gateway.commands.command_context import Command, CommandContext, CommandReply
from hermes.gateway.commands.visible_conversations import (
    NOT_FOUND,
    describe_busy,
    describe_empty,
    describe_private,
    list_conversations,
    openable_filter,
    resolve_conversation,
)
from hermes.gateway.outbound.markdown_format import escape_line, format_code, format_conversation, format_name
from hermes.insights.number_format import format_plural
from hermes.reasoning import strip_reasoning
from hermes.store.sessions.titles import sanitize_title
from hermes.text import extract_text

Row = dict[str, Any]


async def new(context: CommandContext) -> CommandReply:
    chat, problem, title = context.chat, "", None
    try:
        title = sanitize_title(context.words)
    except errors.InvalidTitle as refused:
        problem = f"\n{escape_line(str(refused), 200)}; it has no title."
    left = chat.session_id
    if left is None or not await asyncio.to_thread(context.store.get_context, left):
        return await _reply_already_new(context, title, problem)
    await chat.save()
    left = chat.session_id or left  # that turn may have made room
    before = await asyncio.to_thread(context.store.get_session, left)
    started = await asyncio.to_thread(
        partial(
            context.store.reset,
            left,
            reason="session_reset",
            lease_epoch=chat.epoch,
            session_key=chat.key,
            title=title,
        )
    )
    await chat.switch_to(started)
    now = await asyncio.to_thread(context.store.get_session, started)
    called = f": {format_name(now)}" if now is not None and now["title"] else ""
    old = "The old one" if before is None else f"You left {format_name(before)}"
    return CommandReply(
        f"✨ **New conversation**{called}{problem}\n{old}: `/undo` before your next message brings it back,"
        f" {format_code(f'/resume {left}')} at any time."
    )


async def _reply_already_new(context: CommandContext, title: str | None, problem: str) -> CommandReply:
    if title is None:
        return CommandReply(f"{describe_empty(context)} It is a new conversation already.{problem}")
    return await _set_title(context, title)


async def title(context: CommandContext) -> CommandReply:
    if context.words:
        return await _set_title(context, context.words)
    session = context.chat.session_id
    row = None if session is None else await asyncio.to_thread(context.store.get_session, session)
    if row is None or not row["title"]:
        prefix = f"Session: {format_code(session)}\n" if session else ""
        return CommandReply(f"{prefix}No title yet. Usage: `/title name`")
    return CommandReply(f"Session: {format_code(row['id'])}\nTitle: {format_name(row)}")


async def _set_title(context: CommandContext, words: str) -> CommandReply:
    cleaned = sanitize_title(words)
    session = await context.chat.begin()
    try:
        is_set = await asyncio.to_thread(context.store.set_session_title, session, words)
    except errors.InvalidTitle as problem:
        return CommandReply(await asyncio.to_thread(_describe_conflict, context, cleaned, str(problem)))
    if not is_set:
        return CommandReply(NOT_FOUND)
    return CommandReply(
        f"Session title set: {escape_line(cleaned, 200)}" if cleaned else "The title is removed."
    )


def _describe_conflict(context: CommandContext, cleaned: str | None, problem: str) -> str:
    """Where others read along, the id of a private conversation is not told."""
    holder = context.store.get_session_by_title(cleaned) if cleaned else None
    if holder is None or openable_filter(context)(holder):
        return f"{escape_line(problem, 200)}."
    return "Another conversation of yours has that title."


async def resume(context: CommandContext) -> CommandReply:
    if not context.words:
        return CommandReply(await asyncio.to_thread(_format_list, context))
    row, problem = await asyncio.to_thread(resolve_conversation, context, context.words)
    if row is None:
        return CommandReply(problem)
    if row["id"] == context.chat.session_id:
        return CommandReply("You are in that conversation already.")
    return CommandReply(await switch_to(context, row))


async def switch_to(context: CommandContext, row: Row) -> str:
    """Go on in another conversation in this chat; what to say of it."""
    chat, store, target = context.chat, context.store, row["id"]
    busy = await asyncio.to_thread(describe_busy, context, target)
    if busy is not None:
        return busy
    await chat.begin()
    route = await asyncio.to_thread(lambda: store.switch_session(chat.key, target, lease_epoch=chat.epoch))
    if route is None:
        return NOT_FOUND
    await chat.switch_to(route.session_id)
    messages = await asyncio.to_thread(list_spoken, context, route.session_id)
    count = format_plural(len(messages), "message")
    return f"↻ Back in {format_name(row)} ({count}).\nIts id: {format_code(route.session_id)}"


def list_spoken(context: CommandContext, session_id: str) -> list[Row]:
    """What people and the agent said in a conversation, as far as it is live."""
    return [
        row
        for row in context.store.get_context(session_id)
        if row["role"] in ("user", "assistant")
        and extract_text(strip_reasoning(row["content"], row["role"])).strip()
    ]


def _format_list(context: CommandContext) -> str:
    listing, now = list_conversations(context), clock.now()
    lines = [
        f"{number}. {format_conversation(row, now)}{' ← here' if row['id'] == context.chat.session_id else ''}"
        for number, row in enumerate(listing.rows, 1)
    ]
    if listing.more:
        lines.append("… and more: `/sessions words` finds them.")
    if listing.private:
        lines.append(describe_private(listing.private))
    lines.append("`/resume` with a number, an id or a title goes on there." if listing.rows else "")
    return "\n".join(filter(None, ("" if listing.rows else "There are no conversations yet.", *lines)))


async def branch(context: CommandContext) -> CommandReply:
    chat, left = context.chat, context.chat.session_id
    if left is None or not await asyncio.to_thread(context.store.get_context, left):
        return CommandReply(f"{describe_empty(context)} There is nothing to branch from.")
    title = sanitize_title(context.words)
    child = await asyncio.to_thread(
        partial(context.store.branch, left, lease_epoch=chat.epoch, session_key=chat.key, title=title)
    )
    await chat.switch_to(child)
    row = await asyncio.to_thread(context.store.get_session, child)
    called = f": {format_name(row)}" if row is not None and row["title"] else ""
    return CommandReply(
        f"⑂ **On a branch now**{called}\nIt knows all that was said. What you left stays as it is:"
        f" {format_code(f'/resume {left}')}"
    )


async def handoff(context: CommandContext) -> CommandReply:
    session = context.chat.session_id
    if session is None:
        return CommandReply(f"{describe_empty(context)} There is nothing to hand over.")
    return CommandReply(
        f"On the machine that I run on, {format_code(f'hermes -r {session}')} goes on with this conversation in the"
        " terminal."
        "\n`/handoff` there brings it back to a chat."
    )


COMMANDS = (
    Command(
        "new",
        new,
        "/new [title]",
        "start a new conversation (also /reset); the old one is kept",
        stops=True,
        aliases=("reset",),
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
        aliases=("fork",),
    ),
    Command("handoff", handoff, "/handoff", "how to go on with this conversation in the terminal"),
)
