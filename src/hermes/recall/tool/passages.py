"""Pieces of conversations, read within bounds: a match and what stands around it, a page, the middle of a transcript.

The invariant: a session is never read whole. Rows are fetched one at a time, as many as are shown, and each is cut as
it is read, so that memory follows the longest message and time the size of the answer, however long a session is. Of
attachments only their place is read. What lies in the trash or was rewound is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import LiteralString, NamedTuple

from hermes.recall.tool.message_excerpt import ROW, Bounds, Said, said
from hermes.store.engine import Access, Reader, Row
from hermes.store.sessions.lineage import NEXT, tip
from hermes.store.sessions.listing import ConversationPage, Listing, Wanted
from hermes.store.sessions.sessions import Sessions

SEGMENT = """SELECT id, coalesce(root_id, id), title, source, started_at, coalesce(last_active, started_at),
    message_count, CASE WHEN relation = 'compression' THEN parent_session_id END
    FROM sessions WHERE id = ? AND trashed_at IS NULL"""
TITLE = "SELECT title FROM sessions WHERE id = ?"
HOME = """SELECT m.session_id FROM messages m JOIN sessions s ON s.id = m.session_id
    WHERE m.id = ? AND coalesce(s.root_id, s.id) = ? AND m.active = 1 AND s.trashed_at IS NULL"""
ONE = " ".join((ROW, "WHERE id = ? AND session_id = ? AND active = 1"))
FOLLOWING = " ".join((ROW, "WHERE session_id = ? AND id > ? AND active = 1 ORDER BY id LIMIT 1"))
PRECEDING = " ".join((ROW, "WHERE session_id = ? AND id < ? AND active = 1 ORDER BY id DESC LIMIT 1"))
OUTLINE = "SELECT id, role, tool_calls IS NULL FROM messages"
OUTLINE_AFTER = " ".join((OUTLINE, "WHERE session_id = ? AND id > ? AND active = 1 ORDER BY id LIMIT ?"))
OUTLINE_BEFORE = " ".join(
    (OUTLINE, "WHERE session_id = ? AND id < ? AND active = 1 ORDER BY id DESC LIMIT ?")
)

BEGINNING, END = 0, 2**63 - 1
LOOK = 64
"""Rows looked through for a question or an answer, in each direction."""
MOST_ON_A_PAGE = 200
MOST_IN_A_TRANSCRIPT = 5_000


class Segment(NamedTuple):
    """One session of a conversation, with what comes before and after it."""

    id: str
    conversation_id: str
    title: str | None
    source: str
    started_at: object
    last_active: object
    message_count: int
    continues: str | None
    continued_in: str | None


class Window(NamedTuple):
    """Messages in order, and whether there are more of them on either side."""

    segment: Segment
    messages: list[Said]
    more_before: bool
    more_after: bool


class Scene(NamedTuple):
    """A match in its session. What stands around it comes nearest first; the two exchanges are in order."""

    match: Said
    exchange: list[Said]
    """The question that the match belongs to, and its answer, as far as they are other messages."""
    around: list[Said]
    opening: list[Said]
    closing: list[Said]
    near: list[int]
    """The ids around the match in order, shown or not: what is missing between two can be counted."""


class Passages:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def segment(self, name: str) -> Segment | None:
        """The session with this id, or the only one whose id begins so."""
        known = Sessions(self._engine).resolve_id(name) if name else None
        if known is None:
            return None
        with self._engine.read(settled=True, wait=False) as reader:
            return _segment(reader, known)

    def scene(
        self, session_id: str, message_id: int, radius: int, bounds: Bounds, clues: Sequence[str] = ()
    ) -> Scene | None:
        """A message of a session with its surroundings; `clues` are pieces of it that must be seen if it is cut."""
        with self._engine.read() as reader:
            match = _one(reader, session_id, message_id, bounds, clues)
            if match is None or reader.row(SEGMENT, session_id) is None:
                return None
            before = reader.rows(OUTLINE_BEFORE, session_id, message_id, LOOK)
            after = reader.rows(OUTLINE_AFTER, session_id, message_id, LOOK)
            fetched: set[int] = {message_id}

            def fetch(ids: Sequence[int]) -> list[Said]:
                new = [one for one in dict.fromkeys(ids) if one not in fetched]
                fetched.update(new)
                found = (_one(reader, session_id, one, bounds) for one in new)
                return [one for one in found if one is not None]

            nearest = [one[0] for pair in _zipped(after[:radius], before[:radius]) for one in pair]
            return Scene(
                match,
                fetch(_exchange(match, before, after)),
                fetch(nearest),
                fetch(_first_exchange(reader.rows(OUTLINE_AFTER, session_id, BEGINNING, LOOK))),
                fetch(_last_exchange(reader.rows(OUTLINE_BEFORE, session_id, END, LOOK))),
                [*[one[0] for one in reversed(before)], message_id, *[one[0] for one in after]],
            )

    def around(
        self, session_id: str, message_id: int, radius: int, bounds: Bounds, skip: int = 0
    ) -> Window | None:
        """A message of the session's conversation and its neighbours in the segment it stands in."""
        with self._engine.read(settled=True, wait=False) as reader:
            asked = _segment(reader, session_id)
            home = None if asked is None else reader.value(HOME, message_id, asked.conversation_id)
            segment = None if home is None else _segment(reader, home)
            match = segment and _one(reader, segment.id, message_id, bounds, (), skip)
            if segment is None or match is None:
                return None
            before = list(_walk(reader, PRECEDING, segment.id, message_id, radius, bounds))[::-1]
            after = list(_walk(reader, FOLLOWING, segment.id, message_id, radius, bounds))
            messages = [*before, match, *after]
            return Window(
                segment,
                messages,
                bool(reader.rows(OUTLINE_BEFORE, segment.id, messages[0].id, 1)),
                bool(reader.rows(OUTLINE_AFTER, segment.id, messages[-1].id, 1)),
            )

    def page(self, session_id: str, after: int, room: int, bounds: Bounds) -> Window | None:
        """The session's own messages after an id, about as many as fit."""
        with self._engine.read(settled=True, wait=False) as reader:
            segment = _segment(reader, session_id)
            if segment is None:
                return None
            messages: list[Said] = []
            for one in _walk(reader, FOLLOWING, segment.id, after, MOST_ON_A_PAGE, bounds):
                messages.append(one)
                room -= one.length
                if room <= 0:
                    break
            last = messages[-1].id if messages else after
            more = bool(reader.rows(OUTLINE_AFTER, segment.id, last, 1))
            return Window(segment, messages, after > BEGINNING, more)

    def page_before(self, session_id: str, before: int, room: int, bounds: Bounds) -> Window | None:
        """The same backwards: the messages before an id, in order."""
        with self._engine.read(settled=True, wait=False) as reader:
            segment = _segment(reader, session_id)
            if segment is None:
                return None
            messages = _take(_walk(reader, PRECEDING, segment.id, before, MOST_ON_A_PAGE, bounds), room)[::-1]
            first = messages[0].id if messages else before
            more = bool(reader.rows(OUTLINE_BEFORE, segment.id, first, 1))
            return Window(segment, messages, more, before < END)

    def transcript(
        self, session_id: str, message_id: int, room: int, bounds: Bounds, clues: Sequence[str] = ()
    ) -> Window | None:
        """About so many characters of a session, a quarter of them before the message, as far as there are."""
        with self._engine.read(settled=True, wait=False) as reader:
            segment = _segment(reader, session_id)
            match = segment and _one(reader, session_id, message_id, bounds, clues)
            if segment is None or match is None:
                return None
            room -= match.length
            back = _walk(reader, PRECEDING, session_id, message_id, MOST_IN_A_TRANSCRIPT, bounds)
            forth = _walk(reader, FOLLOWING, session_id, message_id, MOST_IN_A_TRANSCRIPT, bounds)
            before = _take(back, room // 4)
            after = _take(forth, room - sum(one.length for one in before))
            left = room - sum(one.length for one in (*before, *after))
            messages = [*[*before, *_take(back, left)][::-1], match, *after]
            return Window(
                segment,
                messages,
                bool(reader.rows(OUTLINE_BEFORE, session_id, messages[0].id, 1)),
                bool(reader.rows(OUTLINE_AFTER, session_id, messages[-1].id, 1)),
            )

    def recent(
        self, limit: int, *, source: str | None, since: float | None, until: float | None
    ) -> ConversationPage:
        """Conversations by their last activity; jobs, subagents, tools and the archive only if the source is named."""
        wanted = Wanted(sources=None if source is None else (source,), since=since, until=until)
        return Listing(self._engine).conversations(wanted, limit=limit)

    def conversation_of(self, session_id: str | None) -> str | None:
        """The permanent id of the conversation that a session belongs to."""
        if not session_id:
            return None
        with self._engine.read(settled=True, wait=False) as reader:
            found = _segment(reader, session_id)
        return None if found is None else found.conversation_id


def _segment(reader: Reader, session_id: str) -> Segment | None:
    row = reader.row(SEGMENT, session_id)
    if row is None:
        return None
    _, conversation, title, source, started, active, count, before = row
    live = tip(reader, session_id)
    if live != session_id:
        title = reader.value(TITLE, live) or title
    after = reader.value(NEXT, session_id, session_id)
    return Segment(session_id, conversation, title, source, started, active, count or 0, before, after)


def _one(
    reader: Reader,
    session_id: str,
    message_id: int,
    bounds: Bounds,
    clues: Sequence[str] | None = None,
    skip: int = 0,
) -> Said | None:
    row = reader.row(ONE, message_id, session_id)
    return None if row is None else said(row, bounds, clues, skip)


def _walk(
    reader: Reader, sql: LiteralString, session_id: str, at: int, most: int, bounds: Bounds
) -> Iterator[Said]:
    """Message by message in one direction. Each row is let go before the next is read."""
    for _ in range(most):
        row = reader.row(sql, session_id, at)
        if row is None:
            return
        one = said(row, bounds)
        del row
        at = one.id
        yield one


def _take(messages: Iterator[Said], room: int) -> list[Said]:
    taken: list[Said] = []
    while room > 0 and (one := next(messages, None)) is not None:
        taken.append(one)
        room -= one.length
    return taken


def _zipped(first: Sequence[Row], second: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for at in range(max(len(first), len(second))):
        yield [*first[at : at + 1], *second[at : at + 1]]


# -------------------------------------------------------------------- who asked, who answered; rows of an outline


def _is_question(outlined: Row) -> bool:
    return bool(outlined[1] == "user")


def _is_answer(outlined: Row) -> bool:
    """What the agent says when it calls no tools is what it had to say."""
    return bool(outlined[1] == "assistant" and outlined[2])


def _exchange(match: Said, before: Sequence[Row], after: Sequence[Row]) -> list[int]:
    """The question before a match and the answer after it, unless the match is that itself."""
    ids: list[int] = []
    if match.role != "user":
        ids += [one[0] for one in before if _is_question(one)][:1]
    if match.role != "assistant" or match.calls:
        for one in after:
            if _is_answer(one):
                ids.append(one[0])
            if _is_answer(one) or _is_question(one):
                break
    return ids


def _first_exchange(outline: Sequence[Row]) -> list[int]:
    for at, one in enumerate(outline):
        if _is_question(one):
            return [one[0], *[later[0] for later in outline[at:] if _is_answer(later)][:1]]
    return [one[0] for one in outline[:1]]


def _last_exchange(backwards: Sequence[Row]) -> list[int]:
    answer = [one[0] for one in backwards if _is_answer(one)][:1]
    question = [one[0] for one in backwards if _is_question(one)][:1]
    return sorted(question + answer) or [one[0] for one in backwards[:1]]
