"""Slash commands of the terminal that print lines, the history, the status and the usage of a conversation.
Also implements `/save`, which writes the conversation to a file."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import clock, home
from hermes.chat.view.recap import format_call_names, format_duration, format_row_text, list_call_names
from hermes.chat.view.screen import GOLD, GREEN, format_usage
from hermes.config.redaction import redact_text
from hermes.conversation.commands import wording
from hermes.conversation.commands.command_types import Command
from hermes.errors import ExportCancelled, OutputRefused
from hermes.export.ancestry import plan_ancestry, plan_unstored
from hermes.export.background import write_in_thread
from hermes.export.formats import BY_ENDING, FORMATS, JSON_DOCUMENT, Format
from hermes.export.output_file import Replace
from hermes.export.plan import Plan
from hermes.export.writer import Destination, Options
from hermes.insights.number_format import format_number, format_plural
from hermes.store.retention.session_files import SAVED
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.commands.table import TerminalCommand
    from hermes.chat.terminal_loop import Chat
    from hermes.chat.view.screen import Screen
    from hermes.conversation.commands.replies import Status, Usage
    from hermes.conversation.conversation import Conversation
    from hermes.db.session_db import SessionDB

Row = dict[str, Any]

HISTORY_SHOWN = 400


def show_lines(screen: Screen, lines: Iterable[wording.Line], *, is_note: bool = False) -> None:
    for line in lines:
        screen.print_line(format_line(line), "dim" if is_note else "")


def format_line(line: wording.Line) -> str:
    return "".join(map(_format_part, line))


def _format_part(part: wording.Part) -> str:
    match part:
        case str():
            return part
        case wording.Foreign(text, longest):
            return make_printable(text, width_limit=longest)
        case wording.Name(row):
            name = row.get("title") or row.get("preview")
            return f"“{make_printable(name, width_limit=wording.LONGEST_PREVIEW)}”" if name else "untitled"
        case wording.Code(text) | wording.Strong(text):
            return make_printable(text)


def show_history(screen: Screen, rows: Sequence[Row]) -> None:
    for row in rows:
        text = format_row_text(row).strip()
        if row["role"] == "tool":
            screen.print_note(
                f"  ⚙ {make_printable(str(row.get('tool_name') or 'tool'))}: {format_plural(len(text), 'character')}"
            )
            continue
        summary = "\n".join(filter(None, (_shorten(text), format_call_names(list_call_names(row)))))
        if summary:
            speaker, colour = _SPEAKERS.get(row["role"], (f"○ {row['role']}", "cyan"))
            screen.print_line(speaker, f"bold {colour}")
            screen.print_line("\n".join(f"  {line}" for line in summary.splitlines()))


_SPEAKERS = {"user": ("● You", GOLD), "assistant": ("◆ Hermes", GREEN)}


def _shorten(text: str) -> str:
    return text if len(text) <= HISTORY_SHOWN else f"{text[:HISTORY_SHOWN]}..."


async def save(chat: Chat, argument: str) -> None:
    conversation = chat.conversation
    rows = await conversation.load_rows()
    if not rows:
        chat.screen.print_note("There is nothing to save yet.")
        return
    store, stop = conversation.store.db_path, threading.Event()
    file = conversation.cwd / Path(argument).expanduser()
    try:
        if not argument:
            file = await asyncio.to_thread(_choose_file_name, store.parent / "sessions" / SAVED)
        with chat.handle_interrupts(stop.set, asyncio.current_task()):
            result = await write_in_thread(
                lambda: _plan_conversation(conversation, rows),
                Options(_choose_format(file)),
                Destination(file, store, Replace.NOTHING),
                stop=stop,
            )
    except OSError as problem:
        chat.screen.print_problem(f"{problem.strerror}: {file}")
    except (OutputRefused, ExportCancelled) as problem:
        chat.screen.print_problem(str(problem))
    else:
        chat.screen.print_line(f"Wrote {result.files[0]}")
        chat.saved.append(result.files[0])


def _choose_file_name(folder: Path) -> Path:
    """Return the path of a JSON file that does not exist yet in `folder`, the folder of saved conversations.
    The name contains the current time. Create the folder if it is missing, and make it private."""
    home.make_private_folder(folder)
    if home.is_loose(str(folder)):
        folder.chmod(home.PRIVATE_FOLDER)
    stem = f"hermes_conversation_{clock.format_stamp()}"
    names = (folder / f"{stem}{f'_{number}' if number > 1 else ''}.json" for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def _choose_format(file: Path) -> Format:
    if file.suffix.lower() == ".json":
        return JSON_DOCUMENT
    return FORMATS["jsonl" if file.suffix.lower() == ".jsonl" else BY_ENDING.get(file.suffix.lower(), "md")]


def _plan_conversation(conversation: Conversation[SessionDB], rows: Sequence[Row]) -> Plan:
    """Plan the export of the whole conversation. The export includes messages from before a compression,
    messages from before the branch, and messages that are not in the store. `rows` are the messages that the
    terminal has in memory; a row without an id is not in the store."""
    unstored = [row for row in rows if "id" not in row]
    stored = (
        plan_ancestry(conversation.store, conversation.session_id, unstored) if conversation.exists else None
    )
    return stored or plan_unstored(conversation.session_id, rows)


def show_status(screen: Screen, conversation: Conversation[SessionDB], status: Status) -> None:
    model = None if conversation.models is None else conversation.models.model
    address = None if model is None else redact_text(model.base_url or model.provider or "unknown")
    facts = [(label, format_line(value)) for label, value in wording.list_status_facts(status)]
    if status.used is None and conversation.total.model:
        facts[-1] = ("Used", format_usage(conversation.total))
    facts += [
        ("Model", "not known yet" if model is None else f"{model.name} ({address})"),
        ("Directory", str(conversation.cwd)),
        ("Here for", format_duration(clock.now() - conversation.started_at)),
        ("Store", "none: incognito" if conversation.incognito else str(conversation.store.db_path)),
    ]
    for name, value in facts:
        screen.print_line(f"{name + ':':<11}{make_printable(value)}")


def show_usage(screen: Screen, conversation: Conversation[SessionDB], usage: Usage) -> None:
    if usage.used is None and conversation.total.model:  # an incognito conversation is not stored
        screen.print_line(format_usage(conversation.total))
        return
    show_lines(screen, wording.describe_usage(usage.used))
    cells = [
        (
            f"{line.model or 'unknown'}{wording.describe_purpose(line.purpose)}",
            *(format_number(number) for number in line.used[:3]),
            wording.format_cost(line.used) or "—",
        )
        for line in (() if usage.used is None else usage.used.by_model)
    ]
    if cells:
        screen.print_table(("Model", "Calls", "Input", "Output", "Cost"), cells)


COMMANDS: tuple[TerminalCommand, ...] = (
    Command(
        "save",
        save,
        "[file]",
        "write the whole conversation to a file: JSON, or .md, .html, .jsonl by its name",
    ),
)
