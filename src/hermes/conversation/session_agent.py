"""The agent of a live conversation, and its work outside turns: saving memory, titles and transcripts. The agent is
built when it is first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hermes import errors
from hermes.agent.components import LEAST_SAID, AgentComponents
from hermes.agent.models.model import Model
from hermes.conversation.agents import AgentProvider, AgentScope, LiveRecord, PreparedAgent
from hermes.conversation.background_tasks import BackgroundTasks
from hermes.conversation.live_session import LiveSession, StoreT
from hermes.conversation.model_choice import ModelSelector
from hermes.conversation.surface import Surface

if TYPE_CHECKING:
    from hermes.conversation.file_restore import FileRestorer
    from hermes.db.session_db import AnyStore

SAVING_S = 60.0


class SessionAgent(LiveSession[StoreT]):
    def __init__(
        self,
        store: StoreT,
        agents: AgentProvider,
        scope: AgentScope,
        surface: Surface,
        models: ModelSelector | None = None,
    ) -> None:
        """Create the conversation. If `models` is given, the person can choose the model of this conversation. In that
        case the conversation owns `agents`, and `close` closes them."""
        self._agents = agents
        self._prepared: PreparedAgent | None = None
        self._prepared_for, self._generation = scope, 0
        self._background = BackgroundTasks()
        self._titled: str | None = None
        """The id of the last session for which title generation is finished."""
        self._in_memory: dict[str, LiveRecord] = {}
        """Incognito conversations that the person left, by session id."""
        super().__init__(store, scope, surface, models)

    def _set_record(self, record: LiveRecord) -> None:
        super()._set_record(record)
        self._prepared = None

    @property
    def parts(self) -> AgentComponents:
        """The components of the conversation's agent. May read files."""
        return self._agents.get_components(self.scope)

    async def prepare(self) -> PreparedAgent:
        """Return the agent; build it first if necessary. Raises `HermesError` if the model cannot be used;
        the next call tries again."""
        if self._prepared_for != self.scope:  # for example, the person has other permissions now
            self._prepared_for = self.scope
            self.renew_agent()
        while (prepared := self._prepared) is None:
            record, generation = self.record, self._generation
            prepared = await self._agents.prepare_agent(self.scope, self.store, record)
            is_current = self.models is None or self.models.model is prepared.agent.model
            # If not, the settings, the model or the session changed meanwhile.
            if is_current and record is self.record and generation == self._generation:
                self._prepared = prepared
        return prepared

    def renew_agent(self) -> None:
        """Build the agent again before the next turn. A running turn keeps its agent."""
        self._prepared = None
        self._generation += 1

    async def choose_model(self, name: str) -> Model:
        """Continue with the model `name`. If it cannot be built, raise an error and change nothing."""
        assert self.models is not None
        model = await self.models.choose(name)
        self._prepared = None
        if self.exists:
            await asyncio.to_thread(self.store.set_session_model, self.session_id, model.name)
        return model

    async def _fall_back(self) -> str | None:
        """Replace the model of the conversation by the default model, because it is no longer available.

        Return a message for the person. None if there is no other model.
        """
        notice = None if self.models is None else await self.models.fall_back()
        if notice is not None:
            self._prepared = None
        return notice

    async def read_memory(self) -> str:
        """Return the text of the agent's memory; empty if the agent has no memory."""
        return await asyncio.to_thread(lambda: "" if (read := self.parts.memory) is None else read())

    async def list_skills(self) -> Sequence[tuple[str, str]]:
        """Return the name and the description of each skill of the agent."""
        return await asyncio.to_thread(lambda: () if (read := self.parts.skills) is None else read())

    def make_file_restorer(self) -> FileRestorer | None:
        """Return an object that restores the files that tools edited in this conversation; None if no journal
        of edits is kept."""
        make_journal = self.parts.edits
        if make_journal is None:
            return None
        from hermes.conversation.file_restore import FileRestorer

        return FileRestorer(make_journal(self.incognito), self.store, self.session_id)

    async def stop_processes(self) -> int:
        """End the background processes of the conversation. Return how many were running."""
        session_id = self.known_id
        if session_id is None:
            return 0

        def stop() -> int:
            end = self.parts.stop_processes
            return 0 if end is None else end(self.store, session_id)

        return await asyncio.to_thread(stop)

    # ---------------------------------------------------------------- work besides turns

    async def save(self, least: int = LEAST_SAID) -> bool:
        """Run a silent turn in which the agent saves facts to memory. Return whether the turn was completed.
        The turn runs only if the person sent at least `least` messages since the last such turn. It has a time limit.
        Its errors are ignored.
        """
        if not self.exists:
            return False
        with suppress(errors.HermesError):
            return await self._save(await self.prepare(), least)
        return False

    async def _save(self, prepared: PreparedAgent, least: int) -> bool:
        save = self.parts.save
        if save is not None:
            with suppress(errors.HermesError, TimeoutError):
                async with asyncio.timeout(SAVING_S):
                    return await save(prepared.agent, least)
        return False

    def _schedule_title(self) -> None:
        if self.exists and self.session_id != self._titled:
            make = self.parts.make_title
            if make is not None:
                self._background.start(self._make_title(self.session_id, make))

    async def _make_title(
        self, session_id: str, make: Callable[[AnyStore, str], Awaitable[str | None]]
    ) -> None:
        from hermes.agent.title_generation import make_title_while_young

        if await make_title_while_young(self.store, session_id, make):
            self._titled = session_id

    async def _transcribe(self, record: LiveRecord) -> None:
        transcribe = self.parts.transcribe
        if transcribe is not None and record.exists:
            with suppress(
                errors.StoreError, OSError
            ):  # the store has the messages; a later run writes the copy
                await asyncio.to_thread(transcribe, self.store, record.session_id)

    @property
    def has_background_work(self) -> bool:
        """Whether background work runs, such as the generation of a title."""
        return bool(self._background)

    async def settle(self) -> None:
        """Wait until the background work of this conversation has ended, such as the generation of a title."""
        await self._background.wait()
