"""The webhook over real HTTP: access, the two ways to deliver an answer, and restarts."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import os
import re
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from hermes import clock
from hermes.errors import StoreFull, make_error
from hermes.gateway.adapter import (
    Adapter,
    DeliveryUnknown,
    Misconfigured,
    RateLimited,
    Receipt,
    Undeliverable,
    Unreachable,
)
from hermes.gateway.http import host
from hermes.gateway.http.limits import Limits, set_limits
from hermes.gateway.inbound_events import Event, OfferedFile, Source
from hermes.gateway.platforms.webhook import callback_urls
from hermes.gateway.platforms.webhook.adapter import Webhook
from hermes.gateway.platforms.webhook.callback_urls import Callbacks
from hermes.gateway.platforms.webhook.signed_request import SeenRequests, check_signature, sign
from hermes.gateway.settings import PlatformSettings
from hermes_state import SessionDB
from tests.gateway.documented_key import make_session_key
from tests.gateway.loopback_server import client_of, served

SECRET = "correct horse battery staple"


class Core:
    """Stands in for the gateway. It accepts messages into a real inbox. It answers immediately or when the
    test allows it."""

    def __init__(self, db: SessionDB) -> None:
        self._db = db
        self.adapter: Webhook | None = None
        self.echoes = True
        self.state: str | None = None
        self.problem: Exception | None = None
        self.events: list[Event] = []
        self.offered: list[OfferedFile] = []
        self.came = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def receive(self, event: Event, offered: Sequence[OfferedFile]) -> Receipt:
        if self.problem:
            raise self.problem
        key = make_session_key(event.source)
        if self.state:
            return Receipt(self.state, key)
        taken = await asyncio.to_thread(
            self._db.inbox.accept, key, "webhook", event.to_dict(), event.message_id
        )
        if taken is None:
            return Receipt("duplicate", key)
        self.events.append(event)
        self.offered += offered
        self.came.set()
        if self.echoes:
            task = asyncio.create_task(self._echo(event))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return Receipt("accepted", key)

    async def _echo(self, event: Event) -> None:
        assert self.adapter is not None
        with suppress(Undeliverable):
            await self.adapter.send(
                event.source, f"You said: {event.text}", idempotency_key="o1", reply_to=event.message_id
            )

    async def next_event(self, count: int = 1) -> Event:
        async with asyncio.timeout(60):
            while len(self.events) < count:
                self.came.clear()
                await self.came.wait()
        return self.events[count - 1]


class Caller:
    """A client that has the secret."""

    def __init__(self, client: httpx2.AsyncClient, secret: str = SECRET) -> None:
        self._client, self._secret = client, secret.encode()

    async def say(self, text: str, *, path: str = "/webhook", **more: Any) -> httpx2.Response:
        return await self.post({"text": text, **more}, path=path)

    async def post(
        self, told: Any, *, path: str = "/webhook", at: float | None = None, raw: bytes | None = None
    ) -> httpx2.Response:
        body = json.dumps(told).encode() if raw is None else raw
        header = sign(self._secret, body, clock.now() if at is None else at)
        return await self._client.post(path, content=body, headers={"X-Hermes-Signature": header})

    async def as_github(
        self, told: Any, delivery: str | None = None, path: str = "/webhook/github"
    ) -> httpx2.Response:
        body = json.dumps(told).encode()
        signed = hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={signed}"}
        if delivery:
            headers["X-GitHub-Delivery"] = delivery
        return await self._client.post(path, content=body, headers=headers)


class Receiver:
    """The server at a callback address."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, Any], httpx2.Headers, bytes]] = []
        self.statuses: list[tuple[int, dict[str, str]]] = []
        self.came = asyncio.Event()

    async def take(self, request: Request) -> Response:
        body = await request.body()
        self.got.append((json.loads(body), httpx2.Headers(dict(request.headers)), body))
        self.came.set()
        status, headers = self.statuses.pop(0) if self.statuses else (200, {})
        return Response(status_code=status, headers=headers)

    async def elsewhere(self, request: Request) -> Response:
        return RedirectResponse("/back", 307)

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/back", self.take, methods=["POST"]),
                Route("/elsewhere", self.elsewhere, methods=["POST"]),
            ]
        )


@asynccontextmanager
async def running(core: Core, folder: Path, **more: Any) -> AsyncIterator[str]:
    settings = PlatformSettings("webhook", more={"secret": SECRET, "port": "0", **more})
    adapter = Webhook(settings, folder)
    core.adapter = adapter
    ready = asyncio.Event()
    task = asyncio.create_task(adapter.run(core.receive, ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        waiting.cancel()
        await task
    try:
        yield f"http://127.0.0.1:{adapter.port}"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await adapter.close()


@pytest.fixture
def core(db: SessionDB) -> Core:
    return Core(db)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "gateway" / "webhook"


# --- settings


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "the secret of the webhook is missing: set WEBHOOK_SECRET"),
        ({"secret": "short"}, "the secret of the webhook is shorter than 16 characters: set WEBHOOK_SECRET"),
        (
            {"secret": SECRET, "port": "many"},
            "platforms.webhook.port must be a whole number from 0 to 65535, not 'many'",
        ),
        (
            {"secret": SECRET, "port": 70000},
            "platforms.webhook.port must be a whole number from 0 to 65535, not 70000",
        ),
        (
            {"secret": SECRET, "wait_seconds": "nan"},
            "platforms.webhook.wait_seconds must be a number from 0 to 86400, not 'nan'",
        ),
        (
            {"secret": SECRET, "callback_hosts": ["https://example.org/x"]},
            "platforms.webhook.callback_hosts: 'https://example.org/x' is not a host",
        ),
    ],
)
def test_missing_or_wrong_settings_are_one_clear_line(more: dict[str, Any], line: str, folder: Path) -> None:
    with pytest.raises(Misconfigured) as caught:
        Webhook(PlatformSettings("webhook", more=more), folder)
    assert str(caught.value).startswith(line)


def test_the_adapter_is_idempotent(folder: Path) -> None:
    adapter: Adapter = Webhook(PlatformSettings("webhook", more={"secret": SECRET}), folder)
    assert (adapter.name, adapter.capabilities.idempotent, adapter.capabilities.edits) == (
        "webhook",
        True,
        False,
    )
    assert adapter.measure("ä" * 3) == 3


# --- an answer in the response


async def test_a_message_is_answered_in_the_response(core: Core, folder: Path) -> None:
    async with running(core, folder) as address, client_of(address) as client:
        answer = await Caller(client).say(
            "hello", user="ann", user_name="Ann", message_id=7, reply_to="before"
        )
    assert (answer.status_code, answer.json()) == (
        200,
        {"reply": "You said: hello", "session_key": "agent:main:webhook:dm:ann", "message_id": "7"},
    )
    (event,) = core.events
    assert event.source == Source(
        "webhook", "ann", chat_type="dm", user_id="ann", user_name="Ann", message_id="7"
    )
    assert (event.text, event.reply_to) == ("hello", "before")


async def test_the_chat_of_a_message(core: Core, folder: Path) -> None:
    requests: list[tuple[str, dict[str, Any], str]] = [
        ("/webhook", {}, "dm:webhook"),
        ("/webhook", {"user": "ann"}, "dm:ann"),
        ("/webhook/alerts", {}, "group:alerts"),
        ("/webhook/alerts", {"user": "ann"}, "group:alerts:ann"),
        ("/webhook/alerts", {"chat": "ops", "user": "ann"}, "group:ops:ann"),
        ("/webhook", {"chat": "ops", "user": "ann", "thread": 5}, "group:ops:5"),
        ("/webhook", {"chat": "c1", "user": "ann", "chat_type": "dm"}, "dm:c1"),
    ]
    async with running(core, folder) as address, client_of(address) as client:
        for (
            path,
            more,
            key,
        ) in requests:  # the texts differ, because the same request at another path counts as a duplicate
            answer = await Caller(client).say(f"hello at {path}", path=path, **more)
            assert answer.json()["session_key"] == f"agent:main:webhook:{key}"


async def test_each_of_several_that_wait_gets_its_own_answer(core: Core, folder: Path) -> None:
    core.echoes = False
    async with running(core, folder) as address, client_of(address) as client:
        caller, adapter = Caller(client), core.adapter
        assert adapter is not None
        asked = {
            name: asyncio.create_task(caller.say(name, chat="ops", user=user, message_id=name))
            for name, user in (("a", "ann"), ("b", "ann"), ("c", "bob"))
        }
        await core.next_event(3)
        here = {event.text: event.source for event in core.events}
        await adapter.send(here["b"], "to b\ud800", idempotency_key="1", reply_to="b")
        assert (await asked["b"]).json()["reply"] == "to b?"
        # an answer that belongs to no particular message goes to any waiting request of that person
        await adapter.send(here["c"]._replace(message_id=None), "to bob", idempotency_key="2")
        assert (await asked["c"]).json()["reply"] == "to bob"
        with pytest.raises(Undeliverable):
            await adapter.send(here["c"], "to nobody", idempotency_key="3", reply_to="c")
        with pytest.raises(Undeliverable):  # Ann waits for another answer
            await adapter.send(here["b"], "more for b", idempotency_key="4", reply_to="b")
        with pytest.raises(Undeliverable):  # a private answer names no message, but its chat must match
            await adapter.send(here["b"], "still more for b", idempotency_key="4")
        await adapter.send(here["a"], "to a", idempotency_key="5")
        assert (await asked["a"]).json()["reply"] == "to a"


async def test_an_answer_to_one_person_in_a_group_does_not_reach_another(core: Core, folder: Path) -> None:
    core.echoes = False
    async with running(core, folder, wait_seconds=0.5) as address, client_of(address) as client:
        asked = asyncio.create_task(Caller(client).say("hello", chat="ops", user="bob"))
        event = await core.next_event()
        assert core.adapter is not None
        for to in (
            event.source._replace(user_id="ann", message_id=None),
            event.source._replace(thread_id="5", message_id=None),
            event.source._replace(chat_id="other", message_id=None),
        ):
            with pytest.raises(Undeliverable, match="no request waits"):
                await core.adapter.send(to, "for ann alone", idempotency_key="1")
        assert (await asked).status_code == 202


async def test_an_answer_that_is_quicker_than_the_receipt_is_not_lost(core: Core, folder: Path) -> None:
    async def receive(event: Event, offered: Sequence[OfferedFile]) -> Receipt:
        assert core.adapter is not None
        await core.adapter.send(event.source, "at once", idempotency_key="1", reply_to=event.message_id)
        return Receipt("answered", "key")

    core.receive = receive  # type: ignore[method-assign]  # the test's own stand-in
    async with running(core, folder) as address, client_of(address) as client:
        assert (await Caller(client).say("/help")).json()["reply"] == "at once"


async def test_an_answer_that_takes_too_long_is_not_waited_for(core: Core, folder: Path) -> None:
    core.echoes = False
    async with running(core, folder, wait_seconds="0.05") as address, client_of(address) as client:
        answer = await Caller(client).say("hello", message_id="m1")
        assert (answer.status_code, answer.json()["accepted"]) == (202, True)
        assert core.adapter is not None
        with pytest.raises(Undeliverable):
            await core.adapter.send(core.events[0].source, "late", idempotency_key="1", reply_to="m1")


async def test_a_request_can_decline_to_wait(core: Core, folder: Path) -> None:
    core.echoes = False
    async with running(core, folder) as address, client_of(address) as client:
        answer = await Caller(client).say("hello", wait=False)
    assert answer.status_code == 202
    assert answer.json() == {
        "accepted": True,
        "session_key": "agent:main:webhook:dm:webhook",
        "message_id": core.events[0].message_id,
    }


async def test_nothing_is_delivered_to_a_closed_connection(core: Core, folder: Path) -> None:
    core.echoes = False
    async with running(core, folder) as address:
        async with client_of(address) as client:
            asked = asyncio.create_task(Caller(client).say("hello", message_id="m1"))
            event = await core.next_event()
            asked.cancel()
            with suppress(asyncio.CancelledError):
                await asked
        assert core.adapter is not None
        async with asyncio.timeout(60):
            while core.adapter._waiting:
                await asyncio.sleep(0.01)
        with pytest.raises(Undeliverable):
            await core.adapter.send(event.source, "are you there?", idempotency_key="1", reply_to="m1")


async def test_a_shutdown_tells_waiting_requests_that_the_message_is_accepted(
    core: Core, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "GRACE_S", 0)
    core.echoes = False
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as client:
        async with running(core, folder) as address:
            client.base_url = httpx2.URL(address)
            asked = asyncio.create_task(Caller(client).say("hello"))
            await core.next_event()
        assert (await asked).status_code == 202


async def test_the_adapter_can_be_run_again(core: Core, folder: Path) -> None:
    adapter = Webhook(PlatformSettings("webhook", more={"secret": SECRET, "port": 0}), folder)
    core.adapter = adapter
    for text in ("one", "two"):
        ready = asyncio.Event()
        task = asyncio.create_task(adapter.run(core.receive, ready.set))
        await ready.wait()
        async with client_of(f"http://127.0.0.1:{adapter.port}") as client:
            assert (await Caller(client).say(text)).json()["reply"] == f"You said: {text}"
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await adapter.close()


async def test_the_status_of_each_receipt(core: Core, folder: Path) -> None:
    became: list[tuple[str, int, dict[str, Any]]] = [
        ("duplicate", 200, {"duplicate": True}),
        ("unauthorised", 403, {"error": "this user is not authorised"}),
        ("limited", 429, {"error": "too many messages; try again in a minute"}),
        ("ignored", 200, {"ignored": True}),
    ]
    async with running(core, folder) as address, client_of(address) as client:
        for core.state, status, body in became:
            answer = await Caller(client).say(f"this is {core.state}")
            assert (answer.status_code, answer.json()) == (status, body)
            assert ("retry-after" in answer.headers) is (status == 429)


@pytest.mark.parametrize("problem", [make_error(StoreFull, "no room for the secret plan"), OSError("disk")])
async def test_a_message_that_could_not_be_stored_is_not_acknowledged(
    problem: Exception, core: Core, folder: Path
) -> None:
    core.problem = problem
    async with running(core, folder) as address, client_of(address) as client:
        answer = await Caller(client).say("hello", message_id="m1")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json() == {"error": "the message was not stored; try again"}
        core.problem = None
        assert (await Caller(client).say("hello", message_id="m1")).json()["reply"] == "You said: hello"


# --- access


async def test_the_same_request_again_is_a_duplicate(core: Core, folder: Path) -> None:
    at = clock.now()
    async with running(core, folder) as address, client_of(address) as client:
        caller = Caller(client)
        assert (await caller.post({"text": "hello"}, at=at)).json()["reply"] == "You said: hello"
        assert (await caller.post({"text": "hello"}, at=at)).json() == {"duplicate": True}
        assert "reply" in (await caller.post({"text": "hello"}, at=at + 1)).json()
        assert "reply" in (await caller.say("hello", message_id="m1")).json()
        assert (await caller.say("hello again", message_id="m1")).json() == {"duplicate": True}
        assert "reply" in (await caller.say("hello", message_id="m1", chat="elsewhere")).json()


async def test_requests_without_the_secret_are_refused_without_details(core: Core, folder: Path) -> None:
    body = b'{"text": "let me in"}'
    now = clock.now()
    secret = SECRET.encode()
    good = sign(secret, body, now)
    wrong: list[dict[str, str]] = [
        {},
        {"X-Hermes-Signature": ""},
        {"X-Hermes-Signature": "nonsense"},
        {"X-Hermes-Signature": good.partition(",")[2]},
        {"X-Hermes-Signature": good.partition(",")[0]},
        {"X-Hermes-Signature": good[:-1]},
        {"X-Hermes-Signature": sign(b"another secret of ours", body, now)},
        {"X-Hermes-Signature": sign(secret, body, now - 400)},
        {"X-Hermes-Signature": sign(secret, body, now + 400)},
        {"X-Hermes-Signature": f"t=²,v1={good[-64:]}"},
        {"X-Hermes-Signature": f"t={'9' * 5000},v1={good[-64:]}"},
        {"X-Hub-Signature-256": "sha256="},
        {"X-Hub-Signature-256": "sha256=ünïcode"},
        {"X-Hub-Signature-256": f"md5={hmac.new(secret, body, hashlib.sha256).hexdigest()}"},
        {"X-Hub-Signature-256": f"sha1={hmac.new(secret, body, hashlib.sha1).hexdigest()}"},
        {
            "X-Hermes-Signature": "t=1,v1=2",
            "X-Hub-Signature-256": f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}",
        },
    ]
    async with running(core, folder) as address, client_of(address) as client:
        for headers in wrong:
            raw = [(name.encode(), value.encode("utf-8")) for name, value in headers.items()]
            answer = await client.post("/webhook", content=body, headers=raw)
            assert (answer.status_code, answer.text) == (401, '{"error":"unauthorised"}'), headers
        changed = await client.post("/webhook", content=body + b" ", headers={"X-Hermes-Signature": good})
        assert changed.status_code == 401
    assert core.events == []


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=50), st.integers(-300, 300))
def test_only_the_signed_content_is_accepted(body: bytes, other: bytes, off: int) -> None:
    now = 1_800_000_000.0
    headers = {"X-Hermes-Signature": sign(SECRET.encode(), body, now + off)}
    assert check_signature(SECRET.encode(), headers, body, now) is not None
    assert check_signature(SECRET.encode(), headers, body + other, now) is None
    assert check_signature(other + SECRET.encode(), headers, body, now) is None


@given(st.text(), st.text())
def test_no_header_whatever_breaks_the_check(ours: str, githubs: str) -> None:
    for headers in ({"X-Hermes-Signature": ours}, {"X-Hub-Signature-256": githubs}):
        assert check_signature(SECRET.encode(), headers, b"body", 1_800_000_000.0) is None


async def test_the_signature_of_github_is_accepted_and_a_repeated_event_is_a_duplicate(
    core: Core, folder: Path
) -> None:
    event = {"action": "opened", "issue": {"number": 7, "title": "It does not work"}}
    async with running(core, folder) as address, client_of(address) as client:
        caller = Caller(client)
        assert (await caller.as_github(event, "guid-1")).status_code == 202
        assert (await caller.as_github(event, "guid-1")).json() == {"duplicate": True}
        # The header with the delivery id is not signed. A copied request with another id must still be a
        # duplicate.
        assert (await caller.as_github(event, "guid-2")).json() == {"duplicate": True}
        assert (await caller.as_github({**event, "action": "closed"}, "guid-3")).status_code == 202
    assert core.events[0].text == json.dumps(event, indent=2)
    assert make_session_key(core.events[0].source) == "agent:main:webhook:group:github"


async def test_the_signature_of_github_needs_a_message_id_because_it_does_not_expire(
    core: Core, folder: Path
) -> None:
    async with running(core, folder) as address, client_of(address) as client:
        caller = Caller(client)
        answer = await caller.as_github({"text": "hello"})
        assert (answer.status_code, answer.json()) == (
            400,
            {"error": "with X-Hub-Signature-256 the body needs a message_id"},
        )
        assert (await caller.as_github({"text": "hello", "message_id": "1"})).status_code == 200
        assert (await caller.as_github({"alert": "disk", "message_id": 2})).status_code == 202
    assert [event.message_id for event in core.events] == ["1", "2"]


ZEROS = "0" * 64


@pytest.mark.parametrize(
    "header",
    [
        "X-Nothing: at all",
        "X-Hermes-Signature: nonsense",
        "X-Hermes-Signature: t={early},v1={zeros}",
        "X-Hermes-Signature: t={late},v1={zeros}",
        "X-Hermes-Signature: t={now},v1={zeros}0",
        "X-Hermes-Signature: v1={zeros}",
        "X-Hub-Signature-256: nonsense",
        "X-Hub-Signature-256: sha1={zeros}",
        "X-Hub-Signature-256: sha256={zeros}0",
        "X-Hub-Signature-256: sha256=Z{zeros}",
    ],
)
async def test_the_body_is_not_read_if_the_signature_is_malformed(
    header: str, core: Core, folder: Path
) -> None:
    """The client sends only the headers. A server that waited for the body would not respond."""
    now = int(clock.now())
    signed = header.format(zeros=ZEROS, now=now, early=now - 400, late=now + 86400)
    async with running(core, folder) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        head = f"POST /webhook HTTP/1.1\r\nHost: x\r\n{signed}\r\nContent-Length: 31000000\r\n\r\n"
        writer.write(head.encode())
        async with asyncio.timeout(60):
            answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_bodies_of_strangers_share_little_memory_and_small_messages_still_come_in(
    core: Core, folder: Path
) -> None:
    """The signature has a valid form. So the server must read the body to find out that the signature is
    wrong."""
    set_limits(Limits(bodies_mb=2))
    head = f"POST /webhook HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: sha256={ZEROS}\r\n"
    async with running(core, folder) as address, client_of(address) as client:
        port = int(address.rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for _, writer in held:
            writer.write(f"{head}Content-Length: 900000\r\n\r\n".encode() + b"x" * 890_000)
        answered = [asyncio.create_task(reader.readuntil(b"\r\n\r\n")) for reader, _ in held]
        async with asyncio.timeout(60):
            while sum(one.done() for one in answered) < 4:
                await asyncio.sleep(0)
        heads = [one.result() for one in answered if one.done()]
        assert all(head.startswith(b"HTTP/1.1 503 ") for head in heads)
        assert (await Caller(client).say("hello")).json()["reply"] == "You said: hello"
        for answer, (_, writer) in zip(answered, held, strict=True):
            answer.cancel()
            writer.close()


async def test_wrong_signatures_are_limited_and_the_right_one_still_works(core: Core, folder: Path) -> None:
    set_limits(Limits(wrong_keys_per_minute=3))
    async with running(core, folder) as address, client_of(address) as client:
        for status in (401, 401, 401, 429):
            headers = {"X-Hub-Signature-256": f"sha256={ZEROS}"}
            answer = await client.post("/webhook", content=b"{}", headers=headers)
            assert answer.status_code == status
        assert (answer.headers["retry-after"], set(answer.json())) == ("60", {"error"})
        assert (await Caller(client).say("hello")).status_code == 200


# --- replays of a signed request


async def test_a_signed_request_is_accepted_once_whatever_its_path(core: Core, folder: Path) -> None:
    event = {"action": "opened", "number": 7}
    numbered = {"text": "deploy", "message_id": "m1"}
    at = clock.now()
    async with running(core, folder) as address, client_of(address) as client:
        caller = Caller(client)
        assert (await caller.as_github(event, "guid-1")).status_code == 202
        assert (await caller.as_github(numbered)).status_code == 200
        assert (await caller.post({"text": "hello"}, at=at)).status_code == 200
        for path in ("/webhook", "/webhook/other", "/webhook/github", "/webhook/github%20"):
            for body, delivery in ((event, "guid-1"), (event, "guid-2"), (numbered, None)):
                answer = await caller.as_github(body, delivery, path=path)
                assert answer.json() == {"duplicate": True}, (path, body)
            again = await caller.post({"text": "hello"}, at=at, path=path)
            assert again.json() == {"duplicate": True}, path
    assert len(core.events) == 3


async def test_an_accepted_request_is_remembered_after_a_restart_and_without_the_inbox(
    core: Core, folder: Path, db: SessionDB
) -> None:
    event = {"action": "opened", "number": 7}
    async with running(core, folder) as address, client_of(address) as client:
        assert (await Caller(client).as_github(event, "guid-1")).status_code == 202
    (entry,) = db.inbox.list_waiting()
    db.inbox.claim(entry.session_key)
    db.inbox.complete(entry.id)
    assert db.inbox.forget_done(-1) == 1
    async with running(core, folder) as address, client_of(address) as client:
        for path in ("/webhook/github", "/webhook/other"):
            answer = await Caller(client).as_github(event, "guid-1", path=path)
            assert answer.json() == {"duplicate": True}
    kept = folder / "seen.jsonl"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    body = json.dumps(event).encode()
    for hidden in (
        hashlib.sha256(body).hexdigest(),
        hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest(),
    ):
        assert hidden not in kept.read_text()


async def test_a_request_that_was_not_accepted_can_be_sent_again_but_only_to_its_own_chat(
    core: Core, folder: Path
) -> None:
    event = {"action": "opened", "number": 7}
    core.problem = OSError("disk")
    async with running(core, folder) as address, client_of(address) as client:
        caller = Caller(client)
        assert (await caller.as_github(event, "guid-1")).status_code == 503
        core.problem = None
        answer = await caller.as_github(event, "guid-1", path="/webhook/other")
        assert answer.json() == {"duplicate": True}
        assert (await caller.as_github(event, "guid-1")).status_code == 202


def test_requests_that_were_seen_are_bounded_in_number_and_time(folder: Path) -> None:
    seen = SeenRequests(folder / "seen.jsonl", most=3)
    assert seen.begin("short", "a", -1)
    assert seen.begin("short", "b", 100)  # the first entry has expired
    for mark in ("1", "2", "3"):
        assert seen.begin(mark, "a", 100)
    assert seen.begin("short", "a", 100)  # the oldest entry was removed because there were too many
    seen.accept("3")
    later = SeenRequests(folder / "seen.jsonl", most=3)
    later.load()
    assert not later.begin("3", "a", 100)
    assert later.begin("2", "a", 100)
    assert not later.begin("2", "b", 100)


def test_a_line_that_a_crash_cut_off_loses_no_other(folder: Path) -> None:
    seen = SeenRequests(folder / "seen.jsonl")
    assert seen.begin("1", "a", 100)
    with (folder / "seen.jsonl").open("ab") as file:
        file.write(b'["2", "a", 17')
    later = SeenRequests(folder / "seen.jsonl")
    later.load()
    assert later.begin("3", "a", 100)
    last = SeenRequests(folder / "seen.jsonl")
    last.load()
    assert [last.begin(mark, "b", 100) for mark in ("1", "2", "3")] == [False, True, False]


# --- message formats


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b'{"a": %s}' % (b"[" * 40 + b"]" * 40), "nested more than 32 levels deep"),
        (b"[%s1]" % (b"[]," * 250_000), "more than 400,000 values"),
    ],
    ids=["deep", "many"],
)
async def test_json_that_would_take_much_memory_is_refused(
    raw: bytes, line: str, core: Core, folder: Path
) -> None:
    async with running(core, folder) as address, client_of(address) as client:
        answer = await Caller(client).post(None, raw=raw)
        assert answer.status_code == 400
        assert line in answer.json()["error"]


async def test_other_json_is_the_text_and_its_size_is_limited(core: Core, folder: Path) -> None:
    async with running(core, folder) as address, client_of(address) as client:
        caller = Caller(client)
        assert (await caller.post({"alert": "Größe", "user": {"id": 1}})).status_code == 202
        assert (await caller.post([1, 2])).status_code == 202
        assert (await caller.post({"log": "x" * 50_000})).status_code == 202
    assert core.events[0].text == '{\n  "alert": "Gr\\u00f6\\u00dfe",\n  "user": {\n    "id": 1\n  }\n}'
    assert core.events[1].text == "[\n  1,\n  2\n]"
    assert len(core.events[2].text) < 20_100
    assert core.events[2].text.endswith("more characters)")


async def test_attachments_are_offered_as_they_were(core: Core, folder: Path) -> None:
    picture = os.urandom(3000)
    files = [
        {"name": "a.png", "media_type": "image/png", "data": base64.b64encode(picture).decode()},
        {"data": ""},
    ]
    async with running(core, folder) as address, client_of(address) as client:
        assert (await Caller(client).post({"attachments": files})).status_code == 200
    first, second = core.offered
    assert first[:4] == ("image", "a.png", "image/png", 3000)
    assert await first.fetch() == picture
    assert second[:4] == ("file", "file", "application/octet-stream", 0)


async def test_a_large_attachment_gets_through_and_one_that_is_too_large_is_refused(
    core: Core, folder: Path
) -> None:
    data = base64.b64encode(bytes(20_000_000)).decode()
    async with running(core, folder) as address, client_of(address) as client:
        answer = await Caller(client).say("look", attachments=[{"data": data}], wait=False)
        assert answer.status_code == 202
        answer = await Caller(client).say("look", attachments=[{"data": data}] * 2)
        assert (answer.status_code, answer.json()) == (413, {"error": "Request Entity Too Large"})


async def test_an_invalid_request_is_refused_with_one_line(core: Core, folder: Path) -> None:
    senseless = [
        (b"", "Input data was truncated"),
        (b"hello", "JSON is malformed"),
        (b'{"text": "\xff"}', "the body is invalid"),
        (b'{"text": "\\ud800"}', "the body is invalid"),
        (b"[" * 100_000, "the body is invalid"),
        (b'{"text": 7}', "Expected `str`, got `int` - at `$.text`"),
        (b'{"text": " "}', "the body has no text"),
        (b'{"attachments": []}', "the body has no text"),
        (b'{"text": "x", "user": ""}', "at `$.user`"),
        (b'{"text": "x", "user": true}', "at `$.user`"),
        (b'{"text": "x", "message_id": ' + b"9" * 5000 + b"}", "Integer value out of range"),
        (b'{"text": "x", "chat": "' + b"c" * 201 + b'"}', "at `$.chat`"),
        (b'{"text": "x", "chat_type": "party"}', "chat_type must be one of dm, group, channel, thread"),
        (b'{"text": "x", "wait": "no"}', "at `$.wait`"),
        (b'{"text": "x", "attachments": [{"data": "not base64!"}]}', "at `$.attachments[0].data`"),
        (b'{"text": "x", "attachments": [{"name": "a"}]}', "missing required field `data`"),
    ]
    async with running(core, folder) as address, client_of(address) as client:
        for raw, line in senseless:
            answer = await Caller(client).post(None, raw=raw)
            assert answer.status_code == 400, raw[:100]
            assert line in answer.json()["error"]
        assert (await Caller(client).say("x", path=f"/webhook/{'r' * 201}")).status_code == 400
    assert core.events == []


async def test_the_example_of_the_documentation_works(core: Core, folder: Path) -> None:
    document = (Path(__file__).parents[2] / "docs" / "webhook.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    async with running(core, folder) as address:
        program = program.replace("http://127.0.0.1:8644", address)
        environment = {**os.environ, "WEBHOOK_SECRET": SECRET, "NO_PROXY": "*"}
        done = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", program), env=environment, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await done.communicate()
    assert (done.returncode, output.decode()) == (0, "You said: How is the deployment going?\n")


async def test_only_post_requests_are_accepted(core: Core, folder: Path) -> None:
    async with running(core, folder) as address, client_of(address) as client:
        assert (await client.get("/webhook")).status_code == 405
        assert (await client.get("/")).json() == {"error": "Not Found"}


# --- callback addresses


async def test_an_answer_is_posted_to_the_callback_address_signed_and_numbered(
    core: Core, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    receiver = Receiver()
    async with served(receiver.app) as there:
        host = there.removeprefix("http://")
        async with running(core, folder, callback_hosts=host) as address, client_of(address) as client:
            answer = await Caller(client).say(
                "Grüße", chat="ops", message_id="m1", callback_url=f"{there}/back?key=1"
            )
            assert answer.status_code == 202
            await asyncio.wait_for(receiver.came.wait(), 60)
    ((result, headers, body),) = receiver.got
    assert result == {"reply": "You said: Grüße", "message_id": "m1", "chat": "ops", "thread": None}
    assert headers["idempotency-key"] == "o1"
    assert headers["content-type"] == "application/json"
    assert check_signature(SECRET.encode(), headers, body, clock.now()) is not None
    assert "key=1" not in caplog.text


async def test_the_address_is_kept_before_the_message_is_accepted(core: Core, folder: Path) -> None:
    kept: list[bytes] = []

    async def receive(event: Event, offered: Sequence[OfferedFile]) -> Receipt:
        kept.extend(file.read_bytes() for file in (folder / "callbacks").iterdir())
        return Receipt("accepted")

    core.receive = receive  # type: ignore[method-assign]  # the test's own stand-in
    async with running(core, folder, callback_hosts="example.org") as address, client_of(address) as client:
        await Caller(client).say("hello", callback_url="https://example.org/back")
    assert kept == [b'{"url": "https://example.org/back"}']


DOOMED = """
import asyncio, sys
from pathlib import Path
from hermes.gateway.adapter import Receipt
from hermes.gateway.http.limits import Limits, set_limits
from tests.gateway.documented_key import make_session_key
from hermes.gateway.platforms.webhook.adapter import Webhook
from hermes.gateway.settings import PlatformSettings
from hermes_state import SessionDB

secret, folder, host = sys.argv[1:]
db = SessionDB()
adapter = Webhook(
    PlatformSettings("webhook", more={"secret": secret, "port": 0, "callback_hosts": host}), Path(folder)
)

async def receive(event, offered):
    key = make_session_key(event.source)
    await asyncio.to_thread(db.inbox.accept, key, "webhook", event.to_dict(), event.message_id)
    return Receipt("accepted", key)

asyncio.run(adapter.run(receive, lambda: print(adapter.port, flush=True)))
"""


async def test_an_answer_finds_its_callback_after_a_crash_and_is_forgotten_when_delivered(
    db: SessionDB, folder: Path
) -> None:
    receiver = Receiver()
    async with served(receiver.app) as there:
        host = there.removeprefix("http://")
        doomed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", DOOMED, SECRET, str(folder), host), stdout=asyncio.subprocess.PIPE
        )
        assert doomed.stdout is not None
        port = int(await doomed.stdout.readline())
        async with client_of(f"http://127.0.0.1:{port}") as client:
            asked = await Caller(client).say("hello", thread=3, message_id="m1", callback_url=f"{there}/back")
            assert asked.status_code == 202
        doomed.kill()
        await doomed.wait()

        kept = list((folder / "callbacks").iterdir())
        assert [stat.S_IMODE(file.stat().st_mode) for file in kept] == [0o600]
        assert stat.S_IMODE((folder / "callbacks").stat().st_mode) == 0o700
        later = Webhook(
            PlatformSettings("webhook", more={"secret": SECRET, "callback_hosts": [host]}), folder
        )
        (entry,) = db.inbox.list_waiting()
        to = Event.from_dict(entry.event).source
        await later.send(to, "This conversation starts afresh.", idempotency_key="n1")
        await later.send(to, "here I am", idempotency_key="o1", reply_to="m1")
        assert [told["reply"] for told, _, _ in receiver.got] == [
            "This conversation starts afresh.",
            "here I am",
        ]
        assert list((folder / "callbacks").iterdir()) == []
        with pytest.raises(Undeliverable):
            await later.send(to, "once more", idempotency_key="o2", reply_to="m1")
        await later.close()


async def test_a_refused_callback_is_retried_only_if_that_can_help(core: Core, folder: Path) -> None:
    receiver = Receiver()
    refusals: list[tuple[int, dict[str, str], type[Exception]]] = [
        (500, {}, Unreachable),
        (503, {}, Unreachable),
        (408, {}, Unreachable),
        (429, {"Retry-After": "7"}, RateLimited),
        (503, {"Retry-After": "7"}, RateLimited),
        (502, {"Retry-After": "7"}, RateLimited),
        (502, {"Retry-After": "soon"}, Unreachable),
        (400, {}, Undeliverable),
        (404, {}, Undeliverable),
        (410, {}, Undeliverable),
    ]
    async with served(receiver.app) as there, _asked(core, folder, f"{there}/back") as (adapter, to):
        for status, headers, kind in refusals:
            receiver.statuses = [(status, headers)]
            with pytest.raises(kind, match=f"^127.0.0.1 responded with status {status}$") as refused:
                await adapter.send(to, "hello", idempotency_key="o1", reply_to="m1")
            if isinstance(refused.value, RateLimited):
                assert refused.value.seconds == 7
        await adapter.send(to, "hello", idempotency_key="o1", reply_to="m1")
    assert {headers["idempotency-key"] for _, headers, _ in receiver.got} == {"o1"}
    assert len(receiver.got) == len(refusals) + 1


async def test_a_missing_receiver_is_unreachable(core: Core, folder: Path) -> None:
    async with served(Receiver().app) as there:
        pass
    async with _asked(core, folder, f"{there}/back") as (adapter, to):
        with pytest.raises(Unreachable, match=r"^127.0.0.1 cannot be reached: "):
            await adapter.send(to, "hello", idempotency_key="o1", reply_to="m1")


async def test_a_callback_without_a_response_is_of_unknown_delivery(
    core: Core, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    monkeypatch.setattr(callback_urls, "WHOLE_S", 0.2)
    for behaviour in (silent, rude):
        server = await asyncio.start_server(behaviour, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with _asked(core, folder, f"http://127.0.0.1:{port}/back?key=secret") as (adapter, to):
            with pytest.raises(DeliveryUnknown) as caught:
                await adapter.send(to, "hello", idempotency_key="o1", reply_to="m1")
            assert "secret" not in str(caught.value)
        server.close()


async def test_a_redirect_is_not_followed(core: Core, folder: Path) -> None:
    receiver = Receiver()
    async with served(receiver.app) as there, _asked(core, folder, f"{there}/elsewhere") as (adapter, to):
        with pytest.raises(Undeliverable, match=r"^127.0.0.1 responded with status 307$"):
            await adapter.send(to, "hello", idempotency_key="o1", reply_to="m1")
    assert receiver.got == []


async def test_callbacks_go_only_to_allowed_hosts(core: Core, folder: Path) -> None:
    async with running(core, folder) as address, client_of(address) as client:
        answer = await Caller(client).say("hello", callback_url=f"{address}/webhook")
    assert (answer.status_code, answer.json()) == (
        400,
        {"error": "callback_url: the host is not listed in callback_hosts"},
    )
    assert core.events == []


async def test_a_host_that_is_no_longer_allowed_is_not_called(core: Core, folder: Path) -> None:
    receiver = Receiver()
    async with served(receiver.app) as there:
        async with _asked(core, folder, f"{there}/back") as (_, to):
            pass
        strict = Webhook(PlatformSettings("webhook", more={"secret": SECRET}), folder)
        with pytest.raises(Undeliverable, match="no longer allowed"):
            await strict.send(to, "hello", idempotency_key="o1", reply_to="m1")
    assert receiver.got == []


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://example.org/x", True),
        ("https://EXAMPLE.org:443/x", True),
        ("http://example.org", True),
        ("https://example.org:8443/x", False),
        ("https://other.org:8443/x", True),
        ("https://other.org/x", False),
        ("http://[::1]:9000/", True),
        ("http://[::1]/", False),
        ("https://example.org.evil.net/", False),
        ("https://sub.example.org/", False),
        ("https://example.org@evil.net/", False),
        ("https://evil.net#@example.org/", False),
        ("https://evil.net\\@example.org/", False),
        ("https://me:pw@example.org/", False),
        ("ftp://example.org/", False),
        ("file:///etc/passwd", False),
        ("//example.org/", False),
        ("example.org", False),
        ("http://", False),
        ("https://example.org:99999/", False),
        ("https://exa\nmple.org/", False),
        ("https://" + "a" * 70 + ".org/", False),
        ("", False),
    ],
)
def test_which_addresses_are_allowed(url: str, allowed: bool, folder: Path) -> None:
    assert Callbacks(folder, ["Example.org", "other.org:8443", "[::1]:9000"]).allows(url) is allowed


async def test_a_refused_message_leaves_no_callback_address(core: Core, folder: Path) -> None:
    url = "https://example.org/back"
    async with (
        running(core, folder, callback_hosts="example.org, other.org") as address,
        client_of(address) as client,
    ):
        for core.state in ("unauthorised", "limited", "ignored", "duplicate"):
            await Caller(client).say("hello", callback_url=url)
        assert list((folder / "callbacks").iterdir()) == []
        core.state, core.echoes = None, False
        for _ in range(2):  # the second is a duplicate of one that is not answered yet
            await Caller(client).say("hello", message_id="m1", callback_url=url)
        assert len(list((folder / "callbacks").iterdir())) == 1


def test_addresses_are_bounded_in_number_and_age(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_urls, "MOST", 5)
    monkeypatch.setattr(callback_urls, "EVERY", 10)
    callbacks = Callbacks(folder, ["example.org"])
    sources = [Source("webhook", "c", message_id=str(number)) for number in range(20)]
    for number, source in enumerate(sources):
        assert callbacks.keep(source, f"https://example.org/{number}")
        assert not callbacks.keep(source, f"https://example.org/{number}")
        for file in folder.glob("*.json"):
            os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 1))
    assert len(list(folder.iterdir())) <= 15
    callbacks.tidy()
    assert [callbacks.find(source, source.message_id) for source in sources[-6:]] == [
        None,
        *(f"https://example.org/{number}" for number in range(15, 20)),
    ]
    old = next(folder.glob("*.json"))
    os.utime(old, (clock.now() - 8 * clock.DAY,) * 2)
    callbacks.tidy()
    assert len(list(folder.iterdir())) == 4


def test_a_broken_file_of_addresses_is_ignored(folder: Path) -> None:
    callbacks = Callbacks(folder, [])
    source = Source("webhook", "c", message_id="1")
    callbacks.keep(source, "https://example.org/")
    (file,) = folder.iterdir()
    for broken in (b"", b"[]", b"{}", b"\xff"):
        file.write_bytes(broken)
        assert callbacks.find(source, "1") is None


async def test_a_sent_message_cannot_be_edited(folder: Path) -> None:
    adapter = Webhook(PlatformSettings("webhook", more={"secret": SECRET}), folder)
    here = Source("webhook", "c")
    with pytest.raises(Undeliverable):
        await adapter.edit(here, "1", "new")
    await adapter.typing(here)
    assert await adapter.open_thread(here, "a thread") is None
    await adapter.close()


@asynccontextmanager
async def _asked(core: Core, folder: Path, url: str) -> AsyncIterator[tuple[Webhook, Source]]:
    """Accept a message whose answer goes to the callback address `url`. Return the webhook and the source of
    the message."""
    core.echoes = False
    host = httpx2.URL(url).netloc.decode()
    async with running(core, folder, callback_hosts=[host]) as address, client_of(address) as client:
        answer = await Caller(client).say("hello", message_id="m1", callback_url=url, chat=url)
        assert answer.status_code == 202
        assert core.adapter is not None
        yield core.adapter, core.events[-1].source
