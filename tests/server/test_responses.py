"""The responses interface with the real client. Responses are created, streamed, continued, retrieved and
deleted.
"""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from openai import OpenAI

from hermes.server.request_handler import SESSION
from tests.gateway.loopback_server import served
from tests.server.api_gateway import KEY, ask, assistant, open_api_gateway, user
from tests.server.picture_server import PictureServer


async def test_a_response_has_everything_a_client_looks_for() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        made = await client.responses.create(model="hermes", input="hello", metadata={"a": "b"})
        assert made.object == "response"
        assert made.status == "completed"
        assert made.output_text == "you said: hello"
        assert made.metadata == {"a": "b"}
        assert made.usage is not None
        assert (made.usage.input_tokens, made.usage.output_tokens, made.usage.total_tokens) == (2, 3, 5)
        again = await client.responses.retrieve(made.id)
        assert (again.id, again.output_text, again.status) == (made.id, made.output_text, "completed")
        assert again.output[0].id == made.output[0].id


async def test_responses_continue_each_other_also_after_a_restart() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        first = await client.responses.create(model="hermes", input="one")
        second = await client.responses.create(model="hermes", input="two", previous_response_id=first.id)
        assert second.previous_response_id == first.id
    async with open_api_gateway() as gateway, gateway.openai() as client:
        third = await client.responses.create(model="hermes", input="history", previous_response_id=second.id)
        assert third.output_text == "user: one|assistant: you said: one|user: two|assistant: you said: two"
        assert (await client.responses.retrieve(first.id)).output_text == "you said: one"
        assert gateway.db.session_count() == 1


async def test_continuing_an_earlier_response_creates_a_branch() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        first = await client.responses.create(model="hermes", input="one")
        second = await client.responses.create(model="hermes", input="two", previous_response_id=first.id)
        other = await client.responses.create(model="hermes", input="history", previous_response_id=first.id)
        assert other.output_text == "user: one|assistant: you said: one"
        more = await client.responses.create(model="hermes", input="history", previous_response_id=other.id)
        assert more.output_text.startswith("user: one|assistant: you said: one|user: history|")
        assert "two" not in more.output_text
        back = await client.responses.create(model="hermes", input="context", previous_response_id=second.id)
        assert back.output_text == "6 messages"
        assert gateway.db.session_count() == 2


async def test_a_stream_has_the_events_of_the_real_one_in_their_order() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        stream = await client.responses.create(model="hermes", input="slow 2", stream=True)
        events = [event async for event in stream]
        assert [event.type for event in events] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        assert [event.sequence_number for event in events] == list(range(10))
        first, last = events[0], events[-1]
        assert first.type == "response.created"
        assert last.type == "response.completed"
        assert first.response.id == last.response.id
        assert last.response.output_text == "0 1 "
        assert last.response.usage is not None
        after = await client.responses.create(
            model="hermes", input="history", previous_response_id=last.response.id
        )
        assert after.output_text == "user: slow 2|assistant: 0 1"


async def test_the_sync_clients_own_way_of_streaming_works() -> None:

    async with open_api_gateway() as gateway:

        def talk() -> tuple[str, str]:
            with (
                OpenAI(base_url=f"{gateway.address}/v1", api_key=KEY) as client,
                client.responses.stream(model="hermes", input="slow 2") as stream,
            ):
                answer = "".join(one.delta for one in stream if one.type == "response.output_text.delta")
                return answer, stream.get_final_response().output_text

        assert await asyncio.to_thread(talk) == ("0 1 ", "0 1 ")


async def test_a_stream_that_fails_says_so() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        stream = await client.responses.create(model="hermes", input="crack", stream=True)
        last = [event async for event in stream][-1]
        assert last.type == "response.failed"
        assert last.response.error is not None
        assert last.response.error.message == "The model is not available just now."
        with pytest.raises(openai.APIStatusError) as caught:
            await client.responses.create(model="hermes", input="fail", stream=True)
        assert caught.value.status_code == 503


async def test_instructions_are_those_of_each_request() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        first = await client.responses.create(model="hermes", input="prompt", instructions="Be a pirate.")
        assert "Be a pirate." in first.output_text
        assert first.instructions == "Be a pirate."
        second = await client.responses.create(model="hermes", input="prompt", previous_response_id=first.id)
        assert "pirate" not in second.output_text
        for more in ("Be a judge. Be brief.", "Be a judge."):
            third = await client.responses.create(
                model="hermes", input="prompt", previous_response_id=second.id, instructions=more
            )
            assert f"\n\n{more}\n\n" in third.output_text
            second = third


async def test_input_can_be_a_list_of_items_with_pictures() -> None:
    async with (
        served(PictureServer().app) as there,
        open_api_gateway({"picture_hosts": there.removeprefix("http://")}) as gateway,
        gateway.openai() as client,
    ):
        items: Any = [
            {"role": "developer", "content": "Count."},
            {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "and this?"},
                    {"type": "input_image", "detail": "auto", "image_url": f"{there}/x.png"},
                ],
            },
        ]
        made = await client.responses.create(model="hermes", input=items)
        assert made.output_text == "1 pictures"
        answer = await client.responses.create(model="hermes", input="context", previous_response_id=made.id)
        assert answer.output_text == "6 messages"


async def test_several_messages_after_a_response_are_all_stored() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        first = await client.responses.create(model="hermes", input="one")
        items = [user("one"), assistant("you said: one"), user("history")]
        text = "user: one|assistant: you said: one|user: one|assistant: you said: one"
        for _ in range(2):  # the second request continues in a branch
            made = await client.responses.create(model="hermes", input=items, previous_response_id=first.id)
            assert made.output_text == text
        assert gateway.db.session_count() == 2


async def test_a_response_that_is_not_stored_is_not_listed_and_cannot_be_continued() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client, gateway.http() as http:
        made = await client.responses.create(model="hermes", input="a secret", store=False)
        assert made.output_text == "you said: a secret"
        assert (await http.get("/api/sessions")).json()["total"] == 0
        assert (await http.get("/api/sessions/search", params={"q": "secret"})).json() == {"results": []}
        for asking in (client.responses.retrieve(made.id), client.responses.delete(made.id)):
            with pytest.raises(openai.NotFoundError):
                await asking
        kept = await client.responses.create(model="hermes", input="known")
        fleeting = await client.responses.create(
            model="hermes", input="history", previous_response_id=kept.id, store=False
        )
        assert fleeting.output_text == "user: known|assistant: you said: known"
        after = await client.responses.create(model="hermes", input="context", previous_response_id=kept.id)
        assert after.output_text == "4 messages"


async def test_a_response_that_is_deleted_is_taken_out_of_the_conversation() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        first = await client.responses.create(model="hermes", input="one")
        second = await client.responses.create(model="hermes", input="two", previous_response_id=first.id)
        with pytest.raises(openai.ConflictError, match="later responses build on this one"):
            await client.responses.delete(first.id)
        await client.responses.delete(second.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(second.id)
        third = await client.responses.create(model="hermes", input="history", previous_response_id=first.id)
        assert third.output_text == "user: one|assistant: you said: one"
        for made in (third, first):
            await client.responses.delete(made.id)
        assert gateway.db.session_count() == 0
        assert len(gateway.db.list_trash()) == 1


async def test_a_response_can_be_in_a_named_session_and_be_extended_by_completions() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        raw = await client.responses.with_raw_response.create(
            model="hermes", input="one", extra_headers={SESSION: "mine"}
        )
        session = raw.headers[SESSION]
        answer = raw.parse().output_text
        assert (await ask(gateway, [user("one"), assistant(answer), user("context")])) == (
            "4 messages",
            session,
        )


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": "x", "tools": [{"type": "web_search"}]}, "client tools"),
    ({"input": "x", "background": True}, "background"),
    ({"input": "x", "conversation": "c"}, "conversation"),
    ({"input": "x", "text": {"format": {"type": "json_object"}}}, "text.format"),
    ({"input": "x", "instructions": 7}, "instructions"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "function_call_output"),
    ({"input": ""}, "the last message is empty"),
    ({}, "must be a list"),
]


async def test_an_invalid_request_is_refused() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        for body, why in REFUSED:
            answer = await client.post("/v1/responses", json=body)
            assert answer.status_code == 400, body
            assert why in answer.json()["error"]["message"], body
        assert gateway.db.session_count() == 0


async def test_a_name_and_a_previous_response_contradict_each_other() -> None:
    async with open_api_gateway() as gateway, gateway.http(**{SESSION: "x"}) as client:
        for body in ({"previous_response_id": "resp_x"}, {"store": False}):
            answer = await client.post("/v1/responses", json={"input": "hi", **body})
            assert answer.status_code == 400
