"""Parses Matrix messages: text, thread, reply, mentions and file. The input is not trusted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

_SPOKEN = ("m.text", "m.emote")
_MEDIA = {"m.image": "image", "m.file": "file", "m.audio": "audio", "m.video": "video"}
_LONGEST_NAME = 200

_LINK = re.compile(r"matrix\.to/#/([^\"'?>\s]+)")
_QUOTED_BY = re.compile(r"(\* )?<@[^>]*> ?")


class File(NamedTuple):
    kind: str
    name: str
    media_type: str
    size: int | None
    uri: str
    secret: dict[str, Any] | None
    """The decryption data. None if the file is not encrypted."""


class RoomText(NamedTuple):
    text: str
    thread: str | None = None
    """The id of the first message of the thread that contains this message."""
    replies_to: str | None = None
    quoted: str | None = None
    """The quoted text in the body of a reply. Newer clients do not send it."""
    edits: str | None = None
    file: File | None = None
    called: frozenset[str] = frozenset()
    """The ids of mentioned users, from the mentions field and from links."""


def read_content(content: Mapping[str, Any]) -> RoomText | None:
    """Parse the content of a message. Return None if it is neither text nor a file, or if it is a notice. Notices are
    sent by bots."""
    related = _get_dict(content, "m.relates_to")
    edits = _get_text(related, "event_id") if related.get("rel_type") == "m.replace" else None
    if edits:
        content = _get_dict(content, "m.new_content")
    kind, body = _get_text(content, "msgtype"), _get_text(content, "body") or ""
    file = _read_file(content) if kind in _MEDIA else None
    if kind not in _SPOKEN and file is None:
        return None
    thread, replies_to = _find_thread(related)
    quoted = None
    if replies_to:
        quoted, body = _strip_quote(body)
    if file:  # without a separate file name, the body is the file name
        body = body if _get_text(content, "filename") not in (None, body) else ""
    return RoomText(body, thread, replies_to, quoted, edits, file, _find_mentions(content))


def find_thread(content: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the ids of the thread of a message and of the message that it answers. These fields are never
    encrypted."""
    return _find_thread(_get_dict(content, "m.relates_to"))


def _find_thread(related: Mapping[str, Any]) -> tuple[str | None, str | None]:
    thread = _get_text(related, "event_id") if related.get("rel_type") == "m.thread" else None
    if thread and related.get("is_falling_back") is True:
        return thread, None
    return thread, _get_text(_get_dict(related, "m.in_reply_to"), "event_id")


def is_addressed(message: RoomText, user_id: str, names: Iterable[str]) -> bool:
    """Return whether the message is a command or addresses the bot by mention, link or name."""
    if user_id in message.called or message.text.startswith("/"):
        return True
    return any(
        re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message.text, re.I) for name in (user_id, *names)
    )


def strip_address(text: str, user_id: str, names: Iterable[str]) -> str:
    """Remove the bot's name from the beginning of the text if more text follows."""
    for name in (user_id, *names):
        front = re.match(rf"@?{re.escape(name)}\s*[:,]?\s+(?=\S)", text, re.I)
        if front:
            return text[front.end() :]
    return text


def _strip_quote(body: str) -> tuple[str | None, str]:
    """Return two texts: the quote that older clients insert before a reply, or None, and the reply without it. A quote
    that the person typed stays in the reply."""
    if not _QUOTED_BY.match(body.removeprefix("> ")) or not body.startswith("> "):
        return None, body
    lines = body.split("\n")
    end = next((at for at, line in enumerate(lines) if not line.startswith(">")), len(lines))
    quote = "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines[:end])
    return _QUOTED_BY.sub("", quote, count=1), "\n".join(lines[end:]).removeprefix("\n")


def _find_mentions(content: Mapping[str, Any]) -> frozenset[str]:
    user_ids = _get_dict(content, "m.mentions").get("user_ids")
    mentioned = (
        [mention for mention in user_ids if isinstance(mention, str)] if isinstance(user_ids, list) else []
    )
    linked = _LINK.findall(_get_text(content, "formatted_body") or "")
    return frozenset((*mentioned, *(unquote(link) for link in linked)))


def _read_file(content: Mapping[str, Any]) -> File | None:
    secret = _get_dict(content, "file")
    uri = _get_text(secret, "url") or _get_text(content, "url")
    if not uri:
        return None
    info = _get_dict(content, "info")
    size = info.get("size")
    name = _get_text(content, "filename") or _get_text(content, "body") or "file"
    return File(
        _MEDIA[content["msgtype"]],
        name.replace("\\", "/").rsplit("/", 1)[-1][:_LONGEST_NAME] or "file",
        _get_text(info, "mimetype") or "application/octet-stream",
        size if isinstance(size, int) and size >= 0 else None,
        uri,
        secret or None,
    )


def _get_dict(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def _get_text(parent: Mapping[str, Any], name: str) -> str | None:
    value = parent.get(name)
    return value if isinstance(value, str) and value else None
