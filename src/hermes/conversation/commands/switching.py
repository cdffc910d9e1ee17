"""Commands that switch to another conversation (new, resume, branch), and `/title`."""

from __future__ import annotations

import asyncio

from hermes import errors
from hermes.conversation.commands.command_types import Command, CommandContext, Option, Row
from hermes.conversation.commands.lookup import (
    list_conversations,
    list_spoken,
    resolve_conversation,
)
from hermes.conversation.commands.replies import (
    AlreadyHere,
    AlreadyNew,
    Ambiguous,
    Branched,
    Busy,
    Cancelled,
    NotFound,
    NothingSaid,
    Reason,
    Refused,
    Reply,
    Started,
    Switched,
    Titled,
    TitleShown,
)
from hermes.store.sessions.titles import sanitize_title


async def new(context: CommandContext, words: str) -> Reply:
    conversation, title, problem = context.conversation, None, None
    try:
        title = sanitize_title(words)
    except errors.InvalidTitle as refused:
        problem = str(refused)
    if not await conversation.load_rows():
        return AlreadyNew(problem) if title is None else await set_title(context, title)
    if not await context.surface.confirm("Leave this conversation and start a new one?"):
        return Cancelled()
    left_id = conversation.session_id if conversation.exists else None
    await conversation.begin(title)
    started = await _load_row(context, conversation.session_id if conversation.exists else None)
    if started is not None:
        left_id = started[
            "parent_session_id"
        ]  # the agent's last turn may have moved the old conversation to a new session
    return Started(started, title, await _load_row(context, left_id), problem)


async def _load_row(context: CommandContext, session_id: str | None) -> Row | None:
    return None if session_id is None else await asyncio.to_thread(context.store.get_session, session_id)


async def title(context: CommandContext, words: str) -> Reply:
    conversation = context.conversation
    if conversation.incognito:
        return Refused(Reason.INCOGNITO)
    if words:
        return await set_title(context, words)
    row = await _load_row(context, conversation.session_id if conversation.exists else None)
    stored = None if row is None else row["title"]
    queued = conversation.queued_title
    return TitleShown(conversation.known_id, stored or queued, stored is None and queued is not None)


async def set_title(context: CommandContext, words: str) -> Reply:
    conversation, store, cleaned = context.conversation, context.store, sanitize_title(words)
    if not await conversation.ensure_session():
        holder = await asyncio.to_thread(store.get_session_by_title, cleaned) if cleaned else None
        if holder is not None:
            raise errors.InvalidTitle(f"Title '{cleaned}' is already in use by session {holder['id']}")
        conversation.queued_title = cleaned
        return Titled(cleaned, is_queued=True)
    session_id = conversation.session_id
    try:
        is_set = await asyncio.to_thread(store.set_session_title, session_id, words)
    except errors.InvalidTitle:
        holder = await asyncio.to_thread(store.get_session_by_title, cleaned) if cleaned else None
        if holder is None or context.visibility.can_open(holder):
            raise
        return Refused(Reason.TITLE_TAKEN)
    return Titled(cleaned) if is_set else NotFound(session_id)


async def resume(context: CommandContext, words: str) -> Reply:
    if not words:
        return await asyncio.to_thread(lambda: list_conversations(context, is_resume=True))
    if words in context.conversation.list_in_memory():
        await context.conversation.return_in_memory(words)
        rows = await context.conversation.load_rows()
        return Switched({"id": words}, words, len(rows), [])
    found = await asyncio.to_thread(resolve_conversation, context, words)
    if isinstance(found, Ambiguous):
        options = [Option(row["id"], row["title"] or row["preview"] or row["id"], row) for row in found.rows]
        chosen = await context.surface.choose(f"'{words}' could be any of these:", options)
        found = next((row for row in found.rows if row["id"] == chosen), found)
    if not isinstance(found, dict):
        return found
    if found["id"] == context.conversation.session_id:
        return AlreadyHere(found)
    return await switch_to(context, found)


async def switch_to(context: CommandContext, row: Row) -> Reply:
    """Make the conversation of the session `row` the current one, and return the reply."""
    try:
        notes = await context.conversation.switch_to(row["id"])
    except errors.LeaseHeld as conflict:
        return Busy(row["id"], conflict.holder)
    session_id = context.conversation.session_id
    messages = await asyncio.to_thread(list_spoken, context, session_id)
    return Switched(row, session_id, len(messages), notes)


async def branch(context: CommandContext, words: str) -> Reply:
    conversation = context.conversation
    if not await conversation.load_rows():
        return NothingSaid(Reason.NOTHING_TO_BRANCH_FROM)
    left_id = conversation.session_id
    child = await conversation.branch(sanitize_title(words))
    return Branched(await _load_row(context, child), child, left_id)


COMMANDS = (
    Command(
        "new",
        new,
        "[title]",
        "start a new conversation (also /reset); the old one is kept",
        stops=True,
        aliases=("reset",),
    ),
    Command("title", title, "[name]", "show or set the title of this conversation", bare_at_once=True),
    Command(
        "resume",
        resume,
        "[number, id or title]",
        "list your conversations, or continue one of them",
        bare_at_once=True,
        takes_session=True,
    ),
    Command(
        "branch",
        branch,
        "[name]",
        "continue in a branch (also /fork); the original stays unchanged",
        aliases=("fork",),
    ),
)
