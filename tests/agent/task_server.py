"""A model over HTTP for concurrent conversations. The last message decides the answer:

say WORDS        answer with the words
delegate {...}   call `delegate_task` with these arguments, then repeat the result
use TOOL {...}   call that tool, then repeat the result
loop             call a tool repeatedly, until the model is told to answer
hold NAME        begin an answer, and continue after `let_go(NAME)`
fail             refuse the request
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hermes.agent.events import Event
from hermes.agent.factory import make_standard_components
from hermes.config import config_file
from hermes.conversation.conversation import Conversation
from hermes.conversation.local_conversation import open_local_conversation
from hermes_state import SessionDB
from tests.agent.openai_server import Asked, ModelServer, Reply, calls, chunk, refuses, says, usage

USED = usage(prompt_tokens=100, completion_tokens=10)
END = b"data: [DONE]\n\n"
MODEL = "large-model"


class TaskServer(ModelServer):
    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[str, threading.Event] = {}
        self.heard: list[str] = []
        """The last message of each request."""

    def let_go(self, name: str) -> None:
        self.gates.setdefault(name, threading.Event()).set()

    def take(self, asked: Asked) -> Reply:
        messages = asked.body["messages"]
        at = max(number for number, message in enumerate(messages) if message["role"] == "user")
        # in a room, the name of the speaker comes first
        text = re.sub(r"^\[[^\]]*\] ", "", str(messages[at]["content"]))
        results = [str(message["content"]) for message in messages[at + 1 :] if message["role"] == "tool"]
        self.requests.append(asked)
        self.heard.append(text)
        return self._answer(text.partition("\n")[0], results)

    def _answer(self, text: str, results: list[str]) -> Reply:
        word, _, rest = text.partition(" ")
        name, _, arguments = rest.partition(" ")
        if word == "loop":
            return calls((f"call_{len(results)}", "todo", "{}"))
        if results:
            return says(f"heard: {results[-1]}", used=USED)
        match word:
            case "delegate":
                return calls(("call_1", "delegate_task", rest))
            case "use":
                return calls(("call_1", name, arguments))
            case "hold":
                gate = self.gates.setdefault(name, threading.Event())
                return Reply(
                    [
                        chunk({"content": "well"}),
                        gate,
                        chunk({"content": " then"}),
                        chunk({}, "stop"),
                        USED,
                        END,
                    ]
                )
            case "fail":
                return refuses(400, "the model wants nothing of that")
            case "say":
                return says(rest, used=USED)
            case _:
                return says("ok", used=USED)

    def close(self) -> None:
        for gate in self.gates.values():
            gate.set()
        super().close()


def choose_server(server: ModelServer, **settings: Any) -> None:
    """Make `server` the default model of this home. Automatic titles are turned off, because they would cause
    additional requests."""
    os.environ.update(OPENAI_BASE_URL=server.base_url, OPENAI_API_KEY="sk-test", HERMES_MODEL=MODEL)
    for key, value in {"agent.auto_title": False, **settings}.items():
        config_file.change(key.replace("__", "."), value)


@asynccontextmanager
async def open_conversation(
    db: SessionDB, folder: Path, *, incognito: bool = False, can_ask: bool = False
) -> AsyncIterator[Conversation[SessionDB]]:
    """Open a conversation with the components that an installation has by default."""
    conversation = open_local_conversation(
        db, make_standard_components(), can_ask=can_ask, cwd=folder, incognito=incognito
    )
    try:
        yield conversation
    finally:
        await conversation.close()


def delegate(*tasks: str | dict[str, Any], **more: Any) -> str:
    """Return a prompt that makes the model delegate these tasks."""
    listed = [{"goal": task, **more} if isinstance(task, str) else task for task in tasks]
    return f"delegate {json.dumps(listed[0] if len(listed) == 1 else {'tasks': listed})}"


async def until(happened: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not happened():
            await asyncio.sleep(0.01)


class Following:
    """A turn that runs in a background task of the test."""

    def __init__(self, conversation: Conversation[SessionDB], text: str) -> None:
        self.events: list[Event] = []
        self.task = asyncio.create_task(self._follow(conversation, text))

    async def _follow(self, conversation: Conversation[SessionDB], text: str) -> list[Event]:
        async for event in conversation.say(text):
            self.events.append(event)
        return self.events


async def _run_until_killed(path: str, base_url: str, text: str) -> None:
    os.environ.update(OPENAI_BASE_URL=base_url, OPENAI_API_KEY="sk-test", HERMES_MODEL=MODEL)
    with SessionDB(Path(path)) as db:
        async with open_conversation(db, Path.cwd()) as conversation:
            async for _ in conversation.say(text):
                pass


if __name__ == "__main__":
    asyncio.run(_run_until_killed(*sys.argv[1:]))
