"""Runs the real command with a model that repeats the prompt, for tests that use it as a separate process.

    python -m tests.chat.echo -q "hello"

Some prompts have an effect: `slow N` takes N tenths of a second, `use TOOL ARG` calls a tool, `fail` fails,
`markdown` returns Markdown, `think REASON` begins with tagged reasoning and ends with the finish reason
REASON, `ponder` returns only reasoning. Every other prompt is repeated.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes.agent.approvals.request import ApprovalRequest, Scope
from hermes.agent.components import AgentComponents, AgentInputs, ModelChoice
from hermes.agent.models.model import (
    CallPiece,
    Finished,
    NoSuchModel,
    Piece,
    Request,
    Text,
    Thought,
    Unreachable,
    Used,
)
from hermes.agent.tool import Tool, ToolContext, ToolFailed
from hermes.cli.command import Command

if TYPE_CHECKING:
    import argparse


MARKDOWN = """# A heading

Some *words* and `code`, then a list:

1. one
2. two

```python
def answer() -> int:
    return 42
```

| a | b |
|---|---|
| 1 | 2 |

That is all.
"""


WRITTEN: Mapping[str, Sequence[Piece]] = {
    "markdown": [Text(line) for line in MARKDOWN.splitlines(keepends=True)],
    "think": [
        *(Text("<thi"), Text("nk>one\ntwo\nthree\nfour\nfive"), Text("</th")),
        *(Text("ink>\n\nthe List<String>"), Text("\nof it")),
    ],
    "ponder": [Thought("all of it went into this")],
}


def _reason(word: str, rest: str) -> str:
    return {"think": rest or "stop", "ponder": "length"}.get(word, "stop")


class EchoModel:
    provider, base_url, context_window = "test", None, 128_000

    def __init__(self, name: str = "echo") -> None:
        self.name = name

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        if self.name == "silent":
            raise Unreachable("nobody answers at http://localhost:2")
        last = request.messages[-1]
        text = last["content"] if isinstance(last["content"], str) else "?"
        word, _, rest = text.partition(" ")
        if last["role"] == "tool":
            yield Text(f"the tool said: {text}")
        elif word == "use":
            name, _, argument = rest.partition(" ")
            yield CallPiece(0, "call_1", name, json.dumps({"text": argument}))
        elif word == "fail":
            raise Unreachable("nobody answers at http://localhost:1")
        elif word == "slow":
            for number in range(int(rest.split()[0])):
                yield Text(f"{number} ")
                await asyncio.sleep(0.1)
        elif word in WRITTEN:
            for piece in WRITTEN[word]:
                yield piece
                await asyncio.sleep(0.01)
        elif word == "break":
            raise ZeroDivisionError("a mistake of ours")
        elif word == "context":
            yield Text(f"{len(request.messages)} messages")
        else:
            yield Text(f"you said: {text}")
        yield Used(input_tokens=len(request.messages), output_tokens=3)
        yield Finished(_reason(word, rest))

    async def close(self) -> None:
        pass


class Shout:
    name, description = "shout", "Says it loudly."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        text = str(arguments["text"])
        if text == "wait":
            await context.stop.wait()
        if text.startswith("may I"):
            subject = f"rm -rf /{text.removeprefix('may I')}"
            decision = await context.approve(ApprovalRequest(subject, "it deletes", (Scope.COMMAND,)))
            note = f", {decision.note}" if decision.note else ""
            return f"{'allowed' if decision.allowed else 'refused'}{note}"
        if text == "break":
            raise ToolFailed("it would not")
        return text.upper()


def make_model(wish: ModelChoice) -> EchoModel:
    if wish.model == "missing":
        raise NoSuchModel("there is no model 'missing'")
    return EchoModel(wish.model or "echo")


def make_tools(_incognito: bool) -> Sequence[Tool]:
    return [Shout()]


async def make_prompt(_working: AgentInputs) -> str:
    return "Repeat."


PARTS = AgentComponents(
    make_model,
    make_tools,
    make_prompt,
    lambda _model, _used: (0.01, {"estimated_cost_usd": 0.01, "cost_status": "estimated"}),
)


def make_roomy(window: int) -> AgentComponents:
    """Return the components with a model whose context window has `window` tokens."""

    def make(_wish: ModelChoice) -> EchoModel:
        model = EchoModel()
        model.context_window = window
        return model

    return PARTS._replace(make_model=make)


def define(parser: argparse.ArgumentParser, words: Sequence[str] | None) -> None:
    from hermes.cli import chat

    chat.define(parser, words)
    parser.set_defaults(parts=PARTS)


def main() -> int:
    from hermes.cli import main as command

    command.COMMANDS["chat"] = Command("tests.chat.echo", "talk with an echo")
    return command.main()


if __name__ == "__main__":
    sys.exit(main())
