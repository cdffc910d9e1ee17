"""A gateway in which the model can use a tool that needs an approval, and a platform with buttons.

    async with ApprovalGateway() as gateway:
        question = await gateway.asked(ANN, "rm -rf build")
        await gateway.asks(ANN, f"/approve {name_in(question)}")

`use ask {"subject": "rm x"}` calls the tool. `both ask {...} {...}` makes two calls at the same time. `late
NAME {...}` begins an answer, holds it, and then calls the tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from hermes import clock
from hermes.agent.approvals.request import ApprovalRequest, Scope
from hermes.agent.components import AgentComponents
from hermes.agent.models.model import CallPiece, Finished, Piece, Request, Text
from hermes.agent.tool import Tool, ToolContext, ToolFailed
from hermes.conversation.agents import AgentScope, StandardAgentProvider
from hermes.gateway.adapter import Choice, Receipt
from hermes.gateway.inbound_events import Event, Source
from hermes.gateway.settings import GatewaySettings
from tests.gateway.local_gateway import (
    ANN,
    Brain,
    LocalGateway,
    Platform,
    WithBrain,
    content_text,
    settings_of,
)

OWNED = settings_of(platform={"owners": frozenset({"1"})})
"""Settings with Ann as the owner."""
_NAME = re.compile(r"`/approve (\w{4})`")


class Asker:
    """A tool that acts if the action is approved, and otherwise returns the reason for the refusal."""

    name = "ask"
    description = "Do something that needs an approval."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}}

    def __init__(self) -> None:
        self.done: list[str] = []

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        scopes = tuple(Scope(one) for one in arguments.pop("scopes", ()))
        request = ApprovalRequest(**{"reason": "it changes something", **arguments}, scopes=scopes)
        decision = await context.approve(request)
        if not decision.allowed:
            raise ToolFailed(f"refused: {decision.note}")
        self.done.append(request.subject)
        return f"done {request.subject}, {decision.scope or 'once'}"


class ApprovalBrain(Brain):
    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        last = request.messages[-1]
        text = content_text(last["content"])
        if last["role"] == "user" and text.startswith("both "):
            self.requests.append(request)
            decoder, rest = json.JSONDecoder(), text.removeprefix("both ask ")
            first, end = decoder.raw_decode(rest)
            second, _ = decoder.raw_decode(rest[end:].strip())
            for number, one in enumerate((first, second)):
                yield CallPiece(number, f"call_{number}", "ask", json.dumps(one))
            yield Finished("tool_calls")
        elif last["role"] == "user" and text.startswith("late "):
            _, name, arguments = text.split(" ", 2)
            yield Text("Let me see. ")
            await self._wait(name)
            yield CallPiece(0, "call_0", "ask", arguments)
            yield Finished("tool_calls")
        else:
            async for piece in super().stream(request):
                yield piece


class ApprovalAgents(StandardAgentProvider):
    def __init__(self, standard: WithBrain, asker: Asker) -> None:
        super().__init__(standard)
        self._asker = asker

    def _parts_of(self, whose: AgentScope) -> tuple[AgentComponents, Path]:
        parts, folder = super()._parts_of(whose)

        def make_tools(incognito: bool) -> Sequence[Tool]:
            return [*parts.make_tools(incognito), self._asker]

        return parts._replace(make_tools=make_tools), folder


class ButtonPlatform(Platform):
    """A platform that shows buttons below messages. An edit of a message removes its buttons."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.buttons: dict[str, tuple[Choice, ...]] = {}
        self._presses = 0

    async def offer(
        self,
        to: Source,
        text: str,
        choices: Sequence[Choice],
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        sent = await self.send(to, text, idempotency_key=idempotency_key, reply_to=reply_to, silent=silent)
        assert sent is not None
        self.buttons[sent] = tuple(choices)
        return sent

    async def edit(self, to: Source, message_id: str, text: str) -> None:
        await super().edit(to, message_id, text)
        self.buttons.pop(message_id, None)

    async def press(self, who: Source, message_id: str, text: str) -> Receipt:
        self._presses += 1
        source = who._replace(message_id=message_id)
        return await self.hear(Event(source, text, clock.now(), chosen=f"press-{self._presses}"))


class ApprovalGateway(LocalGateway):
    def __init__(self, settings: GatewaySettings = OWNED, platform: Platform | None = None) -> None:
        super().__init__(settings, platform or Platform())
        self.brain = ApprovalBrain()
        self.asker = Asker()

    def agents(self) -> StandardAgentProvider:
        return ApprovalAgents(WithBrain(self.brain), self.asker)

    async def asked(self, who: Source, subject: str, **more: Any) -> str:
        """Send a message that makes the model call the tool with `subject`. Return the last message that asks
        for the approval."""
        before = len(self.questions(who))
        await self.says(who, f"use ask {json.dumps({'subject': subject, **more})}")
        await self.until(lambda: len(self.questions(who)) > before)
        return self.questions(who)[-1]

    def questions(self, who: Source = ANN) -> list[str]:
        """Return the messages that ask for an approval, each in its current state."""
        return [text for text in self.heard(who) if "**May I do this?**" in text]

    def results(self, who: Source = ANN) -> list[str]:
        """Return the tool results that the model received."""
        rows = self.db.get_context(self.session_of(who))
        return [content_text(row["content"]) for row in rows if row["role"] == "tool"]


def code_in(markdown: str) -> list[str]:
    """Return the code blocks of a Markdown text."""
    tokens = MarkdownIt("commonmark").parse(markdown)
    return [token.content.removesuffix("\n") for token in tokens if token.type == "fence"]


def name_in(question: str) -> str:
    """Return the name of an approval request, read from the message that asks for it."""
    found = _NAME.search(question)
    assert found is not None, question
    return found[1]
