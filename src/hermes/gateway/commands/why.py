"""`/why`: what happened to this chat, and when, in sentences. Nobody should have to take a new start for a loss."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from hermes import clock
from hermes.gateway.commands.command_context import Answer, Asked, Command, Happening
from hermes.gateway.commands.markdown_format import code, name_of, plain, when
from hermes.gateway.commands.overview import reset_lines
from hermes.gateway.commands.visible_conversations import describe_empty, held_here, visible_here
from hermes.store.sessions.lineage import Relative

Row = dict[str, Any]

TOLD, LOOKED_AT = 10, 100

CAUSES = {
    "session_reset": "somebody asked for it with `/new`",
    "idle": "nobody had spoken for long (`session_reset: idle`)",
    "daily": "it was time for the daily new start (`session_reset: daily`)",
    "suspended": "the one before could not go on",
}


async def why(asked: Asked) -> Answer:
    return Answer(await asyncio.to_thread(_told, asked))


def _told(asked: Asked) -> str:
    rule = asked.policy
    happened = [*asked.here.happened, *_in_the_store(asked)]
    happened.sort(key=lambda one: -one.at)
    now = clock.now()
    lines = [f"- {when(one.at, rule.timezone, now)}: {one.text}" for one in happened[:TOLD]]
    if len(happened) > TOLD:
        lines.append("- … and more before that.")
    return "\n".join([*(lines or [describe_empty(asked)]), *reset_lines(asked)])


def _in_the_store(asked: Asked) -> Iterator[Happening]:
    session = asked.here.session_id
    tree = None if session is None else asked.store.family(session)
    if session is None or tree is None:
        return
    family = {one.id: one for _, one in tree.walk()}
    seen: set[str] = set()
    at = family.get(session)
    while at is not None and at.id not in seen:
        seen.add(at.id)
        above = family.get(at.parent_session_id or "")
        yield Happening(at.started_at, _came(at, above))
        for child in at.children:
            if child.end_reason == "reset_undone" and child.ended_at is not None:
                yield Happening(
                    child.ended_at, f"A new start was undone with `/undo`: back in {_called(at)}."
                )
        at = above
    yield from _left(asked)
    yield from _handed_over(asked.store.get_session(session))


def _came(one: Relative, above: Relative | None) -> str:
    if above is None:
        return f"The conversation {_called(one)} began."
    if one.relation == "compression":
        return (
            f"It had become long: what was said before was summarised, and it went on as {_called(one)}."
            " Nothing is lost; `/search` finds it."
        )
    if one.relation == "branch":
        return f"It branched off from {_called(above)} with `/branch`."
    cause = CAUSES.get(above.end_reason or "")
    told = f": {cause}" if cause else ""
    return f"A new conversation began{told}. The one before is kept: {code(f'/resume {above.id}')}"


def _called(one: Relative) -> str:
    return f"{name_of({'title': one.title})} {code(one.id)}" if one.title else code(one.id)


def _left(asked: Asked) -> Iterator[Happening]:
    """Conversations of this chat that were left for another one."""
    visible = visible_here(asked)
    for row in asked.store.search_sessions(limit=LOOKED_AT):
        if row["end_reason"] != "session_switch" or row["ended_at"] is None:
            continue
        stored = asked.store.get_session(row["id"])
        if stored is None or not stored["message_count"]:
            continue
        if held_here(asked, stored) and visible(stored):
            yield Happening(
                row["ended_at"],
                f"This chat left {name_of(row)} for another conversation with `/resume`."
                f" Back: {code('/resume ' + row['id'])}",
            )


def _handed_over(row: Row | None) -> Iterator[Happening]:
    if row is None or row["handoff_state"] is None:
        return
    platform = plain(row["handoff_platform"] or "a platform")
    told = {
        "completed": f"It was handed over to {platform} from the terminal.",
        "failed": f"It was to be handed over to {platform}; that failed: {plain(row['handoff_error'] or '?', 200)}",
    }.get(row["handoff_state"], f"It is being handed over to {platform}.")
    yield Happening(row["last_active"] or row["started_at"], told)


COMMANDS = (Command("why", why, "/why", "what happened to this chat, and when", at_once=True),)
