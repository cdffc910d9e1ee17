"""A real gateway with the API server and a model that repeats the prompt. It can run as a separate process:

python -m tests.server.api_gateway        prints its port, and serves until it is ended
python -m tests.server.api_gateway dies   dies of SIGKILL as soon as it has stored an answer to `die`
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
from openai import AsyncOpenAI

from hermes.agent.agent import Agent
from hermes.agent.answer import Answer, StreamText
from hermes.agent.components import AgentComponents, AgentInputs
from hermes.agent.events import Event
from hermes.agent.models.model import Piece, Request, Retrying, Text, Unreachable, Used
from hermes.agent.subagents import Subagents
from hermes.agent.tools.background_processes import BackgroundProcesses
from hermes.conversation.agents import AgentScope, LiveRecord, PreparedAgent
from hermes.db.session_db import AnyStore
from hermes.gateway.app import Gateway
from hermes.gateway.context import GatewayAgents
from hermes.gateway.ops.status_file import gateway_folder
from hermes.gateway.settings import GatewaySettings, PlatformSettings
from hermes.server.api import ApiServer
from hermes.server.request_handler import SESSION
from hermes_state import SessionDB
from tests.chat.echo import PARTS, EchoModel, make_tools

KEY = "a key that is long enough"
ANNA, BERT = "anna has a key of her own", "bert has a key of his own"
PEOPLE = {"anna": ANNA, "bert": BERT}


class Parrot(EchoModel):
    """A model that repeats the prompt. The prompt `prompt` returns the system prompt, and `history` returns
    all earlier messages. A prompt with pictures returns the number of pictures.

    `crack` fails in the middle of its answer, `stumble` begins its answer twice, and `forever` never ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failing = 0
        """The number of following requests that fail."""
        self.stopped = asyncio.Event()
        self.has_spoken = asyncio.Event()
        """Set after the first three words of the answer to `forever`."""
        self.asked: list[Any] = []
        """The last message of each request."""

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        last = request.messages[-1]["content"]
        parts = [] if isinstance(last, str) else last
        self.asked.append(last)
        if self.failing:
            self.failing -= 1
            raise Unreachable("nobody answers at http://localhost:1")
        if last == "prompt":
            yield Text(str(request.messages[0]["content"]))
        elif last == "history":
            texts = [message for message in request.messages[:-1] if message["role"] != "system"]
            yield Text("|".join(f"{message['role']}: {message['content']}" for message in texts) or "none")
        elif parts:
            yield Text(f"{sum(part['type'] == 'image_url' for part in parts)} pictures")
        elif last == "crack":
            yield Text("so far")
            raise Unreachable("the connection was lost")
        elif last == "stumble":
            yield Text("wrong")
            yield Retrying("the connection was lost", 0.0)
            yield Text("right")
        elif last == "forever":
            try:
                for number in range(100_000):
                    yield Text(f"{number} ")
                    if number == 2:
                        self.has_spoken.set()
                    await asyncio.sleep(0.01)
            finally:
                self.stopped.set()
        else:
            async for piece in super().stream(request):
                yield piece
            return
        yield Used(input_tokens=7, output_tokens=5, cache_read_tokens=2)


class DyingRecord:
    """A record with which the process dies as soon as the answer to `die` is stored."""

    def __init__(self, real: LiveRecord, model: Parrot) -> None:
        self._real, self._model = real, model

    async def say_and_count(self, message: Mapping[str, Any], call: Mapping[str, Any]) -> Any:
        stored = await self._real.say_and_count(message, call)
        if self._model.asked[-1] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class ParrotAgents:
    def __init__(self) -> None:
        self.model = Parrot()
        self.processes = BackgroundProcesses()
        self.subagents = Subagents(3)
        self.scope: list[AgentScope] = []

    def get_components(self, _whose: AgentScope) -> AgentComponents:
        return PARTS

    async def prepare_agent(self, whose: AgentScope, store: AnyStore, record: LiveRecord) -> PreparedAgent:
        self.scope.append(whose)
        working = AgentInputs(store, self.model, (), Path.home(), whose.platform, False, whose.about)

        async def prompt() -> str:
            return f"Repeat.\n\n{working.about}"

        agent = Agent(
            store,
            cast("LiveRecord", DyingRecord(record, self.model)) if "dies" in sys.argv else record,
            self.model,
            tools=make_tools(False),
            prompt=prompt,
            price=PARTS.price,
            cwd=Path.home(),
        )
        return PreparedAgent(agent, None)

    async def close(self) -> None:
        await self.model.close()


class ApiGateway:
    """A gateway whose only platform is the API server, and functions that create clients for it."""

    def __init__(self, gateway: Gateway, adapter: ApiServer, agents: Any) -> None:
        self.app, self.adapter, self.agents, self.db = gateway, adapter, agents, gateway.db

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.adapter.port}"

    def openai(self, key: str = KEY, **options: Any) -> AsyncOpenAI:
        """Return the real OpenAI client for this gateway."""
        return AsyncOpenAI(base_url=f"{self.address}/v1", api_key=key, **{"max_retries": 0, **options})

    def http(self, key: str | None = KEY, **headers: str) -> httpx2.AsyncClient:
        sent = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx2.AsyncClient(base_url=self.address, headers=sent | headers, trust_env=False, timeout=30)


@asynccontextmanager
async def open_api_gateway(
    more: Mapping[str, Any] | None = None, agents: GatewayAgents | None = None, **settings: Any
) -> AsyncIterator[ApiGateway]:
    made = agents or ParrotAgents()
    owners = settings.pop("owners", frozenset())
    platform = PlatformSettings(
        "api-server", more={"key": KEY, "port": 0, **(more or {})}, owners=frozenset(owners)
    )
    adapter = ApiServer(platform, gateway_folder() / "api-server")
    general = {"messages_per_minute": 0, "health_port": 0, "drain_seconds": 1.0, **settings}
    db = SessionDB(spool=True)
    gateway = Gateway(
        db,
        GatewaySettings(platforms={"api-server": platform}, **general),
        {"api-server": adapter},
        made,
    )
    await gateway.start()
    try:
        async with asyncio.timeout(60):
            while adapter.port is None:
                await asyncio.sleep(0.01)
        yield ApiGateway(gateway, adapter, made)
    finally:
        await gateway.close()
        await asyncio.to_thread(db.close)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def assistant(text: str) -> Any:
    return {"role": "assistant", "content": text}


async def ask(
    gateway: ApiGateway, messages: list[Any], *, session: str | None = None, key: str = KEY, tries: int = 1
) -> tuple[str, str]:
    """Send the messages. Return (answer, session id)."""
    async with gateway.openai(key, max_retries=tries - 1) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="hermes", messages=messages, extra_headers={SESSION: session} if session else None
        )
    return raw.parse().choices[0].message.content or "", raw.headers[SESSION]


@asynccontextmanager
async def start_api_process(*words: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Start the gateway as a process. Yield the process and the address of its API. Kill the process at the
    end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.server.api_gateway", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield process, f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _serve() -> None:
    async with open_api_gateway() as gateway:
        print(gateway.adapter.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())


def stream_to_client(answer: Answer, events: Iterable[Event]) -> list[str]:
    """Return the texts that a streaming client receives for these events, one for each event."""
    text, sent = StreamText(answer), []
    for event in events:
        sent.append(text.render(event))
        answer.add(event)
    return sent
