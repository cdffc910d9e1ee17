"""A cache of the split texts of the newest messages, because every search reads the unindexed rows again.

An entry contains the columns from which it was made, and is used only for a row with equal columns. So no
invalidation is needed when another thread, process or program changes a row, and a reader of an older
snapshot gets the older text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hermes.store.content import decode
from hermes.store.query_tree import MessageText
from hermes.text import extract_searchable_text, extract_tool_call_text, to_text

MOST_CHARACTERS = 1_000_000
"""The size limit of the cache.

When the limit is exceeded, all entries but the newest are dropped. The limit is many times the size of the
usual unindexed tail.
"""


def fields_of(content: Any, kind: str | None, tool_name: Any, tool_calls: Any) -> tuple[str, ...]:
    """Return the searchable fields of a message: its text, the name of its tool, its tool calls."""
    return (
        extract_searchable_text(decode(content, kind)),
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
        """Return the text of the message `message_id`, split into words, from the cache or newly made.

        `columns` are the current values of content, content_kind, tool_name and tool_calls of the message.
        """
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
