"""Commands that only show something: conversations, what was said in them, this one, and what they cost."""

from __future__ import annotations

import asyncio
from typing import Any

from hermes import clock
from hermes.gateway.commands.command_context import Answer, Asked, Command
from hermes.gateway.commands.markdown_format import code, line_of, name_of, plain, policy, snippet, when
from hermes.gateway.commands.switching import resume
from hermes.gateway.commands.visible_conversations import (
    describe_empty,
    listed,
    private_ones,
    read_along,
    visible_here,
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


async def sessions(asked: Asked) -> Answer:
    if not asked.words:
        return await resume(asked)
    return Answer(await asyncio.to_thread(_with_words, asked))


def _with_words(asked: Asked) -> str:
    found, now = listed(asked, asked.words), clock.now()
    lines = [f"- {line_of(row, now)}" for row in found.rows]
    if found.more:
        lines.append("… and more. `/search` looks into what was said.")
    if found.private:
        lines.append(private_ones(found.private))
    return (
        "\n".join(lines)
        or "No conversation has that in its title or its first words; `/search` looks into all."
    )


async def search(asked: Asked) -> Answer:
    if not asked.words:
        return Answer("Usage: `/search words`")
    return Answer(await asyncio.to_thread(_found, asked))


def _found(asked: Asked) -> str:
    visible, now = visible_here(asked), clock.now()
    limit = LOOKED_AT if read_along(asked) else FOUND
    lines: list[str] = []
    shown = private = 0
    results = asked.store.search_conversations(asked.words, limit)
    for row in results:
        stored = asked.store.get_session(row["tip_id"])
        if stored is None or not visible(stored):
            private += 1
        elif shown < FOUND:
            shown += 1
            told = {**row, "id": row["tip_id"], "preview": stored["preview"]}
            lines += [f"- {line_of(told, now)}", f"  {snippet(row['snippet'])}"]
    if results.relaxed and lines:
        lines.insert(0, "Nothing has all of that; the nearest:")
    if results.partial and lines:
        lines.insert(0, f"No word matches; found as part of a word: {', '.join(map(code, results.parts))}")
    if private:
        lines.append(private_ones(private))
    return "\n".join(lines) or "Nothing was found."


async def status(asked: Asked) -> Answer:
    return Answer(await asyncio.to_thread(_status, asked))


def _status(asked: Asked) -> str:
    here, source, now = asked.here, asked.source, clock.now()
    rule = asked.policy
    row = None if here.session_id is None else asked.store.get_session(here.session_id)
    lines = [name_of(row) if row is not None else describe_empty(asked)]
    if here.session_id is not None:
        lines.append(f"Session: {code(here.session_id)}")
    if row is not None:
        used = asked.store.usage_of(row["id"], True).total
        lines += [
            f"Messages: {format_number(len(asked.store.get_context(row['id'])))} in the context",
            f"Tokens: {shorten_number(used.input_tokens)} in, {shorten_number(used.output_tokens)} out",
            f"Since: {when(row['started_at'], rule.timezone, now)}",
        ]
        lines += [f"Model: {code(row['model'])}"] if row["model"] else []
    if here.working_since is not None:
        lines.append(f"Working: for {format_duration(max(0.0, now - here.working_since))} (`/stop` stops it)")
    lines += [
        f"Waiting for your approval: {code(one.name)} {code(one.request.subject)}"
        f" (for {format_duration(max(0.0, one.expires_at - now))} more)"
        for one in here.waiting_approvals
        if asked.can_approve
    ]
    if here.waiting:
        lines.append(f"Waiting: {format_plural(here.waiting, 'message')}")
    shared = ", shared by all who are here" if here.shared else ""
    lines += [f"Platform: {plain(source.platform)}, {source.chat_type}{shared}", *reset_lines(asked)]
    return "\n".join(lines)


def reset_lines(asked: Asked) -> list[str]:
    """When this chat starts afresh by itself, and when that would be."""
    rule = asked.policy
    due = asked.next_reset()
    lines = [f"Starts afresh: {policy(rule)}"]
    return lines if due is None else [*lines, f"Next: {when(due, rule.timezone, clock.now())}"]


async def usage(asked: Asked) -> Answer:
    session = asked.here.session_id
    if session is None:
        return Answer(f"{describe_empty(asked)} It has cost nothing.")
    used = await asyncio.to_thread(asked.store.usage_of, session, True)
    if not used.by_model:
        return Answer("No model was used in this conversation yet.")
    lines = [f"**This conversation** · {_used(used.total)}"]
    lines += [
        f"- {code(line.model or 'unknown')}{'' if line.purpose == 'main' else ' (beside)'}: {_used(line.used)}"
        for line in used.by_model
    ]
    return Answer("\n".join(lines))


def _used(used: Any) -> str:
    cost = used.estimated_cost_usd if used.actual_cost_usd is None else used.actual_cost_usd
    paid = f", {'~' if used.actual_cost_usd is None else ''}{format_dollars(cost)}" if cost else ""
    tokens = f"{shorten_number(used.input_tokens)} in, {shorten_number(used.output_tokens)} out"
    return f"{format_plural(used.calls, 'call')}, {tokens}{paid}"


async def insights(asked: Asked) -> Answer:
    from hermes.insights import InsightsEngine
    from hermes.insights.chat_report import format_markdown

    if read_along(asked):
        return Answer("These numbers tell of your private conversations, too: ask me in a private chat.")
    wanted = _wanted(asked.words)
    if wanted is None:
        return Answer("Usage: `/insights [days] [--days N] [--source S]`")
    days, source = wanted
    report = await asyncio.to_thread(InsightsEngine(asked.store).generate, days, source)
    return Answer(format_markdown(report))


def _wanted(words: str) -> tuple[int, str | None] | None:
    """(days, source); None if it cannot be understood."""
    told: dict[str, str] = {}
    waiting = words.replace("=", " ").split()
    while waiting:
        word = waiting.pop(0)
        if word in FLAGS and waiting:
            told[FLAGS[word]] = waiting.pop(0)
        elif word.isdecimal() and "days" not in told:
            told["days"] = word
        else:
            return None
    days = told.get("days", str(DAYS))
    if not days.isdecimal() or not 0 < int(days[:9]) <= MOST_DAYS:
        return None
    return int(days), told.get("source")


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
        "insights",
        insights,
        "/insights [days] [--days N] [--source S]",
        "what you did in the last 30 days, and what it cost",
        at_once=True,
    ),
)
