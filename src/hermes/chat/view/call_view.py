"""Views of tool calls and of reasoning on the screen, in three forms: while running, after the end (folded),
and opened in full.

The arguments and the output of a tool are escaped for the terminal. They appear only in the heading line or
after a mark in the margin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from hermes.agent.subagents import describe_work
from hermes.chat.view.calls import DELEGATE, EDITORS, NO_RESULT, Call, describe_arguments, describe_call
from hermes.chat.view.diff_view import is_folded, render_diff
from hermes.chat.view.diffs import format_counts
from hermes.chat.view.edits import Edit, read_edit
from hermes.chat.view.gutter import FOREIGN_MARK, OPEN_HINT, Folded, Gutter, Line, fold
from hermes.store.content import to_json
from hermes.text import format_count, make_printable, make_readable, reveal, spell_controls

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hermes.agent.events import SubagentProgress

COMMAND_HEAD, COMMAND_TAIL = 12, 7
"""The number of lines that are shown of a long command, at its beginning and at its end."""
OUTPUT_HEAD, OUTPUT_TAIL = 2, 3
SUBAGENT_LINES = 24
SUBAGENT_MARKS = {
    "queued": ("·", "dim"),
    "done": ("✓", "green"),
    "failed": ("✗", "red"),
    "stopped": ("■", "yellow"),
}
REASONING_HEAD, REASONING_TAIL = 1, 2
DIFF_LINES = 20
COMMAND_ROWS, OUTPUT_ROWS = 10, 2
"""The maximum number of screen rows for one line of a command or of output."""
BEHIND_TITLE = 30
"""Terminal cells reserved for the mark and the state when a command is in the heading line."""
MOST_OPENED = 5_000
THINNED = "the middle of this output was dropped from the store (`hermes sessions thin`)"


class View(NamedTuple):
    rendered: RenderableType
    is_folded: bool


# Running and ended calls


class Title(NamedTuple):
    """The heading of a tool call on the screen. `text` is the heading line. `command` contains the lines of the
    shell command if they do not fit into the heading line."""

    text: str
    command: list[Line]
    is_folded: bool


def make_title(call: Call, width: int) -> Title:
    if call.command is None:
        return Title(describe_call(call.name, call.arguments), [], False)
    others = {key: value for key, value in call.arguments.items() if key != "command"}
    name = f"{make_printable(reveal(call.name))} {describe_arguments(call.name, others)}".rstrip()
    lines = _split_lines(reveal(call.command))
    if len(lines) == 1 and cell_len(f"{name} {lines[0]}") <= max(width - BEHIND_TITLE, width // 2):
        return Title(f"{name} {lines[0]}", [], False)
    folded = fold(lines, COMMAND_HEAD, COMMAND_TAIL, COMMAND_ROWS * width)
    marked = [Line("$" if at == 0 else ">", line or "") for at, line in enumerate(folded.lines)]
    if None in folded.lines:
        marked[folded.lines.index(None)] = Line("", folded.hint, "dim")
    return Title(name, marked, folded.is_folded)


def view_running(title: Title, spinner: str, seconds: float) -> RenderableType:
    head = Text.assemble((f"{spinner} ", "cyan"), title.text, (f"  {seconds:.0f}s", "dim"))
    return Group(head, Gutter(title.command)) if title.command else head


def view_ended(call: Call, seconds: float | None, width: int) -> View:
    """Render a tool call that has ended: its state, its duration, and its output or diff in a few lines."""
    title, edit = make_title(call, width), read_edit(call)
    state = call.exit_state
    if edit is not None and call.output is not None:
        state = format_counts(edit.added, edit.removed) if edit.added or edit.removed else edit.action
        state = f"created {state}" if edit.action == "created" else state
    took = f"{seconds:.1f}s" if seconds is not None else ""
    mark, colour = ("✓", "green") if call.succeeded else ("✗", "red")
    details = " · ".join(filter(None, (make_printable(state), took)))
    head = Text.assemble((f"{mark} ", colour), title.text, (f"  {details}", "dim"))
    parts: list[RenderableType] = [head]
    if title.command:
        parts.append(Gutter(title.command))
    if edit is not None and call.output is not None:
        parts.append(render_diff(edit.diff, most_lines=DIFF_LINES, hint=OPEN_HINT))
        if edit.note:
            parts.append(Gutter([Line(FOREIGN_MARK, f"{edit.note} ({OPEN_HINT})", "yellow")]))
        return View(Group(*parts), title.is_folded or bool(edit.note) or is_folded(edit.diff, DIFF_LINES))
    head_lines = SUBAGENT_LINES if call.name == DELEGATE else OUTPUT_HEAD
    folded = fold(_split_lines(make_readable(call.summary)), head_lines, OUTPUT_TAIL, OUTPUT_ROWS * width)
    if folded.lines:
        parts.append(Gutter(_mark_lines(folded, "red" if call.failed else "dim")))
    is_part = folded.is_folded or call.summary != call.printed
    return View(Group(*parts), title.is_folded or is_part)


def view_subagent(progress: SubagentProgress, spinner: str, seconds: float) -> RenderableType:
    """Render a running subagent in one line."""
    mark, colour = SUBAGENT_MARKS.get(progress.state, (spinner, "cyan"))
    doing = progress.activity or ("" if progress.state == "running" else progress.state)
    work = describe_work(progress._replace(seconds=seconds)) if progress.state != "queued" else ""
    details = " · ".join(make_printable(part, width_limit=40) for part in (doing, work) if part)
    goal = make_printable(progress.goal, width_limit=60)
    return Text.assemble(
        (f"  {mark} ", colour),
        f"{progress.number} {goal}",
        (f"  {details}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def view_unfinished(call: Call, width: int) -> RenderableType:
    """Render a tool call for which no result is recorded."""
    title = make_title(call, width)
    head = Text.assemble(("? ", "yellow"), title.text, (f"  {NO_RESULT}", "yellow"))
    return Group(head, Gutter(title.command)) if title.command else head


def _mark_lines(folded: Folded, style: str) -> list[Line]:
    return [
        Line(FOREIGN_MARK, folded.hint, "dim italic") if line is None else Line(FOREIGN_MARK, line, style)
        for line in folded.lines
    ]


def _split_lines(text: str) -> list[str]:
    """Split an escaped text into lines, without empty lines at the beginning and the end."""
    lines = text.rstrip().split("\n")
    while lines and not lines[0].strip():
        lines.pop(0)
    return lines


# Opened calls


def view_whole(call: Call) -> RenderableType:
    """Render a tool call with all its arguments and its whole output."""
    state = NO_RESULT if call.output is None else call.exit_state
    head = Text.assemble(
        (make_printable(reveal(call.name)), "bold"), (f"  {make_printable(state)}".rstrip(), "dim")
    )
    parts: list[RenderableType] = [head, Gutter(_limit_lines(_format_arguments(call)))]
    edit = read_edit(call)
    if edit is not None:
        parts += view_edit(edit, whole=True)
    else:
        output = [Line(FOREIGN_MARK, line) for line in _split_lines(make_readable(call.printed))]
        parts.append(Gutter(_limit_lines(output) or [Line(FOREIGN_MARK, "(no output)", "dim")]))
    if call.is_thinned:
        parts.append(Text(f"  {THINNED}", "yellow"))
    return Group(*parts)


def _format_arguments(call: Call) -> list[Line]:
    lines: list[Line] = []
    for key, value in call.arguments.items():
        if key == "command" and call.command is not None:
            marks = ("$", ">")
            lines += [Line(marks[at > 0], line) for at, line in enumerate(_split_lines(reveal(call.command)))]
        elif call.name not in EDITORS or key not in ("content", "old_text", "new_text"):
            text = value if isinstance(value, str) else to_json(value)
            first, *more = _split_lines(reveal(text)) or [""]
            lines += [
                Line("", f"{make_printable(reveal(key))}: {first}"),
                *(Line("", f"  {line}") for line in more),
            ]
    return lines


def view_edit(edit: Edit, *, whole: bool = False) -> list[RenderableType]:
    """Render the diff of an edit and the note about the edit, if it has one. With `whole`, add the new text of
    the file if the diff is incomplete."""
    parts: list[RenderableType] = []
    if edit.diff:
        parts.append(render_diff(edit.diff, most_lines=MOST_OPENED))
    elif not (edit.added or edit.removed):
        parts.append(Gutter([Line(FOREIGN_MARK, edit.action, "dim")]))
    if edit.note:
        parts.append(Gutter([Line(FOREIGN_MARK, edit.note, "yellow")]))
    if whole and edit.new_text is not None:
        parts.append(Text("  the whole new text:", "dim"))
        parts.append(
            Gutter(_limit_lines([Line(FOREIGN_MARK, line) for line in reveal(edit.new_text).split("\n")]))
        )
    return parts


def _limit_lines(lines: list[Line]) -> list[Line]:
    left_out = len(lines) - MOST_OPENED
    if left_out <= 0:
        return lines
    hint = (
        f"… {format_count(left_out, 'more line')}: `hermes sessions show --tools --reasoning` shows all of it"
    )
    return [*lines[:MOST_OPENED], Line("", hint, "yellow")]


# Reasoning


def view_thinking(text: str, width: int) -> RenderableType:
    """Render the last lines of the reasoning that the model is still producing."""
    lines = _split_lines(spell_controls(text[-width * 50 :]))[-REASONING_TAIL:]
    visible = fold(lines, REASONING_TAIL, 0, OUTPUT_ROWS * width).lines
    head = Text("∴ reasoning", "dim")
    return Group(head, Gutter([Line(FOREIGN_MARK, line, "dim") for line in visible if line is not None]))


def view_reasoning(text: str, width: int) -> View:
    """Render complete reasoning, in dim colour and folded."""
    lines = _split_lines(spell_controls(text))
    folded = fold(lines, REASONING_HEAD, REASONING_TAIL, OUTPUT_ROWS * width)
    head = Text(f"∴ reasoning  {format_count(len(lines), 'line')}", "dim")
    return View(Group(head, Gutter(_mark_lines(folded, "dim"))), folded.is_folded)


def view_whole_reasoning(text: str) -> RenderableType:
    lines = [Line(FOREIGN_MARK, line, "dim") for line in _split_lines(spell_controls(text))]
    return Group(Text("reasoning", "bold dim"), Gutter(_limit_lines(lines)))
