"""The texts of the replies to slash commands, which are the same on every surface. A surface adds its markup.

A text is a list of lines, and a line is a sequence of parts. A plain string is text of this program. A `Code`,
`Foreign`, `Name` or `Strong` must be marked up by the surface, and foreign text must be escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hermes.agent.subagents import describe_work
from hermes.conversation.commands import replies
from hermes.conversation.commands.replies import Reason, Reply
from hermes.insights.number_format import format_dollars, format_number, format_plural, shorten_number
from hermes.message_content import make_prompt_preview

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.agent.events import SubagentProgress
    from hermes.conversation.file_restore import RefusedFile, RestorePlan
    from hermes.store.reports.usage import UsageLine, UsageTotals

Row = dict[str, Any]

LONGEST_PREVIEW, LONGEST_TEXT = 60, 200
LEAST_SIMILAR = 0.5
"""Minimum similarity, from 0 to 1, between an unknown command and a command that is suggested for it."""


class Code(NamedTuple):
    """Text to type or copy: a command, an id, the name of a model."""

    text: str


class Foreign(NamedTuple):
    """Text from a person, a model or a file, in one line. A surface escapes it."""

    text: str
    longest: int = LONGEST_TEXT


class Name(NamedTuple):
    """The title of a conversation, or its preview if it has no title."""

    row: Row
    """Columns: `title` and optionally `preview`."""


class Strong(NamedTuple):
    """Text that a surface shows as a heading."""

    text: str


Part: TypeAlias = str | Code | Foreign | Name | Strong
Line: TypeAlias = tuple[Part, ...]

NOTHING_SAID = "Nothing was said here yet."
START_UNDONE = "The new start is undone."
NOTHING_COMPRESSED = "Nothing was compressed."
NOTHING_REMEMBERED = "Nothing is remembered yet."
BUSY = "That conversation is in use elsewhere. Try again later."

REASONS: dict[Reason, str] = {
    Reason.NOTHING_TO_TAKE_BACK: "There is nothing to take back.",
    Reason.NOTHING_TO_GO_BACK_TO: "There is nothing to go back to.",
    Reason.NOTHING_TO_ASK_AGAIN: "There is nothing to ask again.",
    Reason.NOTHING_TO_COMPRESS: "There is nothing to compress.",
    Reason.NOTHING_TO_BRANCH_FROM: "There is nothing to branch from.",
    Reason.NO_ANSWER: "There is no answer yet to send again.",
    Reason.NO_SUBAGENTS: "There are no subagents.",
    Reason.INCOGNITO: "An incognito conversation is not stored and has no title.",
    Reason.TITLE_TAKEN: "Another conversation of yours has that title.",
    Reason.MODEL_IS_FIXED: "The model cannot be chosen here.",
    Reason.ABOUT_ONE_PERSON: "This is private to you, and other people can read this chat.",
    Reason.NUMBERS_OF_ONE_PERSON: "This report includes your private conversations.",
    Reason.PRIVATE_CONVERSATION: "That conversation is private, and other people can read this chat.",
    Reason.SHARED_CONVERSATION: "That conversation is shared; this chat is private.",
}


def describe_reply(reply: Reply) -> list[Line]:
    """Return the lines of a reply whose type is in `WORDINGS`."""
    return WORDINGS[type(reply)](reply)


def describe_unknown(name: str, names: Iterable[str], listed_by: str = "/help") -> Line:
    """Return the line that answers an unknown command `name`. `names` are the commands that exist; `listed_by` is the
    command that lists them."""
    known, typed = list(names), name.lower()
    similar = [candidate for candidate in known if candidate.startswith(typed)]
    meant = list[Part]()
    for candidate in similar or get_close_matches(typed, known, 1, LEAST_SIMILAR):
        meant += [" Did you mean " if not meant else ", ", Code(f"/{candidate}")]
    hint = _suggest("? " if meant else " ", listed_by, "lists the commands.")
    return "There is no ", Code(f"/{name}"), ".", *meant, *hint


def _suggest(before: str, command: str, effect: str) -> Line:
    """Return the parts of a hint at the end of a line: the text `before`, a command, and what the command does."""
    return before, Code(command), f" {effect}"


# Commands that changed nothing


def describe_nothing_said(reply: replies.NothingSaid, because: str = NOTHING_SAID) -> list[Line]:
    """Return the lines for a command that changed nothing because the conversation has no messages. `because` is the
    sentence that says so."""
    return [(f"{because} {REASONS[reply.reason]}",)]


def describe_already_new(reply: replies.AlreadyNew, because: str = NOTHING_SAID) -> list[Line]:
    return [(f"{because} It is a new conversation already.",), *_describe_title_problem(reply.title_problem)]


def _describe_wrong_usage(reply: replies.WrongUsage) -> list[Line]:
    return [("Usage: ", Code(reply.usage)), (reply.summary,)]


# Recent messages


def _describe_taken_back(reply: replies.TookBack) -> list[Line]:
    rest = " and all after it" if reply.exchanges > 1 else ""
    count = format_plural(reply.messages, "message")
    return [
        (
            "↩ Took back ",
            *_quote_beginning(reply.content),
            f"{rest} ({count}).",
            *_suggest(" ", "/redo", "brings it back."),
        )
    ]


def describe_files(reply: replies.WithFiles) -> list[Line]:
    """Return the lines about the files that an undo or redo changed: one for all restored files, one for all deleted
    files, one for all that were left unchanged, and one for each file that could not be restored."""
    files, restored = reply.files, "Restored"
    if isinstance(reply.reply, replies.BroughtBack):
        restored = "Edited again:"
    lines = [
        (f"{text} ", *_list_paths(paths), ".")
        for text, paths in (
            (restored, files.restored),
            ("Deleted", files.deleted),
            ("Left unchanged:", files.kept),
        )
        if paths
    ]
    return [*lines, *describe_refused(files.refused)]


def describe_refused(refused: Iterable[RefusedFile]) -> list[Line]:
    """Return a line for each file that cannot be restored."""
    return [("Not restored: ", Foreign(str(file.path)), f" ({file.reason}).") for file in refused]


def _list_paths(paths: Iterable[Path]) -> Line:
    parts = list[Part]()
    for path in paths:
        parts += [", ", Foreign(str(path))]
    return tuple(parts[1:])


def describe_restore_plan(plan: RestorePlan, *, is_redo: bool) -> list[Line]:
    """Return the lines that list the files of a restore plan. They are shown above the question whether to change these
    files."""
    heading = (
        "These files were restored by the undo:" if is_redo else "These files were edited since that message:"
    )
    lines: list[Line] = [(heading,)]
    for change in plan.changes:
        again = "edit it again" if is_redo else "restore its old content"
        lines.append(("  ", Foreign(str(change.path)), f"  {'delete it' if change.is_deletion else again}"))
    return [*lines, *(("  ", *line) for line in describe_refused(plan.refused))]


def _quote_beginning(content: object) -> Line:
    """Return the beginning of a message in quotation marks."""
    return "“", Foreign(make_prompt_preview(content, LONGEST_PREVIEW) or "…", LONGEST_PREVIEW), "”"


def _describe_brought_back(reply: replies.BroughtBack) -> list[Line]:
    if reply.messages:
        return [(f"↪ Brought back {format_plural(reply.messages, 'message')}.",)]
    return [("There is nothing to bring back. /redo works only right after /undo or /rewind.",)]


def _describe_stopped(reply: replies.Stopped) -> list[Line]:
    if reply.turn:
        them = "it" if reply.waiting == 1 else "them"
        behind = f" {format_plural(reply.waiting, 'message')} waiting; continuing with {them}."
        return [(f"⏹ Stopped.{behind if reply.waiting else ''}",)]
    if reply.processes:
        noun = "process" if reply.processes == 1 else "processes"
        return [(f"⏹ Stopped {format_number(reply.processes)} background {noun}.",)]
    return [("Nothing is running.",)]


# Switching between conversations


def _describe_started(reply: replies.Started) -> list[Line]:
    title = reply.title if reply.row is None else reply.row["title"]  # a number is added to a title in use
    called: Line = () if title is None else (": ", Name({"title": title}))
    lines: list[Line] = [("✨ ", Strong("New conversation"), *called)]
    lines += _describe_title_problem(reply.title_problem)
    if reply.left is not None:
        lines.append(
            (
                "You left ",
                Name(reply.left),
                *_suggest(": ", "/undo", "before your next message brings it back"),
                *_suggest(", ", f"/resume {reply.left['id']}", "at any time."),
            )
        )
    return lines


def _describe_title_problem(problem: str | None) -> list[Line]:
    return [] if problem is None else [(Foreign(problem), "; the conversation has no title.")]


def _describe_titled(reply: replies.Titled) -> list[Line]:
    if reply.title is None:
        return [("The title is removed.",)]
    if reply.is_queued:
        return [("Session title queued: ", Foreign(reply.title), " (will be saved on first message)")]
    return [("Session title set: ", Foreign(reply.title))]


def _describe_title(reply: replies.TitleShown) -> list[Line]:
    lines: list[Line] = [] if reply.session_id is None else [("Session: ", Code(reply.session_id))]
    if reply.title is None:
        return [*lines, ("No title yet.", *_suggest(" ", "/title name", "gives it one."))]
    state = " (will be saved on first message)" if reply.is_queued else ""
    return [*lines, ("Title: ", Foreign(reply.title), state)]


def _describe_not_found(_reply: replies.NotFound) -> list[Line]:
    return [("There is no such conversation.", *_suggest(" ", "/sessions", "shows yours."))]


def _describe_branched(reply: replies.Branched) -> list[Line]:
    is_titled = reply.row is not None and reply.row["title"]
    called: Line = (": ", Name(reply.row)) if reply.row is not None and is_titled else ()
    return [
        ("⑂ ", Strong("On a branch now"), *called),
        ("It has all messages so far. The original is unchanged: ", Code(f"/resume {reply.left_id}")),
    ]


# Lists and reports


def describe_list_end(reply: replies.ConversationList) -> list[Line]:
    """Return the lines below a list of conversations, or in place of an empty list."""
    lines = list[Line]()
    if not reply.rows and reply.is_resume:
        lines.append(("There are no conversations yet.",))
    elif not reply.rows and not reply.private:
        hint = _suggest(" ", "/search", "searches all messages.")
        lines.append(("No conversation has that in its title or its first words.", *hint))
    if reply.more and reply.is_resume:
        lines.append(("… and more.", *_suggest(" ", "/sessions words", "finds them.")))
    elif reply.more:
        lines.append(("… and more.", *_suggest(" ", "/search", "searches all messages.")))
    return [*lines, RESUME_HINT] if reply.rows else lines


RESUME_HINT: Line = (Code("/resume"), " with a number, an id or a title continues a conversation.")


def describe_search(reply: replies.SearchHits) -> list[Line]:
    """Return the lines to show above the hits of a search, or in place of the hits if there are none."""
    if not reply.rows:
        return [] if reply.private else [("Nothing was found.",)]
    if reply.parts:
        parts = list[Part]()
        for part in reply.parts:
            parts += [", ", Code(part)]
        return [("No word matches; found as part of a word: ", *parts[1:])]
    return [("Nothing matches exactly; the nearest are:",)] if reply.are_nearest else []


class Fact(NamedTuple):
    label: str
    value: Line


def list_status_facts(reply: replies.Status) -> list[Fact]:
    """Return the facts about a conversation for `/status`. A surface adds its own facts."""
    if reply.session_id is None:
        return []
    state = "" if reply.row is not None else " (not stored yet)"
    return [
        Fact("Session", (Code(reply.session_id), state)),
        Fact("Title", ("—",) if reply.title is None else (Foreign(reply.title),)),
        Fact("Messages", (f"{format_number(reply.messages)} in the context",)),
        Fact("Used", _describe_tokens(reply.used)),
    ]


def _describe_tokens(used: UsageTotals | None) -> Line:
    """Return the token counts of the whole conversation, including those from before it was resumed."""
    total = None if used is None else used.total
    if total is not None and (total.input_tokens or total.output_tokens):
        return f"{_format_tokens(total)} (", Code("/usage"), " has the cost)"
    return ("tokens unknown" if total is not None and total.calls else "nothing yet",)


def _format_tokens(used: UsageLine) -> str:
    return f"{shorten_number(used.input_tokens)} in, {shorten_number(used.output_tokens)} out"


def describe_usage(used: UsageTotals | None) -> list[Line]:
    """Return the line with the total usage. A surface adds a line or row for each model."""
    if used is None or not used.by_model:
        return [("No model was used in this conversation yet.",)]
    return [(Strong("This conversation"), f" · {format_usage_line(used.total)}")]


def format_usage_line(used: UsageLine) -> str:
    cost = format_cost(used)
    return f"{format_plural(used.calls, 'call')}, {_format_tokens(used)}{f', {cost}' if cost else ''}"


def format_cost(used: UsageLine) -> str:
    """Return a cost as text. `~` before it marks an estimate. If the cost is unknown, the text is empty, not
    `$0.00`."""
    if used.actual_cost_usd is not None:
        return format_dollars(used.actual_cost_usd)
    return f"~{format_dollars(used.estimated_cost_usd)}" if used.estimated_cost_usd else ""


def describe_purpose(purpose: str) -> str:
    """Return the text to append to a model's name in a usage report. It is empty for the purpose `main`, otherwise the
    purpose of the model calls in brackets, such as ` (auxiliary)` for titles and summaries."""
    return "" if purpose == "main" else f" ({purpose})"


# The agent


def _describe_skills(reply: replies.Skills) -> list[Line]:
    lines: list[Line] = [("- ", Code(name), ": ", Foreign(about)) for name, about in reply.entries]
    return lines or [("There are no skills yet.",)]


def _describe_stopped_subagents(reply: replies.SubagentsStopped) -> list[Line]:
    if reply.stopped:
        names = ", ".join(f"subagent {progress.number}" for progress in reply.stopped)
        return [(f"Stopping {names}.",)]
    if reply.number is None:
        return [("No subagent is running.",)]
    return [(f"No subagent {reply.number} is running.", *_suggest(" ", "/agents", "lists them."))]


def _describe_subagents(reply: replies.SubagentList) -> list[Line]:
    lines = list(map(_describe_subagent, reply.subagents))
    return lines or [("This conversation has no subagents.",)]


def _describe_subagent(progress: SubagentProgress) -> Line:
    number: Line = () if progress.number is None else (Strong(str(progress.number)), " ")
    doing: Line = (" (", Foreign(progress.activity, 40), ")") if progress.activity else ()
    session: Line = () if progress.session_id is None else (" · ", Code(progress.session_id))
    states = (f" · {progress.state}", *doing, f" · {describe_work(progress)}", *session)
    return "- ", *number, Foreign(progress.goal, 80), *states


def _describe_model(reply: replies.ModelShown) -> list[Line]:
    if reply.model is None:
        return [("No model has answered yet.",)]
    address: Line = (" (", Foreign(reply.model.address), ")") if reply.model.address else ()
    return [("Model: ", Code(reply.model.name), *address)]


def _describe_chosen_model(reply: replies.ModelChosen) -> list[Line]:
    lines: list[Line] = [("Continuing with ", Code(reply.name), ".")]
    if reply.unchecked is not None:
        lines.append(("The name could not be checked: ", Foreign(reply.unchecked), "."))
    return lines


def _describe_unknown_model(reply: replies.UnknownModel) -> list[Line]:
    similar = list[Part]()
    for name in reply.similar:
        similar += [" Did you mean " if not similar else ", ", Code(name)]
    return [
        (Foreign(reply.address), " lists no model ", Code(reply.name), ".", *similar, "?" if similar else ""),
        ("The model stays as it was.",),
    ]


WORDINGS: dict[type, Callable[[Any], list[Line]]] = {
    replies.Refused: lambda reply: [(REASONS[reply.reason],)],
    replies.NothingSaid: describe_nothing_said,
    replies.WrongUsage: _describe_wrong_usage,
    replies.Cancelled: lambda _reply: [("Nothing was changed.",)],
    replies.TookBack: _describe_taken_back,
    replies.BroughtBack: _describe_brought_back,
    replies.Stopped: _describe_stopped,
    replies.Started: _describe_started,
    replies.AlreadyNew: describe_already_new,
    replies.Titled: _describe_titled,
    replies.TitleShown: _describe_title,
    replies.AlreadyHere: lambda _reply: [("Already on that session.",)],
    replies.Busy: lambda _reply: [(BUSY,)],
    replies.NotFound: _describe_not_found,
    replies.Branched: _describe_branched,
    replies.Skills: _describe_skills,
    replies.SubagentList: _describe_subagents,
    replies.SubagentsStopped: _describe_stopped_subagents,
    replies.ModelShown: _describe_model,
    replies.ModelChosen: _describe_chosen_model,
    replies.UnknownModel: _describe_unknown_model,
}
"""The functions that turn replies into text, by the type of the reply. The types that are missing here (lists, messages
of the conversation, and replies that require an action) are handled by each surface itself."""
