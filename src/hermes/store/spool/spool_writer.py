"""Writes that are not lost when the store cannot take them: kept in the spool, told to the caller, made later, once.

For a handle that asked for it. Its caller gets the same error as without, at once, with the place where the write is
kept. Whatever the handle writes next comes after what waits, so that a conversation keeps its order. A caller that
tries again by itself must not ask for this: it would get its message twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

from hermes import clock, errors
from hermes.logs import get_logger
from hermes.store.content import to_json
from hermes.store.engine import Access, Engine, Scoped, Writer
from hermes.store.people import LOCAL
from hermes.store.processes import current_record
from hermes.store.sessions.messages import Messages, NewMessage, check_column_names
from hermes.store.sessions.sessions import EXISTS, NewSession, Sessions
from hermes.store.spool.spool import Entry, Spool, Unstorable

log = get_logger(__name__)
T = TypeVar("T")

UNAVAILABLE = (errors.StoreBusy, errors.StoreFull, errors.StoreDamaged, errors.StoreFailed)
"""What a write may be kept for: the store may take it later."""
NEVER = (
    *(errors.InvalidArgument, errors.UnknownSession, errors.ConstraintFailed, errors.LeaseLost),
    *(TypeError, ValueError, LookupError),
)
"""What no later moment will mend."""

WAIT_S, WAIT_AT_OPEN_S = 30.0, 2.0
"""How long to wait for another program that is storing what waits."""

ORIGIN = (
    *("owner", "session_key", "chat_id", "chat_type", "thread_id", "display_name", "origin_json"),
    *("workspace", "cwd", "git_branch", "process"),
)
"""Columns of a new session that an entry holds as one list, `belonging`, because every version reads it so."""


class SpoolWriter:
    """Append and create of one handle, and the engine for all that it writes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.engine = cast(Engine, SpoolFirstEngine(engine, self.catch_up))
        self._spool = Spool(engine.path)
        self._store = engine.path.name
        self._messages, self._sessions = Messages(self.engine), Sessions(self.engine)
        self._late_messages, self._late_sessions = Messages(engine), Sessions(engine)
        self._replayed = 0  # the handle has something in the spool while `kept` is more

    def append(self, message: NewMessage) -> int:
        """`Messages.append`; its time and its uid are fixed here, so that it is the same message later."""
        return self._append(self._messages, message)

    def append_for(self, owners: tuple[str, ...], message: NewMessage) -> int:
        """The same for somebody who may write only in some owners' sessions, now as well as later."""
        own = self._engine.scoped(owners).owning(message.session_id)
        return self._append(
            Messages(cast(Access, SpoolFirstEngine(own, self.catch_up))), message, owners=owners
        )

    def _append(self, messages: Messages, message: NewMessage, **more: Any) -> int:
        uid, now = clock.make_uid(), clock.now()
        message = message._replace(uid=uid, timestamp=now if message.timestamp is None else message.timestamp)
        try:
            return messages.append(message)
        except UNAVAILABLE as problem:
            arguments = _write_message(message) | more
            raise self._keep_write(problem, "append_message", uid, now, arguments) from problem

    def create(self, session: NewSession) -> str:
        """`Sessions.create`; a session that is there already needs no write, and so no store that can be written."""
        uid, now = clock.make_uid(), clock.now()
        process = session.columns.get("process") or current_record()
        session = session._replace(
            columns={**session.columns, "process": process},
            started_at=now if session.started_at is None else session.started_at,
        )
        try:
            return self._sessions.create(session)
        except UNAVAILABLE as problem:
            if self._has_session(session.session_id):
                return session.session_id
            arguments = _write_session(session)
            raise self._keep_write(problem, "create_session", uid, now, arguments) from problem

    def _has_session(self, session_id: str) -> bool:
        try:
            with self.engine.read() as reader:
                return reader.value(EXISTS, session_id) is not None
        except errors.StoreError:
            return False

    def _keep_write(
        self, problem: errors.HermesError, verb: str, uid: str, at: float, arguments: dict[str, Any]
    ) -> errors.HermesError:
        """Keep a write; the same kind of error, which says where it is kept."""
        plain = {name: _make_plain(name, value) for name, value in arguments.items()}
        entry = Entry(verb, str(plain["session_id"]), uid, at, self._store, plain)
        file = None
        try:
            file = self._spool.keep(entry)
            note = f"It is kept in {file} and will be stored when the store is back"
        except OSError as trouble:
            note = f"It could not be kept in {self._spool.folder} either ({trouble.strerror}): it is kept nowhere"
        error = type(problem)(f"{problem}. {note}")
        error.spooled = file
        return error

    # ---------------------------------------------------------------- storing what waits

    def replay_at_open(self) -> None:
        """Store what waits, whoever left it. If that cannot be done yet, it comes before this handle's next write."""
        try:
            self._spool.replay(self._store_late, wait=WAIT_AT_OPEN_S)
        except (errors.StoreError, OSError) as problem:
            self._replayed = -1
            log.warning("what waits in %s is not stored yet: %s", self._spool.folder, problem)

    def catch_up(self) -> None:
        """Store what this handle has in the spool, before it writes anything else."""
        count = self._spool.kept
        if count == self._replayed:
            return
        try:
            self._spool.replay(self._store_late, wait=WAIT_S)
        except OSError as problem:  # the spool cannot be read; the store can be written, and that comes first
            log.warning("what waits in %s is not stored yet: %s", self._spool.folder, problem)
        self._replayed = max(count, self._replayed)

    def _store_late(self, entry: Entry) -> None:
        try:
            if entry.verb == "append_message":
                self._append_late(entry)
            elif entry.verb == "create_session":
                self._late_sessions.create(_read_session(entry))
            else:
                raise Unstorable(f"this version does not know {entry.verb!r}")
        except NEVER as problem:
            raise Unstorable(str(problem)) from problem

    def _append_late(self, entry: Entry) -> None:
        message, owners = _read_message(entry)
        messages = self._late_messages
        if owners is not None:
            messages = Messages(self._engine.scoped(tuple(owners)).owning(message.session_id))
        messages.append(message)


class SpoolFirstEngine:
    """An engine on which nothing is written before what waits in the spool."""

    def __init__(self, engine: Access, catch_up: Callable[[], None]) -> None:
        self._engine = engine
        self._catch_up = catch_up

    def write(self, work: Callable[[Writer], T], *, share: bool = True, repeatable: bool = True) -> T:
        self._catch_up()
        return self._engine.write(work, share=share, repeatable=repeatable)

    def scoped(self, owners: tuple[str, ...]) -> SpoolFirstEngine:
        return SpoolFirstEngine(cast(Engine, self._engine).scoped(owners), self._catch_up)

    def owning(self, *session_ids: str) -> SpoolFirstEngine:
        return SpoolFirstEngine(cast(Scoped, self._engine).owning(*session_ids), self._catch_up)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _write_message(message: NewMessage) -> dict[str, Any]:
    """The arguments of an entry, without the uid, which is the entry's own."""
    arguments = message._asdict()
    del arguments["uid"]
    columns = arguments.pop("columns")
    return {**arguments, **columns}


def _read_message(entry: Entry) -> tuple[NewMessage, list[str] | None]:
    """The message of an entry, and the owners in whose sessions it may be written if not in all."""
    columns = dict(entry.arguments)
    owners = columns.pop("owners", None)
    message = NewMessage(
        columns.pop("session_id"),
        columns.pop("role"),
        columns.pop("content", None),
        timestamp=columns.pop("timestamp", None),
        lease_epoch=columns.pop("lease_epoch", None),
        uid=bytes.fromhex(entry.uid).hex(),
    )
    check_column_names(columns)
    return message._replace(columns=columns), owners


def _write_session(session: NewSession) -> dict[str, Any]:
    arguments = session._asdict()
    columns = {"owner": LOCAL, **arguments.pop("columns")}
    origin = [columns.pop(name, None) for name in ORIGIN]
    return arguments | columns | {"belonging": origin}


def _read_session(entry: Entry) -> NewSession:
    columns = dict(entry.arguments)
    columns |= zip(ORIGIN, columns.pop("belonging", None) or (), strict=False)
    start = {name: columns.pop(name, None) for name in ("parent_session_id", "started_at")}
    return NewSession(columns.pop("session_id"), columns.pop("source"), columns, **start)


def _make_plain(name: str, value: object) -> object:
    """The value as JSON can keep it, such that the store makes the same of it."""
    if name == "content" and isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    try:
        json.dumps(value)
        return value
    except (TypeError, ValueError, RecursionError):
        pass
    if name == "content":
        return str(value)
    return json.loads(to_json(value)) if value else None  # a JSON column keeps nothing of what is empty
