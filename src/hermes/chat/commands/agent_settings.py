"""Commands about who answers and what it knows; and the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.chat.commands.table import Command, Leave
from hermes.config.redaction import redact_text
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat


async def choose_model(chat: Chat, argument: str) -> None:
    if argument:
        chosen = await chat.conversation.choose_model(argument)
        chat.screen.print_line(f"Going on with {make_printable(chosen.name)}.")
        return
    now = (await chat.conversation.prepare()).agent.model
    chat.screen.print_line(
        f"{make_printable(now.name)} ({make_printable(redact_text(now.base_url or now.provider or 'unknown'))})"
    )
    chat.screen.print_note("/model <name> goes on with another; `hermes setup` changes the usual one")


async def show_memory(chat: Chat, _: str) -> None:
    notes = chat.conversation.parts.memory() if chat.conversation.parts.memory is not None else ""
    chat.screen.print_markdown(notes) if notes.strip() else chat.screen.print_note(
        "Nothing is remembered yet."
    )


async def list_skills(chat: Chat, _: str) -> None:
    entries = chat.conversation.parts.skills() if chat.conversation.parts.skills is not None else ()
    if not entries:
        chat.screen.print_note("There are no skills yet.")
    for name, description in entries:
        chat.screen.print_line(f"{make_printable(name)}: {make_printable(description)}")


async def leave(_chat: Chat, _: str) -> None:
    raise Leave


COMMANDS = (
    Command("model", "[name]", "who answers; with a name, go on with another model", choose_model),
    Command("memory", "", "what the agent remembers between conversations", show_memory),
    Command("skills", "", "what the agent has learned to do", list_skills),
    Command("quit", "", "leave; the conversation is kept", leave),
)
