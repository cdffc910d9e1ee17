"""How messages look in the preview: who said it and when, the text, calls of tools, and a line of each result.

Styles are spans here: the style of a whole `Text` is not drawn where it has no spans.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rich.console import Console
from rich.style import Style
from rich.text import Text

from hermes import clock
from hermes.browser.list_row import highlight
from hermes.reasoning import split_reasoning
from hermes.recall.snippets.excerpts import Excerpt
from hermes.recall.tool.message_excerpt import MessageExcerpt
from hermes.text import make_printable, reveal, spell_controls

NAMES = {"user": "you", "assistant": "agent"}
TAB = 4


class Palette(NamedTuple):
    """The styles of the preview, each named after what it shows."""

    plain: Style
    dim: Style
    match: Style
    you: Style
    agent: Style
    tool: Style


def render_message(
    excerpt: MessageExcerpt, width: int, palette: Palette, clues: Iterable[str], console: Console
) -> list[Text]:
    """A message as lines of at most this width, and an empty one below."""
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


def format_day(at: object) -> str:
    return clock.format_iso(at)[:10]


def render_divider(label: str, width: int, palette: Palette) -> list[Text]:
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
    """The text. Reasoning that is still in it, as all of an answer or because of a match, is marked as reasoning."""
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
    text = Text.styled(spell_controls(excerpt.piece).strip("\n"), palette.plain)
    highlight(text, clues, palette.match)
    lines = [_render_omission(excerpt.before, "earlier", palette)] if excerpt.before else []
    lines += text.wrap(console, max(1, width), tab_size=TAB)
    if excerpt.after:
        lines.append(_render_omission(excerpt.after, "more", palette))
    return lines


def _render_omission(count: int, which: str, palette: Palette) -> Text:
    return Text.styled(f"[… {count:,} {which} characters …]", palette.dim)


def _render_call(call: str, width: int, palette: Palette, console: Console) -> list[Text]:
    """A call with its arguments, wrapped: what was run can be read to its end."""
    line = Text.styled(f"▸ {make_printable(reveal(call))}", palette.tool)
    return list(line.wrap(console, max(1, width), overflow="fold"))


def _render_tool_result(excerpt: MessageExcerpt, width: int, palette: Palette) -> Text:
    """The name of the tool, and the first words of what it said."""
    output = make_printable(excerpt.text.piece.strip(), width_limit=4 * width)
    length = len(excerpt.text.piece) + excerpt.text.before + excerpt.text.after
    size = f"  {length:,} characters" if length > len(output) else ""
    line = Text.styled(f"◂ {make_printable(excerpt.tool or 'tool', width_limit=24)}  ", palette.tool)
    line.append(output, palette.dim)
    line.truncate(max(0, width - len(size)), overflow="ellipsis")
    return line.append(size, palette.dim)
