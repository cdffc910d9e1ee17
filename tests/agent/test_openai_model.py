"""Models over HTTP: requests, responses and failures."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.models import model as models
from hermes.agent.models.model import CallPiece, Finished, Piece, Request, Retrying, Text, Thought, Used
from hermes.agent.models.openai import OpenAIModel
from hermes.agent.models.provider_errors import find_message, parse_retry_after
from tests.agent.openai_server import DROP, ModelServer, Reply, calls, chunk, refuses, says, usage

KEY = "sk-" + "proj-" + "MadeUpForThisTest0123456789"
HELLO = Request([{"role": "user", "content": "hello"}])
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "look", "parameters": {"type": "object"}},
}
DONE = b"data: [DONE]\n\n"
FIELDS = st.sampled_from(["message", "error", "detail", "metadata", "raw", "code", "type"])


def opened(server: ModelServer, name: str = "small-model", **settings: Any) -> OpenAIModel:
    return OpenAIModel(name, **{"base_url": server.base_url, "key": KEY, "first_pause": 0.01, **settings})


async def heard(model: OpenAIModel, request: Request = HELLO) -> list[Piece]:
    try:
        return [piece async for piece in model.stream(request)]
    finally:
        await model.close()


def text_of(pieces: list[Piece]) -> str:
    """Return the text in the form in which a turn assembles it. Text before a retry is dropped."""
    text = ""
    for piece in pieces:
        text = "" if isinstance(piece, Retrying) else text + (piece.text if isinstance(piece, Text) else "")
    return text


# ---------------------------------------------------------------- responses


async def test_text_is_streamed_and_has_a_finish_reason(model_server: ModelServer) -> None:
    pieces = await heard(opened(model_server.will(says("good morning"))))
    assert pieces == [Text("good"), Text(" morning"), Finished("stop")]


async def test_a_piece_is_heard_before_the_next_is_sent(model_server: ModelServer) -> None:
    go_on = threading.Event()
    steps = [chunk({"content": "a"}), go_on, chunk({"content": "b"}, "stop"), DONE]
    model = opened(model_server.will(Reply(steps)))
    stream = model.stream(HELLO)
    assert await anext(stream) == Text("a")
    go_on.set()
    assert await anext(stream) == Text("b")
    await stream.aclose()
    await model.close()


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_separated_from_the_answer(model_server: ModelServer, field: str) -> None:
    steps = [chunk({field: "hm"}), chunk({"content": "yes"}, "stop"), DONE]
    assert await heard(opened(model_server.will(Reply(steps)))) == [
        Thought("hm"),
        Text("yes"),
        Finished("stop"),
    ]


async def test_reasoning_in_parts_of_the_content(model_server: ModelServer) -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "yes"},
    ]
    pieces = await heard(opened(model_server.will(Reply([chunk({"content": parts}, "stop")]))))
    assert pieces == [Thought("hm"), Text("yes"), Finished("stop")]


async def test_calls_come_in_pieces(model_server: ModelServer) -> None:
    pieces = await heard(opened(model_server.will(calls(("c1", "look", '{"a":1}'), ("c2", "find", "{}")))))
    assert pieces == [
        CallPiece(0, "c1", "look", '{"a'),
        CallPiece(0, None, None, '":1}'),
        CallPiece(1, "c2", "find", "{"),
        CallPiece(1, None, None, "}"),
        Finished("tool_calls"),
    ]


@pytest.mark.parametrize("index", [0, None])
async def test_calls_without_positions_of_their_own_are_kept_apart(
    model_server: ModelServer, index: int | None
) -> None:
    def call(call_id: str) -> dict[str, Any]:
        one = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        return {"tool_calls": [one if index is None else {**one, "index": index}]}

    pieces = await heard(opened(model_server.will(Reply([chunk(call("a")), chunk(call("b"), "tool_calls")]))))
    assert pieces[:2] == [CallPiece(0, "a", "look", "{}"), CallPiece(1, "b", "look", "{}")]


async def test_cached_tokens_are_counted_separately(model_server: ModelServer) -> None:
    reported = usage(
        prompt_tokens=100,
        completion_tokens=20,
        total_tokens=120,
        prompt_tokens_details={"cached_tokens": 60, "cache_write_tokens": 10},
        completion_tokens_details={"reasoning_tokens": 5},
        cost=0.0042,
    )
    pieces = await heard(opened(model_server.will(says("hi", used=reported))))
    used = next(piece for piece in pieces if isinstance(piece, Used))
    assert used == Used(30, 20, 60, 10, 5, 0.0042)
    assert used.prompt_tokens == 100


async def test_missing_usage_is_unknown_and_not_zero(model_server: ModelServer) -> None:
    pieces = await heard(
        opened(
            model_server.will(says("hi", used=usage(prompt_tokens=3, completion_tokens=1, total_tokens=4)))
        )
    )
    assert Used(3, 1, None, None, None, None) in pieces
    assert not any(isinstance(piece, Used) for piece in await heard(opened(model_server.will(says("hi")))))


async def test_the_other_names_for_cached_tokens(model_server: ModelServer) -> None:
    reported = usage(prompt_tokens=10, completion_tokens=1, total_tokens=11, prompt_cache_hit_tokens=4)
    assert Used(6, 1, 4) in await heard(opened(model_server.will(says("hi", used=reported))))


async def test_usage_in_every_chunk_does_not_hide_a_lost_connection(
    model_server: ModelServer,
) -> None:
    half = chunk({"content": "half"}, usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2})
    assert text_of(await heard(opened(model_server.will(Reply([half]), says("whole"))))) == "whole"


async def test_a_refusal_to_answer_is_an_answer(model_server: ModelServer) -> None:
    steps = [chunk({"refusal": "I will not"}, "stop")]
    assert text_of(await heard(opened(model_server.will(Reply(steps))))) == "I will not"


# ---------------------------------------------------------------- requests


async def test_the_request_has_the_requested_fields(model_server: ModelServer) -> None:
    model = opened(model_server.will(says("hi")))
    await heard(model, Request(HELLO.messages, [TOOL], max_tokens=5, temperature=0.5))
    (asked,) = model_server.requests
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {
        "model": "small-model",
        "messages": HELLO.messages,
        "tools": [TOOL],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "temperature": 0.5,
    }


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("stream_options", "Unrecognized request argument supplied: stream_options"),
        ("stream_options", "Extra inputs are not permitted · stream_options"),
        ("tools", "registry.ollama.ai/library/gemma:2b does not support tools"),
        ("tools", '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        ("temperature", "Unsupported value: 'temperature' does not support 0.5 with this model."),
    ],
)
async def test_a_field_that_an_endpoint_refuses_is_no_longer_sent(
    model_server: ModelServer, part: str, message: str
) -> None:
    model = opened(model_server.will(refuses(400, message), says("hi"), says("again")))
    request = Request(HELLO.messages, [TOOL], temperature=0.5)
    first = [piece async for piece in model.stream(request)]
    assert text_of(first) == "hi"
    assert isinstance(first[0], Retrying)
    assert part in first[0].why
    assert text_of(await heard(model, request)) == "again"
    assert [part in asked.body for asked in model_server.requests] == [True, False, False]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Invalid content type. image_url is only supported by certain models."),
        (404, "No endpoints found that support image input"),
        (
            500,
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        ),
        (400, "text-model is not a multimodal model"),
        (400, "Failed to deserialize: messages[1]: unknown variant `image_url`, expected `text`"),
        (400, "'messages.1' : value for 'content' must be a string"),
    ],
)
async def test_an_endpoint_that_takes_no_pictures_gets_the_text(
    model_server: ModelServer, status: int, message: str
) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    content = [{"type": "text", "text": "what is it?"}, picture]
    request = Request([*HELLO.messages, {"role": "user", "content": content}], [TOOL])
    model = opened(model_server.will(refuses(status, message), says("hi"), says("again")))
    assert models.takes_pictures(model)
    first = [piece async for piece in model.stream(request)]
    assert isinstance(first[0], Retrying)
    assert "without pictures" in first[0].why
    assert text_of(await heard(model, request)) == "again"
    assert [asked.body["messages"][-1]["content"] for asked in model_server.requests] == [
        content,
        *["what is it?\n[image]"] * 2,
    ]
    assert all("tools" in asked.body for asked in model_server.requests)
    assert not models.takes_pictures(model)


async def test_a_field_whose_removal_did_not_help_is_sent_again(model_server: ModelServer) -> None:
    request = Request(HELLO.messages, [TOOL])
    model = opened(model_server.will(*[refuses(400, "tools are not supported here")] * 2, says("hi")))
    with pytest.raises(models.BadRequest):
        async for _ in model.stream(request):
            pass
    assert text_of(await heard(model, request)) == "hi"
    assert ["tools" in asked.body for asked in model_server.requests] == [True, False, True]


async def test_an_invalid_history_of_calls_does_not_remove_the_tools(model_server: ModelServer) -> None:
    text = "messages.3: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1"
    with pytest.raises(models.BadRequest, match="unexpected"):
        await heard(opened(model_server.will(refuses(400, text))), Request(HELLO.messages, [TOOL]))
    assert len(model_server.requests) == 1


async def test_the_newer_name_for_the_longest_answer(model_server: ModelServer) -> None:
    text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    await heard(
        opened(model_server.will(refuses(400, text), says("hi"))), Request(HELLO.messages, max_tokens=7)
    )
    assert model_server.requests[1].body["max_completion_tokens"] == 7
    assert "max_tokens" not in model_server.requests[1].body


async def test_a_tool_that_is_described_wrongly_is_an_error_and_not_left_out(
    model_server: ModelServer,
) -> None:
    text = "Invalid schema for function 'look': 'obj' is not valid under any of the given schemas · tools[0].function"
    with pytest.raises(models.BadRequest, match="Invalid schema for function"):
        await heard(opened(model_server.will(refuses(400, text))), Request(HELLO.messages, [TOOL]))
    assert len(model_server.requests) == 1


# ---------------------------------------------------------------- retries


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
async def test_a_request_to_a_busy_endpoint_is_retried_with_a_notice(
    model_server: ModelServer, status: int
) -> None:
    pieces = await heard(opened(model_server.will(refuses(status, "slow down"), says("hi"))))
    assert text_of(pieces) == "hi"
    retries = [piece for piece in pieces if isinstance(piece, Retrying)]
    assert len(retries) == 1
    assert str(status) in retries[0].why
    assert 0.005 <= retries[0].seconds <= 0.01


async def test_the_number_of_retries_is_limited(model_server: ModelServer) -> None:
    model = opened(model_server.will(*[refuses(503, "overloaded")] * 9), most_retries=3)
    pauses: list[float] = []

    async def listen() -> None:
        async for piece in model.stream(HELLO):
            assert isinstance(piece, Retrying)
            pauses.append(piece.seconds)

    with pytest.raises(models.ProviderBusy, match=r"cannot answer now \(503\): overloaded"):
        await listen()
    await model.close()
    assert len(model_server.requests) == 4
    for pause, longest in zip(pauses, (0.01, 0.02, 0.04), strict=True):
        assert longest / 2 <= pause <= longest


async def test_a_retry_waits_as_long_as_requested(model_server: ModelServer) -> None:
    model_server.will(
        refuses(429, "slow", {"Retry-After": "0.25"}), refuses(429, "slow", {"retry-after-ms": "30"})
    )
    pieces = await heard(opened(model_server.will(says("hi"))))
    assert [piece.seconds for piece in pieces if isinstance(piece, Retrying)] == [0.25, 0.03]


async def test_a_wait_of_hours_is_not_accepted(model_server: ModelServer) -> None:
    with pytest.raises(models.ProviderBusy):
        await heard(opened(model_server.will(refuses(429, "tomorrow", {"Retry-After": "7200"}))))


def test_the_time_to_wait_may_be_a_date() -> None:
    assert 55 < (parse_retry_after({"Retry-After": formatdate(time.time() + 60, usegmt=True)}) or 0) <= 61
    assert parse_retry_after({"Retry-After": formatdate(time.time() - 60, usegmt=True)}) == 0
    assert parse_retry_after({"Retry-After": "soon"}) is None


@pytest.mark.parametrize("steps", [[DROP], [chunk({"content": "half"}), DROP], [chunk({"content": "half"})]])
async def test_an_answer_that_breaks_off_starts_again(model_server: ModelServer, steps: list[object]) -> None:
    pieces = await heard(opened(model_server.will(Reply(steps), says("whole answer"))))
    assert text_of(pieces) == "whole answer"
    assert sum(isinstance(piece, Retrying) for piece in pieces) == 1


@pytest.mark.parametrize("garbage", [b"data: {nonsense\n\n", b'data: {"choices": 7}\n\n', b"<html>\n\n"])
async def test_an_invalid_response_is_retried_and_then_reported(
    model_server: ModelServer, garbage: bytes
) -> None:
    assert text_of(await heard(opened(model_server.will(Reply([garbage]), says("hi"))))) == "hi"
    with pytest.raises(models.Unreachable, match=r"response is invalid|answer is incomplete"):
        await heard(opened(model_server.will(Reply([garbage])), most_retries=0))


async def test_an_error_in_the_middle_of_the_stream(model_server: ModelServer) -> None:
    busy = {"error": {"code": 502, "message": "Provider disconnected"}}
    steps = [chunk({"content": "half"}), busy]
    assert text_of(await heard(opened(model_server.will(Reply(steps), says("hi"))))) == "hi"
    too_long = {"error": {"code": 400, "message": "the request exceeds the available context size"}}
    with pytest.raises(models.ContextOverflow):
        await heard(opened(model_server.will(Reply([too_long]))))


async def test_a_silent_endpoint_times_out(model_server: ModelServer) -> None:
    never = threading.Event()
    model_server.will(Reply([never]), Reply([never]))
    with pytest.raises(models.Unreachable, match=r"no answer within 0\.1 s"):
        await heard(opened(model_server, timeout=0.1, most_retries=1))
    never.set()


async def test_no_server_at_the_address(model_server: ModelServer) -> None:
    with socket.socket() as unused:  # bound, so that no other program gets the port, but not listening
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        model = OpenAIModel("m", base_url=address)
        with pytest.raises(models.Unreachable, match=f"{address} cannot be reached.*is the server running"):
            # No retry: a server that is not running is not worth waiting for.
            await anext(model.stream(HELLO))
        await model.close()


async def test_an_address_that_does_not_exist_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    model = OpenAIModel("m", base_url="http://nowhere.invalid/v1", first_pause=0.01, most_retries=1)
    stream = model.stream(HELLO)
    assert isinstance(await anext(stream), Retrying)
    with pytest.raises(models.Unreachable, match=r"http://nowhere\.invalid/v1 cannot be reached"):
        await anext(stream)
    await model.close()


async def test_a_cancelled_request_closes_the_connection(model_server: ModelServer) -> None:
    waiting = threading.Event()
    model = opened(model_server.will(Reply([chunk({"content": "a"}), waiting])))
    task = asyncio.create_task(heard(model))
    while not model_server.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    waiting.set()


# ---------------------------------------------------------------- error messages

OVERFLOWS = [
    (
        400,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 200000 tokens.",
    ),
    (400, {"error": {"message": "too much", "code": "context_length_exceeded"}}),
    (400, "the request exceeds the available context size, try increasing it"),
    (
        400,
        {
            "error": {
                "code": 400,
                "message": "request (9 tokens) exceeds",
                "type": "exceed_context_size_error",
            }
        },
    ),
    (400, "prompt is too long: 210000 tokens > 200000 maximum"),
    (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
    (400, "Please reduce the length of the messages or completion."),
    (400, "Input is too long for requested model."),
    (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    (
        400,
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context",
    ),
    (400, "Your request exceeded model token limit: 131072"),
    (400, "The prompt is too long for the available context window"),
    (400, "tokens in request more than max tokens allowed"),
    (422, {"message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"}),
    (413, ""),
    (429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 50000."),
]


@pytest.mark.parametrize(("status", "error"), OVERFLOWS)
async def test_a_conversation_that_is_too_long_in_every_known_wording(
    model_server: ModelServer, status: int, error: object
) -> None:
    with pytest.raises(models.ContextOverflow, match="too long for small-model"):
        await heard(opened(model_server.will(refuses(status, error))))


async def test_too_many_tokens_per_minute_is_not_an_overflow(model_server: ModelServer) -> None:
    text = "Rate limit reached: too many tokens per minute"
    with pytest.raises(models.ProviderBusy):
        await heard(opened(model_server.will(refuses(429, text)), most_retries=0))


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_not_accepted(model_server: ModelServer, status: int) -> None:
    with pytest.raises(models.NotAuthorized) as caught:
        await heard(
            opened(model_server.will(refuses(status, f"Incorrect API key provided: {KEY}")), key_env="MY_KEY")
        )
    assert model_server.base_url in str(caught.value)
    assert "MY_KEY" in str(caught.value)
    assert KEY not in str(caught.value)


async def test_a_key_that_is_missing_says_what_to_set(model_server: ModelServer) -> None:
    with pytest.raises(
        models.NotAuthorized,
        match=r"requires a key: name its variable in model\.key_env, or run `hermes setup`",
    ):
        await heard(opened(model_server.will(refuses(401, "no")), key=None))


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, "The model `small-model` does not exist or you do not have access to it."),
        (404, "model 'small-model' not found"),
        (400, "small-model is not a valid model ID"),
        (404, {"error": {"message": "nothing", "code": "model_not_found"}}),
    ],
)
async def test_a_model_that_does_not_exist(model_server: ModelServer, status: int, error: object) -> None:
    with pytest.raises(models.NoSuchModel, match="has no model 'small-model'"):
        await heard(opened(model_server.will(refuses(status, error))))


async def test_an_account_without_money_is_not_asked_again(model_server: ModelServer) -> None:
    error_body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    with pytest.raises(models.NotAuthorized, match="requires payment"):
        await heard(opened(model_server.will(refuses(429, error_body))))
    assert len(model_server.requests) == 1


@pytest.mark.parametrize(
    "error",
    [
        "first line\n  second line",
        {"detail": "first line\nsecond line"},
        {"error": "first line second line"},
        [{"error": {"message": "first line second line"}}],
        {
            "error": {
                "message": "Provider returned error",
                "metadata": {"raw": '{"error":{"message":"first line second line"}}'},
            }
        },
    ],
)
async def test_a_refusal_is_reported_in_one_line(model_server: ModelServer, error: object) -> None:
    with pytest.raises(models.BadRequest) as caught:
        await heard(opened(model_server.will(refuses(400, error))))
    assert "first line second line" in str(caught.value)
    assert "\n" not in str(caught.value)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner)
    )
)
def test_a_refusal_of_any_shape_says_something_or_nothing(body: object) -> None:
    assert isinstance(find_message(body), str)
    assert find_message(json.loads("[" * 200 + "]" * 200)) == ""


async def test_a_page_where_there_should_be_an_interface(model_server: ModelServer) -> None:
    with pytest.raises(models.BadRequest, match="check the address"):
        await heard(opened(model_server.will(refuses(404, b"<html>a very long page</html>"))))


async def test_a_password_in_the_address_is_not_shown(model_server: ModelServer) -> None:
    address = model_server.base_url.replace("127.0.0.1", "me:hunter2hunter2@127.0.0.1")
    with pytest.raises(models.BadRequest) as caught:
        await heard(OpenAIModel("m", base_url=address))
    assert "hunter2" not in str(caught.value)


# ---------------------------------------------------------------- other


def test_the_provider_and_the_context_window() -> None:
    def made(base_url: str, **more: Any) -> OpenAIModel:
        return OpenAIModel("m", base_url=base_url, **more)

    assert made("https://openrouter.ai/api/v1").provider == "openrouter"
    assert made("http://localhost:11434/v1").provider == "local"
    assert made("https://models.example.org/v1").provider == "models.example.org"
    assert made("https://api.openai.com/v1").context_window == 128_000
    assert made("https://api.openai.com/v1", context_window=9).context_window == 9


def test_the_sdk_is_imported_when_it_is_first_used() -> None:
    program = (
        "import sys, hermes.agent.models.openai as m; assert 'openai' not in sys.modules;"
        "m.preload(); assert 'openai' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
