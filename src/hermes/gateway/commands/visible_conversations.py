"""Which conversations a chat may show or open.

A person's handle holds only their own conversations. In a chat with an audience that is not enough: private
conversations are neither shown nor opened there. Every answer treats other people's conversations as not existing.
"""

from __future__ import annotations

from typing import Any

from hermes.gateway.commands.command_context import ChatCommandContext
from hermes.insights.number_format import format_plural

Row = dict[str, Any]

NOT_FOUND = "There is no such conversation. `/sessions` shows yours."
PRIVATE = (
    "That conversation is private: it cannot be opened where others read along. Ask me in a private chat."
)
EVERYBODYS = "That conversation is everybody's in this room; this one is yours alone."
NOTHING_SAID = "Nothing was said here yet."
IN_TRASH = "The conversation of this chat is in the trash. What you say next begins a new one."


class ChatVisibility:
    """The `Visibility` of a chat, for the person who asks in it."""

    def __init__(self, context: ChatCommandContext) -> None:
        self._context, self._principal = context, context.store.principal

    @property
    def has_audience(self) -> bool:
        return self._context.source.chat_type != "dm"

    @property
    def can_show_memory(self) -> bool:
        """A shared chat has an agent of its own, whose memory is everybody's there."""
        return self._context.chat.is_shared or not self.has_audience

    def can_show(self, row: Row) -> bool:
        """In private all of one's own may be shown. Where others read along: what is the room's, and what the asker
        said there themselves, before everybody's eyes."""
        if not self.has_audience or row["owner"] == self._principal.room:
            return True
        # A room may have been a private chat once: what was said then was said in private.
        return is_from_this_chat(self._context, row) and row["chat_type"] != "dm"

    def can_open(self, row: Row) -> bool:
        """A shared chat goes on only in what is shared."""
        who = self._principal
        owner = who.room if self._context.chat.is_shared else who.person or who.room
        return bool(row["owner"] == owner and self.can_show(row))

    def is_own(self, row: Row) -> bool:
        return bool(row["owner"] == self._principal.person)

    def explain_closed(self, row: Row) -> str:
        return PRIVATE if self.is_own(row) else EVERYBODYS


def is_from_this_chat(context: ChatCommandContext, row: Row) -> bool:
    """Whether a conversation was begun in this chat."""
    source = context.source
    return (row["chat_id"], row["thread_id"] or "") == (source.chat_id, source.thread_id or "")


def describe_empty(context: ChatCommandContext) -> str:
    """Why a chat is in no conversation: its last one was moved to the trash, or there was none."""
    return IN_TRASH if context.chat.was_trashed else NOTHING_SAID


def describe_private(count: int) -> str:
    """What is said of what cannot be shown here."""
    return f"{format_plural(count, 'private conversation')} not shown here: ask me in a private chat."
