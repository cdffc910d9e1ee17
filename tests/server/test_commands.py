"""Slash commands over the API. They are the same commands as on every surface, and their results are data."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, get_args

import httpx2
import openai
import pytest

from hermes.agent.components import AgentComponents
from hermes.agent.events import Event, Moved, Note
from hermes.conversation.agents import AgentScope, LiveRecord, PreparedAgent
from hermes.conversation.commands import replies
from hermes.conversation.commands.shared_commands import COMMANDS
from hermes.db.session_db import AnyStore
from hermes.server.commands_api import NOT_SERVED, name_kind
from hermes.server.idempotency import HEADER
from hermes.server.request_handler import SESSION
from hermes_state import SessionDB
from tests.chat.echo import PARTS
from tests.server.api_gateway import (
    ANNA,
    BERT,
    KEY,
    PEOPLE,
    ApiGateway,
    ParrotAgents,
    ask,
    open_api_gateway,
    user,
)

Client = httpx2.AsyncClient


async def send(
    client: Client, session: str, command: str, headers: dict[str, str] | None = None, **body: Any
) -> httpx2.Response:
    sent = {"command": command, **body}
    return await client.post(f"/api/sessions/{session}/commands", json=sent, headers=headers)


async def run(client: Client, session: str, command: str, **body: Any) -> dict[str, Any]:
    answer = await send(client, session, command, **body)
    assert answer.status_code == 200, answer.text
    reply: dict[str, Any] = answer.json()
    assert reply["requested_session_id"] == session
    assert reply["changed"] == (reply["session_id"] != session)
    return reply


async def refuse(client: Client, session: str, command: str, status: int, code: str | None) -> str:
    answer = await send(client, session, command)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), answer.text
    assert "\n" not in error["message"]
    return str(error["message"])


def list_contents(gateway: ApiGateway, session: str) -> list[Any]:
    return [row["content"] for row in gateway.db.get_context(session)]


async def talk(gateway: ApiGateway, *texts: str, session: str = "mine") -> str:
    """Send each text in the session that the client calls `session`. Return the id of that session."""
    session_id = ""
    for text in texts:
        _, session_id = await ask(gateway, [user(text)], session=session)
    return session_id


async def test_every_shared_command_is_served_or_has_a_reason_why_not() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        mine = await talk(gateway, "apples")
        listed = {
            command["name"]: command for command in (await client.get("/api/commands")).json()["commands"]
        }
        for command in COMMANDS:
            if reason := NOT_SERVED.get(command.name):
                assert command.name not in listed
                assert reason in await refuse(client, mine, f"/{command.name}", 400, "command_refused")
                continue
            assert listed[command.name]["usage"] == command.usage
            assert listed[command.name]["description"] == command.summary
            words = {"search": " apples"}.get(command.name, "")
            reply = await run(client, mine, f"/{command.name}{words}")
            assert reply["command"] == command.name
            assert reply["kind"] in {name_kind_of(kind) for kind in get_args(replies.Reply)}
            assert reply["text"].strip()
            # the command may have switched to another session of the same conversation
            await talk(gateway, "pears")


def name_kind_of(kind: type) -> str:
    return name_kind(kind.__new__(kind, *[None] * len(kind._fields)))  # type: ignore[attr-defined]


async def test_undo_and_redo_change_the_stored_messages() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        mine = await talk(gateway, "one", "two", "three")
        reply = await run(client, mine, "/undo 2")
        assert reply["kind"] == "took_back"
        assert reply["data"] == {"messages": 4, "content": "two", "exchanges": 2}
        assert "`/redo` brings it back" in reply["text"]
        assert (reply["session_id"], reply["changed"]) == (mine, False)
        assert list_contents(gateway, mine) == ["one", "you said: one"]
        assert (await run(client, mine, "/redo"))["data"] == {"messages": 4}
        assert len(list_contents(gateway, mine)) == 6
        assert (await run(client, mine, "rewind"))["data"]["rows"][0]["preview"] == "three"
        await run(client, mine, "/REWIND 1")
        assert len(list_contents(gateway, mine)) == 4
        answer, _ = await ask(gateway, [user("history")], session=mine)
        assert answer == "user: one|assistant: you said: one|user: two|assistant: you said: two"


async def test_a_request_continues_the_conversation_after_an_undo() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        messages = [user("one")]
        answer, session = await ask(gateway, messages)
        messages += [{"role": "assistant", "content": answer}, user("two")]
        await ask(gateway, messages)
        await run(client, session, "/undo")
        assert (await ask(gateway, [*messages[:2], user("context")]))[1] == session


async def test_titles_lists_and_searches() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        mine = await talk(gateway, "talk of apples")
        other = await talk(gateway, "talk of pears", session="other")
        assert (await run(client, mine, "/title Fruit"))["data"] == {"title": "Fruit", "is_queued": False}
        assert gateway.db.get_session_title(mine) == "Fruit"
        assert (await run(client, mine, "/title"))["data"]["title"] == "Fruit"
        assert "Fruit" in await refuse(client, other, "/title Fruit", 400, None)
        reply = await run(client, mine, "/sessions")
        rows = {row["id"]: row for row in reply["data"]["rows"]}
        assert rows.keys() == {mine, other}
        assert not {"system_prompt", "owner", "origin_json"} & rows[mine].keys()
        reply = await run(client, mine, "/search apples")
        assert [row["id"] for row in reply["data"]["rows"]] == [mine]
        assert reply["data"]["are_nearest"] is False
        reply = await run(client, other, "/resume Fruit")
        assert (reply["kind"], reply["session_id"], reply["changed"]) == ("switched", mine, True)
        assert (await run(client, mine, "/resume fruit"))["kind"] == "already_here"
        history = (await run(client, mine, "/history"))["data"]["rows"]
        assert [row["content"] for row in history] == ["talk of apples", "you said: talk of apples"]
        used = (await run(client, mine, "/usage"))["data"]["used"]
        assert used["total"]["calls"] == 1
        assert "never" in (await run(client, mine, "/status"))["text"]


async def test_a_conversation_moves_with_new_and_branch() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        mine = await talk(gateway, "one")
        reply = await run(client, mine, "/branch Elsewhere")
        branch = reply["session_id"]
        assert (reply["kind"], reply["changed"], reply["data"]["left_id"]) == ("branched", True, mine)
        assert gateway.db.get_session_title(branch) == "Elsewhere"
        answer, session = await ask(gateway, [user("context")], session=branch)
        assert (answer, session) == ("4 messages", branch)
        reply = await run(client, branch, "/new Afresh")
        fresh = reply["session_id"]
        assert (reply["kind"], reply["data"]["left"]["id"]) == ("started", branch)
        assert gateway.db.get_session_title(fresh) == "Afresh"
        assert list_contents(gateway, fresh) == []
        back = await run(client, fresh, "/undo")
        assert (back["kind"], back["session_id"]) == ("start_undone", branch)
        assert (await ask(gateway, [user("context")], session=branch))[0] == "6 messages"
        assert list_contents(gateway, mine) == ["one", "you said: one"]


async def test_the_last_question_is_asked_again() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        mine = await talk(gateway, "one", "two")
        reply = await run(client, mine, "/retry")
        assert (reply["kind"], reply["session_id"]) == ("ask_again", mine)
        completion = reply["completion"]
        assert completion["object"] == "chat.completion"
        assert completion["choices"][0]["message"]["content"] == "you said: two"
        assert list_contents(gateway, mine) == ["one", "you said: one", "two", "you said: two"]
        streamed = await send(client, mine, "/retry", stream=True)
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert streamed.headers[SESSION] == mine
        events = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: ")]
        chunks = [json.loads(event)["choices"][0]["delta"].get("content", "") for event in events[:-1]]
        assert "".join(chunks) == "you said: two"
        assert events[-1] == "[DONE]"
        gateway.agents.model.failing = 1
        assert "not available" in await refuse(client, mine, "/retry", 503, "model_unavailable")
        assert list_contents(gateway, mine) == ["one", "you said: one", "two"]
        await run(client, mine, "/retry")
        assert list_contents(gateway, mine) == ["one", "you said: one", "two", "you said: two"]


async def test_a_running_answer_refuses_changes_and_is_stopped() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        mine = await talk(gateway, "one")
        other = await talk(gateway, "elsewhere", session="other")
        async with gateway.openai(max_retries=2) as asking:
            answering = asyncio.create_task(
                asking.chat.completions.create(
                    model="hermes", messages=[user("forever")], extra_headers={SESSION: mine}
                )
            )
            await gateway.agents.model.has_spoken.wait()
            for command in ("/undo", "/title Fruit", "/retry", "/new", "/compress", "/branch"):
                await refuse(client, mine, command, 409, "session_busy")
            await refuse(client, other, f"/resume {mine}", 409, "session_busy")
            assert "Working" in (await run(client, mine, "/status"))["text"]
            assert (await run(client, mine, "/stop"))["data"]["turn"] is True
            with pytest.raises(openai.ConflictError, match="stopped by /stop"):
                await answering
        assert list_contents(gateway, mine)[:3] == ["one", "you said: one", "forever"]
        assert len(list_contents(gateway, mine)) == 4  # the client did not send the request again
        assert (await run(client, mine, "/stop"))["data"]["turn"] is False
        await run(client, mine, "/undo")


async def test_a_conversation_in_use_by_another_process_is_busy() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        mine = await talk(gateway, "one")
        code = (
            "import sys; from hermes_state import SessionDB; db = SessionDB();"
            " db.leases.acquire(sys.argv[1], 'terminal'); print('held', flush=True); sys.stdin.read()"
        )
        holder = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, mine),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert await holder.stdout.readline() == b"held\n"
        assert "terminal" in await refuse(client, mine, "/undo", 409, "session_busy")
        assert (await run(client, mine, "/history"))["data"]["rows"]
        holder.stdin.close()
        await holder.wait()
        await run(client, mine, "/undo")


async def test_a_repeated_request_is_done_once() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        mine = await talk(gateway, "one", "two", "three")
        key = {HEADER: "a1"}
        first, second = await asyncio.gather(*(send(client, mine, "/undo", key) for _ in range(2)))
        third = await send(client, mine, "/undo", key)
        assert first.json() == second.json() == third.json()
        assert len(list_contents(gateway, mine)) == 4
        other = await send(client, mine, "/undo 2", key)
        assert (other.status_code, other.json()["error"]["code"]) == (400, "idempotency_key_reused")
        failed = await send(client, mine, "/undo x", {HEADER: "a2"})
        assert failed.status_code == 400
        assert (await send(client, mine, "/undo", {HEADER: "x" * 201})).status_code == 400
        assert (await send(client, mine, "/undo", {HEADER: "a3"})).status_code == 200
        assert list_contents(gateway, mine) == ["one", "you said: one"]


async def test_an_error_is_one_line() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        mine = await talk(gateway, "one")
        assert "Usage: `/undo" in await refuse(client, mine, "/undo x", 400, "command_refused")
        assert "/search" in await refuse(client, mine, "/search", 400, "command_refused")
        assert "same model" in await refuse(client, mine, "/model gpt", 400, "command_refused")
        await refuse(client, mine, "/search " + "a-b " * 40, 400, "query_too_long")
        await refuse(client, mine, "/compress " + "x" * 2001, 400, None)
        await refuse(client, mine, "/resume nothing", 404, "session_not_found")
        await refuse(client, "nothing", "/undo", 404, "session_not_found")
        hint = "`GET /api/commands` lists the commands."
        for typed, text in {
            "/nonsense": f"There is no `/nonsense`. {hint}",
            "/undoo": f"There is no `/undoo`. Did you mean `/undo`? {hint}",
        }.items():
            assert await refuse(client, mine, typed, 404, "command_not_found") == text
        bodies: list[Any] = [{}, {"command": 1}, {"command": ""}, {"command": "/etc/hosts"}, []]
        for body in bodies:
            answer = await client.post(f"/api/sessions/{mine}/commands", json=body)
            assert answer.status_code == 400, body
        assert (await client.get(f"/api/sessions/{mine}/commands")).status_code == 405
        await run(client, mine, "/undo")
        reply = await run(client, mine, "/branch")
        assert (reply["kind"], reply["text"]) == (
            "nothing_said",
            "Nothing was said here yet. There is nothing to branch from.",
        )


async def test_sessions_of_other_people_are_not_visible() -> None:
    async with open_api_gateway({"keys": PEOPLE}) as gateway:
        _, session = await ask(gateway, [user("zanzibar")], key=ANNA)
        _, own = await ask(gateway, [user("mine")], key=BERT)
        async with gateway.http(BERT) as bert, gateway.http(ANNA) as anna:
            for command in ("/undo", "/history", "/stop", "/new", "/retry"):
                theirs, nobodys = [
                    await send(bert, name, command) for name in (session, "20260101_000000_abcdef")
                ]
                assert (theirs.status_code, theirs.content) == (404, nobodys.content)
            for command in (f"/resume {session}", "/resume zanzibar", "/search zanzibar", "/sessions"):
                assert "zanzibar" not in (await send(bert, own, command)).text.replace(command, "")
            assert (await run(anna, session, "/history"))["data"]["rows"]


class ShortCompressor:
    def __init__(self, record: Any) -> None:
        self._record = record

    async def compress_by_hand(self, focus: str | None = None) -> AsyncIterator[Event]:
        rows = await self._record.context()
        if focus == "slowly":
            await asyncio.sleep(0.5)
        yield Note(f"About {focus}")
        await self._record.continue_with(
            "a summary", head=(), carried=[row["id"] for row in rows[-2:]], prompt="Repeat."
        )
        yield Moved(self._record.session_id, len(rows), 3)


class CompressingAgents(ParrotAgents):
    def get_components(self, _scope: AgentScope) -> AgentComponents:
        return PARTS._replace(memory=lambda: "likes tea", skills=lambda: [("brew", "makes tea")])

    async def prepare_agent(self, scope: AgentScope, store: AnyStore, record: LiveRecord) -> PreparedAgent:
        prepared = await super().prepare_agent(scope, store, record)
        return prepared._replace(compressor=ShortCompressor(record))  # type: ignore[arg-type]


async def test_after_a_compression_the_old_and_the_new_id_work() -> None:
    async with open_api_gateway(agents=CompressingAgents()) as gateway, gateway.http() as client:
        mine = await talk(gateway, "one", "two", "three")
        answer = await send(client, mine, "/compress the tea")
        reply = answer.json()
        assert reply["kind"] == "compressing"
        note, moved = reply["data"]["events"]
        assert (note["kind"], note["text"]) == ("note", "About the tea")
        assert (moved["kind"], moved["before"], moved["after"]) == ("moved", 6, 3)
        assert reply["session_id"] == moved["session_id"] != mine
        assert answer.headers[SESSION] == mine
        assert "6 → 3 messages" in reply["text"]
        for name in (mine, reply["session_id"]):
            await run(client, name, "/undo 1" if name == mine else "/redo")
        assert (await ask(gateway, [user("context")], session=mine))[0] == "4 messages"
        assert (await run(client, mine, "/memory"))["data"] == {"text": "likes tea"}
        assert (await run(client, mine, "/skills"))["data"] == {"entries": [["brew", "makes tea"]]}


async def test_a_shutdown_waits_for_a_compression() -> None:
    async with open_api_gateway(agents=CompressingAgents(), drain_seconds=20.0) as gateway:
        mine = await talk(gateway, "one", "two", "three")
        async with gateway.http() as client:
            compressing = asyncio.create_task(send(client, mine, "/compress slowly"))
            while gateway.db.leases.find_holder(mine) is None:
                await asyncio.sleep(0.01)
            await gateway.app.close()
            with suppress(httpx2.HTTPError):  # the connection may be closed by then
                await compressing
        db = SessionDB()
        assert db.get_compression_tip(mine) != mine
        db.close()


async def test_the_status_command_does_not_count_as_a_message() -> None:
    async with open_api_gateway(messages_per_minute=2) as gateway, gateway.http() as client:
        db: SessionDB = gateway.db
        principal = gateway.adapter._keys.find_person(f"Bearer {KEY}")
        assert principal is not None
        mine = db.scoped(principal.principal).create_session()
        for _ in range(5):
            await run(client, mine, "/status")
        codes = [(await send(client, mine, "/title x")).status_code for _ in range(3)]
        assert codes == [200, 200, 429]
