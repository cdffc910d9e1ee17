"""Commands about what was said last: undo, redo, rewind, retry, resend, compress, history, stop."""

from __future__ import annotations

import asyncio

from hermes import errors
from hermes.conversation.commands.command_types import Command, CommandContext, Option, Row
from hermes.conversation.commands.lookup import list_spoken
from hermes.conversation.commands.replies import (
    AskAgain,
    BroughtBack,
    Busy,
    Cancelled,
    Compressing,
    History,
    NothingSaid,
    Prompts,
    Refused,
    Reply,
    Resent,
    StartUndone,
    Stopped,
    TookBack,
)

MOST_UNDONE = 1000
OFFERED = 10
NOTHING_TO_UNDO = "There is nothing to take back."


async def undo(context: CommandContext, words: str) -> Reply:
    number = words or "1"
    if not number.isdecimal() or not 0 < int(number[:9]) <= MOST_UNDONE:
        return Refused("Usage: `/undo [how many exchanges]`")
    prompts = await _list_prompts(context, int(number))
    if not prompts:
        return await _undo_start(context)
    return await _take_back(context, prompts[-1], len(prompts))


async def _list_prompts(context: CommandContext, limit: int) -> list[Row]:
    """What the person said last, newest first."""
    session_id = _get_stored_id(context)
    if session_id is None:
        return []
    return await asyncio.to_thread(context.store.list_recent_user_messages, session_id, limit)


def _get_stored_id(context: CommandContext) -> str | None:
    return context.conversation.session_id if context.conversation.exists else None


async def _take_back(
    context: CommandContext, prompt: Row, exchanges: int, *, is_confirmed: bool = False
) -> Reply:
    question = f"Take back “{prompt['preview']}” and all after it?"
    if not is_confirmed and not await context.surface.confirm(question):
        return Cancelled()
    outcome = await context.conversation.take_back(prompt["id"])
    return TookBack(outcome.messages, outcome.content, exchanges)


async def _undo_start(context: CommandContext) -> Reply:
    """Go back to the conversation that a new start left, if nobody has spoken since."""
    conversation, session_id = context.conversation, _get_stored_id(context)
    if session_id is None:
        previous = conversation.previous_id
        if previous is None:
            return NothingSaid(NOTHING_TO_UNDO)
        previous = await asyncio.to_thread(context.store.get_compression_tip, previous)
    else:
        row = await asyncio.to_thread(context.store.get_session, session_id)
        if row is None or row["relation"] != "reset" or row["parent_session_id"] is None:
            return Refused(NOTHING_TO_UNDO)
        previous = row["parent_session_id"]
    try:
        await conversation.check_free(previous)
        if session_id is not None:
            previous = await asyncio.to_thread(
                lambda: context.store.undo_reset(session_id, lease_epoch=conversation.epoch)
            )
        notes = await conversation.switch_to(previous)
    except errors.LeaseHeld as conflict:
        return Busy(previous, conflict.holder)
    except errors.InvalidArgument:
        return Refused(NOTHING_TO_UNDO)
    if session_id is not None:  # its title is free for another start
        await asyncio.to_thread(context.store.set_session_title, session_id, None)
    old = await asyncio.to_thread(context.store.get_session, previous)
    messages = await asyncio.to_thread(list_spoken, context, previous)
    return StartUndone(old, len(messages), notes)


async def redo(context: CommandContext, words: str) -> Reply:
    if not context.conversation.exists:
        return BroughtBack(0)
    return BroughtBack(await context.conversation.bring_back())


async def rewind(context: CommandContext, words: str) -> Reply:
    if words.casefold() == "undo":
        return await redo(context, "")
    prompts = await _list_prompts(context, OFFERED)
    if not prompts:
        return NothingSaid("There is nothing to go back to.")
    if not words:
        options = [Option(str(prompt["id"]), prompt["preview"]) for prompt in prompts]
        chosen = await context.surface.choose("Go back to before:", options)
        for number, prompt in enumerate(prompts, 1):
            if str(prompt["id"]) == chosen:
                return await _take_back(context, prompt, number, is_confirmed=True)
        return Prompts(prompts)
    if words.isdecimal() and 0 < int(words[:9]) <= len(prompts):
        return await _take_back(context, prompts[int(words) - 1], int(words))
    return Refused(f"Usage: `/rewind [1 to {len(prompts)}, counted from the last message, or undo]`")


async def retry(context: CommandContext, words: str) -> Reply:
    prompts = await _list_prompts(context, 1)
    if not prompts:
        return Refused("There is nothing to ask again.")
    last = (await context.conversation.load_rows())[-1]
    if last["role"] == "user":  # it was never answered
        return AskAgain(last["content"], is_stored=True)
    outcome = await context.conversation.take_back(prompts[0]["id"])
    return AskAgain(outcome.content, is_stored=False)


async def resend(context: CommandContext, words: str) -> Reply:
    session_id = _get_stored_id(context)
    messages = [] if session_id is None else await asyncio.to_thread(list_spoken, context, session_id)
    answers = [row for row in messages if row["role"] == "assistant"]
    if not answers:
        return Refused("There is no answer yet that I could send again.")
    return Resent(answers[-1]["content"])


async def compress(context: CommandContext, words: str) -> Reply:
    if not context.conversation.exists:
        return NothingSaid("There is nothing to make shorter.")
    return Compressing(context.conversation.compress(words or None))


async def history(context: CommandContext, words: str) -> Reply:
    return History(await context.conversation.load_rows())


async def stop(context: CommandContext, words: str) -> Reply:
    waiting = context.surface.waiting
    if context.conversation.stop():
        return Stopped(True, waiting, 0)
    return Stopped(False, waiting, await context.surface.stop_processes())


COMMANDS = (
    Command(
        "undo",
        undo,
        "[n]",
        "take back the last exchange, or the last n; right after a new start: go back",
    ),
    Command("redo", redo, "", "bring back what was taken back last, until something new is said"),
    Command(
        "rewind",
        rewind,
        "[n]",
        "go back to before a message of yours; /rewind undo is /redo",
    ),
    Command("retry", retry, "", "ask the last question again"),
    Command("resend", resend, "", "send the last answer again"),
    Command("compress", compress, "[focus]", "make room: go on from a summary, with what matters in mind"),
    Command(
        "history", history, "", "what was said in this conversation, each message in short", at_once=True
    ),
    Command(
        "stop",
        stop,
        "",
        "stop the answer that is being made; else what tools left running in the background",
        at_once=True,
    ),
)
