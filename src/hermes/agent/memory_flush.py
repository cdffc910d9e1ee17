"""The memory flush: a hidden turn in which the agent saves important facts to its memory and skills.

It runs before messages leave the context. It works on a copy of the messages, in the background. The person
does not see it and never waits for it. Its messages are not stored; only the writes of its tools and its
usage are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import errors
from hermes.agent.answer import collect_answer
from hermes.agent.components import LEAST_SAID
from hermes.agent.context.boundaries import Row, is_summary, take_tail
from hermes.agent.context.tool_output_limits import shorten_rows
from hermes.agent.models.model import Model, Price
from hermes.agent.prompt.participants import UNKNOWN, Speaker, is_marked, list_speakers
from hermes.agent.tool import Tool, ToolContext
from hermes.agent.transcript import IncognitoRecord
from hermes.agent.turn import Turn
from hermes.logs import get_logger

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore

log = get_logger(__name__)

SECONDS, GRACE_S = 30.0, 2.0
MOST_STEPS = 4
OF_WINDOW = 0.6
"""The share of the model's context window that the messages of a flush may fill."""
WHOLE = 6
"""The number of newest messages whose tool output is kept. In older messages, long tool output is replaced by
a note of one line."""

TASK = (
    "[This conversation is about to leave your context; the person does not see this message or your answer.] Save now,"
    " with your tools, what will matter in later conversations and is not saved yet: facts about the person and what"
    " they prefer, decisions, how a recurring task is done. Save no secrets, and nothing that only mattered here. If"
    " there is nothing, save nothing. Then answer with one word: done."
)


ROOM_TASK = (
    "[This conversation is about to leave your context; nobody in the room sees this message or your answer.] Save now,"
    " with your tools, what will matter in later conversations of this room and is not saved yet: decisions, how a"
    " recurring task is done, what people said about themselves, each with the name of who said it. Save no secrets,"
    " and nothing that only mattered here. If there is nothing, save nothing. Then answer with one word: done."
)


class MemorySaver:
    def __init__(
        self,
        db: AnyStore,
        model: Model,
        tools: Sequence[Tool],
        *,
        price: Price,
        cwd: Path,
        enabled: bool = True,
        seconds: float = SECONDS,
        most_steps: int = MOST_STEPS,
        shared: bool = False,
    ) -> None:
        """`tools` must contain only the tools for memory and skills. `shared`: several people share the
        memory."""
        self._shared = shared
        self._db, self._model, self._tools, self._price, self._cwd = db, model, tools, price, cwd
        self._enabled, self._seconds, self._most_steps = enabled and bool(tools), seconds, most_steps
        self._seen: set[int] = set()
        self._one_at_a_time = asyncio.Lock()
        self._working: set[asyncio.Task[bool]] = set()

    def begin(
        self, session_id: str, rows: Sequence[Row], least: int = LEAST_SAID
    ) -> asyncio.Task[bool] | None:
        """Start a memory flush of these messages in the background and return its task.

        Start nothing and return None if the flush is disabled, if fewer than `least` of the person's messages are
        new since the last flush, or if the memory belongs to one person but the messages are by several people.
        """
        prompts = [row.get("id") for row in rows if row.get("role") == "user"]
        new = [message_id for message_id in prompts if message_id not in self._seen]
        if not self._enabled or len(new) < least:
            return None
        # A person can continue a conversation of a room in private. Its messages are by several people, so
        # nothing is saved to the memory of this one person.
        if not self._shared and is_marked(rows):
            return None
        numbers = {message_id for message_id in new if message_id is not None}
        self._seen |= numbers
        task = asyncio.create_task(self._save(session_id, list(rows), numbers), name="saving")
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return task

    async def save(self, session_id: str, rows: Sequence[Row], least: int = LEAST_SAID) -> bool:
        """Run a memory flush of these messages and wait until it ends. Return whether it completed. If `begin` would
        start nothing, return False."""
        task = self.begin(session_id, rows, least)
        return False if task is None else await task

    async def close(self, grace: float = GRACE_S) -> None:
        """Wait up to `grace` seconds for the memory flushes that are still running, then cancel them."""
        if not self._working:
            return
        _, late = await asyncio.wait(set(self._working), timeout=grace)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _save(self, session_id: str, rows: list[Row], new: set[int]) -> bool:
        """Run a memory flush of `rows` and return whether it completed. `new` contains the ids of the person's
        messages that this flush is the first to cover. If the flush did not complete, the next flush treats them as
        new again."""
        done = False
        try:
            async with self._one_at_a_time, asyncio.timeout(self._seconds):
                done = await self._run_turn(session_id, rows)
        except (TimeoutError, errors.HermesError) as problem:
            log.info("the memory flush of session %s did not complete: %r", session_id, problem)
        finally:
            if not done:
                self._seen -= new
        return done

    async def _run_turn(self, session_id: str, rows: list[Row]) -> bool:
        session = await asyncio.to_thread(self._db.get_session, session_id)
        prompt = (session or {}).get("system_prompt") or ""
        record = _SilentRecord(self._db, session_id, self._fit_rows(rows), prompt)

        async def get_prompt() -> str:
            return prompt

        async def list_everybody() -> list[Speaker]:
            # A summary can contain statements by anyone, so an unknown speaker is added.
            return [*list_speakers(rows), *([UNKNOWN] if any(map(is_summary, rows)) else [])]

        turn = Turn(
            record,
            self._model,
            self._tools,
            lambda approve, stop: ToolContext(
                self._db, session_id, self._cwd, approve, stop, list_everybody if self._shared else None
            ),
            price=self._price,
            prompt=get_prompt,
            most_steps=self._most_steps,
        )
        answer = await collect_answer(turn.events(ROOM_TASK if self._shared else TASK))
        return answer.outcome == "answered"

    def _fit_rows(self, rows: list[Row]) -> list[Row]:
        """Return the messages that fit into the model's context. Older tool output is replaced by a note of
        one line, and newer tool output is shortened. If that is not enough, the oldest messages are left
        out."""
        old = rows[-WHOLE]["id"] if len(rows) > WHOLE and rows[-WHOLE].get("id") is not None else 0
        return take_tail(shorten_rows(rows, old, pressed=True), int(self._model.context_window * OF_WINDOW))


class _SilentRecord(IncognitoRecord):
    """The record of a memory flush. It stores no messages. It adds the usage of the flush to `session_id`, the
    session whose messages are flushed."""

    def __init__(self, db: AnyStore, session_id: str, rows: Sequence[Row], prompt: str) -> None:
        super().__init__(rows, prompt)
        self._db, self._for = db, session_id

    @property
    def session_id(self) -> str:
        return self._for

    async def count(self, **call: Any) -> None:
        await asyncio.to_thread(lambda: self._db.record_usage(self._for, **{**call, "purpose": "auxiliary"}))
