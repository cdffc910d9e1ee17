"""`/why`: the recent incidents of a chat, such as resets and compressions, with their times and reasons.

The list shows that an older conversation was replaced and not lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from hermes import clock
from hermes.conversation.commands.command_types import Command
from hermes.gateway.commands.command_context import ChatCommand, ChatCommandContext, CommandReply
from hermes.gateway.commands.reply_markdown import describe_resets
from hermes.gateway.commands.visible_conversations import ChatVisibility, describe_empty, is_from_this_chat
from hermes.gateway.incidents import Incident
from hermes.gateway.outbound.markdown_format import escape_line, format_code, format_name, format_time
from hermes.store.sessions.lineage import Relative

Row = dict[str, Any]

MOST_LISTED, MOST_SCANNED = 10, 100

CAUSES = {
    "session_reset": "somebody sent `/new`",
    "idle": "nobody had written for a long time (`session_reset: idle`)",
    "daily": "the daily reset was due (`session_reset: daily`)",
    "suspended": "the previous conversation could not continue",
}


async def why(context: ChatCommandContext, words: str) -> CommandReply:
    return CommandReply(await asyncio.to_thread(_format_incidents, context))


def _format_incidents(context: ChatCommandContext) -> str:
    rule = context.policy
    incidents = [*context.chat.incidents, *_stored_incidents(context)]
    incidents.sort(key=lambda incident: -incident.at)
    now = clock.now()
    lines = [
        f"- {format_time(incident.at, rule.timezone, now)}: {incident.text}"
        for incident in incidents[:MOST_LISTED]
    ]
    if len(incidents) > MOST_LISTED:
        lines.append("- … and earlier incidents.")
    return "\n".join([*(lines or [describe_empty(context)]), *describe_resets(context)])


def _stored_incidents(context: ChatCommandContext) -> Iterator[Incident]:
    session = context.chat.session_id
    tree = None if session is None else context.store.family(session)
    if session is None or tree is None:
        return
    family = {relative.id: relative for _, relative in tree.walk()}
    seen: set[str] = set()
    at = family.get(session)
    while at is not None and at.id not in seen:
        seen.add(at.id)
        above = family.get(at.parent_session_id or "")
        yield Incident(at.started_at, _describe_start(at, above))
        for child in at.children:
            if child.end_reason == "reset_undone" and child.ended_at is not None:
                yield Incident(
                    child.ended_at, f"A reset was undone with `/undo`: back in {_format_session(at)}."
                )
        at = above
    yield from _switches_away(context)
    yield from _handoff_incidents(context.store.get_session(session))


def _describe_start(session: Relative, above: Relative | None) -> str:
    if above is None:
        return f"The conversation {_format_session(session)} began."
    if session.relation == "compression":
        return (
            f"It became long: the earlier messages were summarised, and it continued as {_format_session(session)}."
            " Nothing is lost; `/search` finds it."
        )
    if session.relation == "branch":
        return f"It branched off from {_format_session(above)} with `/branch`."
    cause = CAUSES.get(above.end_reason or "")
    reason = f": {cause}" if cause else ""
    return f"A new conversation began{reason}. The previous one is kept: {format_code(f'/resume {above.id}')}"


def _format_session(session: Relative) -> str:
    return (
        f"{format_name({'title': session.title})} {format_code(session.id)}"
        if session.title
        else format_code(session.id)
    )


def _switches_away(context: ChatCommandContext) -> Iterator[Incident]:
    """Yield an incident for each conversation that this chat left with `/resume` for another one. Conversations
    that this chat may not show are left out."""
    visibility = ChatVisibility(context)
    for row in context.store.search_sessions(limit=MOST_SCANNED):
        if row["end_reason"] != "session_switch" or row["ended_at"] is None:
            continue
        stored = context.store.get_session(row["id"])
        if stored is None or not stored["message_count"]:
            continue
        if is_from_this_chat(context, stored) and visibility.can_show(stored):
            yield Incident(
                row["ended_at"],
                f"This chat left {format_name(row)} for another conversation with `/resume`."
                f" Back: {format_code('/resume ' + row['id'])}",
            )


def _handoff_incidents(row: Row | None) -> Iterator[Incident]:
    if row is None or row["handoff_state"] is None:
        return
    platform = escape_line(row["handoff_platform"] or "a platform")
    text = {
        "completed": f"It was handed over to {platform} from the terminal.",
        "failed": f"The handoff to {platform} failed: {escape_line(row['handoff_error'] or '?', 200)}",
    }.get(row["handoff_state"], f"It is being handed over to {platform}.")
    yield Incident(row["last_active"] or row["started_at"], text)


COMMANDS: tuple[ChatCommand, ...] = (
    Command("why", why, "", "show resets, switches and other events of this chat", at_once=True),
)
