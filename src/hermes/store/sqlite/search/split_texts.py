"""What the newest messages say, split once: searches read rows that the index has not reached again and again.

A text is used only while the row is, letter by letter, the one it was made from. So nothing has to be told here when
another thread, process or program changes a row, and a snapshot of yesterday gets yesterday's text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hermes.store.content import decode
from hermes.store.query_tree import MessageText
from hermes.text import extract_text, extract_tool_call_text, to_text

MOST_CHARACTERS = 1_000_000
"""So much is kept, and the newest row, and then forgotten all at once: it is many times what usually waits for the
index."""


def fields_of(content: Any, kind: str | None, tool_name: Any, tool_calls: Any) -> tuple[str, ...]:
    """What of a message can be found: its text, its tool's name, its tool calls."""
    return (
        extract_text(decode(content, kind)),
        to_text(tool_name) if tool_name else "",
        extract_tool_call_text(to_text(tool_calls)) if tool_calls else "",
    )


class Known(NamedTuple):
    columns: tuple[Any, ...]
    text: MessageText


class Texts:
    def __init__(self) -> None:
        self._known: dict[int, Known] = {}
        self._size = 0

    def get_text(self, message_id: int, columns: tuple[Any, ...]) -> Known:
        """The text of a row with these values of content, content_kind, tool_name and tool_calls."""
        known = self._known.get(message_id)
        if known is None or known.columns != columns:
            fields = fields_of(*columns)
            known = Known(columns, MessageText.of(*fields))
            self._size += sum(map(len, fields))
            if self._size > MOST_CHARACTERS:
                self.forget()
            self._known[message_id] = known
        return known

    def forget(self) -> None:
        self._known.clear()
        self._size = 0
