"""The seam to language models: what one is asked, and what it answers, piece by piece.

A model is anything that streams pieces for a request. The turn knows this file and none of the models behind it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hermes.errors import HermesError

Message = dict[str, Any]
"""One message in the shape of the chat completions interface."""


class Request(NamedTuple):
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    """Their schemas, as that interface takes them; none, and the model can only answer."""
    max_tokens: int | None = None
    temperature: float | None = None


class Text(NamedTuple):
    text: str


class Thought(NamedTuple):
    """Reasoning that a model shows beside its answer."""

    text: str


class CallPiece(NamedTuple):
    """A piece of a tool call. Those of one call have the same position; what is None was said before or comes yet."""

    position: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Used(NamedTuple):
    """Tokens of a request. None is what the provider did not say, which is not zero."""

    input_tokens: int | None = None
    """Without those of the cache, which are counted apart."""
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    """What the provider says that it costs, if it does."""

    @property
    def prompt_tokens(self) -> int | None:
        """All that was sent, whether a cache served it or not."""
        if self.input_tokens is None:
            return None
        return self.input_tokens + (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)


Price = Callable[[str, Used], tuple[float | None, Mapping[str, Any]]]
"""The cost of a call of a model (None: unknown), and the columns of `model_usage` that explain it."""


class Finished(NamedTuple):
    """The end of the answer, and why: `stop`, `tool_calls`, `length`, or what the provider calls it."""

    reason: str | None = None


class Retrying(NamedTuple):
    """The provider could not answer and is asked again. What was streamed so far counts no more."""

    why: str
    seconds: float


Piece = Text | Thought | CallPiece | Used | Finished | Retrying


class Model(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str | None:
        """Whose it is, for the accounts."""

    @property
    def base_url(self) -> str | None: ...

    @property
    def context_window(self) -> int:
        """How many tokens fit into a request and its answer."""

    def stream(self, request: Request) -> AsyncIterator[Piece]:
        """The answer, as it comes. Raises a `ModelError` when there is none."""

    async def close(self) -> None: ...


def describe_model(model: Model) -> dict[str, Any]:
    """What `sessions.model_config` says about the model that answers. It holds no secret."""
    config: dict[str, Any] = {
        "model": model.name,
        "provider": model.provider,
        "endpoint": None if model.base_url is None else strip_address(model.base_url),
        "context_window": model.context_window,
    }
    return {name: value for name, value in config.items() if value is not None}


def strip_address(url: str) -> str:
    """An address without name, password, query and fragment, in which people put keys."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


# What can go wrong, each with one line for a person.


class ModelError(HermesError):
    """The model gave no answer."""


class NotAuthorized(ModelError):
    """The key is missing, wrong, or may not do this."""


class NoSuchModel(ModelError):
    """The endpoint does not know the model."""


class ContextOverflow(ModelError):
    """The request is larger than the model can take."""


class ProviderBusy(ModelError):
    """Asked too often, or out of order; it was tried again, and not only once."""


class Unreachable(ModelError):
    """Nobody answered, or the connection was lost."""


class BadRequest(ModelError):
    """The endpoint does not take the request."""
