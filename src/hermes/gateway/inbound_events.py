"""Inbound messages of platforms as plain values, which the inbox stores as JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from hermes import errors
from hermes.gateway import registry
from hermes.session_kinds import PLATFORMS, canonical_source
from hermes.text import replace_surrogates

CHAT_TYPES = ("dm", "group", "channel", "thread")
VERSION = ":edit:"
"""Between the id of a message and which version of it is meant."""

_ALWAYS = ("chat_id", "chat_name", "chat_type", "user_id", "user_name", "thread_id", "chat_topic")
_IF_ANY = ("user_id_alt", "chat_id_alt", "guild_id", "parent_chat_id", "message_id", "handle")


class Source(NamedTuple):
    """Where something was said, and by whom."""

    platform: str
    chat_id: str
    chat_name: str | None = None
    chat_type: str = "dm"
    """dm, group, channel or thread."""
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    """An id of the person that lasts where `user_id` does not."""
    chat_id_alt: str | None = None
    is_bot: bool = False
    guild_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    """The message that this came with, to be replied to."""
    handle: str | None = None
    """A name that the platform gives to one person only (@name on Telegram). `user_name` is what they call themselves,
    which anybody may do, and opens no door."""

    @property
    def participant(self) -> str | None:
        return self.user_id_alt or self.user_id

    @property
    def description(self) -> str:
        name = self.chat_name or self.chat_id
        text = {
            "dm": f"DM with {self.user_name or self.chat_name or self.user_id or self.chat_id}",
            "group": f"group: {name}",
            "channel": f"channel: {name}",
        }.get(self.chat_type, name)
        return f"{text}, thread: {self.thread_id}" if self.thread_id else text

    @property
    def storable(self) -> Source:
        """Without halves of characters, which a platform may let through and nothing can be kept under."""
        texts: dict[str, Any] = {
            name: replace_surrogates(value)
            for name, value in self._asdict().items()
            if isinstance(value, str)
        }
        return self._replace(**texts)

    def to_dict(self) -> dict[str, Any]:
        """The documented shape of an origin."""
        data = self._asdict()
        always = {"platform": self.platform} | {name: data[name] for name in _ALWAYS}
        return always | {name: data[name] for name in _IF_ANY if data[name]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Source:
        """The same back. What it does not know is left out; a platform that nobody knows is a `ValueError`."""
        platform = canonical_source(str(data.get("platform") or ""))
        if platform not in PLATFORMS and platform not in registry.PLATFORMS:
            raise errors.make_error(errors.InvalidArgument, f"nobody knows the platform {platform!r:.40}")
        texts: dict[str, Any] = {name: _text_or_none(data.get(name)) for name in (*_ALWAYS, *_IF_ANY)}
        kind = texts.pop("chat_type") or "dm"
        if kind not in CHAT_TYPES:
            raise errors.make_error(errors.InvalidArgument, f"there is no chat type {kind!r}")
        chat = texts.pop("chat_id") or ""
        return cls(platform, chat, chat_type=kind, **texts)


class Attachment(NamedTuple):
    """A file that came with a message, kept in the home until the message is in the conversation."""

    kind: str
    """image, audio, video or file."""
    name: str
    media_type: str
    size: int
    path: str


class OfferedFile(NamedTuple):
    """A file that a platform would give us. Nobody fetches it before it is known that the person may talk to us."""

    kind: str
    name: str
    media_type: str
    size: int | None
    fetch: Callable[[], Awaitable[bytes]]


class Event(NamedTuple):
    """A message of a person."""

    source: Source
    text: str
    sent_at: float
    """When the platform says that it was said."""
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    """What the message it answers says; not its id."""
    edits: str | None = None
    """The id of the message that this one is a new version of."""
    chosen: str | None = None
    """Somebody pressed a button: the id of that. `text` is what the button says, `source.message_id` where it is."""

    @property
    def message_id(self) -> str | None:
        """What makes it the same message when a platform delivers it twice; an edit is another message."""
        if self.chosen is not None:
            return f"choice:{self.chosen}"
        if self.edits is None:
            return self.source.message_id
        # Platforms count seconds, and people change their minds faster.
        version = sha256(self.text.encode("utf-8", "replace")).hexdigest()[:8]
        return f"{self.edits}{VERSION}{self.sent_at:.0f}:{version}"

    def to_dict(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "source": self.source.to_dict(),
            "attachments": [attachment._asdict() for attachment in self.attachments],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Event:
        """The same back; `InvalidArgument` for what another version of this program may have kept."""
        try:
            return cls(
                Source.from_dict(data["source"]),
                data["text"],
                data["sent_at"],
                tuple(Attachment(**attachment) for attachment in data["attachments"]),
                data["reply_to"],
                data["edits"],
            )
        except (KeyError, TypeError, AttributeError) as problem:
            raise errors.make_error(
                errors.InvalidArgument, f"no message can be read in it: {problem!r}"
            ) from None


def original_message_id(message_id: str | None) -> str | None:
    """The message on the platform, whichever version of it was meant."""
    return None if message_id is None else message_id.partition(VERSION)[0]


def _text_or_none(value: object) -> str | None:
    return None if value is None or value == "" else str(value)
