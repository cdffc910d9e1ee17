"""Source of the mirror files: changed sessions, their current state, and the chats.

This module only reads, and it covers the whole store. Changes are not recorded. Instead, each session has an
outline, a tuple of values from its rows. Every operation that affects a mirror file also changes the outline. A
session may have changed if its outline differs from the one that was read before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, LiteralString, NamedTuple

from hermes.store.chats.routing import Route, make_route
from hermes.store.columns import SESSIONS, list_session_names
from hermes.store.content import format_uid
from hermes.store.engine import Access, Row
from hermes.store.sessions.lineage import MEMBERS, ROOT
from hermes.store.sessions.messages import decode_row
from hermes.store.sessions.sessions import EXISTS
from hermes.store.statements import join_columns

NOT_MIRRORED = ("id", "message_count", "tool_call_count")
COLUMNS = (
    "trashed_at",
    *list_session_names(lambda column: column.is_imported and column.name not in NOT_MIRRORED),
)
LARGE = ("system_prompt", *(column.name for column in SESSIONS if column.kind in ("json", "mapping")))
"""Columns that are too large to be read for every session in the search for changes."""
SMALL_COLUMNS = join_columns("s." + name for name in COLUMNS if name not in LARGE)
LARGE_COLUMNS = join_columns("s." + name for name in COLUMNS if name in LARGE)
# Values that are not mirrored but change when messages are added, deleted or rewound.
TELLING: LiteralString = """s.message_count, s.tool_call_count, s.last_active,
    (SELECT max(m.id) FROM messages m WHERE m.session_id = s.id)"""

# A conversation with a chat, or one that was handed over from a terminal to a chat.
IN_A_CHAT: LiteralString = """(? OR s.chat_type IS NOT NULL OR s.handoff_platform IS NOT NULL OR EXISTS
    (SELECT 1 FROM sessions t JOIN routing r ON r.session_id = t.id WHERE t.root_id = s.root_id))"""
OUTLINES = " ".join(
    (
        "SELECT s.id,",
        SMALL_COLUMNS,
        ",",
        TELLING,
        "FROM sessions s WHERE s.id > ? AND",
        IN_A_CHAT,
        "ORDER BY s.id LIMIT ?",
    )
)
CARRIED_BETWEEN = """SELECT session_id, position, first_message_id, last_message_id FROM carried_context
    WHERE session_id > ? AND session_id <= ? ORDER BY session_id, position"""
TAGS_BETWEEN = (
    "SELECT session_id, tag FROM tags WHERE session_id > ? AND session_id <= ? ORDER BY session_id, tag"
)

NEWER = "SELECT id, session_id FROM messages WHERE id > ? ORDER BY id LIMIT ?"
HIGHEST = "SELECT coalesce(max(id), 0) FROM messages"
IS_IN_A_CHAT = " ".join(("SELECT 1 FROM sessions s WHERE s.id = ? AND", IN_A_CHAT))
PARENT = "SELECT parent_session_id FROM sessions WHERE id = ?"

OUTLINE_OF = " ".join(("SELECT s.id,", SMALL_COLUMNS, ",", TELLING, "FROM sessions s WHERE s.id = ?"))
SESSION = " ".join(("SELECT s.id,", SMALL_COLUMNS, ",", LARGE_COLUMNS, "FROM sessions s WHERE s.id = ?"))
CARRIED = """SELECT position, first_message_id, last_message_id FROM carried_context WHERE session_id = ?
    ORDER BY position"""
TAGS = "SELECT tag FROM tags WHERE session_id = ? ORDER BY tag"
MARKS = "SELECT id, uid, active, rewound_at FROM messages WHERE session_id = ? ORDER BY id"
MESSAGE = "SELECT * FROM messages WHERE id = ? AND session_id = ?"
CALLS = """SELECT id, at, model, provider, base_url, purpose, input_tokens, output_tokens, cache_read_tokens,
    cache_write_tokens, reasoning_tokens, estimated_cost_usd, actual_cost_usd, cost_status, cost_source,
    pricing_version FROM model_usage WHERE session_id = ? AND id > ? ORDER BY id"""

CHATS = """SELECT r.session_key, r.platform, r.chat_type, r.chat_id, r.thread_id, r.participant, r.session_id,
        r.created_at, r.updated_at, r.entry_json, s.user_id, s.display_name, s.origin_json, s.input_tokens,
        s.output_tokens, s.cache_read_tokens, s.cache_write_tokens, s.estimated_cost_usd, s.cost_status,
        s.last_active
    FROM routing r JOIN sessions s ON s.id = r.session_id AND s.trashed_at IS NULL ORDER BY r.session_key"""

# Values that show cheaply whether a chat may have changed.
CHATS_STATE = """SELECT (SELECT max(id) FROM messages), (SELECT count(*) FROM routing),
    (SELECT max(updated_at) FROM routing)"""

Mark = tuple[str | None, int, float | None]
"""The uid of a message, whether it is active, and when it was rewound."""


class SessionSnapshot(NamedTuple):
    """The current state of a session without its messages."""

    columns: dict[str, Any]
    outline: Row
    carries: list[list[int]]
    """The ranges of message ids that the session carries, in order."""
    set_aside: list[list[int]]
    """The carried ranges that a rewind set aside."""
    tags: list[str]
    calls: list[dict[str, Any]]
    marks: dict[int, Mark]


class MirroredChat(NamedTuple):
    """The route of a chat, with some columns of the session that the chat is in."""

    route: Route
    user_id: str | None
    display_name: str | None
    origin_json: str | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    estimated_cost_usd: float | None
    cost_status: str | None
    last_active: float | None
    """The time of the session's last message."""

    @classmethod
    def from_row(cls, row: Row) -> MirroredChat:
        return cls(make_route(row[:10]), *row[10:])


class MirrorSource:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def find_highest_id(self) -> int:
        """Return the id of the newest message, or 0 if there are no messages."""
        with self._engine.read() as reader:
            return int(reader.value(HIGHEST))

    def list_changed(self, after: int, limit: int, *, everybody: bool) -> tuple[int, list[str]]:
        """Read up to `limit` messages with an id above `after`. Return (id of the last message read, ids of the
        sessions that contain these messages). If no message was read, the first value is `after`.

        Sessions that are in no chat are left out, unless `everybody` is true.
        """
        with self._engine.read() as reader:
            rows = reader.rows(NEWER, after, limit)
            changed = dict.fromkeys(row[1] for row in rows)
            mirrored = [
                session_id for session_id in changed if reader.value(IS_IN_A_CHAT, session_id, everybody)
            ]
        return (rows[-1][0] if rows else after), mirrored

    def list_outlines(self, after: str, limit: int, *, everybody: bool) -> list[tuple[str, Row]]:
        """Return (session id, outline) of up to `limit` sessions whose id is greater than `after`, in order of
        id.

        Sessions that are in no chat are left out, unless `everybody` is true.
        """
        with self._engine.read(settled=True) as reader:
            rows = reader.rows(OUTLINES, after, everybody, limit)
            if not rows:
                return []
            last = rows[-1][0]
            carried = _group_by_session(reader.rows(CARRIED_BETWEEN, after, last))
            tags = _group_by_session(reader.rows(TAGS_BETWEEN, after, last))
        return [(row[0], (*row, carried.get(row[0], ()), tags.get(row[0], ()))) for row in rows]

    def has_session(self, session_id: str) -> bool:
        with self._engine.read() as reader:
            return bool(reader.value(EXISTS, session_id))

    def list_related(self, session_id: str) -> list[str]:
        """Return the ids of the sessions in the conversation of `session_id`. The parent of the conversation's
        first session is included, if there is one."""
        with self._engine.read(settled=True) as reader:
            root = reader.value(ROOT, session_id)
            members = [row[0] for row in reader.rows(MEMBERS, root)]
            above = reader.value(PARENT, root)
        return members if above is None or above in members else [above, *members]

    def read_session(self, session_id: str, calls_after: int = 0) -> SessionSnapshot | None:
        """Return the state of a session, with its model calls whose id is above `calls_after`. None if the
        session does not exist."""
        with self._engine.read(settled=True) as reader:
            columns, outline = reader.dict(SESSION, session_id), reader.row(OUTLINE_OF, session_id)
            if columns is None or outline is None:
                return None
            tags, carried = tuple(reader.rows(TAGS, session_id)), tuple(reader.rows(CARRIED, session_id))
            return SessionSnapshot(
                columns,
                (*outline, carried, tags),
                [[first, last] for position, first, last in carried if position >= 0],
                [[first, last] for position, first, last in carried if position < 0],
                [tag for (tag,) in tags],
                reader.dicts(CALLS, session_id, calls_after),
                {row[0]: _make_mark(row) for row in reader.rows(MARKS, session_id)},
            )

    def read_messages(self, session_id: str, ids: Sequence[int]) -> list[dict[str, Any]]:
        """Return those messages of a session that have one of these ids and still exist, in the format of an
        export."""
        with self._engine.read() as reader:
            rows = (reader.dict(MESSAGE, message_id, session_id) for message_id in ids)
            return [decode_row(reader, row) for row in rows if row is not None]

    def read_chats_state(self) -> Row | None:
        """Return a value that changes when a message is stored or a chat is added, moved or removed. Reading
        the value is cheap."""
        with self._engine.read() as reader:
            return reader.row(CHATS_STATE)

    def list_chats(self) -> list[Row]:
        """Return a row for every chat, in order of session key. `MirroredChat.from_row` decodes a row."""
        with self._engine.read() as reader:
            return reader.rows(CHATS)


def _group_by_session(rows: list[Row]) -> dict[str, tuple[Row, ...]]:
    return {
        session_id: tuple(row[1:] for row in group)
        for session_id, group in groupby(rows, key=lambda row: row[0])
    }


def _make_mark(row: Row) -> Mark:
    return format_uid(row[1]), row[2], row[3]
