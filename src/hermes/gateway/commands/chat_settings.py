"""Commands that only chats have: approvals, the home chat of a platform, pairing, the handoff to the terminal, and
Telegram topics."""

from __future__ import annotations

import asyncio

from hermes import clock, errors
from hermes.conversation.commands.command_types import Command
from hermes.conversation.commands.lookup import resolve_conversation
from hermes.conversation.commands.replies import Busy
from hermes.conversation.commands.switching import switch_to
from hermes.gateway.commands.chat_surface import make_core_context
from hermes.gateway.commands.command_context import ChatCommand, ChatCommandContext, CommandReply
from hermes.gateway.commands.reply_markdown import format_reply
from hermes.gateway.commands.visible_conversations import ChatVisibility, describe_empty
from hermes.gateway.outbound.markdown_format import escape_line, format_code, format_conversation
from hermes.gateway.sessions.topics import UserTopics

TOPICS_HELP = (
    "With topics on, each topic of this private chat is a separate conversation."
    "\nOpen a topic and write in it. `/topic id` in a topic continues an earlier conversation there."
    "\n`/topic` turns topics on. `/topic off` turns them off and forgets which conversation belongs to which topic."
)


async def approve(context: ChatCommandContext, words: str) -> CommandReply:
    return CommandReply(context.chat.answer_approval(context, words, allowed=True))


async def deny(context: ChatCommandContext, words: str) -> CommandReply:
    return CommandReply(context.chat.answer_approval(context, words, allowed=False))


async def set_home(context: ChatCommandContext, words: str) -> CommandReply:
    source = context.source
    if not context.is_owner:
        return CommandReply("Only an owner of this platform can choose its home.")
    home = {
        "home_channel": source.chat_id,
        "home_thread": source.thread_id,
        "home_type": source.chat_type,
        "home_user": source.participant,
    }
    for name, value in home.items():
        await asyncio.to_thread(context.store_setting, f"platforms.{source.platform}.{name}", value)
    return CommandReply(
        f"🏠 This chat is now the home of {escape_line(source.platform)}: handoffs and jobs are sent here."
    )


async def pair(context: ChatCommandContext, words: str) -> CommandReply:
    """Run `/pair`: reply that the pairing code was not accepted. A message with a valid code never gets here,
    because access control handles it first."""
    if context.source.chat_type != "dm":
        return CommandReply("Send the code in a private chat.")
    return CommandReply("This code is not valid. `hermes gateway pair` prints a new one.")


async def topic(context: ChatCommandContext, words: str) -> CommandReply:
    topics = context.topics
    if topics is None:
        return CommandReply("Topics are available only in private chats on Telegram.")
    if words.casefold() == "help":
        return CommandReply(TOPICS_HELP)
    if words.casefold() == "off":
        await asyncio.to_thread(topics.disable)
        return CommandReply("Topics are off. The conversations stay: `/resume` lists them.")
    if not words:
        return CommandReply(await asyncio.to_thread(_turn_topics_on, context, topics))
    return await _put_into_topic(context, topics, words)


def _turn_topics_on(context: ChatCommandContext, topics: UserTopics) -> str:
    if topics.is_enabled():
        lines = ["Topics are on: each topic is a separate conversation."]
    else:
        topics.enable()
        lines = [
            "**Topics are on now.** Open a topic in this chat and write in it: it is a separate conversation."
        ]
    visibility, now = ChatVisibility(context), clock.now()
    stored = ((row, context.store.get_session(row["id"])) for row in topics.list_unlinked())
    free = [row for row, session in stored if session is not None and visibility.can_open(session)]
    if free:
        lines += ["Not in a topic yet; send `/topic id` in a topic to continue there:"]
        lines += [f"- {format_conversation(row, now)}" for row in free]
    return "\n".join(lines)


async def _put_into_topic(context: ChatCommandContext, topics: UserTopics, words: str) -> CommandReply:
    thread = context.source.thread_id
    if not thread:
        return CommandReply("Send this command in the topic in which the conversation should continue.")
    if not await asyncio.to_thread(topics.is_enabled):
        return CommandReply("Topics are off; `/topic` turns them on.")
    core = make_core_context(context)
    found = await asyncio.to_thread(resolve_conversation, core, words)
    if not isinstance(found, dict):
        return await format_reply(context, found)
    try:
        await core.conversation.check_free(found["id"])
        await asyncio.to_thread(topics.bind, thread, context.chat.key, found["id"])
    except errors.LeaseHeld as conflict:
        return await format_reply(context, Busy(found["id"], conflict.holder))
    except errors.InvalidArgument:
        return CommandReply("That conversation is already in another topic.")
    return await format_reply(context, await switch_to(core, found))


async def handoff(context: ChatCommandContext, words: str) -> CommandReply:
    session = context.chat.session_id
    if session is None:
        return CommandReply(f"{describe_empty(context)} There is nothing to hand over.")
    return CommandReply(
        f"On the machine that I run on, {format_code(f'hermes -r {session}')} continues this conversation in the"
        " terminal."
        "\n`/handoff` there brings it back to a chat."
    )


COMMANDS: tuple[ChatCommand, ...] = (
    Command("handoff", handoff, "", "show how to continue this conversation in the terminal"),
    Command(
        "approve",
        approve,
        "[name] [always or like]",
        "approve an action once, always, or with similar ones; for owners, in private",
        at_once=True,
    ),
    Command("deny", deny, "[name] [why]", "refuse an action; for owners, in private", at_once=True),
    Command("sethome", set_home, "", "make this chat the platform's home, where handoffs and jobs go"),
    Command(
        "pair",
        pair,
        "<code>",
        "get access with a code from `hermes gateway pair`; in a private chat",
        at_once=True,
    ),
    Command("topic", topic, "[off, help or id]", "Telegram: use a separate conversation for each topic"),
)
