"""Commands that show something: conversations, search hits, status, usage, insights, memory, skills, model, help."""

from __future__ import annotations

import asyncio

from hermes.agent.subagents import AGENTS_USAGE, run_agents_command
from hermes.conversation.commands.command_types import Command, CommandContext
from hermes.conversation.commands.lookup import list_conversations
from hermes.conversation.commands.replies import (
    Help,
    Insights,
    Memory,
    ModelChosen,
    ModelShown,
    NothingSaid,
    Refused,
    Reply,
    SearchHits,
    Skills,
    Status,
    Usage,
)

HITS_WITH_AUDIENCE = 50
"""How many hits are read where some cannot be shown."""
DAYS, MOST_DAYS = 30, 9999
FLAGS = {"--days": "days", "--source": "source"}
ONE_MODEL = "All chats have the same model. `hermes setup`, where I run, changes it."
IN_PRIVATE = "That is about you alone: ask me in a private chat."


async def sessions(context: CommandContext, words: str) -> Reply:
    return await asyncio.to_thread(list_conversations, context, words, is_resume=not words)


async def search(context: CommandContext, words: str) -> Reply:
    if not words:
        return Refused("Usage: `/search words`")
    return await asyncio.to_thread(_find_hits, context, words)


def _find_hits(context: CommandContext, words: str) -> SearchHits:
    visibility = context.visibility
    limit = HITS_WITH_AUDIENCE if visibility.has_audience else context.most_hits
    found = context.store.search_conversations(words, limit)
    rows, private = [], 0
    for row in found:
        stored = context.store.get_session(row["tip_id"])
        if stored is None or not visibility.can_show(stored):
            private += 1
        else:
            rows.append({**row, "id": row["tip_id"], "preview": stored["preview"]})
    return SearchHits(rows[: context.most_hits], private, found)


async def status(context: CommandContext, words: str) -> Reply:
    rows = await context.conversation.load_rows()
    return await asyncio.to_thread(_read_status, context, len(rows))


def _read_status(context: CommandContext, messages: int) -> Status:
    conversation, store = context.conversation, context.store
    session_id = conversation.session_id
    row = store.get_session(session_id) if session_id is not None and conversation.exists else None
    used = None if row is None else store.usage_of(row["id"], True)
    title = (None if row is None else row["title"]) or conversation.queued_title
    return Status(session_id, row, title, messages, used)


async def usage(context: CommandContext, words: str) -> Reply:
    session_id = context.conversation.session_id
    if session_id is None or not context.conversation.exists:
        return Usage(None)
    return Usage(await asyncio.to_thread(context.store.usage_of, session_id, True))


async def insights(context: CommandContext, words: str) -> Reply:
    from hermes.insights import InsightsEngine

    if context.visibility.has_audience:
        return Refused("These numbers tell of your private conversations, too: ask me in a private chat.")
    arguments = _parse_insights(words)
    if arguments is None:
        return Refused("Usage: `/insights [days] [--days N] [--source S]`")
    days, source = arguments
    return Insights(await asyncio.to_thread(InsightsEngine(context.store).generate, days, source))


def _parse_insights(words: str) -> tuple[int, str | None] | None:
    """(days, source); None if it cannot be understood."""
    options: dict[str, str] = {}
    waiting = words.replace("=", " ").split()
    while waiting:
        word = waiting.pop(0)
        if word in FLAGS and waiting:
            options[FLAGS[word]] = waiting.pop(0)
        elif word.isdecimal() and "days" not in options:
            options["days"] = word
        else:
            return None
    days = options.get("days", str(DAYS))
    if not days.isdecimal() or not 0 < int(days[:9]) <= MOST_DAYS:
        return None
    return int(days), options.get("source")


async def memory(context: CommandContext, words: str) -> Reply:
    if not context.visibility.can_show_memory:
        return Refused(IN_PRIVATE)
    return Memory(await context.surface.read_memory())


async def skills(context: CommandContext, words: str) -> Reply:
    if not context.visibility.can_show_memory:
        return Refused(IN_PRIVATE)
    return Skills(await context.surface.list_skills())


async def model(context: CommandContext, words: str) -> Reply:
    if not words:
        return ModelShown(await context.surface.describe_model())
    chosen = await context.surface.choose_model(words)
    return Refused(ONE_MODEL) if chosen is None else ModelChosen(chosen)


async def agents(context: CommandContext, words: str) -> Reply:
    session_id = context.conversation.session_id
    if session_id is None:
        return NothingSaid("No subagent has worked for it.")
    reply = await run_agents_command(context.store, context.surface.subagents, session_id, words)
    return Refused(f"Usage: `{AGENTS_USAGE}`") if reply is None else reply


async def show_help(context: CommandContext, words: str) -> Reply:
    return Help(words.lstrip("/").lower())


LISTS = (
    Command(
        "sessions",
        sessions,
        "[words]",
        "your conversations, or those with words in their title or beginning",
        at_once=True,
    ),
    Command("search", search, "<words>", "find conversations by what was said", at_once=True),
)
REPORTS = (
    Command("status", status, "", "which conversation this is, and what it is doing", at_once=True),
    Command("usage", usage, "", "what this conversation used and cost, by model", at_once=True),
    Command(
        "insights",
        insights,
        "[days] [--days N] [--source S]",
        "what you did in the last 30 days, and what it cost",
        at_once=True,
    ),
)
AGENT = (
    Command("model", model, "[name]", "who answers; in the terminal, go on with another model", at_once=True),
    Command("memory", memory, "", "what the agent remembers between conversations", at_once=True),
    Command("skills", skills, "", "what the agent has learned to do", at_once=True),
    Command(
        "agents", agents, "[stop [n]]", "the subagents of this conversation; stop one or all", at_once=True
    ),
)
HELP = Command(
    "help",
    show_help,
    "[command]",
    "this list, or one of them",
    at_once=True,
    aliases=("start",),  # what Telegram sends for a person who opens the chat
)
