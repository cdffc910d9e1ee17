"""What happens, as a person at a terminal sees it. Text from outside is made harmless here and nowhere later.

On a terminal an answer is Markdown whose finished blocks are written once, and only the open one is drawn again.
Elsewhere it is plain text, written when it is whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hermes.agent import events as happened
from hermes.chat.view.call_view import (
    Title,
    title_of,
    view_ended,
    view_reasoning,
    view_running,
    view_thinking,
    view_unfinished,
)
from hermes.chat.view.calls import Call
from hermes.chat.view.diff_view import render_diff
from hermes.chat.view.live_region import Region
from hermes.chat.view.markdown_blocks import Blocks
from hermes.chat.view.recap import Recap
from hermes.insights.number_format import format_dollars, shorten_number
from hermes.text import make_printable, make_readable, spell_controls

GOLD, GREEN = "#ffd700", "#5fd75f"
REDRAWN_EVERY_S = 0.05
WAITING = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class RunningCall(NamedTuple):
    call_id: str
    call: Call
    title: Title
    since: float


class Screen:
    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _console()
        self._live = self.console.is_terminal and not self.console.is_dumb_terminal
        self._region = Region(self.console)
        self._blocks = Blocks()
        self._reasoning = ""
        """What the model has thought since its last word."""
        self._has_blocks = False
        """Whether finished blocks of the answer are on the screen, which cannot be taken back."""
        self._running: list[RunningCall] = []
        self._began = self._next_drawing = 0.0
        self._waiting = False
        self._held: list[happened.Event] | None = None
        """What happened while the person is being asked something; None while nobody asks."""

    # ---------------------------------------------------------------- lines

    def line(self, text: str = "", style: str = "") -> None:
        """One line, or several; nothing in them is taken for markup."""
        self.console.print(Text(make_readable(text), style))

    def show(self, *parts: RenderableType) -> None:
        """What was made harmless already."""
        for part in parts:
            self.console.print(part)

    def problem(self, text: str) -> None:
        self.line(text, "bold red")

    def note(self, text: str) -> None:
        self.line(text, "dim")

    def snippet(self, text: str) -> None:
        """Where something was found, in one line, its matches in colour; where there is none, as they are marked."""
        from hermes.recall.snippets.goals import MARKED, fit_snippet

        in_colour = self.console.color_system is not None and not self.console.no_color
        shown = fit_snippet(text, self.console.width - 4, in_colour=in_colour)
        made = Text("   ", "dim")
        for number, part in enumerate(MARKED.split(shown) if in_colour else [shown]):
            made.append(part, "not dim bold yellow" if number % 2 else "")
        self.console.print(made)

    def diff(self, text: str) -> None:
        """A whole diff, in colour where there is any."""
        self.console.print(render_diff(text))

    def markdown(self, text: str) -> None:
        self.console.print(self._markdown(text))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich.table import Table

        made = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for number, head in enumerate(heads):
            made.add_column(head, overflow="ellipsis", no_wrap=True, ratio=1 if number == 1 else None)
        for row in rows:
            made.add_row(*(Text(make_printable(cell)) for cell in row))
        self.console.print(made)

    def recap(self, told: Recap) -> None:
        """The panel of what was said before."""
        if not told.entries:
            return
        from rich.panel import Panel

        parts: list[RenderableType] = []
        if told.earlier:
            parts.append(Text(f"... {told.earlier} earlier messages ...", "dim italic"))
        for entry in told.entries:
            mine = entry.role == "user"
            mark, name, colour = ("●", "You", GOLD) if mine else ("◆", "Hermes", GREEN)
            dim = "" if entry.is_last else "dim "
            first, *more = entry.text.splitlines() or [""]
            text = Text.assemble((f"{mark} {name}: ", f"{dim}bold {colour}"), (first, dim.strip()))
            for line in more:
                text.append(f"\n  {line}", dim.strip())
            parts.append(text)
        if told.open:
            parts.append(Text(f"Left open: {told.open}", "italic yellow"))
        panel = Panel(
            Group(*parts),
            title="Previous Conversation",
            title_align="left",
            border_style="dim",
            padding=(0, 1),
        )
        self.console.print(panel)

    # ---------------------------------------------------------------- a turn

    def begin(self) -> None:
        self._began, self._waiting = time.monotonic(), True
        self._blocks, self._reasoning, self._running = Blocks(), "", []
        self._has_blocks = False

    def aside(self, text: str, style: str = "dim") -> None:
        """Something that has nothing to do with the turn that may be going on: above what is open."""
        if self._held is not None:
            self._held.append(happened.Note(text))
        else:
            self._commit(Text(make_readable(text), style))

    def pause(self) -> None:
        """Somebody is about to ask the person something: the last lines of the screen are theirs."""
        self._held = []
        if self._live:
            self._region.commit()

    def go_on(self) -> None:
        held, self._held = self._held, None
        for event in held or ():
            self.event(event)

    def event(self, event: happened.Event) -> None:
        if self._held is not None:
            self._held.append(event)
        else:
            self._show(event)

    def _show(self, event: happened.Event) -> None:  # noqa: C901  one case for each thing that can happen
        match event:
            case happened.TextDelta(text):
                self._text(text)
            case happened.ThoughtDelta(text):
                self._think(text)
            case happened.Recast(text):
                self._recast(text)
            case happened.Stored() | happened.ApprovalAsked():
                pass
            case happened.Discarded(why, seconds):
                self._blocks, self._reasoning, self._has_blocks = Blocks(), "", False
                self._commit(Text(make_readable(f"↻ {why}; trying again in {seconds:.0f}s"), "yellow"))
            case happened.ToolStarted(call_id, name, arguments):
                self._end_text()
                call = Call(name, arguments)
                title = title_of(call, self.console.width)
                self._running.append(RunningCall(call_id, call, title, time.monotonic()))
                self.tick()
            case happened.ToolEnded(call_id, name, output, failed, seconds):
                call = self._take_running(call_id, name)._replace(output=output, failed=failed)
                self._commit(view_ended(call, seconds, self.console.width).shown)
            case happened.NotStored(role, why, spooled):
                self._end_text()
                self._commit(Text(make_readable(not_stored(role, why, spooled)), "bold red"))
            case happened.Counted():
                pass
            case happened.Note(text, hint):
                self._end_text()
                self._commit(Text(make_readable(f"{text} {hint}".rstrip()), "dim"))
            case happened.Moved(session_id, before, after):
                self._end_text()
                told = f"going on as {make_printable(session_id)}, {before} → {after} messages"
                self._commit(Text(told, "dim"))
            case happened.Done():
                self._end_text()
            case happened.Interrupted():
                self._end_text()
                self._commit(Text("■ stopped; what was said so far is kept", "yellow"))
            case happened.Failed(why, _):
                self._end_text()
                self._commit(Text(make_readable(f"✗ {why}"), "bold red"))

    def end(self, used: happened.Counted | None = None) -> None:
        """The turn is over, however it ended; what it took."""
        unfinished, self._running, self._waiting = self._running, [], False
        self._end_text()
        for running in unfinished:  # it may have done something all the same
            self._commit(view_unfinished(running.call, self.console.width))
        if used is not None:
            self.note(f"{status(used)} · {time.monotonic() - self._began:.1f}s")

    def tick(self) -> None:
        """Time has passed: what says so is drawn again; a long text less often, so that drawing is never the work."""
        began = time.monotonic()
        is_long = bool(self._blocks.open or self._reasoning)
        if not self._live or self._held is not None or (is_long and began < self._next_drawing):
            return
        self._region.draw(*self._open())
        ended = time.monotonic()
        self._next_drawing = ended + max(REDRAWN_EVERY_S, 5 * (ended - began))

    def _open(self) -> list[RenderableType]:
        """What is not finished yet."""
        now = time.monotonic()
        if self._blocks.open.strip():
            return [self._answer(self._blocks.open)]
        if self._reasoning.strip():
            turn = WAITING[int(now * 10) % len(WAITING)]
            return [view_thinking(self._reasoning, turn, now - self._began, self.console.width)]
        if self._running:
            turn = WAITING[int(now * 10) % len(WAITING)]
            return [view_running(running.title, turn, now - running.since) for running in self._running]
        if self._waiting:
            turn = WAITING[int(now * 10) % len(WAITING)]
            return [Text(f"{turn} {now - self._began:.0f}s  Ctrl-C stops", "dim")]
        return []

    def _take_running(self, call_id: str, name: str) -> Call:
        """The call that has ended. Ids of models are not always unique: the first with this one."""
        for running in self._running:
            if running.call_id == call_id:
                self._running.remove(running)
                return running.call
        return Call(name, {})

    def _think(self, text: str) -> None:
        if self._blocks.open:
            self._end_text()
        self._reasoning += text
        if time.monotonic() >= self._next_drawing:
            self.tick()

    def _recast(self, text: str) -> None:
        """What was shown as the answer is reasoning: show it folded. Finished blocks stay on the screen."""
        self._blocks = Blocks()
        if self._has_blocks:
            self._commit(Text("∴ the text above is reasoning; the answer follows", "dim"))
        self._reasoning, self._has_blocks = text, False

    def _end_reasoning(self) -> None:
        text, self._reasoning = self._reasoning, ""
        if text.strip():
            self._commit(view_reasoning(text, self.console.width).shown)

    def _text(self, text: str) -> None:
        self._end_reasoning()
        finished = self._blocks.add(text)
        self._has_blocks = self._has_blocks or bool(finished.strip())
        if not self._live:
            if finished:
                self.console.file.write(spell_controls(finished))
                self.console.file.flush()
            return
        if finished.strip():
            self._commit(self._answer(finished))
        if time.monotonic() >= self._next_drawing:
            self.tick()

    def _end_text(self) -> None:
        self._end_reasoning()
        self._has_blocks = False
        rest = self._blocks.rest()
        if not self._live and rest:
            self.console.file.write(f"{spell_controls(rest)}\n")
        elif rest.strip():
            self._commit(self._answer(rest))
        else:
            self._commit()

    def _commit(self, *parts: RenderableType) -> None:
        if self._live:
            self._region.commit(*parts)
            if self._waiting or self._running:
                self.tick()
            return
        for part in parts:
            self.console.print(part)

    def _answer(self, text: str) -> RenderableType:
        return Padding(self._markdown(text.rstrip("\n")), (0, 0, 1, 0))

    def _markdown(self, text: str) -> RenderableType:
        if not self._live:
            return Text(spell_controls(text))
        from hermes.chat.view.markdown_view import make_markdown  # rich's Markdown is a third of all imports

        return make_markdown(spell_controls(text))


def _console() -> Console:
    """The terminal, at the size that it has at each moment, whatever the shell said when it started us."""
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return Console(highlight=False, _environ=known)


def not_stored(role: str, why: str, spooled: bool) -> str:
    """What the store said; it names the file that keeps the message, if there is one."""
    whose = "what you said" if role == "user" else "this message"
    return f"NOT STORED: {whose}: {why}{'' if spooled else '. It is only in this window: copy it before you leave'}."


def status(used: happened.Counted) -> str:
    """`gpt-5 · 1.2K in · 56 out · <$0.01`; what nobody said is called unknown."""
    tokens = used.used
    if tokens.input_tokens is None and tokens.output_tokens is None:
        told = "tokens unknown"
    else:
        told = (
            f"{shorten_number(tokens.input_tokens or 0)} in · {shorten_number(tokens.output_tokens or 0)} out"
        )
    cost = "cost unknown" if used.cost_usd is None else format_dollars(used.cost_usd)
    return " · ".join(filter(None, (make_printable(used.model), told, cost)))
