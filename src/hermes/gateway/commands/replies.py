"""What the commands that every surface has return, as Markdown for a chat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.agent.events import Moved, Note, SubagentProgress
from hermes.agent.subagents import AgentsReply, describe_work
from hermes.conversation.commands import replies
from hermes.conversation.commands.replies import Reply
from hermes.gateway.commands.command_context import ChatCommandContext, CommandReply
from hermes.gateway.commands.visible_conversations import NOT_FOUND, describe_empty, describe_private
from hermes.gateway.outbound.markdown_format import (
    describe_policy,
    escape_line,
    format_code,
    format_conversation,
    format_name,
    format_snippet,
    format_time,
    quote_beginning,
)
from hermes.insights.number_format import (
    format_dollars,
    format_duration,
    format_number,
    format_plural,
    shorten_number,
)
from hermes.message_content import read_text
from hermes.text import make_preview, spell_controls

if TYPE_CHECKING:
    from hermes.conversation.commands.context import ModelDescription
    from hermes.store.reports.usage import UsageLine

BUSY = "That conversation is being worked in elsewhere just now; try again when that is done."
NO_REDO = "There is nothing to bring back: only what was taken back last, before something new is said."
SHOWN, LONGEST = 20, 120
"""How many messages of a conversation `/history` shows, and how much of each."""
SPEAKERS = {"user": "You", "assistant": "Hermes"}


async def format_reply(context: ChatCommandContext, reply: Reply) -> CommandReply:
    if isinstance(reply, replies.AskAgain):
        text = f"↻ Once more: {quote_beginning(reply.content)}"
        return CommandReply(text, None if reply.is_stored else reply.content, reply.is_stored)
    if isinstance(reply, replies.Compressing):
        return CommandReply(await _compress(reply))
    return CommandReply(await asyncio.to_thread(_FORMATTERS[type(reply)], context, reply))


async def _compress(reply: replies.Compressing) -> str:
    lines = []
    async for event in reply.events:
        if isinstance(event, Note):
            lines.append(event.text)
        elif isinstance(event, Moved):
            lines.append(f"Compressed: {event.before} → {event.after} messages.")
    return "\n".join(lines) or "Nothing was compressed."


def _format_rewind(
    context: ChatCommandContext,
    reply: replies.TookBack | replies.BroughtBack | replies.StartUndone | replies.Prompts,
) -> str:
    match reply:
        case replies.TookBack(messages, content, exchanges):
            rest = " and all after it" if exchanges > 1 else ""
            count = format_plural(messages, "message")
            return f"↩ Took back {quote_beginning(content)}{rest} ({count}). `/redo` brings it back."
        case replies.BroughtBack(messages):
            return f"↪ Brought back {format_plural(messages, 'message')}." if messages else NO_REDO
        case replies.StartUndone(row, messages):
            called = "the conversation before" if row is None else format_name(row)
            return f"↩ The new start is undone. Back in {called} ({format_plural(messages, 'message')})."
        case replies.Prompts(rows):
            lines = [f"{number}. {quote_beginning(row['preview'])}" for number, row in enumerate(rows, 1)]
            return "\n".join([*lines, "`/rewind` with a number goes back to before that message."])


def _format_history(context: ChatCommandContext, reply: replies.History) -> str:
    lines = []
    for row in reply.rows:
        text = read_text(row["content"], row["role"]).strip()
        if row["role"] in SPEAKERS and text:
            lines.append(
                f"**{SPEAKERS[row['role']]}**: {escape_line(make_preview(text, LONGEST) or '…', LONGEST)}"
            )
    if not lines:
        return describe_empty(context)
    before = len(lines) - SHOWN
    return "\n".join(
        ([f"… {format_plural(before, 'message')} before"] if before > 0 else []) + lines[-SHOWN:]
    )


def _format_stop(context: ChatCommandContext, reply: replies.Stopped) -> str:
    if reply.turn:
        them = "it" if reply.waiting == 1 else "them"
        behind = f" {format_plural(reply.waiting, 'message')} waiting; I go on with {them}."
        return f"⏹ Stopped.{behind if reply.waiting else ''}"
    if reply.processes:
        noun = "process" if reply.processes == 1 else "processes"
        return f"⏹ Stopped {format_number(reply.processes)} background {noun}."
    return "Nothing is running."


def _format_start(
    context: ChatCommandContext,
    reply: replies.Started | replies.AlreadyNew | replies.Titled | replies.TitleShown,
) -> str:
    match reply:
        case replies.Started(row, _, left, problem):
            called = f": {format_name(row)}" if row is not None and row["title"] else ""
            lines = [f"✨ **New conversation**{called}{_format_title_problem(problem)}"]
            if left is not None:
                lines.append(
                    f"You left {format_name(left)}: `/undo` before your next message brings it back,"
                    f" {format_code('/resume ' + left['id'])} at any time."
                )
            return "\n".join(lines)
        case replies.AlreadyNew(problem):
            text = f"{describe_empty(context)} It is a new conversation already."
            return f"{text}{_format_title_problem(problem)}"
        case replies.Titled(title):
            return f"Session title set: {escape_line(title, 200)}" if title else "The title is removed."
        case replies.TitleShown(session_id, title):
            prefix = f"Session: {format_code(session_id)}\n" if session_id else ""
            if title is None:
                return f"{prefix}No title yet. Usage: `/title name`"
            return f"{prefix}Title: {format_name({'title': title})}"


def _format_title_problem(problem: str | None) -> str:
    return "" if problem is None else f"\n{escape_line(problem, 200)}; it has no title."


def _format_switch(
    context: ChatCommandContext,
    reply: replies.Switched | replies.Ambiguous | replies.Branched,
) -> str:
    match reply:
        case replies.Switched(row, session_id, messages):
            count = format_plural(messages, "message")
            return f"↻ Back in {format_name(row)} ({count}).\nIts id: {format_code(session_id)}"
        case replies.Ambiguous(rows):
            now = clock.now()
            lines = [f"- {format_conversation(row, now)}" for row in rows]
            return "\n".join(("That could be any of these:", *lines))
        case replies.Branched(row, _, left_id):
            called = f": {format_name(row)}" if row is not None and row["title"] else ""
            return (
                f"⑂ **On a branch now**{called}\nIt knows all that was said. What you left stays as it is:"
                f" {format_code('/resume ' + left_id)}"
            )


def _format_list(context: ChatCommandContext, listing: replies.ConversationList) -> str:
    now, lines = clock.now(), []
    for number, row in enumerate(listing.rows, 1):
        here = " ← here" if listing.is_resume and row["id"] == listing.here else ""
        lines.append(f"{f'{number}.' if listing.is_resume else '-'} {format_conversation(row, now)}{here}")
    if listing.more and listing.is_resume:
        lines.append("… and more: `/sessions words` finds them.")
    elif listing.more:
        lines.append("… and more. `/search` looks into what was said.")
    if listing.private:
        lines.append(describe_private(listing.private))
    if listing.is_resume:
        hint = ["`/resume` with a number, an id or a title goes on there."] if listing.rows else []
        return "\n".join([*([] if listing.rows else ["There are no conversations yet."]), *lines, *hint])
    return (
        "\n".join(lines)
        or "No conversation has that in its title or its first words; `/search` looks into all."
    )


def _format_hits(context: ChatCommandContext, hits: replies.SearchHits) -> str:
    now, lines = clock.now(), list[str]()
    if hits.found.partial and hits.rows:
        parts = ", ".join(map(format_code, hits.found.parts))
        lines.append(f"No word matches; found as part of a word: {parts}")
    if hits.found.relaxed and hits.rows:
        lines.append("Nothing has all of that; the nearest:")
    for row in hits.rows:
        lines += [f"- {format_conversation(row, now)}", f"  {format_snippet(row['snippet'])}"]
    if hits.private:
        lines.append(describe_private(hits.private))
    return "\n".join(lines) or "Nothing was found."


def _format_status(context: ChatCommandContext, status: replies.Status) -> str:
    chat, source, now, row = context.chat, context.source, clock.now(), status.row
    lines = [format_name(row) if row is not None else describe_empty(context)]
    if status.session_id is not None:
        lines.append(f"Session: {format_code(status.session_id)}")
    if row is not None and status.used is not None:
        used = status.used.total
        lines += [
            f"Messages: {format_number(status.messages)} in the context",
            f"Tokens: {shorten_number(used.input_tokens)} in, {shorten_number(used.output_tokens)} out",
            f"Since: {format_time(row['started_at'], context.policy.timezone, now)}",
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


def describe_resets(context: ChatCommandContext) -> list[str]:
    """When this chat starts afresh by itself, and when that would be."""
    rule = context.policy
    due = context.next_reset()
    lines = [f"Starts afresh: {describe_policy(rule)}"]
    return lines if due is None else [*lines, f"Next: {format_time(due, rule.timezone, clock.now())}"]


def _format_usage(context: ChatCommandContext, reply: replies.Usage) -> str:
    used = reply.used
    if used is None:
        return f"{describe_empty(context)} It has cost nothing."
    if not used.by_model:
        return "No model was used in this conversation yet."
    lines = [f"**This conversation** · {_format_usage_line(used.total)}"]
    lines += [
        f"- {format_code(line.model or 'unknown')}{'' if line.purpose == 'main' else ' (beside)'}:"
        f" {_format_usage_line(line.used)}"
        for line in used.by_model
    ]
    return "\n".join(lines)


def _format_usage_line(used: UsageLine) -> str:
    cost = used.estimated_cost_usd if used.actual_cost_usd is None else used.actual_cost_usd
    paid = f", {'~' if used.actual_cost_usd is None else ''}{format_dollars(cost)}" if cost else ""
    tokens = f"{shorten_number(used.input_tokens)} in, {shorten_number(used.output_tokens)} out"
    return f"{format_plural(used.calls, 'call')}, {tokens}{paid}"


def _format_insights(context: ChatCommandContext, reply: replies.Insights) -> str:
    from hermes.insights.chat_report import format_markdown

    return format_markdown(reply.report)


def _format_skills(context: ChatCommandContext, reply: replies.Skills) -> str:
    lines = [f"- {format_code(name)}: {escape_line(about, 200)}" for name, about in reply.entries]
    return "\n".join(lines) or "There are no skills yet."


def _format_agents(_context: ChatCommandContext, reply: AgentsReply) -> str:
    if reply.stopped is not None:
        names = ", ".join(f"subagent {progress.number}" for progress in reply.stopped)
        return f"Stopping {names}." if names else "No subagent is at work."
    lines = [f"- {_format_subagent(progress)}" for progress in reply.subagents]
    return "\n".join(lines) or "No subagent has worked for this conversation."


def _format_subagent(progress: SubagentProgress) -> str:
    name = f"**{progress.number}** " if progress.number is not None else ""
    doing = f" ({escape_line(progress.activity, 40)})" if progress.activity else ""
    return f"{name}{escape_line(progress.goal, 80)} · {progress.state}{doing} · {describe_work(progress)}"


def _format_model(model: ModelDescription | None) -> str:
    return f"Model: {format_code(model.name)}" if model is not None else "No model has answered yet."


def _format_help(context: ChatCommandContext, reply: replies.Help) -> str:
    from hermes.gateway.commands.command_table import COMMANDS, find_named

    command = find_named(reply.name)
    if command is None:
        return "\n".join(f"{format_code(command.usage)} {command.summary}" for command in COMMANDS)
    return f"{format_code(command.usage)}\n{command.summary}"


_FORMATTERS: dict[type, Callable[[ChatCommandContext, Any], str]] = {
    replies.Refused: lambda _context, reply: str(reply.text),
    replies.NothingSaid: lambda context, reply: f"{describe_empty(context)} {reply.text}",
    replies.Cancelled: lambda _context, _reply: "Nothing was changed.",
    replies.TookBack: _format_rewind,
    replies.BroughtBack: _format_rewind,
    replies.StartUndone: _format_rewind,
    replies.Prompts: _format_rewind,
    replies.Resent: lambda _context, reply: spell_controls(read_text(reply.content, "assistant")),
    replies.History: _format_history,
    replies.Stopped: _format_stop,
    replies.Started: _format_start,
    replies.AlreadyNew: _format_start,
    replies.Titled: _format_start,
    replies.TitleShown: _format_start,
    replies.Switched: _format_switch,
    replies.Ambiguous: _format_switch,
    replies.Branched: _format_switch,
    replies.AlreadyHere: lambda _context, _reply: "You are in that conversation already.",
    replies.Busy: lambda _context, _reply: BUSY,
    replies.NotFound: lambda _context, _reply: NOT_FOUND,
    replies.ConversationList: _format_list,
    replies.SearchHits: _format_hits,
    replies.Status: _format_status,
    replies.Usage: _format_usage,
    AgentsReply: _format_agents,
    replies.Insights: _format_insights,
    replies.Memory: lambda _context, reply: (
        spell_controls(reply.text).strip() or "Nothing is remembered yet."
    ),
    replies.Skills: _format_skills,
    replies.ModelShown: lambda _context, reply: _format_model(reply.model),
    replies.ModelChosen: lambda _context, reply: f"Going on with {format_code(reply.name)}.",
    replies.Help: _format_help,
}
"""How each reply is shown. Of the two that are missing, `AskAgain` and `Compressing`, more than text follows."""
