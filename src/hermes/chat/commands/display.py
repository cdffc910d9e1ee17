"""Commands that only show something, or write it to a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import clock, home
from hermes.atomic_files import write_new_file
from hermes.chat.commands import switching
from hermes.chat.commands.table import Command, commands
from hermes.chat.farewell import duration
from hermes.chat.view.recap import collapsed, names_of_calls, said
from hermes.chat.view.screen import GOLD, GREEN, status
from hermes.config.redaction import redact_text
from hermes.export import ancestry
from hermes.export.formats import BY_ENDING, FORMATS
from hermes.insights.number_format import format_dollars, format_number, format_plural, shorten_number
from hermes.store.engine_choice import list_store_files
from hermes.store.retention.session_files import SAVED
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.session import Talk
    from hermes.chat.terminal_loop import Chat

Row = dict[str, Any]

HISTORY_SHOWN = 400


async def show_help(chat: Chat, _: str) -> None:
    width = max(len(command.usage) for command in commands().values())
    for command in commands().values():
        chat.screen.line(f"{command.usage:<{width}}  {command.help}")
    chat.screen.line()
    chat.screen.note(
        "Enter sends · Esc Enter, Alt-Enter or Ctrl-J: a new line · Tab completes · @file sends a file along"
    )
    chat.screen.note(
        "Ctrl-O opens folded output · Ctrl-C stops a turn; at an empty prompt, twice leaves · Ctrl-D leaves"
    )


async def history(chat: Chat, _: str) -> None:
    rows = await chat.talk.rows()
    if not rows:
        chat.screen.note("Nothing was said yet. The latest conversations:")
        await switching.sessions(chat, "")
    for row in rows:
        text = said(row).strip()
        if row["role"] == "tool":
            chat.screen.note(
                f"  ⚙ {make_printable(str(row.get('tool_name') or 'tool'))}: {format_plural(len(text), 'character')}"
            )
            continue
        told = "\n".join(filter(None, (_short(text), collapsed(names_of_calls(row)))))
        if told:
            who, colour = _SPEAKERS.get(row["role"], (f"○ {row['role']}", "cyan"))
            chat.screen.line(who, f"bold {colour}")
            chat.screen.line("\n".join(f"  {line}" for line in told.splitlines()))


_SPEAKERS = {"user": ("● You", GOLD), "assistant": ("◆ Hermes", GREEN)}


def _short(text: str) -> str:
    return text if len(text) <= HISTORY_SHOWN else f"{text[:HISTORY_SHOWN]}..."


async def save(chat: Chat, argument: str) -> None:
    rows = await chat.talk.rows()
    if not rows:
        chat.screen.note("There is nothing to save yet.")
        return
    store = chat.talk.db.db_path
    file = chat.talk.cwd / Path(argument).expanduser()
    if argument and (what := list_store_files(store).called(file)) is not None:
        chat.screen.problem(f"'{file}' is {what}; name another file")
        return
    try:
        if not argument:
            file = await asyncio.to_thread(_new_name, store.parent / "sessions" / SAVED)
        text = await asyncio.to_thread(_written, chat.talk, rows, file)
        with write_new_file(file, replace=False) as written:  # which follows no link
            written.write(text.encode(errors="replace"))
    except FileExistsError:
        chat.screen.problem(f"'{file}' exists; name another file")
    except OSError as problem:
        chat.screen.problem(f"{problem.strerror}: {file}")
    else:
        chat.screen.line(f"Wrote {file}")


def _new_name(folder: Path) -> Path:
    """A name that is not taken, in the folder of saved conversations, which is made private."""
    home.make_private_folder(folder)
    if home.is_loose(str(folder)):
        folder.chmod(home.PRIVATE_FOLDER)
    stem = f"hermes_conversation_{clock.format_stamp()}"
    names = (folder / f"{stem}{f'_{number}' if number > 1 else ''}.json" for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def _written(talk: Talk, rows: Sequence[Row], file: Path) -> str:
    """The whole conversation, also what came before a compression or a branch, in the format that the name asks for."""
    found = ancestry.gather_ancestry(talk.db, talk.session_id) if talk.exists else None
    if found is None:
        found = ancestry.make_ancestry(talk.session_id, list(rows), clock.now())
    else:
        unstored = [{"id": "", "timestamp": clock.now(), **row} for row in rows if "id" not in row]
        found.sessions[talk.session_id]["messages"].extend(unstored)
    if file.suffix.lower() == ".json":
        return ancestry.to_json(found)
    kind = "jsonl" if file.suffix.lower() == ".jsonl" else BY_ENDING.get(file.suffix.lower(), "md")
    return "".join(FORMATS[kind].write([found.conversation], found.load))


async def show_status(chat: Chat, _: str) -> None:
    talk = chat.talk
    rows = await talk.rows()
    model = talk.answering.model
    facts = [
        ("Session", f"{talk.session_id}{'' if talk.exists else ' (not stored yet)'}"),
        ("Title", talk.title() or talk.queued_title or "—"),
        (
            "Model",
            "not known yet"
            if model is None
            else f"{model.name} ({redact_text(model.base_url or model.provider or 'unknown')})",
        ),
        ("Directory", str(talk.cwd)),
        ("Messages", f"{len(rows)} in the context"),
        ("Used", await _describe_usage(talk)),
        ("Here for", duration(clock.now() - talk.began)),
        ("Store", "none: incognito" if talk.incognito else str(talk.db.db_path)),
    ]
    for name, told in facts:
        chat.screen.line(f"{name + ':':<11}{make_printable(told)}")


async def _describe_usage(talk: Talk) -> str:
    """The tokens of the whole conversation, also of what was said before it was resumed."""
    if not talk.exists:
        return status(talk.total) if talk.total.model else "nothing yet"
    used = (await asyncio.to_thread(talk.db.usage_of, talk.session_id, True)).total
    if not used.calls:
        return "nothing yet"
    if not used.input_tokens and not used.output_tokens:
        return "tokens unknown"
    return f"{shorten_number(used.input_tokens)} in · {shorten_number(used.output_tokens)} out (/usage has the cost)"


async def usage(chat: Chat, _: str) -> None:
    if not chat.talk.exists:
        chat.screen.line(status(chat.talk.total))
        return
    used = await asyncio.to_thread(chat.talk.db.usage_of, chat.talk.session_id, True)
    cells = [
        (
            f"{line.model or 'unknown'}{'' if line.purpose == 'main' else ' (auxiliary)'}",
            *(format_number(number) for number in line.used[:3]),
            format_dollars(line.used.actual_cost_usd or line.used.estimated_cost_usd),
        )
        for line in used.by_model
    ]
    chat.screen.table(("Model", "Calls", "Input", "Output", "Cost"), cells)


async def insights(chat: Chat, argument: str) -> None:
    from hermes.insights import InsightsEngine
    from hermes.insights.chat_report import format_markdown

    days = int(argument) if argument.isdecimal() and 0 < int(argument) < 10_000 else 30
    report = await asyncio.to_thread(InsightsEngine(chat.talk.db).generate, days)
    chat.screen.markdown(format_markdown(report).replace("\n", "  \n"))  # in a chat a line stays a line


COMMANDS = (
    Command("history", "", "what was said in this conversation, each message in short", history),
    Command(
        "save",
        "[file]",
        "write the whole conversation to a file: JSON, or .md, .html, .jsonl by its name",
        save,
    ),
    Command("status", "", "which conversation, model and directory this is", show_status),
    Command("usage", "", "what this conversation used and cost, by model", usage),
    Command("insights", "[days]", "what was done in the last 30 days, and what it cost", insights),
    Command("help", "", "this list", show_help),
)
