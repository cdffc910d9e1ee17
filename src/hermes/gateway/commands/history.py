"""Commands about the last exchange: undo, redo, retry, resend, compress, stop."""

from __future__ import annotations

import asyncio

from hermes import errors
from hermes.gateway.commands.command_context import Command, CommandContext, CommandReply
from hermes.gateway.commands.switching import list_spoken
from hermes.gateway.commands.visible_conversations import describe_busy, describe_empty
from hermes.gateway.outbound.markdown_format import format_name, quote_beginning
from hermes.insights.number_format import format_plural
from hermes.reasoning import strip_reasoning
from hermes.text import extract_text, spell_controls

MOST = 1000


async def undo(context: CommandContext) -> CommandReply:
    many = context.words or "1"
    if not many.isdecimal() or not 0 < int(many[:9]) <= MOST:
        return CommandReply("Usage: `/undo [how many exchanges]`")
    session = context.chat.session_id
    if session is None:
        return CommandReply(f"{describe_empty(context)} There is nothing to take back.")
    recent = await asyncio.to_thread(context.store.list_recent_user_messages, session, int(many))
    if not recent:
        return await _undo_reset(context, session)
    done = await asyncio.to_thread(
        lambda: context.store.rewind_to_message(session, recent[-1]["id"], lease_epoch=context.chat.epoch)
    )
    what = quote_beginning(done["target_message"]["content"])
    rest = " and all after it" if len(recent) > 1 else ""
    return CommandReply(
        f"↩ Took back {what}{rest} ({format_plural(done['rewound_count'], 'message')}). `/redo` brings it back."
    )


async def _undo_reset(context: CommandContext, session: str) -> CommandReply:
    """Nobody has spoken in this session: if a reset made it, there is a conversation to go back to."""
    nothing = CommandReply("There is nothing to take back.")
    row = await asyncio.to_thread(context.store.get_session, session)
    if row is None or row["relation"] != "reset" or row["parent_session_id"] is None:
        return nothing
    busy = await asyncio.to_thread(describe_busy, context, row["parent_session_id"])
    if busy is not None:
        return CommandReply(busy)
    try:
        back = await asyncio.to_thread(
            lambda: context.store.undo_reset(session, lease_epoch=context.chat.epoch)
        )
    except errors.InvalidArgument:
        return nothing
    await context.chat.switch_to(back)
    await asyncio.to_thread(context.store.set_session_title, session, None)  # it is free for another start
    old = await asyncio.to_thread(context.store.get_session, back)
    messages = await asyncio.to_thread(list_spoken, context, back)
    called = "the conversation before" if old is None else format_name(old)
    return CommandReply(
        f"↩ The new start is undone. Back in {called} ({format_plural(len(messages), 'message')})."
    )


async def redo(context: CommandContext) -> CommandReply:
    session = context.chat.session_id
    back = 0
    if session is not None:
        since = await asyncio.to_thread(_find_last_undo, context, session)
        back = await asyncio.to_thread(
            lambda: context.store.restore_rewound(session, since, lease_epoch=context.chat.epoch)
        )
    if not back:
        return CommandReply(
            "There is nothing to bring back: only what was taken back last, before something new is said."
        )
    return CommandReply(f"↪ Brought back {format_plural(back, 'message')}.")


def _find_last_undo(context: CommandContext, session: str) -> int:
    """From which message on it was taken back last.

    That is what stands behind the live end; but not what was taken back earlier, before other things were said that
    now are taken back themselves.
    """
    live = [row["id"] for row in context.store.get_context(session) if row["role"] != "system"]
    end = live[-1] if live else 0
    exported = context.store.export_session(session)
    if exported is None or exported.get("rewound_context"):
        return end + 1
    taken = [
        row for row in exported["messages"] if not row["active"] and row["rewound_at"] and row["id"] > end
    ]
    last = max((row["rewound_at"] for row in taken), default=0)
    first = min((row["id"] for row in taken if row["rewound_at"] == last), default=end + 1)
    earlier = [row["id"] for row in taken if row["id"] < first]
    return max(earlier, default=end) + 1


async def retry(context: CommandContext) -> CommandReply:
    session = context.chat.session_id
    last = []
    if session is not None:
        last = await asyncio.to_thread(context.store.list_recent_user_messages, session, 1)
    if session is None or not last:
        return CommandReply("There is nothing to ask again.")
    done = await asyncio.to_thread(
        lambda: context.store.rewind_to_message(session, last[0]["id"], lease_epoch=context.chat.epoch)
    )
    content = done["target_message"]["content"]
    return CommandReply(f"↻ Once more: {quote_beginning(content)}", next_content=content)


async def resend(context: CommandContext) -> CommandReply:
    session = context.chat.session_id
    messages = [] if session is None else await asyncio.to_thread(list_spoken, context, session)
    answers = [row for row in messages if row["role"] == "assistant"]
    if not answers:
        return CommandReply("There is no answer yet that I could send again.")
    return CommandReply(spell_controls(extract_text(strip_reasoning(answers[-1]["content"]))))


async def compress(context: CommandContext) -> CommandReply:
    if context.chat.session_id is None:
        return CommandReply(f"{describe_empty(context)} There is nothing to make shorter.")
    lines = await context.chat.compress(context.words or None)
    return CommandReply("\n".join(lines) or "Nothing changed.")


async def stop(context: CommandContext) -> CommandReply:
    waiting = context.chat.waiting
    if not context.chat.stop():
        return CommandReply("Nothing is running.")
    behind = f" {format_plural(waiting, 'message')} waiting; I go on with {'it' if waiting == 1 else 'them'}."
    return CommandReply(f"⏹ Stopped.{behind if waiting else ''}")


COMMANDS = (
    Command(
        "undo",
        undo,
        "/undo [n]",
        "take back the last exchange, or the last n; right after a new start: go back",
    ),
    Command("redo", redo, "/redo", "bring back what /undo took back"),
    Command("retry", retry, "/retry", "ask the last question again"),
    Command("resend", resend, "/resend", "send the last answer again"),
    Command("compress", compress, "/compress [focus]", "make room: go on from a summary"),
    Command("stop", stop, "/stop", "stop the answer that is being made", at_once=True),
)
