"""Commands that show data: conversations, search hits, status, usage, insights, memory, skills, model,
subagents, help."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes.agent.subagents import list_subagents
from hermes.agent.tool import find_conversation_root
from hermes.config.redaction import redact_text
from hermes.conversation.commands.command_types import (
    LONGEST_NAME,
    Command,
    CommandContext,
    ModelDescription,
    Option,
    parse_number,
)
from hermes.conversation.commands.lookup import list_conversations
from hermes.conversation.commands.replies import (
    Help,
    Insights,
    Memory,
    ModelChosen,
    ModelShown,
    NothingSaid,
    Reason,
    Refused,
    Reply,
    SearchHits,
    Skills,
    Status,
    SubagentList,
    SubagentsStopped,
    UnknownModel,
    Usage,
)

if TYPE_CHECKING:
    from hermes.conversation.conversation import Conversation

HITS_WITH_AUDIENCE = 50
"""The number of hits to read if other people can read the reply. More hits are read than shown, because some of them
may be private."""
MODELS_OFFERED = 10
"""The number of models to offer if an unknown model name is similar to none of them."""
DAYS, MOST_DAYS = 30, 9999
FLAGS = {"--days": "days", "--source": "source"}
HIGHEST_NUMBER = 999_999_999
"""The highest number that is accepted as the number of a subagent."""


async def sessions(context: CommandContext, words: str) -> Reply:
    return await asyncio.to_thread(list_conversations, context, words, is_resume=not words)


async def search(context: CommandContext, words: str) -> Reply:
    if not words:
        return SEARCH.reject()
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
    parts = found.parts if found.partial else ()
    are_nearest = found.relaxed and not found.partial and not found.is_question
    return SearchHits(rows[: context.most_hits], private, parts, are_nearest)


async def status(context: CommandContext, words: str) -> Reply:
    rows = await context.conversation.load_rows()
    return await asyncio.to_thread(_read_status, context, len(rows))


def _read_status(context: CommandContext, messages: int) -> Status:
    conversation, store = context.conversation, context.store
    session_id = conversation.known_id
    row = store.get_session(session_id) if session_id is not None and conversation.exists else None
    used = None if row is None else store.usage_of(row["id"], True)
    title = (None if row is None else row["title"]) or conversation.queued_title
    return Status(session_id, row, title, messages, used)


async def usage(context: CommandContext, words: str) -> Reply:
    session_id = context.conversation.session_id
    if not context.conversation.exists:
        return Usage(None)
    return Usage(await asyncio.to_thread(context.store.usage_of, session_id, True))


async def insights(context: CommandContext, words: str) -> Reply:
    from hermes.insights import InsightsEngine

    if context.visibility.has_audience:
        return Refused(Reason.NUMBERS_OF_ONE_PERSON)
    arguments = _parse_insights(words)
    if arguments is None:
        return INSIGHTS.reject()
    days, source = arguments
    return Insights(await asyncio.to_thread(InsightsEngine(context.store).generate, days, source))


def _parse_insights(words: str) -> tuple[int, str | None] | None:
    """Return the number of days and the source that a person typed after `/insights`. None if the text is invalid."""
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
    days = parse_number(options.get("days", str(DAYS)), MOST_DAYS)
    return None if days is None else (days, options.get("source"))


async def memory(context: CommandContext, words: str) -> Reply:
    if not context.visibility.can_show_memory:
        return Refused(Reason.ABOUT_ONE_PERSON)
    return Memory(await context.conversation.read_memory())


async def skills(context: CommandContext, words: str) -> Reply:
    if not context.visibility.can_show_memory:
        return Refused(Reason.ABOUT_ONE_PERSON)
    return Skills(await context.conversation.list_skills())


async def model(context: CommandContext, words: str) -> Reply:
    conversation = context.conversation
    if not words:
        return ModelShown(await _describe_model(conversation))
    if conversation.models is None:
        return Refused(Reason.MODEL_IS_FIXED)
    check = await conversation.models.check(words)
    if check.missing_at is not None:
        current = conversation.models.model
        kept = "the current model" if current is None else current.name
        names = [name for name in check.similar or check.listed[:MODELS_OFFERED] if name != kept]
        options = [Option("", f"keep {kept}"), *(Option(name, name) for name in names)]
        chosen = await context.surface.choose(
            f"{check.missing_at} lists no model '{words}'. Which model?",
            [*options, Option(words, f"{words} all the same")],
        )
        if not chosen:
            return UnknownModel(words, check.missing_at, check.similar)
        words = chosen
    return ModelChosen((await conversation.choose_model(words)).name, check.problem)


async def _describe_model(conversation: Conversation[Any]) -> ModelDescription | None:
    """Describe the model of the conversation. On a surface where the person cannot choose the model, describe the model
    that answered last, or return None."""
    if conversation.models is not None:
        chosen = (await conversation.prepare()).agent.model
        return ModelDescription(chosen.name, redact_text(chosen.base_url or chosen.provider or "unknown"))
    session_id = conversation.known_id
    row = None if session_id is None else await asyncio.to_thread(conversation.store.get_session, session_id)
    return None if row is None or not row["model"] else ModelDescription(row["model"], "")


async def agents(context: CommandContext, words: str) -> Reply:
    session_id, running = context.conversation.known_id, context.surface.subagents
    verb, _, name = " ".join(words.lower().split()).partition(" ")
    number = parse_number(name, HIGHEST_NUMBER)
    if verb not in ("", "stop") or (name and number is None):
        return AGENTS.reject()
    if session_id is None:
        return NothingSaid(Reason.NO_SUBAGENTS)
    conversation = await asyncio.to_thread(find_conversation_root, context.store, session_id)
    if verb == "stop":
        return SubagentsStopped([] if running is None else running.stop(conversation, number), number)
    known = [] if running is None else running.list_known(conversation)
    return SubagentList(await asyncio.to_thread(list_subagents, context.store, known, conversation))


async def show_help(context: CommandContext, words: str) -> Reply:
    name, *_ = words.lower().split() or [""]
    return Help(name.lstrip("/")[:LONGEST_NAME])


SEARCH = Command("search", search, "<words>", "search the messages of your conversations", at_once=True)
INSIGHTS = Command(
    "insights",
    insights,
    "[days] [--days N] [--source S]",
    "usage of the last 30 days: sessions, tools, costs",
    at_once=True,
)
AGENTS = Command(
    "agents", agents, "[stop [n]]", "the subagents of this conversation; stop one or all", at_once=True
)
LISTS = (
    Command(
        "sessions",
        sessions,
        "[words]",
        "your conversations, or those with words in their title or beginning",
        at_once=True,
    ),
    SEARCH,
)
REPORTS = (
    Command("status", status, "", "show the conversation and its state", at_once=True),
    Command("usage", usage, "", "show tokens and cost of this conversation, by model", at_once=True),
    INSIGHTS,
)
AGENT = (
    Command("model", model, "[name]", "show the model; in the terminal, switch to another", at_once=True),
    Command("memory", memory, "", "show the memory of the agent", at_once=True),
    Command("skills", skills, "", "list the skills of the agent", at_once=True),
    AGENTS,
)
HELP = Command("help", show_help, "[command]", "list the commands, or explain one", at_once=True)
