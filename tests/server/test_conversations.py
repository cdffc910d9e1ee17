"""Which conversation a request continues: the one that it names, the one that it extends exactly, or a new
one. Also tested with the keys of two people.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import httpx2
import openai
import pytest

from hermes.server.request_handler import SESSION
from hermes.store.people import Principal
from hermes_state import SessionDB
from tests.server.api_gateway import (
    ANNA,
    BERT,
    KEY,
    PEOPLE,
    ApiGateway,
    ask,
    assistant,
    open_api_gateway,
    user,
)


async def talk(gateway: ApiGateway, *said: str, key: str = KEY) -> tuple[list[dict[str, Any]], str]:
    """Hold a conversation as API clients do: each request contains the whole history. Return (history,
    session id)."""
    messages: list[dict[str, Any]] = []
    sessions = set()
    for text in said:
        messages.append(user(text))
        answer, session = await ask(gateway, messages, key=key)
        messages.append(assistant(answer))
        sessions.add(session)
    assert len(sessions) == 1
    return messages, sessions.pop()


async def test_a_request_that_extends_a_conversation_exactly_continues_it_also_after_a_restart() -> None:
    async with open_api_gateway() as gateway:
        messages, session = await talk(gateway, "one", "two", "three")
        assert gateway.db.session_count() == 1
    async with open_api_gateway() as gateway:
        assert await ask(gateway, [*messages, user("context")]) == ("8 messages", session)
        assert gateway.db.session_count() == 1


async def test_any_other_request_starts_a_session_with_its_history() -> None:
    async with open_api_gateway() as gateway:
        messages, session = await talk(gateway, "one", "two")
        changed = [
            [user("ONE"), *messages[1:], user("history")],
            [messages[0], assistant("something else"), *messages[2:], user("history")],
            [*messages[:2], user("history")],
            [*messages[2:], user("history")],
            [*messages, user("two"), user("history")],
        ]
        seen = {session}
        for request in changed:
            answer, other = await ask(gateway, request)
            assert other not in seen
            seen.add(other)
            rows = [(row["role"], row["content"]) for row in gateway.db.get_messages(other)]
            assert rows == [*((one["role"], one["content"]) for one in request), ("assistant", answer)]
        assert await ask(gateway, [*messages, user("context")]) == ("6 messages", session)


async def test_two_equal_conversations_are_both_continued() -> None:
    async with open_api_gateway() as gateway:
        messages, first = await talk(gateway, "hello")
        _, second = await talk(gateway, "hello")
        assert first != second
        continued = [await ask(gateway, [*messages, user(text)]) for text in ("left", "right")]
        assert {session for _, session in continued} == {first, second}
        assert gateway.db.session_count() == 2


async def test_two_requests_at_once_never_work_in_the_same_conversation() -> None:
    async with open_api_gateway() as gateway:
        messages, session = await talk(gateway, "hello")
        both = [[*messages, user(f"slow 2 {name}")] for name in ("left", "right")]
        answers = await asyncio.gather(*(ask(gateway, request) for request in both))
        assert len({made for _, made in answers}) == 2
        assert session in {made for _, made in answers}
        for request, (_, made) in zip(both, answers, strict=True):
            rows = gateway.db.get_messages(made)
            assert [row["content"] for row in rows] == [*(one["content"] for one in request), "0 1 "]


async def test_a_named_session_in_use_is_refused() -> None:
    async with open_api_gateway() as gateway:
        _, session = await ask(gateway, [user("hello")], session="mine")
        slow = asyncio.create_task(ask(gateway, [user("slow 10")], session="mine"))
        while gateway.db.message_count(session) < 3:
            await asyncio.sleep(0.01)
        for name in ("mine", session):
            with pytest.raises(openai.ConflictError, match="another request is working"):
                await ask(gateway, [user("me too")], session=name)
        await slow
        assert (await ask(gateway, [user("context")], session=session))[0] == "6 messages"


async def test_twenty_conversations_at_once() -> None:
    async with open_api_gateway() as gateway:
        held = await asyncio.gather(
            *(talk(gateway, f"I am {number}", "slow 1", "history") for number in range(20))
        )
        assert len({session for _, session in held}) == 20
        for number, (messages, _) in enumerate(held):
            assert messages[-1]["content"].startswith(f"user: I am {number}|")


async def test_a_request_continues_a_conversation_by_name_or_id() -> None:
    async with open_api_gateway() as gateway:
        first, session = await ask(gateway, [user("one")], session="my notes")
        assert first == "you said: one"
        assert session != "my notes"
        answer = await ask(
            gateway, [user("not said"), assistant("nor this"), user("history")], session="my notes"
        )
        assert answer == ("user: one|assistant: you said: one", session)
        assert (await ask(gateway, [user("context")], session=session))[1] == session
    async with open_api_gateway() as gateway:
        assert (await ask(gateway, [user("context")], session="my notes")) == ("8 messages", session)
        assert gateway.db.session_count() == 1


async def test_a_named_session_can_be_extended_without_its_name() -> None:
    async with open_api_gateway() as gateway:
        answer, session = await ask(gateway, [user("one")], session="x")
        assert (await ask(gateway, [user("one"), assistant(answer), user("two")]))[1] == session


async def test_a_new_named_session_begins_with_the_history_of_the_request() -> None:
    async with open_api_gateway() as gateway:
        answer, _ = await ask(gateway, [user("before"), assistant("indeed"), user("history")], session="new")
        assert answer == "user: before|assistant: indeed"


async def test_an_id_from_before_a_compression_continues_the_conversation() -> None:
    async with open_api_gateway() as gateway:
        messages, session = await talk(gateway, "one", "two")
        store = gateway.db.scoped(Principal("api-server", gateway.db.get_session(session)["user_id"]))  # type: ignore[index]
        child = store.begin_continuation(session, "They counted.")
        reply, same = await ask(gateway, [user("history")], session=session)
        assert "They counted." in reply
        assert same == session
        assert [row["content"] for row in gateway.db.get_messages(child)][1:] == ["history", reply]
        extended = [*messages, user("history"), assistant(reply), user("context")]
        assert (await ask(gateway, extended))[1] == session
        async with gateway.http() as client:
            answer = await client.get(f"/api/sessions/{session}/latest-descendant")
            assert answer.json() == {"requested_session_id": session, "session_id": child, "changed": True}


async def test_a_name_that_cannot_be_one_is_refused_and_can_smuggle_nothing_into_headers() -> None:
    async with open_api_gateway() as gateway:
        assert gateway.adapter.port is not None
        for name in (b"x" * 201, b"", b"a\0b", b"a\rb", b"a\nb", b"a\x01b", b"a\x85b"):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.adapter.port)
            body = b'{"messages":[{"role":"user","content":"hi"}]}'
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                b"Authorization: Bearer %s\r\nX-Hermes-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s"
                % (KEY.encode(), name, len(body), body)
            )
            assert (await reader.readline()).startswith(b"HTTP/1.1 400 "), name
            writer.close()
            await writer.wait_closed()
        assert gateway.db.session_count() == 0
        assert (await ask(gateway, [user("hi")], session="x" * 200))[0] == "you said: hi"


async def test_a_session_in_the_trash_is_not_continued_by_name_or_history() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        answer, session = await ask(gateway, [user("one")], session="x")
        assert (await client.delete(f"/api/sessions/{session}")).json() == {"ok": True}
        body = {"model": "hermes", "messages": [user("two")]}
        response = await client.post("/v1/chat/completions", json=body, headers={SESSION: "x"})
        named = response.headers[SESSION]
        note = f"The session named x is in the trash. This continues in a new session, {named}."
        assert response.json()["hermes"]["notes"] == [note]
        _, by_id = await ask(gateway, [user("two")], session=session)
        _, extended = await ask(gateway, [user("one"), assistant(answer), user("two")])
        assert session not in {named, by_id, extended}
        assert len(gateway.db.get_messages(session, include_trashed=True)) == 2
        response = await client.post("/v1/chat/completions", json=body, headers={SESSION: "x"})
        assert response.headers[SESSION] == named
        assert "hermes" not in response.json()


async def test_a_rewound_conversation_is_extended_from_its_current_end() -> None:
    async with open_api_gateway() as gateway:
        messages, session = await talk(gateway, "one", "two")
        second = gateway.db.list_recent_user_messages(session, 1)[0]["id"]
        gateway.db.rewind_to_message(session, second)
        _, other = await ask(gateway, [*messages, user("three")])
        assert other != session
        assert (await ask(gateway, [*messages, user("three")]))[1] not in {session, other}
        assert await ask(gateway, [*messages[:2], user("context")]) == ("4 messages", session)


async def test_a_conversation_in_use_by_a_terminal_is_not_changed() -> None:
    async with open_api_gateway() as gateway:
        messages, session = await talk(gateway, "one")
        code = (
            "import sys; from hermes_state import SessionDB; db = SessionDB();"
            f"db.leases.acquire({session!r}, 'terminal', 600); print('held', flush=True); sys.stdin.read()"
        )
        terminal = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert terminal.stdout is not None
        assert terminal.stdin is not None
        assert await terminal.stdout.readline() == b"held\n"
        with pytest.raises(openai.ConflictError, match=rf"terminal \(process {terminal.pid}"):
            await ask(gateway, [user("two")], session=session)
        assert (await ask(gateway, [*messages, user("two")]))[1] != session
        assert gateway.db.message_count(session) == 2
        terminal.stdin.close()
        await terminal.wait()
        assert (await ask(gateway, [user("two")], session=session))[1] == session


# ---------------------------------------------------------------- disconnects and kills


@pytest.mark.parametrize("stream", [True, False])
async def test_a_disconnect_before_the_first_word_stops_the_tools(stream: bool) -> None:
    async with open_api_gateway() as gateway:
        async with gateway.http(**{SESSION: "mine"}) as client:
            body = {"messages": [user("use shout wait")], "stream": stream}
            asking = asyncio.create_task(client.post("/v1/chat/completions", json=body))
            while gateway.db.message_count() < 2:
                await asyncio.sleep(0.01)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        async with asyncio.timeout(60):
            while gateway.db.message_count() < 3:
                await asyncio.sleep(0.01)
        _, session = await ask(gateway, [user("hello")], session="mine", tries=5)
        rows = gateway.db.get_messages(session)
        assert [row["role"] for row in rows] == ["user", "assistant", "tool", "user", "assistant"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_disconnect_stops_the_answer_and_keeps_the_partial_text(stream: bool) -> None:
    async with open_api_gateway() as gateway:
        body = {"messages": [user("forever")], "stream": stream}
        async with gateway.http(**{SESSION: "mine"}) as client:
            asking = asyncio.create_task(client.post("/v1/chat/completions", json=body))
            await gateway.agents.model.has_spoken.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        async with asyncio.timeout(60):
            await gateway.agents.model.stopped.wait()
            while gateway.db.message_count() < 2:
                await asyncio.sleep(0.01)
        answer, session = await ask(gateway, [user("history")], session="mine", tries=5)
        assert answer.startswith("user: forever|assistant: 0 1 ")
        rows = gateway.db.get_messages(session)
        assert rows[1]["finish_reason"] == "interrupted"


async def test_a_shutdown_stops_a_running_answer_and_keeps_it() -> None:
    async with open_api_gateway(drain_seconds=0.2) as gateway:
        asking = asyncio.create_task(ask(gateway, [user("forever")]))
        await gateway.agents.model.has_spoken.wait()
    with pytest.raises((openai.APIStatusError, openai.APIConnectionError)):
        await asking
    db = SessionDB()
    assert [row["role"] for row in db.get_messages(db.search_sessions()[0]["id"])] == ["user", "assistant"]
    db.close()


async def test_a_shutdown_lets_a_running_answer_finish() -> None:
    async with open_api_gateway(drain_seconds=20.0) as gateway:
        asking = asyncio.create_task(ask(gateway, [user("slow 5")]))
        while gateway.db.message_count() < 1:
            await asyncio.sleep(0.01)
    assert (await asking)[0] == "0 1 2 3 4 "


async def test_a_kill_during_an_answer_loses_no_message() -> None:
    gateway = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.server.api_gateway",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert gateway.stdout is not None
    port = int(await gateway.stdout.readline())
    client = httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {KEY}"}, trust_env=False
    )
    async with client:
        first = await client.post("/v1/chat/completions", json={"messages": [user("one")]})
        session = first.headers[SESSION]
        messages = [user("one"), assistant(first.json()["choices"][0]["message"]["content"]), user("forever")]
        asking = asyncio.create_task(client.post("/v1/chat/completions", json={"messages": messages}))
        db = SessionDB()
        while db.message_count(session) < 3:
            await asyncio.sleep(0.01)
        os.kill(gateway.pid, signal.SIGKILL)
        await gateway.wait()
        with pytest.raises(httpx2.HTTPError):
            await asking
    db.close()
    async with open_api_gateway() as again:
        await ask(again, [user("two")], session=session)
        rows = [row["content"] for row in again.db.get_messages(session)]
        assert rows[:4] == ["one", "you said: one", "forever", "two"]


# ---------------------------------------------------------------- two people


async def test_a_key_gives_no_access_to_sessions_of_another() -> None:
    canary = "zanzibar"
    async with open_api_gateway({"keys": PEOPLE}) as gateway:
        messages, session = await talk(gateway, f"the word is {canary}", "keep it", key=ANNA)
        async with gateway.openai(ANNA) as client:
            made = await client.responses.create(model="hermes", input=f"again: {canary}")
        collected: list[str] = []
        for name in (session, "my notes", session[:8], "..x"):
            answer, other = await ask(gateway, [user("history")], session=name, key=BERT)
            assert other != session
            collected.append(answer)
        answer, other = await ask(gateway, [*messages, user("context")], key=BERT)
        # Bert's own text, in his own session
        assert (answer, other != session) == ("6 messages", True)
        async with gateway.http(BERT) as bert, gateway.http(ANNA) as anna:
            for path in ("", "/messages", "/latest-descendant"):
                theirs = await bert.get(f"/api/sessions/{session}{path}")
                nobodys = await bert.get(f"/api/sessions/nothing{path}")
                assert (theirs.status_code, theirs.content) == (404, nobodys.content)
                assert (await anna.get(f"/api/sessions/{session}{path}")).status_code == 200
            assert (await bert.delete(f"/api/sessions/{session}")).status_code == 404
            listed = (await bert.get("/api/sessions", params={"limit": 100})).json()
            assert session not in [one["id"] for one in listed["sessions"]]
            assert listed["total"] == 5
            await bert.delete(f"/api/sessions/{other}")  # Bert wrote the word there himself
            found = (await bert.get("/api/sessions/search", params={"q": canary})).json()
            assert found == {"results": []}
            assert (await anna.get("/api/sessions/search", params={"q": canary})).json()["results"]
            for previous in (made.id, made.id[:-2], "resp_x", "resp_" + "0" * 60):
                asked = await bert.post(
                    "/v1/responses", json={"input": "history", "previous_response_id": previous}
                )
                looked = await bert.get(f"/v1/responses/{previous}")
                deleted = await bert.delete(f"/v1/responses/{previous}")
                assert {asked.status_code, looked.status_code, deleted.status_code} == {404}
                collected += [asked.text, looked.text, deleted.text]
        assert canary not in "".join(collected)
        assert (await ask(gateway, [*messages, user("context")], key=ANNA)) == ("6 messages", session)


async def test_only_a_configured_owner_may_use_the_machine() -> None:
    async with open_api_gateway({"keys": PEOPLE}, owners=["anna"]) as gateway:
        for key in (ANNA, BERT, KEY):
            await ask(gateway, [user("hi")], key=key)
        assert [one.machine for one in gateway.agents.scope] == [True, False, False]
        assert len({one.owner for one in gateway.agents.scope}) == 3
        assert all(KEY not in one.owner for one in gateway.agents.scope)
