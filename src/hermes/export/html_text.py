"""What was said, as harmless HTML: code blocks, headings, inline code and bold; everything else as it was typed.

Text is escaped first and marked up afterwards, so that no text can become a tag. There are no links: an address is
shown, and nothing leads out of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from hermes.text import spell_controls

_FENCE = re.compile(r"^[ \t]*(`{3,}(?!.*`)|~{3,})[ \t]*(.*?)[ \t]*$")
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$")
_MARKS = re.compile(r"(?<![`\\])(`+)(?!`)([\s\S]*?[^`])\1(?!`)|(?<!\*)\*\*(?!\s)([^*\n]*[^*\s])\*\*(?!\*)")
"""Code, between two runs of as many backticks, and bold text."""
_PART = re.compile(r"(?m)^(?=[ \t]*(?:[-*+>]|\d{1,9}[.)])(?:[ \t]|$))")
"""Where an item of a list or a quote begins: no mark reaches across."""


def text(said: object) -> str:
    """Any text where HTML wants text, also inside an attribute."""
    return escape(spell_controls(str(said)))


def rendered(said: str) -> str:
    return "".join(_blocks(spell_controls(said).split("\n")))


def _blocks(lines: list[str]) -> Iterator[str]:
    paragraph: list[str] = []
    code: list[str] = []
    fence = language = ""
    for line in lines:
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2]:
                yield _code(code, language)
                fence, code = "", []
            else:
                code.append(line)
            continue
        heading = None if mark else _HEADING.match(line)
        if mark or heading or not line.strip():
            yield from _paragraph(paragraph)
            paragraph = []
            if mark:
                fence, language = mark[1], mark[2]
            elif heading:
                yield f"<h3>{_inline(heading[1])}</h3>"
        else:
            paragraph.append(line)
    yield from _paragraph(paragraph)
    if fence:
        yield _code(code, language)


def _paragraph(lines: list[str]) -> Iterator[str]:
    if lines:
        joined = "\n".join(lines)
        is_code = lines[0].startswith(
            ("    ", "\t")
        )  # or the rest of a list item: its marks stay as they are
        yield f"<p>{escape(joined, quote=False) if is_code else _inline(joined)}</p>"


def _code(lines: list[str], language: str) -> str:
    label = f' data-language="{escape(language)}"' if language else ""
    joined = "\n".join(lines)
    return f"<pre{label}><code>{escape(joined)}</code></pre>"


def _inline(said: str) -> str:
    return "".join(_MARKS.sub(_marked, escape(part, quote=False)) for part in _PART.split(said))


def _marked(found: re.Match[str]) -> str:
    if found[3]:
        return f"<strong>{found[3]}</strong>"
    return f"<code>{found[2].strip()}</code>"
