"""The terminal as a `CommandSurface` of the shared commands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from hermes.chat.commands import display
from hermes.chat.conversation_lookup import describe_candidates, find_latest_id
from hermes.chat.input import question
from hermes.conversation.commands import wording
from hermes.conversation.commands.command_types import CommandContext, Option
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.agent.subagents import Subagents
    from hermes.chat.terminal_loop import Chat
    from hermes.conversation.file_restore import RestorePlan


def make_core_context(chat: Chat) -> CommandContext:
    """Return the context that a shared command needs to run in the terminal: the store, the conversation, the
    surface and the conversations listed last."""
    store = chat.conversation.store
    return CommandContext(
        store,
        chat.conversation,
        TerminalSurface(chat),
        listed=chat.listed,
        find_latest=partial(find_latest_id, store),
    )


class TerminalSurface:
    waiting, edits_files = 0, True

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    async def confirm(self, question: str) -> bool:
        return await self._chat.confirm(make_printable(question))

    async def choose(self, question_text: str, options: Sequence[Option]) -> str | None:
        texts = [make_printable(option.text, width_limit=70) for option in options]
        rows = [option.row for option in options if option.row is not None]
        if len(rows) == len(options):  # these descriptions name the owners
            texts = describe_candidates(rows)
        choices = [question.Option(option.id, text) for option, text in zip(options, texts, strict=True)]
        return await self._chat.choose(make_printable(question_text), choices)

    async def confirm_restore(self, plan: RestorePlan, *, is_redo: bool) -> bool:
        display.show_lines(self._chat.screen, wording.describe_restore_plan(plan, is_redo=is_redo))
        text = "Edit these files again?" if is_redo else "Change these files, too?"
        options = [question.Option(True, "yes", "y"), question.Option(False, "no", "n")]
        return await self._chat.choose(text, options, default=1) or False

    @property
    def subagents(self) -> Subagents | None:
        known = self._chat.conversation.parts.subagents
        return None if known is None else known()
