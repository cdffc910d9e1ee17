"""Replaces emoji that terminals measure differently: emoji made of several characters, and recent emoji.

Textual lays out a line with its own table of widths. If the terminal measures an emoji differently, the rest
of the line is shifted. An emoji is therefore drawn unchanged only if a test has shown that the terminal
measures this kind of emoji as Textual does. Any other emoji is replaced by a simpler form of the same width:
a family by its first person, a flag by the letters of its country.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len, get_character_cell_size

JOINER, EMOJI_STYLE, TEXT_STYLE, KEYCAP = "\u200d", "\ufe0f", "\ufe0e", "\u20e3"
LETTERS = "\U0001f1e6-\U0001f1ff"
"""The regional indicator letters, two of which form a flag."""
TONES = "\U0001f3fb-\U0001f3ff"
TAGS = "\U000e0020-\U000e007f"
EMOJI = "\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff"
"""A range that contains all emoji, and symbols that can be drawn as emoji."""
CLUSTER = re.compile(
    f"[{LETTERS}]{{1,2}}"
    f"|[^\0-\x1f\x7f](?:[{EMOJI_STYLE}{TEXT_STYLE}{KEYCAP}{TONES}{TAGS}]|{JOINER}[^\0-\x1f\x7f])+"
    "|[\U0001f000-\U0001faff]"
)
UNKNOWN = "□"
"""Drawn instead of an emoji that the terminal does not know."""
TRUSTED = "13.0.0"
"""The Unicode version whose emoji every terminal is expected to know."""

SAMPLES = {
    "joined": "👩‍💻",
    "styled": "❤️",
    "keycap": "1️⃣",
    "flag": "🇩🇪",
    "toned": "👍🏽",
    "tagged": "🏴\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f",
    "14.0.0": "\U0001fae0",
    "15.0.0": "\U0001fae8",
    "16.0.0": "\U0001fae9",
    "17.0.0": "\U0001faea",
}
"""One emoji of each kind, and one of each Unicode version since `TRUSTED`."""
VERSIONS = tuple(name for name in SAMPLES if name[0].isdigit())

_LONE_JOINER = re.compile(f"(?<![{EMOJI}{EMOJI_STYLE}{TONES}]){JOINER}|{JOINER}(?![{EMOJI}])")


def drop_lone_joiners(text: str) -> str:
    """Remove joiners between letters. Textual treats the letter after a joiner as part of the letter before
    it, but terminals draw both letters."""
    return _LONE_JOINER.sub("", text) if JOINER in text else text


class Glyphs:
    def __init__(self, measured: Sequence[int] = ()) -> None:
        """`measured` are the widths at which the terminal has drawn the `SAMPLES`. Without them, every kind
        of emoji is drawn in its simpler form."""
        widths = zip(SAMPLES, measured, strict=False)
        self._known = {kind for kind, width in widths if width == cell_len(SAMPLES[kind])}
        self._drawn: dict[str, str] = {}

    def simplify(self, output: str) -> str:
        """Return `output`, the text that Textual writes to the terminal, with emoji replaced where necessary.
        Every emoji then has the width that Textual expects."""
        return output if output.isascii() else CLUSTER.sub(self._draw, output)

    def _draw(self, found: re.Match[str]) -> str:
        cluster = found[0]
        if cluster not in self._drawn:
            self._drawn[cluster] = cluster if self._is_known(cluster) else self._make_simple(cluster)
        return self._drawn[cluster]

    def _is_known(self, cluster: str) -> bool:
        kinds = set(filter(None, map(_find_version, cluster)))
        if JOINER in cluster:
            kinds.add("joined")
        if EMOJI_STYLE in cluster:
            kinds.add("keycap" if KEYCAP in cluster else "styled")
        if re.search(f"[{LETTERS}]", cluster):
            kinds.add("flag" if len(cluster) == 2 else "half of a flag")
        if re.search(f"[{TONES}]", cluster):
            # Textual measures a narrow symbol with a skin tone as narrow, terminals draw it wide.
            kinds.add("toned" if get_character_cell_size(cluster[0]) == 2 else "toned symbol")
        if re.search(f"[{TAGS}]", cluster):
            kinds.add("tagged")
        if TEXT_STYLE in cluster:
            kinds.add("text style")
        return kinds <= self._known

    def _make_simple(self, cluster: str) -> str:
        if re.match(f"[{LETTERS}]", cluster):
            simple = "".join(chr(ord(letter) - 0x1F1E6 + ord("A")) for letter in cluster)
        else:
            simple = cluster[0] if _find_version(cluster[0]) in (None, *self._known) else UNKNOWN
        return simple + " " * (cell_len(cluster) - cell_len(simple))


def _find_version(char: str) -> str | None:
    """Return the Unicode version in which a character became two columns wide. Return None if the character is
    not wide, or if it was already wide in the version `TRUSTED`."""
    width = get_character_cell_size(char)
    if width != 2 or get_character_cell_size(char, TRUSTED) == width:
        return None
    return next((name for name in VERSIONS if get_character_cell_size(char, name) == width), VERSIONS[-1])
