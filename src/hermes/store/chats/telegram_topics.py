"""Telegram topics: the private chats that use them, and the session of each topic.

The two tables are created when topics are first enabled. Readers never create them; a row in `state_meta`
says whether they exist. If another program created the tables, they are rebuilt before the first write,
whatever columns they have. Rows whose session no longer exists are dropped.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from hermes import clock, errors
from hermes.store import meta
from hermes.store.arguments import check_integer, require_text
from hermes.store.engine import Engine, Reader, Writer
from hermes.store.sessions.listing import project_tip
from hermes.store.sessions.sessions import EXISTS, LIVE, SELECT_ROW

VERSION_KEY, VERSION = "telegram_dm_topic_schema_version", "2"
COMPLETE_KEY = "telegram_dm_topic_columns"
"""The key in `state_meta` that is set once the tables have every column below. Tables of version 2 that
another program created may lack some of these columns."""

CREATE_MODE = """CREATE TABLE IF NOT EXISTS telegram_dm_topic_mode (
    chat_id TEXT PRIMARY KEY,
    user_id TEXT NOT NULL,
    enabled INTEGER NOT NULL DEFAULT 1,
    has_topics_enabled INTEGER,
    allows_users_to_create_topics INTEGER,
    activated_at REAL,
    updated_at REAL
)"""
CREATE_BINDINGS = """CREATE TABLE IF NOT EXISTS telegram_dm_topic_bindings (
    chat_id TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    session_key TEXT NOT NULL,
    session_id TEXT NOT NULL UNIQUE REFERENCES sessions(id) ON DELETE CASCADE,
    managed_mode TEXT NOT NULL DEFAULT 'auto',
    linked_at REAL,
    updated_at REAL,
    PRIMARY KEY (chat_id, thread_id)
)"""
OPTIONAL = frozenset(
    [
        *("enabled", "has_topics_enabled", "allows_users_to_create_topics", "activated_at", "managed_mode"),
        *("linked_at", "updated_at"),
    ]
)
"""Columns that the tables of another program may lack."""
ALL_MODES = "SELECT * FROM telegram_dm_topic_mode"
ALL_BINDINGS = "SELECT * FROM telegram_dm_topic_bindings"
DROP_MODE = "DROP TABLE telegram_dm_topic_mode"
DROP_BINDINGS = "DROP TABLE telegram_dm_topic_bindings"
KEEP_MODE = """INSERT INTO telegram_dm_topic_mode (chat_id, user_id, enabled, has_topics_enabled,
        allows_users_to_create_topics, activated_at, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
KEEP_BINDING = """INSERT INTO telegram_dm_topic_bindings (chat_id, thread_id, user_id, session_key, session_id,
        managed_mode, linked_at, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""

ENABLE = """INSERT INTO telegram_dm_topic_mode (chat_id, user_id, enabled, has_topics_enabled,
        allows_users_to_create_topics, activated_at, updated_at)
    VALUES (?, ?, 1, ?, ?, ?, ?)
    ON CONFLICT (chat_id) DO UPDATE SET user_id = excluded.user_id, enabled = 1,
        has_topics_enabled = coalesce(excluded.has_topics_enabled, telegram_dm_topic_mode.has_topics_enabled),
        allows_users_to_create_topics =
            coalesce(excluded.allows_users_to_create_topics, telegram_dm_topic_mode.allows_users_to_create_topics),
        activated_at = CASE WHEN telegram_dm_topic_mode.enabled = 1
            THEN coalesce(telegram_dm_topic_mode.activated_at, excluded.activated_at) ELSE excluded.activated_at END,
        updated_at = excluded.updated_at"""
DISABLE = "UPDATE telegram_dm_topic_mode SET enabled = 0 WHERE chat_id = ?"
UNBIND_CHAT = "DELETE FROM telegram_dm_topic_bindings WHERE chat_id = ?"
IS_ENABLED = "SELECT 1 FROM telegram_dm_topic_mode WHERE chat_id = ? AND user_id = ? AND enabled = 1"
BIND = """INSERT INTO telegram_dm_topic_bindings (chat_id, thread_id, user_id, session_key, session_id, managed_mode,
        linked_at, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (chat_id, thread_id) DO UPDATE SET user_id = excluded.user_id, session_key = excluded.session_key,
        session_id = excluded.session_id, managed_mode = excluded.managed_mode, updated_at = excluded.updated_at,
        linked_at = CASE WHEN telegram_dm_topic_bindings.session_id = excluded.session_id
            THEN coalesce(telegram_dm_topic_bindings.linked_at, excluded.linked_at) ELSE excluded.linked_at END"""
BINDING = "SELECT * FROM telegram_dm_topic_bindings WHERE chat_id = ? AND thread_id = ?"
WHERE_BOUND = "SELECT chat_id, thread_id FROM telegram_dm_topic_bindings WHERE session_id = ?"
BOUND_ROOTS = """SELECT s.root_id FROM telegram_dm_topic_bindings b JOIN sessions s ON s.id = b.session_id"""
UNBIND_SESSION = "DELETE FROM telegram_dm_topic_bindings WHERE session_id = ?"
# One row per conversation, as in lists. A conversation is linked to a topic if any of its sessions is.
OF_USER = """SELECT id, root_id FROM sessions
    WHERE listed = 1 AND source = 'telegram' AND user_id = ? AND trashed_at IS NULL
    ORDER BY conversation_active DESC NULLS LAST, started_at DESC, id DESC"""


class TelegramTopics:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def enable_telegram_topic_mode(
        self,
        *,
        chat_id: str | int,
        user_id: str | int,
        has_topics_enabled: bool | None = None,
        allows_users_to_create_topics: bool | None = None,
    ) -> None:
        at = clock.now()
        able = (_encode_flag(has_topics_enabled), _encode_flag(allows_users_to_create_topics))
        values = (_check_id("chat_id", chat_id), _check_id("user_id", user_id), *able, at, at)

        def work(writer: Writer) -> None:
            _ensure_tables(writer)
            writer.run(ENABLE, *values)

        self._engine.write(work, share=False)

    def disable_telegram_topic_mode(self, *, chat_id: str | int, clear_bindings: bool = True) -> None:
        chat = _check_id("chat_id", chat_id)

        def work(writer: Writer) -> None:
            if not has_tables(writer):
                return
            writer.run(DISABLE, chat)
            if clear_bindings:
                writer.run(UNBIND_CHAT, chat)

        self._engine.write(work)

    def is_telegram_topic_mode_enabled(self, *, chat_id: str | int, user_id: str | int) -> bool:
        with self._engine.read() as reader:
            return has_tables(reader) and bool(reader.value(IS_ENABLED, str(chat_id), str(user_id)))

    def get_telegram_topic_binding(
        self, *, chat_id: str | int, thread_id: str | int
    ) -> dict[str, Any] | None:
        with self._engine.read() as reader:
            return reader.dict(BINDING, str(chat_id), str(thread_id)) if has_tables(reader) else None

    def bind_telegram_topic(
        self,
        *,
        chat_id: str | int,
        thread_id: str | int,
        user_id: str | int,
        session_key: str,
        session_id: str,
        managed_mode: str = "auto",
    ) -> None:
        """Bind a topic to a session. This replaces the topic's former session. A session can be bound to one
        topic only."""
        at = clock.now()
        topic = (_check_id("chat_id", chat_id), _check_id("thread_id", thread_id))
        session = require_text("session_id", session_id)
        key, mode = require_text("session_key", session_key), require_text("managed_mode", managed_mode)
        values = (*topic, _check_id("user_id", user_id), key, session, mode, at, at)

        def work(writer: Writer) -> None:
            _ensure_tables(writer)
            if not writer.value(LIVE, session):
                raise errors.make_error(errors.UnknownSession, f"session {session!r} does not exist")
            bound = writer.row(WHERE_BOUND, session)
            if bound is not None and tuple(bound) != topic:
                raise errors.InvalidArgument(
                    f"session {session!r} is already linked to topic {bound[1]} of chat {bound[0]}"
                )
            writer.run(BIND, *values)

        self._engine.write(work, share=False)

    def is_telegram_session_linked_to_topic(self, *, session_id: str) -> bool:
        with self._engine.read() as reader:
            return has_tables(reader) and reader.row(WHERE_BOUND, session_id) is not None

    def list_unlinked_telegram_sessions_for_user(
        self, *, chat_id: str | int, user_id: str | int, limit: int = 10
    ) -> list[dict[str, Any]]:
        """Return a person's conversations that are not bound to a topic in any chat, newest activity
        first."""
        bindings: list[dict[str, Any]] = []
        most = max(0, check_integer("limit", limit))
        with self._engine.read(settled=True) as reader:
            linked = list_linked_conversations(reader)
            unlinked = (first for first, root in reader.rows(OF_USER, str(user_id)) if root not in linked)
            for session_id in islice(unlinked, most):
                row = reader.dict(SELECT_ROW, session_id)
                assert row is not None
                bindings.append(_make_binding(reader, row))
        return bindings


def has_tables(reader: Reader) -> bool:
    return reader.value(meta.GET, VERSION_KEY) is not None


def list_linked_conversations(reader: Reader) -> set[str]:
    """Return the roots of the conversations that are bound to a topic."""
    return {row[0] for row in reader.rows(BOUND_ROOTS)} if has_tables(reader) else set()


def unbind_session(writer: Writer, session_id: str) -> None:
    """Delete the binding of a session that is about to be deleted. This is needed for tables of version 1, in
    which the deletion of a session does not delete its binding (no cascade)."""
    if has_tables(writer):
        writer.run(UNBIND_SESSION, session_id)


def _ensure_tables(writer: Writer) -> None:
    if not writer.value(meta.GET, COMPLETE_KEY) or writer.value(meta.GET, VERSION_KEY) != VERSION:
        create_tables(writer)


def create_tables(writer: Writer) -> None:
    """Create the tables, or rebuild existing ones, with every column. Existing rows are kept, except bindings
    of deleted sessions."""
    writer.run(CREATE_MODE)
    writer.run(CREATE_BINDINGS)
    modes, bindings = writer.dicts(ALL_MODES), writer.dicts(ALL_BINDINGS)
    writer.run(DROP_MODE)
    writer.run(DROP_BINDINGS)
    writer.run(CREATE_MODE)
    writer.run(CREATE_BINDINGS)
    at = clock.now()
    for row in modes:
        able = (row.get("has_topics_enabled"), row.get("allows_users_to_create_topics"))
        enabled = row.get("enabled", 1)
        times = (row.get("activated_at", at), row.get("updated_at", at))
        writer.run(KEEP_MODE, str(row["chat_id"]), str(row["user_id"]), enabled, *able, *times)
    for row in bindings:
        if writer.value(EXISTS, row["session_id"]):
            topic = (str(row["chat_id"]), str(row["thread_id"]), str(row["user_id"]))
            mode, times = (
                row.get("managed_mode") or "auto",
                (row.get("linked_at", at), row.get("updated_at", at)),
            )
            writer.run(KEEP_BINDING, *topic, row["session_key"], row["session_id"], mode, *times)
    writer.run(meta.SET, VERSION_KEY, VERSION)
    writer.run(meta.SET, COMPLETE_KEY, "1")


def _make_binding(reader: Reader, row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a conversation that is bound to a topic. As in a list of sessions, it has the values of
    the live session."""
    row = project_tip(reader, row)
    row["preview"] = row["preview"] or ""
    if row["last_active"] is None:
        row["last_active"] = row["started_at"]
    return row


def _check_id(name: str, value: object) -> str:
    """Return the id of a chat, topic or person as text. It can be passed as a number."""
    return require_text(name, None if value is None else str(value))


def _encode_flag(value: bool | None) -> int | None:
    return None if value is None else int(bool(value))
