"""Queues of received Telegram updates, and the offset that acknowledges them.

A poll with an offset acknowledges all updates before the offset. Therefore the offset stays at the oldest update that
is not accepted yet. Until that update is accepted, each poll returns it again, with up to 99 later ones. Only updates
that are not queued yet are added to a queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial

from telegram import Update

from hermes.gateway.platforms.chat_queues import ChatQueues

Accept = Callable[[Sequence[Update]], Awaitable[None]]
"""A function that passes one message, or the messages of one album, to the gateway. It returns when they are
durable."""


class UpdateQueues:
    def __init__(self, accept: Accept, offset: int | None) -> None:
        self._accept = accept
        self._queues = ChatQueues()
        self._next = offset
        """The id after the last received update."""
        self._received: set[int] = set()
        """The ids of received updates that are not before the offset. Polls return these updates again."""
        self.settle, self.close = self._queues.settle, self._queues.close

    @property
    def offset(self) -> int | None:
        """The id of the first update that the gateway has not accepted. All updates before it may be acknowledged.
        None as long as no update was received."""
        oldest = self._queues.oldest
        return self._next if oldest is None else oldest

    def add(self, updates: Iterable[Update]) -> None:
        """Add those of the received `updates` to the queues of their chats that were not added before."""
        offset = self.offset
        self._received = {number for number in self._received if offset is not None and number >= offset}
        new = sorted(
            (update for update in updates if update.update_id not in self._received),
            key=lambda update: update.update_id,
        )
        if not new:
            return
        self._received.update(update.update_id for update in new)
        after = new[-1].update_id + 1
        # After a week without updates, Telegram may continue with lower numbers. All earlier updates are accepted then.
        self._next = after if self._queues.oldest is None else max(after, self._next or 0)
        chats: defaultdict[int | None, list[Update]] = defaultdict(list)
        for update in new:
            chats[update.effective_chat.id if update.effective_chat else None].append(update)
        for chat, theirs in chats.items():
            for album in group_albums(theirs):
                numbers = [update.update_id for update in album]
                self._queues.add(chat, numbers, partial(self._accept, album))


def group_albums(updates: Iterable[Update]) -> Iterator[list[Update]]:
    """Yield the updates in groups: consecutive updates of one album together, any other update alone."""
    album: list[Update] = []
    for update in updates:
        if album and (_album_id(update) is None or _album_id(update) != _album_id(album[0])):
            yield album
            album = []
        album.append(update)
    if album:
        yield album


def _album_id(update: Update) -> str | None:
    message = update.message or update.channel_post
    return message.media_group_id if message else None
