"""`/approve` and `/deny`: the owner's answer to a tool that waits, while the turn is still at work."""

from __future__ import annotations

from hermes.gateway.commands.command_context import Answer, Asked, Command


async def approve(asked: Asked) -> Answer:
    return Answer(asked.here.answer_approval(asked, allowed=True))


async def deny(asked: Asked) -> Answer:
    return Answer(asked.here.answer_approval(asked, allowed=False))


COMMANDS = (
    Command(
        "approve",
        approve,
        "/approve [name] [always or like]",
        "allow what I ask for: once, always, or what is like it; owners, in private",
        at_once=True,
    ),
    Command("deny", deny, "/deny [name] [why]", "refuse what I ask for; owners, in private", at_once=True),
)
