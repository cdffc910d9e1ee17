"""Sessions over the API: which sessions a client can read, search and delete, and which requests are
refused."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from hermes.gateway.adapter import Adapter, Misconfigured, Undeliverable
from hermes.gateway.app import ConversationAdapter
from hermes.gateway.inbound_events import Source
from hermes.gateway.registry import load_adapter
from hermes.gateway.settings import PlatformSettings
from hermes.server.api import ApiServer
from hermes.server.request_handler import SESSION
from tests.server.api_gateway import ANNA, KEY, ask, open_api_gateway, user

ORIGIN = "https://app.example"


async def test_sessions_are_listed_read_and_searched() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        made = [(await ask(gateway, [user(f"talk of {word}")]))[1] for word in ("apples", "pears", "plums")]
        page = (await client.get("/api/sessions", params={"limit": 2})).json()
        assert [one["id"] for one in page["sessions"]] == [made[2], made[1]]
        assert (page["total"], page["limit"], page["offset"]) == (3, 2, 0)
        assert page["sessions"][0]["is_active"] is True
        assert page["sessions"][0]["preview"] == "talk of plums"
        rest = (await client.get("/api/sessions", params={"limit": 2, "offset": 2})).json()
        assert [one["id"] for one in rest["sessions"]] == [made[0]]
        gateway.db.end_session(made[0], "done")
        session = (await client.get(f"/api/sessions/{made[0]}")).json()
        assert (session["id"], session["is_active"], session["end_reason"]) == (made[0], False, "done")
        assert session["source"] == "api-server"
        assert not {"system_prompt", "owner"} & session.keys()
        data = (await client.get(f"/api/sessions/{made[1]}/messages")).json()
        assert data["session_id"] == made[1]
        assert [(row["role"], row["content"]) for row in data["messages"]] == [
            ("user", "talk of pears"),
            ("assistant", "you said: talk of pears"),
        ]
        where = (await client.get(f"/api/sessions/{made[1]}/latest-descendant")).json()
        assert where == {"requested_session_id": made[1], "session_id": made[1], "changed": False}


async def test_a_search_finds_beginnings_of_words_and_returns_each_session_once() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        _, apples = await ask(gateway, [user("talk of apples")])
        _, pears = await ask(gateway, [user("talk of pears")])

        async def found(query: str) -> set[str]:
            results = (await client.get("/api/sessions/search", params={"q": query})).json()["results"]
            assert len({one["session_id"] for one in results}) == len(results)
            return {one["session_id"] for one in results}

        assert await found("app") == {apples}
        assert await found("tal") == {apples, pears}
        assert await found("tal pea") == {pears}
        assert await found('"talk of"') == {apples, pears}
        assert await found('"tal of"') == set()
        assert await found("apples OR pears") == {apples, pears}
        for odd in ("", '"', "*", "(((", "NOT"):
            await found(odd)


async def test_a_session_goes_to_the_trash() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        _, session = await ask(gateway, [user("rubbish")])
        assert (await client.delete(f"/api/sessions/{session}")).json() == {"ok": True}
        assert (await client.get(f"/api/sessions/{session}")).status_code == 404
        assert (await client.delete(f"/api/sessions/{session}")).status_code == 404
        assert (await client.get("/api/sessions")).json()["total"] == 0
        assert [row["id"] for row in gateway.db.list_trash()] == [session]


async def test_a_conversation_trashed_during_an_answer_continues_in_another() -> None:
    async with open_api_gateway() as gateway:
        _, old = await ask(gateway, [user("first")], session="mine")
        async with gateway.openai() as client:
            stream = await client.chat.completions.create(
                model="hermes", messages=[user("slow 3")], extra_headers={SESSION: "mine"}, stream=True
            )
            text = ""
            async for chunk in stream:
                if not text and chunk.choices and chunk.choices[0].delta.content:
                    gateway.db.trash_session(old)
                text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        assert text.startswith("0 1 2 ")
        assert gateway.db.get_session(old) is None
        answer, new = await ask(gateway, [user("history")], session="mine")
        assert new != old
        assert answer == "user: slow 3|assistant: 0 1 2"


async def test_an_invalid_number_is_refused() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        for query in ("limit=x", "limit=-1", "offset=1.5", "limit=501", "offset=9999999999"):
            answer = await client.get(f"/api/sessions?{query}")
            assert answer.status_code == 422
            assert "must be a whole number" in answer.json()["error"]["message"]


# ---------------------------------------------------------------- access

PATHS = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/hermes"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/responses/resp_x"),
    ("DELETE", "/v1/responses/resp_x"),
    ("GET", "/api/sessions"),
    ("GET", "/api/sessions/search"),
    ("GET", "/api/sessions/x"),
    ("GET", "/api/sessions/x/export"),
    ("DELETE", "/api/sessions/x"),
    ("GET", "/api/sessions/x/messages"),
    ("GET", "/api/sessions/x/latest-descendant"),
    ("POST", "/api/sessions/x/commands"),
    ("GET", "/api/commands"),
    ("GET", "/nothing"),
    ("PUT", "/v1/models"),
]


async def test_nothing_is_answered_without_the_key() -> None:
    async with open_api_gateway() as gateway:
        for given in (None, "x", KEY[:-1], f"{KEY}x", "ключ"):
            headers = {} if given is None else {"Authorization": f"Bearer {given}".encode()}
            async with gateway.http(None) as client:
                for method, path in PATHS:
                    answer = await client.request(method, path, headers=headers)  # type: ignore[arg-type]
                    assert answer.status_code == 401, (given, path)
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert answer.json()["error"]["code"] == "invalid_api_key"
        async with gateway.http(None, Authorization=f"Basic {KEY}") as client:
            assert (await client.get("/v1/models")).status_code == 401

        def asking() -> None:
            with OpenAI(base_url=f"{gateway.address}/v1", api_key="not the key at all") as client:
                client.models.list()

        with pytest.raises(openai.AuthenticationError):
            await asyncio.to_thread(asking)
        assert gateway.db.session_count() == 0


async def test_an_unknown_path_is_refused_in_the_usual_format() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        for method, path, status in (("GET", "/nothing", 404), ("PUT", "/v1/models", 405)):
            answer = await client.request(method, path)
            assert answer.status_code == status
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_pages_of_other_origins_are_refused_unless_they_are_named() -> None:
    async with open_api_gateway() as gateway, gateway.http(Origin=ORIGIN) as client:
        assert (await client.get("/v1/models")).status_code == 403
        assert (await client.options("/v1/models")).headers.get("access-control-allow-origin") is None
    async with open_api_gateway({"cors_origins": ORIGIN}) as gateway:
        async with gateway.http(Origin=ORIGIN) as client:
            answer = await client.get("/v1/models")
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == ORIGIN
            assert SESSION.lower() in answer.headers["access-control-expose-headers"].lower()
            before = await client.options(
                "/v1/chat/completions",
                headers={
                    "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": f"authorization, {SESSION}",
                },
            )
            assert before.status_code == 200
        async with gateway.http(Origin="https://evil.example") as client:
            assert (await client.get("/v1/models")).status_code == 403


async def test_the_key_is_in_no_log_and_no_session(caplog: pytest.LogCaptureFixture, home: Path) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_api_gateway() as gateway, gateway.http() as client:
        _, session = await ask(gateway, [user("hi")])
        await client.post("/v1/chat/completions", content=b"{")
        assert KEY not in repr(gateway.adapter.__dict__)
        assert KEY not in repr(gateway.db.get_session(session))
    assert KEY not in caplog.text
    for file in home.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()
    kept = home / "gateway" / "api-server" / "conversations.jsonl"
    assert kept.stat().st_mode & 0o077 == 0
    assert b"hi" not in kept.read_bytes()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "API_SERVER_KEY"),
        ({"key": "too short"}, "shorter than 16"),
        ({"keys": {"anna": "short"}}, "'anna'"),
        ({"keys": {"anna": "${NOT_SET_ANYWHERE}"}}, "NOT_SET_ANYWHERE"),
        ({"keys": ["x"]}, "must be the names of people, each with a key"),
        ({"key": ANNA, "keys": {"anna": ANNA}}, "the same key"),
        ({"key": KEY, "port": "x"}, "port must be a whole number from 0 to 65535"),
        ({"key": KEY, "port": 70_000}, "port must be a whole number from 0 to 65535"),
        ({"key": KEY, "cors_origins": 7}, "must be addresses of pages, in a list"),
    ],
)
def test_an_unsafe_setting_prevents_the_start(more: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=why):
        ApiServer(PlatformSettings("api-server", more=more), tmp_path)


async def test_a_key_can_be_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_ANNA", ANNA)
    async with open_api_gateway({"keys": {"anna": "${KEY_OF_ANNA}"}}) as gateway:
        for key, status in ((ANNA, 200), ("${KEY_OF_ANNA}", 401)):
            async with gateway.http(key) as client:
                assert (await client.get("/v1/models")).status_code == status


async def test_nothing_can_be_delivered_to_the_api_server(tmp_path: Path) -> None:
    server: Adapter = ApiServer(PlatformSettings("api-server", more={"key": KEY}), tmp_path)
    assert load_adapter("api-server") is ApiServer
    assert isinstance(server, ConversationAdapter)
    to = Source("api-server", "", user_id="x")
    with pytest.raises(Undeliverable):
        await server.send(to, "hello", idempotency_key="x")
    with pytest.raises(Undeliverable):
        await server.edit(to, "1", "hello")
    assert await server.open_thread(to, "x") is None
    await server.typing(to)
    await server.close()
