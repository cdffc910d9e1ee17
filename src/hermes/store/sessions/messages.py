"""Messages: appending, replacing, clearing and reading.

The order of messages in a session is the order of their ids, which is the order in which the store accepted
them. Timestamps do not affect it. An append is one insert and one update in one transaction. Messages that a
rewind took out (`active = 0`) are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from hermes import clock, errors
from hermes.message_content import PARTIAL, make_prompt_preview
from hermes.session_kinds import KEPT_FROM_MODELS
from hermes.store import derived
from hermes.store.arguments import (
    check_integer,
    check_mappings,
    check_optional_id,
    check_optional_integer,
    check_optional_number,
    check_time,
    require_text,
)
from hermes.store.columns import MESSAGES
from hermes.store.content import count_calls, format_uid, from_json, json_or_none
from hermes.store.engine import Access, Reader, Unreachable, Writer
from hermes.store.processes import current_record
from hermes.store.sessions import blobs, carried_context, replacement
from hermes.store.sessions.attachments import encode
from hermes.store.sessions.carried_context import COUNT_OF, SET_COUNTS
from hermes.store.sessions.sessions import IS_TRASHED, LIVE, record_process
from hermes.store.statements import join_columns, make_insert, make_update
from hermes.text import clean_replay

CHECKS: dict[str, Callable[[str, Any], object]] = {
    "text": require_text,
    "id": check_optional_id,
    "json": lambda _name, value: json_or_none(value),
    "integer": check_integer,
    "number": check_optional_number,
}
"""The function that checks and encodes a caller's value, by the kind of the column."""
WRITER_COLUMNS = [(column.name, CHECKS[column.kind]) for column in MESSAGES if column.set_by == "caller"]
NO_VALUES = [None] * len(WRITER_COLUMNS)
WRITER_NAMES = frozenset(name for name, _check in WRITER_COLUMNS)
INSERT = make_insert(
    "messages",
    (
        "session_id",
        "role",
        "content",
        "content_kind",
        "timestamp",
        "uid",
        *(name for name, _check in WRITER_COLUMNS),
    ),
)
REPLACE_PARTIAL = make_update(
    "messages", ("content", "content_kind", "timestamp", *(name for name, _check in WRITER_COLUMNS))
)
FINISH_REASON = "SELECT finish_reason, 1 FROM messages WHERE id = ? AND session_id = ?"
DROP_PARTIAL = "DELETE FROM messages WHERE id = ? AND session_id = ? AND finish_reason = 'partial'"
ADD_CALLS = "UPDATE sessions SET tool_call_count = coalesce(tool_call_count, 0) + ? WHERE id = ?"
SUBTRACT_MESSAGE = "UPDATE sessions SET message_count = coalesce(message_count, 1) - 1 WHERE id = ?"
# One statement updates the counters and the columns of lists, checks that the session exists, and checks the
# fence. A time column can hold a text that another program wrote. The comparisons with a cast detect it, and
# it is overwritten.
COUNT_IN = """UPDATE sessions SET
    message_count = coalesce(message_count, 0) + 1, tool_call_count = coalesce(tool_call_count, 0) + ?,
    last_active = CASE WHEN last_active > ? AND CAST(last_active AS DOUBLE PRECISION) = last_active
        THEN last_active ELSE ? END,
    last_person_at = CASE
        WHEN ? IS NULL OR (last_person_at > ? AND CAST(last_person_at AS DOUBLE PRECISION) = last_person_at)
        THEN last_person_at ELSE ? END,
    preview = coalesce(preview, ?),
    conversation_active = CASE
        WHEN root_id = id AND NOT coalesce(conversation_active >= ?
            AND CAST(conversation_active AS DOUBLE PRECISION) = conversation_active, FALSE) THEN ?
        ELSE conversation_active END
    WHERE id = ? AND trashed_at IS NULL AND (? IS NULL OR lease_epoch = ?) RETURNING root_id, last_active, process"""
ROOT_ACTIVE = """UPDATE sessions SET conversation_active = ?
    WHERE id = ? AND NOT coalesce(conversation_active >= ?
        AND CAST(conversation_active AS DOUBLE PRECISION) = conversation_active, FALSE)"""
# With the condition on the time, an SQL index finds the row at once, even in a long session.
STORED_ALREADY = "SELECT id FROM messages WHERE session_id = ? AND timestamp = ? AND uid = ?"

CARRIED_ROWS = """SELECT m.* FROM carried_context c JOIN messages m
    ON m.id BETWEEN c.first_message_id AND c.last_message_id
    WHERE c.session_id = ? AND c.position >= 0 ORDER BY c.position, m.id"""
OWN_ROWS = "SELECT * FROM messages WHERE session_id = ? AND active = 1 ORDER BY id"
# Detects messages that the SQL index does not find. `|| ''` makes an expression that no index covers, in every
# engine and even behind a view, so the whole table is read. The statement is therefore used only if no
# message of a session was found, although its counter says that it has some.
UNREACHED = """SELECT message_count > 0 AND EXISTS
        (SELECT 1 FROM messages m WHERE m.session_id || '' = sessions.id AND m.active = 1)
    FROM sessions WHERE id = ?"""
REPLAYED = [column for column in MESSAGES if column.replay != "never"]
SPOKEN_COLUMNS = ("id", "role", "uid", "content", "content_kind", *(column.name for column in REPLAYED))
REPLAYED_AT = len(SPOKEN_COLUMNS) - len(REPLAYED)
NOTHING_REPLAYED = (None,) * len(REPLAYED)
# Positions and sets are computed once, because they are used for every message of every resumed session.
REPLAYED_IN_ANSWERS = [*range(REPLAYED_AT, len(SPOKEN_COLUMNS))]
REPLAYED_ALWAYS = [at for at in REPLAYED_IN_ANSWERS if REPLAYED[at - REPLAYED_AT].replay == "always"]
REPLAYED_AS_JSON = {column.name for column in REPLAYED if column.kind == "json"}
REPLAYED_IF_EMPTY = {column.name for column in REPLAYED if column.replay == "answers, also empty"}
SPOKEN = " ".join(
    (
        "SELECT",
        join_columns(SPOKEN_COLUMNS),
        "FROM messages",
    )
)
CONVERSATION = " ".join((SPOKEN, "WHERE session_id = ? AND active = 1 ORDER BY id"))
CARRIED = " ".join(
    (
        SPOKEN,
        """JOIN carried_context c ON id BETWEEN c.first_message_id AND c.last_message_id
    WHERE c.session_id = ? AND c.position >= 0 ORDER BY c.position, id""",
    )
)
# A parent in the trash is not part of the family, unless the child is in the trash too.
PARENT = """SELECT s.parent_session_id FROM sessions s JOIN sessions p ON p.id = s.parent_session_id
    WHERE s.id = ? AND (p.trashed_at IS NULL OR s.trashed_at IS NOT NULL)"""

COUNT_ALL = """SELECT count(*) FROM messages m JOIN sessions s ON s.id = m.session_id
    WHERE m.active = 1 AND s.trashed_at IS NULL"""
FENCE = "SELECT lease_epoch FROM sessions WHERE id = ? AND trashed_at IS NULL"
BY_PLATFORM = "SELECT 1 FROM messages WHERE session_id = ? AND platform_message_id = ? LIMIT 1"


class NewMessage(NamedTuple):
    """A message to be stored."""

    session_id: str
    role: str
    content: Any = None
    columns: Mapping[str, Any] = MappingProxyType({})
    """Further columns that a caller can set, by name."""
    timestamp: float | None = None
    lease_epoch: int | None = None
    """The epoch of the caller's lease. The write is refused if another process has taken over the lease."""
    uid: str | None = None
    """An idempotency key. A message with the same uid and timestamp is stored only once: see `spool_writer`.
    """
    replaces: int | None = None
    """The id of a partial answer. This message overwrites the row of that answer. If the row was deleted, the
    message is added as a new row."""


def check_column_names(names: Iterable[str]) -> None:
    """Raise TypeError unless each name is a column of `messages` that a caller of `append_message` can set."""
    for name in names:
        if name not in WRITER_NAMES:
            raise TypeError(f"append_message() got an unexpected keyword argument {name!r}")


class Messages:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def append(self, message: NewMessage) -> int:
        """Store a message. Return its id."""
        session_id, role, content, columns, timestamp, lease_epoch, known_uid, replaces = message
        role = require_text("role", role)
        stored, kind, attachments = encode(content)
        at = clock.now() if timestamp is None else check_time("timestamp", timestamp)
        uid = known_uid or clock.make_uid()
        row = (session_id, role, stored, kind, at, uid, *_encode_columns(columns))
        epoch = None if lease_epoch is None else check_integer("lease_epoch", lease_epoch)
        replaces = check_optional_integer("replaces", replaces)
        person = at if role == "user" else None
        preview = make_prompt_preview(stored if kind == "text" else content) if person is not None else None
        counted = (
            count_calls(role, columns.get("tool_calls")),
            at,
            at,
            person,
            person,
            person,
            preview,
            at,
            at,
            session_id,
            epoch,
            epoch,
        )

        def work(writer: Writer) -> int:
            if writer.repeating or known_uid:
                stored_id = writer.value(STORED_ALREADY, session_id, at, uid)
                if stored_id is not None:
                    return int(stored_id)
            if replaces is not None:
                check_fence(writer, session_id, epoch)
                if _replace_partial(writer, replaces, row, counted[0]):
                    blobs.attach_blobs(writer, replaces, attachments)
                    return replaces
            session = writer.row(COUNT_IN, *counted)
            if session is None:
                raise explain_refusal(writer, session_id)
            root, last_active, process = session
            if process is None or current_record() not in process:
                record_process(writer, session_id)
            if root != session_id:
                writer.run(ROOT_ACTIVE, at, root, at)
            if at < last_active:  # an import, or the clock was set back: `derived` finds the newest message
                writer.run(derived.NOTE, session_id)
            message_id = writer.insert(INSERT, *row)
            if attachments:
                blobs.attach_blobs(writer, message_id, attachments)
            return message_id

        return self._engine.write(work, share=not attachments and replaces is None)

    def drop_partial(self, session_id: str, message_id: int, lease_epoch: int | None = None) -> bool:
        """Delete a partial answer. Return False if no partial answer has this id."""
        epoch = check_optional_integer("lease_epoch", lease_epoch)

        def work(writer: Writer) -> bool:
            check_fence(writer, session_id, epoch)
            if not writer.run(DROP_PARTIAL, message_id, session_id):
                return False
            writer.run(SUBTRACT_MESSAGE, session_id)
            derived.refresh(writer)
            return True

        return self._engine.write(work, share=False)

    def replace(
        self, session_id: str, messages: Iterable[Mapping[str, Any]], lease_epoch: int | None = None
    ) -> None:
        """Make the session contain exactly these messages. Unchanged messages keep their row, with its id and
        time; see `replacement`. An empty list changes nothing.

        If a caller passes the whole live context, carried messages are not stored a second time.
        """
        rows = [replacement.encode_message(message) for message in check_mappings("messages", messages)]
        if not rows:
            return
        epoch = check_optional_integer("lease_epoch", lease_epoch)

        def work(writer: Writer) -> None:
            check_fence(writer, session_id, epoch)
            own = writer.dicts(OWN_ROWS, session_id)
            own_rows = replacement.remove_carried(writer.dicts(CARRIED_ROWS, session_id), own, rows)
            replacement.replace_rows(writer, session_id, own, own_rows)
            writer.run(SET_COUNTS, len(own_rows), sum(row["calls"] for row in own_rows), session_id)
            writer.run(derived.NOTE, session_id)
            derived.refresh(writer)

        self._engine.write(work, share=False)

    def clear(self, session_id: str, lease_epoch: int | None = None) -> None:
        """Delete the session's messages. A message that another session carries moves to that session."""
        epoch = check_optional_integer("lease_epoch", lease_epoch)

        def work(writer: Writer) -> None:
            if epoch is not None:
                check_fence(writer, session_id, epoch)
            elif not writer.value(LIVE, session_id):
                return
            carried_context.rehome_messages(writer, session_id, ())
            hashes = blobs.list_hashes(writer, session_id)
            self._engine.delete_messages(writer, session_id)
            blobs.drop_unused(writer, hashes)
            writer.run(SET_COUNTS, 0, 0, session_id)
            derived.refresh(writer)

        self._engine.write(work, share=False)

    def list_own(self, session_id: str, *, include_trashed: bool = False) -> list[dict[str, Any]]:
        with self._engine.read() as reader:
            if not include_trashed and reader.value(IS_TRASHED, session_id):
                return []
            return read_own_rows(reader, session_id)

    def has_platform_id(self, session_id: str, platform_message_id: str) -> bool:
        platform_id = check_optional_id("platform_message_id", platform_message_id)
        with self._engine.read() as reader:
            is_stored = reader.value(BY_PLATFORM, session_id, platform_id) is not None
            return is_stored and not reader.value(IS_TRASHED, session_id)

    def count(self, session_id: str | None = None) -> int:
        with self._engine.read() as reader:
            if session_id is None:
                return int(reader.value(COUNT_ALL))
            return 0 if reader.value(IS_TRASHED, session_id) else int(reader.value(COUNT_OF, session_id))

    def read_conversation(
        self, session_id: str, include_ancestors: bool = False, *, include_trashed: bool = False
    ) -> list[dict[str, Any]]:
        """Return the live context in the format of a model request. With `include_ancestors`, return the
        messages of the session and all its ancestors, without duplicates."""
        with self._engine.read() as reader:
            if not include_trashed and reader.value(IS_TRASHED, session_id):
                return []
            if include_ancestors:
                return _read_family(reader, session_id)
            return [_decode_message(reader, row) for row in _read_live(reader, session_id)]

    def read_context(self, session_id: str) -> list[dict[str, Any]]:
        """Return the live context in the format of `read_conversation`. Each message also has its `id`."""
        with self._engine.read() as reader:
            if reader.value(IS_TRASHED, session_id):
                return []
            return [{"id": row[0], **_decode_message(reader, row)} for row in _read_live(reader, session_id)]


def _replace_partial(writer: Writer, message_id: int, row: Sequence[object], calls: int) -> bool:
    """Overwrite the partial answer with the id `message_id` by a whole message. `row` contains the values of
    that message, and `calls` is the number of its tool calls. Return False if the session has no message with
    this id, because it was deleted.

    If the stored message is no longer marked as partial, it stays unchanged: an earlier attempt has already
    written the whole message.
    """
    session_id, _role, content, kind, at, _uid, *columns = row
    found = writer.row(FINISH_REASON, message_id, session_id)
    if found is not None and found[0] == PARTIAL:
        writer.run(REPLACE_PARTIAL, content, kind, at, *columns, message_id)
        writer.run(ADD_CALLS, calls, session_id)
        derived.refresh(writer)
    return found is not None


def _encode_columns(columns: Mapping[str, Any]) -> Sequence[object]:
    """Return the checked and encoded values for `WRITER_COLUMNS`. A column that is not set becomes None."""
    if [*columns.values()].count(None) == len(columns):
        return NO_VALUES
    return [
        None if (value := columns.get(name)) is None else check(name, value) for name, check in WRITER_COLUMNS
    ]


def _read_live(reader: Reader, session_id: str) -> list[tuple[Any, ...]]:
    """Return the rows of a session's live context: the carried messages, then the session's own. A message that
    is both occurs only once.

    Messages with a role in `KEPT_FROM_MODELS` are left out.
    """
    carried = reader.rows(CARRIED, session_id)
    seen = {row[0] for row in carried}
    rows = carried + [row for row in _read_rows(reader, session_id) if row[0] not in seen]
    return [row for row in rows if row[1] not in KEPT_FROM_MODELS]


def _read_rows(reader: Reader, session_id: str) -> list[tuple[Any, ...]]:
    return reader.rows(CONVERSATION, session_id) or confirm_empty(reader, session_id)


def confirm_empty(reader: Reader, session_id: str) -> list[Any]:
    """Return an empty list, as the result of a caller that has found no messages in a session. Raise
    `Unreachable` if the table does contain messages of the session. Its SQL index is then damaged, because the
    caller did not find them through it."""
    if reader.value(UNREACHED, session_id):
        raise Unreachable(
            f"the index of the messages table does not find the messages of session {session_id}"
        )
    return []


def insert_text(writer: Writer, session_id: str, role: str, text: str, at: float, uid: str) -> int:
    """Insert a message whose content is plain text, and return its id. The caller updates the counters."""
    return writer.insert(INSERT, session_id, role, text, "text", at, uid, *NO_VALUES)


def check_fence(reader: Reader, session_id: str, epoch: int | None) -> None:
    """Raise an error if the session does not exist, or if `epoch` is not the current epoch of its conversation.
    In the second case another process has taken over the lease of the caller. If `epoch` is None, the lease is
    not checked."""
    fence = reader.row(FENCE, session_id)
    if fence is None or (epoch is not None and fence[0] != epoch):
        raise explain_refusal(reader, session_id)


def explain_refusal(reader: Reader, session_id: str) -> errors.HermesError:
    """Return the error to raise for a write that was refused. It says that the session does not exist or, if
    the session exists, that another process has taken over the lease of its conversation."""
    if reader.row(FENCE, session_id) is not None:
        return errors.LeaseLost(
            f"another process has taken over the conversation of session {session_id!r}; nothing was written"
        )
    return errors.make_error(errors.UnknownSession, f"session {session_id!r} does not exist")


def read_own_rows(reader: Reader, session_id: str) -> list[dict[str, Any]]:
    """Return a session's own rows with all columns. Content and tool calls are decoded."""
    rows = reader.dicts(OWN_ROWS, session_id) or confirm_empty(reader, session_id)
    return [decode_row(reader, row) for row in rows]


def decode_row(reader: Reader, row: dict[str, Any]) -> dict[str, Any]:
    """Decode a row of `messages` in place, and return it: the content and the tool calls become values, and the
    uid becomes text."""
    row["content"] = blobs.decode(reader, row["content"], row.pop("content_kind"))
    if row["tool_calls"] is not None:
        row["tool_calls"] = from_json(row["tool_calls"], [])
    row["uid"] = format_uid(row["uid"])
    return row


def _decode_message(reader: Reader, row: tuple[Any, ...]) -> dict[str, Any]:
    role = row[1]
    content = blobs.decode(reader, row[3], row[4])
    if role in ("user", "assistant") and isinstance(content, str):
        content = clean_replay(content)
    message: dict[str, Any] = {"role": role, "content": content}
    if row[REPLAYED_AT:] != NOTHING_REPLAYED:
        for at in REPLAYED_IN_ANSWERS if role == "assistant" else REPLAYED_ALWAYS:
            value = row[at]
            if value is None:
                continue
            name = SPOKEN_COLUMNS[at]
            if value and name in REPLAYED_AS_JSON:
                message[name] = from_json(value, [] if name == "tool_calls" else None)
            elif value or name in REPLAYED_IF_EMPTY:
                message[name] = value
    return message


def _read_family(reader: Reader, session_id: str) -> list[dict[str, Any]]:
    """Return every message of the session and its ancestors, in order of id.

    Other programs copy carried messages into a continuation, and the copies have no uid. A person's message
    without a uid is therefore left out if the same text already occurred since the last answer. The reference
    does the same.
    """
    # Carried messages are added: they may have moved to another session, or their session may be in the
    # trash.
    candidates = reader.rows(CARRIED, session_id)
    line: dict[str, None] = {}
    at: str | None = session_id
    while at is not None and at not in line:
        line[at] = None
        at = reader.value(PARENT, at)
    candidates += [row for member in line for row in _read_rows(reader, member)]
    rows = [row for _id, row in sorted({row[0]: row for row in candidates}.items())]
    messages: list[dict[str, Any]] = []
    unanswered: set[str] = set()
    for row in rows:
        message = _decode_message(reader, row)
        if message["role"] == "assistant" and (message["content"] or message.get("tool_calls")):
            unanswered.clear()
        elif message["role"] == "user" and row[2] is None:
            copy = repr(message["content"])
            if copy in unanswered:
                continue
            unanswered.add(copy)
        messages.append(message)
    return messages
