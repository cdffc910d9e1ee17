"""Emoji do not break the layout, however wide the terminal draws them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual import events

from hermes.browser.glyphs import SAMPLES, Glyphs, drop_lone_joiners
from hermes.browser.terminal_driver import KeyParser

AS_TEXTUAL = [cell_len(sample) for sample in SAMPLES.values()]
TMUX = [2, 1, 1, 2, 4, 2, 2, 0, 0, 0]
"""The widths that tmux 3.3 reports for the samples, in the order of the samples."""
EMOJI = "👩‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 ❤️ 1️⃣ 🇩🇪 👍🏽 🫠 🫨"
SYMBOLS = "✌🏽 ☺︎"
"""Symbols for which terminals and Textual always assume different widths."""
PARTS = st.sampled_from([*"a 漢ब\u0301\u200d\ufe0f\ufe0e\u20e3🏽🇩🇪👩💻❤🚀🫠🫩\U000e0067", "\x1b[1m", "é"])


@given(st.lists(PARTS).map("".join), st.lists(st.integers(0, 4), max_size=len(SAMPLES)))
def test_a_simpler_form_is_as_wide_as_the_emoji(text: str, measured: list[int]) -> None:
    plain = drop_lone_joiners(text.replace("\x1b[1m", ""))
    drawn = Glyphs(measured).simplify(plain)
    assert cell_len(drawn) == cell_len(plain)
    assert Glyphs(AS_TEXTUAL).simplify("abc ÄÖ 漢字 \x1b[1m│ ✓★") == "abc ÄÖ 漢字 \x1b[1m│ ✓★"


def test_a_terminal_with_the_expected_widths_gets_every_emoji() -> None:
    assert Glyphs(AS_TEXTUAL).simplify(EMOJI) == EMOJI
    assert Glyphs(AS_TEXTUAL).simplify(SYMBOLS) == "✌ ☺"


def test_without_an_answer_and_in_tmux_the_simple_forms_are_drawn() -> None:
    assert Glyphs().simplify(EMOJI) == "👩 👩 🏳  ❤  1  DE 👍 □  □ "
    assert Glyphs(TMUX).simplify(EMOJI) == "👩‍👩‍👧‍👦 👩 🏳  ❤  1  🇩🇪 👍 🫠 □ "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("क्‍ष", "क्ष"),
        ("a\u200db", "ab"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("❤️\u200d🔥", "❤️\u200d🔥"),
        ("👩\u200d", "👩"),
    ],
)
def test_joiners_between_letters_are_dropped(text: str, expected: str) -> None:
    assert drop_lone_joiners(text) == expected


# keys as a terminal sends them


def keys(*data: str) -> list[str]:
    parser = KeyParser()
    found = [message for piece in data for message in parser.feed(piece)]
    return [
        message.key if isinstance(message, events.Key) else f"paste {message.text}"
        for message in found
        if isinstance(message, events.Key | events.Paste)
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (("\x1bnew\x1b[B",), ["escape", "n", "e", "w", "down"]),
        (("\x1b\x0e",), ["escape", "ctrl+n"]),
        (("\x1b\x1b[A\x1b\r",), ["escape", "up", "escape", "enter"]),
        (("ab\x1b", "x\x1b[B"), ["a", "b", "escape", "x", "down"]),
        (("\x1b", "[B"), ["down"]),
        (("\x1b[200~one two\x1b[201~x",), ["paste one two", "x"]),
        (("\x1b[120;3u",), ["alt+x"]),
    ],
)
def test_escape_and_the_key_after_it_are_two_keys(data: tuple[str, ...], expected: list[str]) -> None:
    assert keys(*data) == expected
