"""Commands that show tool calls and reasoning: `/output`, `/reasoning`, `/diff`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Group
from rich.text import Text

from hermes.chat.commands.reply_views import show_reply
from hermes.chat.commands.table import TerminalCommand
from hermes.chat.view.call_view import view_edit, view_ended, view_reasoning, view_whole, view_whole_reasoning
from hermes.chat.view.calls import TERMINAL, Call, Reasoning, collect_outputs, read_tool_rows
from hermes.chat.view.diffs import format_counts
from hermes.chat.view.edits import Edit, read_edit
from hermes.conversation.commands.command_types import Command, parse_number
from hermes.store.workspace import find_workspace
from hermes.text import format_count, make_printable, reveal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hermes.chat.terminal_loop import Chat

MOST_LINES = 400
"""The maximum number of lines of all diffs together, unless a path is given."""
HIGHEST_NUMBER = 999_999
"""The highest output number that the command accepts."""


# The calls of the conversation


async def load_calls(chat: Chat) -> list[Call]:
    """Return the tool calls of the whole conversation. They include the calls before a compression and the
    calls in rewound messages."""
    return [item for item in await load_outputs(chat) if isinstance(item, Call)]


async def load_outputs(chat: Chat) -> list[Call | Reasoning]:
    """Return the tool calls and the reasoning of the whole conversation, oldest first."""
    conversation = chat.conversation
    rows = await conversation.load_rows()
    if not conversation.exists:
        return collect_outputs(rows)
    stored = await asyncio.to_thread(read_tool_rows, conversation.store, conversation.session_id)
    return collect_outputs([*stored, *(row for row in rows if "id" not in row)])


# The output of a call


class FoldedOutput(NamedTuple):
    command: str
    """The command that shows the output again."""
    view: RenderableType


async def open_next(chat: Chat) -> RenderableType:
    """Return the full view of a tool output or reasoning that the screen shows folded. The first call after a
    turn returns the newest one, and each further call the one before it. If there are no more, return a note
    that says so."""
    found = _list_folded(await load_outputs(chat), chat.screen.console.width)
    if len(found) <= chat.opened:
        chat.opened = 0
        notice = "No further output is folded; Ctrl-O begins again." if found else "No output is folded."
        return Text(f"{notice} /output [n] shows any call.", "dim")
    opened = found[chat.opened]
    chat.opened += 1
    more = "; Ctrl-O again opens the previous one" if len(found) > chat.opened else ""
    return Group(Text(f"── {opened.command}{more}", "dim"), opened.view)


def _list_folded(outputs: Sequence[Call | Reasoning], width: int) -> list[FoldedOutput]:
    """Return those of `outputs` that the screen shows folded, newest first. `width` is the width of the window,
    on which the folding depends."""
    found: list[FoldedOutput] = []
    calls = reasonings = 0
    for item in reversed(outputs):
        if isinstance(item, Call):
            calls += 1
            if view_ended(item, None, width).is_folded:
                found.append(FoldedOutput(f"/output {calls}", view_whole(item)))
        else:
            reasonings += 1
            if view_reasoning(item.text, width).is_folded:
                found.append(FoldedOutput(f"/reasoning {reasonings}", view_whole_reasoning(item.text)))
    return found


async def show_reasoning(chat: Chat, argument: str) -> None:
    number = parse_number(argument or "1", HIGHEST_NUMBER)
    if number is None:
        await show_reply(chat, REASONING.reject())
        return
    found = [item for item in await load_outputs(chat) if isinstance(item, Reasoning)]
    if len(found) < number:
        summary = (
            f"There is reasoning of {format_count(len(found), 'answer')}"
            if found
            else "No answer has reasoning"
        )
        chat.screen.print_note(f"{summary} in this conversation.")
        return
    chat.screen.show(view_whole_reasoning(found[-number].text))


async def show_output(chat: Chat, argument: str) -> None:
    number = parse_number(argument or "1", HIGHEST_NUMBER)
    if number is None:
        await show_reply(chat, OUTPUT.reject())
        return
    calls = await load_calls(chat)
    if len(calls) < number:
        summary = f"There were {format_count(len(calls), 'tool call')}" if calls else "No tool was called yet"
        chat.screen.print_note(f"{summary} in this conversation.")
        return
    chat.screen.show(view_whole(calls[-number]))


# The edits of the conversation


class FileEdits(NamedTuple):
    path: str
    edits: list[Edit]

    @property
    def added(self) -> int:
        return sum(edit.added for edit in self.edits)

    @property
    def removed(self) -> int:
        return sum(edit.removed for edit in self.edits)


async def show_diff(chat: Chat, argument: str) -> None:
    calls = await load_calls(chat)
    files = group_edits(calls)
    chosen = [file for file in files if not argument or is_meant(argument, file.path, chat.conversation.cwd)]
    if not files:
        chat.screen.print_note("No file was edited in this conversation.")
    elif not chosen:
        chat.screen.print_note(
            f"'{make_printable(argument)}' was not edited in this conversation. These files were:"
        )
        for file in files:
            chat.screen.print_line(f"  {make_printable(reveal(file.path))}")
    else:
        room = None if argument else MOST_LINES
        for file in chosen:
            room = _show_file(chat, file, room)
        added, removed = sum(file.added for file in chosen), sum(file.removed for file in chosen)
        chat.screen.print_line(
            f"{format_count(len(chosen), 'file')}, {format_counts(added, removed)}", "bold"
        )
    await _mention_commands(chat, calls)


def group_edits(calls: Iterable[Call]) -> list[FileEdits]:
    """Return the edits that `calls` made, grouped by file. Files are in the order of their first edit. The
    edits of one file are in the order of their calls."""
    found: dict[str, FileEdits] = {}
    for call in calls:
        edit = read_edit(call)
        if edit is not None:
            found.setdefault(edit.path, FileEdits(edit.path, [])).edits.append(edit)
    return list(found.values())


def is_meant(argument: str, path: str, cwd: Path) -> bool:
    """Return whether `argument` refers to the file `path`: by its path, its name, or a folder that contains
    it."""
    typed, full = (Path(os.path.normpath(cwd / Path(text).expanduser())) for text in (argument, path))
    return typed == full or typed in full.parents or Path(path).name == argument


def _show_file(chat: Chat, file: FileEdits, room: int | None) -> int | None:
    """Show the edits of a file in at most `room` lines of the screen. Return how many of these lines are still
    free. If `room` is None, the number of lines is not limited, and the result is None too."""
    counts = format_counts(file.added, file.removed)
    chat.screen.show(Text.assemble((make_printable(reveal(file.path)), "bold"), (f"  {counts}", "dim")))
    for number, edit in enumerate(file.edits, 1):
        states = [edit.action, format_counts(edit.added, edit.removed)]
        if edit.is_rewound:
            states.append("the exchange was taken back")
        heading = f"  {number}. {' · '.join(states)}"
        length = edit.diff.count("\n") + 1
        if room is not None and length > room:
            chat.screen.print_note(f"{heading} (/diff {make_printable(reveal(file.path))} shows it)")
            room = 0
            continue
        chat.screen.print_note(heading)
        chat.screen.show(*view_edit(edit, whole=room is None))
        room = None if room is None else room - length
    return room


async def _mention_commands(chat: Chat, calls: Iterable[Call]) -> None:
    """Print a note if the agent ran shell commands, because they may have changed files too. In a git
    repository, also print which git commands show all changes.

    Git itself is not run here, because the configuration of a repository can start programs.
    """
    ran = sum(call.name == TERMINAL and call.has_started for call in calls)
    if ran:
        chat.screen.print_note(
            f"{format_count(ran, 'command')} also ran and may have changed files (/output [n])."
        )
    top = await asyncio.to_thread(find_workspace, chat.conversation.cwd)
    if (top / ".git").exists():
        chat.screen.print_note("This is a git repository: `git status` and `git diff` show all changes.")


OUTPUT: TerminalCommand = Command(
    "output", show_output, "[n]", "show the whole output of the last tool call, or of the nth last"
)
REASONING: TerminalCommand = Command(
    "reasoning", show_reasoning, "[n]", "show the reasoning of the last answer, or of the nth last"
)
COMMANDS: tuple[TerminalCommand, ...] = (
    OUTPUT,
    REASONING,
    Command("diff", show_diff, "[path]", "show the file edits of this conversation"),
)
