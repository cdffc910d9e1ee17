"""Incoming sessions: checked and converted to column values. This module does not access the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hermes import clock, errors
from hermes.session_kinds import IMPORTED_ROLES
from hermes.store.columns import MESSAGES, SESSIONS, Kind
from hermes.store.content import count_calls, format_uid, from_json, to_json
from hermes.store.sessions import attachments
from hermes.store.sessions.attachments import Attachment
from hermes.store.sessions.labels import clean_tag
from hermes.store.sessions.sessions import check_source
from hermes.store.sessions.titles import MAX_TITLE_LENGTH, make_one_line
from hermes.store.statements import make_insert
from hermes.store.transfer.import_policy import UNFINISHED_HANDOFFS
from hermes.store.transfer.merge_plan import Labels, Transcript
from hermes.text import replace_surrogates

START = (
    *("id", "source", "started_at", "title", "owner", "parent_session_id", "relation"),
    *("message_count", "tool_call_count"),
)
"""Columns of `sessions` that the import sets individually. All other imported columns are in `REST`."""
REST_COLUMNS = tuple(column for column in SESSIONS if column.is_imported and column.name not in START)
REST = tuple(column.name for column in REST_COLUMNS)
"""The names of the values in `IncomingSession.rest`. These values are stored unchanged."""
RELATIONS = ("compression", "branch", "reset", "delegate")

SHAPE = ("role", "content", "content_kind", "tool_call_id", "tool_calls", "tool_name", "timestamp")
PLACED = ("id", "session_id", "active", "uid")
MESSAGE_REST = tuple(column for column in MESSAGES if column.name not in (*SHAPE, *PLACED))
MESSAGE_ROW = (*SHAPE, *(column.name for column in MESSAGE_REST), "active", "uid")
"""The columns of each row in `IncomingSession.messages`."""

INSERT_SESSION = make_insert("sessions", (*START, *REST))
INSERT_MESSAGE = make_insert("messages", ("session_id", *MESSAGE_ROW))
INSERT_WITH_ID = make_insert("messages", ("id", "session_id", *MESSAGE_ROW))
TIMESTAMP, REWOUND_AT, ACTIVE = map(MESSAGE_ROW.index, ("timestamp", "rewound_at", "active"))

# The columns of `usage.INSERT` without the session.
CALL_TEXTS = ("model", "provider", "base_url", "purpose")
CALL_NUMBERS = (
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
    *("estimated_cost_usd", "actual_cost_usd"),
)
CALL_PRICES = ("cost_status", "cost_source", "pricing_version")

FILE_ROLES = {here: in_file for in_file, here in IMPORTED_ROLES.items()}


class IncomingSession(NamedTuple):
    """A session of an import, checked and converted to column values."""

    id: str
    source: str
    started_at: float
    start_known: bool
    """Whether the import contains the start of the session. If not, `started_at` is a substitute."""
    title: str | None
    owner: str
    parent: str | None
    relation: str | None
    counts: tuple[int, int]
    """The number of active messages, and of their tool calls."""
    rest: tuple[Any, ...]
    messages: list[tuple[Any, ...]]
    attachments: list[Iterable[Attachment]]
    likes: list[tuple[Any, ...]]
    """A comparison key for each message. Equal messages have equal keys."""
    old_ids: list[Any]
    """The id of each message in the file."""
    context: list[Mapping[str, Any]]
    rewound: list[Mapping[str, Any]]
    tags: list[str]
    model_calls: list[tuple[Any, ...]]

    @classmethod
    def parse(cls, session: object) -> IncomingSession:
        if not isinstance(session, Mapping):
            raise _build_error(f"an imported session must be an object, got {type(session).__name__}")
        session_id = session.get("id")
        if not isinstance(session_id, str) or not session_id:
            raise _build_error(f"an imported session must have an id, got {session_id!r}")
        # A handoff that was in progress in another store does not continue here.
        if session.get("handoff_state") in UNFINISHED_HANDOFFS:
            session = {**session, "handoff_state": None, "handoff_platform": None, "handoff_error": None}
        column = _Columns(f"session {session_id!r}", session)
        title = make_one_line(column.read_text("title") or "")[:MAX_TITLE_LENGTH].rstrip() or None
        # Earlier releases stored a different value in `title_by`.
        if title is None and session.get("title_by") is not None:
            column = _Columns(column.name, {**session, "title_by": None})
        objects = _read_objects(column, "messages", "a message")
        times = [row.read_number("timestamp") for row in objects]
        started = column.read_number("started_at")
        at = started if started is not None else min((t for t in times if t is not None), default=clock.now())
        rows: list[tuple[Any, ...]] = []
        attached: list[Iterable[Attachment]] = []
        likes: list[tuple[Any, ...]] = []
        messages = calls = 0
        now = at
        for row, time in zip(objects, times, strict=True):
            now = now if time is None else time
            shape, files, counted, active = _read_shape(row)
            attached.append(files)
            messages, calls = messages + active, calls + counted * active
            likes.append(make_comparable(*shape))
            rows.append((*shape, float(now), *_read_tail(row, active)))
        return cls(
            id=replace_surrogates(session_id),
            source=check_source((column.read_text("source") or "").strip() or "unknown"),
            started_at=float(at),
            start_known=started is not None,
            title=title,
            owner=column.read_text("owner") or "",
            parent=column.read_text("parent_session_id"),
            relation=session["relation"] if session.get("relation") in RELATIONS else None,
            counts=(messages, calls),
            rest=tuple(column.read(name, kind) for name, kind, *_ in REST_COLUMNS),
            messages=rows,
            attachments=attached,
            likes=likes,
            old_ids=[row.values.get("id") for row in objects],
            context=[entry.values for entry in _read_objects(column, "context", "a range")],
            rewound=[entry.values for entry in _read_objects(column, "rewound_context", "a range")],
            tags=_read_tags(column),
            model_calls=[
                _read_call(entry, float(at)) for entry in _read_objects(column, "model_calls", "a model call")
            ],
        )

    def get_column(self, name: str) -> Any:
        """Return the value of the `sessions` column `name`. It must be one of the columns in `rest`."""
        return self.rest[REST.index(name)]

    def make_transcript(self) -> Transcript:
        """Return the messages of this session in the form in which they are compared with a stored copy of the
        session."""
        return Transcript(
            [format_uid(row[-1]) for row in self.messages],
            [bool(row[-2]) for row in self.messages],
            lambda: self.likes,
            self.get_column("rewind_count"),
            self.get_column("end_reason") == "compression",
        )

    def find_carried(self) -> set[int]:
        """Return the positions of those own messages of this session that are also in its carried ranges."""
        entries = [entry for entry in (*self.context, *self.rewound) if entry.get("session_id") == self.id]
        spans = [(entry.get("first"), entry.get("last")) for entry in entries]
        whole = [(first, last) for first, last in spans if isinstance(first, int) and isinstance(last, int)]
        return {
            place
            for place, number in enumerate(self.old_ids)
            if whole and isinstance(number, int) and any(first <= number <= last for first, last in whole)
        }

    def make_labels(self) -> Labels:
        """Return the labels of this session in the form in which they are compared with a stored copy of the
        session."""
        return Labels(
            self.title,
            self.get_column("title_by") if self.title is not None else None,
            (self.get_column("ended_at"), self.get_column("end_reason")),
            bool(self.get_column("archived")),
            self.get_column("pinned_at"),
            frozenset(self.tags),
        )

    def list_note_keys(self) -> list[str]:
        """Return the keys in `state_meta` under which an earlier import may have recorded the id that this
        session got in this store.

        The first key is the current one. It depends on the first message, so it does not change when the
        session grows. The second key was used if the session was empty at that import. The last key is the one
        that earlier releases used.
        """
        first = [format_uid(self.messages[0][-1]) or self.likes[0]] if self.messages else []
        return [self._make_key(first), self._make_key([]), self.make_note_key()]

    def make_note_key(self) -> str:
        """Return the key in `state_meta` that earlier releases used to record the id of this session. It
        depends on all messages of the session."""
        return self._make_key(self.likes)

    def _make_key(self, parts: Sequence[Any]) -> str:
        from hashlib import blake2b

        start = self.started_at if self.start_known else None
        digest = blake2b(repr((self.source, start, parts)).encode(), digest_size=16)
        return f"imported:{self.id}:{digest.hexdigest()}"


class _Columns:
    """Reads the values of one JSON object of an import file (a session, a message or a model call), and
    converts each value for the column in which it is stored."""

    def __init__(self, name: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise _build_error(f"{name} must be an object, got {type(value).__name__}")
        self.name = name
        self.values = value

    def read(self, name: str, kind: Kind) -> Any:
        if kind in ("text", "id"):
            return self.read_text(name)
        if kind in ("json", "mapping"):
            return self.read_json(name)
        return (self.read_number(name) or 0) if kind == "counter" else self.read_number(name)

    def read_text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return None if value is None else replace_surrogates(value)
        if isinstance(value, int | float):
            return str(value)
        raise _build_error(f"{name} of {self.name} must be text, got {type(value).__name__}")

    def read_json(self, name: str) -> str | None:
        """Return the value `name` of this object for a column that contains JSON. A text is returned unchanged,
        because it is JSON already. Any other value is encoded as JSON. A missing value gives None."""
        value = self.values.get(name)
        if isinstance(value, str):
            return replace_surrogates(value)
        return None if value is None else to_json(value)

    def read_number(self, name: str) -> float | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or not -(2**63) < value < 2**63:
            raise _build_error(f"{name} of {self.name} must be a number, got {value!r:.40}")
        return int(value) if isinstance(value, bool) else value


def _build_error(why: str) -> errors.HermesError:
    return errors.make_error(errors.InvalidArgument, why)


def _read_objects(column: _Columns, name: str, item_name: str) -> list[_Columns]:
    value = column.values.get(name)
    if value is None:
        return []
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise _build_error(f"{name} of {column.name} must be a list, got {type(value).__name__}")
    return [_Columns(f"{item_name} of {column.name}", item) for item in value]


def _read_tags(column: _Columns) -> list[str]:
    tags = column.values.get("tags") or []
    if not isinstance(tags, Sequence) or isinstance(tags, str | bytes):
        raise _build_error(f"tags of {column.name} must be a list, got {type(tags).__name__}")
    return [clean_tag(tag) for tag in tags]


def _read_call(column: _Columns, started_at: float) -> tuple[Any, ...]:
    at = column.read_number("at")
    model, provider, base_url, purpose = map(column.read_text, CALL_TEXTS)
    numbers, prices = map(column.read_number, CALL_NUMBERS), map(column.read_text, CALL_PRICES)
    when = started_at if at is None else float(at)
    return (when, model, provider, base_url, purpose or "main", *numbers, *prices)


def _read_shape(row: _Columns) -> tuple[tuple[Any, ...], Iterable[Attachment], int, int]:
    """Read the message in `row`, an object of an import file. Return (values of the columns `SHAPE` except the
    timestamp, attachments, number of tool calls, 1 if the message is active or 0 if it was rewound)."""
    role = row.read_text("role") or "unknown"
    calls = row.values.get("tool_calls")
    if isinstance(calls, str):  # stored JSON, or a value that is a string
        calls = from_json(calls, calls)
    stored = to_json(calls) if calls else None
    active = 1 if row.values.get("active", 1) else 0
    content = row.values.get("content")
    if isinstance(content, int | float):  # a text column converts it to text, and the text is compared
        content = row.read_text("content")
    text, kind, attached = attachments.encode(content)
    shape = (role, text, kind, row.read_text("tool_call_id"), stored, row.read_text("tool_name"))
    return shape, attached, count_calls(role, calls or None), active


def _read_tail(row: _Columns, active: int) -> tuple[Any, ...]:
    uid = row.read_text("uid")
    try:
        uid = bytes.fromhex(uid).hex() if uid else None
    except ValueError:
        raise _build_error(f"uid of {row.name} must be hexadecimal, got {uid!r:.40}") from None
    return (*(row.read(name, kind) for name, kind, *_ in MESSAGE_REST), active, uid)


def make_comparable(
    role: Any, content: Any, kind: Any, call_id: Any, calls: Any, tool: Any
) -> tuple[Any, ...]:
    """Return a key by which two messages are compared, from the columns of a message. It is equal for equal
    messages, even if their JSON is formatted differently or an untrusted import has renamed the role of one of
    them."""
    called = from_json(calls, None) if calls else None
    return (
        FILE_ROLES.get(role, role),
        attachments.make_comparable(content, kind),
        call_id,
        repr(called or None),
        tool,
    )
