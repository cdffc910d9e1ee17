"""Decides which conversations a chat may show or open.

The store handle of a person contains their own conversations and those of the room. In a chat with several
readers, the private conversations among them must be neither shown nor opened.
"""

from __future__ import annotations

from typing import Any

from hermes.conversation.commands.wording import NOTHING_SAID
from hermes.gateway.commands.command_context import ChatCommandContext, ReplyContext
from hermes.insights.number_format import format_plural

Row = dict[str, Any]

IN_TRASH = "The conversation of this chat is in the trash. Your next message begins a new one."


class ChatVisibility:
    """Decides which conversations and which memory a command may show or open in a chat, for the sender of the
    command. Implements `Visibility`."""

    def __init__(self, context: ChatCommandContext) -> None:
        self._context, self._principal = context, context.store.principal

    @property
    def has_audience(self) -> bool:
        return self._context.source.chat_type != "dm"

    @property
    def can_show_memory(self) -> bool:
        """Whether a command may show the agent's memory in this chat. A shared chat has a memory of its own, which
        all its participants may see. The memory about one person is shown only in a private chat."""
        return self._context.chat.is_shared or not self.has_audience

    def can_show(self, row: Row) -> bool:
        """Return whether the conversation of the session `row` may be shown in this chat. A private chat may show
        all conversations of the sender. Any other chat may show only conversations of the room, and conversations
        of the sender that took place in this chat while it was not private."""
        if not self.has_audience or row["owner"] == self._principal.room:
            return True
        # The chat may have been private before it became a group. Conversations from that time stay private.
        return is_from_this_chat(self._context, row) and row["chat_type"] != "dm"

    def can_open(self, row: Row) -> bool:
        """Return whether this chat may continue the conversation of the session `row`. A shared chat may continue
        only conversations of its room. Any other chat may continue only those of the sender that it may show."""
        who = self._principal
        owner = who.room if self._context.chat.is_shared else who.person or who.room
        return bool(row["owner"] == owner and self.can_show(row))

    def is_own(self, row: Row) -> bool:
        return bool(row["owner"] == self._principal.person)


def is_from_this_chat(context: ChatCommandContext, row: Row) -> bool:
    """Return whether the session `row` began in the chat and thread in which the command was sent."""
    source = context.source
    return (row["chat_id"], row["thread_id"] or "") == (source.chat_id, source.thread_id or "")


def describe_empty(context: ReplyContext) -> str:
    """Return a text that says why the chat has no conversation: the last one was moved to the trash, or there
    never was one."""
    return IN_TRASH if context.chat.was_trashed else NOTHING_SAID


def describe_private(count: int) -> str:
    """Return a line for the reader of a list. It says that `count` private conversations are left out in this chat."""
    return f"{format_plural(count, 'private conversation')} not shown here: ask me in a private chat."
