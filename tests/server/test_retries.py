"""A client sends a request again: after a crash or after it disconnected, with and without an
`Idempotency-Key`. The message is stored once, in one session.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from hermes.gateway.ops.status_file import gateway_folder
from hermes.server.conversations.request_journal import AcceptedRequest, RequestJournal
from hermes.server.request_handler import SESSION
from hermes.store.people import Principal
from hermes_state import SessionDB
from tests.server.api_gateway import (
    KEY,
    ApiGateway,
    ask,
    assistant,
    open_api_gateway,
    start_api_process,
    user,
)

KEYED = {"Idempotency-Key": "order 66"}


def contents(db: SessionDB) -> list[tuple[str, Any]]:
    """Return the messages of the only session."""
    (session,) = db.search_sessions()
    return [(row["role"], row["content"]) for row in db.get_messages(session["id"])]


async def complete(
    client: AsyncOpenAI, messages: list[Any], headers: dict[str, str], *, stream: bool = False
) -> str:
    """Send a chat completion with the real client. Return the answer."""
    if not stream:
        answer = await client.chat.completions.create(
            model="hermes", messages=messages, extra_headers=headers
        )
        return answer.choices[0].message.content or ""
    chunks = await client.chat.completions.create(
        model="hermes", messages=messages, extra_headers=headers, stream=True
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])


async def die_while_asked(address: str, process: Any, messages: list[Any], headers: dict[str, str]) -> None:
    """Send a request to a process. Kill the process when the message is stored."""
    client = AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)
    db = SessionDB()
    before = db.message_count()
    asking = asyncio.create_task(complete(client, messages, headers))
    while db.message_count() == before:
        await asyncio.sleep(0.005)
    process.kill()
    with pytest.raises(openai.APIConnectionError):
        await asking
    db.close()
    await client.close()


@pytest.mark.parametrize(
    ("stream", "headers"),
    [
        pytest.param(True, {}, id="stream-plain"),
        pytest.param(True, KEYED, id="stream-keyed", marks=pytest.mark.full),
        pytest.param(False, {}, id="whole-plain", marks=pytest.mark.full),
        pytest.param(False, KEYED, id="whole-keyed"),
    ],
)
async def test_the_first_message_is_the_same_message_after_a_kill_in_the_middle_of_its_answer(
    headers: dict[str, str], stream: bool
) -> None:
    async with start_api_process() as (process, address):
        await die_while_asked(address, process, [user("slow 100")], headers)
    async with open_api_gateway() as gateway, gateway.openai() as client:
        gateway.agents.model.asked.clear()
        asking = asyncio.create_task(complete(client, [user("slow 100")], headers, stream=stream))
        while not gateway.agents.model.asked:
            await asyncio.sleep(0.01)
        assert contents(gateway.db) == [("user", "slow 100")]
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.parametrize(
    ("stream", "headers"),
    [
        pytest.param(True, {}, id="stream-plain", marks=pytest.mark.full),
        pytest.param(True, KEYED, id="stream-keyed"),
        pytest.param(True, {SESSION: "mine"}, id="stream-named", marks=pytest.mark.full),
        pytest.param(False, {}, id="whole-plain"),
        pytest.param(False, KEYED, id="whole-keyed", marks=pytest.mark.full),
        pytest.param(False, {SESSION: "mine"}, id="whole-named"),
    ],
)
async def test_an_answer_that_was_stored_but_not_sent_is_sent_when_the_client_asks_again(
    headers: dict[str, str], stream: bool
) -> None:
    async with start_api_process("dies") as (process, address):
        async with AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
            with pytest.raises(openai.APIConnectionError):
                await complete(client, [user("die")], headers, stream=stream)
        assert await process.wait() == -9
    stored = [("user", "die"), ("assistant", "you said: die")]
    async with open_api_gateway() as gateway, gateway.openai() as client:
        assert await complete(client, [user("die")], headers, stream=stream) == "you said: die"
        assert gateway.agents.model.asked == []
        assert contents(gateway.db) == stored
        follow_up = [user("die"), assistant("you said: die"), user("context")]
        other = {name: text for name, text in headers.items() if name == SESSION}
        assert await complete(client, follow_up, other) == "4 messages"
        assert len(contents(gateway.db)) == 4


async def test_a_later_message_is_the_same_message_after_a_kill_too() -> None:
    async with start_api_process() as (process, address):
        async with AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY) as client:
            answer = await complete(client, [user("one")], {})
        messages = [user("one"), assistant(answer), user("slow 3")]
        await die_while_asked(address, process, messages, {})
    async with open_api_gateway() as gateway, gateway.openai() as client:
        assert await complete(client, messages, {}) == "0 1 2 "
        assert [text for _, text in contents(gateway.db)] == ["one", "you said: one", "slow 3", "0 1 2 "]


async def test_a_tool_that_may_have_run_is_not_run_again() -> None:
    async with start_api_process() as (process, address):
        client = AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)
        db = SessionDB()
        asking = asyncio.create_task(complete(client, [user("use shout wait")], {}))
        while db.message_count() < 2:
            await asyncio.sleep(0.005)
        process.kill()
        with pytest.raises(openai.APIConnectionError):
            await asking
        db.close()
        await client.close()
    async with open_api_gateway() as gateway, gateway.openai() as client:
        answer = await complete(client, [user("use shout wait")], {})
        assert answer == "the tool said: [no result recorded; effect unknown]"
        assert [role for role, _ in contents(gateway.db)] == ["user", "assistant", "assistant"]


async def test_after_a_sent_answer_the_same_words_begin_another_conversation() -> None:
    async with open_api_gateway() as gateway:
        for _ in range(3):
            await ask(gateway, [user("hello")])
        assert gateway.db.session_count() == 3


@pytest.mark.parametrize("stream", [True, False])
async def test_a_retry_after_a_disconnect_answers_the_same_message(stream: bool) -> None:
    async with open_api_gateway() as gateway:
        async with gateway.http() as client:
            body = {"messages": [user("forever")], "stream": stream}
            asking = asyncio.create_task(client.post("/v1/chat/completions", json=body))
            await gateway.agents.model.has_spoken.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        (session,) = gateway.db.search_sessions()
        async with asyncio.timeout(60):  # the conversation is released after the answer is stored
            while gateway.db.leases.find_holder(session["id"]) is not None:
                await asyncio.sleep(0.01)
        assert gateway.db.message_count() == 2
        gateway.agents.model.has_spoken.clear()
        again = {"messages": [user("forever")], "stream": True}
        async with gateway.http() as client, client.stream("POST", "/v1/chat/completions", json=again):
            await gateway.agents.model.has_spoken.wait()
            assert contents(gateway.db) == [("user", "forever")]


# ---------------------------------------------------------------- idempotency keys


async def test_a_request_with_a_key_is_answered_once_also_after_a_restart() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        first = await client.responses.create(model="hermes", input="hello", extra_headers=KEYED)
        again = await client.responses.create(model="hermes", input="hello", extra_headers=KEYED)
        assert (again.id, again.output_text) == (first.id, first.output_text)
    async with open_api_gateway() as gateway, gateway.openai() as client:
        again = await client.responses.create(model="hermes", input="hello", extra_headers=KEYED)
        assert (again.id, again.output_text) == (first.id, first.output_text)
        assert gateway.agents.model.asked == []
        other = {"Idempotency-Key": "order 67"}
        second = await client.responses.create(model="hermes", input="hello", extra_headers=other)
        assert second.id != first.id
        assert gateway.db.session_count() == 2


async def test_an_idempotency_key_returns_its_answer_after_later_messages() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        answer = await complete(client, [user("one")], KEYED)
        await complete(client, [user("one"), assistant(answer), user("two")], {})
        assert await complete(client, [user("one")], KEYED) == answer
        assert [text for _, text in contents(gateway.db)] == ["one", answer, "two", "you said: two"]


async def test_a_key_cannot_be_used_for_two_requests() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        await complete(client, [user("one")], KEYED)
        with pytest.raises(openai.BadRequestError, match="sent with another request") as refused:
            await complete(client, [user("two")], KEYED)
        assert refused.value.code == "idempotency_key_reused"
        with pytest.raises(openai.BadRequestError, match="must have 1 to 200"):
            await complete(client, [user("two")], {"Idempotency-Key": "x" * 201})
        assert len(contents(gateway.db)) == 2


async def test_two_requests_with_one_key_at_once_are_one_request() -> None:
    async with open_api_gateway() as gateway, gateway.openai(max_retries=20) as client:
        answers = await asyncio.gather(
            *(complete(client, [user("slow 3")], KEYED) for _ in range(3)),
        )
        assert set(answers) == {"0 1 2 "}
        assert contents(gateway.db) == [("user", "slow 3"), ("assistant", "0 1 2 ")]


async def test_a_request_that_failed_is_answered_when_it_is_sent_again() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        gateway.agents.model.failing = 1
        with pytest.raises(openai.APIStatusError):
            await complete(client, [user("hello")], KEYED)
        assert await complete(client, [user("hello")], KEYED) == "you said: hello"
        assert len(contents(gateway.db)) == 2


# ---------------------------------------------------------------- no empty sessions


async def test_a_failed_request_leaves_no_empty_session() -> None:
    async with open_api_gateway({"most_messages": 2}) as gateway, gateway.http() as client:
        large = "word " * 200_000
        bodies: list[Any] = [
            {"messages": [user(large)]},
            {"messages": [user(large)], "stream": True},
            {"messages": [user("a"), assistant("b"), user("c")]},
            {"messages": []},
            {"messages": [user("x")], "tools": [{"type": "function"}]},
            {"messages": [user("x")], "model": "unknown"},
            b"no json",
        ]
        for headers in ({}, {SESSION: "mine"}, {SESSION: "a/b"}):
            for body in bodies:
                sent = {"content": body} if isinstance(body, bytes) else {"json": body}
                answer = await client.post("/v1/chat/completions", headers=headers, **sent)
                assert answer.status_code in (400, 404, 413), body
        for body in ({"input": large}, {"input": large, "store": False}):
            assert (await client.post("/v1/responses", json=body)).status_code == 400
        first = (await client.post("/v1/responses", json={"input": "one"})).json()
        await client.post("/v1/responses", json={"input": "two", "previous_response_id": first["id"]})
        branch = {"input": large, "previous_response_id": first["id"]}
        assert (await client.post("/v1/responses", json=branch)).status_code == 400
        assert [session["message_count"] for session in gateway.db.search_sessions()] == [4]
        assert gateway.db.list_trash() == []


async def test_a_start_removes_empty_sessions_of_a_killed_process() -> None:
    db = SessionDB()
    store = db.scoped(Principal("api-server", "anna"))
    empty, used, hidden = (store.create_session() for _ in range(3))
    for session in (used, hidden):
        store.append_message(session, "user", "hello")
    folder: Path = gateway_folder() / "api-server"
    folder.mkdir(parents=True, mode=0o700)
    journal = RequestJournal(folder / "requests.jsonl")
    for number, session in enumerate((empty, used, hidden)):
        request = AcceptedRequest("anna", session, "d", 0.0, False, session == hidden)
        journal.put(f"mark {number}", request)
    async with open_api_gateway():
        assert [session["id"] for session in db.search_sessions()] == [used]
        assert [row["id"] for row in db.list_trash()] == [hidden]
    db.close()


# ---------------------------------------------------------------- names of sessions


async def name_session(gateway: ApiGateway, session: str, title: str) -> None:
    await asyncio.to_thread(gateway.db.set_session_title, session, title)


async def test_a_title_and_the_beginning_of_an_id_lead_to_the_live_end_of_the_conversation() -> None:
    async with open_api_gateway() as gateway:
        _, session = await ask(gateway, [user("one")])
        await name_session(gateway, session, "The Plan / of May")
        store = gateway.db.scoped(Principal("api-server", gateway.db.get_session(session)["user_id"]))  # type: ignore[index]
        child = store.begin_continuation(session, "They counted.")
        assert gateway.db.get_session_title(child) == "The Plan / of May #2"
        for name in ("The Plan / of May", "The Plan / of May #2", session, session[:-1], child, child[:-1]):
            before = gateway.db.message_count(child)
            assert (await ask(gateway, [user(f"by {name}")], session=name))[1] == session
            assert gateway.db.message_count(child) == before + 2, name
        assert gateway.db.session_count() == 2


async def test_the_name_of_one_session_is_not_the_beginning_of_another() -> None:
    async with open_api_gateway() as gateway:
        _, tenth = await ask(gateway, [user("one")], session="user10")
        _, first = await ask(gateway, [user("two")], session="user1")
        assert tenth != first
        assert (await ask(gateway, [user("three")], session="user"))[1] not in {first, tenth}
        assert (await ask(gateway, [user("four")], session=tenth[:-6]))[1] == tenth
        assert (await ask(gateway, [user("five")], session="user10"))[1] == tenth


async def test_a_beginning_of_several_ids_is_refused() -> None:
    async with open_api_gateway() as gateway:
        sessions = [(await ask(gateway, [user("one")]))[1] for _ in range(2)]
        with pytest.raises(openai.BadRequestError, match="several sessions begin with") as refused:
            await ask(gateway, [user("two")], session=sessions[0][:10])
        assert refused.value.code == "session_ambiguous"
        assert gateway.db.session_count() == 2


async def test_a_new_session_cannot_have_a_slash_in_its_name() -> None:
    async with open_api_gateway() as gateway:
        for name in ("a/b", "/", "../../etc"):
            with pytest.raises(openai.BadRequestError, match="cannot contain '/'") as refused:
                await ask(gateway, [user("one")], session=name)
            assert refused.value.code == "invalid_session_name"
        assert gateway.db.session_count() == 0


async def test_a_name_in_any_language_is_sent_as_utf_8() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        body = {"messages": [user("one")]}
        for name in ("Größe", "計画", "naïve ß"):
            sessions: set[bytes] = set()
            for _ in range(2):
                headers = httpx2.Headers([(SESSION.encode(), name.encode())])
                answer = await client.post("/v1/chat/completions", json=body, headers=headers)
                assert answer.status_code == 200
                sessions.add(dict(answer.headers.raw)[SESSION.lower().encode()])
            (session,) = sessions
            assert session.decode().startswith(f"{name}_")
            assert gateway.db.message_count(session.decode()) == 4
            await name_session(gateway, session.decode(), f"{name} II")
            headers = httpx2.Headers([(SESSION.encode(), f"{name} II".encode())])
            answer = await client.post("/v1/chat/completions", json=body, headers=headers)
            assert dict(answer.headers.raw)[SESSION.lower().encode()] == session
