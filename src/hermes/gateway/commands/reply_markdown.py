"""Formats the replies of shared commands as Markdown for a chat. The texts come from `wording`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.agent.events import Moved, Note
from hermes.conversation.commands import replies, wording
from hermes.conversation.commands.replies import Reason, Reply
from hermes.gateway.commands.command_context import CommandReply, ReplyContext
from hermes.gateway.commands.visible_conversations import IN_TRASH, describe_empty, describe_private
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
from hermes.insights.number_format import format_duration, format_plural
from hermes.message_content import omit_attached, read_text
from hermes.text import make_preview, spell_controls

if TYPE_CHECKING:
    from hermes.conversation.commands.wording import Line, Part

SHOWN, LONGEST = 20, 120
"""The number of messages that `/history` shows, and the maximum number of characters of each message."""
SPEAKERS = {"user": "You", "assistant": "Hermes"}
IN_CHATS = {
    Reason.MODEL_IS_FIXED: "All chats use the same model. Run `hermes setup` on the server to change it.",
    Reason.ABOUT_ONE_PERSON: "The answer is only for you: ask me in a private chat.",
    Reason.NUMBERS_OF_ONE_PERSON: (
        "These numbers include your private conversations: ask me in a private chat."
    ),
    Reason.PRIVATE_CONVERSATION: (
        "That conversation is private: it cannot be opened where others can read it. Ask me in a private chat."
    ),
    Reason.SHARED_CONVERSATION: "That conversation is shared in this room; this one is only yours.",
}
"""The texts for refusals that are worded differently in chats than in the terminal."""


async def format_reply(context: ReplyContext, reply: Reply) -> CommandReply:
    if isinstance(reply, replies.AskAgain):
        text = f"↻ Once more: {quote_beginning(reply.content)}"
        return CommandReply(text, None if reply.is_stored else reply.content, reply.is_stored)
    if isinstance(reply, replies.Compressing):
        return CommandReply(await _compress(reply))
    formatter = _FORMATTERS.get(type(reply))
    if formatter is None:
        return CommandReply(_format_lines(wording.describe_reply(reply)))
    return CommandReply(await asyncio.to_thread(formatter, context, reply))


def format_line(line: Line) -> str:
    return "".join(map(_format_part, line))


def _format_lines(lines: Iterable[Line]) -> str:
    return "\n".join(map(format_line, lines))


def _format_part(part: Part) -> str:
    match part:
        case str():
            return part
        case wording.Code(text):
            return format_code(text)
        case wording.Foreign(text, longest):
            return escape_line(text, longest)
        case wording.Name(row):
            return format_name(row)
        case wording.Strong(text):
            return f"**{text}**"


NOT_FOUND = _format_lines(wording.describe_reply(replies.NotFound("")))


async def _compress(reply: replies.Compressing) -> str:
    lines = []
    async for event in reply.events:
        if isinstance(event, Note):
            lines.append(event.text)
        elif isinstance(event, Moved):
            lines.append(f"Compressed: {event.before} → {event.after} messages.")
    return "\n".join(lines) or wording.NOTHING_COMPRESSED


def _format_refusal(_context: ReplyContext, reply: replies.Refused) -> str:
    return IN_CHATS.get(reply.reason) or wording.REASONS[reply.reason]


def _format_nothing_said(context: ReplyContext, reply: replies.NothingSaid) -> str:
    return _format_lines(wording.describe_nothing_said(reply, describe_empty(context)))


def _format_already_new(context: ReplyContext, reply: replies.AlreadyNew) -> str:
    return _format_lines(wording.describe_already_new(reply, describe_empty(context)))


def _format_undone(_context: ReplyContext, reply: replies.StartUndone) -> str:
    called = "the previous conversation" if reply.row is None else format_name(reply.row)
    return f"↩ {wording.START_UNDONE} Back in {called} ({format_plural(reply.messages, 'message')})."


def _format_prompts(_context: ReplyContext, reply: replies.Prompts) -> str:
    lines = [f"{number}. {quote_beginning(row['preview'])}" for number, row in enumerate(reply.rows, 1)]
    return "\n".join([*lines, "`/rewind` with a number rewinds to before that message."])


def _format_history(context: ReplyContext, reply: replies.History) -> str:
    lines = []
    for row in reply.rows:
        text = read_text(omit_attached(row["content"]), row["role"]).strip()
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


def _format_switched(_context: ReplyContext, reply: replies.Switched) -> str:
    count = format_plural(reply.messages, "message")
    return f"↻ Back in {format_name(reply.row)} ({count}).\nIts id: {format_code(reply.session_id)}"


def _format_ambiguous(_context: ReplyContext, reply: replies.Ambiguous) -> str:
    now = clock.now()
    lines = [f"- {format_conversation(row, now)}" for row in reply.rows]
    return "\n".join(("Several conversations match:", *lines))


def _format_list(_context: ReplyContext, listing: replies.ConversationList) -> str:
    now, lines = clock.now(), []
    for number, row in enumerate(listing.rows, 1):
        here = " (here)" if row["id"] == listing.here else ""
        lines.append(f"{number}. {format_conversation(row, now)}{here}")
    if listing.private:
        lines.append(describe_private(listing.private))
    end = wording.describe_list_end(listing)
    return "\n".join((*lines, *map(format_line, end)))


def _format_hits(_context: ReplyContext, hits: replies.SearchHits) -> str:
    now, lines = clock.now(), [format_line(line) for line in wording.describe_search(hits)]
    for number, row in enumerate(hits.rows, 1):
        lines += [f"{number}. {format_conversation(row, now)}", f"   {format_snippet(row['snippet'])}"]
    lines += [format_line(wording.RESUME_HINT)] if hits.rows else []
    if hits.private:
        lines.append(describe_private(hits.private))
    return "\n".join(lines)


def _format_status(context: ReplyContext, status: replies.Status) -> str:
    chat, source, now, row = context.chat, context.source, clock.now(), status.row
    lines = [f"{label}: {format_line(value)}" for label, value in wording.list_status_facts(status)]
    if row is None:
        lines.insert(0, describe_empty(context))
    else:
        lines += [f"Model: {format_code(row['model'])}"] if row["model"] else []
        lines.append(f"Since: {format_time(row['started_at'], context.policy.timezone, now)}")
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
    shared = ", shared by everybody in this chat" if chat.is_shared else ""
    lines += [
        f"Platform: {escape_line(source.platform)}, {source.chat_type}{shared}",
        *_describe_budget(context),
        *describe_resets(context),
    ]
    return "\n".join(lines)


def describe_resets(context: ReplyContext) -> list[str]:
    """Return lines that describe the reset policy of the chat and the time of the next reset."""
    rule = context.policy
    due = context.next_reset()
    lines = [f"Resets: {describe_policy(rule)}"]
    if due is not None:
        lines.append(f"Next: {format_time(due, rule.timezone, clock.now())}")
    holds = context.reset_holds()
    return [*lines, f"Held off by: {', '.join(holds)}"] if holds else lines


def _describe_budget(context: ReplyContext) -> list[str]:
    """Return one line that says how much of the daily limit is left, or an empty list. The limit of a person is
    shown only in a private chat, because its use includes their private conversations."""
    if context.source.chat_type != "dm" and not context.chat.is_shared:
        return []
    budget = context.budget()
    if budget is None:
        return []
    when = format_time(budget.resets_at, context.policy.timezone, clock.now())
    return [f"Left for today: {', '.join(budget.parts)} (until {when})"]


def _format_usage(context: ReplyContext, reply: replies.Usage) -> str:
    lines = [IN_TRASH] if context.chat.was_trashed else []
    lines += [format_line(line) for line in wording.describe_usage(reply.used)]
    lines += [
        f"- {format_code(line.model or 'unknown')}{wording.describe_purpose(line.purpose)}:"
        f" {wording.format_usage_line(line.used)}"
        for line in (() if reply.used is None else reply.used.by_model)
    ]
    return "\n".join(lines)


def _format_insights(_context: ReplyContext, reply: replies.Insights) -> str:
    from hermes.insights.chat_report import format_markdown

    return format_markdown(reply.report)


def _format_memory(_context: ReplyContext, reply: replies.Memory) -> str:
    return spell_controls(reply.text).strip() or wording.NOTHING_REMEMBERED


def _format_help(_context: ReplyContext, reply: replies.Help) -> str:
    from hermes.gateway.commands.command_table import BY_NAME, COMMANDS

    if not reply.name:
        return "\n".join(f"{format_code(command.usage)} {command.summary}" for command in COMMANDS)
    command = BY_NAME.get(reply.name)
    if command is None:
        return format_line(wording.describe_unknown(reply.name, BY_NAME))
    return f"{format_code(command.usage)}\n{command.summary}"


_FORMATTERS: dict[type, Callable[[ReplyContext, Any], str]] = {
    replies.Refused: _format_refusal,
    replies.NothingSaid: _format_nothing_said,
    replies.AlreadyNew: _format_already_new,
    replies.StartUndone: _format_undone,
    replies.Prompts: _format_prompts,
    replies.Resent: lambda _context, reply: spell_controls(read_text(reply.content, "assistant")),
    replies.History: _format_history,
    replies.Switched: _format_switched,
    replies.Ambiguous: _format_ambiguous,
    replies.ConversationList: _format_list,
    replies.SearchHits: _format_hits,
    replies.Status: _format_status,
    replies.Usage: _format_usage,
    replies.Insights: _format_insights,
    replies.Memory: _format_memory,
    replies.Help: _format_help,
}
"""The formatters by type of reply. Any other reply is formatted with the texts of `wording`, except `AskAgain` and
`Compressing`, which `format_reply` handles itself."""
