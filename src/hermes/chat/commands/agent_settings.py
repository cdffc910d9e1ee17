"""Commands about who answers and what it knows; and the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.chat.commands.table import Command
from hermes.config.redaction import redact_text
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat


class Leave(Exception):
    """The person wants to go."""


async def model(chat: Chat, argument: str) -> None:
    if argument:
        chosen = await chat.talk.choose_model(argument)
        chat.screen.line(f"Going on with {make_printable(chosen.name)}.")
        return
    now = (await chat.talk.agent()).model
    chat.screen.line(
        f"{make_printable(now.name)} ({make_printable(redact_text(now.base_url or now.provider or 'unknown'))})"
    )
    chat.screen.note("/model <name> goes on with another; `hermes setup` changes the usual one")


async def memory(chat: Chat, _: str) -> None:
    kept = chat.talk.parts.memory() if chat.talk.parts.memory is not None else ""
    chat.screen.markdown(kept) if kept.strip() else chat.screen.note("Nothing is remembered yet.")


async def skills(chat: Chat, _: str) -> None:
    known = chat.talk.parts.skills() if chat.talk.parts.skills is not None else ()
    if not known:
        chat.screen.note("There are no skills yet.")
    for name, what in known:
        chat.screen.line(f"{make_printable(name)}: {make_printable(what)}")


async def leave(_chat: Chat, _: str) -> None:
    raise Leave


COMMANDS = (
    Command("model", "[name]", "who answers; with a name, go on with another model", model),
    Command("memory", "", "what the agent remembers between conversations", memory),
    Command("skills", "", "what the agent has learned to do", skills),
    Command("quit", "", "leave; the conversation is kept", leave),
)
