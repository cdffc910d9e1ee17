"""Bounded reading of conversations: a match with its surroundings, a page, or part of a transcript.

Invariant: a session is never read as a whole. Rows are fetched one at a time, only as many as are shown, and
each row is cut when it is read. Memory use depends on the longest message, and time depends on the size of
the answer; neither depends on the length of the session. Attachments are not read. Messages in the trash and
rewound messages are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import LiteralString, NamedTuple

from hermes.recall.tool.message_excerpt import ROW, Bounds, MessageExcerpt, make_message_excerpt
from hermes.store.engine import Access, Reader, Row
from hermes.store.sessions.lineage import NEXT, find_tip
from hermes.store.sessions.listing import ConversationFilter, ConversationPage, Listing
from hermes.store.sessions.sessions import Sessions
from hermes.store.values import SearchRequest, SearchResults

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
"""Maximum number of rows examined in each direction to find a question or an answer."""
MOST_ON_A_PAGE = 200
MOST_IN_A_TRANSCRIPT = 5_000


class Segment(NamedTuple):
    """A session of a conversation, with the ids of the previous and the next session."""

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
    """Consecutive messages of a session, and whether the session has more messages before and after them."""

    segment: Segment
    messages: list[MessageExcerpt]
    more_before: bool
    more_after: bool


class Scene(NamedTuple):
    """A message that a search found, with messages of the same session that explain it. `around` is ordered by distance
    from the found message. The other lists are in chronological order."""

    match: MessageExcerpt
    exchange: list[MessageExcerpt]
    """The question before the match and the answer after it, without the match itself."""
    around: list[MessageExcerpt]
    opening: list[MessageExcerpt]
    closing: list[MessageExcerpt]
    near: list[int]
    """The ids of all messages around the match, in order, even of those not shown. They are used to count
    omitted messages."""


class Passages:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def search(
        self, phrasings: Sequence[str], request: SearchRequest, exclude_session: str | None = None
    ) -> SearchResults:
        """Return the conversations that best answer a question. The question can be given in several
        phrasings."""
        from hermes.recall.ranking.ranked_search import RankedSearch

        return RankedSearch(self._engine).search(phrasings, request, exclude_session=exclude_session)

    def segment(self, name: str) -> Segment | None:
        """Return the session whose id is `name`. If there is none, return the only session whose id begins
        with `name`. Return None if no session matches, or if several match."""
        known = Sessions(self._engine).resolve_id(name) if name else None
        if known is None:
            return None
        with self._engine.read(settled=True, wait=False) as reader:
            return _read_segment(reader, known)

    def scene(
        self, session_id: str, message_id: int, radius: int, bounds: Bounds, clues: Sequence[str] = ()
    ) -> Scene | None:
        """Return a message of a session, with the question, the answer and up to `radius` messages on either side of
        it. Return None if the message or the session does not exist.

        `bounds` says how much of each message is shown. `clues` are pieces of the message's text. If the message is
        cut, the first of them that occurs remains visible.
        """
        with self._engine.read() as reader:
            match = _read_message(reader, session_id, message_id, bounds, clues)
            if match is None or reader.row(SEGMENT, session_id) is None:
                return None
            before = reader.rows(OUTLINE_BEFORE, session_id, message_id, LOOK)
            after = reader.rows(OUTLINE_AFTER, session_id, message_id, LOOK)
            fetched: set[int] = {message_id}

            def fetch(ids: Sequence[int]) -> list[MessageExcerpt]:
                new = [message_id for message_id in dict.fromkeys(ids) if message_id not in fetched]
                fetched.update(new)
                found = (_read_message(reader, session_id, message_id, bounds) for message_id in new)
                return [message_id for message_id in found if message_id is not None]

            nearest = [
                neighbour[0] for pair in _interleave(after[:radius], before[:radius]) for neighbour in pair
            ]
            return Scene(
                match,
                fetch(_find_exchange(match, before, after)),
                fetch(nearest),
                fetch(_find_first_exchange(reader.rows(OUTLINE_AFTER, session_id, BEGINNING, LOOK))),
                fetch(_find_last_exchange(reader.rows(OUTLINE_BEFORE, session_id, END, LOOK))),
                [
                    *[neighbour[0] for neighbour in reversed(before)],
                    message_id,
                    *[neighbour[0] for neighbour in after],
                ],
            )

    def around(
        self, session_id: str, message_id: int, radius: int, bounds: Bounds, skip: int = 0
    ) -> Window | None:
        """Return a message of the session's conversation, together with its neighbours in the session that
        contains it. Return None if the conversation has no such message."""
        with self._engine.read(settled=True, wait=False) as reader:
            start = _read_segment(reader, session_id)
            home = None if start is None else reader.value(HOME, message_id, start.conversation_id)
            segment = None if home is None else _read_segment(reader, home)
            match = segment and _read_message(reader, segment.id, message_id, bounds, (), skip)
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
        """Return the messages of a session whose id is higher than `after`, about as many as fit into `room`
        characters. Return None if there is no such session."""
        with self._engine.read(settled=True, wait=False) as reader:
            segment = _read_segment(reader, session_id)
            if segment is None:
                return None
            messages: list[MessageExcerpt] = []
            for message in _walk(reader, FOLLOWING, segment.id, after, MOST_ON_A_PAGE, bounds):
                messages.append(message)
                room -= message.length
                if room <= 0:
                    break
            last = messages[-1].id if messages else after
            more = bool(reader.rows(OUTLINE_AFTER, segment.id, last, 1))
            return Window(segment, messages, after > BEGINNING, more)

    def page_before(self, session_id: str, before: int, room: int, bounds: Bounds) -> Window | None:
        """Return the messages of a session whose id is lower than `before`, in chronological order, about as many as
        fit into `room` characters. Return None if there is no such session."""
        with self._engine.read(settled=True, wait=False) as reader:
            segment = _read_segment(reader, session_id)
            if segment is None:
                return None
            messages = _take(_walk(reader, PRECEDING, segment.id, before, MOST_ON_A_PAGE, bounds), room)[::-1]
            first = messages[0].id if messages else before
            more = bool(reader.rows(OUTLINE_BEFORE, segment.id, first, 1))
            return Window(segment, messages, more, before < END)

    def transcript(
        self, session_id: str, message_id: int, room: int, bounds: Bounds, clues: Sequence[str] = ()
    ) -> Window | None:
        """Return about `room` characters of a session around a message. If possible, a quarter of them
        precede the message. Return None if there is no such message."""
        with self._engine.read(settled=True, wait=False) as reader:
            segment = _read_segment(reader, session_id)
            match = segment and _read_message(reader, session_id, message_id, bounds, clues)
            if segment is None or match is None:
                return None
            room -= match.length
            back = _walk(reader, PRECEDING, session_id, message_id, MOST_IN_A_TRANSCRIPT, bounds)
            forth = _walk(reader, FOLLOWING, session_id, message_id, MOST_IN_A_TRANSCRIPT, bounds)
            before = _take(back, room // 4)
            after = _take(forth, room - sum(message.length for message in before))
            left = room - sum(message.length for message in (*before, *after))
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
        """Return conversations, most recent activity first. Jobs, tool sessions, subagents and archived conversations
        are included only if `source` is given."""
        selection = ConversationFilter(
            sources=None if source is None else (source,), since=since, until=until
        )
        return Listing(self._engine).list_conversations(selection, limit=limit)

    def conversation_of(self, session_id: str | None) -> str | None:
        """Return the permanent id of the conversation that a session belongs to, which is the id of its first session.
        Return None if the session is unknown."""
        if not session_id:
            return None
        with self._engine.read(settled=True, wait=False) as reader:
            found = _read_segment(reader, session_id)
        return None if found is None else found.conversation_id


def _read_segment(reader: Reader, session_id: str) -> Segment | None:
    row = reader.row(SEGMENT, session_id)
    if row is None:
        return None
    _, conversation, title, source, started, active, count, before = row
    live = find_tip(reader, session_id)
    if live != session_id:
        title = reader.value(TITLE, live) or title
    after = reader.value(NEXT, session_id, session_id)
    return Segment(session_id, conversation, title, source, started, active, count or 0, before, after)


def _read_message(
    reader: Reader,
    session_id: str,
    message_id: int,
    bounds: Bounds,
    clues: Sequence[str] | None = None,
    skip: int = 0,
) -> MessageExcerpt | None:
    row = reader.row(ONE, message_id, session_id)
    return None if row is None else make_message_excerpt(row, bounds, clues, skip)


def _walk(
    reader: Reader, sql: LiteralString, session_id: str, at: int, most: int, bounds: Bounds
) -> Iterator[MessageExcerpt]:
    """Yield up to `most` messages of a session, starting next to the message with the id `at`. The statement `sql`
    decides the direction. Each row is released before the next one is read."""
    for _ in range(most):
        row = reader.row(sql, session_id, at)
        if row is None:
            return
        message = make_message_excerpt(row, bounds)
        del row
        at = message.id
        yield message


def _take(messages: Iterator[MessageExcerpt], room: int) -> list[MessageExcerpt]:
    taken: list[MessageExcerpt] = []
    while room > 0 and (message := next(messages, None)) is not None:
        taken.append(message)
        room -= message.length
    return taken


def _interleave(first: Sequence[Row], second: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for at in range(max(len(first), len(second))):
        yield [*first[at : at + 1], *second[at : at + 1]]


# -------------------------------------------------------------------- questions and answers; rows of an
# outline


def _is_question(outlined: Row) -> bool:
    return bool(outlined[1] == "user")


def _is_answer(outlined: Row) -> bool:
    """Return whether a row is a message of the agent without tool calls."""
    return bool(outlined[1] == "assistant" and outlined[2])


def _find_exchange(match: MessageExcerpt, before: Sequence[Row], after: Sequence[Row]) -> list[int]:
    """Return the ids of the person's message before the match and of the agent's answer after it. If the match is
    itself one of the two, only the other is returned."""
    ids: list[int] = []
    if match.role != "user":
        ids += [message[0] for message in before if _is_question(message)][:1]
    if match.role != "assistant" or match.calls:
        for message in after:
            if _is_answer(message):
                ids.append(message[0])
            if _is_answer(message) or _is_question(message):
                break
    return ids


def _find_first_exchange(outline: Sequence[Row]) -> list[int]:
    for at, message in enumerate(outline):
        if _is_question(message):
            return [message[0], *[later[0] for later in outline[at:] if _is_answer(later)][:1]]
    return [message[0] for message in outline[:1]]


def _find_last_exchange(backwards: Sequence[Row]) -> list[int]:
    answer = [message[0] for message in backwards if _is_answer(message)][:1]
    question = [message[0] for message in backwards if _is_question(message)][:1]
    return sorted(question + answer) or [message[0] for message in backwards[:1]]
