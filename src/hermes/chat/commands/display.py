"""Commands that only show something, or write it to a file."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import clock, home
from hermes.chat.commands import switching
from hermes.chat.commands.table import Command, load_commands
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
    from hermes.conversation.conversation import Conversation
    from hermes.db.session_db import SessionDB
    from hermes.store.reports.usage import UsageLine

Row = dict[str, Any]

HISTORY_SHOWN = 400


async def show_help(chat: Chat, _: str) -> None:
    width = max(len(command.usage) for command in load_commands().values())
    for command in load_commands().values():
        chat.screen.print_line(f"{command.usage:<{width}}  {command.help}")
    chat.screen.print_line()
    chat.screen.print_note(
        "Enter sends · Esc Enter, Alt-Enter or Ctrl-J: a new line · Tab completes · @file sends a file along"
    )
    chat.screen.print_note(
        "Ctrl-O opens folded output · Ctrl-C stops a turn; at an empty prompt, twice leaves · Ctrl-D leaves"
    )


async def show_history(chat: Chat, _: str) -> None:
    rows = await chat.conversation.load_rows()
    if not rows:
        chat.screen.print_note("Nothing was said yet. The latest conversations:")
        await switching.list_sessions(chat, "")
    for row in rows:
        text = extract_text(row).strip()
        if row["role"] == "tool":
            chat.screen.print_note(
                f"  ⚙ {make_printable(str(row.get('tool_name') or 'tool'))}: {format_plural(len(text), 'character')}"
            )
            continue
        shown_text = "\n".join(filter(None, (_shorten(text), format_call_names(list_call_names(row)))))
        if shown_text:
            speaker, colour = _SPEAKERS.get(row["role"], (f"○ {row['role']}", "cyan"))
            chat.screen.print_line(speaker, f"bold {colour}")
            chat.screen.print_line("\n".join(f"  {line}" for line in shown_text.splitlines()))


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


async def show_status(chat: Chat, _: str) -> None:
    conversation = chat.conversation
    rows = await conversation.load_rows()
    model = None if conversation.models is None else conversation.models.model
    facts = [
        ("Session", f"{conversation.session_id}{'' if conversation.exists else ' (not stored yet)'}"),
        ("Title", conversation.get_title() or conversation.queued_title or "—"),
        (
            "Model",
            "not known yet"
            if model is None
            else f"{model.name} ({redact_text(model.base_url or model.provider or 'unknown')})",
        ),
        ("Directory", str(conversation.cwd)),
        ("Messages", f"{len(rows)} in the context"),
        ("Used", await _describe_usage(conversation)),
        ("Here for", format_duration(clock.now() - conversation.started_at)),
        ("Store", "none: incognito" if conversation.incognito else str(conversation.store.db_path)),
    ]
    for name, value in facts:
        chat.screen.print_line(f"{name + ':':<11}{make_printable(value)}")


async def _describe_usage(conversation: Conversation[SessionDB]) -> str:
    """The tokens of the whole conversation, also of what was said before it was resumed."""
    if not conversation.exists:
        return format_usage(conversation.total) if conversation.total.model else "nothing yet"
    used = (await asyncio.to_thread(conversation.store.usage_of, conversation.session_id, True)).total
    if not used.calls:
        return "nothing yet"
    if not used.input_tokens and not used.output_tokens:
        return "tokens unknown"
    return f"{shorten_number(used.input_tokens)} in · {shorten_number(used.output_tokens)} out (/usage has the cost)"


async def show_usage(chat: Chat, _: str) -> None:
    if not chat.conversation.exists:
        chat.screen.print_line(format_usage(chat.conversation.total))
        return
    used = await asyncio.to_thread(chat.conversation.store.usage_of, chat.conversation.session_id, True)
    cells = [
        (
            f"{line.model or 'unknown'}{'' if line.purpose == 'main' else ' (auxiliary)'}",
            *(format_number(number) for number in line.used[:3]),
            format_cost(line.used),
        )
        for line in used.by_model
    ]
    chat.screen.print_table(("Model", "Calls", "Input", "Output", "Cost"), cells)


def format_cost(used: UsageLine) -> str:
    """A cost that nobody knows is not shown as $0.00."""
    cost = used.estimated_cost_usd if used.actual_cost_usd is None else used.actual_cost_usd
    return format_dollars(cost) if cost or used.actual_cost_usd is not None else "—"


async def show_insights(chat: Chat, argument: str) -> None:
    from hermes.insights import InsightsEngine
    from hermes.insights.chat_report import format_markdown

    days = int(argument) if argument.isdecimal() and 0 < int(argument) < 10_000 else 30
    report = await asyncio.to_thread(InsightsEngine(chat.conversation.store).generate, days)
    chat.screen.print_markdown(format_markdown(report).replace("\n", "  \n"))  # in a chat a line stays a line


COMMANDS = (
    Command("history", "", "what was said in this conversation, each message in short", show_history),
    Command(
        "save",
        "[file]",
        "write the whole conversation to a file: JSON, or .md, .html, .jsonl by its name",
        save,
    ),
    Command("status", "", "which conversation, model and directory this is", show_status),
    Command("usage", "", "what this conversation used and cost, by model", show_usage),
    Command("insights", "[days]", "what was done in the last 30 days, and what it cost", show_insights),
    Command("help", "", "this list", show_help),
)
