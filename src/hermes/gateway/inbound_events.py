"""Inbound platform messages as plain values. The inbox stores them as JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from hermes import errors
from hermes.gateway import registry
from hermes.session_kinds import CHAT_TYPES, PLATFORMS, canonical_source
from hermes.text import replace_surrogates

VERSION = ":edit:"
"""Separates the message id from the version of an edited message."""

_ALWAYS = ("chat_id", "chat_name", "chat_type", "user_id", "user_name", "thread_id", "chat_topic")
_IF_ANY = ("user_id_alt", "chat_id_alt", "guild_id", "parent_chat_id", "message_id", "handle")


class Source(NamedTuple):
    """The chat and the sender of a message."""

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
    """A stable id of the person, for platforms where `user_id` can change."""
    chat_id_alt: str | None = None
    is_bot: bool = False
    guild_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    """The id of the message, to which an answer can reply."""
    handle: str | None = None
    """The unique name of the person on the platform, such as @name on Telegram. In contrast, `user_name` can
    be chosen freely and must never grant access."""

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
        """This source with all lone surrogates in its texts replaced. Platforms may send lone surrogates, which the
        store cannot hold."""
        texts: dict[str, Any] = {
            name: replace_surrogates(value)
            for name, value in self._asdict().items()
            if isinstance(value, str)
        }
        return self._replace(**texts)

    def to_dict(self) -> dict[str, Any]:
        """Return the source as a dictionary. This is the documented format of the field `origin` in
        `sessions.json`."""
        data = self._asdict()
        always = {"platform": self.platform} | {name: data[name] for name in _ALWAYS}
        return always | {name: data[name] for name in _IF_ANY if data[name]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Source:
        """Parse a dictionary that `Source.to_dict` returned. Unknown fields are ignored. Raise `InvalidArgument`
        for an unknown platform or chat type."""
        platform = canonical_source(str(data.get("platform") or ""))
        if platform not in PLATFORMS and platform not in registry.PLATFORMS:
            raise errors.make_error(errors.InvalidArgument, f"unknown platform {platform!r:.40}")
        texts: dict[str, Any] = {name: _text_or_none(data.get(name)) for name in (*_ALWAYS, *_IF_ANY)}
        kind = texts.pop("chat_type") or "dm"
        if kind not in CHAT_TYPES:
            raise errors.make_error(errors.InvalidArgument, f"unknown chat type {kind!r}")
        chat = texts.pop("chat_id") or ""
        return cls(platform, chat, chat_type=kind, **texts)


class Attachment(NamedTuple):
    """A file of a message, stored in the home until the message is in the conversation."""

    kind: str
    """image, audio, video or file."""
    name: str
    media_type: str
    size: int
    path: str


class OfferedFile(NamedTuple):
    """A file of a message that has just arrived. It is fetched only if the sender has access."""

    kind: str
    name: str
    media_type: str
    size: int | None
    fetch: Callable[[], Awaitable[bytes]]
    reference: dict[str, Any] | None = None
    """Data with which the adapter can fetch the file later (see `FetchesFiles`). None if the file can be
    fetched only now."""


class RemoteFile(NamedTuple):
    """A file that stays on the platform until its message is processed. It is fetched then."""

    kind: str
    name: str
    media_type: str
    size: int | None
    reference: dict[str, Any]


class Event(NamedTuple):
    """A message that was received from a platform, or a change that the platform reports: an edited or deleted
    message, a button press, or a chat with a new id."""

    source: Source
    text: str
    sent_at: float
    """The time of the message as the platform reports it."""
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    """The text (not the id) of the message that this message replies to."""
    edits: str | None = None
    """The id of the original message if this event is an edited version of it."""
    chosen: str | None = None
    """The id of a button press. `text` is then the command of the button, and `source.message_id` is the id
    of the message that has the button."""
    files: tuple[RemoteFile, ...] = ()
    """Files that are not fetched yet."""
    removes: bool = False
    """Whether the message `edits` was deleted by its author. The event then has no text."""
    album: str | None = None
    """The id of the album, if the platform delivers the files of one message one by one."""
    moves_to: str | None = None
    """The new id of the chat, if the platform has replaced the id. The event has no other content."""

    @property
    def message_id(self) -> str | None:
        """The id of this event. If the platform delivers the event again, it has the same id. Each version of an
        edited message has its own id."""
        if self.chosen is not None:
            return f"choice:{self.chosen}"
        if self.edits is None:
            return self.source.message_id
        if self.removes:
            return f"{self.edits}{VERSION}removed"
        # Edit times have a resolution of seconds, so a hash of the text tells quick edits apart.
        version = sha256(self.text.encode("utf-8", "replace")).hexdigest()[:8]
        return f"{self.edits}{VERSION}{self.sent_at:.0f}:{version}"

    def to_dict(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "source": self.source.to_dict(),
            "attachments": [attachment._asdict() for attachment in self.attachments],
            "files": [file._asdict() for file in self.files],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Event:
        """Parse a dictionary that `Event.to_dict` returned. Raise `InvalidArgument` if its format is incompatible,
        for example because another version of the program wrote it."""
        try:
            return cls(
                Source.from_dict(data["source"]),
                data["text"],
                data["sent_at"],
                tuple(Attachment(**attachment) for attachment in data["attachments"]),
                data["reply_to"],
                data["edits"],
                files=tuple(RemoteFile(**file) for file in data.get("files", ())),
                album=data.get("album"),
                removes=data.get("removes", False),
            )
        except (KeyError, TypeError, AttributeError) as problem:
            raise errors.make_error(errors.InvalidArgument, f"not a stored message: {problem!r}") from None


def original_message_id(message_id: str | None) -> str | None:
    """Return the message id of the platform: `message_id` without the suffix that identifies an edit."""
    return None if message_id is None else message_id.partition(VERSION)[0]


def _text_or_none(value: object) -> str | None:
    return None if value is None or value == "" else str(value)
