"""A load test of the gateway: many concurrent chats, then `kill -9` in the middle, and the fate of every
message.

    python bench/gateway_bench.py [--chats 1000] [--messages 4] [--work DIR]

This process plays the platform. It delivers messages over a socket, records acknowledgements and answers, and
delivers unacknowledged messages again, as platforms do. The gateway runs in a separate process, with a store
in a temporary home and a model that answers at once, so that only the gateway is measured. There are no
limits to pass: the program prints its measurements and exits with 1 if a message was lost, unanswered, or
processed or delivered twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import monotonic
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

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

    def __init__(self, path: str) -> None:
        from hermes.gateway.adapter import Capabilities

        self.name, self.capabilities = "telegram", Capabilities()
        self._path = path
        self._writer: asyncio.StreamWriter | None = None

    def measure(self, text: str) -> int:
        return len(text)

    async def run(self, receive: Callable[..., Any], ready: Callable[[], None]) -> None:
        reader, self._writer = await asyncio.open_unix_connection(self._path, limit=1 << 20)
        ready()
        self._say(ready=os.getpid())
        handling: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            record = json.loads(line)
            if "memory" in record:
                self._say(memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
                continue
            task = asyncio.create_task(self._hear(receive, record))
            handling.add(task)
            task.add_done_callback(handling.discard)

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
        if self._writer is None:
            from hermes.gateway.adapter import Unreachable

            raise Unreachable("not connected yet")
        self._say(chat=to.chat_id, text=text)
        return idempotency_key

    async def edit(self, to: Any, message_id: str, text: str) -> None:
        self._say(chat=to.chat_id, text=text)

    async def typing(self, to: Any) -> None:
        pass

    async def open_thread(self, to: Any, name: str) -> None:
        return None

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _say(self, **record: Any) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(record).encode() + b"\n")


async def serve(path: str) -> None:
    from hermes.agent.factory import StandardFactory
    from hermes.conversation.agents import StandardAgentProvider
    from hermes.db.session_db import SessionDB
    from hermes.gateway.app import Gateway
    from hermes.gateway.settings import GatewaySettings, PlatformSettings

    class Quick(StandardFactory):
        def make_model(self, _wish: Any) -> Any:
            return QuickModel()

    settings = GatewaySettings(
        messages_per_minute=0,
        health_port=0,
        platforms={"telegram": PlatformSettings("telegram", allow_all=True, stream=False)},
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    db = SessionDB(spool=True)
    gateway = Gateway(db, settings, {"telegram": Socket(path)}, StandardAgentProvider(Quick()))
    await gateway.start()
    await stop.wait()
    await gateway.close()
    db.close()


# ---------------------------------------------------------------- the platform


class Platform:
    def __init__(self, work: Path) -> None:
        self.path = str(work / "platform.sock")
        self.work = work
        self.acked: dict[str, float] = {}
        self.states: Counter[str] = Counter()
        self.arrived: Counter[str] = Counter()
        self.notices = 0
        self.memory: asyncio.Future[int] | None = None
        self.connected = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._child: asyncio.subprocess.Process | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._connected, self.path, limit=1 << 20)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        while line := await reader.readline():
            record = json.loads(line)
            if "ready" in record:
                self.connected.set()
            elif "ack" in record:
                self.states[record["state"]] += 1
                if record["state"] in ("accepted", "duplicate"):
                    self.acked.setdefault(record["ack"], record["seconds"])
            elif "memory" in record and self.memory is not None:
                self.memory.set_result(record["memory"])
            elif "text" in record:
                self._heard(record["text"])

    def _heard(self, text: str) -> None:
        if text.startswith("answer to "):
            self.arrived[text.removeprefix("answer to ")] += 1
        else:
            self.notices += 1

    async def start_gateway(self) -> None:
        self.connected.clear()
        environment = {**os.environ, "HERMES_HOME": str(self.work / "home"), "PYTHONPATH": str(ROOT / "src")}
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--serve", self.path, env=environment
        )
        await self.connected.wait()

    async def kill(self) -> None:
        assert self._child is not None
        self._child.kill()
        await self._child.wait()

    async def end(self) -> None:
        assert self._child is not None
        self._child.terminate()
        await self._child.wait()

    def deliver(self, message: dict[str, Any]) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def peak(self) -> int:
        self.memory = asyncio.get_running_loop().create_future()
        self.deliver({"memory": 1})
        return await self.memory


async def settled(platform: Platform, wanted: Callable[[], bool], patience: float = 60.0) -> None:
    """Wait until `wanted` returns True, or until nothing has happened for `patience` seconds."""
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


async def measure(arguments: argparse.Namespace, work: Path) -> int:
    platform = Platform(work)
    await platform.open()
    await platform.start_gateway()
    print(
        f"{arguments.chats:,} chats, {arguments.messages} messages each; a model that answers within 50 ms\n"
    )

    first = messages_of(arguments.chats, arguments.messages, "a")
    began = monotonic()
    for message in first:
        platform.deliver(message)
    await settled(platform, lambda: sum(platform.arrived.values()) >= len(first))
    seconds = monotonic() - began
    taken = sorted(platform.acked.values())
    print("all messages at once")
    print(f"  messages answered        {sum(platform.arrived.values()):>8,} of {len(first):,}")
    print(f"  messages per second      {len(first) / seconds:>8.0f}")
    print(f"  receipt to stored, p50   {taken[len(taken) // 2] * 1000:>8.0f} ms")
    print(f"  receipt to stored, p99   {taken[int(len(taken) * 0.99)] * 1000:>8.0f} ms")

    platform.acked.clear()
    steady = messages_of(arguments.chats, 1, "s")
    for message in steady:  # about a hundred per second
        platform.deliver(message)
        await asyncio.sleep(0.01)
    await settled(platform, lambda: all(platform.arrived[message["id"]] for message in steady))
    taken = sorted(platform.acked.values())
    print("a hundred per second")
    print(f"  receipt to stored, p50   {taken[len(taken) // 2] * 1000:>8.1f} ms")
    print(f"  receipt to stored, p99   {taken[int(len(taken) * 0.99)] * 1000:>8.1f} ms")
    print(f"  memory of the gateway    {await platform.peak() / 1024:>8.0f} MB")

    second = messages_of(arguments.chats, arguments.messages, "k")
    platform.acked.clear()
    for message in second:
        platform.deliver(message)
    ids = [message["id"] for message in second]
    await settled(platform, lambda: sum(platform.arrived[message_id] for message_id in ids) >= len(ids) // 4)
    await platform.kill()
    acked_before = len(platform.acked)
    arrived_before = sum(platform.arrived[message_id] for message_id in ids)
    await platform.start_gateway()
    for message in second:  # deliver unacknowledged messages again
        if message["id"] not in platform.acked:
            platform.deliver(message)
    await settled(platform, lambda: all(platform.arrived[message["id"]] for message in second), 20.0)
    await platform.end()
    print("killed (-9) in the middle and restarted")
    print(f"  acknowledged, answered before the kill  {acked_before:,}, {arrived_before:,}")
    return report(work, platform, [*first, *steady, *second])


def report(work: Path, platform: Platform, messages: list[dict[str, Any]]) -> int:
    os.environ["HERMES_HOME"] = str(work / "home")
    from hermes.db.session_db import SessionDB

    with_mark: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    db = SessionDB(read_only=True)
    for mark, count in db.raw().execute(
        "SELECT platform_message_id, count(*) FROM messages WHERE role = 'user' GROUP BY 1"
    ):
        with_mark[mark] += count
    for text, count in db.raw().execute(
        "SELECT content, count(*) FROM messages WHERE role = 'assistant' GROUP BY 1"
    ):
        answers[text.removeprefix("answer to ")] += count
    unknown = {
        json.loads(row[0])["text"].removeprefix("answer to ")
        for row in db.raw().execute("SELECT payload_json FROM outbox WHERE state = 'unknown'")
    }
    ids = [message["id"] for message in messages]
    lost = [message_id for message_id in ids if not with_mark[message_id]]
    twice = [message_id for message_id in ids if with_mark[message_id] > 1 or answers[message_id] > 1]
    unanswered = [
        message_id for message_id in ids if not platform.arrived[message_id] and message_id not in unknown
    ]
    delivered_twice = [message_id for message_id in ids if platform.arrived[message_id] > 1]
    print(f"  lost                     {len(lost):>8,}")
    print(f"  processed twice          {len(twice):>8,}")
    print(f"  delivery unknown         {len(unknown):>8,}  (notices sent: {platform.notices:,})")
    print(f"  otherwise unanswered     {len(unanswered):>8,}")
    print(f"  delivered twice          {len(delivered_twice):>8,}")
    db.close()
    return 1 if lost or twice or unanswered or delivered_twice else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chats", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=4)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.serve))
        return 0
    work = arguments.work or Path(tempfile.mkdtemp(prefix="hermes-gateway-"))
    try:
        return asyncio.run(measure(arguments, work))
    finally:
        if arguments.work is None:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
