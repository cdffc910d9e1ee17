"""The page about commands matches the command tables. The terminal and the platforms can render the result of
every command.
"""

from __future__ import annotations

from typing import get_args

from hermes.chat.commands import reply_views as on_screen
from hermes.conversation.commands.replies import AskAgain, Compressing, Reason, Reply, WithFiles
from hermes.conversation.commands.wording import REASONS, WORDINGS
from hermes.gateway.commands import reply_markdown as in_chats
from tests.commands_page import PAGE, make_page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == make_page(), "python -m tests.commands_page writes it anew"


def test_every_reply_is_rendered() -> None:
    every = set(get_args(Reply))
    assert set(on_screen._VIEWS) | set(WORDINGS) == every
    assert set(in_chats._FORMATTERS) | set(WORDINGS) | {AskAgain, Compressing, WithFiles} == every
    assert set(REASONS) == set(Reason)
