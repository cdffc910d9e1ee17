"""The lines of a transcript, and the session state that results from them.

A line is one JSON object. A line with an `id` is the latest version of a message. A line with the role
`session_meta` holds the columns of the session, and one with the role `session_event` records a change. Applying
all lines in order gives the session. Unreadable lines are skipped. Older programs wrote messages without ids. These
are used only if the transcript has no other messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from hermes import clock
from hermes.export.jsonl import format_line
from hermes.store.content import from_json
from hermes.store.transfer.mirror_source import Mark, SessionSnapshot

META, EVENT = "session_meta", "session_event"

NOT_EXPORTED = ("session_id",)
"""Message columns that are not written. The session id is already in the file name."""
BLANK = b"\0 \t\r\n"
CALLED, CARRIES, CHANGED, DELETED, REMOVED, RESTORED, REWOUND, TAGGED = (
    *("called", "carries", "changed", "deleted"),
    *("removed", "restored", "rewound", "tagged"),
)

Object = dict[str, Any]
_UNREADABLE = object()


class TranscriptState:
    """The state of a session as the lines of its transcript describe it. With `whole=True`, the messages are kept
    completely. Otherwise only `(uid, active, rewound_at)` of each message is kept, in `marks`."""

    def __init__(self, *, whole: bool = False) -> None:
        self.bad_lines: list[int] = []
        self.deleted = False
        self.older_count = 0
        self.older: list[Object] = []
        """The messages that an older program wrote, in file order."""
        self.older_meta: Object | None = None
        self._whole = whole
        self._clear()

    def _clear(self) -> None:
        self.columns: Object | None = None
        self.carries: list[list[int]] = []
        self.set_aside: list[list[int]] = []
        self.tags: list[str] = []
        self.calls: list[Object] = []
        self.last_call = 0
        self.marks: dict[int, Mark] = {}
        self.messages: dict[int, Object] = {}

    @classmethod
    def from_lines(cls, lines: Iterable[bytes], *, whole: bool = False) -> TranscriptState:
        copy = cls(whole=whole)
        for number, raw in enumerate(lines, 1):
            text = raw.strip(BLANK)
            if text and not copy._apply(_decode_json(text)):
                copy.bad_lines.append(number)
        return copy

    def add(self, lines: Iterable[Object]) -> None:
        """Apply lines that were just appended to the transcript, so that the file need not be read again."""
        for record in lines:
            self._apply(record)

    def _apply(self, record: Any) -> bool:
        """Apply one parsed transcript line (`record`) to this state. Return False if it is not a valid transcript
        line."""
        try:
            match record:
                case {"id": int(), "role": str()}:
                    self._apply_message(record)
                case {"role": "session_event", "event": str(event)}:
                    _EVENTS[event](self, record)
                case {"role": "session_meta", "session": dict(columns)}:
                    self._clear()
                    self.columns, self.deleted = dict(columns), False
                case {"role": "session_meta"}:
                    self.older_meta = record
                case {"role": str()}:
                    self._apply_older(record)
                case _:
                    return False
        except (KeyError, TypeError, ValueError):  # a foreign or damaged line
            return False
        return True

    def _apply_message(self, record: Object) -> None:
        self.marks[record["id"]] = (record.get("uid"), record.get("active", 1), record.get("rewound_at"))
        if self._whole:
            record["timestamp"] = record.pop("at", record.get("timestamp"))
            self.messages[record["id"]] = record

    def _apply_older(self, record: Object) -> None:
        self.older_count += 1
        if self._whole:
            self.older.append({**record, "timestamp": parse_time(record.get("timestamp"))})

    def _apply_change(self, record: Object) -> None:
        self.columns = {**(self.columns or {}), **record["session"]}

    def _apply_mark(self, record: Object) -> None:
        for message_id in self._within(record["messages"]):
            active, at = record["event"] == RESTORED, record.get("rewound_at")
            self.marks[message_id] = (self.marks[message_id][0], int(active), at)
            if self._whole:
                self.messages[message_id] |= {"active": int(active), "rewound_at": at}

    def _apply_removal(self, record: Object) -> None:
        for message_id in self._within(record["messages"]):
            self.marks.pop(message_id)
            self.messages.pop(message_id, None)

    def _apply_carried(self, record: Object) -> None:
        self.carries, self.set_aside = _read_ranges(record["carries"]), _read_ranges(record["set_aside"])

    def _apply_tags(self, record: Object) -> None:
        self.tags = [str(tag) for tag in record["tags"]]

    def _apply_title(self, record: Object) -> None:
        call = dict(record["call"])
        self.last_call = max(self.last_call, call.pop("id"))
        if self._whole:
            self.calls.append(call)

    def _apply_deletion(self, _: Object) -> None:
        self._clear()
        self.deleted = True

    def _within(self, value: Any) -> list[int]:
        ranges = _read_ranges(value)
        return [
            message_id
            for message_id in self.marks
            if any(first <= message_id <= last for first, last in ranges)
        ]


_EVENTS: dict[str, Callable[[TranscriptState, Object], None]] = {
    CALLED: TranscriptState._apply_title,
    CARRIES: TranscriptState._apply_carried,
    CHANGED: TranscriptState._apply_change,
    DELETED: TranscriptState._apply_deletion,
    REMOVED: TranscriptState._apply_removal,
    RESTORED: TranscriptState._apply_mark,
    REWOUND: TranscriptState._apply_mark,
    TAGGED: TranscriptState._apply_tags,
}


class Difference(NamedTuple):
    """The lines that must be appended to a transcript so that it agrees with the store: first `lines`, then the
    messages, then `after`."""

    lines: list[Object]
    message_ids: list[int]
    """The ids of the messages to append in full after `lines`."""
    after: list[Object]
    """The lines to append after the messages."""


def compute_difference(copy: TranscriptState, now: SessionSnapshot) -> Difference:
    if copy.columns is None:
        lines, copy = [make_meta(now)], TranscriptState()
    else:
        columns = copy.columns
        changed = {name: value for name, value in now.columns.items() if columns.get(name) != value}
        lines = [make_event(CHANGED, session=changed)] if changed else []
    removed = [message_id for message_id in sorted(copy.marks) if message_id not in now.marks]
    message_ids = [
        message_id
        for message_id, mark in now.marks.items()
        if message_id not in copy.marks or copy.marks[message_id][0] != mark[0]
    ]
    if removed:
        lines.append(make_event(REMOVED, messages=_id_ranges(removed, sorted(copy.marks))))
    lines += _mark_events(copy, now, set(message_ids))
    after: list[Object] = []
    if (copy.carries, copy.set_aside) != (now.carries, now.set_aside):
        after.append(make_event(CARRIES, carries=now.carries, set_aside=now.set_aside))
    if copy.tags != now.tags:
        after.append(make_event(TAGGED, tags=now.tags))
    after += [make_event(CALLED, call=call) for call in now.calls]
    return Difference(lines, message_ids, after)


def _mark_events(copy: TranscriptState, now: SessionSnapshot, written: set[int]) -> Iterator[Object]:
    """Yield a line for each group of messages that were rewound or restored together since the transcript was
    written. `copy` is the state that the transcript describes, and `now` is that of the store. Messages in
    `written` are left out, because they are appended to the transcript in full."""
    have = sorted(copy.marks)
    together: dict[tuple[int, float | None], list[int]] = {}
    for message_id, (_uid, active, at) in now.marks.items():
        if message_id not in written and copy.marks[message_id][1:] != (active, at):
            together.setdefault((active, at), []).append(message_id)
    for (active, at), ids in together.items():
        yield make_event(RESTORED if active else REWOUND, messages=_id_ranges(ids, have), rewound_at=at)


def _id_ranges(ids: list[int], among: list[int]) -> list[list[int]]:
    """Return the message ids in `ids` as ranges `[first, last]`. `among` holds all message ids of the session in
    order. Every id of `among` that lies inside a range is also in `ids`."""
    chosen, ranges, is_open = set(ids), list[list[int]](), False
    for message_id in among:
        if message_id not in chosen:
            is_open = False
        elif is_open:
            ranges[-1][1] = message_id
        else:
            ranges.append([message_id, message_id])
            is_open = True
    return ranges


def make_meta(now: SessionSnapshot) -> Object:
    """Return the first line of a transcript, in the documented format. It contains all columns of the session that
    are not null."""
    return {
        "role": META,
        "tools": [],
        "model": now.columns["model"],
        "platform": now.columns["source"],
        "timestamp": clock.format_iso(now.columns["started_at"]),
        "session": {name: value for name, value in now.columns.items() if value is not None},
    }


def make_event(name: str, **more: Any) -> Object:
    return {"role": EVENT, "event": name, "timestamp": clock.format_iso(clock.now()), **more}


def make_message(row: Object) -> Object:
    """Return the transcript line of a message. In the line, `timestamp` is the time of the message in the
    documented ISO format, and `at` is the exact time in seconds."""
    record = {name: value for name, value in row.items() if value is not None and name not in NOT_EXPORTED}
    if record["active"]:
        del record["active"]
    at = record.pop("timestamp")
    return record | {"timestamp": clock.format_iso(at), "at": at}


def _read_ranges(value: Any) -> list[list[int]]:
    return [[int(first), int(last)] for first, last in value]


def encode_lines(lines: Iterable[Object]) -> bytes:
    return "".join(map(format_line, lines)).encode()


def parse_time(value: object) -> float | None:
    """Parse a time that another program wrote: seconds, or an ISO date. An ISO date without a zone is local
    time."""
    if isinstance(value, int | float):
        return float(value)
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None


def _decode_json(text: bytes) -> Any:
    try:
        return from_json(text.decode(), _UNREADABLE)
    except UnicodeDecodeError:
        return _UNREADABLE
