"""The preview shows messages completely, without reasoning."""

from __future__ import annotations

from hypothesis import given
from rich.console import Console
from rich.style import Style

from hermes.browser import preview
from hermes.recall.snippets.excerpts import Excerpt
from hermes.recall.tool.message_excerpt import Bounds, MessageExcerpt, make_message_excerpt
from tests.rendered_texts import TEXTS, assert_in_order

PALETTE = preview.Palette(*[Style() for _ in preview.Palette._fields])
BOUNDS = Bounds(speech=6_000, tool=300, match=8_000)
THINKING = "<think>a secret plan</think>\n\nThe answer."


def seen(one: MessageExcerpt, clues: tuple[str, ...] = ()) -> str:
    lines = preview.render_message(one, 60, PALETTE, clues, Console(width=60))
    return "\n".join(line.plain for line in lines)


@given(TEXTS)
def test_a_message_is_shown_whole(text: str) -> None:
    assert_in_order(text, seen(MessageExcerpt(1, "user", None, 0.0, Excerpt(text), None)), text)


def test_lines_and_controls_stay() -> None:
    shown = seen(MessageExcerpt(1, "user", None, 0.0, Excerpt("one\n<two>\n\x1b]0;x\x07"), None))
    assert shown.split("\n")[1:4] == ["one", "<two>", "\\x1b]0;x\\x07"]


def test_reasoning_is_one_line_unless_it_contains_the_match() -> None:
    row = (1, "assistant", THINKING, "text", None, None, 0.0)
    shown = seen(make_message_excerpt(row, BOUNDS))
    assert shown.split("\n")[1:3] == ["∴ reasoning  13 characters", "The answer."]
    assert "secret" in seen(make_message_excerpt(row, BOUNDS, ("secret",)), ("secret",))
    assert "secret" not in seen(make_message_excerpt(row, BOUNDS, ("answer",)), ("answer",))
    assert "secret" not in seen(
        make_message_excerpt((1, "assistant", THINKING, "text", None, None, 0.0), BOUNDS)
    )
    assert "secret" in seen(make_message_excerpt((1, "user", THINKING, "text", None, None, 0.0), BOUNDS))
    ended = (1, "assistant", "a secret plan\n</think>\n\nThe answer.", "text", None, None, 0.0)
    assert seen(make_message_excerpt(ended, BOUNDS)).split("\n")[2] == "The answer."
    assert "secret" not in seen(make_message_excerpt(ended, BOUNDS))


def test_reasoning_that_is_shown_is_marked_as_such() -> None:
    only = seen(make_message_excerpt((1, "assistant", "<think>a plan", "text", None, None, 0.0), BOUNDS))
    assert only.split("\n")[1:3] == ["∴ reasoning, without an answer", "a plan"]
    sought = seen(
        make_message_excerpt((1, "assistant", THINKING, "text", None, None, 0.0), BOUNDS, ("secret",)),
        ("secret",),
    )
    assert sought.split("\n")[1:4] == ["∴ reasoning", "a secret plan", "The answer."]
