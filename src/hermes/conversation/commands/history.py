"""Commands for recent messages: undo, redo, rewind, retry, resend, compress, history, stop."""

from __future__ import annotations

import asyncio

from hermes import errors
from hermes.conversation.commands.command_types import (
    Command,
    CommandContext,
    Option,
    Row,
    parse_number,
)
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
    Reason,
    Refused,
    Reply,
    Resent,
    StartUndone,
    Stopped,
    TookBack,
    WithFiles,
)
from hermes.conversation.file_restore import RestoredFiles
from hermes.message_content import read_text

MOST_UNDONE = 1000
OFFERED = 10


async def undo(context: CommandContext, words: str) -> Reply:
    number = parse_number(words or "1", MOST_UNDONE)
    if number is None:
        return UNDO.reject()
    prompts = await context.conversation.list_prompts(number)
    if not prompts:
        return await _undo_start(context)
    return await _take_back(context, prompts[-1], len(prompts))


def _get_stored_id(context: CommandContext) -> str | None:
    return context.conversation.session_id if context.conversation.exists else None


async def _take_back(
    context: CommandContext, prompt: Row, exchanges: int, *, is_confirmed: bool = False
) -> Reply:
    question = f"Take back “{prompt['preview']}” and all after it?"
    if not is_confirmed and not await context.surface.confirm(question):
        return Cancelled()
    outcome = await context.conversation.take_back(prompt["id"])
    reply = TookBack(outcome.messages, outcome.content, exchanges)
    files = await _restore_files(context, prompt)
    return reply if files is None else WithFiles(reply, files)


async def _restore_files(context: CommandContext, prompt: Row) -> RestoredFiles | None:
    """Offer the person to restore the files that tools edited since `prompt`, a message of the person. Return the
    result, or None if no files were edited."""
    restorer = context.conversation.make_file_restorer() if context.surface.edits_files else None
    if restorer is None:
        return None
    plan = await asyncio.to_thread(restorer.plan_undo, prompt["timestamp"])
    if not plan.changes:
        return RestoredFiles(refused=plan.refused) if plan else None
    if not await context.surface.confirm_restore(plan, is_redo=False):
        return RestoredFiles(kept=[change.path for change in plan.changes], refused=plan.refused)
    return await asyncio.to_thread(restorer.restore, plan, prompt["id"])


async def _edit_files_again(context: CommandContext) -> RestoredFiles | None:
    """Offer the person to repeat file edits after a redo. They are the edits that the undo of the same messages had
    reverted. Return the result, or None if there are no such edits."""
    restorer = context.conversation.make_file_restorer() if context.surface.edits_files else None
    if restorer is None:
        return None
    rows = await context.conversation.load_rows()
    plan = await asyncio.to_thread(restorer.plan_redo, {row["id"] for row in rows if "id" in row})
    done = RestoredFiles(refused=plan.refused) if plan else None
    if plan.changes:
        if await context.surface.confirm_restore(plan, is_redo=True):
            done = await asyncio.to_thread(restorer.restore, plan)
        else:
            done = RestoredFiles(kept=[change.path for change in plan.changes], refused=plan.refused)
    await asyncio.to_thread(restorer.forget, plan)
    return done


async def _undo_start(context: CommandContext) -> Reply:
    """Return to the conversation that the person left by starting a new one, if no message was written in the new one.
    Return the reply."""
    conversation = context.conversation
    try:
        notes = await conversation.undo_start()
    except errors.LeaseHeld as conflict:
        return Busy(conflict.holder.session_id, conflict.holder)
    if notes is None:
        return (
            Refused(Reason.NOTHING_TO_TAKE_BACK)
            if conversation.exists
            else NothingSaid(Reason.NOTHING_TO_TAKE_BACK)
        )
    session_id = conversation.session_id
    row = await asyncio.to_thread(context.store.get_session, session_id)
    messages = await asyncio.to_thread(list_spoken, context, session_id)
    return StartUndone(row, len(messages), notes)


async def redo(context: CommandContext, words: str) -> Reply:
    messages = await context.conversation.bring_back()
    files = await _edit_files_again(context) if messages else None
    return BroughtBack(messages) if files is None else WithFiles(BroughtBack(messages), files)


async def rewind(context: CommandContext, words: str) -> Reply:
    if words.casefold() == "undo":
        return await redo(context, "")
    prompts = await context.conversation.list_prompts(OFFERED)
    if not prompts:
        return NothingSaid(Reason.NOTHING_TO_GO_BACK_TO)
    if not words:
        options = [Option(str(prompt["id"]), prompt["preview"]) for prompt in prompts]
        chosen = await context.surface.choose("Go back to before:", options)
        for number, prompt in enumerate(prompts, 1):
            if str(prompt["id"]) == chosen:
                return await _take_back(context, prompt, number, is_confirmed=True)
        return Prompts(prompts)
    chosen_number = parse_number(words, len(prompts))
    if chosen_number is None:
        return REWIND.reject()
    return await _take_back(context, prompts[chosen_number - 1], chosen_number)


async def retry(context: CommandContext, words: str) -> Reply:
    prompts = await context.conversation.list_prompts(1)
    if not prompts:
        return Refused(Reason.NOTHING_TO_ASK_AGAIN)
    last = (await context.conversation.load_rows())[-1]
    if last["role"] == "user":  # the message was never answered
        return AskAgain(last["content"], is_stored=True)
    outcome = await context.conversation.take_back(prompts[0]["id"])
    return AskAgain(outcome.content, is_stored=False)


async def resend(context: CommandContext, words: str) -> Reply:
    session_id = _get_stored_id(context)
    if context.conversation.incognito:
        messages = [
            row for row in await context.conversation.load_rows() if read_text(row["content"]).strip()
        ]
    else:
        messages = [] if session_id is None else await asyncio.to_thread(list_spoken, context, session_id)
    answers = [row for row in messages if row["role"] == "assistant"]
    if not answers:
        return Refused(Reason.NO_ANSWER)
    return Resent(answers[-1]["content"])


async def compress(context: CommandContext, words: str) -> Reply:
    if not (context.conversation.exists or await context.conversation.load_rows()):
        return NothingSaid(Reason.NOTHING_TO_COMPRESS)
    return Compressing(context.conversation.compress(words or None))


async def history(context: CommandContext, words: str) -> Reply:
    return History(await context.conversation.load_rows())


async def stop(context: CommandContext, words: str) -> Reply:
    waiting = context.surface.waiting
    if context.conversation.stop():
        return Stopped(True, waiting, 0)
    return Stopped(False, waiting, await context.conversation.stop_processes())


UNDO = Command(
    "undo", undo, "[n]", "take back the last exchange, or the last n; after /new: return to the old one"
)
REWIND = Command(
    "rewind",
    rewind,
    "[n or undo]",
    "go back to before one of your messages (1 is the last); /rewind undo is /redo",
)
COMMANDS = (
    UNDO,
    Command("redo", redo, "", "restore the messages of the last /undo; not after a new message"),
    REWIND,
    Command("retry", retry, "", "ask the last question again"),
    Command("resend", resend, "", "send the last answer again"),
    Command(
        "compress", compress, "[focus]", "replace older messages by a summary; focus: what it should keep"
    ),
    Command("history", history, "", "list the messages of this conversation, shortened", at_once=True),
    Command(
        "stop",
        stop,
        "",
        "stop the running answer; if there is none, stop background processes",
        at_once=True,
    ),
)
