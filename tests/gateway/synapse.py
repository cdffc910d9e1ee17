"""Runs a real homeserver for tests, and users with real clients.

The fixtures are `synapse` (one server for all tests of a process) and `people` (`alice = await
people("alice")`, signed out when the test ends). Every name gets a new account, so that tests do not receive
each other's messages.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import importlib.util
import io
import itertools
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from nio import AsyncClient, AsyncClientConfig, MatrixRoom, RoomMessage, RoomPreset, RoomVisibility
from nio.store import SqliteMemoryStore

from tests.ports import reserve_port

T = TypeVar("T")
PASSWORD = "open sesame"
WITHIN = 60.0
"""The time limit of a wait in seconds. A step that succeeds never takes this long, even on a busy machine."""
_SECRET = "for tests"
_MUCH = {"per_second": 1000, "burst_count": 1000}
_ENCRYPTED = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}


class Account(NamedTuple):
    user_id: str
    password: str
    access_token: str
    device_id: str


class Heard(NamedTuple):
    """A message that a user received."""

    event_id: str
    sender: str
    text: str
    content: dict[str, Any]
    decrypted: bool

    @property
    def html(self) -> str | None:
        return self.content.get("formatted_body")

    @property
    def silent(self) -> bool:
        return bool(self.content["msgtype"] == "m.notice")

    @property
    def relation(self) -> dict[str, Any]:
        return self.content.get("m.relates_to") or {}

    @property
    def thread(self) -> str | None:
        return self.relation["event_id"] if self.relation.get("rel_type") == "m.thread" else None

    @property
    def reply_to(self) -> str | None:
        return (self.relation.get("m.in_reply_to") or {}).get("event_id")

    @property
    def edits(self) -> str | None:
        return self.relation["event_id"] if self.relation.get("rel_type") == "m.replace" else None


class Synapse:
    """A local homeserver on loopback. It can be stopped and started again with its data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._admin: str | None = None
        self.port = reserve_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._configure()

    def start(self) -> None:
        """Start the server and wait until it responds, which takes about three seconds."""
        # compiling takes longer than starting, so the bytecode is kept for later starts
        environment = os.environ | {"PYTHONPYCACHEPREFIX": str(self._folder / "compiled")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "synapse.app.homeserver", "-c", str(self._folder / "homeserver.yaml")],
                cwd=self._folder,
                env=environment,
                stdout=output,
                stderr=output,
            )
        patience = time.monotonic() + 90
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > patience:
                self.stop()
                raise RuntimeError(f"Synapse did not start: {(self._folder / 'output').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    async def account(self, name: str, *, display_name: str | None = None) -> Account:
        """Create an unused account."""
        client = AsyncClient(self.url, config=AsyncClientConfig(encryption_enabled=False))
        try:
            made = await client.register(f"{name}{next(self._numbers)}", PASSWORD)
            await client.set_displayname(display_name or name.capitalize())
        finally:
            await client.close()
        return Account(made.user_id, PASSWORD, made.access_token, made.device_id)

    async def limit(self, user_id: str, *, per_second: int, burst: int) -> None:
        """Limit the rate at which the user can send messages. The server refuses further messages with
        M_LIMIT_EXCEEDED. Zeros remove the limit."""
        await asyncio.to_thread(
            self._limit, user_id, {"messages_per_second": per_second, "burst_count": burst}
        )

    def _limit(self, user_id: str, told: dict[str, int]) -> None:
        if self._admin is None:
            nonce = self._asked("GET", "v1/register")["nonce"]
            words = (nonce, "admin", PASSWORD, "admin")
            mac = hmac.new(_SECRET.encode(), "\0".join(words).encode(), "sha1").hexdigest()
            wanted = {"nonce": nonce, "username": "admin", "password": PASSWORD, "admin": True, "mac": mac}
            self._admin = self._asked("POST", "v1/register", wanted)["access_token"]
        self._asked("POST", f"v1/users/{urllib.parse.quote(user_id)}/override_ratelimit", told)

    def _asked(self, method: str, path: str, told: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._admin}"} if self._admin else {}
        request = urllib.request.Request(
            f"{self.url}/_synapse/admin/{path}",
            json.dumps(told).encode() if told is not None else None,
            headers,
            method=method,
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/_matrix/client/versions", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _configure(self) -> None:
        folder = self._folder
        key = base64.b64encode(os.urandom(32)).decode().rstrip("=")
        (folder / "signing.key").write_text(f"ed25519 a_test {key}\n")
        log = {"class": "logging.FileHandler", "filename": str(folder / "log")}
        logs = {"version": 1, "handlers": {"file": log}, "root": {"level": "WARNING", "handlers": ["file"]}}
        (folder / "log.yaml").write_text(json.dumps(logs))
        listener = {"port": self.port, "bind_addresses": ["127.0.0.1"], "type": "http", "tls": False}
        values = {
            "server_name": "localhost",
            "pid_file": str(folder / "pid"),
            "listeners": [listener | {"resources": [{"names": ["client"]}]}],
            "database": {"name": "sqlite3", "args": {"database": str(folder / "homeserver.db")}},
            "log_config": str(folder / "log.yaml"),
            "media_store_path": str(folder / "media"),
            "signing_key_path": str(folder / "signing.key"),
            "macaroon_secret_key": "for tests",
            "form_secret": "for tests",
            "registration_shared_secret": _SECRET,
            "report_stats": False,
            "trusted_key_servers": [],
            "federation_domain_whitelist": [],
            "presence": {"enabled": False},
            "push": {"enabled": False},
            "stats": {"enabled": False},
            "user_directory": {"enabled": False},
            "enable_registration": True,
            "enable_registration_without_verification": True,
            "bcrypt_rounds": 4,
            "rc_message": _MUCH,
            "rc_registration": _MUCH,
            "rc_login": {"address": _MUCH, "account": _MUCH, "failed_attempts": _MUCH},
            "rc_joins": {"local": _MUCH, "remote": _MUCH},
            "rc_joins_per_room": _MUCH,
            "rc_invites": {"per_room": _MUCH, "per_user": _MUCH, "per_issuer": _MUCH},
            "rc_media_create": _MUCH,
        }
        (folder / "homeserver.yaml").write_text(json.dumps(values))  # all JSON is valid YAML


async def eventually(condition: Callable[[], T]) -> T:
    """Wait for a condition by polling."""
    async with asyncio.timeout(WITHIN):
        while not (found := condition()):
            await asyncio.sleep(0.01)
    return found


class Person:
    """A user with a client that is always connected."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.user_id: str = client.user_id
        self._heard: dict[str, list[Heard]] = {}
        client.add_event_callback(self._hear, RoomMessage)
        self._listening = asyncio.create_task(client.sync_forever(30_000, full_state=True))

    async def gone(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await self.client.close()
        if self.client.store:
            self.client.store.database.close()

    # --- rooms -----------------------------------------------------------------------------------

    async def create_dm(self, with_user: str, *, encrypted: bool = False) -> str:
        return await self._create([with_user], encrypted, is_direct=True)

    async def create_group(self, name: str, *users: str, encrypted: bool = False) -> str:
        return await self._create(list(users), encrypted, name=name)

    async def join(self, room: str) -> None:
        await self.client.join(room)
        await eventually(lambda: room in self.client.rooms)

    async def meets(self, room: str, user_id: str) -> None:
        """Wait until the user `user_id` is in the room and, if the room is encrypted, can decrypt
        messages."""

        def there() -> bool:
            known = self.client.rooms.get(room)
            user = known.users.get(user_id) if known else None
            if known is None or user is None or user.invited:
                return False
            return not known.encrypted or any(self.client.device_store.active_user_devices(user_id))

        await eventually(there)

    # --- speaking --------------------------------------------------------------------------------

    async def say(
        self,
        room: str,
        text: str,
        *,
        thread: str | None = None,
        reply_to: str | None = None,
        mentions: tuple[str, ...] = (),
        kind: str = "m.text",
    ) -> str:
        content: dict[str, Any] = {"msgtype": kind, "body": text}
        if mentions:
            content["m.mentions"] = {"user_ids": list(mentions)}
        if thread:
            content["m.relates_to"] = {
                "rel_type": "m.thread",
                "event_id": thread,
                "is_falling_back": reply_to is None,
                "m.in_reply_to": {"event_id": reply_to or thread},
            }
        elif reply_to:
            content["m.relates_to"] = {"m.in_reply_to": {"event_id": reply_to}}
        return await self.put(room, content)

    async def edit(self, room: str, event_id: str, text: str) -> str:
        return await self.put(
            room,
            {
                "msgtype": "m.text",
                "body": f"* {text}",
                "m.new_content": {"msgtype": "m.text", "body": text},
                "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
            },
        )

    async def attach(
        self, room: str, name: str, data: bytes, media_type: str, *, kind: str = "m.file", caption: str = ""
    ) -> str:
        """Send a file. It is encrypted if the room is encrypted."""
        encrypt = bool(self.client.rooms[room].encrypted)
        sent, keys = await self.client.upload(
            io.BytesIO(data), media_type, name, encrypt=encrypt, filesize=len(data)
        )
        where = {"file": {**(keys or {}), "url": sent.content_uri}} if encrypt else {"url": sent.content_uri}
        content = {"msgtype": kind, "body": caption or name, "filename": name}
        return await self.put(room, {**content, **where, "info": {"mimetype": media_type, "size": len(data)}})

    async def put(self, room: str, content: dict[str, Any]) -> str:
        """Send an event with any content."""
        sent = await self.client.room_send(room, "m.room.message", content, ignore_unverified_devices=True)
        assert getattr(sent, "event_id", None), sent
        return str(sent.event_id)

    # --- listening -------------------------------------------------------------------------------

    async def heard(self, room: str, count: int = 1) -> list[Heard]:
        """Wait until the room has `count` messages of other users, and return them."""
        return await eventually(lambda: self.so_far(room) if len(self.so_far(room)) >= count else [])

    def so_far(self, room: str) -> list[Heard]:
        """Return the messages of other users that have arrived in the room so far."""
        return list(self._heard.get(room, ()))

    def _hear(self, room: MatrixRoom, event: RoomMessage) -> None:
        if event.sender != self.user_id:
            content = event.source["content"]
            message = Heard(event.event_id, event.sender, content.get("body", ""), content, event.decrypted)
            self._heard.setdefault(room.room_id, []).append(message)

    async def _create(self, users: list[str], encrypted: bool, **told: Any) -> str:
        made = await self.client.room_create(
            RoomVisibility.private,
            preset=RoomPreset.private_chat,
            invite=users,
            initial_state=[_ENCRYPTED] if encrypted else [],
            **told,
        )
        room: str = made.room_id
        await eventually(lambda: room in self.client.rooms)
        return room


People = Callable[[str], Awaitable[Person]]


@contextmanager
def running(folder: Path) -> Iterator[Synapse]:
    """Run a server and stop it at the end. Skip the test if Synapse is not available."""
    if importlib.util.find_spec("synapse") is None:
        pytest.skip("matrix-synapse is not installed")
    server = Synapse(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@asynccontextmanager
async def guests(server: Synapse) -> AsyncIterator[People]:
    """Return a function that creates a user: `await people("alice")`. The user is signed in until the end of
    the block."""
    here: list[Person] = []

    async def person(name: str) -> Person:
        account = await server.account(name)
        client = AsyncClient(server.url, config=AsyncClientConfig(store=SqliteMemoryStore))
        client.restore_login(account.user_id, account.device_id, account.access_token)
        somebody = Person(client)
        here.append(somebody)
        await eventually(lambda: bool(client.next_batch) and client.olm_account_shared)
        return somebody

    try:
        yield person
    finally:
        for somebody in here:
            await somebody.gone()
