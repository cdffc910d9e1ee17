"""A chat with the real tools of the agent and a model that calls the requested tools.

`calls [["TOOL", {"its": "arguments"}], ...]` calls all of these tools at the same time. Other prompts get a
text answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from hermes.agent.components import AgentComponents
from hermes.agent.factory import make_standard_components
from hermes.agent.models.model import CallPiece, Finished, Piece, Request, Used
from hermes.config import config_file
from tests.chat.echo import PARTS, EchoModel


class CallingModel(EchoModel):
    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        last = request.messages[-1]
        word, _, rest = str(last["content"]).partition(" ")
        if last["role"] == "user" and word == "calls":
            for number, (name, arguments) in enumerate(json.loads(rest)):
                yield CallPiece(number, f"call_{number}", name, json.dumps(arguments))
            yield Used(input_tokens=1, output_tokens=1)
            yield Finished("tool_calls")
            return
        async for piece in super().stream(request._replace(messages=[{"role": "user", "content": "done"}])):
            yield piece


def with_tools() -> AgentComponents:
    """Return components whose tools need no approval. Approvals do not change how tool calls are shown."""
    config_file.change("approvals.mode", "off")
    standard = make_standard_components()
    return PARTS._replace(
        make_model=lambda _wish: CallingModel(),
        make_tools=standard.make_tools,
        edits=standard.edits,
        list_processes=standard.list_processes,
        close=standard.close,
    )


def call(name: str, **arguments: Any) -> str:
    """Return a prompt that makes the model call the tool `name`."""
    return calls([name, arguments])


def calls(*wanted: Any) -> str:
    return f"calls {json.dumps(wanted)}"
