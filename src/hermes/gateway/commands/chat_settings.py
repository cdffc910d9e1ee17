"""Commands about the chat itself: the home of a platform, and Telegram's topics."""

from __future__ import annotations

import asyncio

from hermes import clock, errors
from hermes.gateway.commands.command_context import Answer, Asked, Command, Topics
from hermes.gateway.commands.markdown_format import line_of, plain
from hermes.gateway.commands.switching import go_to
from hermes.gateway.commands.visible_conversations import busy_elsewhere, may_open, meant

TOPICS_HELP = (
    "With topics on, each topic of this private chat is a conversation of its own."
    "\nOpen a topic and write in it. `/topic id` in a topic goes on there with an earlier conversation."
    "\n`/topic` turns topics on, `/topic off` turns them off and forgets which conversation is in which."
)


async def set_home(asked: Asked) -> Answer:
    source = asked.source
    if not asked.is_owner:
        return Answer("Only an owner of this platform can choose its home.")
    home = {
        "home_channel": source.chat_id,
        "home_thread": source.thread_id,
        "home_type": source.chat_type,
        "home_user": source.participant,
    }
    for name, value in home.items():
        await asyncio.to_thread(asked.keep_setting, f"platforms.{source.platform}.{name}", value)
    return Answer(f"🏠 This chat is the home of {plain(source.platform)} now: handoffs and jobs come here.")


async def topic(asked: Asked) -> Answer:
    topics, words = asked.topics, asked.words
    if topics is None:
        return Answer("Topics are there in private chats on Telegram only.")
    if words.casefold() == "help":
        return Answer(TOPICS_HELP)
    if words.casefold() == "off":
        await asyncio.to_thread(topics.disable)
        return Answer("Topics are off. The conversations stay: `/resume` lists them.")
    if not words:
        return Answer(await asyncio.to_thread(_turned_on, asked, topics))
    return Answer(await _put_into_topic(asked, topics, words))


def _turned_on(asked: Asked, topics: Topics) -> str:
    if topics.is_enabled():
        lines = ["Topics are on: each topic is a conversation of its own."]
    else:
        topics.enable()
        lines = [
            "**Topics are on now.** Open a topic in this chat and write in it: it is a conversation of its own."
        ]
    allows, now = may_open(asked), clock.now()
    stored = ((row, asked.store.get_session(row["id"])) for row in topics.unlinked())
    free = [row for row, known in stored if known is not None and allows(known)]
    if free:
        lines += ["In no topic yet; `/topic id` in a topic goes on there:"]
        lines += [f"- {line_of(row, now)}" for row in free]
    return "\n".join(lines)


async def _put_into_topic(asked: Asked, topics: Topics, words: str) -> str:
    thread = asked.source.thread_id
    if not thread:
        return "Say that in the topic in which the conversation is to go on."
    if not await asyncio.to_thread(topics.is_enabled):
        return "Topics are off; `/topic` turns them on."
    row, problem = await asyncio.to_thread(meant, asked, words)
    if row is None:
        return problem
    busy = await asyncio.to_thread(busy_elsewhere, asked, row["id"])
    if busy is not None:
        return busy
    try:
        await asyncio.to_thread(topics.bind, thread, asked.here.key, row["id"])
    except errors.InvalidArgument:
        return "That conversation is in another topic already."
    return await go_to(asked, row)


COMMANDS = (
    Command(
        "sethome", set_home, "/sethome", "make this chat the platform's home, where handoffs and jobs go"
    ),
    Command(
        "topic", topic, "/topic [off, help or id]", "Telegram: a conversation for each topic of this chat"
    ),
)
