"""Shows the replies of shared commands on the screen."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from hermes import clock
from hermes.agent.events import Counted
from hermes.chat.commands import display
from hermes.chat.commands.table import list_names, load_commands, run_command
from hermes.chat.commands.terminal_surface import make_core_context
from hermes.chat.input import quiet_keyboard
from hermes.chat.input.question import Option
from hermes.conversation.commands import replies, wording
from hermes.conversation.commands.lookup import list_conversations
from hermes.conversation.commands.replies import Reply
from hermes.message_content import read_text, read_typed
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat


MARGIN, LEAST_NAME = 10, 30
"""`MARGIN` is the width before a label in a list of choices. `LEAST_NAME` is the minimum width of a name; ids
are left out if the name would be narrower. Widths are in terminal cells."""
LONGEST_USAGE = 30
"""The maximum width of a command's usage in the help. A longer usage gets a line of its own."""
NOTES = (
    replies.Refused,
    replies.NothingSaid,
    replies.WrongUsage,
    replies.Cancelled,
    replies.NotFound,
    replies.AlreadyNew,
    replies.UnknownModel,
)
"""Replies of commands that changed nothing."""


async def show_reply(chat: Chat, reply: Reply) -> None:
    """Show the reply of a shared command on the screen. Some replies also have a follow-up action: ask the
    person again, fill the prompt, or show the recap."""
    view = _VIEWS.get(type(reply))
    if view is not None:
        await view(chat, reply)
        return
    display.show_lines(chat.screen, wording.describe_reply(reply), is_note=isinstance(reply, NOTES))


def show_unknown(chat: Chat, name: str) -> None:
    """Print that the command does not exist."""
    chat.screen.print_problem(display.format_line(wording.describe_unknown(name, list_names())))


async def _show_nothing(chat: Chat, reply: object) -> None:
    """Print nothing. This is the view of a reply without content: the command asked the person a question, and
    the person chose nothing."""


# Recent messages


async def _show_taken_back(chat: Chat, reply: replies.TookBack) -> None:
    chat.prefill = read_typed(reply.content)
    display.show_lines(chat.screen, wording.describe_reply(reply))


async def _show_with_files(chat: Chat, reply: replies.WithFiles) -> None:
    await show_reply(chat, reply.reply)
    display.show_lines(chat.screen, wording.describe_files(reply))


async def _show_start_undone(chat: Chat, reply: replies.StartUndone) -> None:
    await chat.show_recap([wording.START_UNDONE, *reply.notes])


async def _ask_again(chat: Chat, reply: replies.AskAgain) -> None:
    await chat.answer(None if reply.is_stored else reply.content)


async def _show_resent(chat: Chat, reply: replies.Resent) -> None:
    chat.screen.print_markdown(read_text(reply.content, "assistant"))


async def _compress(chat: Chat, reply: replies.Compressing) -> None:
    async def show() -> bool:
        """Show the events of the compression on the screen. Return whether any of them was visible."""
        is_seen = False
        async for event in reply.events:
            chat.screen.handle_event(event)
            is_seen = is_seen or not isinstance(event, Counted)
        return is_seen

    working, began = asyncio.create_task(show()), monotonic()
    chat.screen.begin()
    try:
        with chat.ticking(), quiet_keyboard.suppress_echo(), chat.handle_interrupts(working.cancel):
            await asyncio.wait([working])
    finally:
        chat.screen.end()
    if working.cancelled():
        chat.screen.print_note("Stopped; nothing is lost.")
    elif not working.result():
        chat.screen.print_note(wording.NOTHING_COMPRESSED)
    chat.screen.print_note(f"took {monotonic() - began:.1f}s")


async def _show_history(chat: Chat, reply: replies.History) -> None:
    if not reply.rows:
        chat.screen.print_note(wording.NOTHING_SAID)
    display.show_history(chat.screen, reply.rows)


# Switching between conversations


async def _show_switched(chat: Chat, reply: replies.Switched) -> None:
    await chat.show_recap(list(reply.notes))
    chat.load_model_later()


async def _ask_about_holder(chat: Chat, reply: replies.Busy) -> None:
    await chat.resolve_conflict(reply.session_id, reply.lease)


# Lists and reports


async def _show_list(chat: Chat, reply: replies.ConversationList) -> None:
    chat.listed = [row["id"] for row in reply.rows]
    if reply.is_resume and reply.rows:
        await _pick_conversation(chat, reply)
        return
    cells = [(str(number), *_describe_row(row, reply.here)) for number, row in enumerate(reply.rows, 1)]
    if cells:
        chat.screen.print_table(("", "Title", "Last active", "Id"), cells, flexible=1, optional=(3, 2))
    display.show_lines(chat.screen, wording.describe_list_end(reply), is_note=True)


def _describe_row(row: dict[str, Any], here: str | None) -> tuple[str, str, str]:
    """Return three texts about a listed conversation: its name, its age and its id."""
    name, age = row["title"] or row["preview"] or "—", clock.format_relative(row["last_active"], clock.now())
    return name, age, f"{row['id']}{' (here)' if row['id'] == here else ''}"


async def _pick_conversation(chat: Chat, reply: replies.ConversationList) -> None:
    """Let the person choose one of the conversations in `reply`, and resume the chosen one. The list is shown
    page by page. If the person presses Esc, nothing is resumed and the list stays on the screen."""
    skipped = 0
    while True:
        rows = [_describe_row(row, reply.here) for row in reply.rows]
        labels = format_choices(rows, chat.screen.console.width)
        options = [Option(row["id"], label) for row, label in zip(reply.rows, labels, strict=True)]
        if reply.more:
            options.append(Option(_OLDER, "older ones", "o"))
        chosen = await chat.choose("Which one? Number or Enter; Esc: none", options)
        if chosen != _OLDER:
            break
        skipped += len(reply.rows)
        reply = await asyncio.to_thread(
            list_conversations, make_core_context(chat), is_resume=True, skipped=skipped
        )
        chat.listed = [row["id"] for row in reply.rows]
    if chosen is not None:
        await run_command(chat, "resume", chosen)


_OLDER = ""


def format_choices(rows: Sequence[tuple[str, str, str]], width: int) -> list[str]:
    """Return a one-line label for each conversation, in aligned columns: its name, its age and its id. `rows`
    contains these three texts for each conversation. Names are cut so that a label fits into `width` columns.
    If the window is too narrow for the ids, they are left out."""
    names, ages, ids = zip(*((make_printable(cell) for cell in row) for row in rows), strict=True)
    width -= MARGIN
    age_width, id_width = max(map(cell_len, ages)) + 2, max(map(cell_len, ids)) + 2
    id_width = id_width if width - age_width - id_width >= LEAST_NAME else 0
    room = max(1, width - age_width - id_width)
    room = min(room, max(map(cell_len, names)))
    lines = []
    for name, age, id_ in zip(names, ages, ids, strict=True):
        short = make_printable(name, width_limit=room)
        label = f"{short}{' ' * (room - cell_len(short))}  {age:<{age_width - 2}}"
        lines.append(f"{label}  {id_}" if id_width else label.rstrip())
    return lines


async def _show_hits(chat: Chat, reply: replies.SearchHits) -> None:
    chat.listed = [row["id"] for row in reply.rows]
    display.show_lines(chat.screen, wording.describe_search(reply), is_note=True)
    for number, row in enumerate(reply.rows, 1):
        facts = f"{clock.format_relative(row['last_active'], clock.now())} · {row['source']} · {row['id']}"
        chat.screen.print_line(f"{number}  {make_printable(row['title'] or '—')}  {make_printable(facts)}")
        chat.screen.print_snippet(row["snippet"])
    if reply.rows:
        display.show_lines(chat.screen, [wording.RESUME_HINT], is_note=True)


async def _show_status(chat: Chat, reply: replies.Status) -> None:
    display.show_status(chat.screen, chat.conversation, reply)


async def _show_usage(chat: Chat, reply: replies.Usage) -> None:
    display.show_usage(chat.screen, chat.conversation, reply)


async def _show_insights(chat: Chat, reply: replies.Insights) -> None:
    from hermes.insights.chat_report import format_markdown

    chat.screen.print_markdown(format_markdown(reply.report).replace("\n", "  \n"))  # hard line breaks


# The agent


async def _show_memory(chat: Chat, reply: replies.Memory) -> None:
    if reply.text.strip():
        chat.screen.print_markdown(reply.text)
    else:
        chat.screen.print_note(wording.NOTHING_REMEMBERED)


async def _show_model(chat: Chat, reply: replies.ModelShown) -> None:
    display.show_lines(chat.screen, wording.describe_reply(reply))
    chat.screen.print_note("/model <name> switches to another model; `hermes setup` changes the default")


async def _show_help(chat: Chat, reply: replies.Help) -> None:
    commands = load_commands()
    asked = commands.get(list_names().get(reply.name, ""))
    if reply.name and asked is None:
        show_unknown(chat, reply.name)
        return
    listed = list(commands.values()) if asked is None else [asked]
    width = min(LONGEST_USAGE, max(len(command.usage) for command in listed))
    room = max(20, chat.screen.console.width - width - 2)
    for command in listed:
        first, *others = textwrap.wrap(command.summary, room)
        gap = "  " if len(command.usage) <= width else f"\n{'':<{width}}  "
        chat.screen.print_line(f"{command.usage:<{width}}{gap}{first}")
        for line in others:
            chat.screen.print_line(f"{'':<{width}}  {line}")
    if asked is not None:
        return
    chat.screen.print_line()
    chat.screen.print_note(
        "Enter sends · Esc Enter, Alt-Enter or Ctrl-J: a new line · Tab completes · @file sends a file or picture along"
    )
    chat.screen.print_note(
        "! command runs in your shell; !! command also gives its output to the model · Ctrl-R searches earlier input"
    )
    chat.screen.print_note(
        "Ctrl-O opens folded output · Ctrl-C stops a turn; pressed twice at an empty prompt, it exits"
        " · Ctrl-D exits"
    )


_VIEWS: dict[type, Callable[[Chat, Any], Awaitable[None]]] = {
    replies.TookBack: _show_taken_back,
    replies.WithFiles: _show_with_files,
    replies.StartUndone: _show_start_undone,
    replies.Prompts: _show_nothing,
    replies.AskAgain: _ask_again,
    replies.Resent: _show_resent,
    replies.Compressing: _compress,
    replies.History: _show_history,
    replies.Switched: _show_switched,
    replies.Busy: _ask_about_holder,
    replies.Ambiguous: _show_nothing,
    replies.ConversationList: _show_list,
    replies.SearchHits: _show_hits,
    replies.Status: _show_status,
    replies.Usage: _show_usage,
    replies.Insights: _show_insights,
    replies.Memory: _show_memory,
    replies.ModelShown: _show_model,
    replies.Help: _show_help,
}
"""The views of replies that consist of more than text, by the type of the reply."""
