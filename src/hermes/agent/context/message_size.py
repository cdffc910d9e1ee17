"""Refuses a message that is larger than the model's context. The check runs before the message is stored or
sent.

Such a message would stay in the conversation, and every later request would fail because of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes.agent.context import tokens
from hermes.agent.models.model import ContextOverflow
from hermes.agent.tool import make_schema

if TYPE_CHECKING:
    from hermes.agent.agent import Agent

LEAST_ANSWER = 1_000
"""The number of tokens to leave free for the answer."""


class MessageTooLarge(ContextOverflow):
    """The message does not fit into the context of the model. It was neither stored nor sent."""

    room = 0
    """The maximum size of a message that would fit, in tokens."""


async def check_message(agent: Agent, content: Any) -> None:
    """Raise `MessageTooLarge` if the message is too large for the model's context even without the rest of
    the conversation."""
    size = tokens.count_row({"content": content})
    window = agent.model.context_window
    if size <= window // 2:  # even if the tool schemas alone fill the window, a short message is accepted
        return
    prompt = await agent.record.system_prompt()
    rest = tokens.count_tools(map(make_schema, agent.tools)) + tokens.count_text(prompt or "") + LEAST_ANSWER
    room = max(window - rest, window // 2)
    if size > room:
        problem = MessageTooLarge(
            f"the message is too large: about {size:,} tokens, and {agent.model.name} takes {room:,}"
            f" (its context window is {window:,}; `model.context_window` sets it). It was not sent"
        )
        problem.room = room
        raise problem
