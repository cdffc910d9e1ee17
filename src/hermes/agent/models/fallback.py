"""A model with fallbacks: other models that answer in its place while its provider fails.

The models are tried in order. During the cool-down after its failure, a model is tried only after all others.
If a model fails, the next model is tried only if no part of the answer was streamed and the next model can
help. Another model cannot help if the request is invalid. If the conversation is too long, only a model with
a larger context window can help.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from hermes.agent.models.model import (
    Answering,
    BadRequest,
    CallPiece,
    ContextOverflow,
    Model,
    ModelError,
    NotAuthorized,
    Piece,
    ProviderBusy,
    QuotaExceeded,
    Request,
    Retrying,
    Text,
    Thought,
    takes_pictures,
)
from hermes.logs import get_logger
from hermes.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Callable

log = get_logger(__name__)

CONTENT = Text | Thought | CallPiece
"""The pieces that belong to the answer itself."""


class Cooldowns:
    """The models that failed recently. A model is tried last until its cool-down is over."""

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        self._seconds, self._now = seconds, now
        self._until: dict[tuple[str, str | None], float] = {}

    def add(self, model: Model, at_least: float | None = None) -> None:
        """Begin the cool-down of a model that has failed. `at_least` is the number of seconds that the provider asked
        to wait; the cool-down is not shorter. If the cool-down in the settings is 0, there is no cool-down."""
        seconds = max(self._seconds, at_least or 0.0) if self._seconds else 0.0
        self._until[_identify(model)] = self._now() + seconds

    def remove(self, model: Model) -> None:
        self._until.pop(_identify(model), None)

    def is_cooling(self, model: Model) -> bool:
        return self._now() < self._until.get(_identify(model), 0.0)


class FallbackModel:
    def __init__(self, models: Sequence[Model], cooldowns: Cooldowns) -> None:
        """`models` are the main model and its fallbacks, in order."""
        self.first, self.models = models[0], tuple(models)
        self._cooldowns = cooldowns

    @property
    def name(self) -> str:
        return self.first.name

    @property
    def provider(self) -> str | None:
        return self.first.provider

    @property
    def base_url(self) -> str | None:
        return self.first.base_url

    @property
    def current(self) -> Model:
        """The model that the next request goes to."""
        return self._order_models()[0]

    @property
    def context_window(self) -> int:
        """The context window of the current model. If a fallback with a smaller window is current, the
        conversation is compressed earlier."""
        return self.current.context_window

    @property
    def takes_pictures(self) -> bool:
        return takes_pictures(self.current)

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        failures: list[tuple[Model, ModelError]] = []
        waiting = self._order_models()
        while waiting:
            model = waiting.pop(0)
            if failures or model is not self.first:
                yield Answering(model)
            is_begun = False
            pieces = model.stream(request)
            try:
                async for piece in pieces:
                    if isinstance(piece, CONTENT | Retrying):
                        is_begun = not isinstance(piece, Retrying)  # a retry voids the pieces so far
                    yield piece
                self._cooldowns.remove(model)
                return
            except ModelError as problem:
                failures.append((model, problem))
                if is_provider_failure(problem):
                    self._cooldowns.add(model, getattr(problem, "retry_after", None))
                waiting = [] if is_begun else [other for other in waiting if can_help(model, problem, other)]
                if waiting:
                    log.info(
                        "%s failed, %s is asked instead: %s",
                        model.name,
                        waiting[0].name,
                        redact(str(problem)),
                    )
                    yield Retrying(f"{problem}; {waiting[0].name} is asked instead", 0.0)
            finally:
                if isinstance(pieces, AsyncGenerator):
                    await pieces.aclose()
        raise _join_failures(failures)

    def _order_models(self) -> list[Model]:
        """Return the models in the order in which they are tried. Models in their cool-down come last."""
        return sorted(self.models, key=self._cooldowns.is_cooling)

    async def close(self) -> None:
        for model in self.models:
            await model.close()


def is_provider_failure(problem: ModelError) -> bool:
    """Return whether the provider caused the error, not the request. If so, the same request can succeed
    later or with another model."""
    return not isinstance(problem, BadRequest | ContextOverflow)


def can_help(failed: Model, problem: ModelError, other: Model) -> bool:
    """Return whether `other` may answer a request for which `failed` raised `problem`."""
    if isinstance(problem, ContextOverflow):
        return other.context_window > failed.context_window
    if isinstance(problem, NotAuthorized) and not isinstance(problem, QuotaExceeded):
        return bool(_get_access(failed) != _get_access(other))
    return not isinstance(problem, BadRequest)


def _join_failures(failures: Sequence[tuple[Model, ModelError]]) -> ModelError:
    """Return the error to raise if no model answered.

    If the conversation is too long for one of the models, return the error of that model, so that the caller
    can compress the conversation. Otherwise return an error of the same type as the first error, with the
    messages of all errors.
    """
    for _, problem in failures:
        if isinstance(problem, ContextOverflow):
            return problem
    (_, first), *others = failures
    if not others:
        return first
    joined = type(first)("; ".join((str(first), *(f"{model.name}: {problem}" for model, problem in others))))
    if isinstance(joined, ProviderBusy):
        joined.retry_after = getattr(first, "retry_after", None)
    return joined


def _identify(model: Model) -> tuple[str, str | None]:
    return model.name, model.base_url


def _get_access(model: Model) -> Any:
    """Return the address and the key with which a model is reached; only the address if the model uses no key.

    Two models with the same result share a key. If this key is invalid, both fail.
    """
    return getattr(model, "access", model.base_url)
