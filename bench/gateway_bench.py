"""A load test of the gateway: many concurrent chats, a crowd, a full outbox, and `kill -9` in the middle.

    python bench/gateway_bench.py [--base TREE] [--only crowd,steady] [--chats 1000] [--messages 4] [--work DIR]
    python bench/gateway_bench.py --only telegram [--telegram 300,1000]

This process plays the platform. It delivers messages over a socket, records acknowledgements and answers, and
delivers unacknowledged messages again, as platforms do. The gateway runs in a separate process, with a store
in a temporary home. Its model answers at once, so that only the gateway is measured.

In the scenario `telegram`, this process plays Telegram's Bot API and the endpoint of the model over HTTP, and
the gateway uses the SDKs of both. Each chat sends its first message, which gets an answer and a title.

With `--base`, each scenario also runs with the source of another checkout, and the ratio is printed. Compare
only ratios: absolute times on a shared machine are not reliable. The program exits with 1 if a message was
lost, unanswered, or processed or delivered twice.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, process_time
from typing import Any
from urllib.parse import parse_qs

ROOT = Path(__file__).resolve().parent.parent
TREE = Path(os.environ.get("HERMES_BENCH_TREE", ROOT))
"""The checkout whose gateway is measured."""
sys.path.insert(0, str(TREE / "src"))

# ---------------------------------------------------------------- the gateway, in its own process


class QuickModel:
    """A model that answers at once, with the text of the prompt."""

    name, provider, base_url, context_window = "quick", "bench", None, 128_000

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        from hermes.agent.models.model import Finished, Text, Used

        prompt = request.messages[-1]["content"]
        await asyncio.sleep(random.uniform(0.005, 0.05))
        yield Text(f"answer to {prompt}")
        yield Used(input_tokens=len(request.messages), output_tokens=3)
        yield Finished("stop")

    async def close(self) -> None:
        pass


class Socket:
    """The gateway's side of the platform connection: one line of JSON per message, in both directions."""

    def __init__(self, path: str, seconds: float, confirms: bool) -> None:
        """`seconds` is the time that one delivery takes. `confirms`: whether the platform confirms each
        message."""
        from hermes.gateway.adapter import Capabilities

        self.name, self.capabilities = "telegram", Capabilities()
        self._path, self._seconds, self._confirms = path, seconds, confirms
        self._writer: asyncio.StreamWriter | None = None
        self._unconfirmed: dict[str, asyncio.Future[None]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._is_receiving = False

    def measure(self, text: str) -> int:
        return len(text)

    async def run(self, receive: Callable[..., Any], ready: Callable[[], None]) -> None:
        reader, self._writer = await asyncio.open_unix_connection(self._path, limit=1 << 20)
        ready()
        self._say(ready=os.getpid())
        self._is_receiving = True
        self._reading = asyncio.create_task(self._read(reader, self._writer, receive))
        try:
            await asyncio.shield(self._reading)
        finally:  # the reading task continues, so that messages can still be sent and confirmed
            self._is_receiving = False

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receive: Callable[..., Any]
    ) -> None:
        handling: set[asyncio.Task[None]] = set()
        try:
            while line := await reader.readline():
                record = json.loads(line)
                if "usage" in record:
                    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                    self._say(usage=[memory, process_time()])
                elif "got" in record:
                    if (confirmed := self._unconfirmed.pop(record["got"], None)) is not None:
                        confirmed.set_result(None)
                elif self._is_receiving:
                    task = asyncio.create_task(self._hear(receive, record))
                    handling.add(task)
                    task.add_done_callback(handling.discard)
        finally:
            writer.close()
            self._writer = None
            for lost in self._unconfirmed.values():
                lost.cancel()
            self._unconfirmed.clear()

    async def _hear(self, receive: Callable[..., Any], record: dict[str, Any]) -> None:
        from hermes.gateway.inbound_events import Event, Source

        source = Source(
            "telegram", record["chat"], chat_type="dm", user_id=record["chat"], message_id=record["id"]
        )
        began = monotonic()
        receipt = await receive(Event(source, record["text"], record["at"]), ())
        self._say(ack=record["id"], state=receipt.state, seconds=monotonic() - began)

    async def send(
        self, to: Any, text: str, *, idempotency_key: str, reply_to: Any = None, silent: bool = False
    ) -> str:
        await asyncio.sleep(self._seconds / 2)
        if self._writer is None:
            from hermes.gateway.adapter import Unreachable

            raise Unreachable("not connected")
        if self._confirms:
            await self._say_until_confirmed(to.chat_id, text, idempotency_key)
        else:
            self._say(chat=to.chat_id, text=text)
        await asyncio.sleep(self._seconds / 2)
        return idempotency_key

    async def _say_until_confirmed(self, chat: str, text: str, idempotency_key: str) -> None:
        from hermes.gateway.adapter import DeliveryUnknown, Unreachable

        if self._writer is None or self._writer.is_closing():
            raise Unreachable("not connected")
        confirmed = self._unconfirmed[idempotency_key] = asyncio.get_running_loop().create_future()
        self._say(chat=chat, text=text, key=idempotency_key)
        await asyncio.wait([confirmed])
        if confirmed.cancelled():
            raise DeliveryUnknown("the connection was lost")

    async def edit(self, to: Any, message_id: str, text: str) -> None:
        self._say(chat=to.chat_id, text=text)

    async def typing(self, to: Any) -> None:
        pass

    async def open_thread(self, to: Any, name: str) -> None:
        return None

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _say(self, **record: Any) -> None:
        # The writer is None while the platform is away. The platform then delivers unacknowledged messages again.
        if self._writer is not None:
            self._writer.write(json.dumps(record).encode() + b"\n")


async def serve(
    path: str, seconds: float, health_port: int, limits: dict[str, int], confirms: bool = False
) -> None:
    from hermes.agent.factory import StandardFactory
    from hermes.conversation.agents import StandardAgentProvider
    from hermes.db.session_db import SessionDB
    from hermes.gateway.app import Gateway
    from hermes.gateway.settings import GatewaySettings, PlatformSettings

    class Quick(StandardFactory):
        def make_model(self, _wish: Any) -> Any:
            return QuickModel()

    known: dict[str, Any] = {
        name: value for name, value in limits.items() if name in GatewaySettings.__struct_fields__
    }
    settings = GatewaySettings(
        messages_per_minute=0,
        health_port=health_port,
        platforms={"telegram": PlatformSettings("telegram", allow_all=True, stream=False)},
        **known,
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    db = SessionDB(spool=True)
    gateway = Gateway(
        db, settings, {"telegram": Socket(path, seconds, confirms)}, StandardAgentProvider(Quick())
    )
    await gateway.start()
    await stop.wait()
    await gateway.close()
    db.close()


async def serve_telegram(base_url: str) -> None:
    """Run the gateway with the SDK of Telegram and that of the model. For each line on stdin, print the CPU
    time of this process."""
    from hermes.agent.factory import StandardFactory
    from hermes.cli.main import OBJECTS_BETWEEN_COLLECTIONS
    from hermes.conversation.agents import StandardAgentProvider
    from hermes.db.session_db import SessionDB
    from hermes.gateway.app import Gateway
    from hermes.gateway.platforms.telegram.adapter import Telegram
    from hermes.gateway.settings import GatewaySettings, PlatformSettings

    options = {"bot_token": "1:bench", "base_url": f"{base_url}/bot"}
    platform = PlatformSettings("telegram", allow_all=True, more=options)
    settings = GatewaySettings(messages_per_minute=0, health_port=0, platforms={"telegram": platform})
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)  # as `hermes` does
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)

    def print_usage() -> None:
        if os.read(sys.stdin.fileno(), 100):
            print(process_time(), flush=True)
        else:
            loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, print_usage)
    db = SessionDB(spool=True)
    adapter = Telegram(platform, Path(os.environ["HERMES_HOME"]))
    gateway = Gateway(db, settings, {"telegram": adapter}, StandardAgentProvider(StandardFactory()))
    await gateway.start()
    await stop.wait()
    await gateway.close()
    db.close()


def fill_outbox(entries: int) -> None:
    """Put `entries` messages into the outbox, each for a different chat."""
    from hermes.db.session_db import SessionDB
    from hermes.gateway.inbound_events import Source
    from hermes.gateway.outbound.delivery import OutgoingMessage

    with SessionDB(durability="normal") as db:
        for number in range(entries):
            source = Source("telegram", f"{number}", user_id=f"{number}")
            payload = OutgoingMessage(source, f"answer to o-{number}").to_dict()
            db.outbox.enqueue(f"agent:main:telegram:dm:{number}", "telegram", payload, f"o-{number}")


# ---------------------------------------------------------------- the platform


class Platform:
    """The platform, and the gateway process that it starts with a new home in `work`."""

    def __init__(self, work: Path, tree: Path, *, seconds: float = 0.0, **limits: int) -> None:
        self.path = str(work / "platform.sock")
        self.work, self.tree = work, tree
        self.acked: dict[str, float] = {}
        self.acked_at: dict[str, float] = {}
        self.arrived: Counter[str] = Counter()
        self.first_answer_at: float | None = None
        self.notices = 0
        self.health_port = 0
        self._seconds, self._limits = seconds, limits
        self.confirms = False
        """Whether the platform confirms each message that it receives."""
        self.is_away = False
        self._usage: asyncio.Future[tuple[int, float]] | None = None
        self.connected = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._child: asyncio.subprocess.Process | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._connected, self.path, limit=1 << 20)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            while line := await reader.readline():
                self._handle(json.loads(line))
        finally:
            writer.close()

    async def close(self) -> None:
        """Close the platform after the gateway has ended."""
        self._server.close()
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()

    def _handle(self, record: dict[str, Any]) -> None:
        if "ready" in record:
            self.connected.set()
        elif "ack" in record:
            if record["state"] in ("accepted", "duplicate"):
                self.acked.setdefault(record["ack"], record["seconds"])
                self.acked_at.setdefault(record["ack"], monotonic())
        elif "usage" in record and self._usage is not None:
            self._usage.set_result(tuple(record["usage"]))
        elif "text" in record:
            self._heard(record["text"])
            if "key" in record and not self.is_away:
                self.deliver({"got": record["key"]})

    def _heard(self, text: str) -> None:
        if text.startswith("answer to "):
            self.arrived[text.removeprefix("answer to ")] += 1
            self.first_answer_at = self.first_answer_at or monotonic()
        else:
            self.notices += 1

    @property
    def environment(self) -> dict[str, str]:
        home = {"HERMES_HOME": str(self.work / "home"), "HERMES_BENCH_TREE": str(self.tree)}
        return {**os.environ, **home, "PYTHONPATH": str(self.tree / "src")}

    async def start_gateway(self, *, wait: bool = True) -> None:
        self.connected.clear()
        how = json.dumps([self.path, self._seconds, self.health_port, self._limits, self.confirms])
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--serve", how, env=self.environment, stderr=asyncio.subprocess.DEVNULL
        )
        if wait:
            await self.connected.wait()

    async def fill_outbox(self, entries: int) -> None:
        child = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--fill", str(entries), env=self.environment
        )
        await child.wait()

    async def go_away(self, seconds: float) -> None:
        """Drop the connection, and refuse new connections for `seconds`. Confirmations that are not delivered
        yet are lost."""
        self.is_away = True
        self.connected.clear()
        self._server.close()
        if self._writer is not None:
            self._writer.close()
        Path(self.path).unlink(missing_ok=True)
        await asyncio.sleep(seconds)
        self.is_away = False
        await self.open()
        await self.connected.wait()

    async def kill(self) -> None:
        assert self._child is not None
        self._child.kill()
        await self._child.wait()

    async def end(self, patience: float = 120.0) -> float:
        """End the gateway with SIGTERM. Return the number of seconds until it ended."""
        assert self._child is not None
        began = monotonic()
        self._child.terminate()
        try:
            async with asyncio.timeout(patience):
                await self._child.wait()
        except TimeoutError:
            await self.kill()
        return monotonic() - began

    def deliver(self, message: dict[str, Any]) -> None:
        assert self._writer is not None
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    def deliver_unacknowledged(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if message["id"] not in self.acked:
                self.deliver(message)

    async def measure_usage(self) -> tuple[int, float]:
        """Return the peak memory of the gateway in KB, and its CPU time in seconds."""
        self._usage = asyncio.get_running_loop().create_future()
        self.deliver({"usage": 1})
        return await self._usage


class HTTPConnection(asyncio.Protocol):
    """A connection of an HTTP client. It knows only what the SDKs send: requests with a length, one after
    another."""

    def __init__(self, answer: Callable[[str, bytes, HTTPConnection], None]) -> None:
        self._answer, self._received = answer, b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        size = int(length[1]) if length else 0
        if end and len(rest) >= size:
            self._received = rest[size:]
            self._answer(head.split(b" ", 2)[1].decode(), rest[:size], self)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def write_json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.write(head + body)


class TelegramAndModel:
    """Telegram's Bot API and the endpoint of the model, and the gateway process that uses them."""

    TELEGRAM_S, FIRST_TOKEN_S, TOKEN_S = 0.03, 0.1, 0.005
    """How long a call of Telegram takes, how long the model takes to begin, and the time between two tokens."""
    REST = "as **asked**, in a sentence or two, with `code` and a [link](https://example.com/a) at its end."
    CURSOR = "▌"

    def __init__(self, work: Path, tree: Path) -> None:
        self.work, self.tree = work, tree
        self.arrived: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.titles = 0
        self._updates: list[dict[str, Any]] = []
        self._poll: tuple[int, HTTPConnection] | None = None
        self._has_polled = asyncio.Event()
        self._message_id = self._asked = 0

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        make = self._loop.create_server
        telegram = await make(lambda: HTTPConnection(self._answer_telegram), "127.0.0.1", backlog=4096)
        model = await make(lambda: HTTPConnection(self._answer_model), "127.0.0.1", backlog=4096)
        self._servers = (telegram, model)
        addresses = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in self._servers]
        home = self.work / "home"
        home.mkdir(mode=0o700)
        chosen = {"model": {"default": "bench-model", "base_url": f"{addresses[1]}/v1"}}
        (home / "config.yaml").write_text(json.dumps(chosen))
        self._child = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "--serve-telegram", addresses[0]),
            env={
                **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
                "HERMES_HOME": str(home),
                "HERMES_BENCH_TREE": str(self.tree),
                "PYTHONPATH": str(self.tree / "src"),
                "OPENAI_API_KEY": "bench",
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(60):
                await self._has_polled.wait()
        except TimeoutError:
            self._child.kill()
            raise RuntimeError("the gateway does not poll") from None

    async def close(self) -> None:
        self._child.terminate()
        if self._poll is not None:  # the gateway waits for the end of its poll
            self._poll[1].write_json({"ok": True, "result": []})
        try:
            async with asyncio.timeout(60):
                await self._child.wait()
        except TimeoutError:
            self._child.kill()
            await self._child.wait()
        for server in self._servers:
            server.close()

    async def measure_cpu(self) -> float:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(b"\n")
        return float(await self._child.stdout.readline())

    async def send_first_messages(self, name: str, chats: int) -> tuple[float, float]:
        """Send the first message of new chats at once. Return the CPU time of the gateway and the time until
        all answers have arrived, both in seconds."""
        texts = [f"{name}-{number}" for number in range(chats)]
        before, titles, began = await self.measure_cpu(), self.titles, monotonic()
        for text in texts:
            self._deliver(text)
        self._answer_poll()
        answered = began
        last: object = None
        since = monotonic()
        while (is_open := not all(map(self.arrived.__contains__, texts))) or self.titles < titles + chats:
            if is_open:
                answered = monotonic()
            now = (len(self.arrived), self.titles, self.calls.total())
            if now != last:
                last, since = now, monotonic()
            elif monotonic() - since > 60:
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)  # the last titles are stored
        return await self.measure_cpu() - before, answered - began

    # ---------------------------------------------------------------- Telegram

    def _deliver(self, text: str) -> None:
        number = len(self._updates) + 1
        person = {"id": number, "is_bot": False, "first_name": "Ada", "username": f"ada{number}"}
        chat = {"id": number, "type": "private", "first_name": "Ada", "username": f"ada{number}"}
        message = {"message_id": 1, "date": 1_700_000_000, "chat": chat, "from": person, "text": text}
        self._updates.append({"update_id": number, "message": message})

    def list_sent(self) -> list[str]:
        return [update["message"]["text"] for update in self._updates]

    def _answer_telegram(self, path: str, body: bytes, connection: HTTPConnection) -> None:
        method = path.rpartition("/")[2]
        asked = {name: values[-1] for name, values in parse_qs(body.decode()).items()}
        if method == "getUpdates":
            self._poll = int(asked.get("offset", 0)), connection
            self._has_polled.set()
            self._answer_poll()
            return
        self.calls[method] += 1
        result: Any = True
        if method == "getMe":
            result = {"id": 1, "is_bot": True, "first_name": "bench", "username": "bench_bot"}
        elif method in ("sendMessage", "editMessageText"):
            self._message_id += 1
            self._hear(asked["text"])
            chat = {"id": int(asked["chat_id"]), "type": "private", "first_name": "Ada"}
            number = int(asked.get("message_id", self._message_id))
            result = {"message_id": number, "date": 1_700_000_000, "chat": chat, "text": asked["text"]}
        self._loop.call_later(self.TELEGRAM_S, connection.write_json, {"ok": True, "result": result})

    def _answer_poll(self) -> None:
        if self._poll is None:
            return
        offset, connection = self._poll
        updates = self._updates[max(0, offset - 1) :][:100]
        if updates:
            self._poll = None
            self._loop.call_later(self.TELEGRAM_S, connection.write_json, {"ok": True, "result": updates})

    def _hear(self, text: str) -> None:
        words = text.split()
        if words[:2] == ["answer", "to"] and self.CURSOR not in text:
            self.arrived[words[2]] += 1

    # ---------------------------------------------------------------- the model

    def _answer_model(self, _path: str, body: bytes, connection: HTTPConnection) -> None:
        asked = json.loads(body)
        prompt = str(asked["messages"][-1]["content"])
        is_title = not asked.get("tools")
        self._asked += 1
        text = f"A title: number {self._asked}" if is_title else f"answer to {prompt} {self.REST}"
        words = [word if place == 0 else f" {word}" for place, word in enumerate(text.split(" "))]
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        used = {"prompt_tokens": 900, "completion_tokens": len(words), "total_tokens": 900 + len(words)}
        pieces = [
            head + format_chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}}]),
            *(format_chunk([{"index": 0, "delta": {"content": word}}]) for word in words),
            format_chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
            format_chunk([], usage=used) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n",
        ]
        self._loop.call_later(self.FIRST_TOKEN_S, self._write_pieces, connection, pieces, is_title)

    def _write_pieces(self, connection: HTTPConnection, pieces: Sequence[bytes], is_title: bool) -> None:
        connection.write(pieces[0])
        if len(pieces) > 1:
            self._loop.call_later(self.TOKEN_S, self._write_pieces, connection, pieces[1:], is_title)
        else:
            self.titles += is_title


def format_chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
    """Return a piece of a streamed answer of the model, as a chunk of an HTTP response."""
    named = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench-model"}
    data = f"data: {json.dumps({**named, 'choices': choices, **more})}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


async def settled(platform: Platform, wanted: Callable[[], bool], patience: float = 60.0) -> None:
    """Wait until `wanted` returns True, or until no message was acknowledged or delivered for `patience`
    seconds."""
    last, since = None, monotonic()
    while not wanted() and monotonic() - since < patience:
        now = (len(platform.acked), sum(platform.arrived.values()), platform.notices)
        if now != last:
            last, since = now, monotonic()
        await asyncio.sleep(0.05)


def messages_of(chats: int, messages: int, name: str) -> list[dict[str, Any]]:
    return [
        {"id": f"{name}-{chat}-{number}", "chat": f"{chat}", "text": f"{name}-{chat}-{number}", "at": 0.0}
        for number in range(messages)
        for chat in range(chats)
    ]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


# ---------------------------------------------------------------- the scenarios

Figures = dict[str, float]
PROBLEMS = ("lost", "processed twice", "unanswered", "delivered twice", "without a title")


async def run_crowd(arguments: argparse.Namespace, work: Path, tree: Path) -> Figures:
    """Many chats send all their messages at once."""
    platform = Platform(work, tree)
    await platform.open()
    await platform.start_gateway()
    warm = messages_of(5, 1, "w")
    for message in warm:
        platform.deliver(message)
    await settled(platform, lambda: sum(platform.arrived.values()) >= len(warm))
    _, before = await platform.measure_usage()
    messages = messages_of(arguments.chats, arguments.messages, "a")
    began = monotonic()
    for message in messages:
        platform.deliver(message)
    await settled(platform, lambda: sum(platform.arrived.values()) >= len(messages) + len(warm))
    seconds = monotonic() - began
    memory, used = await platform.measure_usage()
    await platform.end()
    return {
        "answered messages per second": len(messages) / seconds,
        "CPU ms per answered message": 1000 * (used - before) / len(messages),
        "memory MB": memory / 1024,
        **check_store(work, platform, messages),
    }


async def run_steady(arguments: argparse.Namespace, work: Path, tree: Path) -> Figures:
    """A steady load of a hundred messages per second."""
    platform = Platform(work, tree)
    await platform.open()
    await platform.start_gateway()
    messages = messages_of(arguments.steady, 1, "s")
    began = monotonic()
    for number, message in enumerate(messages):
        platform.deliver(message)
        await asyncio.sleep(max(0.0, began + (number + 1) / 100 - monotonic()))
    await settled(platform, lambda: all(platform.arrived[message["id"]] for message in messages))
    await platform.end()
    taken = list(platform.acked.values())
    return {
        "receipt to stored, p50 ms": 1000 * percentile(taken, 0.5),
        "receipt to stored, p99 ms": 1000 * percentile(taken, 0.99),
        **check_store(work, platform, messages),
    }


async def run_many(arguments: argparse.Namespace, work: Path, tree: Path) -> Figures:
    """Very many chats send one message each at once. SIGTERM ends the gateway while most messages wait."""
    platform = Platform(work, tree)
    await platform.open()
    await platform.start_gateway()
    messages = messages_of(arguments.many, 1, "m")
    began = monotonic()
    for message in messages:
        platform.deliver(message)
    await settled(platform, lambda: len(platform.acked) >= len(messages), 200.0)
    stored = [at - began for at in platform.acked_at.values()]
    answered = sum(platform.arrived.values())
    memory, _ = await platform.measure_usage()
    ended = await platform.end()
    await platform.start_gateway()
    platform.deliver_unacknowledged(messages)
    await settled(platform, lambda: sum(platform.arrived.values()) >= len(messages))
    await platform.end()
    first = (platform.first_answer_at or float("nan")) - began
    return {
        "first answer after s": first,
        "stored p99 s": percentile(stored, 0.99),
        "answered when all were stored": answered,
        "memory MB": memory / 1024,
        "SIGTERM s": ended,
        **check_store(work, platform, messages),
    }


async def run_start(arguments: argparse.Namespace, work: Path, tree: Path) -> Figures:
    """The gateway starts with a full outbox."""
    platform = Platform(work, tree)
    await platform.open()
    await platform.fill_outbox(arguments.outbox)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        platform.health_port = free.getsockname()[1]
    began = monotonic()
    await platform.start_gateway(wait=False)

    async def wait_for_health() -> float:
        url = f"http://127.0.0.1:{platform.health_port}/healthz"
        while True:
            try:
                await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read())
                return monotonic() - began
            except urllib.error.HTTPError:
                return monotonic() - began
            except OSError:
                await asyncio.sleep(0.05)

    healthy = asyncio.create_task(wait_for_health())
    try:
        async with asyncio.timeout(200):
            await platform.connected.wait()
            connected = monotonic() - began
            health = await healthy
    except TimeoutError:
        connected = health = float("inf")
    sent = sum(platform.arrived.values())
    await asyncio.sleep(3)
    sent = sum(platform.arrived.values()) - sent
    ended = await platform.end()
    twice = sum(count > 1 for count in platform.arrived.values())
    return {
        "polling after s": connected,
        "/healthz after s": health,
        "sent per second": sent / 3,
        "SIGTERM s": ended,
        "delivered twice": twice,
    }


async def run_kill(arguments: argparse.Namespace, work: Path, tree: Path) -> Figures:
    """The gateway is killed with `kill -9` while answers are being sent, and restarted."""
    platform = Platform(work, tree, seconds=0.3)
    await platform.open()
    await platform.start_gateway()
    messages = messages_of(arguments.killed, 1, "k")
    for message in messages:
        platform.deliver(message)
    await settled(platform, lambda: sum(platform.arrived.values()) >= len(messages) // 4)
    await platform.kill()
    await platform.start_gateway()
    platform.deliver_unacknowledged(messages)
    await settled(platform, lambda: all(platform.arrived[message["id"]] for message in messages), 8.0)
    await platform.end()
    without = sum(not platform.arrived[message["id"]] for message in messages)
    return {"without their answer": without, **check_store(work, platform, messages)}


FEW = 20


async def run_telegram(arguments: argparse.Namespace, work: Path, tree: Path) -> Figures:
    """Chats send their first message at once, over the SDKs of Telegram and of the model."""
    server = TelegramAndModel(work, tree)
    await server.open()
    await server.send_first_messages("w", FEW)
    few = [(await server.send_first_messages(f"f{number}", FEW))[0] for number in range(5)]
    cpu = {FEW: sum(few) / len(few)}
    figures = {f"CPU ms per message, {FEW} chats": 1000 * cpu[FEW] / FEW}
    for chats in map(int, arguments.telegram.split(",")):
        calls = server.calls.total()
        cpu[chats], seconds = await server.send_first_messages(f"m{chats}", chats)
        figures |= {
            f"CPU ms per message, {chats:,} chats": 1000 * cpu[chats] / chats,
            f"{chats:,} chats to {FEW} chats": cpu[chats] / chats / (cpu[FEW] / FEW),
            f"answered per second, {chats:,} chats": chats / seconds,
            f"Telegram calls per message, {chats:,}": (server.calls.total() - calls) / chats,
        }
    await server.close()
    return {**figures, **check_telegram(work, server)}


SCENARIOS: dict[str, Callable[[argparse.Namespace, Path, Path], Awaitable[Figures]]] = {
    "crowd": run_crowd,
    "steady": run_steady,
    "many": run_many,
    "start": run_start,
    "kill": run_kill,
    "telegram": run_telegram,
}


def check_store(work: Path, platform: Platform, messages: list[dict[str, Any]]) -> Figures:
    """Compare the messages that the platform sent with the stored and the delivered messages. Return the
    number of messages with each problem."""
    import apsw

    with_mark: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    store = apsw.Connection(str(work / "home" / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    for mark, count in store.execute(
        "SELECT platform_message_id, count(*) FROM messages WHERE role = 'user' GROUP BY 1"
    ):
        with_mark[mark] += count
    for text, count in store.execute(
        "SELECT content, count(*) FROM messages WHERE role = 'assistant' GROUP BY 1"
    ):
        answers[text.removeprefix("answer to ")] += count
    unknown = {
        json.loads(row[0])["text"].removeprefix("answer to ")
        for row in store.execute("SELECT payload_json FROM outbox WHERE state = 'unknown'")
    }
    store.close()
    ids = [message["id"] for message in messages]
    return {
        "lost": sum(not with_mark[name] for name in ids),
        "processed twice": sum(with_mark[name] > 1 or answers[name] > 1 for name in ids),
        "delivery unknown": len(unknown),
        "unanswered": sum(not platform.arrived[name] and name not in unknown for name in ids),
        "delivered twice": sum(platform.arrived[name] > 1 for name in ids),
    }


def check_telegram(work: Path, server: TelegramAndModel) -> Figures:
    import apsw

    store = apsw.Connection(str(work / "home" / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    ((untitled,),) = store.execute("SELECT count(*) FROM sessions WHERE title IS NULL")
    texts = Counter(text for (text,) in store.execute("SELECT content FROM messages WHERE role = 'user'"))
    store.close()
    sent = server.list_sent()
    return {
        "lost": sum(not texts[text] for text in sent),
        "processed twice": sum(texts[text] > 1 for text in sent),
        "unanswered": sum(not server.arrived[text] for text in sent),
        "delivered twice": sum(server.arrived[text] > 1 for text in sent),
        "without a title": untitled,
    }


async def run_scenario(name: str, arguments: argparse.Namespace, tree: Path) -> Figures:
    work = Path(tempfile.mkdtemp(prefix="hermes-gateway-", dir=arguments.work))
    try:
        return await SCENARIOS[name](arguments, work, tree)
    finally:
        shutil.rmtree(work, ignore_errors=True)


async def measure(arguments: argparse.Namespace) -> int:
    trees = {"base": arguments.base.resolve()} if arguments.base else {}
    trees["ours"] = ROOT
    has_failed = False
    for name in arguments.only.split(","):
        figures = {label: await run_scenario(name, arguments, tree) for label, tree in trees.items()}
        print(f"{name}: {(SCENARIOS[name].__doc__ or '').splitlines()[0]}")
        for figure, value in figures["ours"].items():
            line = f"  {figure:<36} {value:>10,.1f}"
            if "base" in figures:
                before = figures["base"].get(figure, float("nan"))
                ratio = f"{value / before:>8.2f}x" if before else ""
                line = f"  {figure:<36} {before:>10,.1f} {value:>10,.1f} {ratio}"
            print(line, flush=True)
        has_failed = has_failed or any(figures["ours"].get(problem) for problem in PROBLEMS)
    return 1 if has_failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, help="another checkout, to compare with")
    parser.add_argument("--only", default=",".join(SCENARIOS), help="the scenarios to run")
    parser.add_argument("--chats", type=int, default=1000, help="chats of `crowd`")
    parser.add_argument("--messages", type=int, default=4, help="messages of each chat of `crowd`")
    parser.add_argument("--steady", type=int, default=1000, help="messages of `steady`")
    parser.add_argument("--many", type=int, default=10_000, help="chats of `many`")
    parser.add_argument("--outbox", type=int, default=20_000, help="messages in the outbox of `start`")
    parser.add_argument("--killed", type=int, default=500, help="chats of `kill`")
    parser.add_argument("--telegram", default="300", help="chats of `telegram`, several numbers with commas")
    parser.add_argument("--work", type=Path, help="a folder for the temporary homes")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--serve-telegram", help=argparse.SUPPRESS)
    parser.add_argument("--fill", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(*json.loads(arguments.serve)))
        return 0
    if arguments.serve_telegram:
        asyncio.run(serve_telegram(arguments.serve_telegram))
        return 0
    if arguments.fill:
        fill_outbox(arguments.fill)
        return 0
    return asyncio.run(measure(arguments))


if __name__ == "__main__":
    sys.exit(main())
