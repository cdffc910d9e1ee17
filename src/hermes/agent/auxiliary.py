"""Auxiliary requests to a model outside the conversation, for example for a title or a summary.

Each request has a time limit and is recorded in the usage accounts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hermes.agent.events import Counted
from hermes.agent.models.call_limit import take_call_slot
from hermes.agent.models.model import (
    Answering,
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
"""The end of a reasoning section that has no opening tag.

The chat templates of some models add the opening tag to the prompt, so the answer contains only the closing
tag. A closing tag in quotes or backticks is ordinary text.
"""


class AuxiliaryAnswer(NamedTuple):
    text: str
    used: Used
    model: Model
    """The model that answered. It can be a fallback of the model that was asked."""


async def ask(
    model: Model,
    messages: Sequence[Message],
    *,
    max_tokens: int,
    seconds: float,
    temperature: float = 0.3,
    report: Callable[[str], None] = lambda _line: None,
) -> AuxiliaryAnswer:
    """Send `messages` to the model in one request and return the complete answer without reasoning. `report` is
    called with a line of text for each retry.

    Raise `ModelError` if the model does not answer within `seconds`.
    """
    text: list[str] = []
    used, answering = Used(), model
    stream = model.stream(Request(messages, (), max_tokens, temperature))
    try:
        async with take_call_slot(), asyncio.timeout(seconds):
            async for piece in stream:
                match piece:
                    case Text(piece_text):
                        text.append(piece_text)
                    case Used():
                        used = piece
                    case Retrying(why, pause):
                        text, used = [], Used()
                        report(f"{why}; trying again in {pause:.0f}s" if pause else why)
                    case Answering(other):
                        answering = other
                    case Finished():
                        pass
    except TimeoutError as problem:
        raise ModelError(f"{model.name} took longer than {seconds:.0f} seconds") from problem
    finally:
        if hasattr(stream, "aclose"):
            await stream.aclose()
    return AuxiliaryAnswer(strip_thoughts("".join(text)), used, answering)


def strip_thoughts(text: str) -> str:
    return re.sub(_REST_OF_THOUGHT, "", re.sub(_THOUGHT, "", text)).strip()


def account_call(model: Model, used: Used, price: Price) -> tuple[dict[str, Any], Counted]:
    """Return two records of an auxiliary model call: the arguments for `record_usage`, and the event for surfaces.
    `used` is the token usage of the call."""
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
