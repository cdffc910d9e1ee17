"""The conversation, its status and its usage on the screen; and `/save`, which writes it to a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import clock, home
from hermes.atomic_files import write_new_file
from hermes.chat.commands.table import Command
from hermes.chat.view.recap import extract_text, format_call_names, format_duration, list_call_names
from hermes.chat.view.screen import GOLD, GREEN, format_usage
from hermes.config.redaction import redact_text
from hermes.export import ancestry
from hermes.export.formats import BY_ENDING, FORMATS
from hermes.insights.number_format import format_dollars, format_number, format_plural, shorten_number
from hermes.store.engine_choice import list_store_files
from hermes.store.retention.session_files import SAVED
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.session import LiveConversation
    from hermes.chat.terminal_loop import Chat
    from hermes.chat.view.screen import Screen
    from hermes.conversation.commands.replies import Status, Usage
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
        shown_text = "\n".join(filter(None, (_shorten(text), format_call_names(list_call_names(row)))))
        if shown_text:
            speaker, colour = _SPEAKERS.get(row["role"], (f"○ {row['role']}", "cyan"))
            screen.print_line(speaker, f"bold {colour}")
            screen.print_line("\n".join(f"  {line}" for line in shown_text.splitlines()))


_SPEAKERS = {"user": ("● You", GOLD), "assistant": ("◆ Hermes", GREEN)}


def _shorten(text: str) -> str:
    return text if len(text) <= HISTORY_SHOWN else f"{text[:HISTORY_SHOWN]}..."


async def save(chat: Chat, argument: str) -> None:
    rows = await chat.conversation.load_rows()
    if not rows:
        chat.screen.print_note("There is nothing to save yet.")
        return
    store = chat.conversation.db.db_path
    file = chat.conversation.cwd / Path(argument).expanduser()
    if argument and (description := list_store_files(store).called(file)) is not None:
        chat.screen.print_problem(f"'{file}' is {description}; name another file")
        return
    try:
        if not argument:
            file = await asyncio.to_thread(_choose_file_name, store.parent / "sessions" / SAVED)
        text = await asyncio.to_thread(_format_conversation, chat.conversation, rows, file)
        with write_new_file(file, replace=False) as written:  # which follows no link
            written.write(text.encode(errors="replace"))
    except FileExistsError:
        chat.screen.print_problem(f"'{file}' exists; name another file")
    except OSError as problem:
        chat.screen.print_problem(f"{problem.strerror}: {file}")
    else:
        chat.screen.print_line(f"Wrote {file}")


def _choose_file_name(folder: Path) -> Path:
    """A name that is not taken, in the folder of saved conversations, which is made private."""
    home.make_private_folder(folder)
    if home.is_loose(str(folder)):
        folder.chmod(home.PRIVATE_FOLDER)
    stem = f"hermes_conversation_{clock.format_stamp()}"
    names = (folder / f"{stem}{f'_{number}' if number > 1 else ''}.json" for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def _format_conversation(conversation: LiveConversation, rows: Sequence[Row], file: Path) -> str:
    """The whole conversation, also what came before a compression or a branch, in the format that the name asks for."""
    found = (
        ancestry.gather_ancestry(conversation.db, conversation.session_id) if conversation.exists else None
    )
    if found is None:
        found = ancestry.make_ancestry(conversation.session_id, list(rows), clock.now())
    else:
        unstored = [{"id": "", "timestamp": clock.now(), **row} for row in rows if "id" not in row]
        found.sessions[conversation.session_id]["messages"].extend(unstored)
    if file.suffix.lower() == ".json":
        return ancestry.to_json(found)
    kind = "jsonl" if file.suffix.lower() == ".jsonl" else BY_ENDING.get(file.suffix.lower(), "md")
    return "".join(FORMATS[kind].write([found.conversation], found.load))


def show_status(screen: Screen, conversation: LiveConversation, status: Status) -> None:
    model = conversation.answerer.model
    address = None if model is None else redact_text(model.base_url or model.provider or "unknown")
    facts = [
        ("Session", f"{status.session_id}{'' if status.row is not None else ' (not stored yet)'}"),
        ("Title", status.title or "—"),
        ("Model", "not known yet" if model is None else f"{model.name} ({address})"),
        ("Directory", str(conversation.cwd)),
        ("Messages", f"{status.messages} in the context"),
        ("Used", _describe_usage(conversation, status)),
        ("Here for", format_duration(clock.now() - conversation.started_at)),
        ("Store", "none: incognito" if conversation.incognito else str(conversation.db.db_path)),
    ]
    for name, value in facts:
        screen.print_line(f"{name + ':':<11}{make_printable(value)}")


def _describe_usage(conversation: LiveConversation, status: Status) -> str:
    """The tokens of the whole conversation, also of what was said before it was resumed."""
    if status.used is None:
        return format_usage(conversation.total) if conversation.total.model else "nothing yet"
    used = status.used.total
    if not used.calls:
        return "nothing yet"
    if not used.input_tokens and not used.output_tokens:
        return "tokens unknown"
    return f"{shorten_number(used.input_tokens)} in · {shorten_number(used.output_tokens)} out (/usage has the cost)"


def show_usage(screen: Screen, conversation: LiveConversation, usage: Usage) -> None:
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
