"""The part of a conversation that the preview has read: a window that grows where one scrolls.

The invariant: a conversation is never read whole. Messages come in pages of about `ROOM` characters, each message cut
to its bounds; what scrolled far out of sight is let go. Everything here blocks, and is called in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from hermes.recall.tool.message_excerpt import Bounds, MessageExcerpt
from hermes.recall.tool.passages import BEGINNING, END, Segment, Window

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

ROOM = 12_000
MOST = 120_000
"""Characters that are held."""
BOUNDS = Bounds(said=6_000, tool=300, match=8_000, call=1_000, calls=40)
DEEPEST = 16
"""Sessions of a conversation passed over in one go because nothing was said in them."""


class Part(NamedTuple):
    session_id: str
    message: MessageExcerpt


class Transcript:
    def __init__(self, db: SessionDB) -> None:
        self._db = db
        self.parts: list[Part] = []
        self._first: Segment | None = None
        self._last: Segment | None = None
        self._more_before = self._more_after = False

    @property
    def has_before(self) -> bool:
        return self._first is not None and (self._more_before or self._first.continues is not None)

    @property
    def has_after(self) -> bool:
        return self._last is not None and (self._more_after or self._last.continued_in is not None)

    def open_at(self, session_id: str, message_id: int, clues: tuple[str, ...]) -> bool:
        """Read around a message; False if it is gone."""
        window = self._db.passages.transcript(session_id, message_id, ROOM, BOUNDS, clues)
        return window is not None and self._begin(window)

    def open_at_end(self, session_id: str) -> bool:
        """Read how far the conversation came; False if it is gone."""
        window = self._read_backwards(session_id, END)
        return window is not None and self._begin(window)

    def open_at_beginning(self, session_id: str) -> bool:
        first = session_id
        visited = {first}
        while (segment := self._db.passages.segment(first)) and segment.continues not in (None, *visited):
            first = str(segment.continues)
            visited.add(first)
        window = self._read_forwards(first, BEGINNING)
        return window is not None and self._begin(window)

    def read_before(self) -> list[Part]:
        """Read on upwards; what came, in order."""
        if self._first is None:
            return []
        if self._more_before and self.parts:
            window = self._read_backwards(self._first.id, self.parts[0].message.id)
        else:
            window = self._read_backwards(self._first.continues, END)
        if window is None:
            self._more_before, self._first = False, self._first._replace(continues=None)
            return []
        new = _make_parts(window)
        self.parts[:0] = new
        self._first, self._more_before = window.segment, window.more_before
        self._drop_distant(at_end=True)
        return new

    def read_after(self) -> list[Part]:
        """Read on downwards; what came, in order."""
        if self._last is None:
            return []
        if self._more_after and self.parts:
            window = self._read_forwards(self._last.id, self.parts[-1].message.id)
        else:
            window = self._read_forwards(self._last.continued_in, BEGINNING)
        if window is None:
            self._more_after, self._last = False, self._last._replace(continued_in=None)
            return []
        new = _make_parts(window)
        self.parts.extend(new)
        self._last, self._more_after = window.segment, window.more_after
        self._drop_distant(at_end=False)
        return new

    def _begin(self, window: Window) -> bool:
        self.parts = _make_parts(window)
        self._first = self._last = window.segment
        self._more_before, self._more_after = window.more_before, window.more_after
        return True

    def _read_backwards(self, session_id: str | None, before: int) -> Window | None:
        page = self._db.passages.page_before
        return _walk_segments(session_id, before, page, lambda segment: (segment.continues, END))

    def _read_forwards(self, session_id: str | None, after: int) -> Window | None:
        page = self._db.passages.page
        return _walk_segments(session_id, after, page, lambda segment: (segment.continued_in, BEGINNING))

    def _drop_distant(self, at_end: bool) -> None:
        """Forget what is farthest from where one reads."""
        length = sum(part.message.length for part in self.parts)
        side, dropped = (-1 if at_end else 0), None
        while length > MOST and len(self.parts) > 1:
            dropped = self.parts.pop(side)
            length -= dropped.message.length
        if dropped is None:
            return
        edge = self.parts[side].session_id
        is_within = edge == dropped.session_id
        if at_end:
            self._last, self._more_after = self._db.passages.segment(edge), is_within
        else:
            self._first, self._more_before = self._db.passages.segment(edge), is_within


def _make_parts(window: Window) -> list[Part]:
    return [Part(window.segment.id, message) for message in window.messages]


def _walk_segments(
    session_id: str | None,
    at: int,
    page: Callable[[str, int, int, Bounds], Window | None],
    further: Callable[[Segment], tuple[str | None, int]],
) -> Window | None:
    """The next page that has something to show, in this segment or one further on; the last that was there, else."""
    window = None
    for _ in range(DEEPEST):
        current = page(session_id, at, ROOM, BOUNDS) if session_id is not None else None
        if current is None:
            break
        window, (session_id, at) = current, further(current.segment)
        if current.messages:
            break
    return window
