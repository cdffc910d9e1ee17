"""The conversation, its status and its usage on the screen; and `/save`, which writes it to a file."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import clock, home
from hermes.chat.commands.table import Command
from hermes.chat.view.recap import extract_text, format_call_names, format_duration, list_call_names
from hermes.chat.view.screen import GOLD, GREEN, format_usage
from hermes.config.redaction import redact_text
from hermes.errors import ExportCancelled, OutputRefused
from hermes.export.ancestry import plan_ancestry, plan_unstored
from hermes.export.background import write_in_thread
from hermes.export.formats import BY_ENDING, FORMATS, JSON_DOCUMENT, Format
from hermes.export.output_file import Replace
from hermes.export.plan import Plan
from hermes.export.writer import Destination, Options
from hermes.insights.number_format import format_dollars, format_number, format_plural, shorten_number
from hermes.store.retention.session_files import SAVED
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat
    from hermes.chat.view.screen import Screen
    from hermes.conversation.commands.replies import Status, Usage
    from hermes.conversation.conversation import Conversation
    from hermes.db.session_db import SessionDB
    from hermes.store.reports.usage import UsageLine

Row = dict[str, Any]

HISTORY_SHOWN = 400


def show_history(screen: Screen, rows: Sequence[Row]) -> None:
    for row in rows:
        text = extract_text(row).strip()
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


def _choose_file_name(folder: Path) -> Path:
    """A name that is not taken, in the folder of saved conversations, which is made private."""
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
    """The whole conversation, also what came before a compression or a branch, and what is not stored yet."""
    unstored = [row for row in rows if "id" not in row]
    stored = (
        plan_ancestry(conversation.store, conversation.session_id, unstored) if conversation.exists else None
    )
    return stored or plan_unstored(conversation.session_id, rows)


def show_status(screen: Screen, conversation: Conversation[SessionDB], status: Status) -> None:
    model = None if conversation.models is None else conversation.models.model
    address = None if model is None else redact_text(model.base_url or model.provider or "unknown")
    facts = [
        ("Session", f"{status.session_id}{'' if status.row is not None else ' (not stored yet)'}"),
        ("Title", status.title or "—"),
        ("Model", "not known yet" if model is None else f"{model.name} ({address})"),
        ("Directory", str(conversation.cwd)),
        ("Messages", f"{status.messages} in the context"),
        ("Used", _describe_usage(conversation, status)),
        ("Here for", format_duration(clock.now() - conversation.started_at)),
        ("Store", "none: incognito" if conversation.incognito else str(conversation.store.db_path)),
    ]
    for name, value in facts:
        screen.print_line(f"{name + ':':<11}{make_printable(value)}")


def _describe_usage(conversation: Conversation[SessionDB], status: Status) -> str:
    """The tokens of the whole conversation, also of what was said before it was resumed."""
    if status.used is None:
        return format_usage(conversation.total) if conversation.total.model else "nothing yet"
    used = status.used.total
    if not used.calls:
        return "nothing yet"
    if not used.input_tokens and not used.output_tokens:
        return "tokens unknown"
    return f"{shorten_number(used.input_tokens)} in · {shorten_number(used.output_tokens)} out (/usage has the cost)"


def show_usage(screen: Screen, conversation: Conversation[SessionDB], usage: Usage) -> None:
    if usage.used is None:
        screen.print_line(format_usage(conversation.total))
        return
    cells = [
        (
            f"{line.model or 'unknown'}{'' if line.purpose == 'main' else ' (auxiliary)'}",
            *(format_number(number) for number in line.used[:3]),
            format_cost(line.used),
        )
        for line in usage.used.by_model
    ]
    screen.print_table(("Model", "Calls", "Input", "Output", "Cost"), cells)


def format_cost(used: UsageLine) -> str:
    """A cost that nobody knows is not shown as $0.00."""
    cost = used.estimated_cost_usd if used.actual_cost_usd is None else used.actual_cost_usd
    return format_dollars(cost) if cost or used.actual_cost_usd is not None else "—"


COMMANDS = (
    Command(
        "save",
        "[file]",
        "write the whole conversation to a file: JSON, or .md, .html, .jsonl by its name",
        save,
    ),
)
