"""The preview: the transcript of the conversation under the cursor, scrolled to the match."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.style import Style
from rich.text import Text
from textual import events, work
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.worker import Worker, WorkerState

from hermes import clock
from hermes.browser.conversation_list import format_tags, highlight
from hermes.browser.glyphs import drop_lone_joiners
from hermes.browser.rows import Conversation
from hermes.browser.source import Part, Transcript, find_clues
from hermes.reasoning import split_reasoning
from hermes.recall.snippets.excerpts import Excerpt
from hermes.recall.tool.message_excerpt import MessageExcerpt
from hermes.text import make_printable, reveal, spell_controls

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

PAUSE = 0.05
"""The conversation is read when the cursor has been on its row for this many seconds. While an arrow key is
held down, nothing is read."""
NEAR = 10
"""More messages are read when fewer than this many lines remain before an end of the loaded part."""
GONE = "This conversation was deleted."
EMPTY = "No messages yet."
NAMES = {"user": "you", "assistant": "agent"}
TAB = 4


class Preview(ScrollView, can_focus=True):
    COMPONENT_CLASSES = {  # noqa: RUF012 -- Textual reads it from the class
        "preview--plain",
        "preview--dim",
        "preview--match",
        "preview--you",
        "preview--agent",
        "preview--tool",
    }
    BINDINGS = [  # noqa: RUF012
        Binding("tab", "app.switch", show=False),
        Binding("up,k", "scroll_up", show=False),
        Binding("down,j", "scroll_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown,space", "page_down", show=False),
        Binding("home,g", "beginning", show=False),
        Binding("end,G", "ending", show=False),
    ]

    showing: reactive[Conversation | None] = reactive(None, init=False)

    class Gone(Message):
        """The conversation to show does not exist any more."""

    class Failed(Message):
        """The conversation could not be read."""

        def __init__(self, problem: BaseException) -> None:
            super().__init__()
            self.problem = problem

    def __init__(self, db: SessionDB) -> None:
        super().__init__(id="preview")
        self._db = db
        self._transcript = Transcript(db)
        self.words: tuple[str, ...] = ()
        """The words of the query. They are highlighted if the matched text is not known."""
        self._clues: tuple[str, ...] = ()
        """The pieces of text that are highlighted now."""
        self._parts: list[Part] = []
        """The displayed parts, as a copy of the transcript's parts, because a thread may extend the
        transcript at the same time."""
        self._drawn: dict[int, list[Text]] = {}
        """The rendered lines of each message at the current width, so that each message is rendered only
        once."""
        self._width = 0
        self._lines: list[Text] = []
        self._starts: list[int] = []
        """The line number at which each part begins. A divider belongs to the part after it."""
        self._reading = asyncio.Lock()

    # ---------------------------------------------------------------- content

    def watch_showing(self, old: Conversation | None, new: Conversation | None) -> None:
        if new is None:
            self.workers.cancel_group(self, "read")
            self._transcript = Transcript(self._db)
            self._set_title(None)
            self._show_sentence("")
        elif old is None or _get_identity(old) != _get_identity(new):
            self._read(new, "match")
        else:
            self._set_title(new)

    def action_beginning(self) -> None:
        if self.showing is not None:
            self._read(self.showing, "beginning")

    def action_ending(self) -> None:
        if self.showing is not None:
            self._read(self.showing, "end")

    @work(exclusive=True, group="read", exit_on_error=False)
    async def _read(self, conversation: Conversation, where: str) -> None:
        await asyncio.sleep(PAUSE)
        transcript = Transcript(self._db)
        at_match = await asyncio.to_thread(_open_transcript, transcript, conversation, where)
        if at_match is None:
            self._transcript = Transcript(self._db)
            self._set_title(None)
            self._show_sentence(GONE)
            self.post_message(self.Gone())
            return
        self._transcript, self._clues = transcript, find_clues(conversation.snippet) or self.words
        self._drawn.clear()
        self._set_title(conversation)
        self._lay_out()
        if not transcript.parts:
            self._show_sentence(EMPTY)
        elif at_match:
            self.scroll_to(
                y=self._find_match_line(conversation.message_id) - self.size.height // 3, animate=False
            )
        elif where == "beginning":
            self.scroll_home(animate=False)
        else:
            self.scroll_end(animate=False)
        self.call_after_refresh(self._read_on)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.post_message(self.Failed(event.worker.error))

    def _set_title(self, conversation: Conversation | None) -> None:
        self.border_title = "" if conversation is None else Text(conversation.name)
        count = (
            ""
            if conversation is None
            else "1 message"
            if conversation.messages == 1
            else f"{conversation.messages:,} messages"
        )
        person = f" {conversation.person}" if conversation is not None and conversation.person else ""
        subtitle = (
            "" if conversation is None else f"{conversation.source}{person} · {count} · {conversation.id}"
        )
        if conversation is not None and conversation.tags:
            subtitle = f"{format_tags(conversation)} · {subtitle}"
        self.border_subtitle = Text(make_printable(subtitle))

    def _show_sentence(self, sentence: str) -> None:
        self._lines = [Text.styled(sentence, self._get_palette().dim)] if sentence else []
        self._parts, self._starts = [], []
        self._measure()

    # ---------------------------------------------------------------- reading more

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self._read_on()

    def _read_on(self) -> None:
        """Read more messages of the conversation if the user has scrolled near the beginning or the end of the
        loaded ones."""
        if self._reading.locked() or not self.is_mounted:
            return
        if self.scroll_offset.y < NEAR and self._transcript.has_before:
            self._read_more(upwards=True)
        elif self.scroll_offset.y > self.max_scroll_y - NEAR and self._transcript.has_after:
            self._read_more(upwards=False)

    @work(group="more", exit_on_error=False)
    async def _read_more(self, upwards: bool) -> None:
        async with self._reading:
            transcript = self._transcript
            anchor = _find_anchor(self._parts, self._starts, self.scroll_offset.y)
            await asyncio.to_thread(transcript.read_before if upwards else transcript.read_after)
            if transcript is not self._transcript:
                return
            self._lay_out()
            if anchor is not None and (line := self._find_start(anchor[0])) is not None:
                self.scroll_to(y=line + anchor[1], animate=False)
        self.call_after_refresh(self._read_on)

    def _find_start(self, part: Part) -> int | None:
        for other, start in zip(self._parts, self._starts, strict=True):
            if other.message.id == part.message.id:
                return start
        return None

    def _find_match_line(self, message_id: int | None) -> int:
        """Return the first highlighted line of the message `message_id`, or its first line if nothing in it
        is highlighted."""
        palette = self._get_palette()
        for number, (part, start) in enumerate(zip(self._parts, self._starts, strict=True)):
            if part.message.id == message_id:
                following = self._starts[number + 1 :]
                end = following[0] if following else len(self._lines)
                for line in range(start, end):
                    if any(span.style == palette.match for span in self._lines[line].spans):
                        return line
                return start
        return 0

    # ---------------------------------------------------------------- drawing

    def _lay_out(self) -> None:
        width, palette = max(10, self.scrollable_content_region.width - 1), self._get_palette()
        lines: list[Text] = []
        starts: list[int] = []
        session = today = None
        cached, self._drawn = self._drawn if width == self._width else {}, {}
        self._width, self._parts = width, list(self._transcript.parts)
        for part in self._parts:
            starts.append(len(lines))
            if session not in (None, part.session_id):
                lines += _render_divider("continued after compression", width, palette)
            if (that_day := _format_day(part.message.at)) != today:
                lines += _render_divider(that_day, width, palette)
            session, today = part.session_id, that_day
            drawn = cached.get(part.message.id) or render_message(
                part.message, width, palette, self._clues, self.app.console
            )
            self._drawn[part.message.id] = drawn
            lines += drawn
        self._lines, self._starts = lines, starts
        self._measure()

    def _measure(self) -> None:
        self.virtual_size = Size(self.scrollable_content_region.width, len(self._lines))
        self.refresh()

    def on_resize(self, _: events.Resize) -> None:
        anchor = _find_anchor(self._parts, self._starts, self.scroll_offset.y)
        if self._parts:
            self._lay_out()
        if anchor is not None and (line := self._find_start(anchor[0])) is not None:
            self.scroll_to(y=line, animate=False)

    def render_line(self, y: int) -> Strip:
        width, base = self.scrollable_content_region.width, self.rich_style
        line = y + self.scroll_offset.y
        if not 0 <= line < len(self._lines):
            return Strip.blank(width, base)
        segments = self._lines[line].render(self.app.console, end="")
        return Strip(list(segments)).apply_style(base).adjust_cell_length(width, base)

    def _get_palette(self) -> Palette:
        names = ("plain", "dim", "match", "you", "agent", "tool")
        return Palette(*[self.get_component_rich_style(f"preview--{name}", partial=True) for name in names])


def _open_transcript(transcript: Transcript, conversation: Conversation, where: str) -> bool | None:
    """Load the part of the transcript of `conversation` that `where` names: `match`, `beginning` or the end.
    Return True if the part contains the match of the search, and False if it is another part. Return None if
    the conversation does not exist."""
    found = (conversation.session_id, conversation.message_id)
    if (
        where == "match"
        and None not in found
        and transcript.open_at(str(found[0]), int(found[1] or 0), find_clues(conversation.snippet))
    ):
        return True
    if where == "beginning":
        return False if transcript.open_at_beginning(conversation.id) else None
    return False if transcript.open_at_end(conversation.id) else None


def _get_identity(conversation: Conversation) -> tuple[object, ...]:
    """Return the values of a conversation that determine what the preview shows. If they are equal for two
    rows, the preview is equal too."""
    return conversation.id, conversation.message_id, conversation.snippet, conversation.last_active


def _find_anchor(parts: list[Part], starts: list[int], line: int) -> tuple[Part, int] | None:
    """Return the part of the preview that contains the line with the index `line`, and the offset of the line
    in this part. `starts` are the indexes of the first lines of `parts`."""
    found = None
    for part, start in zip(parts, starts, strict=True):
        if start > line:
            break
        found = (part, line - start)
    return found


# ---------------------------------------------------------------- rendering of messages


class Palette(NamedTuple):
    """The styles of the preview, each named after the text it applies to.

    Each style is applied to a span of a `Text`. A style of the `Text` as a whole would not be drawn where
    there is no span.
    """

    plain: Style
    dim: Style
    match: Style
    you: Style
    agent: Style
    tool: Style


def render_message(
    excerpt: MessageExcerpt, width: int, palette: Palette, clues: Iterable[str], console: Console
) -> list[Text]:
    """Render a message as lines of at most `width` columns, followed by an empty line."""
    if excerpt.role == "tool":
        lines = [_render_tool_result(excerpt, width, palette)]
        if clues and any(clue in excerpt.text.piece for clue in clues):
            lines += _render_text(excerpt.text, width, palette, clues, console)
    else:
        lines = [_render_speaker(excerpt, palette)]
        if excerpt.reasoning:
            lines.append(Text.styled(f"∴ reasoning  {excerpt.reasoning:,} characters", palette.dim))
        lines += _render_content(excerpt, width, palette, clues, console)
        if excerpt.calls is not None:
            for call in excerpt.calls.piece.split("\n"):
                lines += _render_call(call, width, palette, console)
    return [*lines, Text()]


def _format_day(at: object) -> str:
    return clock.format_iso(at)[:10]


def _render_divider(label: str, width: int, palette: Palette) -> list[Text]:
    line = Text.styled(f"── {make_printable(label)} {'─' * width}", palette.dim)
    line.truncate(width)
    return [line, Text()]


def _render_speaker(excerpt: MessageExcerpt, palette: Palette) -> Text:
    style = {"user": palette.you, "assistant": palette.agent}.get(excerpt.role, palette.tool)
    line = Text.styled(NAMES.get(excerpt.role, make_printable(excerpt.role, width_limit=20)), style)
    return line.append(f"  {clock.format_iso(excerpt.at)[11:16]}", palette.dim)


def _render_content(
    message: MessageExcerpt, width: int, palette: Palette, clues: Iterable[str], console: Console
) -> list[Text]:
    """Render the text of a message. If it still contains reasoning, that part is labelled as reasoning."""
    text = message.text
    thought = answer = ""
    if message.role == "assistant" and not text.before:
        thought, answer = split_reasoning(text.piece)
    if not thought.strip():
        return _render_text(text, width, palette, clues, console) if text.piece.strip() else []
    lines = [Text.styled(f"∴ reasoning{'' if answer.strip() else ', without an answer'}", palette.dim)]
    reasoning = Excerpt(thought, after=0 if answer else text.after)
    lines += _render_text(reasoning, width, palette._replace(plain=palette.dim), clues, console)
    return lines + (
        _render_text(Excerpt(answer, after=text.after), width, palette, clues, console) if answer else []
    )


def _render_text(
    excerpt: Excerpt, width: int, palette: Palette, clues: Iterable[str], console: Console
) -> list[Text]:
    text = Text.styled(drop_lone_joiners(spell_controls(excerpt.piece)).strip("\n"), palette.plain)
    highlight(text, clues, palette.match)
    lines = [_render_omission(excerpt.before, "earlier", palette)] if excerpt.before else []
    lines += text.wrap(console, max(1, width), tab_size=TAB)
    if excerpt.after:
        lines.append(_render_omission(excerpt.after, "more", palette))
    return lines


def _render_omission(count: int, which: str, palette: Palette) -> Text:
    return Text.styled(f"[… {count:,} {which} characters …]", palette.dim)


def _render_call(call: str, width: int, palette: Palette, console: Console) -> list[Text]:
    """Render a tool call with all its arguments. Long lines are wrapped, so that everything can be read."""
    line = Text.styled(f"▸ {make_printable(reveal(call))}", palette.tool)
    return list(line.wrap(console, max(1, width), overflow="fold"))


def _render_tool_result(excerpt: MessageExcerpt, width: int, palette: Palette) -> Text:
    """Render a tool result: the name of the tool and the beginning of its output."""
    output = drop_lone_joiners(make_printable(excerpt.text.piece.strip(), width_limit=4 * width))
    length = len(excerpt.text.piece) + excerpt.text.before + excerpt.text.after
    size = f"  {length:,} characters" if length > len(output) else ""
    line = Text.styled(f"◂ {make_printable(excerpt.tool or 'tool', width_limit=24)}  ", palette.tool)
    line.append(output, palette.dim)
    line.truncate(max(0, width - len(size)), overflow="ellipsis")
    return line.append(size, palette.dim)
