"""Commands that go from one conversation to another, or say what this one is called."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes import clock, errors
from hermes.chat import conversation_lookup
from hermes.chat.commands.handoff_command import handoff
from hermes.chat.commands.table import Command
from hermes.chat.input.question import Option
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat

Row = dict[str, Any]

LISTED, SEARCHED = 10, 200


async def new(chat: Chat, argument: str) -> None:
    title = None
    if argument:
        try:
            title = checked_title(chat, argument)
        except errors.InvalidArgument as problem:
            chat.screen.problem(f"{problem}; the new session has no title")
    if await chat.has_history() and not await chat.confirmed("Leave this conversation and start a new one?"):
        return
    await chat.talk.begin(title)
    chat.screen.note("A new conversation." if title is None else f"A new conversation, to be called: {title}")


async def clear(chat: Chat, _: str) -> None:
    if await chat.has_history() and not await chat.confirmed(
        "Clear the screen and start a new conversation?"
    ):
        return
    await chat.talk.begin()
    chat.screen.console.clear()
    chat.greet()


def checked_title(chat: Chat, words: str) -> str:
    """A title that a session can get: cleaned, short enough, and free."""
    title = chat.talk.db.sanitize_title(words)
    if title is None:
        raise errors.InvalidTitle("a title needs a letter that can be seen")
    holder = chat.talk.db.get_session_by_title(title)
    if holder is not None and holder["id"] != chat.talk.session_id:
        raise errors.InvalidTitle(f"Title '{title}' is already in use by session {holder['id']}")
    return title


async def title(chat: Chat, argument: str) -> None:
    talk = chat.talk
    if talk.incognito:
        chat.screen.note("An incognito conversation has no title: nothing of it is kept.")
    elif not argument:
        now = talk.title() or talk.queued_title
        state = " (when the first message is stored)" if talk.queued_title else ""
        chat.screen.line(f"Session: {talk.session_id}")
        chat.screen.line(f"Title:   {now}{state}" if now else "No title yet. Usage: /title <name>")
    elif talk.exists:
        cleaned = talk.db.sanitize_title(argument)
        await asyncio.to_thread(talk.db.set_session_title, talk.session_id, argument)
        chat.screen.line(f"Session title set: {cleaned}" if cleaned else "The title is removed.")
    else:
        talk.queued_title = checked_title(chat, argument)
        chat.screen.line(f"Session title queued: {talk.queued_title} (will be saved on first message)")


async def resume(chat: Chat, argument: str) -> None:
    if not argument:
        await sessions(chat, "")
        chat.screen.note("Usage: /resume <number, id or title>")
        return
    found = await asyncio.to_thread(conversation_lookup.meant, chat.talk.db, argument)
    target = chat.numbered(argument) or found.id
    if target is None and found.candidates:
        described = conversation_lookup.describe_candidates(found.candidates)
        options = [Option(row["id"], text) for row, text in zip(found.candidates, described, strict=True)]
        target = await chat.choose(f"'{make_printable(argument)}' could be any of these:", options)
    elif target is None:
        chat.screen.problem(f"No session found matching '{argument}'.")
    if target is not None:
        await chat.enter(await asyncio.to_thread(chat.talk.db.get_compression_tip, target))


async def sessions(chat: Chat, argument: str) -> None:
    limit = SEARCHED if argument else LISTED
    page = await asyncio.to_thread(lambda: chat.talk.db.list_conversations(limit=limit))
    wanted = argument.casefold()
    rows = [row for row in page.rows if wanted in f"{row['title']} {row['preview']} {row['id']}".casefold()]
    show(chat, rows[:LISTED])
    if len(rows) > LISTED or (not argument and page.total > LISTED):
        chat.screen.note(
            f"{LISTED} of {max(len(rows), 0 if argument else page.total)}; /search looks through all"
        )


def show(chat: Chat, rows: list[Row]) -> None:
    """Conversations with numbers, which `/resume` understands."""
    chat.listed = [row["id"] for row in rows]
    if not rows:
        chat.screen.line("No sessions found.")
        return
    now = clock.now()
    cells = [
        (
            str(number),
            row["title"] or row["preview"] or "—",
            clock.format_relative(row["last_active"], now),
            f"{row['id']}{' (this one)' if row['id'] == chat.talk.session_id else ''}",
        )
        for number, row in enumerate(rows, 1)
    ]
    chat.screen.table(("", "Title", "Last active", "Id"), cells)


async def search(chat: Chat, argument: str) -> None:
    if not argument:
        chat.screen.note("Usage: /search <words>")
        return
    found = await asyncio.to_thread(chat.talk.db.search_conversations, argument, LISTED)
    chat.listed = [row["tip_id"] for row in found]
    if not found:
        chat.screen.line("No sessions found.")
    for number, row in enumerate(found, 1):
        facts = (
            f"{clock.format_relative(row['last_active'], clock.now())} · {row['source']} · {row['tip_id']}"
        )
        chat.screen.line(f"{number}  {make_printable(row['title'] or '—')}  {make_printable(facts)}")
        chat.screen.snippet(row["snippet"])
    if found.partial:
        chat.screen.note(
            f"no word matches; found as part of a word: {make_printable(', '.join(found.parts))}"
        )
    elif found.relaxed and not found.is_question:
        chat.screen.note("nothing matches exactly; these are the nearest")
    if found:
        chat.screen.note("/resume <number> goes on there")


async def branch(chat: Chat, argument: str) -> None:
    if not chat.talk.exists:
        chat.screen.note("There is nothing stored to branch from.")
        return
    child = await chat.talk.branch(argument or None)
    name = chat.talk.title()
    chat.screen.line(f"On a branch now: {child}{f' “{name}”' if name else ''}. What you left stays as it is.")


COMMANDS = (
    Command("new", "[title]", "leave this conversation and start a new one", new),
    Command("reset", "[title]", "the same as /new", new),
    Command("clear", "", "clear the screen and start a new conversation", clear),
    Command("title", "[name]", "show the title, or set it; before the first message it is queued", title),
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
        sessions,
    ),
    Command("search", "<words>", "find conversations by what was said in them", search),
    Command("branch", "[name]", "go on in a conversation of its own from here; nothing is copied", branch),
    Command("handoff", "<platform>", "go on with this conversation on a chat platform", handoff),
)
