"""Store queries of the browser: a page of the list, search results, and the transcript of the preview.

A query that is being typed may end in the middle of a word, so its last word also matches as a prefix. All
functions here block and are called in a thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.browser.rows import PAGE, Conversation, JobRow, Rows, to_timestamp
from hermes.recall.snippets.snippets import CLOSE, OPEN
from hermes.recall.tool.message_excerpt import Bounds, MessageExcerpt
from hermes.recall.tool.passages import BEGINNING, END, Segment, Window
from hermes.store.sessions.listing import group_by_job

if TYPE_CHECKING:
    from hermes.browser.view_state import View
    from hermes.db.session_db import SessionDB

MOST_FOUND, MOST_COUNTED = 100, 10_000
"""The maximum number of results of the first, fast search for a query, and of the later search that loads and
counts all results."""
SLICE = 500
"""Number of rows read per request if many rows are needed."""

_MARKED = re.compile(f"{OPEN}(.+?){CLOSE}", re.DOTALL)
PAGE_ROOM = 12_000
MOST_HELD = 120_000
"""`PAGE_ROOM` is the approximate length of a page of a transcript, in characters. `MOST_HELD` is the maximum
length of its loaded part."""
BOUNDS = Bounds(speech=6_000, tool=300, match=8_000, call=1_000, calls=40)
DEEPEST = 16
"""Maximum number of sessions without messages that are skipped in one call."""


def load_rows(db: SessionDB, view: View, index: int = 0) -> Rows:
    """Return the rows of a view: for a list, the page that contains `index`; for a search, the best results.

    If `index` is beyond the best results of a search, all its results are returned.
    """
    if view.is_search:
        best = search_rows(db, view)
        return best if index < MOST_FOUND else search_rows(db, view, MOST_COUNTED, best)
    jobs, hidden, limit = _load_jobs(db, view) if view.groups_jobs else ([], {}, view.limit)
    offset = index // PAGE * PAGE
    page = db.list_conversations(limit=_get_limit(view, offset), offset=offset, **view.list_arguments())
    hidden = {reason: page.hidden.get(reason, 0) + hidden.get(reason, 0) for reason in page.hidden | hidden}
    rows = Rows(page.total if limit is None else min(limit, page.total), hidden, jobs=jobs)
    rows.put(offset, map(Conversation.from_row, page.rows))
    return rows


def _load_jobs(db: SessionDB, view: View) -> tuple[list[JobRow], dict[str, int], int | None]:
    """Return the scheduled jobs with their conversations, the number of hidden ones by reason, and the limit
    for all other conversations.

    The limit of a view is that of the whole list. With a limit, only the conversations of jobs that are among
    the first ones of the list are returned.
    """
    arguments = {**view.list_arguments(), "job_runs": True if view.limit is None else None}
    found, offset, hidden = list[dict[str, Any]](), 0, dict[str, int]()
    while view.limit is None or offset < view.limit:
        size = SLICE if view.limit is None else min(SLICE, view.limit - offset)
        page = db.list_conversations(limit=size, offset=offset, **arguments)
        found += page.rows
        offset, hidden = offset + size, page.hidden
        if offset >= page.total:
            break
    jobs = group_by_job(found)[1]
    rows = [JobRow(job_id, tuple(map(Conversation.from_row, runs))) for job_id, runs in jobs.items()]
    if view.limit is None:
        return rows, hidden, None
    hidden = db.list_conversations(limit=1, **{**arguments, "job_runs": True}).hidden
    return rows, hidden, view.limit - sum(len(job.runs) for job in rows)


def load_page(db: SessionDB, view: View, offset: int) -> list[Conversation]:
    page = db.list_conversations(limit=_get_limit(view, offset), offset=offset, **view.list_arguments())
    return [Conversation.from_row(row) for row in page.rows]


def load_range(db: SessionDB, view: View, rows: Rows, first: int, last: int) -> list[Conversation]:
    """Return the conversations of the rows from the index `first` to the index `last`, both included. Rows that
    are missing in `rows` are read from the store."""
    if rows.of_search or not rows.find_missing(first, last):
        return [row for index in range(first, last + 1) if (row := rows.get(index)) is not None]
    end = min(last, rows.paged - 1)
    found = {row.root_id: row for index in (first, end) if (row := rows.get(index)) is not None}
    for offset in range(rows.to_offset(first), rows.to_offset(end) + 1, SLICE):
        limit = min(SLICE, rows.to_offset(end) + 1 - offset)
        page = db.list_conversations(limit=limit, offset=offset, **view.list_arguments())
        found.update({row["root_id"] or row["id"]: Conversation.from_row(row) for row in page.rows})
    runs = (rows.get(index) for index in range(end + 1, last + 1))
    return [*found.values(), *filter(None, runs)]


def search_rows(db: SessionDB, view: View, most_found: int | None = None, before: Rows | None = None) -> Rows:
    """Return the conversations with matching titles or messages, each once, in the order of the view. By
    relevance, title matches come first, then the best other matches.

    `before` contains the rows of an earlier search for fewer results. By relevance, they stay at the top, so
    that no row moves.
    """
    most_found = MOST_FOUND if most_found is None else most_found
    rows: dict[str, Conversation] = {row.root_id: row for row in before or ()}
    hidden, are_more = 0, False
    most = min(most_found, view.limit or most_found)
    hits = db.search_conversations(
        view.query,
        most_found + 1,  # one more row than the limit shows whether there are more
        sources=view.sources,
        include_hidden=view.kinds is not None or view.archived,
        unfinished=True,
    )
    for hit in hits:
        if hit["conversation_id"] in rows:
            continue
        found_row = load_conversation(db, hit["session_id"], hit["message_id"], hit["snippet"])
        if found_row is None:
            continue
        if not view.is_showing(found_row):
            hidden += 1
            continue
        if len(rows) == most and found_row.root_id not in rows:
            are_more = True
            break
        rows.setdefault(found_row.root_id, found_row)
    left_out = {**hits.hidden, **({"more": hidden} if hidden else {})}
    are_more = are_more or len(hits) > most_found
    result = Rows(len(rows), left_out, are_more=are_more, of_search=True, parts=hits.parts)
    result.put(0, sorted(rows.values(), key=_KEYS[view.found_order]))
    return result


def load_conversation(
    db: SessionDB, session_id: str, message_id: int | None = None, snippet: str = ""
) -> Conversation | None:
    """Return the conversation of a session as a row; None if it does not exist. `message_id` and `snippet`
    describe the message that a search found."""
    row = db.get_conversation(session_id)
    if row is None:
        return None
    return Conversation.from_row(row)._replace(
        snippet=snippet, session_id=session_id if message_id else None, message_id=message_id
    )


def find_index(db: SessionDB, rows: Rows, session_id: str, message_id: int | None) -> int:
    """Return the index in `rows` of the conversation to which a session belongs. If the conversation is missing
    in `rows`, insert it as the first row. If `message_id` is given, the preview of the row will show that
    message."""
    target = load_conversation(db, session_id, message_id)
    if target is None:
        return 0
    index = rows.find_index(target.root_id)
    if index is None:
        rows.put_first(target)
        return 0
    if message_id is not None:
        rows.change({target.root_id: {"session_id": session_id, "message_id": message_id}})
    return index


def find_clues(snippet: str) -> tuple[str, ...]:
    """Return the pieces of a snippet that are marked as matches, as written in the message."""
    return tuple(dict.fromkeys(_MARKED.findall(snippet)))


def list_sources(db: SessionDB) -> list[tuple[str, int]]:
    """Return every source with the number of its conversations, most used first.

    The function repeatedly asks for the newest conversation of a source that it has not seen yet. This takes
    a few short queries.
    """
    counts: dict[str, int] = {}
    before: int | None = None
    while True:
        page = db.list_conversations(limit=1, include_hidden=True, exclude_sources=list(counts))
        if before is not None:
            counts[list(counts)[-1]] = before - page.total
        if not page.rows or page.rows[0]["source"] in counts:
            return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        counts[page.rows[0]["source"]] = 0
        before = page.total


def _get_limit(view: View, offset: int) -> int:
    return PAGE if view.limit is None else max(0, min(PAGE, view.limit - offset))


_KEYS: dict[str, Callable[[Conversation], Any]] = {
    "relevance": lambda row: 0,
    "activity": lambda row: -to_timestamp(row.last_active),
    "started": lambda row: -to_timestamp(row.started_at),
    "title": lambda row: (not row.title, (row.title or "").lower()),
}


class Part(NamedTuple):
    session_id: str
    message: MessageExcerpt


class Transcript:
    """The loaded part of a conversation. It grows while the user scrolls the preview.

    A conversation is never loaded as a whole. Messages are read in pages of about `PAGE_ROOM` characters.
    Each message is cut to the limits in `BOUNDS`. Messages far from the visible part are dropped.
    """

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
        """Load the messages around the message `message_id`. Return False if that message does not exist."""
        window = self._db.passages.transcript(session_id, message_id, PAGE_ROOM, BOUNDS, clues)
        return window is not None and self._begin(window)

    def open_at_end(self, session_id: str) -> bool:
        """Load the last messages of the conversation. Return False if the conversation does not exist."""
        window = self._read_backwards(session_id, END)
        return window is not None and self._begin(window)

    def open_at_beginning(self, session_id: str) -> bool:
        """Load the first messages of the conversation. Return False if the conversation does not exist."""
        first = session_id
        visited = {first}
        while (segment := self._db.passages.segment(first)) and segment.continues not in (None, *visited):
            first = str(segment.continues)
            visited.add(first)
        window = self._read_forwards(first, BEGINNING)
        return window is not None and self._begin(window)

    def read_before(self) -> list[Part]:
        """Read the page of messages before the loaded ones. Return these messages in order."""
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
        """Read the page of messages after the loaded ones. Return these messages in order."""
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
        """Drop loaded messages until at most `MOST_HELD` characters are left. Drop from the end of the loaded
        part if `at_end` is set, otherwise from its beginning."""
        length = sum(part.message.length for part in self.parts)
        side, dropped = (-1 if at_end else 0), None
        while length > MOST_HELD and len(self.parts) > 1:
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
    """Return the next page of a conversation that has messages. The search begins in the session `session_id`
    at the position `at`. It goes on in the further sessions of the conversation, as `further` gives them. If no
    page has messages, return the last page that was read; None if there is no page."""
    window = None
    for _ in range(DEEPEST):
        current = page(session_id, at, PAGE_ROOM, BOUNDS) if session_id is not None else None
        if current is None:
            break
        window, (session_id, at) = current, further(current.segment)
        if current.messages:
            break
    return window
