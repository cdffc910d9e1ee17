"""Formats answers as Matrix events: HTML and plain text, threads, replies and edits.

An event may have at most 65,536 bytes. JSON escapes non-ASCII characters, encryption adds a third, and an edit contains
its text twice. If the HTML does not fit, it is omitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from hermes.rendering_check import has_same_text, iterate_visible_texts, keep_indentation

LONGEST = 12_000
"""Maximum length of a message, in units of `measure`."""
_LARGEST = 45_000
"""Maximum size of an event's content before encryption, in bytes. Encrypted content and the fields that the server adds
must fit into the limit."""


class _Parser(MarkdownIt):
    def normalizeLink(self, url: str) -> str:  # noqa: N802 - its name in the library
        """Return the URL unchanged, because clients encode URLs themselves."""
        return url


# Raw HTML, entities and link definitions are shown literally. An external image becomes a link, because
# Matrix does not show external images.
_MARKDOWN = _Parser("commonmark", {"html": False, "breaks": True, "maxNesting": 60})
_MARKDOWN.enable(["table", "strikethrough"]).disable(["image", "reference", "entity"])
keep_indentation(_MARKDOWN, "\N{NO-BREAK SPACE}")


def measure(text: str) -> int:
    """Return the size of a text inside an event, in bytes."""
    return len(json.dumps(text)) - 2


def render_html(text: str) -> str:
    """Render Markdown as HTML, or return it escaped if rendering would lose text."""
    tokens = list(_add_code_info(_MARKDOWN.parse(text)))
    if not has_same_text(text, "".join(iterate_visible_texts(tokens))):
        return escape(text, quote=False).replace("\n", "<br />\n")
    html: str = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}).strip()
    alone = html.startswith("<p>") and html.endswith("</p>") and html.count("<p>") == 1
    return html[3:-4] if alone else html


def _add_code_info(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens of a parsed Markdown text. If the first line of a code fence contains more than the
    language, a paragraph with that info text is added above the code."""
    for token in tokens:
        if token.type == "fence" and len(token.info.split()) > 1:
            info = Token("inline", "", 0, children=[Token("text", "", 0, content=token.info.strip())])
            yield from (Token("paragraph_open", "p", 1), info, Token("paragraph_close", "p", -1))
        yield token


def make_message(
    text: str, *, silent: bool = False, relation: dict[str, Any] | None = None, mentions: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the content of a Matrix event for a message. `mentions` are the ids of the users to notify. `relation`
    is the result of `make_relation`. With `silent`, the message is a Matrix notice (`m.notice`)."""
    content = _format_body(text, "m.notice" if silent else "m.text")
    content["m.mentions"] = {"user_ids": list(mentions)} if mentions else {}
    if relation:
        content["m.relates_to"] = relation
    return _fit_body(content, content)


def make_edit(message_id: str, text: str) -> dict[str, Any]:
    fresh = _format_body(text, "m.text") | {"m.mentions": {}}
    content = {
        "msgtype": "m.text",
        "body": f"* {text}",
        "m.mentions": {},
        "m.new_content": fresh,
        "m.relates_to": {"rel_type": "m.replace", "event_id": message_id},
    }
    return _fit_body(content, fresh)


def make_relation(thread: str | None, reply_to: str | None, latest: str | None) -> dict[str, Any] | None:
    """Return the field `m.relates_to` of a message: its relation to `thread`, the first message of its thread, or
    to `reply_to`, the message that it answers. Return None if it has neither. In a thread, the relation also names
    `latest`, the latest message of the thread, for clients that do not support threads."""
    if thread is None:
        return {"m.in_reply_to": {"event_id": reply_to}} if reply_to else None
    return {
        "rel_type": "m.thread",
        "event_id": thread,
        "is_falling_back": reply_to is None,
        "m.in_reply_to": {"event_id": reply_to or latest or thread},
    }


def _format_body(text: str, kind: str) -> dict[str, Any]:
    content: dict[str, Any] = {"msgtype": kind, "body": text}
    html = render_html(text)
    if html != escape(text, quote=False):
        content |= {"format": "org.matrix.custom.html", "formatted_body": html}
    return content


def _fit_body(whole: dict[str, Any], formatted: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(whole)) > _LARGEST:
        formatted.pop("format", None)
        formatted.pop("formatted_body", None)
    return whole
