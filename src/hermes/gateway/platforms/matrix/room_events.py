"""What a message of Matrix says: its words, where it belongs, whom it calls. Pure; people can send anything."""

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
    """How it is decrypted; None if it is not encrypted."""


class Said(NamedTuple):
    text: str
    thread: str | None = None
    """The first message of the thread it is in."""
    replies_to: str | None = None
    quoted: str | None = None
    """What it answers, as it says itself. Newer clients do not."""
    edits: str | None = None
    file: File | None = None
    called: frozenset[str] = frozenset()
    """User ids that it mentions, however that was written down."""


def read(content: Mapping[str, Any]) -> Said | None:
    """What it says; None if it is nothing that a person says to somebody. Notices are what bots say."""
    related = _dict(content, "m.relates_to")
    edits = _text(related, "event_id") if related.get("rel_type") == "m.replace" else None
    if edits:
        content = _dict(content, "m.new_content")
    kind, body = _text(content, "msgtype"), _text(content, "body") or ""
    file = _file(content) if kind in _MEDIA else None
    if kind not in _SPOKEN and file is None:
        return None
    thread, replies_to = _place(related)
    quoted = None
    if replies_to:
        quoted, body = _without_quote(body)
    if file:  # the words beside a file are its name, unless it has another one
        body = body if _text(content, "filename") not in (None, body) else ""
    return Said(body, thread, replies_to, quoted, edits, file, _called(content))


def place(content: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The thread a message is in, and the message that it answers; that is not encrypted with the rest."""
    return _place(_dict(content, "m.relates_to"))


def _place(related: Mapping[str, Any]) -> tuple[str | None, str | None]:
    thread = _text(related, "event_id") if related.get("rel_type") == "m.thread" else None
    if thread and related.get("is_falling_back") is True:
        return thread, None
    return thread, _text(_dict(related, "m.in_reply_to"), "event_id")


def addresses(said: Said, user_id: str, names: Iterable[str]) -> bool:
    """Whether it calls us: by mention, by a link to us, or by name; or is a command."""
    if user_id in said.called or said.text.startswith("/"):
        return True
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said.text, re.I) for name in (user_id, *names))


def without_address(text: str, user_id: str, names: Iterable[str]) -> str:
    """The words without the name in front that only says whom they are for."""
    for name in (user_id, *names):
        front = re.match(rf"@?{re.escape(name)}\s*[:,]?\s+(?=\S)", text, re.I)
        if front:
            return text[front.end() :]
    return text


def _without_quote(body: str) -> tuple[str | None, str]:
    """The quote that older clients put before an answer, and the answer. A quote of the person's own is theirs."""
    if not _QUOTED_BY.match(body.removeprefix("> ")) or not body.startswith("> "):
        return None, body
    lines = body.split("\n")
    end = next((at for at, line in enumerate(lines) if not line.startswith(">")), len(lines))
    quote = "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines[:end])
    return _QUOTED_BY.sub("", quote, count=1), "\n".join(lines[end:]).removeprefix("\n")


def _called(content: Mapping[str, Any]) -> frozenset[str]:
    told = _dict(content, "m.mentions").get("user_ids")
    mentioned = [one for one in told if isinstance(one, str)] if isinstance(told, list) else []
    linked = _LINK.findall(_text(content, "formatted_body") or "")
    return frozenset((*mentioned, *(unquote(link) for link in linked)))


def _file(content: Mapping[str, Any]) -> File | None:
    secret = _dict(content, "file")
    uri = _text(secret, "url") or _text(content, "url")
    if not uri:
        return None
    info = _dict(content, "info")
    size = info.get("size")
    name = _text(content, "filename") or _text(content, "body") or "file"
    return File(
        _MEDIA[content["msgtype"]],
        name.replace("\\", "/").rsplit("/", 1)[-1][:_LONGEST_NAME] or "file",
        _text(info, "mimetype") or "application/octet-stream",
        size if isinstance(size, int) and size >= 0 else None,
        uri,
        secret or None,
    )


def _dict(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def _text(parent: Mapping[str, Any], name: str) -> str | None:
    value = parent.get(name)
    return value if isinstance(value, str) and value else None
