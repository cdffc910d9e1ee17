"""Whether a rendering of Markdown says all that its source says, apart from the marks of Markdown itself."""

from __future__ import annotations

MARKS = frozenset("\\`*_[]()<>#+-.!|~:=\"'")
"""What Markdown uses as marks. Whether one of them was a mark or text only a parser can tell."""


def keeps_text(source: str, rendered: str) -> bool:
    """Whether all that can be no mark (letters, digits, most signs) is in the rendering, in its order."""
    found = iter(rendered)
    return all(char in found for char in source if char not in MARKS and not char.isspace() and char != "\0")
