"""Handling of inbox messages that may already be in the conversation.
There are three cases: an earlier process ended while it processed the message; the message is an edited version
of an earlier one; the message deletes an earlier one. Every message of the conversation is stored with the id of
its inbox message, so the conversation shows how far the processing got.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes import reasoning
from hermes.db.store_queue import call_store_early
from hermes.gateway.inbound_events import VERSION, original_message_id

if TYPE_CHECKING:
    from hermes.gateway.inbound.chat_state import Chat
    from hermes.store.chats.inbox import InboxEntry

Row = dict[str, Any]


def message_mark(entry: InboxEntry) -> str:
    """Return the id that the message of `entry` has in the conversation, in the column
    `messages.platform_message_id`."""
    return entry.platform_message_id or f"inbox:{entry.id}"


async def find_following(chat: Chat, entry: InboxEntry) -> list[Row] | None:
    """Return the messages that follow the message of `entry` in the chat's conversation. Return None if the message
    of `entry` was not stored in the conversation."""
    assert chat.session_id is not None
    rows = await call_store_early(chat.store.follow, chat.session_id, 0)
    positions = [
        number for number, row in enumerate(rows) if row["platform_message_id"] == message_mark(entry)
    ]
    return rows[positions[-1] + 1 :] if positions else None


def find_answer(rows: list[Row]) -> Row | None:
    """Return the first answer of the agent in `rows`, without its reasoning. Return None if there is none. `rows`
    are the messages that follow a person's message in the conversation."""
    answers = (row for row in rows if row["role"] == "assistant" and not row["tool_calls"])
    visible = ({**row, "content": reasoning.strip_reasoning(row["content"])} for row in answers)
    return next((row for row in visible if row["content"]), None)


async def take_back_edited(chat: Chat, message_id: str, *, again: bool) -> bool:
    """Make room for the new version of an edited message. If the old version is the last user message of the
    conversation, rewind the conversation to the point before it. Return whether the new version must be answered.
    `message_id` is the platform id of the edited message. `again` means that an earlier call was interrupted. That
    call may have rewound the conversation without storing the new version."""
    store, session_id, epoch = chat.store, chat.session_id, chat.epoch
    assert session_id is not None
    recent = await call_store_early(store.list_recent_user_messages, session_id, 1)
    last = await call_store_early(store.follow, session_id, recent[0]["id"] - 1) if recent else []
    if last and _is_version_of(last[0], message_id):
        first = last[0]["id"]
        await call_store_early(lambda: store.rewind_to_message(session_id, first, lease_epoch=epoch))
        return True
    if not again:
        return False
    exported = await asyncio.to_thread(store.export_session, session_id) or {"messages": []}
    versions = [row for row in exported["messages"] if _is_version_of(row, message_id)]
    return bool(versions) and not any(row["active"] for row in versions)


async def remove_deleted(chat: Chat, message_id: str) -> None:
    """Remove the message with the platform id `message_id` from the conversation and from the transcripts, because
    its author deleted it on the platform. If it was the last user message, the answer to it is removed too."""
    store, session_id, epoch = chat.store, chat.session_id, chat.epoch
    assert session_id is not None
    changed = await asyncio.to_thread(
        lambda: store.redact_message(session_id, message_id, VERSION, lease_epoch=epoch)
    )
    await asyncio.to_thread(chat.remove_transcripts, changed)


def _is_version_of(row: Row, message_id: str) -> bool:
    return original_message_id(row["platform_message_id"]) == message_id
