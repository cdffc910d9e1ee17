"""The screen of the terminal conversation. This module escapes text from models and tools. The code that draws
the text does not escape it again.

On a terminal, an answer is Markdown: finished blocks are written once, and only the open block is redrawn. On
other outputs, an answer is plain text, and each block is written when it is complete.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hermes.agent import events
from hermes.chat.view.call_view import (
    Title,
    make_title,
    view_ended,
    view_reasoning,
    view_running,
    view_subagent,
    view_thinking,
    view_unfinished,
)
from hermes.chat.view.calls import Call
from hermes.chat.view.diff_view import render_diff
from hermes.chat.view.link_support import can_click
from hermes.chat.view.live_region import Region
from hermes.chat.view.markdown_blocks import Blocks
from hermes.chat.view.recap import Recap
from hermes.chat.view.status_line import NOTHING_TYPED, TypedText, view_status
from hermes.insights.number_format import format_dollars, shorten_number
from hermes.text import make_printable, make_readable, spell_controls

GOLD, GREEN = "#ffd700", "#5fd75f"
REDRAWN_EVERY_S = 0.05
WAITING = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
GAP, LEAST_FLEXIBLE = 2, 16
"""The space between the columns of a table, and the minimum width of its flexible column. If the flexible
column would be narrower, optional columns are left out."""


class RunningCall(NamedTuple):
    call_id: str
    call: Call
    title: Title
    since: float


class RunningSubagent(NamedTuple):
    progress: events.SubagentProgress
    reported_at: float


class Screen:
    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _make_console()
        self._live = self.console.is_terminal and not self.console.is_dumb_terminal
        self._clickable = can_click(os.environ)
        self._region = Region(self.console)
        self._blocks = Blocks()
        self._reasoning = ""
        """The reasoning that arrived after the last text of the answer."""
        self._definitions: dict[str, Any] = {}
        """The link definitions in the finished blocks of the answer."""
        self._has_blocks = False
        """Whether finished blocks of the answer are on the screen. Finished blocks cannot be
        removed from it."""
        self._running: list[RunningCall] = []
        self._subagents: dict[int | None, RunningSubagent] = {}
        self._started_at = self._next_drawing = 0.0
        self._waiting = False
        self._typed = NOTHING_TYPED
        self._is_stopping = False
        self._paused_events: list[events.Event] | None = None
        """The events that arrived while a question to the person is open; None if no question is open."""

    # ---------------------------------------------------------------- lines

    def print_line(self, text: str = "", style: str = "") -> None:
        """Print one or more lines. Rich markup in the text is not interpreted."""
        self.console.print(Text(make_readable(text), style))

    def show(self, *parts: RenderableType) -> None:
        """Print renderable parts whose text has already been escaped."""
        for part in parts:
            self.console.print(part)

    def print_input(self, text: str) -> None:
        """Print an input that was not typed at the prompt, in the style of the prompt."""
        self.console.print(Text.assemble(("❯ ", f"bold {GOLD}"), make_readable(text)))

    def print_problem(self, text: str) -> None:
        self.print_line(text, "bold red")

    def print_note(self, text: str) -> None:
        self.print_line(text, "dim")

    def print_snippet(self, text: str) -> None:
        """Print a search snippet in one line, with matches in colour. Without colour, the match marks are
        printed."""
        from hermes.recall.snippets.goals import MARKED, fit_snippet

        in_colour = self.console.color_system is not None and not self.console.no_color
        excerpt = fit_snippet(text, self.console.width - 4, in_colour=in_colour)
        line = Text("   ", "dim")
        for number, part in enumerate(MARKED.split(excerpt) if in_colour else [excerpt]):
            line.append(part, "not dim bold yellow" if number % 2 else "")
        self.console.print(line)

    def print_diff(self, text: str) -> None:
        """Print a whole diff, in colour if possible."""
        self.console.print(render_diff(text))

    def print_markdown(self, text: str) -> None:
        self.console.print(self._render_markdown(text))

    def print_table(
        self,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        flexible: int = 0,
        optional: Sequence[int] = (),
    ) -> None:
        """Print a table. In a narrow window, the column `flexible` is cut, and the columns `optional` are
        left out one by one, in the given order. All other columns are shown in full."""
        from rich.table import Table

        texts = [[Text(make_printable(cell)) for cell in row] for row in (heads, *rows)]
        widths = [max(text.cell_len for text in column) for column in zip(*texts, strict=True)]
        shown, left_out = list(range(len(heads))), list(optional)
        while True:
            fixed = [widths[column] for column in shown if column != flexible]
            room = self.console.width - sum(fixed) - GAP * len(fixed)
            if room >= min(LEAST_FLEXIBLE, widths[flexible]) or not left_out:
                break
            shown.remove(left_out.pop(0))
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, GAP, 0, 0))
        for column in shown:
            width = max(1, min(room, widths[column])) if column == flexible else widths[column]
            table.add_column(heads[column], overflow="ellipsis", no_wrap=True, width=width)
        for row in texts[1:]:
            table.add_row(*(row[column] for column in shown))
        self.console.print(table)

    def print_recap(self, recap: Recap) -> None:
        """Print the recap in a panel."""
        if not recap.entries:
            return
        from rich.panel import Panel

        parts: list[RenderableType] = []
        if recap.earlier:
            parts.append(Text(f"... {recap.earlier} earlier messages ...", "dim italic"))
        for entry in recap.entries:
            mine = entry.role == "user"
            mark, name, colour = ("●", "You", GOLD) if mine else ("◆", "Hermes", GREEN)
            dim = "" if entry.is_last else "dim "
            first, *more = entry.text.splitlines() or [""]
            text = Text.assemble((f"{mark} {name}: ", f"{dim}bold {colour}"), (first, dim.strip()))
            for line in more:
                text.append(f"\n  {line}", dim.strip())
            parts.append(text)
        if recap.open:
            parts.append(Text(f"Left open: {recap.open}", "italic yellow"))
        panel = Panel(
            Group(*parts),
            title="Previous Conversation",
            title_align="left",
            border_style="dim",
            padding=(0, 1),
        )
        self.console.print(panel)

    # ---------------------------------------------------------------- turns

    def begin(self) -> None:
        self._started_at, self._waiting = time.monotonic(), True
        self._blocks, self._reasoning, self._running, self._subagents = Blocks(), "", [], {}
        self._definitions, self._has_blocks, self._is_stopping = {}, False, False

    def print_aside(self, text: str, style: str = "dim") -> None:
        """Print a text that is unrelated to the running turn, above the live region."""
        if self._paused_events is not None:
            self._paused_events.append(events.Note(text))
        else:
            self._commit(Text(make_readable(text), style))

    def pause(self) -> None:
        """Hold back the events of the turn until `resume` is called, because a question to the person or the
        reply of a command uses the last lines of the screen."""
        self._paused_events = []
        if self._live:
            self._region.commit(())

    def resume(self) -> None:
        paused, self._paused_events = self._paused_events, None
        for event in paused or ():
            self.handle_event(event)

    def handle_event(self, event: events.Event) -> None:
        if self._paused_events is not None:
            self._paused_events.append(event)
        else:
            self._show(event)

    def _show(self, event: events.Event) -> None:  # noqa: C901  one case for each event
        match event:
            case events.TextDelta(text):
                self._add_text(text)
            case events.ThoughtDelta(text):
                self._add_reasoning(text)
            case events.Recast(text):
                self._reclassify(text)
            case events.Stored() | events.ApprovalAsked():
                pass
            case events.Discarded(why, seconds):
                self._blocks, self._reasoning, self._has_blocks = Blocks(), "", False
                when = f"; trying again in {seconds:.0f}s" if seconds else ""
                self._commit(Text(make_readable(f"↻ {why}{when}"), "yellow"))
            case events.ToolStarted(call_id, name, arguments):
                self._end_text()
                call = Call(name, arguments)
                title = make_title(call, self.console.width)
                self._running.append(RunningCall(call_id, call, title, time.monotonic()))
                self.tick()
            case events.ToolEnded(call_id, name, output, failed, seconds):
                call = self._take_running(call_id, name)._replace(output=output, failed=failed)
                self._commit(view_ended(call, seconds, self.console.width).rendered)
                self._forget_subagents()
            case events.SubagentProgress(number):
                self._subagents[number] = RunningSubagent(event, time.monotonic())
                self.tick()
            case events.NotStored(role, why, spooled):
                self._end_text()
                self._commit(Text(make_readable(describe_unstored(role, why, spooled)), "bold red"))
            case events.Counted():
                pass
            case events.Note(text, hint):
                self._end_text()
                self._commit(Text(make_readable(f"{text} {hint}".rstrip()), "dim"))
            case events.Moved(session_id, before, after):
                self._end_text()
                notice = f"continues as {make_printable(session_id)}, {before} → {after} messages"
                self._commit(Text(notice, "dim"))
            case events.Done():
                self._end_text()
            case events.Interrupted():
                self._end_text()
                self._commit(Text("■ stopped; the messages so far are kept", "yellow"))
            case events.Failed(why, _):
                self._end_text()
                self._commit(Text(make_readable(f"✗ {why}"), "bold red"))

    def end(self, used: events.Counted | None = None) -> None:
        """End the display of a turn, whatever its outcome. Show the tool calls that have no result. If `used`
        is given, print the tokens, the cost and the time that the turn took."""
        unfinished, self._running, self._waiting = self._running, [], False
        self._end_text()
        for running in unfinished:  # the call may still have had effects
            self._commit(view_unfinished(running.call, self.console.width))
        if used is not None:
            self.print_note(f"{format_usage(used)} · {time.monotonic() - self._started_at:.1f}s")

    def show_typed(self, typed: TypedText) -> None:
        """Show, below the answer, the text that is typed while the answer is made."""
        if typed != self._typed:
            self._typed = typed
            if self._waiting and self._can_draw:
                self._draw()

    def show_stopping(self) -> None:
        """Show that the person has stopped the turn."""
        self._is_stopping = True
        if self._waiting and self._can_draw:
            self._draw()

    def tick(self) -> None:
        """Redraw the live region. Long texts are redrawn less often, to limit the drawing time."""
        is_long = bool(self._blocks.open or self._reasoning)
        if self._can_draw and not (is_long and time.monotonic() < self._next_drawing):
            self._draw()

    @property
    def _can_draw(self) -> bool:
        return self._live and self._paused_events is None

    def _draw(self, *finished: RenderableType) -> None:
        """Write `finished` permanently above the live region. In the region, draw the unfinished parts of the
        turn and the status below them."""
        began = time.monotonic()
        status: list[RenderableType] = []
        if self._waiting:
            spinner = WAITING[int(began * 10) % len(WAITING)]
            status = [
                *view_status(
                    spinner,
                    began - self._started_at,
                    self._typed,
                    is_stopping=self._is_stopping,
                    height=self.console.size.height,
                )
            ]
        self._region.commit(finished, [*self._render_open(), *status])
        ended = time.monotonic()
        self._next_drawing = ended + max(REDRAWN_EVERY_S, 5 * (ended - began))

    def _render_open(self) -> list[RenderableType]:
        """Return the part of the turn that is not finished: the open block of the answer, the reasoning, or the
        running tool calls and subagents."""
        now = time.monotonic()
        if self._blocks.open.strip():
            return [self._render_answer(self._blocks.open, dict(self._definitions))]
        if self._reasoning.strip():
            return [view_thinking(self._reasoning, self.console.width)]
        if self._running:
            turn = WAITING[int(now * 10) % len(WAITING)]
            return [
                *(view_running(running.title, turn, now - running.since) for running in self._running),
                *(self._render_subagent(subagent, turn, now) for subagent in self._subagents.values()),
            ]
        return []

    def _render_subagent(self, subagent: RunningSubagent, spinner: str, now: float) -> RenderableType:
        since = now - subagent.reported_at if subagent.progress.state == "running" else 0.0
        return view_subagent(subagent.progress, spinner, subagent.progress.seconds + since)

    def _forget_subagents(self) -> None:
        """Remove the subagents that have ended from the live region. The result of the call that started them
        shows how they ended."""
        self._subagents = {
            number: subagent for number, subagent in self._subagents.items() if not subagent.progress.is_over
        }

    def _take_running(self, call_id: str, name: str) -> Call:
        """Remove a running tool call from the state of the screen and return it. Call ids are not always
        unique; the first call with this id is taken."""
        for running in self._running:
            if running.call_id == call_id:
                self._running.remove(running)
                return running.call
        return Call(name, {})

    def _add_reasoning(self, text: str) -> None:
        if self._blocks.open:
            self._end_text()
        self._reasoning += text
        if time.monotonic() >= self._next_drawing:
            self.tick()

    def _reclassify(self, text: str) -> None:
        """Treat `text`, which was shown as a part of the answer, as reasoning. It will be shown folded. Blocks
        of it that were already written stay on the screen, with a note below them."""
        self._blocks = Blocks()
        if self._has_blocks:
            self._commit(Text("∴ the text above is reasoning; the answer follows", "dim"))
        self._reasoning, self._has_blocks = text, False

    def _end_reasoning(self) -> None:
        text, self._reasoning = self._reasoning, ""
        if text.strip():
            self._commit(view_reasoning(text, self.console.width).rendered)

    def _add_text(self, text: str) -> None:
        self._end_reasoning()
        finished = self._blocks.add(text)
        self._has_blocks = self._has_blocks or bool(finished.strip())
        if not self._live:
            if finished:
                self.console.file.write(spell_controls(finished))
                self.console.file.flush()
            return
        if finished.strip():
            self._commit(self._render_answer(finished, self._definitions))
        if time.monotonic() >= self._next_drawing:
            self.tick()

    def _end_text(self) -> None:
        self._end_reasoning()
        self._has_blocks = False
        rest = self._blocks.take_rest()
        if not self._live and rest:
            self.console.file.write(f"{spell_controls(rest)}\n")
        elif rest.strip():
            self._commit(self._render_answer(rest, self._definitions))
        else:
            self._commit()

    def _commit(self, *parts: RenderableType) -> None:
        if self._can_draw:
            self._draw(*parts)
            return
        if self._live:
            self._region.commit(parts)
            return
        for part in parts:
            self.console.print(part)

    def _render_answer(self, text: str, definitions: dict[str, Any]) -> RenderableType:
        return Padding(self._render_markdown(text.rstrip("\n"), definitions), (0, 0, 1, 0))

    def _render_markdown(self, text: str, definitions: dict[str, Any] | None = None) -> RenderableType:
        if not self._live:
            return Text(spell_controls(text))
        from hermes.chat.view.markdown_view import make_markdown  # rich's Markdown is a third of all imports

        return make_markdown(spell_controls(text), clickable=self._clickable, definitions=definitions)


def _make_console() -> Console:
    """Return a rich console that reads the size of the terminal each time it draws. The environment variables
    COLUMNS and LINES are ignored, because they give the size at the start of the program."""
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return Console(highlight=False, _environ=environment)


def describe_unstored(role: str, why: str, spooled: bool) -> str:
    """Return the warning for the person that a message was not stored. `why` is the reason. If the message was
    spooled, `why` names the spool file."""
    whose = "what you said" if role == "user" else "this message"
    return f"NOT STORED: {whose}: {why}{'' if spooled else '. It is only in this window: copy it before you leave'}."


def format_usage(used: events.Counted) -> str:
    """Format usage: `gpt-5 · 1.2K in · 56 out · <$0.01`. Missing values are shown as unknown."""
    tokens = used.used
    if tokens.input_tokens is None and tokens.output_tokens is None:
        token_counts = "tokens unknown"
    else:
        token_counts = (
            f"{shorten_number(tokens.input_tokens or 0)} in · {shorten_number(tokens.output_tokens or 0)} out"
        )
    cost = "cost unknown" if used.cost_usd is None else format_dollars(used.cost_usd)
    return " · ".join(filter(None, (make_printable(used.model), token_counts, cost)))
