"""A real gateway in this process, with a real store, a fake platform, and people who write on it.

    async with LocalGateway() as gateway:
        assert await gateway.asks(ANN, "hello") == ["you said: hello"]

The model repeats the prompt. Some prompts make it do more:

    use TOOL {"a": 1}     call the tool, and repeat its result
    hold NAME             begin an answer, and wait for `gateway.let_go("NAME")`
    twice NAME TOOL {…}   call a tool, then hold: another step follows, which can include messages that arrive meanwhile
    fail                  fail the request

In a shared room, the prompt begins with the name of the speaker. `brain.requests` contains all requests.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Self

from hermes import clock
from hermes.agent.components import ModelChoice
from hermes.agent.factory import StandardFactory
from hermes.agent.models.model import CallPiece, Finished, Model, Piece, Request, Text, Unreachable, Used
from hermes.conversation.agents import StandardAgentProvider
from hermes.gateway.adapter import Capabilities, Receipt
from hermes.gateway.app import Gateway
from hermes.gateway.inbound_events import Event, OfferedFile, Source
from hermes.gateway.settings import GatewaySettings, PlatformSettings
from hermes_state import SessionDB
from tests.gateway.fake_adapter import FakeAdapter

PATIENCE_S = 60.0
"""The time limit of any wait, in seconds. When it is reached, the test fails and names the condition that was
not met."""

ANN = Source("telegram", "1", user_id="1", user_name="Ann")
BOB = Source("telegram", "2", user_id="2", user_name="Bob")
THREAD = "7"


def in_group(who: Source, chat: str = "-9") -> Source:
    return who._replace(chat_id=chat, chat_name="The Room", chat_type="group")


def in_thread(who: Source, thread: str = THREAD) -> Source:
    return in_group(who)._replace(chat_type="thread", thread_id=thread)


def settings_of(**changed: Any) -> GatewaySettings:
    """Return settings that give everybody access without limits. `platform` has the settings of the
    platform."""
    platform = {"allow_all": True, "stream": False, **changed.pop("platform", {})}
    platforms = {"telegram": PlatformSettings("telegram", **platform)}
    return GatewaySettings(
        **{
            "messages_per_minute": 0,
            "health_port": 0,
            "drain_seconds": 5.0,
            "platforms": platforms,
            **changed,
        }
    )


class Brain:
    """The model that all conversations of the gateway use."""

    name, provider, base_url, context_window = "brain", "test", None, 128_000

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.held: list[str] = []
        """The names of the answers that the model is holding, in order."""
        self.gates: dict[str, asyncio.Event] = {}
        self.is_away = False
        """Whether every request fails."""

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        self.requests.append(request)
        last = request.messages[-1]
        text = content_text(last["content"])
        word, _, rest = re.sub(r"^\[[^\]]*\] ", "", text).partition(" ")
        if last["role"] == "tool" and not self.is_away:
            held = _held_after_tool(request)
            if held is not None:
                yield Text("and ")
                await self._wait(held)
            yield Text(f"the tool said: {text}")
        elif word == "use":
            yield _called(rest)
        elif word == "twice":
            yield _called(rest.partition(" ")[2])
        elif word == "hold":
            yield Text("well, ")
            await self._wait(rest.split()[0])
            yield Text(f"you said: {text}")
        elif word == "fail" or self.is_away:
            raise Unreachable("nobody answers at http://localhost:1")
        else:
            yield Text(f"you said: {text}")
        yield Used(input_tokens=len(request.messages), output_tokens=3)
        yield Finished("stop")

    async def _wait(self, name: str) -> None:
        self.held.append(name)
        await self.gate(name).wait()

    async def close(self) -> None:
        pass

    @property
    def request_text(self) -> str:
        """The text of all requests."""
        requests = [[request.messages, request.tools] for request in self.requests]
        return json.dumps(requests, ensure_ascii=False, default=str)


def content_text(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def _called(rest: str) -> CallPiece:
    name, _, arguments = rest.partition(" ")
    return CallPiece(0, "call_1", name, arguments or "{}")


def _held_after_tool(request: Request) -> str | None:
    people = [content_text(one["content"]) for one in request.messages if one["role"] == "user"]
    word, _, rest = people[-1].partition(" ")
    return rest.split()[0] if word == "twice" else None


class WithBrain(StandardFactory):
    def __init__(self, brain: Brain) -> None:
        super().__init__()
        self._brain = brain

    def make_model(self, _wish: ModelChoice) -> Model:
        return self._brain


class Platform(FakeAdapter):
    """A fake platform that additionally records the chat of each message."""

    def __init__(self, name: str = "telegram", can: Capabilities | None = None, **more: Any) -> None:
        super().__init__(name, can, **more)
        self.where: dict[str, Source] = {}

    async def send(
        self,
        to: Source,
        text: str,
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        try:
            return await super().send(
                to, text, idempotency_key=idempotency_key, reply_to=reply_to, silent=silent
            )
        finally:
            if idempotency_key in self._sent:
                self.where[self._sent[idempotency_key]] = to

    @property
    def is_connected(self) -> bool:
        return self._receive is not None

    def visible_in(self, chat: Source) -> list[str]:
        """Return the visible messages of a chat, oldest first."""
        place = (chat.chat_id, chat.thread_id)
        return [
            text
            for message, text in self.messages.items()
            if (self.where[message].chat_id, self.where[message].thread_id) == place
        ]


class LocalGateway:
    """A gateway with its store and its model, and methods for the actions of people on its platform."""

    def __init__(
        self, settings: GatewaySettings | None = None, platform: Platform | None = None, **more: Platform
    ) -> None:
        """Add the platforms in `more`, by name."""
        self.settings = settings or settings_of()
        self.platform = platform or Platform()
        self.brain = Brain()
        self._platforms = {self.platform.name: self.platform, **more}
        self._numbers = count(1)

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for gate in self.brain.gates.values():
            gate.set()
        await self._end()

    async def restart(self, settings: GatewaySettings | None = None) -> None:
        """Stop the gateway normally and start another on the same store."""
        await self._end()
        self.settings = settings or self.settings
        await self._start()

    async def _start(self) -> None:
        self.db = SessionDB(spool=True)
        self.app = Gateway(self.db, self.settings, self._platforms, self.agents())
        await self.app.start()
        await self.until(lambda: self.platform.is_connected)

    def agents(self) -> StandardAgentProvider:
        return StandardAgentProvider(WithBrain(self.brain))

    async def _end(self) -> None:
        await self.app.close()
        await asyncio.to_thread(self.db.close)

    # ---------------------------------------------------------------- people

    async def says(
        self,
        who: Source,
        text: str,
        *,
        offered: Sequence[OfferedFile] = (),
        number: str | None = None,
        sent_at: float | None = None,
        **more: Any,
    ) -> Receipt:
        """Send a message and return the receipt. `number` is the platform's id of the message."""
        source = who._replace(message_id=number or f"said-{next(self._numbers)}")
        at = clock.now() if sent_at is None else sent_at
        return await self.platform.hear(Event(source, text, at, **more), offered)

    async def asks(self, who: Source, text: str, **more: Any) -> list[str]:
        """Send a message, wait until everything is finished, and return the new messages of the agent."""
        before = len(self.heard(who))
        await self.says(who, text, **more)
        await self.quiet()
        return self.heard(who)[before:]

    def heard(self, who: Source) -> list[str]:
        """Return the agent's visible messages in the chat of a person, oldest first."""
        return self.platform.visible_in(who)

    def let_go(self, name: str) -> None:
        """Release an answer that the model holds."""
        self.brain.gate(name).set()

    async def holds(self, name: str) -> None:
        """Wait until the model holds the answer `name`."""
        await self.until(lambda: name in self.brain.held)

    # ---------------------------------------------------------------- waiting and inspecting

    async def until(self, happened: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not happened():
                await asyncio.sleep(0.005)

    async def quiet(self) -> None:
        """Wait until every received message is processed and every outgoing message is sent."""
        await self.until(lambda: not self.db.inbox.list_waiting() and not self.db.outbox.list_waiting())

    def session_of(self, who: Source) -> str:
        """Return the current session of a person's chat."""
        from hermes.gateway.sessions.session_keys import make_chat

        route = self.db.routing.find(*make_chat(who, self.settings.keying))
        assert route is not None
        live = self.db.routing.find_live_session(route.session_key)
        assert live is not None
        return live

    def talk(self, who: Source) -> list[str]:
        """Return the messages in the context of a person's conversation."""
        return [content_text(row["content"]) for row in self.db.get_context(self.session_of(who))]


def file(name: str, content: bytes, kind: str = "file", media_type: str = "text/plain") -> OfferedFile:
    async def fetch() -> bytes:
        return content

    return OfferedFile(kind, name, media_type, len(content), fetch)


# ---------------------------------------------------------------- other programs

WORKS_IN = """
import sys
from hermes_state import SessionDB
db = SessionDB()
lease = db.leases.take_over(sys.argv[1], "terminal")
print("ready", flush=True)
sys.stdin.readline()
db.leases.release(lease)
db.close()
"""


@contextmanager
def another_program(script: str, argument: object) -> Iterator[Callable[[], None]]:
    """Run another program on the same home. It ends when the test calls the returned function."""
    started = subprocess.Popen(
        [sys.executable, "-c", script, str(argument)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def ends() -> None:
        if started.poll() is None and started.stdin is not None:
            started.stdin.close()
            started.wait()

    with started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        try:
            yield ends
        finally:
            ends()


@contextmanager
def full_disk() -> Iterator[None]:
    """Prevent every file from growing, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
