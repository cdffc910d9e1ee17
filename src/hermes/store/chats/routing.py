"""Routing: the current session of each chat.

A chat is identified by platform, type, chat, thread and participant. The session key is only a name for the
chat. If a chat gets another key, its route is updated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from hermes import clock, errors
from hermes.store import derived
from hermes.store.arguments import check_optional_id, check_optional_integer, check_time, require_text
from hermes.store.chats import origins
from hermes.store.chats.origins import Chat
from hermes.store.content import decode_document, encode_document
from hermes.store.engine import Access, Reader, Row, Writer
from hermes.store.people import Principal
from hermes.store.sessions.lineage import find_tip
from hermes.store.sessions.messages import check_fence
from hermes.store.sessions.owners import give_conversation
from hermes.store.sessions.sessions import END, REOPEN, check_source
from hermes.store.sessions.titles import clear_title

# Routes to a session that is deleted or in the trash are ignored.
ROUTES = """SELECT r.session_key, r.platform, r.chat_type, r.chat_id, r.thread_id, r.participant, r.session_id,
        r.created_at, r.updated_at, r.entry_json
    FROM routing r JOIN sessions s ON s.id = r.session_id AND s.trashed_at IS NULL"""
BY_KEY = " ".join((ROUTES, "WHERE r.session_key = ?"))
BY_CHAT = " ".join(
    (
        ROUTES,
        "WHERE r.platform = ? AND r.chat_type = ? AND r.chat_id = ? AND r.thread_id = ? AND r.participant = ?",
    )
)
BY_ORIGIN = " ".join(
    (
        ROUTES,
        "WHERE r.platform = ? AND r.chat_id = ? AND (? IS NULL OR r.thread_id = ?)",
        "ORDER BY r.updated_at DESC, r.session_key",
    )
)
BY_SESSION = " ".join((ROUTES, "WHERE r.session_id = ? ORDER BY r.updated_at DESC, r.session_key"))
SINCE = " ".join((ROUTES, "WHERE ? IS NULL OR r.updated_at >= ? ORDER BY r.updated_at DESC, r.session_key"))

CLOCKS = """SELECT r.session_key, r.platform, r.chat_type, r.thread_id, s.last_person_at
    FROM routing r JOIN sessions s ON s.id = r.session_id AND s.trashed_at IS NULL
    WHERE s.last_person_at IS NOT NULL"""

CHAT_OF = "SELECT platform, chat_type, chat_id, thread_id, participant FROM routing WHERE session_key = ?"
SESSION_OF = """SELECT r.session_id, s.id, s.trashed_at FROM routing r LEFT JOIN sessions s ON s.id = r.session_id
    WHERE r.session_key = ?"""
NEWEST_IS_TRASHED = """SELECT trashed_at IS NOT NULL FROM sessions WHERE session_key = ?
    ORDER BY coalesce(last_active, started_at) DESC, id DESC LIMIT 1"""
# The session has no messages of its own and carries none.
IS_EMPTY = """SELECT 1 FROM sessions s WHERE s.id = ?
    AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)
    AND NOT EXISTS (SELECT 1 FROM carried_context c WHERE c.session_id = s.id)"""
LIVING = "SELECT 1 FROM sessions WHERE id = ? AND trashed_at IS NULL"
PUT = """INSERT INTO routing (session_key, platform, chat_type, chat_id, thread_id, participant, session_id, created_at,
        updated_at, entry_json)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, coalesce(?, '{}'))
    ON CONFLICT (platform, chat_type, chat_id, thread_id, participant) DO UPDATE SET
        session_key = excluded.session_key, session_id = excluded.session_id, updated_at = excluded.updated_at,
        entry_json = coalesce(?, routing.entry_json)"""
POINT = "UPDATE routing SET session_id = ? WHERE session_key = ?"
SWITCH = "UPDATE routing SET session_id = ?, updated_at = ? WHERE session_key = ?"
MOVE = "UPDATE routing SET session_id = ?, updated_at = ? WHERE session_id = ?"
MOVE_ONE = "UPDATE routing SET session_id = ?, updated_at = ? WHERE session_id = ? AND session_key = ?"
ELSEWHERE = "SELECT 1 FROM routing WHERE session_id = ? AND session_key <> ? LIMIT 1"
SET_ENTRY = "UPDATE routing SET entry_json = ?, updated_at = ? WHERE session_key = ?"
REMOVE = "DELETE FROM routing WHERE session_key = ?"
LEAVE = "DELETE FROM routing WHERE session_id = ?"

CONTINUES = """SELECT p.id FROM sessions s JOIN sessions p ON p.id = s.parent_session_id
    WHERE s.id = ? AND s.relation = 'compression' AND p.trashed_at IS NULL"""
POINT_BACK = "UPDATE routing SET session_id = ? WHERE session_id = ?"
KEY_OF = """SELECT session_key FROM routing
    WHERE platform = ? AND chat_type = ? AND chat_id = ? AND thread_id = ? AND participant = ?"""
REKEY = (
    """UPDATE inbox SET session_key = ? WHERE session_key = ? AND NOT EXISTS (SELECT 1 FROM inbox i
        WHERE i.platform = inbox.platform AND i.session_key = ?1
        AND i.platform_message_id = inbox.platform_message_id)""",
    "UPDATE outbox SET session_key = ? WHERE session_key = ?",
)
IN_CHAT = (
    "SELECT session_key, chat_type, thread_id, participant FROM routing WHERE platform = ? AND chat_id = ?"
)
CHANGE_CHAT_ID = "UPDATE routing SET chat_id = ?, updated_at = ? WHERE session_key = ?"
CHANGE_ORIGIN = "UPDATE sessions SET chat_id = ? WHERE source = ? AND chat_id = ?"
OF_OWNER = "SELECT id FROM sessions WHERE owner = ?"


class Route(NamedTuple):
    session_key: str
    platform: str
    chat_type: str
    chat_id: str
    thread_id: str
    participant: str
    session_id: str
    created_at: float
    updated_at: float
    entry: dict[str, Any]
    """Data of the gateway about the chat. The store does not interpret it."""


class ChatClock(NamedTuple):
    """The names of a chat, and the time of the last message that a person wrote in it."""

    session_key: str
    platform: str
    chat_type: str
    thread_id: str
    last_person_at: float


class Routing:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def route(
        self,
        session_key: str,
        platform: str,
        chat_type: str,
        chat_id: str | int | None,
        thread_id: str | int | None,
        participant: str | int | None,
        session_id: str,
        entry: Mapping[str, Any] | None = None,
    ) -> Route:
        """Route a chat to the session `session_id`, and return the route. `entry` is a mapping that the gateway
        stores with the route. If it is None, the mapping that is already stored is kept."""
        key, session = require_text("session_key", session_key), require_text("session_id", session_id)
        chat = Chat.of(platform, chat_type, chat_id, thread_id, participant)
        entry_json, at = None if entry is None else encode_document("entry", entry), clock.now()

        def work(writer: Writer) -> Route:
            _require_session(writer, session)
            live = find_tip(writer, session)
            known_key = writer.value(KEY_OF, *chat)
            # Inbox and outbox entries with the old key belong to the same chat.
            if known_key is not None and known_key != key:
                for sql in REKEY:
                    writer.run(sql, key, known_key)
            other = writer.row(CHAT_OF, key)
            # If two chats had the same key, one chat would be answered in the session of the other.
            if other is not None and tuple(other) != chat:
                raise errors.make_error(
                    errors.InvalidArgument, f"the session key {key!r} belongs to another chat"
                )
            writer.run(PUT, key, *chat, live, at, at, entry_json, entry_json)
            origins.remember_chat(writer, live, key, chat)
            return _require_route(writer.row(BY_KEY, key))

        return self._engine.write(work)

    def get(self, session_key: str) -> Route | None:
        with self._engine.read() as reader:
            return _make_optional_route(reader.row(BY_KEY, session_key))

    def find_chat(self, session_key: str) -> Chat | None:
        """Return the chat with this key, even if the chat's session is deleted or in the trash. None if there
        is no such chat."""
        with self._engine.read() as reader:
            row = reader.row(CHAT_OF, session_key)
        return None if row is None else Chat._make(row)

    def was_trashed(self, session_key: str) -> bool:
        """Return whether the last session created for the chat with this key is in the trash."""
        with self._engine.read() as reader:
            return bool(reader.value(NEWEST_IS_TRASHED, session_key))

    def find(
        self,
        platform: str,
        chat_type: str,
        chat_id: str | int | None,
        thread_id: str | int | None = "",
        participant: str | int | None = "",
    ) -> Route | None:
        """Return the route of a chat whose session key is not known, or None if there is none."""
        chat = Chat.of(platform, chat_type, chat_id, thread_id, participant)
        with self._engine.read() as reader:
            return _make_optional_route(reader.row(BY_CHAT, *chat))

    def find_by_origin(
        self,
        platform: str,
        chat_id: str | int,
        thread_id: str | int | None = None,
        participant: str | int | None = None,
    ) -> Route | None:
        """Return the route of a chat, found by the ids that its platform uses. If several participants of the
        chat have routes, return the route of `participant`. If `participant` has no route, return the route
        that everybody in the chat shares, or None if there is none. If `participant` is None and several
        participants have routes, return None."""
        thread, person = (
            check_optional_id("thread_id", thread_id),
            check_optional_id("participant", participant),
        )
        with self._engine.read() as reader:
            rows = reader.rows(
                BY_ORIGIN, check_source(platform), check_optional_id("chat_id", chat_id) or "", thread, thread
            )
        routes = [_require_route(row) for row in rows]
        exact = [route for route in routes if route.participant == person]
        if not exact and person is not None:  # not the route of somebody else, but one that all share
            exact = routes = [route for route in routes if not route.participant]
        if not exact and len({route.participant for route in routes}) > 1:
            return None
        return next(iter(exact or routes), None)

    def list_by_session(self, session_id: str) -> list[Route]:
        with self._engine.read() as reader:
            return [_require_route(row) for row in reader.rows(BY_SESSION, session_id)]

    def list_routes(self, active_since: float | None = None) -> list[Route]:
        """Return the routes of all chats, or of the chats used since `active_since`, newest first."""
        since = None if active_since is None else check_time("active_since", active_since)
        with self._engine.read() as reader:
            return [_require_route(row) for row in reader.rows(SINCE, since, since)]

    def list_clocks(self) -> list[ChatClock]:
        """Return, for each chat, the time of the last message that a person wrote. The reset policy uses
        it."""
        with self._engine.read(settled=True) as reader:
            return [ChatClock._make(row) for row in reader.rows(CLOCKS)]

    def switch(self, session_key: str, session_id: str, *, lease_epoch: int | None = None) -> Route | None:
        """Switch a chat to another conversation: end the chat's old session, and reopen the live session of
        the conversation of `session_id`.

        The old session stays open if another chat is in it. If it ends and is empty, its title is removed.
        Return None if the chat does not exist. `lease_epoch` is the epoch of the conversation that the chat
        leaves.
        """
        key, target_id, at = session_key, require_text("session_id", session_id), clock.now()
        epoch = check_optional_integer("lease_epoch", lease_epoch)

        def work(writer: Writer) -> Route | None:
            row = writer.row(SESSION_OF, key)
            if row is None:
                return None
            now, target = find_tip(writer, row[0]), find_tip(writer, target_id)
            if epoch is not None:
                check_fence(writer, now, epoch)
            _require_session(writer, target)
            if target == now:
                writer.run(POINT, target, key)
            else:
                _leave_session(writer, now, key, at)
                writer.run(REOPEN, target)
                writer.run(SWITCH, target, at, key)
                derived.refresh(writer)
            return _require_route(writer.row(BY_KEY, key))

        return self._engine.write(work)

    def hand_over(
        self,
        session_key: str,
        platform: str,
        chat_type: str,
        chat_id: str | int | None,
        thread_id: str | int | None,
        participant: str | int | None,
        session_id: str,
        owner: str,
    ) -> Route:
        """Assign a conversation to `owner` and continue it in the given chat. The chat's previous session
        ends.

        Chats of former owners lose their routes to the conversation. The next message in such a chat starts a
        new conversation.
        """
        key, target_id = require_text("session_key", session_key), require_text("session_id", session_id)
        theirs = require_text("owner", owner)
        chat = Chat.of(platform, chat_type, chat_id, thread_id, participant)
        at = clock.now()

        def work(writer: Writer) -> Route:
            _require_session(writer, target_id)
            live = find_tip(writer, target_id)
            known_route, spelled = writer.row(BY_CHAT, *chat), writer.value(KEY_OF, *chat)
            before = None if known_route is None else find_tip(writer, known_route[6])
            for member in give_conversation(writer, live, theirs).changed:
                writer.run(LEAVE, member)
            if before is not None and before != live:
                writer.run(END, at, "session_switch", before)
            writer.run(REOPEN, live)
            writer.run(PUT, spelled or key, *chat, live, at, at, None, None)
            derived.refresh(writer)
            return _require_route(writer.row(BY_CHAT, *chat))

        return self._engine.write(work)

    def change_chat_id(self, platform: str, chat_id: str, new_chat_id: str) -> list[str]:
        """Record that the platform changed the id of a chat. Return the keys of the routes that changed.

        The keys stay the same. The conversations that everybody in the chat shares now belong to the chat
        with the new id. If a chat with the new id already has a conversation with messages, it keeps that
        conversation, and the route of the old chat does not change.
        """
        source, old = check_source(platform), require_text("chat_id", chat_id)
        new, at = require_text("new_chat_id", new_chat_id), clock.now()

        def work(writer: Writer) -> list[str]:
            derived.settle(writer)
            rows = writer.rows(IN_CHAT, source, old)
            keys = []
            for key, chat_type, thread, participant in rows:
                taken = writer.value(KEY_OF, source, chat_type, new, thread, participant)
                if taken is not None:
                    if not writer.value(IS_EMPTY, writer.value(SESSION_OF, taken)):
                        continue
                    writer.run(REMOVE, taken)
                    for sql in REKEY:
                        writer.run(sql, key, taken)
                writer.run(CHANGE_CHAT_ID, new, at, key)
                keys.append(str(key))
            writer.run(CHANGE_ORIGIN, new, source, old)
            for thread in {"", *(row[2] for row in rows)}:
                before, after = (Principal(source, chat=chat, thread=thread).room for chat in (old, new))
                for (session_id,) in writer.rows(OF_OWNER, before):
                    give_conversation(writer, session_id, after)
            derived.refresh(writer)
            return keys

        return self._engine.write(work, share=False)

    def change_entry(
        self, session_key: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]
    ) -> Route | None:
        """Change the mapping `entry` that the gateway stores with the route of a chat, in one transaction.
        `change` gets the stored mapping and returns the new one. Return the changed route, or None if no chat
        has this session key."""

        def work(writer: Writer) -> Route | None:
            route = _make_optional_route(writer.row(BY_KEY, session_key))
            if route is None:
                return None
            text = encode_document("entry", change(dict(route.entry)))
            writer.run(SET_ENTRY, text, clock.now(), session_key)
            return _make_optional_route(writer.row(BY_KEY, session_key))

        return self._engine.write(work)

    def remove(self, session_key: str) -> bool:
        return self._engine.write(lambda writer: writer.run(REMOVE, session_key)) > 0

    def find_live_session(self, session_key: str) -> str | None:
        """Return the live session of a chat: the newest session of its conversation. If the route of the chat
        is out of date, correct it. Return None if the chat has no route, or if its session is deleted or in
        the trash."""
        with self._engine.read(settled=True) as reader:
            live, lags = _locate_session(reader, session_key)
        if not lags or self._engine.read_only:
            return live
        return self._engine.write(lambda writer: _correct_route(writer, session_key))

    def recover(
        self,
        platform: str,
        chat_type: str,
        chat_id: str | int | None,
        thread_id: str | int | None = "",
        participant: str | int | None = "",
        *,
        session_key: str | None = None,
    ) -> str | None:
        """Find the session of a chat whose route was lost. The session is found by its origin, which is the
        chat that it was created for.

        An open session is preferred to an ended one, then the most recently used one. Sessions last used
        before the chat's last reset are ignored. If no session remains, return None; the caller then starts a
        new session.
        """
        chat = Chat.of(platform, chat_type, chat_id, thread_id, participant)
        with self._engine.read(settled=True) as reader:
            return origins.find_last_used(reader, chat, session_key)


def move_chats_back(writer: Writer, session_id: str, going: Collection[str]) -> None:
    """Route the chats of a session that is about to be deleted to the previous session of the conversation.
    `going` lists all sessions that are about to be deleted. If it contains the previous session, nothing
    changes."""
    before = writer.value(CONTINUES, session_id)
    if before is not None and before not in going:
        writer.run(POINT_BACK, before, session_id)


def move_chats(writer: Writer, from_session: str, to_session: str, at: float) -> int:
    """Route every chat of `from_session` to `to_session`, in the caller's transaction. Return the number of
    chats.

    Used when a session replaces another: continuation, branch, reset.
    """
    moved = writer.run(MOVE, to_session, at, from_session)
    origins.inherit_chat(writer, from_session, to_session)
    return moved


def is_in_other_chat(reader: Reader, session_id: str, session_key: str) -> bool:
    """Return whether a chat other than `session_key` is routed to the session."""
    return bool(reader.value(ELSEWHERE, session_id, session_key))


def move_chat(writer: Writer, session_key: str, from_session: str, to_session: str, at: float) -> None:
    """Route one chat from `from_session` to the new session `to_session`, and set the origin of the new
    session to that chat."""
    writer.run(MOVE_ONE, to_session, at, from_session, session_key)
    origins.assign_chat(writer, to_session, session_key)


def _leave_session(writer: Writer, session_id: str, session_key: str, at: float) -> None:
    if not is_in_other_chat(writer, session_id, session_key):
        writer.run(END, at, "session_switch", session_id)
        if writer.value(IS_EMPTY, session_id):
            clear_title(writer, session_id)


def _locate_session(reader: Reader, session_key: str) -> tuple[str | None, bool]:
    """Return (live session of the chat with this session key, whether the route of the chat must be corrected).
    The session is None if the chat has no route, or if its session is deleted or in the trash."""
    row = reader.row(SESSION_OF, session_key)
    if row is None:
        return None, False
    routed, exists, trashed_at = row
    if exists is None:
        return None, True
    live = find_tip(reader, routed)
    if trashed_at is not None or not reader.value(LIVING, live):
        return None, False  # the route is kept: a restore from the trash makes it valid again
    return live, live != routed


def _correct_route(writer: Writer, session_key: str) -> str | None:
    live, lags = _locate_session(writer, session_key)
    if lags and live is None:
        writer.run(REMOVE, session_key)
    elif lags:
        writer.run(POINT, live, session_key)
    return live


def _require_session(reader: Reader, session_id: str) -> None:
    if not reader.value(LIVING, session_id):
        raise errors.make_error(errors.UnknownSession, f"session {session_id!r} does not exist")


def make_route(row: Row) -> Route:
    return Route._make((*row[:9], decode_document(row[9])))


def _make_optional_route(row: Row | None) -> Route | None:
    return None if row is None else make_route(row)


def _require_route(row: Row | None) -> Route:
    route = _make_optional_route(row)
    assert route is not None
    return route
