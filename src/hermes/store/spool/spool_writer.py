"""Spooling of writes: a write that the store cannot accept is spooled, reported to the caller, and stored
later.

A handle must opt in. Its caller immediately gets the same error as without the spool, but with the path of
the spool file. Every later write of the handle first stores the spooled writes, so that a conversation keeps
its order. A caller that retries failed writes itself must not opt in, because its messages would be stored
twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

from hermes import clock, errors
from hermes.logs import get_logger
from hermes.message_content import PARTIAL
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
"""Errors after which a write is spooled, because the store may accept it later."""
NEVER = (
    *(errors.InvalidArgument, errors.UnknownSession, errors.ConstraintFailed, errors.LeaseLost),
    *(TypeError, ValueError, LookupError),
)
"""Errors that no retry can resolve."""

WAIT_S, WAIT_AT_OPEN_S = 30.0, 2.0
"""How many seconds to wait for a replay by another process: before a write, and when a handle is opened."""

ORIGIN = (
    *("owner", "session_key", "chat_id", "chat_type", "thread_id", "display_name", "origin_json"),
    *("workspace", "cwd", "git_branch", "process"),
)
"""Columns of a new session that a spool entry stores as one list, `belonging`. All versions of the program
can read this format."""


class SpoolWriter:
    """Performs the append and create operations of one handle, and spools them if they fail. `engine` is for
    all other writes of the handle."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.engine = cast(Engine, SpoolFirstEngine(engine, self.catch_up))
        self._spool = Spool(engine.path)
        self._store = engine.path.name
        self._messages, self._sessions = Messages(self.engine), Sessions(self.engine)
        late = cast(Engine, UnsharedEngine(engine))
        self._late_messages, self._late_sessions = Messages(late), Sessions(late)
        self._replayed = 0  # this handle has spooled entries as long as `Spool.kept` is higher

    def append(self, message: NewMessage) -> int:
        """Append a message and return its id. The time and uid of the message are fixed before the first
        attempt, so that a later replay stores the same message."""
        return self._append(self._messages, message)

    def append_for(self, owners: tuple[str, ...], message: NewMessage) -> int:
        """Append a message for a caller that may write only to sessions of `owners`, and return its id. A
        replay applies the same limit."""
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
            if message.columns.get("finish_reason") == PARTIAL:  # the whole answer is appended later
                raise
            arguments = _write_message(message) | more
            raise self._keep_write(problem, "append_message", uid, now, arguments) from problem

    def create(self, session: NewSession) -> str:
        """Create a session. If the session already exists, nothing is written, so this succeeds even while
        the store accepts no writes."""
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
        """Add a write that has failed with the error `problem` to the spool. Return an error of the same type,
        whose message names the spool file. If the spool cannot be written either, the message says so."""
        plain = {name: _make_plain(name, value) for name, value in arguments.items()}
        entry = Entry(verb, str(plain["session_id"]), uid, at, self._store, plain)
        file = None
        try:
            file = self._spool.keep(entry)
            note = f"It is kept in {file} and will be stored when the store is available again"
        except OSError as trouble:
            note = f"It was not saved: {self._spool.folder} cannot be written either ({trouble.strerror})"
        error = type(problem)(f"{problem}. {note}")
        error.spooled = file
        return error

    # ---------------------------------------------------------------- replay

    def replay_at_open(self) -> None:
        """Store all waiting entries, including those of other handles. If this fails, it is tried again
        before the next write of this handle."""
        try:
            self._spool.replay(self._store_late, wait=WAIT_AT_OPEN_S)
        except (errors.StoreError, OSError) as problem:
            self._replayed = -1
            log.warning("the messages in %s are not stored yet: %s", self._spool.folder, problem)

    def catch_up(self) -> None:
        """Store the spooled entries of this handle. Called before each write."""
        count = self._spool.kept
        if count == self._replayed:
            return
        try:
            self._spool.replay(self._store_late, wait=WAIT_S)
        except OSError as problem:  # the spool is unreadable, but the store can be written
            log.warning("the messages in %s are not stored yet: %s", self._spool.folder, problem)
        self._replayed = max(count, self._replayed)

    def _store_late(self, entry: Entry) -> None:
        try:
            if entry.verb == "append_message":
                self._append_late(entry)
            elif entry.verb == "create_session":
                self._late_sessions.create(_read_session(entry))
            else:
                raise Unstorable(f"this version does not support {entry.verb!r}")
        except NEVER as problem:
            raise Unstorable(str(problem)) from problem

    def _append_late(self, entry: Entry) -> None:
        message, owners = _read_message(entry)
        messages = self._late_messages
        if owners is not None:
            own = self._engine.scoped(tuple(owners)).owning(message.session_id)
            messages = Messages(cast(Access, UnsharedEngine(own)))
        messages.append(message)


class SpoolFirstEngine:
    """An engine that calls `catch_up` before each write, so that the spooled writes of the handle are stored
    first."""

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


class UnsharedEngine:
    """An engine for replaying the spool. Each of its writes is on disk when it returns, even within
    `Engine.run_together`, because the spool file that contained the write is removed afterwards."""

    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def write(self, work: Callable[[Writer], T], *, share: bool = False, repeatable: bool = True) -> T:
        return self._engine.write(work, share=False, repeatable=repeatable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _write_message(message: NewMessage) -> dict[str, Any]:
    """Return the fields and columns of a message, as the arguments of an entry of the spool. The uid is left
    out, because the entry has its own field for it."""
    arguments = message._asdict()
    del arguments["uid"]
    columns = arguments.pop("columns")
    return {**arguments, **columns}


def _read_message(entry: Entry) -> tuple[NewMessage, list[str] | None]:
    """Return (message of an entry of the spool, owners). When the message is stored, the write is limited to
    the sessions of these owners. If the second value is None, there is no limit."""
    columns = dict(entry.arguments)
    owners = columns.pop("owners", None)
    message = NewMessage(
        columns.pop("session_id"),
        columns.pop("role"),
        columns.pop("content", None),
        timestamp=columns.pop("timestamp", None),
        lease_epoch=columns.pop("lease_epoch", None),
        replaces=columns.pop("replaces", None),
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
    """Return the value of the argument `name` of a write in a form that JSON can represent. Storing this form
    gives the same stored value as storing `value`."""
    if name == "content" and isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    try:
        json.dumps(value)
        return value
    except (TypeError, ValueError, RecursionError):
        pass
    if name == "content":
        return str(value)
    return json.loads(to_json(value)) if value else None  # a JSON column stores NULL for an empty value
