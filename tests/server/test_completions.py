"""Chat completions with the real OpenAI client, over real HTTP, with a real gateway."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import openai
import pytest
from openai import OpenAI

from hermes.server.request_handler import SESSION
from tests.server.api_gateway import KEY, ask, assistant, open_api_gateway, user

PICTURE = "data:image/png;base64," + base64.b64encode(b"\x89PNG" + b"x" * 100).decode()


async def test_a_question_is_answered_with_everything_a_client_looks_for() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        made = await client.chat.completions.create(model="hermes", messages=[user("hello")])
        assert made.object == "chat.completion"
        assert made.model == "hermes"
        assert made.id.startswith("chatcmpl-")
        assert made.choices[0].message.role == "assistant"
        assert made.choices[0].message.content == "you said: hello"
        assert made.choices[0].finish_reason == "stop"
        assert made.usage is not None
        assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens) == (2, 3, 5)


async def test_the_sync_client_works_too() -> None:
    async with open_api_gateway() as gateway:

        def talk() -> tuple[str, list[str], list[str]]:
            with OpenAI(base_url=f"{gateway.address}/v1", api_key=KEY) as client:
                whole = client.chat.completions.create(model="hermes", messages=[user("a b")])
                with client.chat.completions.create(
                    model="hermes", messages=[user("slow 3")], stream=True
                ) as stream:
                    pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
                return (
                    whole.choices[0].message.content or "",
                    pieces,
                    [one.id for one in client.models.list()],
                )

        whole, pieces, models = await asyncio.to_thread(talk)
        assert whole == "you said: a b"
        assert "".join(pieces) == "0 1 2 "
        assert models == ["hermes"]


async def test_a_stream_sends_the_answer_in_pieces_and_its_usage() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        stream = await client.chat.completions.create(
            model="hermes",
            messages=[user("slow 3")],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
        assert pieces == ["", "0 ", "1 ", "2 ", None]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        assert len({chunk.id for chunk in chunks}) == 1
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 3


async def test_a_stream_sends_its_usage_only_on_request() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        stream = await client.chat.completions.create(model="hermes", messages=[user("hi")], stream=True)
        assert all(chunk.choices for chunk in [chunk async for chunk in stream])


async def test_an_answer_of_several_steps_is_sent_and_stored_as_one() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        messages = [user("use shout loud")]
        whole, session = await ask(gateway, messages)
        assert whole == "the tool said: LOUD"
        stream = await client.chat.completions.create(model="hermes", messages=messages, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == whole
        assert await ask(gateway, [*messages, assistant(whole), user("context")], session=session) == (
            "6 messages",
            session,
        )


async def test_models_are_listed_and_found_by_name() -> None:
    async with open_api_gateway({"model_name": "mine"}) as gateway, gateway.openai() as client:
        assert [one.id for one in (await client.models.list()).data] == ["mine"]
        assert (await client.models.retrieve("mine")).owned_by == "hermes"
        with pytest.raises(openai.NotFoundError, match="there is no model 'hermes' here; there is 'mine'"):
            await client.models.retrieve("hermes")
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="gpt-9", messages=[user("hi")])


async def test_the_instructions_of_a_program_are_in_the_prompt_and_can_be_changed() -> None:
    async with open_api_gateway() as gateway:
        system: dict[str, Any] = {"role": "system", "content": "Speak like a pirate."}
        first, session = await ask(gateway, [system, user("prompt")])
        assert "Speak like a pirate." in first
        again, same = await ask(gateway, [system, user("prompt"), assistant(first), user("prompt")])
        assert (again, same) == (first, session)
        developer: dict[str, Any] = {"role": "developer", "content": "Speak like a judge."}
        third = [user("prompt"), assistant(first), user("prompt"), assistant(again), user("prompt")]
        answer, still = await ask(gateway, [developer, *third])
        assert still == session
        assert "judge" in answer
        assert "pirate" not in answer
        kept, _ = await ask(gateway, [user("prompt")], session=session)
        assert kept == answer  # a request that names a session without instructions keeps the existing ones


async def test_pictures_reach_the_model_and_are_part_of_the_history() -> None:
    async with open_api_gateway() as gateway:
        parts = [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": PICTURE}},
        ]
        message: dict[str, Any] = {"role": "user", "content": parts}
        answer, session = await ask(gateway, [message])
        assert answer == "1 pictures"
        assert (await ask(gateway, [message, assistant(answer), user("hi")]))[1] == session
        other = [parts[0], {"type": "image_url", "image_url": {"url": PICTURE + "AAAA"}}]
        changed: dict[str, Any] = {"role": "user", "content": other}
        assert (await ask(gateway, [changed, assistant(answer), user("hi")]))[1] != session


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"messages": [user("hi")], "tools": [{"type": "function"}]},
        "client tools are not supported",
    ),
    ({"messages": [user("hi")], "functions": [{"name": "f"}]}, "client tools are not supported"),
    ({"messages": [user("hi")], "n": 2}, "n must be 1"),
    ({"messages": [user("hi")], "response_format": {"type": "json_object"}}, "response_format"),
    ({"messages": []}, "must be a list of messages"),
    ({}, "must be a list of messages"),
    ({"messages": [assistant("hi")]}, "the last message must be the user's"),
    ({"messages": [user("  ")]}, "the last message is empty"),
    ({"messages": [{"role": "user"}]}, "content is missing"),
    (
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}, user("x")]},
        "client tools",
    ),
    ({"messages": [{"role": "king", "content": "x"}]}, "role must be"),
    ({"messages": ["x"]}, "must be a message"),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "not supported here"),
    (
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///x"}}]}
            ]
        },
        "a picture is a URL",
    ),
    ({"messages": [user("hi")], "stream_options": 7}, "stream_options"),
]


async def test_an_invalid_request_is_refused_and_stores_nothing() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        for body, why in REFUSED:
            answer = await client.post("/v1/chat/completions", json={"model": "hermes", **body})
            assert answer.status_code == 400, body
            error = answer.json()["error"]
            assert why in error["message"], body
            assert error["type"] == "invalid_request_error"
        assert gateway.db.session_count() == 0


async def test_a_body_that_is_not_json_or_too_large_is_refused() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        for body in (b"{", b"[1]", b'"x"', b"\xff"):
            answer = await client.post("/v1/chat/completions", content=body)
            assert answer.status_code == 400
            assert "JSON" in answer.json()["error"]["message"]
        answer = await client.post("/v1/chat/completions", content=b" " * (33 * 1024 * 1024))
        assert answer.status_code == 413
        assert answer.json()["error"]["message"] == "the request is too large"


async def test_an_error_of_the_model_has_a_status_and_one_line() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(model="hermes", messages=[user("fail")])
        assert caught.value.status_code == 503
        assert caught.value.body["message"] == "The model is not available just now."  # type: ignore[index]
        session = caught.value.response.headers[SESSION]
        assert [row["content"] for row in gateway.db.get_messages(session)] == ["fail"]
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(model="hermes", messages=[user("fail")], stream=True)
        assert caught.value.status_code == 503


async def test_the_owner_of_the_machine_reads_why_the_model_fails() -> None:
    async with open_api_gateway(owners=["*"]) as gateway, gateway.openai() as client:
        with pytest.raises(openai.APIStatusError, match="nobody answers at http://localhost:1"):
            await client.chat.completions.create(model="hermes", messages=[user("fail")])


async def test_an_internal_error_reveals_nothing() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model="hermes", messages=[user("break")])
        assert "ZeroDivisionError" not in str(caught.value)
        assert (await ask(gateway, [user("hello")]))[0] == "you said: hello"


async def test_a_failure_during_a_stream_is_sent_in_the_stream() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        stream = await client.chat.completions.create(model="hermes", messages=[user("crack")], stream=True)
        collected: list[str | None] = []

        async def listen() -> None:
            async for chunk in stream:
                collected.append(chunk.choices[0].delta.content)  # noqa: PERF401  it ends in the middle

        with pytest.raises(openai.APIError, match="The model is not available just now"):
            await listen()
        assert collected == ["", "so far"]


async def test_an_answer_that_starts_again_is_whole_and_a_stream_says_so() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        assert (await ask(gateway, [user("stumble")]))[0] == "right"
        stream = await client.chat.completions.create(model="hermes", messages=[user("stumble")], stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == "wrong\n\n[the answer broke off here; it starts again]\n\nright"


async def test_a_question_that_got_no_answer_is_not_asked_twice() -> None:
    """Clients send a request again if it fails. The question is then stored only once."""
    async with open_api_gateway() as gateway:
        hello, session = await ask(gateway, [user("hello")])
        gateway.agents.model.failing = 1
        more = [user("hello"), assistant(hello), user("history")]
        async with gateway.openai(max_retries=0) as client:
            with pytest.raises(openai.APIStatusError):
                await client.chat.completions.create(model="hermes", messages=more)
        answer, same = await ask(gateway, more)
        assert same == session
        assert answer == "user: hello|assistant: you said: hello"
        gateway.agents.model.failing = 1
        with pytest.raises(openai.APIStatusError):
            await ask(gateway, [user("first words")])
        _, begun = await ask(gateway, [user("first words")])
        rows = gateway.db.get_messages(begun)
        assert [row["role"] for row in rows] == ["user", "assistant"]
        assert gateway.db.session_count() == 2


async def test_a_rate_limit_says_when_to_retry() -> None:
    async with open_api_gateway(messages_per_minute=2) as gateway, gateway.http() as client:
        body = {"model": "hermes", "messages": [user("hi")]}
        for status in (200, 200, 429):
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == status
        assert answer.headers["retry-after"] == "30"
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert (await client.get("/v1/models")).status_code == 200


async def test_a_stream_has_the_format_of_server_sent_events() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        body = {"model": "hermes", "messages": [user("hi")], "stream": True}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        events = answer.text.split("\n\n")
        assert events[-1] == ""
        assert events[-2] == "data: [DONE]"
        assert all(json.loads(event.removeprefix("data: "))["choices"] for event in events[:-2])
