"""The shared commands `/resend` and `/stop`, extended for chats: here they also change the outbox."""

from __future__ import annotations

from hermes.conversation.commands import shared_commands
from hermes.conversation.commands.command_types import SharedCommand
from hermes.gateway.commands.chat_surface import run_core_command
from hermes.gateway.commands.command_context import ChatCommandContext, CommandReply
from hermes.gateway.commands.reply_markdown import format_reply
from hermes.text import format_count

_RESEND: SharedCommand = shared_commands.BY_NAME["resend"]
_STOP: SharedCommand = shared_commands.BY_NAME["stop"]


async def resend(context: ChatCommandContext, words: str) -> CommandReply:
    """Run `/resend`: send the messages to this chat whose delivery is unknown again. If there are none, send the
    last answer again."""
    resent = await context.chat.resend_unknown()
    if not resent:
        return await _run_shared(_RESEND, context, words)
    return CommandReply(f"↻ {format_count(resent, 'message')} sent again.")


async def stop(context: ChatCommandContext, words: str) -> CommandReply:
    """Run `/stop`: stop the running turn of this chat, and give up the messages to it that are not sent yet, such
    as the rest of a long answer."""
    dropped = await context.chat.drop_queued()
    if not dropped:
        return await _run_shared(_STOP, context, words)
    line = f"⏹ {format_count(dropped, 'message')} will not be sent."
    if context.chat.working_since is None:
        return CommandReply(line)
    reply = await _run_shared(_STOP, context, words)
    return reply._replace(text=f"{reply.text}\n{line}")


async def _run_shared(command: SharedCommand, context: ChatCommandContext, words: str) -> CommandReply:
    return await format_reply(context, await run_core_command(command, context, words))


EXTENDED = {_RESEND.name: resend, _STOP.name: stop}
"""The functions that replace these shared commands in chats, by command name."""
