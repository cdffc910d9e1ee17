"""Who answers: a model and its tools, made in a thread while the person types, and changed when they want another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hermes import errors
from hermes.agent.components import NO_WISH, AgentComponents, ModelChoice
from hermes.agent.models.model import Model
from hermes.agent.tool import Tool
from hermes.store.content import from_json
from hermes.text import make_printable


class Answering:
    def __init__(
        self, parts: AgentComponents, wish: ModelChoice = NO_WISH, *, incognito: bool = False
    ) -> None:
        self._parts, self.wish, self._incognito = parts, wish, incognito
        self.tools: Sequence[Tool] = ()
        self._made: asyncio.Task[Model] | None = None
        self._has_tools = False
        self._as_before: ModelChoice | None = None
        self._untold: str | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def prepare(self) -> asyncio.Task[Model]:
        if self._made is None:
            self._made = asyncio.create_task(asyncio.to_thread(self._make))
        return self._made

    def _make(self) -> Model:
        if not self._has_tools:
            self.tools, self._has_tools = self._parts.make_tools(self._incognito), True
        if self._as_before is not None:
            try:
                return self._parts.make_model(self._as_before)
            except errors.HermesError as problem:
                gone = make_printable(self._as_before.model or "the model")
                self._untold = f"{gone} is not to be had ({problem}); the usual model answers."
                self._as_before = None
        return self._parts.make_model(self.wish)

    @property
    def model(self) -> Model | None:
        """None until it is there."""
        made = self._made
        if made is None or not made.done() or made.cancelled() or made.exception() is not None:
            return None
        return made.result()

    async def ready(self) -> Model:
        """Raises what is wrong with the model; it is tried again the next time."""
        try:
            return await asyncio.shield(self.prepare())
        except errors.HermesError:
            self._made = None
            raise

    def news(self) -> str | None:
        """What the person does not know yet about who answers."""
        told, self._untold = self._untold, None
        return told

    async def choose(self, name: str) -> Model:
        """Another model; as before, if there is none of this name."""
        wish = self.wish._replace(model=name)
        model = await asyncio.to_thread(self._parts.make_model, wish)
        self.wish, self._as_before = wish, None
        self._dismiss()
        self._made = asyncio.create_task(_itself(model))
        await self._made
        return model

    def restore(self, row: dict[str, Any]) -> str | None:
        """The model that a conversation was held with, unless the person asked for another; what to say about it."""
        wanted, config = row["model"], row["model_config"]
        if (
            self.wish.model is not None
            or not wanted
            or (self.model is not None and self.model.name == wanted)
        ):
            return None
        kept = from_json(config, None) if isinstance(config, str) else config
        if isinstance(kept, dict) and kept.get(
            "imported"
        ):  # a stranger's file does not choose who answers here
            return None
        stored = kept if isinstance(kept, dict) else {}
        window = stored.get("context_window") if stored.get("model") == wanted else None
        self._as_before = ModelChoice(
            wanted,
            self.wish.base_url or stored.get("base_url"),
            window if isinstance(window, int) and window > 0 else None,
        )
        self._dismiss()
        return f"{make_printable(wanted)} answers, as before."

    async def fall_back(self) -> str | None:
        """Let the usual model answer where the one of before does not; what to say about it, None if it is the same."""
        before = self._as_before
        if before is None:
            return None
        old, self._as_before = self.model, None
        self._dismiss()
        usual = await self.ready()
        if old is not None and (usual.name, usual.base_url) == (old.name, old.base_url):
            return None
        gone = make_printable(before.model or "the model")
        return f"{gone} does not answer any more; {make_printable(usual.name)} does from now on."

    def _dismiss(self) -> None:
        old, self._made = self.model, None
        if old is not None:
            task = asyncio.create_task(old.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        if self._made is not None:
            await asyncio.gather(
                self._made, return_exceptions=True
            )  # a thread that imports cannot be cancelled
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self.model is not None:
            await self.model.close()
        if self._parts.close is not None:
            await self._parts.close()


async def _itself(model: Model) -> Model:
    return model
