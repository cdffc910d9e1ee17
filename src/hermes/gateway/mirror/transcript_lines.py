"""The lines of a transcript, and what they add up to.

A line is one JSON object. With an `id` it is a message, as it is from then on; `session_meta` says what the session is,
`session_event` what became of it. Reading from the first line to the last gives the session; a line that cannot be
read is as if it were not there. Lines of older programs have no ids: they count only where there is nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from hermes import clock
from hermes.export.jsonl import format_line
from hermes.store.content import from_json
from hermes.store.transfer.mirror_source import Mark, Now

META, EVENT = "session_meta", "session_event"

NOT_TOLD = ("session_id",)
"""The name of the file says it."""
BLANK = b"\0 \t\r\n"
CALLED, CARRIES, CHANGED, DELETED, REMOVED, RESTORED, REWOUND, TAGGED = (
    *("called", "carries", "changed", "deleted"),
    *("removed", "restored", "rewound", "tagged"),
)

Object = dict[str, Any]
_UNREADABLE = object()


class Copy:
    """A session as its transcript tells it. What was said is kept only if it is asked for."""

    def __init__(self, *, whole: bool = False) -> None:
        self.bad_lines: list[int] = []
        self.deleted = False
        self.older_count = 0
        self.older: list[Object] = []
        """The messages of an older program, in their order."""
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
    def of(cls, lines: Iterable[bytes], *, whole: bool = False) -> Copy:
        copy = cls(whole=whole)
        for number, raw in enumerate(lines, 1):
            text = raw.strip(BLANK)
            if text and not copy._take(_decoded(text)):
                copy.bad_lines.append(number)
        return copy

    def add(self, lines: Iterable[Object]) -> None:
        """What was just written, without reading it again."""
        for told in lines:
            self._take(told)

    def _take(self, told: Any) -> bool:
        """Whether it is a line of a transcript."""
        try:
            match told:
                case {"id": int(), "role": str()}:
                    self._message(told)
                case {"role": "session_event", "event": str(event)}:
                    _EVENTS[event](self, told)
                case {"role": "session_meta", "session": dict(columns)}:
                    self._clear()
                    self.columns, self.deleted = dict(columns), False
                case {"role": "session_meta"}:
                    self.older_meta = told
                case {"role": str()}:
                    self._older(told)
                case _:
                    return False
        except (KeyError, TypeError, ValueError):  # a line that somebody else wrote, or wrote over
            return False
        return True

    def _message(self, told: Object) -> None:
        self.marks[told["id"]] = (told.get("uid"), told.get("active", 1), told.get("rewound_at"))
        if self._whole:
            told["timestamp"] = told.pop("at", told.get("timestamp"))
            self.messages[told["id"]] = told

    def _older(self, told: Object) -> None:
        self.older_count += 1
        if self._whole:
            self.older.append({**told, "timestamp": moment(told.get("timestamp"))})

    def _changed(self, told: Object) -> None:
        self.columns = {**(self.columns or {}), **told["session"]}

    def _marked(self, told: Object) -> None:
        for message_id in self._within(told["messages"]):
            active, at = told["event"] == RESTORED, told.get("rewound_at")
            self.marks[message_id] = (self.marks[message_id][0], int(active), at)
            if self._whole:
                self.messages[message_id] |= {"active": int(active), "rewound_at": at}

    def _removed(self, told: Object) -> None:
        for message_id in self._within(told["messages"]):
            self.marks.pop(message_id)
            self.messages.pop(message_id, None)

    def _carries(self, told: Object) -> None:
        self.carries, self.set_aside = _ranges(told["carries"]), _ranges(told["set_aside"])

    def _tagged(self, told: Object) -> None:
        self.tags = [str(tag) for tag in told["tags"]]

    def _called(self, told: Object) -> None:
        call = dict(told["call"])
        self.last_call = max(self.last_call, call.pop("id"))
        if self._whole:
            self.calls.append(call)

    def _deleted(self, _: Object) -> None:
        self._clear()
        self.deleted = True

    def _within(self, told: Any) -> list[int]:
        ranges = _ranges(told)
        return [one for one in self.marks if any(first <= one <= last for first, last in ranges)]


_EVENTS: dict[str, Callable[[Copy, Object], None]] = {
    CALLED: Copy._called,
    CARRIES: Copy._carries,
    CHANGED: Copy._changed,
    DELETED: Copy._deleted,
    REMOVED: Copy._removed,
    RESTORED: Copy._marked,
    REWOUND: Copy._marked,
    TAGGED: Copy._tagged,
}


class Difference(NamedTuple):
    """What is to be written so that a transcript tells what the store does."""

    lines: list[Object]
    said: list[int]
    """The messages that are to be written, in full, behind them."""
    after: list[Object]
    """And what comes behind those."""


def difference(copy: Copy, now: Now) -> Difference:
    if copy.columns is None:
        lines, copy = [meta(now)], Copy()
    else:
        told = copy.columns
        changed = {name: value for name, value in now.columns.items() if told.get(name) != value}
        lines = [event(CHANGED, session=changed)] if changed else []
    gone = [one for one in sorted(copy.marks) if one not in now.marks]
    said = [one for one, mark in now.marks.items() if one not in copy.marks or copy.marks[one][0] != mark[0]]
    if gone:
        lines.append(event(REMOVED, messages=_runs(gone, sorted(copy.marks))))
    lines += _marking(copy, now, set(said))
    after: list[Object] = []
    if (copy.carries, copy.set_aside) != (now.carries, now.set_aside):
        after.append(event(CARRIES, carries=now.carries, set_aside=now.set_aside))
    if copy.tags != now.tags:
        after.append(event(TAGGED, tags=now.tags))
    after += [event(CALLED, call=call) for call in now.calls]
    return Difference(lines, said, after)


def _marking(copy: Copy, now: Now, written: set[int]) -> Iterator[Object]:
    """Messages that were taken back or came back, a line for each time that this happened."""
    have = sorted(copy.marks)
    together: dict[tuple[int, float | None], list[int]] = {}
    for message_id, (_uid, active, at) in now.marks.items():
        if message_id not in written and copy.marks[message_id][1:] != (active, at):
            together.setdefault((active, at), []).append(message_id)
    for (active, at), ids in together.items():
        yield event(RESTORED if active else REWOUND, messages=_runs(ids, have), rewound_at=at)


def _runs(ids: list[int], among: list[int]) -> list[list[int]]:
    """Ids as ranges between which no other of the session lies."""
    chosen, found, is_open = set(ids), list[list[int]](), False
    for one in among:
        if one not in chosen:
            is_open = False
        elif is_open:
            found[-1][1] = one
        else:
            found.append([one, one])
            is_open = True
    return found


def meta(now: Now) -> Object:
    """The documented first line, with all that is known of the session."""
    return {
        "role": META,
        "tools": [],
        "model": now.columns["model"],
        "platform": now.columns["source"],
        "timestamp": clock.format_iso(now.columns["started_at"]),
        "session": {name: value for name, value in now.columns.items() if value is not None},
    }


def event(name: str, **more: Any) -> Object:
    return {"role": EVENT, "event": name, "timestamp": clock.format_iso(clock.now()), **more}


def message(row: Object) -> Object:
    """A message for people and programs to read: the documented time, and beside it the exact one."""
    told = {name: value for name, value in row.items() if value is not None and name not in NOT_TOLD}
    if told["active"]:
        del told["active"]
    at = told.pop("timestamp")
    return told | {"timestamp": clock.format_iso(at), "at": at}


def _ranges(told: Any) -> list[list[int]]:
    return [[int(first), int(last)] for first, last in told]


def written(lines: Iterable[Object]) -> bytes:
    return "".join(map(format_line, lines)).encode()


def moment(told: object) -> float | None:
    """A time that another program wrote: seconds, or a date in ISO form, local where it does not say where."""
    if isinstance(told, int | float):
        return float(told)
    try:
        return datetime.fromisoformat(told).timestamp() if isinstance(told, str) else None
    except (ValueError, OverflowError, OSError):
        return None


def _decoded(text: bytes) -> Any:
    try:
        return from_json(text.decode(), _UNREADABLE)
    except UnicodeDecodeError:
        return _UNREADABLE
