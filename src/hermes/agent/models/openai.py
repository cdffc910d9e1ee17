"""Models behind any endpoint with OpenAI's chat completions API, streamed.

This module makes and reports retries; the SDK makes none. A retried answer starts again from the beginning, and
the pieces of the failed attempt are void. If an endpoint rejects an optional part of a request, later requests
are sent without that part.

The SDK sends requests and splits the stream into chunks. This module reads the chunks as plain JSON. It does not
let the SDK build its own types from them, which would take more time than all other work on a chunk.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from hermes.agent.models import provider_errors
from hermes.agent.models.endpoints import OPENROUTER, find_key_variable, find_provider, get_owner, is_local
from hermes.agent.models.model import (
    CallPiece,
    CallReport,
    Finished,
    Message,
    ModelError,
    Piece,
    Request,
    Retrying,
    Text,
    Thought,
    Unreachable,
    Used,
)
from hermes.agent.models.provider_errors import EndpointContext, ProviderProblem
from hermes.config.extras import format_install
from hermes.message_content import read_text

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

UNKNOWN_WINDOW = 128_000
PATH = "/chat/completions"
CONNECT_S = 15.0
MOST_CONNECTIONS, MOST_IDLE = 1000, 16
"""The HTTP client checks each idle connection at every request, so few are kept."""
LONGEST_PAUSE_S = 30.0
LONGEST_WAIT_S = 120.0
"""The longest `Retry-After` that is respected, in seconds. If the endpoint asks for a longer wait, the
request fails."""

NONSENSE = "the response is invalid"
MISSING = "the model client is not installed; install it with: {}"


def preload() -> None:
    """Import the SDK. This takes half a second, so it is done in a thread while a person types."""
    try:
        import openai  # noqa: F401
    except ModuleNotFoundError as missing:
        raise ModelError(MISSING.format(format_install("chat"))) from missing


class OpenAIModel:
    def __init__(
        self,
        name: str,
        *,
        base_url: str,
        key: str | None = None,
        key_env: str | None = None,
        context_window: int | None = None,
        timeout: float = 300.0,
        most_retries: int = 5,
        first_pause: float = 1.0,
    ) -> None:
        """`key_env` is the name of the variable with the key, for error messages. `timeout` is the maximum
        time between two pieces of the stream, in seconds."""
        self.name, self.base_url = name, base_url
        self.provider = get_owner(base_url)
        self.context_window = context_window or UNKNOWN_WINDOW
        self._where = EndpointContext(name, base_url, key_env or find_key_variable(base_url), key)
        self._timeout, self._most_retries, self._first_pause = timeout, most_retries, first_pause
        self._client: AsyncOpenAI | None = None
        self.observe: Callable[[CallReport], None] = lambda _report: None
        """Called after each attempt of a request."""
        self._refused: set[str] = set()

    @property
    def access(self) -> tuple[str, str | None]:
        """The address of the endpoint and the key that is sent to it; the key is None if there is none."""
        return self.base_url, self._where.key

    @property
    def takes_pictures(self) -> bool:
        """Whether the endpoint accepts pictures, as far as is known: True until it has rejected a picture."""
        return provider_errors.PICTURES not in self._refused

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        if self._client is None:
            await asyncio.to_thread(preload)
        attempts = 0
        refused = set(self._refused)
        while True:
            sent = self._make_body(request, refused)
            began, first, used = monotonic(), None, None
            try:
                reader, client = _ChunkReader(), await self._get_client()
                async with await _open_stream(client, sent) as chunks:
                    while (chunk := await _read_next(chunks)) is not _END:
                        for piece in reader.read(chunk):
                            self._refused = refused  # the endpoint accepted a request without these parts
                            first = first or monotonic() - began
                            used = piece if isinstance(piece, Used) else used
                            yield piece
                finished = reader.finish()
                self._refused = refused
                self.observe(CallReport(self.name, monotonic() - began, first, used))
                yield finished
                return
            except Exception as problem:
                trouble = self._translate_problem(problem)
                if trouble is None:
                    raise
                part = self._find_refused_part(problem, sent)
                if part is None:
                    self.observe(CallReport(self.name, monotonic() - began, first, used, trouble.error))
            if part is not None:
                refused.add(part)
                yield Retrying(
                    f"retrying without {part}, which {self._where.display_address} does not accept", 0.0
                )
                continue
            attempts += 1
            if not trouble.again or attempts > self._most_retries or (trouble.after or 0.0) > LONGEST_WAIT_S:
                raise trouble.error from None
            pause = self._compute_pause(attempts) if trouble.after is None else trouble.after
            yield Retrying(str(trouble.error), pause, trouble.error)
            await asyncio.sleep(pause)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # ---------------------------------------------------------------- requests

    def _make_body(self, request: Request, refused: set[str]) -> dict[str, Any]:
        messages = list(request.messages)
        if provider_errors.PICTURES in refused:
            messages = list(map(_strip_pictures, messages))
        body: dict[str, Any] = {"model": self.name, "messages": messages, "stream": True}
        body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = list(request.tools)
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.max_tokens is not None:
            # Most endpoints support only `max_tokens`; those that reject it support the newer name.
            name = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
            body[name] = request.max_tokens
        if find_provider(self.base_url) == OPENROUTER:
            body["usage"] = {"include": True}  # the response then contains the cost
        return {name: value for name, value in body.items() if name not in refused}

    async def _get_client(self) -> AsyncOpenAI:
        if self._client is None:
            import httpx2
            import openai

            self._client = openai.AsyncOpenAI(
                api_key=self._where.key or "none",
                base_url=self.base_url,
                max_retries=0,
                timeout=openai.Timeout(self._timeout, connect=min(CONNECT_S, self._timeout)),
                # No redirects: the key and the conversation must be sent only to the chosen address.
                http_client=openai.DefaultAsyncHttpxClient(
                    trust_env=not is_local(self.base_url),
                    follow_redirects=False,
                    limits=httpx2.Limits(
                        max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_IDLE
                    ),
                ),
            )
        return self._client

    # ---------------------------------------------------------------- errors

    def _translate_problem(self, problem: Exception) -> ProviderProblem | None:
        """Convert an exception of a request to a `ProviderProblem`. Return None if neither the endpoint nor the
        connection to it caused the exception."""
        import openai

        where = self._where
        match problem:
            case openai.APITimeoutError():
                return provider_errors.make_lost(where, f"no answer within {self._timeout:g} s")
            case openai.APIConnectionError():
                cause = problem.__cause__
                if cause is None or "connect" in type(cause).__name__.lower():
                    error = Unreachable(provider_errors.format_unreachable(where, str(cause or "")))
                    # Do not retry for a local server: if it is down, it will not start within the pause.
                    return ProviderProblem(error, again=not is_local(self.base_url))
                return provider_errors.make_lost(where, f"the connection was lost ({cause})")
            case openai.APIStatusError():
                message, headers = provider_errors.find_message(problem.body), dict(problem.response.headers)
                return provider_errors.translate_status(problem.status_code, message, headers, where)
            case openai.APIError():  # an error that arrived within the stream
                message = provider_errors.find_message(problem.body) or problem.message
                return provider_errors.translate_status(_get_status(problem.body), message, {}, where)
            case _BrokenStream():
                return provider_errors.make_lost(where, str(problem))
        return None

    def _find_refused_part(self, problem: Exception, sent: Mapping[str, Any]) -> str | None:
        status, body = getattr(problem, "status_code", None), getattr(problem, "body", None)
        return (
            provider_errors.find_refused_part(status, provider_errors.find_message(body), sent)
            if isinstance(status, int)
            else None
        )

    def _compute_pause(self, attempts: int) -> float:
        """Return the pause before a retry: exponential backoff with jitter."""
        return min(self._first_pause * 2.0 ** (attempts - 1), LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)


def _strip_pictures(message: Message) -> Message:
    """Return a message with `[image]` in place of each picture."""
    if not provider_errors.has_pictures(message):
        return message
    return {**message, "content": read_text(message["content"], detail="words and pictures")}


class _BrokenStream(Exception):
    """The stream ended before the answer was complete, or it contained invalid data."""


class _Calls:
    """Assigns pieces of a stream to tool calls. The index in a piece is not sufficient, because some
    endpoints omit it or send 0 for every call."""

    def __init__(self) -> None:
        self._ids: list[str | None] = []
        self._positions: dict[int, int] = {}

    def find_position(self, index: int | None, call_id: str | None, name: str | None) -> int:
        known = self._positions.get(index) if index is not None else len(self._ids) - 1
        if known is None or known < 0:
            return self._add_call(index, call_id)
        if call_id and name and self._ids[known] not in (None, call_id):
            return self._add_call(index, call_id)
        self._ids[known] = self._ids[known] or call_id
        return known

    def _add_call(self, index: int | None, call_id: str | None) -> int:
        self._ids.append(call_id)
        if index is not None:
            self._positions[index] = len(self._ids) - 1
        return len(self._ids) - 1


_END = object()


async def _open_stream(client: AsyncOpenAI, body: dict[str, Any]) -> AsyncStream[object]:
    from openai import AsyncStream

    return await client.post(PATH, cast_to=object, body=body, stream=True, stream_cls=AsyncStream[object])


async def _read_next(chunks: AsyncStream[object]) -> Any:
    """Return the next chunk of a stream as parsed JSON. Return `_END` when the stream has ended. Raise
    `_BrokenStream` if the chunk is invalid."""
    try:
        return await anext(chunks)
    except StopAsyncIteration:
        return _END
    except (ValueError, TypeError, AttributeError) as problem:
        raise _BrokenStream(NONSENSE) from problem


class _ChunkReader:
    """Converts the chunks of one streamed answer into pieces."""

    def __init__(self) -> None:
        self._calls = _Calls()
        self._reason: str | None = None
        self._has_ended = False

    def read(self, chunk: Any) -> list[Piece]:
        try:
            choices, usage = chunk.get("choices") or (), chunk.get("usage")
            pieces = list(_read_choices(choices, self._calls))
            if usage is not None:
                self._has_ended = not choices
                pieces.append(read_usage(usage))
            for choice in choices:
                self._reason = choice.get("finish_reason") or self._reason
        except (ValueError, TypeError, AttributeError) as problem:
            raise _BrokenStream(NONSENSE) from problem
        return pieces

    def finish(self) -> Finished:
        if self._reason == "error" or (self._reason is None and not self._has_ended):
            raise _BrokenStream("the answer is incomplete")
        return Finished(self._reason)


def _read_choices(choices: Any, calls: _Calls) -> Iterator[Piece]:
    for choice in choices:
        delta = choice.get("delta")
        if delta is None:  # not allowed by the API, but some endpoints send it
            continue
        for field in ("reasoning_content", "reasoning"):
            thought = delta.get(field)
            if isinstance(thought, str) and thought:
                yield Thought(thought)
                break
        yield from _read_content(delta.get("content"))
        yield from _read_content(delta.get("refusal"))
        for call in delta.get("tool_calls") or ():
            call_id, function = call.get("id") or None, call.get("function") or {}
            name = function.get("name") or None
            position = calls.find_position(call.get("index"), call_id, name)
            yield CallPiece(position, call_id, name, function.get("arguments") or "")


def _read_content(content: object) -> Iterator[Piece]:
    """Yield the pieces of `content`, which is plain text or a list of parts. Some of the parts can be
    reasoning."""
    if isinstance(content, str):
        if content:
            yield Text(content)
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield Text(part["text"])
            elif isinstance(part, dict) and isinstance(part.get("thinking"), list):
                yield from (
                    Thought(piece.text)
                    for piece in _read_content(part["thinking"])
                    if isinstance(piece, Text)
                )


def read_usage(usage: Mapping[str, Any]) -> Used:
    """Return the usage of a request from any known format. Endpoints include cached tokens in the prompt
    tokens, so the cached tokens are subtracted from the prompt tokens."""
    sent, made = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    prompt = _to_count(usage.get("prompt_tokens"))
    read = _take_first_count(
        sent.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cache_read_input_tokens")
    )
    written = _take_first_count(sent.get("cache_write_tokens"), usage.get("cache_creation_input_tokens"))
    cost = usage.get("cost")
    return Used(
        input_tokens=None if prompt is None else max(0, prompt - (read or 0) - (written or 0)),
        output_tokens=_to_count(usage.get("completion_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_to_count(made.get("reasoning_tokens")),
        cost_usd=float(cost)
        if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0
        else None,
    )


def _take_first_count(*values: object) -> int | None:
    return next((count for count in map(_to_count, values) if count is not None), None)


def _to_count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _get_status(body: object) -> int:
    """Return the HTTP status code that is named in an error that arrived inside a stream. The HTTP response itself
    had already reported success."""
    code = body.get("code", body.get("status")) if isinstance(body, Mapping) else None
    try:
        status = int(code) if code is not None else 500
    except (TypeError, ValueError):
        return 400 if code == "context_length_exceeded" else 500
    return status if 400 <= status < 600 else 500
