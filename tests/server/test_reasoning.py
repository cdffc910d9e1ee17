"""Reasoning and truncated answers, in chat completions and in responses."""

from __future__ import annotations

from hermes.agent.answer import RECAST, Answer
from hermes.agent.events import Event, Recast, TextDelta
from hermes.agent.models.finish_reasons import CUT_AT_LENGTH
from tests.server.api_gateway import ask, assistant, open_api_gateway, stream_to_client, user

ANSWER = "the List<String>\nof it"
THOUGHT = "one\ntwo\nthree\nfour\nfive"


async def test_reasoning_has_a_field_of_its_own_whole_and_streamed() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        made = await client.chat.completions.create(model="hermes", messages=[user("think length")])
        assert made.choices[0].message.content == ANSWER
        assert made.choices[0].message.model_dump()["reasoning_content"] == THOUGHT
        assert made.choices[0].finish_reason == "length"
        assert made.model_dump()["hermes"]["notes"] == [CUT_AT_LENGTH]
        stream = await client.chat.completions.create(
            model="hermes", messages=[user("think content_filter")], stream=True
        )
        deltas = [chunk.choices[0] async for chunk in stream]
        assert "".join(one.delta.content or "" for one in deltas) == ANSWER
        pieces = [one.delta.model_dump().get("reasoning_content") or "" for one in deltas]
        assert "".join(pieces) == THOUGHT
        assert deltas[-1].finish_reason == "content_filter"


async def test_a_client_that_sends_the_answer_back_is_in_its_conversation() -> None:
    async with open_api_gateway() as gateway:
        messages = [user("think")]
        answer, session = await ask(gateway, messages)
        assert answer == ANSWER
        rows = gateway.db.get_messages(session)
        assert rows[-1]["content"] == f"<think>{THOUGHT}</think>\n\n{ANSWER}"
        assert await ask(gateway, [*messages, assistant(answer), user("more")]) == ("you said: more", session)


async def test_a_response_that_was_cut_short_is_incomplete() -> None:
    async with open_api_gateway() as gateway, gateway.openai() as client:
        made = await client.responses.create(model="hermes", input="think length")
        assert made.output_text == ANSWER
        assert made.status == "incomplete"
        assert made.incomplete_details is not None
        assert made.incomplete_details.reason == "max_output_tokens"
        again = await client.responses.retrieve(made.id)
        assert (again.output_text, again.status) == (ANSWER, "incomplete")
        stream = await client.responses.create(model="hermes", input="think content_filter", stream=True)
        seen = [event async for event in stream]
        assert seen[-1].type == "response.incomplete"
        whole = await client.responses.create(model="hermes", input="think")
        assert whole.status == "completed"


def test_reasoning_without_an_opening_tag_is_removed_from_the_answer() -> None:
    answer = Answer()
    events: list[Event] = [TextDelta("a plan"), Recast("a plan\n"), TextDelta("yes")]
    heard = stream_to_client(answer, events)
    assert heard == ["a plan", "", f"{RECAST}yes"], "a client that reads along has the plan already"
    assert (answer.whole_text, answer.reasoning) == ("yes", "a plan\n")
