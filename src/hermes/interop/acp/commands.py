"""Slash commands in an editor: the shared commands, with replies as Markdown.

Each session of an editor is one conversation, and the editor has its own commands to start, open and fork a session.
Therefore the commands that move to another conversation are not offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

from hermes import clock
from hermes.agent.events import Failed, Moved, Note
from hermes.conversation.commands import replies, wording
from hermes.conversation.commands.command_types import CommandContext, Option, SharedCommand, split_command
from hermes.conversation.commands.shared_commands import COMMANDS
from hermes.insights.number_format import format_plural
from hermes.message_content import omit_attached, read_text
from hermes.recall.snippets.goals import MARKED, fit_snippet
from hermes.text import make_preview, make_printable, spell_controls

if TYPE_CHECKING:
    from hermes.agent.subagents import Subagents
    from hermes.conversation.commands.wording import Line, Part
    from hermes.conversation.conversation import Conversation
    from hermes.conversation.file_restore import RestorePlan
    from hermes.db.session_db import SessionDB

Row = dict[str, Any]
Ask = Callable[[str, str], Awaitable[bool]]
"""A function that asks the person a question. It takes the question and its details, and returns whether the answer is
yes."""

NOT_OFFERED = {
    "new": "start a new thread in the editor",
    "resume": "open the session in the list of the editor, or run `hermes -r ID` in a terminal",
    "sessions": "the editor lists the sessions",
    "branch": "fork the session in the editor, or run `hermes -r ID` in a terminal and type /branch",
}
"""Shared commands that an editor does not offer, each with the alternative."""
OFFERED = tuple(command for command in COMMANDS if command.name not in NOT_OFFERED)
BY_NAME = {name: command for command in COMMANDS for name in command.names}
SHOWN, LONGEST, SNIPPET = 20, 120, 160
"""The number of messages that `/history` shows, and the maximum number of characters of a message and a snippet."""
SPEAKERS = {"user": "You", "assistant": "Hermes"}


class CommandCall(NamedTuple):
    command: SharedCommand
    words: str


class CommandResult(NamedTuple):
    text: str
    ask_again: replies.AskAgain | None = None
    """The question that must now be asked again; None for most commands."""


def list_commands() -> list[AvailableCommand]:
    return [
        AvailableCommand(
            name=command.name,
            description=command.summary,
            input=AvailableCommandInput(UnstructuredCommandInput(hint=command.takes))
            if command.takes
            else None,
        )
        for command in OFFERED
    ]


def parse_command(text: str) -> CommandCall | str | None:
    """Return the slash command in a prompt. Return None if the prompt is a message to the agent. If the command is not
    available in an editor, return a text that tells the person so."""
    typed = split_command(text)
    if typed is None:
        return None
    name = typed.name.lower()
    command = BY_NAME.get(name)
    if command is None:
        return format_line(wording.describe_unknown(name, (command.name for command in OFFERED)))
    if command.name in NOT_OFFERED:
        return f"/{command.name} is not available in an editor: {NOT_OFFERED[command.name]}."
    return CommandCall(command, typed.words)


async def run_command(conversation: Conversation[SessionDB], call: CommandCall, ask: Ask) -> CommandResult:
    context = CommandContext(conversation.store, conversation, EditorSurface(conversation, ask))
    reply = await call.command.run(context, call.words)
    if isinstance(reply, replies.AskAgain):
        return CommandResult("", reply)
    if isinstance(reply, replies.Compressing):
        return CommandResult(await _compress(reply))
    return CommandResult(await asyncio.to_thread(format_reply, reply))


class EditorSurface:
    """The surface of the shared commands in an editor. A typed command needs no confirmation, because it can be undone.
    The person is asked before files are changed."""

    waiting, edits_files = 0, True

    def __init__(self, conversation: Conversation[SessionDB], ask: Ask) -> None:
        self._conversation, self._ask = conversation, ask

    async def confirm(self, question: str) -> bool:
        return True

    async def choose(self, question: str, options: Sequence[Option]) -> str | None:
        return None

    async def confirm_restore(self, plan: RestorePlan, *, is_redo: bool) -> bool:
        question = "Edit these files again" if is_redo else "Change these files, too"
        return await self._ask(question, _format_lines(wording.describe_restore_plan(plan, is_redo=is_redo)))

    @property
    def subagents(self) -> Subagents | None:
        known = self._conversation.parts.subagents
        return None if known is None else known()


# ---------------------------------------------------------------- replies


def format_reply(reply: replies.Reply) -> str:
    formatter = _FORMATTERS.get(type(reply))
    return _format_lines(wording.describe_reply(reply)) if formatter is None else formatter(reply)


def format_line(line: Line) -> str:
    return "".join(map(_format_part, line))


def _format_lines(lines: Iterable[Line]) -> str:
    return _join(map(format_line, lines))


def _join(lines: Iterable[str]) -> str:
    """Return lines joined to one Markdown text, in which each stays on its own line."""
    return "  \n".join(lines)


def _format_part(part: Part) -> str:
    match part:
        case str():
            return part
        case wording.Code(text):
            return _format_code(text)
        case wording.Foreign(text, longest):
            return _format_text(text, longest)
        case wording.Name(row):
            return _format_name(row)
        case wording.Strong(text):
            return f"**{text}**"


def _format_text(text: str, longest: int = LONGEST) -> str:
    """Return a text of another author on one line, changed so that Markdown shows it as it is."""
    line = " ".join(make_printable(text, width_limit=longest).split())
    return "".join(f"\\{char}" if char in "\\`*_~[]<>#|" else char for char in line)


def _format_code(text: str) -> str:
    return f"`{make_printable(text, width_limit=200).replace('`', chr(39)) or '?'}`"


def _format_name(row: Row) -> str:
    if row.get("title"):
        return f"**{_format_text(row['title'], wording.LONGEST_PREVIEW)}**"
    preview = row.get("preview")
    return f"“{_format_text(preview, wording.LONGEST_PREVIEW)}”" if preview else "*untitled*"


async def _compress(reply: replies.Compressing) -> str:
    lines = []
    async for event in reply.events:
        match event:
            case Note(text):
                lines.append(text)
            case Moved(_, before, after):
                lines.append(f"Compressed: {before} → {after} messages.")
            case Failed(why):
                lines.append(why)
            case _:
                pass
    return _join(lines) or wording.NOTHING_COMPRESSED


def _format_files(reply: replies.WithFiles) -> str:
    return _join([format_reply(reply.reply), _format_lines(wording.describe_files(reply))])


def _format_undone(reply: replies.StartUndone) -> str:
    called = "the previous conversation" if reply.row is None else _format_name(reply.row)
    return f"↩ {wording.START_UNDONE} Back in {called} ({format_plural(reply.messages, 'message')})."


def _format_prompts(reply: replies.Prompts) -> str:
    lines = [f"{number}. “{_format_text(row['preview'])}”" for number, row in enumerate(reply.rows, 1)]
    return "\n".join([*lines, "", "`/rewind` with a number rewinds to before that message."])


def _format_history(reply: replies.History) -> str:
    lines = []
    for row in reply.rows:
        text = read_text(omit_attached(row["content"]), row["role"]).strip()
        if row["role"] in SPEAKERS and text:
            lines.append(f"**{SPEAKERS[row['role']]}**: {_format_text(make_preview(text, LONGEST) or '…')}")
    if not lines:
        return wording.NOTHING_SAID
    before = len(lines) - SHOWN
    first = [f"… {format_plural(before, 'message')} before"] if before > 0 else []
    return _join([*first, *lines[-SHOWN:]])


def _format_conversation(row: Row) -> str:
    when = clock.format_relative(row["last_active"], clock.now())
    return f"{_format_name(row)} · {when} · {_format_code(row['id'])}"


def _format_list(listing: replies.ConversationList | replies.Ambiguous) -> str:
    lines = [f"{number}. {_format_conversation(row)}" for number, row in enumerate(listing.rows, 1)]
    return "\n".join(lines) or "There are no conversations yet."


def _format_hits(hits: replies.SearchHits) -> str:
    lines = [format_line(line) for line in wording.describe_search(hits)]
    for number, row in enumerate(hits.rows, 1):
        lines.append(f"{number}. {_format_conversation(row)}")
        lines.append(f"   {_format_snippet(row['snippet'])}")
    return "\n".join(lines)


def _format_snippet(text: str) -> str:
    parts = MARKED.split(fit_snippet(text, SNIPPET, in_colour=True))
    return "".join(
        f"**{_format_text(part, SNIPPET)}**" if number % 2 and part.strip() else _format_between(part)
        for number, part in enumerate(parts)
    ).strip()


def _format_between(part: str) -> str:
    """Return the part of a snippet between two marked matches. White space at either end becomes one space."""
    ends = (" " if part[:1].isspace() else "", " " if part[-1:].isspace() else "")
    return f"{ends[0]}{_format_text(part, SNIPPET)}{ends[1]}" if part.strip() else ends[0]


def _format_status(status: replies.Status) -> str:
    lines = [f"{label}: {format_line(value)}" for label, value in wording.list_status_facts(status)]
    if status.row is not None and status.row["model"]:
        lines.append(f"Model: {_format_code(status.row['model'])}")
    return _join(lines) or wording.NOTHING_SAID


def _format_usage(reply: replies.Usage) -> str:
    lines = [format_line(line) for line in wording.describe_usage(reply.used)]
    lines += [
        f"- {_format_code(line.model or 'unknown')}{wording.describe_purpose(line.purpose)}:"
        f" {wording.format_usage_line(line.used)}"
        for line in (() if reply.used is None else reply.used.by_model)
    ]
    return "\n".join(lines)


def _format_insights(reply: replies.Insights) -> str:
    from hermes.insights.chat_report import format_markdown

    return format_markdown(reply.report)


def _format_help(reply: replies.Help) -> str:
    if not reply.name:
        return "\n".join(f"- {_format_code(command.usage)} {command.summary}" for command in OFFERED)
    command = BY_NAME.get(reply.name)
    if command is None:
        return format_line(wording.describe_unknown(reply.name, (command.name for command in OFFERED)))
    return _join([_format_code(command.usage), command.summary])


_FORMATTERS: dict[type, Callable[[Any], str]] = {
    replies.WithFiles: _format_files,
    replies.StartUndone: _format_undone,
    replies.Prompts: _format_prompts,
    replies.Resent: lambda reply: spell_controls(read_text(reply.content, "assistant")),
    replies.History: _format_history,
    replies.ConversationList: _format_list,
    replies.Ambiguous: _format_list,
    replies.SearchHits: _format_hits,
    replies.Status: _format_status,
    replies.Usage: _format_usage,
    replies.Insights: _format_insights,
    replies.Memory: lambda reply: spell_controls(reply.text).strip() or wording.NOTHING_REMEMBERED,
    replies.Help: _format_help,
}
"""The formatters by type of reply. Any other reply is formatted with the texts of `wording`, except `AskAgain` and
`Compressing`, which `run_command` handles itself. `Switched` cannot occur, because no offered command moves to another
conversation."""
