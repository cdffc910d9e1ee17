"""What the commands that every surface has return, on the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.agent.subagents import AgentsReply, describe_work
from hermes.chat.commands import display
from hermes.chat.commands.table import Command, load_commands
from hermes.chat.input import quiet_keyboard
from hermes.conversation.commands import replies
from hermes.conversation.commands.replies import Reply
from hermes.insights.number_format import format_plural
from hermes.message_content import read_text
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat


async def show_reply(chat: Chat, reply: Reply) -> None:
    """Show what a command did, and do what follows from it: ask again, fill the prompt, show where the person is."""
    await _VIEWS[type(reply)](chat, reply)


async def _show_nothing(chat: Chat, reply: object) -> None:
    """The person knows: they were asked, and did not choose."""


async def _show_note(chat: Chat, reply: replies.Refused | replies.NothingSaid) -> None:
    chat.screen.print_note(reply.text.replace("`", ""))


# What was said last


async def _show_taken_back(chat: Chat, reply: replies.TookBack) -> None:
    chat.prefill = reply.content if isinstance(reply.content, str) else ""
    them = "it" if reply.messages == 1 else "them"
    chat.screen.print_line(f"Took back {format_plural(reply.messages, 'message')}; /redo brings {them} back.")


async def _show_brought_back(chat: Chat, reply: replies.BroughtBack) -> None:
    count = format_plural(reply.messages, "message")
    chat.screen.print_line(f"Brought back {count}." if reply.messages else "Nothing to bring back.")


async def _show_start_undone(chat: Chat, reply: replies.StartUndone) -> None:
    await chat.show_recap(["The new start is undone.", *reply.notes])


async def _ask_again(chat: Chat, reply: replies.AskAgain) -> None:
    await chat.answer(None if reply.is_stored else reply.content)


async def _show_resent(chat: Chat, reply: replies.Resent) -> None:
    chat.screen.print_markdown(read_text(reply.content, "assistant"))


async def _compress(chat: Chat, reply: replies.Compressing) -> None:
    async def show() -> None:
        async for event in reply.events:
            chat.screen.handle_event(event)

    working = asyncio.create_task(show())
    chat.screen.begin()
    try:
        with quiet_keyboard.suppress_echo(), chat.handle_interrupts(working.cancel):
            await asyncio.wait([working])
    finally:
        chat.screen.end()
    if working.cancelled():
        chat.screen.print_note("Stopped; nothing is lost.")
    else:
        working.result()


async def _show_stopped(chat: Chat, reply: replies.Stopped) -> None:
    noun = "process" if reply.processes == 1 else "processes"
    ended = f"Stopped {reply.processes} background {noun}." if reply.processes else "Nothing is running."
    chat.screen.print_line("Stopped." if reply.turn else ended)


async def _show_history(chat: Chat, reply: replies.History) -> None:
    if not reply.rows:
        chat.screen.print_note("Nothing was said yet.")
    display.show_history(chat.screen, reply.rows)


# From one conversation to another


async def _show_started(chat: Chat, reply: replies.Started) -> None:
    if reply.title_problem is not None:
        chat.screen.print_problem(f"{reply.title_problem}; the new session has no title")
    called = "" if reply.title is None else f", to be called: {make_printable(reply.title)}"
    back = "" if reply.left is None else " /undo brings the old one back."
    chat.screen.print_note(f"A new conversation{called}.{back}" if back else f"A new conversation{called}")


async def _show_already_new(chat: Chat, reply: replies.AlreadyNew) -> None:
    if reply.title_problem is not None:
        chat.screen.print_problem(f"{reply.title_problem}; it has no title")
    chat.screen.print_note("It is a new conversation already.")


async def _show_titled(chat: Chat, reply: replies.Titled) -> None:
    if reply.title is None:
        chat.screen.print_line("The title is removed.")
    elif reply.is_queued:
        chat.screen.print_line(
            f"Session title queued: {make_printable(reply.title)} (will be saved on first message)"
        )
    else:
        chat.screen.print_line(f"Session title set: {make_printable(reply.title)}")


async def _show_title(chat: Chat, reply: replies.TitleShown) -> None:
    chat.screen.print_line(f"Session: {reply.session_id}")
    state = " (when the first message is stored)" if reply.is_queued else ""
    shown = f"Title:   {make_printable(reply.title)}{state}" if reply.title else None
    chat.screen.print_line(shown or "No title yet. Usage: /title <name>")


async def _show_switched(chat: Chat, reply: replies.Switched) -> None:
    await chat.show_recap(list(reply.notes))


async def _show_already_here(chat: Chat, reply: replies.AlreadyHere) -> None:
    chat.screen.print_line("Already on that session.")


async def _ask_about_holder(chat: Chat, reply: replies.Busy) -> None:
    await chat.resolve_conflict(reply.session_id, reply.lease)


async def _show_not_found(chat: Chat, reply: replies.NotFound) -> None:
    chat.screen.print_problem(f"No session found matching '{make_printable(reply.words)}'.")


async def _show_branched(chat: Chat, reply: replies.Branched) -> None:
    title = None if reply.row is None else reply.row["title"]
    called = f" “{make_printable(title)}”" if title else ""
    chat.screen.print_line(
        f"On a branch now: {reply.session_id}{called}. What you left stays as it is: /resume {reply.left_id}"
    )


# Lists and reports


async def _show_list(chat: Chat, reply: replies.ConversationList) -> None:
    chat.listed = [row["id"] for row in reply.rows]
    if not reply.rows:
        chat.screen.print_line("No sessions found.")
        return
    now, cells = clock.now(), []
    for number, row in enumerate(reply.rows, 1):
        name, age = row["title"] or row["preview"] or "—", clock.format_relative(row["last_active"], now)
        here = " (this one)" if row["id"] == reply.here else ""
        cells.append((str(number), name, age, f"{row['id']}{here}"))
    chat.screen.print_table(("", "Title", "Last active", "Id"), cells)
    if reply.more:
        chat.screen.print_note("… and more; /sessions <words> and /search find them")
    if reply.is_resume:
        chat.screen.print_note("/resume <number, id or title> goes on there")


async def _show_hits(chat: Chat, reply: replies.SearchHits) -> None:
    found = reply.found
    chat.listed = [row["id"] for row in reply.rows]
    if not reply.rows:
        chat.screen.print_line("No sessions found.")
    for number, row in enumerate(reply.rows, 1):
        facts = f"{clock.format_relative(row['last_active'], clock.now())} · {row['source']} · {row['id']}"
        chat.screen.print_line(f"{number}  {make_printable(row['title'] or '—')}  {make_printable(facts)}")
        chat.screen.print_snippet(row["snippet"])
    if found.partial:
        parts = make_printable(", ".join(found.parts))
        chat.screen.print_note(f"no word matches; found as part of a word: {parts}")
    elif found.relaxed and not found.is_question:
        chat.screen.print_note("nothing matches exactly; these are the nearest")
    if reply.rows:
        chat.screen.print_note("/resume <number> goes on there")


async def _show_status(chat: Chat, reply: replies.Status) -> None:
    display.show_status(chat.screen, chat.conversation, reply)


async def _show_usage(chat: Chat, reply: replies.Usage) -> None:
    display.show_usage(chat.screen, chat.conversation, reply)


async def _show_insights(chat: Chat, reply: replies.Insights) -> None:
    from hermes.insights.chat_report import format_markdown

    chat.screen.print_markdown(format_markdown(reply.report).replace("\n", "  \n"))  # a line stays a line


async def _show_memory(chat: Chat, reply: replies.Memory) -> None:
    if reply.text.strip():
        chat.screen.print_markdown(reply.text)
    else:
        chat.screen.print_note("Nothing is remembered yet.")


async def _show_skills(chat: Chat, reply: replies.Skills) -> None:
    if not reply.entries:
        chat.screen.print_note("There are no skills yet.")
    for name, description in reply.entries:
        chat.screen.print_line(f"{make_printable(name)}: {make_printable(description)}")


async def _show_subagents(chat: Chat, reply: AgentsReply) -> None:
    if reply.stopped is not None:
        names = ", ".join(f"subagent {progress.number}" for progress in reply.stopped)
        chat.screen.print_line(f"Stopping {names}." if names else "No subagent is at work.")
        return
    if not reply.subagents:
        chat.screen.print_note("No subagent has worked for this conversation.")
    for progress in reply.subagents:
        number = "–" if progress.number is None else str(progress.number)
        state = f"{progress.state}, {progress.activity}" if progress.activity else progress.state
        chat.screen.print_line(f"{number:>2} {make_printable(progress.goal, width_limit=70)}")
        facts = (state, describe_work(progress), progress.session_id or "")
        chat.screen.print_note("   " + " · ".join(make_printable(fact) for fact in facts if fact))


async def _show_model(chat: Chat, reply: replies.ModelShown) -> None:
    if reply.model is not None:
        name, address = (make_printable(text) for text in reply.model)
        chat.screen.print_line(f"{name} ({address})")
    chat.screen.print_note("/model <name> goes on with another; `hermes setup` changes the usual one")


async def _show_model_choice(chat: Chat, reply: replies.ModelChosen) -> None:
    chat.screen.print_line(f"Going on with {make_printable(reply.name)}.")


async def _show_help(chat: Chat, reply: replies.Help) -> None:
    commands = load_commands()
    asked = next((command for command in commands.values() if reply.name in command.names), None)
    listed: list[Command] = list(commands.values()) if asked is None else [asked]
    width = max(len(command.usage) for command in listed)
    for command in listed:
        chat.screen.print_line(f"{command.usage:<{width}}  {command.help}")
    if asked is not None:
        return
    chat.screen.print_line()
    chat.screen.print_note(
        "Enter sends · Esc Enter, Alt-Enter or Ctrl-J: a new line · Tab completes · @file sends a file along"
    )
    chat.screen.print_note(
        "Ctrl-O opens folded output · Ctrl-C stops a turn; at an empty prompt, twice leaves · Ctrl-D leaves"
    )


_VIEWS: dict[type, Callable[[Chat, Any], Awaitable[None]]] = {
    replies.Refused: _show_note,
    replies.NothingSaid: _show_note,
    replies.Cancelled: _show_nothing,
    replies.TookBack: _show_taken_back,
    replies.BroughtBack: _show_brought_back,
    replies.StartUndone: _show_start_undone,
    replies.Prompts: _show_nothing,
    replies.AskAgain: _ask_again,
    replies.Resent: _show_resent,
    replies.Compressing: _compress,
    replies.History: _show_history,
    replies.Stopped: _show_stopped,
    replies.Started: _show_started,
    replies.AlreadyNew: _show_already_new,
    replies.Titled: _show_titled,
    replies.TitleShown: _show_title,
    replies.Switched: _show_switched,
    replies.AlreadyHere: _show_already_here,
    replies.Busy: _ask_about_holder,
    replies.Ambiguous: _show_nothing,
    replies.NotFound: _show_not_found,
    replies.Branched: _show_branched,
    replies.ConversationList: _show_list,
    replies.SearchHits: _show_hits,
    replies.Status: _show_status,
    replies.Usage: _show_usage,
    replies.Insights: _show_insights,
    replies.Memory: _show_memory,
    replies.Skills: _show_skills,
    replies.ModelShown: _show_model,
    replies.ModelChosen: _show_model_choice,
    replies.Help: _show_help,
    AgentsReply: _show_subagents,
}
