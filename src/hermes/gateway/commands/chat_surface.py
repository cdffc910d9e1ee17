"""Runs the shared commands (`hermes.conversation.commands`) in a chat: builds their context and their surface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes.conversation.commands.command_types import (
    CommandContext,
    Option,
    SharedCommand,
)
from hermes.conversation.commands.replies import ConversationList, Reply, SearchHits
from hermes.gateway.commands.command_context import ChatCommandContext, CommandChat
from hermes.gateway.commands.visible_conversations import ChatVisibility

if TYPE_CHECKING:
    from hermes.agent.subagents import Subagents
    from hermes.conversation.file_restore import RestorePlan

MOST_HITS = 5
"""Maximum number of search hits in a reply. It is small, because a reply must fit on the screen of a telephone."""


def make_core_context(context: ChatCommandContext) -> CommandContext:
    return CommandContext(
        context.store,
        context.chat.conversation,
        ChatSurface(context.chat),
        ChatVisibility(context),
        context.chat.lists.get(context.source),
        most_hits=MOST_HITS,
    )


async def run_core_command(command: SharedCommand, context: ChatCommandContext, words: str) -> Reply:
    """Run a shared command with the arguments `words`, and return its reply.

    If the reply is a list of conversations or search hits, remember the list for the sender. A number in the
    sender's next command then refers to a line of that list.
    """
    reply = await command.run(make_core_context(context), words)
    if isinstance(reply, ConversationList | SearchHits):
        context.chat.lists.remember(context.source, [row["id"] for row in reply.rows])
    return reply


class ChatSurface:
    """The surface that shared commands see when they run in a chat. It cannot ask the person a question while a
    command runs. Therefore every confirmation counts as given, nothing can be chosen from options, and a command
    does not offer to change files."""

    edits_files = False

    def __init__(self, chat: CommandChat) -> None:
        self._chat = chat

    @property
    def waiting(self) -> int:
        return self._chat.waiting

    async def confirm(self, question: str) -> bool:
        return True

    async def choose(self, question: str, options: Sequence[Option]) -> str | None:
        return None

    async def confirm_restore(self, plan: RestorePlan, *, is_redo: bool) -> bool:
        return False

    @property
    def subagents(self) -> Subagents:
        return self._chat.subagents
