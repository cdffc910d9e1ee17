"""What we say, as events of Matrix: Markdown as HTML beside the plain text, threads, replies, new versions.

An event may have 65,536 bytes. Encrypted it is a third longer, non-ASCII characters are escaped before, and a new
version carries its text twice. What goes over the rest is the HTML, which is then left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

from markdown_it import MarkdownIt

LONGEST = 12_000
"""Of one message, as `measure` counts."""
_LARGEST = 45_000
"""Bytes of an event's content before it is encrypted: three quarters of what is left beside the server's part."""

# Raw HTML is shown as it was typed, and a picture from elsewhere, which Matrix does not show, is a link.
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
_MARKDOWN.disable("image")


def measure(text: str) -> int:
    """Bytes of a text inside an event."""
    return len(json.dumps(text)) - 2


def html_of(text: str) -> str:
    html: str = _MARKDOWN.render(text).strip()
    alone = html.startswith("<p>") and html.endswith("</p>") and html.count("<p>") == 1
    return html[3:-4] if alone else html


def message(
    text: str, *, silent: bool = False, relation: dict[str, Any] | None = None, mentions: Iterable[str] = ()
) -> dict[str, Any]:
    """A message. Nobody is called by their name in it, but by `mentions`."""
    content = _formatted(text, "m.notice" if silent else "m.text")
    content["m.mentions"] = {"user_ids": list(mentions)} if mentions else {}
    if relation:
        content["m.relates_to"] = relation
    return _fitting(content, content)


def new_version(message_id: str, text: str) -> dict[str, Any]:
    fresh = _formatted(text, "m.text") | {"m.mentions": {}}
    content = {
        "msgtype": "m.text",
        "body": f"* {text}",
        "m.mentions": {},
        "m.new_content": fresh,
        "m.relates_to": {"rel_type": "m.replace", "event_id": message_id},
    }
    return _fitting(content, fresh)


def relation(thread: str | None, reply_to: str | None, latest: str | None) -> dict[str, Any] | None:
    """Where a message belongs. One in a thread also names what it follows, for clients that know no threads."""
    if thread is None:
        return {"m.in_reply_to": {"event_id": reply_to}} if reply_to else None
    return {
        "rel_type": "m.thread",
        "event_id": thread,
        "is_falling_back": reply_to is None,
        "m.in_reply_to": {"event_id": reply_to or latest or thread},
    }


def _formatted(text: str, kind: str) -> dict[str, Any]:
    content: dict[str, Any] = {"msgtype": kind, "body": text}
    html = html_of(text)
    if html != escape(text, quote=False):
        content |= {"format": "org.matrix.custom.html", "formatted_body": html}
    return content


def _fitting(whole: dict[str, Any], formatted: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(whole)) > _LARGEST:
        formatted.pop("format", None)
        formatted.pop("formatted_body", None)
    return whole
