"""Origins: the chat that a session was created for, stored on the session row.

If the route of a chat is lost, the chat's session is found from the origins. The result is always a session
that the chat can have been in: one that was used after the chat's last reset and does not belong to another
participant.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hermes.store.arguments import check_optional_id, require_text
from hermes.store.engine import Reader, Row, Writer
from hermes.store.people import Principal
from hermes.store.sessions.lineage import find_tip
from hermes.store.sessions.sessions import check_new_source

# Only sessions without an origin are updated. A session that is resumed in another chat keeps its origin.
REMEMBER = """UPDATE sessions SET session_key = ?, chat_type = ?, chat_id = ?, thread_id = ?,
    user_id = coalesce(user_id, ?) WHERE id = ? AND source = ? AND chat_type IS NULL"""
INHERIT = """UPDATE sessions SET session_key = o.session_key, chat_type = o.chat_type, chat_id = o.chat_id,
    thread_id = o.thread_id, user_id = coalesce(sessions.user_id, o.user_id)
    FROM sessions o WHERE sessions.id = ? AND o.id = ? AND sessions.chat_type IS NULL AND sessions.source = o.source"""
# A session that begins in a chat gets that chat as its origin, even if its parent began in another chat or at
# a terminal.
BELONG = """UPDATE sessions SET source = r.platform, session_key = r.session_key, chat_type = r.chat_type,
    chat_id = r.chat_id, thread_id = r.thread_id, user_id = coalesce(sessions.user_id, nullif(r.participant, '')),
    display_name = NULL, origin_json = NULL, workspace = NULL, cwd = NULL, git_branch = NULL
    FROM routing r WHERE sessions.id = ? AND r.session_key = ? AND r.session_id = sessions.id
    AND NOT (sessions.source = r.platform AND coalesce(sessions.chat_type, '') = r.chat_type
        AND coalesce(sessions.chat_id, '') = r.chat_id AND coalesce(sessions.thread_id, '') = r.thread_id)"""
MADE_FOR = """SELECT id, user_id, owner, session_key FROM sessions
    WHERE source = ? AND chat_type = ? AND coalesce(chat_id, '') = ? AND coalesce(thread_id, '') = ?
    AND kind <> 'child'"""
CANDIDATE = """SELECT id, coalesce(last_active, started_at), started_at, ended_at, end_reason, trashed_at,
    (SELECT max(c.started_at) FROM sessions c WHERE c.parent_session_id = sessions.id AND c.relation = 'reset'
        AND coalesce(c.end_reason, '') <> 'reset_undone')
    FROM sessions WHERE id = ?"""

RESET_REASONS = ("session_reset", "idle", "daily")
_LONG_AGO = float("-inf")


class Chat(NamedTuple):
    """The identity of a chat. `participant` is the person, if each person in the chat has their own session;
    otherwise it is empty."""

    platform: str
    chat_type: str
    chat_id: str
    thread_id: str
    participant: str

    @classmethod
    def of(cls, platform: str, chat_type: str, *parts: str | int | None) -> Chat:
        """Return a chat with its ids in the form in which they are stored. `parts` are the chat id, the thread
        id and the participant. In the result, a number is text, and None is an empty text."""
        named = zip(("chat_id", "thread_id", "participant"), parts, strict=True)
        texts = (check_optional_id(name, part) or "" for name, part in named)
        return cls(check_new_source(platform, "platform"), require_text("chat_type", chat_type), *texts)


def remember_chat(writer: Writer, session_id: str, session_key: str, chat: Chat) -> None:
    place = (session_key, chat.chat_type, chat.chat_id, chat.thread_id, chat.participant or None)
    writer.run(REMEMBER, *place, session_id, chat.platform)


def assign_chat(writer: Writer, session_id: str, session_key: str) -> None:
    """Set the origin of a session that begins in a chat."""
    writer.run(BELONG, session_id, session_key)


def inherit_chat(writer: Writer, from_session: str, to_session: str) -> None:
    """Copy the origin of `from_session` to `to_session`, the session that replaces `from_session`."""
    writer.run(INHERIT, to_session, from_session)


def find_last_used(reader: Reader, chat: Chat, session_key: str | None) -> str | None:
    """Return the session that a chat was in. None if the chat had no session since its last reset.

    An open session is preferred to an ended one, then the most recently used one.
    """
    session_ids = [row[0] for row in reader.rows(MADE_FOR, *chat[:4]) if _is_of_chat(row, chat, session_key)]
    ends = [
        _Candidate(*row)
        for end in {find_tip(reader, session_id) for session_id in session_ids}
        for row in reader.rows(CANDIDATE, end)
    ]
    last_reset = max(
        (_read_time(end.reset_at or end.ended_at) for end in ends if end.was_reset), default=_LONG_AGO
    )
    living = [
        (end.ended_at is None, _read_time(end.active), _read_time(end.started_at), end.session_id)
        for end in ends
        if not end.was_reset
        and end.end_reason != "reset_undone"
        and end.trashed_at is None
        and _read_time(end.active) >= last_reset
    ]
    return max(living)[3] if living else None


class _Candidate(NamedTuple):
    """A session that a chat may have used last: the live session of a conversation with that chat as its
    origin."""

    session_id: str
    active: Any
    started_at: Any
    ended_at: Any
    end_reason: str | None
    trashed_at: float | None
    reset_at: Any
    """The time at which a reset replaced this session by another. None if no reset did so."""

    @property
    def was_reset(self) -> bool:
        """Return whether a reset ended this session. False if the session is open: the reset was then undone,
        and the session was resumed."""
        ended = self.ended_at is not None
        return ended and (self.reset_at is not None or self.end_reason in RESET_REASONS)


def _is_of_chat(row: Row, chat: Chat, session_key: str | None) -> bool:
    """Return whether the session in `row`, whose origin is `chat`, belongs to the participant of `chat`. If
    `chat` has no participant, return whether everybody in the chat shares the session.

    The row of a shared session can name a user, the person who wrote first. Such a session is recognised as
    shared by its owner, or by its session key.
    """
    _, user, owner, known_key = row
    if session_key is not None and known_key == session_key:
        return True
    room = Principal(chat.platform, chat=chat.chat_id, thread=chat.thread_id).room
    shared = bool(room) and owner == room
    if chat.participant:
        return bool(user == chat.participant) and not shared
    return shared or user is None or chat.chat_type == "dm"


def _read_time(value: object) -> float:
    """Return a stored time. If another program stored a value that is not a number, return a time long
    ago."""
    return float(value) if isinstance(value, int | float) else _LONG_AGO
