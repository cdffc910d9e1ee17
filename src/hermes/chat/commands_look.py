"""Commands that only show something, or write it to a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.chat import commands_move
from hermes.chat.commands import Command, commands
from hermes.chat.leaving import duration
from hermes.chat.recap import collapsed, names_of_calls, said
from hermes.chat.rendering import GOLD, GREEN, status
from hermes.exporting.containing import contained
from hermes.exporting.markdown import plain
from hermes.insights.wording import counted, dollars, plural
from hermes.partial import new_file
from hermes.redaction import redact_text
from hermes.store.open import belongings_of
from hermes.text import printable

if TYPE_CHECKING:
    from hermes.chat.chat import Chat

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
        await commands_move.sessions(chat, "")
    for row in rows:
        text = said(row).strip()
        if row["role"] == "tool":
            chat.screen.note(
                f"  ⚙ {printable(str(row.get('tool_name') or 'tool'))}: {plural(len(text), 'character')}"
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
    file = chat.talk.cwd / Path(argument or f"hermes_{chat.talk.session_id}.md").expanduser()
    if (what := belongings_of(chat.talk.db.db_path).called(file)) is not None:
        chat.screen.problem(f"'{file}' is {what}; name another file")
        return
    as_json = file.suffix == ".json"
    text = _as_json(chat, rows) if as_json else _as_markdown(chat.talk.title(), chat.talk.session_id, rows)
    try:
        with new_file(file, replace=False) as written:  # which follows no link
            written.write(text.encode(errors="replace"))
    except FileExistsError:
        chat.screen.problem(f"'{file}' exists; name another file")
    except OSError as problem:
        chat.screen.problem(f"{problem.strerror}: {file}")
    else:
        chat.screen.line(f"Wrote {file}")


def _as_json(chat: Chat, rows: Sequence[Row]) -> str:
    exported = chat.talk.db.export_session(chat.talk.session_id) if chat.talk.exists else None
    return json.dumps(exported or {"messages": list(rows)}, ensure_ascii=False, indent=2, default=str) + "\n"


def _as_markdown(title: str | None, session_id: str, rows: Sequence[Row]) -> str:
    def parts() -> Iterator[str]:
        yield f"# {plain(title or session_id)}"
        for row in rows:
            text, calls = said(row).strip(), collapsed(names_of_calls(row))
            if row["role"] in ("user", "assistant") and (text or calls):
                yield f"## {'You' if row['role'] == 'user' else 'Hermes'}"
                yield "\n\n".join(filter(None, (contained(text), f"*{plain(calls)}*" if calls else "")))

    return "\n\n".join(parts()) + "\n"


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
        ("Used", status(talk.total)),
        ("Here for", duration(clock.now() - talk.began)),
        ("Store", "none: incognito" if talk.incognito else str(talk.db.db_path)),
    ]
    for name, told in facts:
        chat.screen.line(f"{name + ':':<11}{printable(told)}")


async def usage(chat: Chat, _: str) -> None:
    if not chat.talk.exists:
        chat.screen.line(status(chat.talk.total))
        return
    used = await asyncio.to_thread(chat.talk.db.usage_of, chat.talk.session_id, True)
    cells = [
        (
            f"{line.model or 'unknown'}{'' if line.purpose == 'main' else ' (auxiliary)'}",
            *(counted(number) for number in line.used[:3]),
            dollars(line.used.actual_cost_usd or line.used.estimated_cost_usd),
        )
        for line in used.by_model
    ]
    chat.screen.table(("Model", "Calls", "Input", "Output", "Cost"), cells)


async def insights(chat: Chat, argument: str) -> None:
    from hermes.insights import InsightsEngine
    from hermes.insights.markdown import markdown

    days = int(argument) if argument.isdecimal() and 0 < int(argument) < 10_000 else 30
    report = await asyncio.to_thread(InsightsEngine(chat.talk.db).generate, days)
    chat.screen.markdown(markdown(report).replace("\n", "  \n"))  # in a chat a line stays a line


COMMANDS = (
    Command("history", "", "what was said in this conversation, each message in short", history),
    Command("save", "[file]", "write the conversation to a Markdown file, or JSON if the name ends so", save),
    Command("status", "", "which conversation, model and directory this is", show_status),
    Command("usage", "", "what this conversation used and cost, by model", usage),
    Command("insights", "[days]", "what was done in the last 30 days, and what it cost", insights),
    Command("help", "", "this list", show_help),
)
