"""The interface to language models: the request, and the streamed pieces of the answer.

A model is any object that streams pieces for a request. The turn imports only this module, not the
implementations.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hermes.errors import HermesError

Message = dict[str, Any]
"""A message in the format of the chat completions API."""


class Request(NamedTuple):
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    """The tool schemas in the format of the chat completions API. Without schemas the model cannot call
    tools."""
    max_tokens: int | None = None
    temperature: float | None = None


class Text(NamedTuple):
    text: str


class Thought(NamedTuple):
    """Reasoning that a model sends separately from its answer."""

    text: str


class CallPiece(NamedTuple):
    """A piece of a tool call. All pieces of one call have the same `position`. If `id` or `name` is None,
    another piece of the call contains it."""

    position: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Used(NamedTuple):
    """The token usage of a request. None means that the provider did not report the value; it does not mean
    zero."""

    input_tokens: int | None = None
    """Input tokens without cached tokens, which are counted separately."""
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    """The cost that the provider reported, if any."""

    @property
    def prompt_tokens(self) -> int | None:
        """All tokens of the prompt, cached or not; None if they were not reported."""
        if self.input_tokens is None:
            return None
        return self.input_tokens + (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)


Price = Callable[[str, Used], tuple[float | None, Mapping[str, Any]]]
"""Computes the cost of a model call (None if unknown) and the `model_usage` columns that explain it."""


class Finished(NamedTuple):
    """The end of the answer. `reason` is the finish reason: `stop`, `tool_calls`, `length` or another value that the
    provider sends."""

    reason: str | None = None


class Retrying(NamedTuple):
    """The request failed and is retried. The pieces streamed so far are void."""

    why: str
    seconds: float
    """The pause before the retry."""
    error: ModelError | None = None
    """The failure of the provider; None if the request is repeated for another reason."""


class Answering(NamedTuple):
    """A piece of a stream that names the model whose answer follows. Only a model with fallbacks sends it, before all
    pieces of that answer. It is not sent if the main model is tried first."""

    model: Model


class CallReport(NamedTuple):
    """One attempt of a request to a model, for metrics. `error` is None if the attempt succeeded. `used` is
    None if the provider reported no usage."""

    model: str
    seconds: float
    """The time until the end of the answer, or until the failure."""
    first_seconds: float | None = None
    """The time until the first piece of the answer; None if there was none."""
    used: Used | None = None
    error: ModelError | None = None


Piece = Text | Thought | CallPiece | Used | Finished | Retrying | Answering


class Model(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str | None:
        """The name of the model's provider, as it is recorded in the usage accounts."""

    @property
    def base_url(self) -> str | None: ...

    @property
    def context_window(self) -> int:
        """The number of tokens that fit into a request and its answer."""

    def stream(self, request: Request) -> AsyncIterator[Piece]:
        """Stream the pieces of the model's answer to a request. Raise a `ModelError` if the model gives no answer."""

    async def close(self) -> None: ...


def takes_pictures(model: Model) -> bool:
    """Return whether a model may accept pictures. A model that is known to reject them has `takes_pictures =
    False`."""
    return bool(getattr(model, "takes_pictures", True))


def describe_model(model: Model) -> dict[str, Any]:
    """Return the description of a model for `sessions.model_config`. It contains no secrets. If the model has
    fallbacks, only their names are included."""
    model, *fallbacks = getattr(model, "models", (model,))
    config: dict[str, Any] = {
        "model": model.name,
        "provider": model.provider,
        "endpoint": None if model.base_url is None else strip_address(model.base_url),
        "context_window": model.context_window,
        "fallbacks": [fallback.name for fallback in fallbacks] or None,
    }
    return {name: value for name, value in config.items() if value is not None}


def strip_address(url: str) -> str:
    """Return an address without user name, password, query and fragment, which can contain keys."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


# Errors of models. Each message is one line for a person.


class ModelError(HermesError):
    """The model returned no answer."""


class NotAuthorized(ModelError):
    """The key is missing or invalid, or it does not permit the request."""


class QuotaExceeded(NotAuthorized):
    """The account of the key has no credit left."""


class NoSuchModel(ModelError):
    """The endpoint does not offer the model."""


class ContextOverflow(ModelError):
    """The request exceeds the context window of the model."""


class ProviderBusy(ModelError):
    """The provider is rate limiting or failing, and all retries were used up."""

    retry_after: float | None = None
    """The number of seconds that the endpoint asked to wait, if it did."""
    is_rate_limit = False
    """Whether the endpoint refused the request because there were too many requests (HTTP 429)."""


class Unreachable(ModelError):
    """The endpoint did not respond, or the connection was lost."""


class BadRequest(ModelError):
    """The endpoint rejected the request."""
