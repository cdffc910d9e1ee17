"""Summaries of earlier conversations by the auxiliary model, for `session_search` with `summarize`.

`hermes.recall` calls a summariser from its own threads. The request runs on the event loop of the turn, so
stopping the turn also cancels the request. Secrets are redacted before the model receives a transcript, and
again in its answer. Each call is recorded in the usage accounts of the session.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hermes import errors
from hermes.agent.auxiliary import AuxiliaryAnswer, account_call, ask
from hermes.agent.models.model import ContextOverflow, Model, ModelError, Price
from hermes.agent.models.provider_errors import hide_detail
from hermes.logs import get_logger
from hermes.recall.tool.prompt_safety import fence_text
from hermes.recall.tool.summaries import TRANSCRIPT
from hermes.secrets import redact
from hermes.text import replace_surrogates

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore

log = get_logger(__name__)

SECONDS, MAX_TOKENS, TEMPERATURE = 55.0, 4_000, 0.1
PROMPT_TOKENS, CHARACTERS_PER_TOKEN, SMALLEST = 1_000, 3, 2_000
"""The tokens reserved for the prompt, the characters per token, and the minimum length of a transcript in
characters."""
HALVINGS = 2
"""How many times a transcript that is too long for the model is cut in half and sent again."""


class SessionSummaries:
    """Creates a summariser for each call of `session_search`."""

    def __init__(
        self,
        model: Callable[[], Model | None],
        price: Price,
        *,
        seconds: float = SECONDS,
        shows_detail: bool = True,
    ) -> None:
        """`model` returns the model that writes the summaries; None if no model is available. It is called in a
        thread, once for each summariser.

        If `shows_detail` is False, errors of the model do not include the provider's error message.
        """
        self._model, self._price, self._seconds, self._shows_detail = model, price, seconds, shows_detail

    @asynccontextmanager
    async def summariser(self, db: AnyStore, session_id: str) -> AsyncIterator[Summariser | None]:
        """Return an async context manager with a summariser; None instead of it if no model is available. When the
        `async with` block ends, calls of the summariser that are still running are cancelled."""
        model = await asyncio.to_thread(self._model)
        if model is None:
            yield None
            return
        made = Summariser(model, self._price, db, session_id, self._seconds, self._shows_detail)
        try:
            yield made
        finally:
            await made.close()


class Summariser:
    """A function that is called with a prompt and a transcript and returns the summary. Call it in a thread,
    while the event loop in which it was created runs."""

    def __init__(
        self,
        model: Model,
        price: Price,
        db: AnyStore,
        session_id: str,
        seconds: float,
        shows_detail: bool = True,
    ) -> None:
        self._model, self._price, self._seconds, self._shows_detail = model, price, seconds, shows_detail
        self._db, self._session_id = db, session_id
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[str]] = set()
        self._mutex = threading.Lock()
        self._closed = False
        self._scheduled = self._begun = 0

    @property
    def transcript_size(self) -> int:
        """The number of transcript characters that fit into the model's context."""
        room = int(self._model.context_window * 0.9) - MAX_TOKENS - PROMPT_TOKENS
        return max(SMALLEST, min(TRANSCRIPT, room * CHARACTERS_PER_TOKEN))

    def __call__(self, prompt: str, transcript: str) -> str:
        safe = redact(transcript)
        with self._mutex:  # no call is scheduled after `close`
            if self._closed:
                raise ModelError("the turn was stopped before the request")
            self._scheduled += 1
            future = asyncio.run_coroutine_threadsafe(self._summarise(prompt, safe), self._loop)
        return redact(replace_surrogates(future.result()))

    async def close(self) -> None:
        """Cancel the running calls and wait until they have ended."""
        with self._mutex:
            self._closed = True
        while self._begun < self._scheduled:
            await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _summarise(self, prompt: str, transcript: str) -> str:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._begun += 1
        try:
            answered = await self._ask(prompt, transcript)
            await self._account(answered)
            return answered.text
        # the error is raised only in the thread that waits for the result
        except asyncio.CancelledError as stopped:
            raise ModelError("the turn was stopped before the answer") from stopped
        except ModelError as problem:
            if self._shows_detail:
                raise
            log.warning("a conversation could not be summarised: %s", redact(str(problem)))
            raise hide_detail(problem) from None
        finally:
            self._tasks.discard(task)

    async def _ask(self, prompt: str, transcript: str) -> AuxiliaryAnswer:
        for _ in range(HALVINGS):
            try:
                return await self._ask_once(prompt, transcript)
            except ContextOverflow:
                transcript = shorten(transcript, len(transcript) // 2)
        return await self._ask_once(prompt, transcript)

    async def _ask_once(self, prompt: str, transcript: str) -> AuxiliaryAnswer:
        messages = [
            {"role": "system", "content": prompt},
            {"role": "user", "content": fence_text(transcript)},
        ]
        return await ask(
            self._model, messages, max_tokens=MAX_TOKENS, seconds=self._seconds, temperature=TEMPERATURE
        )

    async def _account(self, answered: AuxiliaryAnswer) -> None:
        call, _ = account_call(answered.model, answered.used, self._price)
        try:
            await asyncio.to_thread(lambda: self._db.record_usage(self._session_id, **call))
        except errors.StoreError as problem:
            log.warning(
                "the usage of a summary for session %s was not recorded: %s", self._session_id, problem
            )


def shorten(transcript: str, most: int) -> str:
    """Return the whole lines around the search hit in a transcript that fit into `most` characters.

    The hit is assumed to be one quarter of the way into the transcript, because `hermes.recall` cuts transcripts
    that way.
    """
    lines = transcript.split("\n")
    before = len(transcript) // 4 - most // 4
    kept: list[str] = []
    at = size = 0
    for line in lines:
        at += len(line) + 1
        if at > before and size + len(line) < most:
            kept.append(line)
            size += len(line) + 1
        elif kept:
            break
    return "\n".join(kept) or transcript[before : before + most]
