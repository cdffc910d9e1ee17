"""Limits of each key. A key that reaches its limit does not affect other keys. Requests without a valid key
are refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from hermes.errors import StoreFailed, make_error
from hermes.gateway.adapter import Misconfigured
from hermes.gateway.inbound.pairing import Pairings
from hermes.gateway.ops.status_file import gateway_folder
from hermes.gateway.settings import PlatformSettings
from hermes.server.api import ApiServer
from hermes.server.api_errors import translate_error
from hermes.server.message_format import ChatMessage, join_answers
from hermes.server.request_handler import SESSION
from hermes.store.people import Principal
from tests.server.api_gateway import ANNA, BERT, KEY, PEOPLE, ApiGateway, ask, open_api_gateway, user

TWO = {"key": None, "keys": PEOPLE}
SHAPE = {"message", "type", "param", "code"}


def asking(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "hermes", "messages": list(messages), **more}


def _is_limited(answer: httpx2.Response) -> bool:
    if answer.status_code != 429:
        return False
    error = answer.json()["error"]
    assert set(error) == SHAPE
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert int(answer.headers["retry-after"]) >= 1
    return True


@asynccontextmanager
async def _stream(client: httpx2.AsyncClient) -> AsyncIterator[httpx2.Response]:
    async with client.stream(
        "POST", "/v1/chat/completions", json=asking(user("forever"), stream=True)
    ) as answer:
        assert answer.status_code == 200
        yield answer


ROUTES = [
    ("GET", "/v1/models"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/responses/x"),
    ("DELETE", "/v1/responses/x"),
    ("GET", "/api/sessions"),
    ("GET", "/api/sessions/search?q=x"),
    ("GET", "/api/sessions/x"),
    ("DELETE", "/api/sessions/x"),
    ("GET", "/api/sessions/x/messages"),
    ("GET", "/api/sessions/x/latest-descendant"),
    ("GET", "/nothing"),
]


async def test_a_key_has_a_limit_of_open_requests_which_does_not_affect_other_keys() -> None:
    async with (
        open_api_gateway({**TWO, "concurrent_requests": 2}) as gateway,
        gateway.http(ANNA) as anna,
        gateway.http(BERT) as bert,
        _stream(anna),
    ):
        async with _stream(anna):  # a stream counts until its end
            for method, path in ROUTES:
                assert _is_limited(await anna.request(method, path)), path
            assert (await bert.get("/v1/models")).status_code == 200
        async with asyncio.timeout(60):
            while _is_limited(await anna.get("/v1/models")):
                await asyncio.sleep(0)


async def test_a_key_has_a_limit_of_requests_per_minute() -> None:
    async with (
        open_api_gateway({**TWO, "requests_per_minute": 3}) as gateway,
        gateway.http(ANNA) as anna,
        gateway.http(BERT) as bert,
    ):
        for _ in range(3):
            assert (await anna.get("/api/sessions")).status_code == 200
        for method, path in ROUTES:
            assert _is_limited(await anna.request(method, path)), path
        assert (await bert.get("/api/sessions")).status_code == 200


async def test_a_blocked_person_is_refused_everywhere_until_they_are_unblocked() -> None:
    async with open_api_gateway(TWO) as gateway, gateway.http(ANNA) as anna, gateway.http(BERT) as bert:
        assert (await anna.get("/api/sessions")).status_code == 200
        Pairings(gateway_folder()).block("api-server", "anna")  # another process blocks the person
        for method, path in (("GET", "/api/sessions"), ("POST", "/v1/chat/completions")):
            answer = await anna.request(
                method, path, json=asking(user("hello")) if method == "POST" else None
            )
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "blocked")
        assert (await bert.get("/api/sessions")).status_code == 200
        Pairings(gateway_folder()).unblock("api-server", "anna")
        assert (await anna.get("/api/sessions")).status_code == 200


async def test_a_search_has_a_limit_of_words() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:

        async def search(query: str) -> httpx2.Response:
            return await client.get("/api/sessions/search", params={"q": query})

        assert (await search(" OR ".join(["word"] * 64))).status_code == 200
        for query in (
            "word " * 65,
            "-".join("a" * 65),  # a single word for a person, but many terms for the index
            "日" * 65,
            " OR ".join(["word"] * 1000),
            "x" * 2001,
        ):
            answer = await search(query)
            assert answer.status_code == 400, query[:50]
            assert answer.json()["error"]["code"] == "query_too_long"
    async with open_api_gateway({"search_words": "2"}) as gateway, gateway.http() as client:
        assert (await client.get("/api/sessions/search?q=one+two")).status_code == 200
        answer = await client.get("/api/sessions/search?q=one+two+three")
        assert answer.json()["error"]["message"] == "q has more than 2 words"


async def test_a_request_has_a_limit_of_messages() -> None:
    async with open_api_gateway({"most_messages": 3}) as gateway, gateway.http() as client:
        for path, name in (("/v1/chat/completions", "messages"), ("/v1/responses", "input")):
            for count, status in ((3, 200), (4, 413)):
                body = {"model": "hermes", name: [user(str(number)) for number in range(count)]}
                answer = await client.post(path, json=body)
                assert answer.status_code == status
            error = answer.json()["error"]
            assert (error["message"], error["param"]) == (f"{name} has more than 3 messages", name)


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        (b"[" * 40 + b"]" * 40, "nested more than 32 levels deep"),
        (b"[" * 900 + b"]" * 900, "nested more than 32 levels deep"),
        (b"[%s0]" % (b"[]," * 250_000), "more than 400,000 values"),
    ],
    ids=["deep", "very deep", "many"],
)
async def test_json_that_would_take_much_memory_is_refused(metadata: bytes, why: str) -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        body = b'{"model": "hermes", "input": "hi", "metadata": %s}' % metadata
        answer = await client.post("/v1/responses", content=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_complex")
        assert why in answer.json()["error"]["message"]
        assert gateway.db.session_count() == 0


async def test_answers_that_wait_for_a_reader_count_as_memory_of_the_key() -> None:
    async with (
        open_api_gateway(TWO, bodies_mb=1) as gateway,
        gateway.http(ANNA) as anna,
        gateway.http(BERT) as bert,
    ):
        found: dict[str, str] = {}
        for client, name in ((anna, "anna"), (bert, "bert")):
            answer = await client.post("/v1/chat/completions", json=asking(user("x" * 60_000)))
            found[name] = answer.headers[SESSION]
            store = gateway.db.scoped(Principal("api-server", name))
            for _ in range(20):
                store.append_message(found[name], "assistant", "y" * 500_000)
        path = f"/api/sessions/{found['anna']}/messages"
        async with anna.stream("GET", path) as first:  # 10 MB, and the client has read nothing yet
            assert first.status_code == 200
            assert (await anna.get(path)).status_code == 503
            answer = await bert.get(f"/api/sessions/{found['bert']}/messages")
            assert len(answer.json()["messages"]) == 22
            assert len(await first.aread()) > 10_000_000


def test_many_answers_in_a_row_are_joined_once() -> None:
    """A request body can contain so many answers in a row that joining them one by one would take minutes."""
    rows = [ChatMessage("assistant", "x" * 100), ChatMessage("assistant", "")] * 50_000
    joined, question, other = join_answers(
        [*rows, ChatMessage("user", "and?"), ChatMessage("assistant", "yes")]
    )
    assert len(joined.content) == 50_000 * 102 - 2
    assert (question, other) == (ChatMessage("user", "and?"), ChatMessage("assistant", "yes"))


# ---------------------------------------------------------------- strangers


async def _raw(gateway: ApiGateway, sent: bytes) -> tuple[bytes, dict[str, Any]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.adapter.port)
    writer.write(sent)
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
    writer.close()
    return head, json.loads(body)


async def test_the_body_of_a_request_without_a_key_is_not_read() -> None:
    async with open_api_gateway() as gateway:
        for key in ("", "Authorization: Bearer nonsense\r\n", f"Authorization: Basic {KEY}\r\n"):
            for path in ("/v1/chat/completions", "/v1/responses", "/nothing"):
                sent = f"POST {path} HTTP/1.1\r\nHost: x\r\n{key}Content-Length: 31000000\r\n\r\n"
                head, body = await _raw(gateway, sent.encode())
                assert head.startswith(b"HTTP/1.1 401 ")
                assert body["error"]["code"] == "invalid_api_key"


async def test_wrong_keys_are_limited_and_the_right_key_still_works() -> None:
    async with open_api_gateway(wrong_keys_per_minute=3) as gateway:
        async with gateway.http("not the key of anybody") as stranger:
            for _ in range(3):
                assert (await stranger.get("/v1/models")).status_code == 401
            answer = await stranger.get("/v1/models")
            assert _is_limited(answer)
            assert answer.headers["connection"] == "close"
        async with gateway.http() as client:
            assert (await client.get("/v1/models")).status_code == 200


async def test_data_that_is_not_http_is_refused_in_the_usual_format() -> None:
    async with open_api_gateway() as gateway:
        for sent in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 40_000):
            head, body = await _raw(gateway, sent)
            assert head.startswith(b"HTTP/1.1 400 ")
            assert set(body["error"]) == SHAPE


async def test_too_many_connections_are_refused_in_the_usual_format() -> None:
    async with (
        open_api_gateway(connections_per_address=2) as gateway,
        gateway.http() as client,
        _stream(client),
        _stream(client),
    ):
        head, body = await _raw(gateway, b"")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert set(body["error"]) == SHAPE


def test_an_error_names_no_folder_and_no_secret() -> None:
    problem = make_error(StoreFailed, "cannot open /home/ann/.hermes/state.db\nTraceback: token=abc")
    assert translate_error(problem).message.startswith("cannot open state.db")
    assert "/home" not in str(translate_error(problem).body)


@pytest.mark.parametrize(
    "name", ["requests_per_minute", "concurrent_requests", "most_messages", "search_words"]
)
@pytest.mark.parametrize("value", [0, "many", -1, 1.5, "9" * 20])
def test_an_invalid_limit_prevents_the_start(name: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(
        Misconfigured, match=rf"^platforms.api-server.{name} must be a whole number from 1 to "
    ):
        ApiServer(PlatformSettings("api-server", more={"key": KEY, name: value}), tmp_path)


async def test_the_daily_limit_applies_to_keys_and_says_when_it_resets() -> None:
    async with open_api_gateway(daily_token_limit=1) as gateway, gateway.openai(max_retries=0) as client:
        await client.chat.completions.create(model="hermes", messages=[user("hello")])
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(model="hermes", messages=[user("hello")])
        assert "You have used your limit for today (1 token); it resets tomorrow 00:00." in str(caught.value)
        assert caught.value.code == "daily_limit_reached"
        assert 0 < int(caught.value.response.headers["Retry-After"]) <= 25 * 3600
    async with open_api_gateway(daily_token_limit=1, owners=["*"]) as gateway:
        for _ in range(2):
            assert (await ask(gateway, [user("hello")]))[0] == "you said: hello"


# ---------------------------------------------------------------- metrics, and turns of all keys


async def test_requests_are_counted_by_route_and_status_with_their_duration() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        for _ in range(2):
            await client.post("/v1/chat/completions", json={"messages": [user("hello")]})
        await client.post("/v1/chat/completions", json={"messages": []})
        await client.get("/api/sessions/nothing")
        await client.get("/nowhere/at/all")
        async with gateway.http("a key of nobody at all") as stranger:
            await stranger.get("/v1/models")
        metrics = gateway.app.context.metrics.render()
        for route, status, count in (
            ("POST /v1/chat/completions", 200, 2),
            ("POST /v1/chat/completions", 400, 1),
            ("GET /api/sessions/{id}", 404, 1),
            ("GET /v1/models", 401, 1),
            ("other", 404, 1),
        ):
            line = f'hermes_api_requests_total{{route="{route}",status="{status}"}} {count}\n'
            assert line in metrics
        assert 'hermes_api_request_seconds_count{route="POST /v1/chat/completions"} 3\n' in metrics
        assert "hermes_api_requests_open 0\n" in metrics
        assert "nowhere" not in metrics


async def test_a_stream_counts_until_its_end() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        async with _stream(client):
            assert "hermes_api_requests_open 1\n" in gateway.app.context.metrics.render()
        async with asyncio.timeout(60):
            while "hermes_api_requests_open 0\n" not in gateway.app.context.metrics.render():
                await asyncio.sleep(0.01)


async def test_more_answers_at_once_than_allowed_are_refused_and_everything_else_works() -> None:
    async with (
        open_api_gateway({"concurrent_turns": 2, "keys": PEOPLE}) as gateway,
        gateway.http(ANNA) as anna,
        gateway.http(BERT) as bert,
        _stream(anna),
        _stream(anna),
    ):
        body = {"messages": [user("hello")]}
        refused = await bert.post("/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert refused.headers["retry-after"] == "1"
        assert gateway.db.session_count() == 2
        for path in ("/api/sessions", "/api/sessions/search?q=hello", "/v1/models"):
            async with asyncio.timeout(10):  # requests that need only the store do not wait for turns
                assert (await bert.get(path)).status_code == 200


async def test_answers_of_the_api_count_among_the_turns_of_the_gateway() -> None:
    async with open_api_gateway(turns_at_once=1) as gateway, gateway.http() as client, _stream(client):
        await gateway.agents.model.has_spoken.wait()
        second = asyncio.create_task(ask(gateway, [user("hello")]))
        while not gateway.app.limits.turns.waiting:
            await asyncio.sleep(0.005)
        assert gateway.agents.model.asked == ["forever"]
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
