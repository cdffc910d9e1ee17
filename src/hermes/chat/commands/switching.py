"""Commands that go from one conversation to another, or say what this one is called."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes import clock, errors
from hermes.chat import conversation_lookup
from hermes.chat.commands.handoff_command import hand_off
from hermes.chat.commands.table import Command
from hermes.chat.input.question import Option
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat

Row = dict[str, Any]

LISTED, SEARCHED = 10, 200


async def begin_conversation(chat: Chat, argument: str) -> None:
    title = None
    if argument:
        try:
            title = check_title(chat, argument)
        except errors.InvalidArgument as problem:
            chat.screen.print_problem(f"{problem}; the new session has no title")
    if await chat.has_history() and not await chat.confirm("Leave this conversation and start a new one?"):
        return
    await chat.conversation.begin(title)
    chat.screen.print_note(
        "A new conversation." if title is None else f"A new conversation, to be called: {title}"
    )


async def clear_screen(chat: Chat, _: str) -> None:
    if await chat.has_history() and not await chat.confirm("Clear the screen and start a new conversation?"):
        return
    await chat.conversation.begin()
    chat.screen.console.clear()
    chat.greet()


def check_title(chat: Chat, words: str) -> str:
    """A title that a session can get: cleaned, short enough, and free."""
    title = chat.conversation.store.sanitize_title(words)
    if title is None:
        raise errors.InvalidTitle("a title needs a letter that can be seen")
    holder = chat.conversation.store.get_session_by_title(title)
    if holder is not None and holder["id"] != chat.conversation.session_id:
        raise errors.InvalidTitle(f"Title '{title}' is already in use by session {holder['id']}")
    return title


async def set_title(chat: Chat, argument: str) -> None:
    conversation = chat.conversation
    if conversation.incognito:
        chat.screen.print_note("An incognito conversation has no title: nothing of it is kept.")
    elif not argument:
        now = conversation.get_title() or conversation.queued_title
        state = " (when the first message is stored)" if conversation.queued_title else ""
        chat.screen.print_line(f"Session: {conversation.session_id}")
        chat.screen.print_line(f"Title:   {now}{state}" if now else "No title yet. Usage: /title <name>")
    elif conversation.exists:
        cleaned = conversation.store.sanitize_title(argument)
        await asyncio.to_thread(conversation.store.set_session_title, conversation.session_id, argument)
        chat.screen.print_line(f"Session title set: {cleaned}" if cleaned else "The title is removed.")
    else:
        conversation.queued_title = check_title(chat, argument)
        chat.screen.print_line(
            f"Session title queued: {conversation.queued_title} (will be saved on first message)"
        )


async def resume(chat: Chat, argument: str) -> None:
    if not argument:
        await list_sessions(chat, "")
        chat.screen.print_note("Usage: /resume <number, id or title>")
        return
    found = await asyncio.to_thread(conversation_lookup.find_conversation, chat.conversation.store, argument)
    target = chat.find_listed(argument) or found.id
    if target is None and found.candidates:
        described = conversation_lookup.describe_candidates(found.candidates)
        options = [Option(row["id"], text) for row, text in zip(found.candidates, described, strict=True)]
        target = await chat.choose(f"'{make_printable(argument)}' could be any of these:", options)
    elif target is None:
        chat.screen.print_problem(f"No session found matching '{argument}'.")
    if target is not None:
        await chat.enter(await asyncio.to_thread(chat.conversation.store.get_compression_tip, target))


async def list_sessions(chat: Chat, argument: str) -> None:
    limit = SEARCHED if argument else LISTED
    page = await asyncio.to_thread(lambda: chat.conversation.store.list_conversations(limit=limit))
    needle = argument.casefold()
    rows = [row for row in page.rows if needle in f"{row['title']} {row['preview']} {row['id']}".casefold()]
    show_sessions(chat, rows[:LISTED])
    if len(rows) > LISTED or (not argument and page.total > LISTED):
        chat.screen.print_note(
            f"{LISTED} of {max(len(rows), 0 if argument else page.total)}; /search looks through all"
        )


def show_sessions(chat: Chat, rows: list[Row]) -> None:
    """Conversations with numbers, which `/resume` understands."""
    chat.listed = [row["id"] for row in rows]
    if not rows:
        chat.screen.print_line("No sessions found.")
        return
    now = clock.now()
    cells = [
        (
            str(number),
            row["title"] or row["preview"] or "—",
            clock.format_relative(row["last_active"], now),
            f"{row['id']}{' (this one)' if row['id'] == chat.conversation.session_id else ''}",
        )
        for number, row in enumerate(rows, 1)
    ]
    chat.screen.print_table(("", "Title", "Last active", "Id"), cells)


async def search(chat: Chat, argument: str) -> None:
    if not argument:
        chat.screen.print_note("Usage: /search <words>")
        return
    found = await asyncio.to_thread(chat.conversation.store.search_conversations, argument, LISTED)
    chat.listed = [row["tip_id"] for row in found]
    if not found:
        chat.screen.print_line("No sessions found.")
    for number, row in enumerate(found, 1):
        facts = (
            f"{clock.format_relative(row['last_active'], clock.now())} · {row['source']} · {row['tip_id']}"
        )
        chat.screen.print_line(f"{number}  {make_printable(row['title'] or '—')}  {make_printable(facts)}")
        chat.screen.print_snippet(row["snippet"])
    if found.partial:
        chat.screen.print_note(
            f"no word matches; found as part of a word: {make_printable(', '.join(found.parts))}"
        )
    elif found.relaxed and not found.is_question:
        chat.screen.print_note("nothing matches exactly; these are the nearest")
    if found:
        chat.screen.print_note("/resume <number> goes on there")


async def branch(chat: Chat, argument: str) -> None:
    if not chat.conversation.exists:
        chat.screen.print_note("There is nothing stored to branch from.")
        return
    child = await chat.conversation.branch(argument or None)
    name = chat.conversation.get_title()
    chat.screen.print_line(
        f"On a branch now: {child}{f' “{name}”' if name else ''}. What you left stays as it is."
    )


COMMANDS = (
    Command("new", "[title]", "leave this conversation and start a new one", begin_conversation),
    Command("reset", "[title]", "the same as /new", begin_conversation),
    Command("clear", "", "clear the screen and start a new conversation", clear_screen),
    Command("title", "[name]", "show the title, or set it; before the first message it is queued", set_title),
    Command(
        "resume",
        "[name]",
        "go on in another conversation, by number, id or title",
        resume,
        takes_session=True,
    ),
    Command(
        "sessions",
        "[query]",
        "the latest conversations, or those with this in title or first words",
        list_sessions,
    ),
    Command("search", "<words>", "find conversations by what was said in them", search),
    Command("branch", "[name]", "go on in a conversation of its own from here; nothing is copied", branch),
    Command("handoff", "<platform>", "go on with this conversation on a chat platform", hand_off),
)
