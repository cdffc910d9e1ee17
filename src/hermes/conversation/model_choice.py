"""The selection of the model for a conversation. The model is loaded in a thread, while the person types."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from hermes import errors
from hermes.agent.components import NO_CHOICE, AgentComponents, ModelChoice
from hermes.agent.models.model import Model
from hermes.agent.tool import Tool
from hermes.store.content import from_json
from hermes.text import make_printable


class ModelCheck(NamedTuple):
    missing_at: str | None = None
    """The address of the endpoint if the endpoint does not have the model, otherwise None."""
    similar: Sequence[str] = ()
    listed: Sequence[str] = ()
    """The models of the endpoint."""
    problem: str | None = None
    """Why the name could not be checked, or None."""


class ModelSelector:
    def __init__(
        self, parts: AgentComponents, wish: ModelChoice = NO_CHOICE, *, incognito: bool = False
    ) -> None:
        self._parts, self.wish, self._incognito = parts, wish, incognito
        self.tools: Sequence[Tool] = ()
        self._loading: asyncio.Task[Model] | None = None
        self._has_tools = False
        self._restored: ModelChoice | None = None
        self._notice: str | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def start_loading(self) -> asyncio.Task[Model]:
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._make))
        return self._loading

    def _make(self) -> Model:
        if not self._has_tools:
            self.tools, self._has_tools = self._parts.make_tools(self._incognito), True
        if self._restored is not None:
            try:
                model = self._parts.make_model(self._restored)
                self._notice = f"Using the model {make_printable(model.name)}, as before."
                return model
            except errors.HermesError as problem:
                model_name = make_printable(self._restored.model or "the model")
                self._notice = f"{model_name} is not available ({problem}); the default model answers."
                self._restored = None
        return self._parts.make_model(self.wish)

    @property
    def model(self) -> Model | None:
        """The loaded model; None if it is not loaded yet or could not be loaded."""
        loading = self._loading
        if loading is None or not loading.done() or loading.cancelled() or loading.exception() is not None:
            return None
        return loading.result()

    async def load_model(self) -> Model:
        """Return the model; load it first if necessary. Raises `HermesError` if that fails; the next call
        tries again."""
        try:
            return await asyncio.shield(self.start_loading())
        except errors.HermesError:
            self._loading = None
            raise

    def take_notice(self) -> str | None:
        """Return a message that tells the person which model is used and why. None if there is nothing to tell. Each
        message is returned once."""
        notice, self._notice = self._notice, None
        return notice

    async def check(self, name: str) -> ModelCheck:
        """Ask the endpoint whether it has a model with this name, and return the result."""
        from hermes.agent.models.endpoints import find_similar, is_listed

        if self._parts.list_models is None:
            return ModelCheck()
        try:
            listed = await asyncio.to_thread(self._parts.list_models, self.wish._replace(model=name))
        except errors.HermesError as problem:
            return ModelCheck(problem=str(problem))
        if not listed.names:
            return ModelCheck(problem=f"{listed.address} lists no models")
        if is_listed(name, listed.names):
            return ModelCheck()
        return ModelCheck(listed.address, find_similar(name, listed.names), listed.names)

    async def choose(self, name: str) -> Model:
        """Switch to the model `name`. If it cannot be built, raise an error and keep the current model."""
        wish = self.wish._replace(model=name)
        model = await asyncio.to_thread(self._parts.make_model, wish)
        self.wish, self._restored = wish, None
        self._dismiss()
        self._loading = asyncio.create_task(_return_model(model))
        await self._loading
        return model

    def restore(self, row: dict[str, Any]) -> None:
        """Select the model that is stored in the session `row`, unless the person chose another one.
        The model is loaded later. `take_notice` then reports whether it can be used.
        """
        model, config = row["model"], row["model_config"]
        stored_config = from_json(config, None) if isinstance(config, str) else config
        stored = stored_config if isinstance(stored_config, dict) else {}
        if model in (stored.get("fallbacks") or ()):  # it only answered in place of the chosen model
            model = stored.get("model")
        if self.wish.model is not None or not model or (self.model is not None and self.model.name == model):
            return
        if stored.get("imported"):
            return  # an imported file does not choose the model
        window = stored.get("context_window") if stored.get("model") == model else None
        self._restored = ModelChoice(
            model,
            self.wish.base_url or stored.get("base_url"),
            window if isinstance(window, int) and window > 0 else None,
        )
        self._dismiss()

    async def fall_back(self) -> str | None:
        """Replace the model that `restore` selected by the default model, because it does not answer.
        Return a message for the person, or None if there is no other model.
        """
        before = self._restored
        if before is None:
            return None
        old, self._restored = self.model, None
        self._dismiss()
        usual = await self.load_model()
        if old is not None and (usual.name, usual.base_url) == (old.name, old.base_url):
            return None
        model_name = make_printable(before.model or "the model")
        return f"{model_name} no longer answers; {make_printable(usual.name)} answers from now on."

    def _dismiss(self) -> None:
        old, self._loading = self.model, None
        if old is not None:
            task = asyncio.create_task(old.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        if self._loading is not None:
            # Wait until the model is loaded, because a thread cannot be cancelled.
            await asyncio.gather(self._loading, return_exceptions=True)
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self.model is not None:
            await self.model.close()


async def _return_model(model: Model) -> Model:
    return model
