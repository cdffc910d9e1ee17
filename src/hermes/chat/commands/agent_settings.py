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


async def show_agents(chat: Chat, argument: str) -> None:
    from hermes.agent.subagents import AGENTS_USAGE, describe_work, run_agents_command

    conversation = chat.conversation
    running = None if conversation.parts.subagents is None else conversation.parts.subagents()
    reply = await run_agents_command(conversation.store, running, conversation.session_id, argument)
    if reply.is_misspelt:
        chat.screen.print_problem(f"Usage: {AGENTS_USAGE}")
        return
    if reply.stopped is not None:
        names = ", ".join(f"subagent {progress.number}" for progress in reply.stopped)
        chat.screen.print_line(f"Stopping {names}." if names else "No subagent is at work.")
        return
    if not reply.subagents:
        chat.screen.print_note("No subagent has worked for this conversation.")
        return
    for progress in reply.subagents:
        number = "–" if progress.number is None else str(progress.number)
        state = f"{progress.state}, {progress.activity}" if progress.activity else progress.state
        chat.screen.print_line(f"{number:>2} {make_printable(progress.goal, width_limit=70)}")
        facts = (state, describe_work(progress), progress.session_id or "")
        chat.screen.print_note("   " + " · ".join(make_printable(fact) for fact in facts if fact))


async def leave(_chat: Chat, _: str) -> None:
    raise Leave


COMMANDS = (
    Command("model", "[name]", "who answers; with a name, go on with another model", choose_model),
    Command("memory", "", "what the agent remembers between conversations", show_memory),
    Command("skills", "", "what the agent has learned to do", list_skills),
    Command("agents", "[stop [n]]", "the subagents of this conversation; stop one or all", show_agents),
    Command("quit", "", "leave; the conversation is kept", leave),
)
