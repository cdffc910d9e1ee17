"""The transcript of a live conversation. Every message is stored before anything depends on it.

If a message cannot be stored, the surface is notified. The record keeps the message in memory, so that the
conversation can continue. A handle with a spool also writes it to the spool. An incognito conversation exists
only in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from hermes import clock, errors
from hermes.agent.events import NotStored, Stored
from hermes.db.store_queue import call_store, call_store_early
from hermes.message_content import PARTIAL, make_prompt_preview
from hermes.store.content import from_json
from hermes.store.sessions.sessions import new_session_id

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore, SessionDB
    from hermes.store.chats.leases import Lease

T = TypeVar("T")
Row = dict[str, Any]

LEASE_S, RENEW_S = 60.0, 20.0
PREVIEW = 80
"""The length limit of the preview of a prompt, in characters."""
LEFT_ALONE: Row = {"imported": True}
"""Used in place of a stored configuration that cannot be parsed. A configuration with the key `imported` is
never changed."""


class Record(Protocol):
    """The messages of a live conversation, as the agent reads and writes them."""

    keeps_partial: bool
    """Whether `keep_partial` stores anything. If True, the text of an answer that fails or is cancelled is
    stored as interrupted."""

    @property
    def session_id(self) -> str: ...

    async def say(self, role: str, content: Any = None, **fields: Any) -> Stored | NotStored:
        """Store a message of the conversation. `fields` are further arguments of `append_message`."""

    async def keep_partial(self, **fields: Any) -> None:
        """Store the text so far of an answer that is being streamed. When `say` stores the whole answer, it
        replaces this text."""

    async def drop_partial(self) -> None:
        """Remove the partial answer that `keep_partial` stored, because the answer is void."""

    async def context(self) -> list[Row]:
        """Return the messages that the model receives. Each message that is stored has an `id`."""

    async def system_prompt(self) -> str | None:
        """Return the system prompt of the session; None until one is set."""

    async def keep_prompt(self, text: str) -> None: ...

    async def keep_model_config(self, config: Mapping[str, Any]) -> None:
        """Store the configuration of the main model, which answers the person. Do nothing if it is already
        stored, or if the session has an imported configuration."""

    async def count(self, **call: Any) -> None:
        """Add a model call to the usage accounts. The arguments are those of `record_usage`."""

    async def say_and_count(
        self, message: Mapping[str, Any], call: Mapping[str, Any]
    ) -> tuple[Stored | NotStored, errors.StoreError | None]:
        """Store an answer of the model as `say` does, and add its model call to the usage accounts as `count` does.
        Return the result of `say`, and the error of `count`; None if there was no error."""

    async def continue_with(
        self, summary: str, *, head: Sequence[int], carried: Sequence[int], prompt: str
    ) -> None:
        """Continue the conversation in a new session, the continuation. Its context is the messages with the ids
        `head`, then the summary, then the messages with the ids `carried`. Its system prompt is `prompt`. The change
        is atomic."""

    async def catch_up(self) -> None:
        """Move to the latest session of the conversation if another process compressed it."""


class StoredRecord:
    """A conversation in the store. A new session is created together with its first message.

    If the session is deleted or moved to the trash during the conversation, the conversation continues in a
    new session. The messages of the current turn are stored again there; earlier messages are not.
    """

    def __init__(
        self,
        db: AnyStore,
        session_id: str | None = None,
        *,
        source: str = "cli",
        surface: str = "terminal",
        make_session: Callable[[], Awaitable[str]] | None = None,
        previous_id: str | None = None,
        choose_title: Callable[[], str | None] = lambda: None,
        keeps_partial: bool = False,
        make_id: Callable[[], str] = new_session_id,
        **new: Any,
    ) -> None:
        """`session_id` is an existing session, or None for a new one. `new` contains further arguments of
        `create_session`. `keeps_partial`: whether `keep_partial` stores anything. `make_id` makes the ids
        of new sessions.

        A new session is linked to `previous_id`, the session that the person left. Its title is the result of
        `choose_title`. If the session is deleted during the conversation, `make_session` creates the session
        that replaces it. Pass `make_session` with handles that assign session ids themselves.
        """
        self.db = db
        self.lease: Lease | None = None
        self._make_id = make_id
        self._id = session_id or make_id()
        self._exists = session_id is not None
        self._source, self._surface, self._new = source, surface, new
        self._make_session, self._choose_title = make_session, choose_title
        self.previous_id = previous_id
        self.keeps_partial = keeps_partial
        self._partial_id: int | None = None
        """The id of the message that `keep_partial` stored for the answer that is being streamed."""
        self._turn_rows: list[Row] = []
        """The messages stored since the last complete answer of the model."""
        self._unsaved: list[Row] = []
        self._prompt: str | None = None
        self._config: Row | None = None
        """The `model_config` of the session; None until it is read."""
        self._renewing: asyncio.Task[None] | None = None
        self._prepare: Callable[[], None] | None = None

    @property
    def session_id(self) -> str:
        return self._id

    @property
    def exists(self) -> bool:
        """Whether the session exists in the store."""
        return self._exists

    @property
    def epoch(self) -> int | None:
        return None if self.lease is None else self.lease.epoch

    async def say(self, role: str, content: Any = None, **fields: Any) -> Stored | NotStored:
        return await self._say({"role": role, "content": content, **fields}, self._append)

    async def say_and_count(
        self, message: Mapping[str, Any], call: Mapping[str, Any]
    ) -> tuple[Stored | NotStored, errors.StoreError | None]:
        problem: errors.StoreError | None = None

        def append_and_count(row: Row) -> int:
            nonlocal problem
            message_id = self._append(row)
            try:
                self.db.record_usage(self._id, **call)
                problem = None
            except errors.StoreError as failure:
                problem = failure
            return message_id

        stored = await self._say({"role": "assistant", **message}, append_and_count)
        if isinstance(stored, NotStored):
            try:
                await self.count(**call)
            except errors.StoreError as failure:
                problem = failure
        return stored, problem

    async def _say(self, row: Row, append: Callable[[Row], int]) -> Stored | NotStored:
        """Store the message `row` by calling `append`, which returns the id of the stored message. Create the session
        first if it does not exist."""
        role = str(row["role"])
        if role == "assistant" and self._partial_id is not None:
            row["replaces"], self._partial_id = self._partial_id, None
        try:
            if not self._exists:
                await self._create()
            # The answer is shown to people, so it must be on disk first.
            call = call_store if role == "assistant" else call_store_early
            try:
                message_id = await call(append, row)
            except errors.UnknownSession:
                await self._replace_session(role)
                message_id = await call(append, row)
        except errors.LeaseLost:
            raise
        except errors.StoreError as problem:
            self._unsaved.append(row)
            return NotStored(role, str(problem), problem.spooled is not None)
        self._prepare = None
        self._unsaved.clear()  # the store writes spooled messages before this one
        is_complete = role == "assistant" and not row.get("tool_calls")
        self._turn_rows = [] if is_complete else [*self._turn_rows, row]
        return Stored(message_id, role)

    async def keep_partial(self, **fields: Any) -> None:
        if not (self.keeps_partial and self._exists) or self._unsaved:
            return
        row = {"role": "assistant", **fields, "finish_reason": PARTIAL, "replaces": self._partial_id}
        with suppress(errors.StoreError):  # the error is reported when the whole answer is stored
            self._partial_id = await call_store_early(self._append, row)

    async def drop_partial(self) -> None:
        message_id, self._partial_id = self._partial_id, None
        if message_id is not None:
            with suppress(errors.StoreError):
                await call_store_early(
                    lambda: self.db.drop_partial(self._id, message_id, lease_epoch=self.epoch)
                )

    def prepare_next(self, prepare: Callable[[], None]) -> None:
        """Arrange that `prepare` is called just before the next message is stored, in the same call to the store."""
        self._prepare = prepare

    def _append(self, row: Row) -> int:
        if self._prepare is not None:
            self._prepare()
        return self.db.append_message(self._id, lease_epoch=self.epoch, **row)

    async def _replace_session(self, role: str) -> None:
        """Continue in a new session and store the messages of the current turn there."""
        rows = [*self._turn_rows, *self._unsaved]
        if role == "user" and not rows:
            self._prompt = None  # a new conversation gets a new prompt
        self._config = None
        await self.close()
        if self._make_session is None:
            self._id, self._exists = self._make_id(), False
            await self._create()
        else:
            self._id = await self._make_session()
            if self._prompt is not None:
                await call_store_early(self.db.update_system_prompt, self._id, self._prompt)
            await self.hold()
        for row in rows:
            await call_store_early(self._append, row)

    async def context(self) -> list[Row]:
        if not self._exists:
            return list(self._unsaved)
        try:
            rows = await call_store_early(self.db.get_context, self._id)
        except errors.StoreError:
            if not self._unsaved:
                raise
            rows = []
        if not rows and self._turn_rows:  # deleted during the turn: the next message begins a new session
            rows = list(self._turn_rows)
        replaced = {row["replaces"] for row in self._unsaved if row.get("replaces") is not None}
        return [row for row in rows if row.get("id") not in replaced] + self._unsaved

    async def system_prompt(self) -> str | None:
        if self._prompt is None and self._exists:
            session = await call_store_early(self.db.get_session, self._id)
            self._prompt = None if session is None else session["system_prompt"]
            self._config = _read_config(session)
        return self._prompt

    async def keep_prompt(self, text: str) -> None:
        self._prompt = text
        if self._exists:
            await call_store_early(self.db.update_system_prompt, self._id, text)

    async def keep_model_config(self, config: Mapping[str, Any]) -> None:
        if not self._exists:
            return
        if self._config is None:
            session = await call_store_early(self.db.get_session, self._id)
            self._config = _read_config(session)
        merged = {**self._config, **config}
        if merged == self._config or "imported" in self._config:
            return
        try:
            await call_store_early(self.db.set_session_model_config, self._id, merged)
        except errors.StoreError:
            return  # the next turn tries again
        self._config = merged

    async def count(self, **call: Any) -> None:
        if self._exists:
            await call_store_early(lambda: self.db.record_usage(self._id, **call))

    async def move(self, session_id: str) -> None:
        """Continue in another session of the same conversation. The lease is kept, because it covers the
        whole conversation. The system prompt is read again from the new session."""
        self._id, self._exists, self._prompt, self._config = session_id, True, None, None

    async def continue_with(
        self, summary: str, *, head: Sequence[int], carried: Sequence[int], prompt: str
    ) -> None:
        child = await call_store_early(
            lambda: self.db.begin_continuation(
                self._id, summary, carried, head=head, lease_epoch=self.epoch, system_prompt=prompt
            )
        )
        await self.move(child)

    async def catch_up(self) -> None:
        await self.move(await call_store_early(self.db.get_compression_tip, self._id))

    # ---------------------------------------------------------------- lease

    async def hold(self, *, take_over: bool = False) -> None:
        """Acquire the lease of the conversation. Raise `LeaseHeld` if another process has it, unless
        `take_over` is True."""
        if not self._exists or self.lease is not None:
            return
        ask = self.db.leases.take_over if take_over else self.db.leases.acquire
        taking = asyncio.ensure_future(call_store_early(ask, self._id, self._surface, LEASE_S))
        try:
            self.adopt_lease(await asyncio.shield(taking))
        except asyncio.CancelledError:  # the thread still acquires the lease, so release it
            with suppress(errors.StoreError):
                await call_store_early(self.db.leases.release, await taking)
            raise

    def adopt_lease(self, lease: Lease) -> None:
        """Hold a lease of this conversation that the caller has acquired."""
        self.lease = lease
        if self._renewing is not None:
            self._renewing.cancel()
        self._renewing = asyncio.create_task(self._keep_renewing())

    def forget(self) -> None:
        """Drop what this record has read from the session, and the messages that it could not store. The caller does
        this when the lease is released, because other processes can then change the session."""
        self._turn_rows, self._unsaved = [], []
        self._prompt = self._config = self._partial_id = self._prepare = None

    async def close(self) -> None:
        """Release the lease."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        lease, self.lease = self.lease, None
        if lease is not None:
            try:
                await call_store_early(self.db.leases.release, lease)
            except errors.StoreError:  # the lease expires by itself
                pass

    async def _create(self) -> None:
        db = cast("SessionDB", self.db)  # a new session is created only with `SessionDB`
        if not await call_store_early(self._create_after, db):
            await call_store_early(lambda: db.create_session(self._id, self._source, **self._new))
        self._exists, self.previous_id = True, None
        if self._prompt is not None:
            await call_store_early(self.db.update_system_prompt, self._id, self._prompt)
        await self.hold()

    def _create_after(self, db: SessionDB) -> bool:
        """Create the session as a reset of the session `previous_id`, that is, as a new start that is linked to it.
        Return False if the session cannot be linked."""
        config = self._new.get("model_config") or {}
        try:
            row = None if self.previous_id is None else db.get_session(self.previous_id)
            # Link only to a session without an owner and of the same source.
            if row is None or row["owner"] or row["source"] != self._source:
                return False
            title = self._choose_title()
            db.reset(row["id"], reason="new_session", session_id=self._id, title=title, model_config=config)
        except errors.StoreError:
            return False
        if "cwd" in self._new and self._new["cwd"] != row["cwd"]:
            with suppress(errors.StoreError):
                db.set_session_workspace(self._id, self._new["cwd"], self._new.get("git_branch"))
        return True

    async def _keep_renewing(self) -> None:
        while self.lease is not None:
            await asyncio.sleep(RENEW_S)
            try:
                self.lease = await call_store_early(self.db.leases.renew, self.lease, LEASE_S)
            except errors.LeaseLost:
                return  # the next message raises LeaseLost
            except errors.StoreError:
                continue  # the store is busy; two more attempts fit before the lease expires


def _read_config(session: Row | None) -> Row:
    stored = None if session is None else session["model_config"]
    config = {} if stored is None else from_json(stored, None)
    return config if isinstance(config, dict) else LEFT_ALONE


class IncognitoRecord:
    """A conversation that is never written to disk. It has no lease."""

    exists = False
    keeps_partial = False
    epoch: int | None = None
    lease: Lease | None = None
    previous_id: str | None = None

    def __init__(self, rows: Sequence[Row] = (), prompt: str | None = None) -> None:
        """`rows` are the messages with which the conversation begins, copied from another record."""
        self._id = new_session_id()
        self._rows = list(rows)
        self._last_id = max((row["id"] for row in rows if row.get("id") is not None), default=0)
        self._prompt = prompt
        self._rewound: list[list[Row]] = []
        """The messages that each rewind removed, oldest rewind first. Emptied when a new message is added."""

    @property
    def session_id(self) -> str:
        return self._id

    def list_prompts(self, limit: int) -> list[Row]:
        """Return the last messages of the person, newest first."""
        prompts = [row for row in reversed(self._rows) if row["role"] == "user"][:limit]
        return [{**row, "preview": make_prompt_preview(row["content"], PREVIEW) or ""} for row in prompts]

    def rewind(self, message_id: int) -> list[Row]:
        """Remove a message and all messages after it. Return the removed messages."""
        at = next(at for at, row in enumerate(self._rows) if row.get("id") == message_id)
        taken, self._rows = self._rows[at:], self._rows[:at]
        self._rewound.append(taken)
        return taken

    def restore_rewound(self) -> int:
        """Restore the messages that were removed by rewinds since the last new message. Return how many were
        restored."""
        restored = [row for taken in reversed(self._rewound) for row in taken]
        self._rows += restored
        self._rewound.clear()
        return len(restored)

    def copy(self) -> IncognitoRecord:
        """Return a new incognito conversation with the same messages."""
        return IncognitoRecord(self._rows, self._prompt)

    async def say(self, role: str, content: Any = None, **fields: Any) -> Stored | NotStored:
        self._last_id += 1
        row = {"id": self._last_id, "role": role, "content": content, "timestamp": clock.now(), **fields}
        self._rows.append(row)
        self._rewound.clear()
        return Stored(self._last_id, role)

    async def keep_partial(self, **fields: Any) -> None:
        """Do nothing: an incognito conversation writes nothing."""

    async def drop_partial(self) -> None:
        """Do nothing: there is no partial answer."""

    async def context(self) -> list[Row]:
        return list(self._rows)

    async def system_prompt(self) -> str | None:
        return self._prompt

    async def keep_prompt(self, text: str) -> None:
        self._prompt = text

    async def keep_model_config(self, config: Mapping[str, Any]) -> None:
        """Do nothing: an incognito conversation writes nothing."""

    async def count(self, **call: Any) -> None:
        """Do nothing: an incognito conversation has no usage accounts."""

    async def say_and_count(
        self, message: Mapping[str, Any], call: Mapping[str, Any]
    ) -> tuple[Stored | NotStored, errors.StoreError | None]:
        stored = await self.say("assistant", **message)
        await self.count(**call)
        return stored, None

    async def continue_with(
        self, summary: str, *, head: Sequence[int], carried: Sequence[int], prompt: str
    ) -> None:
        known = {row["id"]: row for row in self._rows}
        self._last_id += 1
        summary_row = {"id": self._last_id, "role": "system", "content": summary}
        self._rows = [
            *(known[row_id] for row_id in head),
            summary_row,
            *(known[row_id] for row_id in carried),
        ]
        self._prompt = prompt
        self._rewound.clear()

    async def catch_up(self) -> None:
        """Do nothing: no other process can continue this conversation."""

    async def hold(self, *, take_over: bool = False) -> None:
        """Do nothing: no other process can open this conversation."""

    async def close(self) -> None:
        """Do nothing: there is no lease."""
