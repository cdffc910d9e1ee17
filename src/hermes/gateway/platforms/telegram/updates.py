"""Converts Telegram updates to events: the sender, the text, the chat, and whether the bot is addressed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from telegram import CallbackQuery, Chat, Message, MessageEntity, MessageOrigin, User
from telegram.constants import ChatType

from hermes import clock
from hermes.gateway.inbound_events import Event, OfferedFile, Source
from hermes.recall.tool.prompt_safety import fence_text, make_label

GENERAL = "1"
"""The id that the adapter uses for the General topic of a forum. Telegram sends no id for this topic, and no other
topic has the id 1."""

LONGEST_AUTHOR = 60
MOST_ALBUMS = 500
_MEDIA = (
    ("animation", "video", "mp4", "video/mp4"),  # before the document, which Telegram sends too
    ("document", "file", "bin", "application/octet-stream"),
    ("voice", "audio", "ogg", "audio/ogg"),
    ("audio", "audio", "mp3", "audio/mpeg"),
    ("video", "video", "mp4", "video/mp4"),
    ("video_note", "video", "mp4", "video/mp4"),
)
_KINDS = ("image", "audio", "video")

Fetch = Callable[[str], Awaitable[bytes]]
"""Downloads a file by its Telegram id."""


class AddressedText(NamedTuple):
    """The text of a message without mentions of the bot, and whether the message addresses this bot or another one."""

    text: str
    to_us: bool = False
    to_another: bool = False


class UpdateReader:
    """Converts the updates of one bot to events."""

    def __init__(self, me: User, fetch: Fetch, *, everything: bool = False) -> None:
        self._me = me
        self._fetch = fetch
        self._everything = everything
        self._topics: dict[tuple[int, str], str] = {}
        self._albums: dict[str, None] = {}
        """The ids of the last albums that were sent to the bot. The parts of an album may arrive in different polls."""

    def read(
        self, album: Sequence[Message], *, edited: bool = False
    ) -> tuple[Event, list[OfferedFile]] | None:
        """Return the event and the files of a message, or of an album, whose messages become one event. Return None if
        the message is not for the bot."""
        message = album[0]
        self._remember_topic(message)
        texts = [self._split_address(part) for part in album]
        files = [self._offer_file(*file) for part in album for file in _list_files(part)]
        # If a message consists only of a mention of the bot, the mention is kept. Otherwise the text would be empty.
        text = "\n".join(part.text for part in texts if part.text) or ("" if files else message.text or "")
        if not (text or files) or not _is_from_a_person(message) or any(part.to_another for part in texts):
            return None
        to_all = self._everything or message.chat.type == ChatType.PRIVATE
        group = message.media_group_id
        # Only one part of an album has a caption that can mention the bot. The other parts are for the bot, too.
        to_all = to_all or (group is not None and group in self._albums)
        if not (to_all or any(part.to_us for part in texts) or self._is_answer(message)):
            return None
        if group is not None:
            self._albums[group] = None
            if len(self._albums) > MOST_ALBUMS:
                del self._albums[next(iter(self._albums))]
        when = (message.edit_date if edited else None) or message.date
        edits = str(message.message_id) if edited else None
        return Event(
            self._make_source(message),
            text,
            when.timestamp(),
            (),
            _find_quote(message),
            edits,
            album=None if edited else group,
        ), files

    def read_move(self, message: Message) -> Event | None:
        """Return an event with the new chat id if the message says that a group became a supergroup, otherwise None.
        Telegram sends such a message in the old and in the new chat."""
        old, new = message.chat.id, message.migrate_to_chat_id
        if message.migrate_from_chat_id is not None:
            old, new = message.migrate_from_chat_id, message.chat.id
        return None if new is None else make_move(str(old), str(new))

    def read_choice(self, pressed: CallbackQuery) -> Event | None:
        """Return the event for a button that was pressed below one of the bot's messages."""
        message, person = pressed.message, pressed.from_user
        if message is None or not pressed.data:
            return None
        source = Source(
            "telegram",
            str(message.chat.id),
            message.chat.effective_name,
            _chat_type(message.chat),
            str(person.id),
            person.full_name,
            _find_thread(message) if isinstance(message, Message) else None,
            is_bot=person.is_bot,
            message_id=str(message.message_id),
            handle=person.username,
        )
        return Event(source, pressed.data, clock.now(), chosen=pressed.id)

    def _is_answer(self, message: Message) -> bool:
        """Return whether the message replies to a message of the bot.

        In a topic that the bot opened, every message does so, because Telegram makes it a reply to the message that
        opened the topic.
        """
        replied = message.reply_to_message
        return replied is not None and replied.from_user is not None and replied.from_user.id == self._me.id

    def _make_source(self, message: Message) -> Source:
        chat, thread = message.chat, _find_thread(message)
        user_id, user_name = _find_speaker(message)
        return Source(
            "telegram",
            str(chat.id),
            chat.effective_name,
            _chat_type(chat),
            user_id,
            user_name,
            thread,
            self._topics.get((chat.id, thread)) if thread else None,
            message_id=str(message.message_id),
            handle=_find_handle(message),
        )

    def _remember_topic(self, message: Message) -> None:
        """Remember the name of a topic if the message contains it. Telegram sends the name only when a topic is
        opened or renamed."""
        thread = _find_thread(message)
        root = message.reply_to_message
        named = (
            message.forum_topic_edited or message.forum_topic_created or (root and root.forum_topic_created)
        )
        if thread and named and named.name:
            self._topics[message.chat.id, thread] = named.name

    def _split_address(self, message: Message) -> AddressedText:
        text = message.text or message.caption
        if not text:
            return AddressedText(_describe_message(message))
        result = AddressedText(text)
        for entity in sorted(message.entities or message.caption_entities, key=lambda entity: -entity.offset):
            result = self._remove_mention(result, entity)
        text = result.text.strip()
        if message.forward_origin is not None:  # a forwarded text is not a request or command
            text = f"[forwarded message, from {_describe_author(message.forward_origin)}]\n{fence_text(text)}"
        return result._replace(text=text)

    def _remove_mention(self, result: AddressedText, entity: MessageEntity) -> AddressedText:
        """Return `result` as changed by one entity of the message. A mention of the bot is removed from the text
        and sets `to_us`. A command at the beginning of the text sets `to_us`, or `to_another` if it names another
        bot. The caller begins with the last entity of the message, so that the offsets of the earlier ones stay
        valid."""
        units = result.text.encode("utf-16-le")
        start, end = 2 * entity.offset, 2 * (entity.offset + entity.length)
        before, part, after = (
            piece.decode("utf-16-le", "replace") for piece in (units[:start], units[start:end], units[end:])
        )
        if entity.type == MessageEntity.BOT_COMMAND and not before:
            command, at, name = part.partition("@")
            if at and not self._is_my_name(name):
                return result._replace(to_another=True)
            return AddressedText(command + after, to_us=True)
        mine = entity.type == MessageEntity.MENTION and self._is_my_name(part.removeprefix("@"))
        if mine or (entity.user is not None and entity.user.id == self._me.id):
            return AddressedText(_join_parts(before, after), True, result.to_another)
        return result

    def _is_my_name(self, name: str) -> bool:
        return name.lower() == (self._me.username or "").lower()

    def _offer_file(
        self, kind: str, name: str, media_type: str, size: int | None, file_id: str
    ) -> OfferedFile:
        return OfferedFile(kind, name, media_type, size, partial(self._fetch, file_id), {"file_id": file_id})


def make_move(old: str, new: str) -> Event:
    return Event(Source("telegram", old, chat_type="group"), "", clock.now(), moves_to=new)


def _chat_type(chat: Chat) -> str:
    if chat.type == ChatType.PRIVATE:
        return "dm"
    return "channel" if chat.type == ChatType.CHANNEL else "group"


def _is_from_a_person(message: Message) -> bool:
    """Return whether a person wrote the message. Messages of bots and automatic forwards of channel posts do not count.
    A message on behalf of a chat, for example by an anonymous admin, counts.
    """
    if message.is_automatic_forward:
        return False
    return message.sender_chat is not None or (message.from_user is not None and not message.from_user.is_bot)


def _find_speaker(message: Message) -> tuple[str | None, str | None]:
    """Return the id and name of the sender. The id is None if the message was sent in the name of the chat itself, as
    in a channel or by an anonymous admin."""
    chat = message.sender_chat
    if chat is not None:
        return (
            None if chat.id == message.chat.id else str(chat.id)
        ), message.author_signature or chat.effective_name
    user = message.from_user
    return (str(user.id), user.full_name) if user else (None, None)


def _find_handle(message: Message) -> str | None:
    """Return the unique username of the sender, without the @."""
    user = None if message.sender_chat is not None else message.from_user
    return None if user is None else user.username


def _find_thread(message: Message) -> str | None:
    """Return the topic id, or None. Outside forums, Telegram also numbers chains of replies as threads. Those numbers
    are ignored."""
    if message.is_topic_message:
        return str(message.message_thread_id)
    return GENERAL if message.chat.is_forum else None


def _find_quote(message: Message) -> str | None:
    if message.quote:
        return message.quote.text
    replied = message.reply_to_message
    return (replied.text or replied.caption) if replied else None


def _describe_author(origin: MessageOrigin) -> str:
    """Return the name of the person or chat that originally wrote a forwarded message, as Telegram reports it."""
    for attribute in ("sender_user", "sender_chat", "chat"):
        who: User | Chat | None = getattr(origin, attribute, None)
        if isinstance(who, User):
            return make_label(who.full_name, LONGEST_AUTHOR)
        if who is not None:
            return make_label(who.effective_name or "a chat", LONGEST_AUTHOR)
    return make_label(getattr(origin, "sender_user_name", None) or "somebody", LONGEST_AUTHOR)


def _describe_message(message: Message) -> str:
    """Return a text for a message that has none, such as a sticker, a location or a contact. Return an empty string
    for any other message."""
    if message.sticker:
        return message.sticker.emoji or "[sticker]"
    if message.dice:
        return message.dice.emoji
    if message.location:
        name = f"{make_label(message.venue.title)}, " if message.venue else ""
        return f"[location: {name}{message.location.latitude}, {message.location.longitude}]"
    if message.contact:
        named = (message.contact.first_name, message.contact.last_name, message.contact.phone_number)
        return f"[contact: {make_label(' '.join(part for part in named if part))}]"
    return ""


def _list_files(message: Message) -> Iterator[tuple[str, str, str, int | None, str]]:
    """Yield the kind, name, media type, size and id of each attached file."""
    if message.photo:
        photo = message.photo[-1]  # the largest
        yield "image", f"photo_{photo.file_unique_id}.jpg", "image/jpeg", photo.file_size, photo.file_id
    for attribute, kind, ending, usual in _MEDIA:
        file = getattr(message, attribute)
        if file is None:
            continue
        media_type = getattr(file, "mime_type", None) or usual
        name = getattr(file, "file_name", None) or f"{attribute}_{file.file_unique_id}.{ending}"
        family = media_type.partition("/")[0]
        yield (family if family in _KINDS else kind), name, media_type, file.file_size, file.file_id
        return


def _join_parts(before: str, after: str) -> str:
    """Join the text before and the text after a removed mention of the bot, without superfluous spaces and
    punctuation."""
    if not before.strip():
        return before + after.lstrip(" \t,:")
    if not after or after[0] in " \t\n,.:;!?":
        return before.rstrip(" \t") + after
    return before + after
