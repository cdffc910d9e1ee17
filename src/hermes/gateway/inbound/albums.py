"""Albums: files that a person sent together and that the platform delivers as separate messages.

The gateway stores each part in the inbox before it acknowledges the part, so no part is lost. The mailbox
processes the first part: it waits for the other parts and merges them into the first one, in one transaction.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from hermes import clock, errors
from hermes.gateway.inbound_events import Event

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.chats.inbox import InboxEntry

PAUSE_S, LONGEST_S = 1.0, 5.0
"""Time limits in seconds. An album is complete if no part arrives for `PAUSE_S`, or `LONGEST_S` after the first
part."""


async def collect_album(db: SessionDB, entry: InboxEntry, event: Event) -> Event:
    """Wait for the other parts of the album to which `event` belongs, and return the whole album as one message. A
    message that belongs to no album is returned at once."""
    if event.album is None:
        return event
    until = entry.received_at + LONGEST_S
    while True:
        parts = await asyncio.to_thread(_find_parts, db, entry, event)
        latest = max((part.received_at for part, _ in parts), default=entry.received_at)
        pause = min(latest + PAUSE_S, until) - clock.now()
        if pause <= 0:
            break
        await asyncio.sleep(pause)
    if not parts:
        return event
    album = merge_parts([event, *(part for _, part in parts)])
    ids = [part.id for part, _ in parts]
    await asyncio.to_thread(db.inbox.absorb, entry.id, album.to_dict(), ids, entry.epoch)
    return album


def merge_parts(parts: list[Event]) -> Event:
    """Return the first of `parts`, the messages of an album, with the texts and files of all parts."""
    return parts[0]._replace(
        text="\n".join(part.text for part in parts if part.text),
        attachments=tuple(file for part in parts for file in part.attachments),
        files=tuple(file for part in parts for file in part.files),
        reply_to=next((part.reply_to for part in parts if part.reply_to), None),
    )


def _find_parts(db: SessionDB, entry: InboxEntry, event: Event) -> list[tuple[InboxEntry, Event]]:
    found = []
    for other in db.inbox.list_waiting(entry.session_key):
        with suppress(errors.InvalidArgument):
            if other.state == "queued" and other.event.get("album") == event.album:
                part = Event.from_dict(other.event)
                if part.edits is None and part.source.participant == event.source.participant:
                    found.append((other, part))
    return found
