"""Commands that only show something: conversations, search hits, status, usage, insights."""

from __future__ import annotations

import asyncio
from typing import Any

from hermes import clock
from hermes.agent.events import SubagentProgress
from hermes.agent.subagents import AGENTS_USAGE, describe_work, run_agents_command
from hermes.gateway.commands.command_context import Command, CommandContext, CommandReply
from hermes.gateway.commands.switching import resume
from hermes.gateway.commands.visible_conversations import (
    describe_empty,
    describe_private,
    has_audience,
    list_conversations,
    visibility_filter,
)
from hermes.gateway.outbound.markdown_format import (
    describe_policy,
    escape_line,
    format_code,
    format_conversation,
    format_name,
    format_snippet,
    format_time,
)
from hermes.insights.number_format import (
    format_dollars,
    format_duration,
    format_number,
    format_plural,
    shorten_number,
)

FOUND, LOOKED_AT = 5, 50
DAYS, MOST_DAYS = 30, 9999
FLAGS = {"--days": "days", "--source": "source"}


async def sessions(context: CommandContext) -> CommandReply:
    if not context.words:
        return await resume(context)
    return CommandReply(await asyncio.to_thread(_list_matching, context))


def _list_matching(context: CommandContext) -> str:
    listing, now = list_conversations(context, context.words), clock.now()
    lines = [f"- {format_conversation(row, now)}" for row in listing.rows]
    if listing.more:
        lines.append("… and more. `/search` looks into what was said.")
    if listing.private:
        lines.append(describe_private(listing.private))
    return (
        "\n".join(lines)
        or "No conversation has that in its title or its first words; `/search` looks into all."
    )


async def search(context: CommandContext) -> CommandReply:
    if not context.words:
        return CommandReply("Usage: `/search words`")
    return CommandReply(await asyncio.to_thread(_format_hits, context))


def _format_hits(context: CommandContext) -> str:
    visible, now = visibility_filter(context), clock.now()
    limit = LOOKED_AT if has_audience(context) else FOUND
    lines: list[str] = []
    count = private = 0
    results = context.store.search_conversations(context.words, limit)
    for row in results:
        stored = context.store.get_session(row["tip_id"])
        if stored is None or not visible(stored):
            private += 1
        elif count < FOUND:
            count += 1
            hit = {**row, "id": row["tip_id"], "preview": stored["preview"]}
            lines += [f"- {format_conversation(hit, now)}", f"  {format_snippet(row['snippet'])}"]
    if results.relaxed and lines:
        lines.insert(0, "Nothing has all of that; the nearest:")
    if results.partial and lines:
        lines.insert(
            0, f"No word matches; found as part of a word: {', '.join(map(format_code, results.parts))}"
        )
    if private:
        lines.append(describe_private(private))
    return "\n".join(lines) or "Nothing was found."


async def status(context: CommandContext) -> CommandReply:
    return CommandReply(await asyncio.to_thread(_format_status, context))


def _format_status(context: CommandContext) -> str:
    chat, source, now = context.chat, context.source, clock.now()
    rule = context.policy
    row = None if chat.session_id is None else context.store.get_session(chat.session_id)
    lines = [format_name(row) if row is not None else describe_empty(context)]
    if chat.session_id is not None:
        lines.append(f"Session: {format_code(chat.session_id)}")
    if row is not None:
        used = context.store.usage_of(row["id"], True).total
        lines += [
            f"Messages: {format_number(len(context.store.get_context(row['id'])))} in the context",
            f"Tokens: {shorten_number(used.input_tokens)} in, {shorten_number(used.output_tokens)} out",
            f"Since: {format_time(row['started_at'], rule.timezone, now)}",
        ]
        lines += [f"Model: {format_code(row['model'])}"] if row["model"] else []
    if chat.working_since is not None:
        lines.append(f"Working: for {format_duration(max(0.0, now - chat.working_since))} (`/stop` stops it)")
    lines += [
        f"Waiting for your approval: {format_code(approval.name)} {format_code(approval.request.subject)}"
        f" (for {format_duration(max(0.0, approval.expires_at - now))} more)"
        for approval in chat.waiting_approvals
        if context.can_approve
    ]
    if chat.waiting:
        lines.append(f"Waiting: {format_plural(chat.waiting, 'message')}")
    shared = ", shared by all who are here" if chat.is_shared else ""
    lines += [
        f"Platform: {escape_line(source.platform)}, {source.chat_type}{shared}",
        *describe_resets(context),
    ]
    return "\n".join(lines)


def describe_resets(context: CommandContext) -> list[str]:
    """When this chat starts afresh by itself, and when that would be."""
    rule = context.policy
    due = context.next_reset()
    lines = [f"Starts afresh: {describe_policy(rule)}"]
    return lines if due is None else [*lines, f"Next: {format_time(due, rule.timezone, clock.now())}"]


async def usage(context: CommandContext) -> CommandReply:
    session = context.chat.session_id
    if session is None:
        return CommandReply(f"{describe_empty(context)} It has cost nothing.")
    used = await asyncio.to_thread(context.store.usage_of, session, True)
    if not used.by_model:
        return CommandReply("No model was used in this conversation yet.")
    lines = [f"**This conversation** · {_format_usage(used.total)}"]
    lines += [
        f"- {format_code(line.model or 'unknown')}{'' if line.purpose == 'main' else ' (beside)'}:"
        f" {_format_usage(line.used)}"
        for line in used.by_model
    ]
    return CommandReply("\n".join(lines))


def _format_usage(used: Any) -> str:
    cost = used.estimated_cost_usd if used.actual_cost_usd is None else used.actual_cost_usd
    paid = f", {'~' if used.actual_cost_usd is None else ''}{format_dollars(cost)}" if cost else ""
    tokens = f"{shorten_number(used.input_tokens)} in, {shorten_number(used.output_tokens)} out"
    return f"{format_plural(used.calls, 'call')}, {tokens}{paid}"


async def agents(context: CommandContext) -> CommandReply:
    chat = context.chat
    if chat.session_id is None:
        return CommandReply(describe_empty(context))
    reply = await run_agents_command(context.store, chat.subagents, chat.session_id, context.words)
    if reply.is_misspelt:
        return CommandReply(f"Usage: {format_code(AGENTS_USAGE)}")
    if reply.stopped is not None:
        names = ", ".join(f"subagent {progress.number}" for progress in reply.stopped)
        return CommandReply(f"Stopping {names}." if names else "No subagent is at work.")
    lines = [f"- {_format_subagent(progress)}" for progress in reply.subagents]
    return CommandReply("\n".join(lines) or "No subagent has worked for this conversation.")


def _format_subagent(progress: SubagentProgress) -> str:
    name = f"**{progress.number}** " if progress.number is not None else ""
    doing = f" ({escape_line(progress.activity, 40)})" if progress.activity else ""
    return f"{name}{escape_line(progress.goal, 80)} · {progress.state}{doing} · {describe_work(progress)}"


async def insights(context: CommandContext) -> CommandReply:
    from hermes.insights import InsightsEngine
    from hermes.insights.chat_report import format_markdown

    if has_audience(context):
        return CommandReply(
            "These numbers tell of your private conversations, too: ask me in a private chat."
        )
    arguments = _parse_insights(context.words)
    if arguments is None:
        return CommandReply("Usage: `/insights [days] [--days N] [--source S]`")
    days, source = arguments
    report = await asyncio.to_thread(InsightsEngine(context.store).generate, days, source)
    return CommandReply(format_markdown(report))


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


COMMANDS = (
    Command(
        "sessions",
        sessions,
        "/sessions [words]",
        "your conversations, or those with words in their title or beginning",
        at_once=True,
    ),
    Command("search", search, "/search words", "find conversations by what was said", at_once=True),
    Command("status", status, "/status", "which conversation this is, and what it is doing", at_once=True),
    Command("usage", usage, "/usage", "what this conversation used and cost", at_once=True),
    Command(
        "agents",
        agents,
        AGENTS_USAGE,
        "the subagents of this conversation; stop one or all",
        at_once=True,
    ),
    Command(
        "insights",
        insights,
        "/insights [days] [--days N] [--source S]",
        "what you did in the last 30 days, and what it cost",
        at_once=True,
    ),
)
