"""Parses Telegram's HTML in the way the server of Telegram does. `parsed` returns the visible text or raises
the error of the server.
"""

from __future__ import annotations

import re
from html import unescape
from typing import NamedTuple

TAGS = {"a", "b", "strong", "i", "em", "s", "strike", "del", "u", "ins", "code", "pre", "blockquote", "span"}
TAGS |= {"tg-spoiler", "tg-emoji"}

_TAG = re.compile(r"""<(/?)([^\s<>/]*)((?:\s+[\w-]+(?:=(?:"[^"]*"|'[^']*'|[^\s"'<>]+))?)*)\s*>""")
_KNOWN_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|#\d+|#x[0-9a-fA-F]+);")


class Refused(Exception):
    """Telegram would refuse the text with a 400 response. The message is the description in that response."""


class Markup(NamedTuple):
    text: str
    """The visible text."""
    nested: list[tuple[str, ...]]
    """Each tag with the tags around it, outermost first."""


def parsed(html: str) -> Markup:
    seen: list[str] = []
    open_tags: list[str] = []
    nested: list[tuple[str, ...]] = []
    at = 0
    while at < len(html):
        if html[at] != "<":
            end = html.find("<", at)
            end = len(html) if end < 0 else end
            seen.append(_KNOWN_ENTITY.sub(lambda found: unescape(found[0]), html[at:end]))
            at = end
            continue
        found = _TAG.match(html, at)
        if found is None:
            raise Refused(f"can't parse entities: Unclosed start tag at byte offset {_bytes(html, at)}")
        closing, name, attributes = found[1], found[2].lower(), found[3]
        if closing:
            if not open_tags:
                raise Refused(f"can't parse entities: Unexpected end tag at byte offset {_bytes(html, at)}")
            if open_tags.pop() != name:
                raise Refused(f"can't parse entities: Unmatched end tag at byte offset {_bytes(html, at)}")
        else:
            if name not in TAGS:
                raise Refused(
                    f'can\'t parse entities: Unsupported start tag "{name}" at byte offset {_bytes(html, at)}'
                )
            if name == "span" and "tg-spoiler" not in attributes:
                raise Refused('can\'t parse entities: Tag "span" must have class "tg-spoiler"')
            open_tags.append(name)
            nested.append(tuple(open_tags))
        at = found.end()
    if open_tags:
        raise Refused(
            f"can't parse entities: Can't find end tag corresponding to start tag \"{open_tags[-1]}\""
        )
    return Markup("".join(seen), nested)


def _bytes(html: str, at: int) -> int:
    return len(html[:at].encode("utf-8", "replace"))
