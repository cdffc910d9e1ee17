"""A question to a model beside the conversation, for a title or a summary: one answer, in time, and in the accounts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from hermes.agent.events import Counted
from hermes.agent.models.model import (
    Finished,
    Message,
    Model,
    ModelError,
    Price,
    Request,
    Retrying,
    Text,
    Used,
)

_TAGS = "think|thinking|thought|thoughts|reasoning|scratchpad"
_THOUGHT = rf"(?is)\A(?:\s*<({_TAGS})>.*?(?:</\1>|\Z))+"
_REST_OF_THOUGHT = rf"(?is)\A(?:(?!<(?:{_TAGS})>).)*?(?<![`'\"])</(?:{_TAGS})>"
"""Some models are set to begin with a thought: only its end is in the answer. An answer may also speak of the tags."""


class AuxiliaryAnswer(NamedTuple):
    text: str
    used: Used


async def ask(
    model: Model, messages: Sequence[Message], *, max_tokens: int, seconds: float, temperature: float = 0.3
) -> AuxiliaryAnswer:
    """The whole answer, without what the model thought aloud. Raises `ModelError` if there is none in time."""
    text: list[str] = []
    used = Used()
    stream = model.stream(Request(messages, (), max_tokens, temperature))
    try:
        async with asyncio.timeout(seconds):
            async for piece in stream:
                match piece:
                    case Text(said):
                        text.append(said)
                    case Used():
                        used = piece
                    case Retrying():
                        text, used = [], Used()
                    case Finished():
                        pass
    except TimeoutError as problem:
        raise ModelError(f"{model.name} took longer than {seconds:.0f} seconds") from problem
    finally:
        if hasattr(stream, "aclose"):
            await stream.aclose()
    return AuxiliaryAnswer(strip_thoughts("".join(text)), used)


def strip_thoughts(text: str) -> str:
    return re.sub(_REST_OF_THOUGHT, "", re.sub(_THOUGHT, "", text)).strip()


def account_call(model: Model, used: Used, price: Price) -> tuple[dict[str, Any], Counted]:
    """A call as `record_usage` takes it, and as surfaces are told it."""
    cost, details = price(model.name, used)
    call = {
        "model": model.name,
        "provider": model.provider,
        "base_url": model.base_url,
        "purpose": "auxiliary",
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cache_read_tokens": used.cache_read_tokens,
        "cache_write_tokens": used.cache_write_tokens,
        "reasoning_tokens": used.reasoning_tokens,
        **details,
    }
    return call, Counted(model.name, used, cost, "auxiliary")
