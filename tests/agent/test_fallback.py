"""Fallback models: for which failures they are used, when a model is skipped, and which model is named as the
author.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes.agent import events
from hermes.agent.components import NO_CHOICE
from hermes.agent.factory import StandardFactory
from hermes.agent.models import model as models
from hermes.agent.models.choice import open_main_model
from hermes.agent.models.fallback import Cooldowns, FallbackModel
from hermes.agent.models.model import Answering, Request, Retrying, Text
from hermes.agent.models.openai import OpenAIModel
from hermes.agent.models.prices import Prices
from hermes.agent.tool import ToolContext
from hermes.agent.transcript import StoredRecord
from hermes.agent.turn import Turn
from hermes.config.settings import read_settings
from hermes.errors import BadConfig
from hermes_state import SessionDB
from tests.agent.openai_server import DROP, ModelServer, Reply, calls, chunk, refuses, says, usage
from tests.agent.test_turn import Echo
from tests.ports import reserve_port

HELLO = Request([{"role": "user", "content": "hello"}])


@pytest.fixture
def second_server() -> Iterator[ModelServer]:
    server = ModelServer()
    yield server
    server.close()


def opened(server: ModelServer | str, name: str, **settings: Any) -> OpenAIModel:
    address = server if isinstance(server, str) else server.base_url
    return OpenAIModel(name, **{"base_url": address, "first_pause": 0.01, "most_retries": 1, **settings})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def joined(*opened_models: OpenAIModel, clock: Clock | None = None) -> FallbackModel:
    return FallbackModel(opened_models, Cooldowns(60, clock or Clock()))


async def heard(model: models.Model) -> tuple[str, str]:
    """Return the name of the model that answered, and the text of the answer."""
    name, text = model.name, ""
    async for piece in model.stream(HELLO):
        name = piece.model.name if isinstance(piece, Answering) else name
        text = "" if isinstance(piece, Retrying) else text + (piece.text if isinstance(piece, Text) else "")
    return name, text


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    "failure",
    [
        refuses(500, "internal error"),
        refuses(503, "overloaded"),
        refuses(529, "overloaded_error"),
        refuses(429, "slow down", {"Retry-After": "0"}),
        refuses(429, "You exceeded your current quota"),
        refuses(402, "payment required"),
        refuses(404, "model_not_found"),
        Reply([DROP]),
    ],
)
async def test_a_failing_provider_is_replaced_by_the_next_model(
    model_server: ModelServer, second_server: ModelServer, failure: Reply
) -> None:
    model_server.will(failure, failure)
    second_server.will(says("good morning"))
    model = joined(opened(model_server, "first"), opened(second_server, "second"))
    assert await heard(model) == ("second", "good morning")
    await model.close()


async def test_an_unreachable_server_is_replaced(second_server: ModelServer) -> None:
    model = joined(opened(f"http://127.0.0.1:{reserve_port()}/v1", "first"), opened(second_server, "second"))
    second_server.will(says("here"))
    assert await heard(model) == ("second", "here")
    await model.close()


async def test_a_silent_server_is_replaced(model_server: ModelServer, second_server: ModelServer) -> None:
    never = threading.Event()
    model_server.will(Reply([never]))
    second_server.will(says("here"))
    model = joined(
        opened(model_server, "first", timeout=0.2, most_retries=0), opened(second_server, "second")
    )
    assert await heard(model) == ("second", "here")
    never.set()
    await model.close()


@pytest.mark.parametrize("failure", [refuses(400, "messages: invalid role"), refuses(422, "bad field")])
async def test_a_rejected_request_is_not_sent_to_another_model(
    model_server: ModelServer, second_server: ModelServer, failure: Reply
) -> None:
    model_server.will(failure)
    model = joined(opened(model_server, "first"), opened(second_server, "second"))
    with pytest.raises(models.BadRequest):
        await heard(model)
    assert second_server.requests == []
    await model.close()


@pytest.mark.parametrize(("window", "answers"), [(200_000, True), (128_000, False), (8_000, False)])
async def test_a_conversation_that_is_too_long_goes_only_to_a_larger_model(
    model_server: ModelServer, second_server: ModelServer, window: int, answers: bool
) -> None:
    model_server.will(refuses(400, "maximum context length is 128000 tokens"))
    second_server.will(says("all of it"))
    model = joined(
        opened(model_server, "first", context_window=128_000),
        opened(second_server, "second", context_window=window),
    )
    if answers:
        assert await heard(model) == ("second", "all of it")
    else:
        with pytest.raises(models.ContextOverflow):
            await heard(model)
        assert second_server.requests == []
    await model.close()


async def test_a_wrong_key_is_not_sent_twice_but_another_key_is_tried(
    model_server: ModelServer, second_server: ModelServer
) -> None:
    model_server.will(refuses(401, "no such key"))
    same = joined(opened(model_server, "first", key="a"), opened(model_server, "second", key="a"))
    with pytest.raises(models.NotAuthorized):
        await heard(same)
    model_server.will(refuses(401, "no such key"))
    second_server.will(says("let in"))
    other = joined(opened(model_server, "first", key="a"), opened(second_server, "second", key="b"))
    assert await heard(other) == ("second", "let in")
    assert second_server.requests[0].headers["authorization"] == "Bearer b"
    await same.close()
    await other.close()


async def test_an_answer_that_has_begun_is_not_given_to_another_model(
    model_server: ModelServer, second_server: ModelServer
) -> None:
    broken = Reply([chunk({"content": "half an"}), DROP])
    model_server.will(broken, broken)
    model = joined(opened(model_server, "first"), opened(second_server, "second"))
    with pytest.raises(models.Unreachable):
        await heard(model)
    assert second_server.requests == []
    await model.close()


async def test_if_all_models_fail_the_error_names_each(
    model_server: ModelServer, second_server: ModelServer
) -> None:
    model_server.will(refuses(503, "no first"), refuses(503, "no first"))
    second_server.will(refuses(503, "no second"), refuses(503, "no second"))
    model = joined(opened(model_server, "first"), opened(second_server, "second"))
    with pytest.raises(models.ProviderBusy, match=r"no first.*second: .*no second"):
        await heard(model)
    await model.close()


# ---------------------------------------------------------------- cool-down


async def test_a_model_that_failed_is_skipped_until_its_cool_down_is_over(
    model_server: ModelServer, second_server: ModelServer
) -> None:
    clock = Clock()
    model_server.will(refuses(503, "down"), refuses(503, "down"))
    second_server.will(says("one"), says("two"))
    model = joined(opened(model_server, "first"), opened(second_server, "second"), clock=clock)
    assert await heard(model) == ("second", "one")
    asked = len(model_server.requests)
    assert await heard(model) == ("second", "two")
    assert len(model_server.requests) == asked
    clock.now += 61
    model_server.will(says("back"))
    assert await heard(model) == ("first", "back")
    await model.close()


async def test_the_wait_that_a_provider_asks_for_prolongs_the_cool_down(
    model_server: ModelServer, second_server: ModelServer
) -> None:
    clock = Clock()
    model_server.will(refuses(429, "later", {"Retry-After": "600"}))
    second_server.will(says("one"), says("two"))
    model = joined(opened(model_server, "first"), opened(second_server, "second"), clock=clock)
    await heard(model)
    clock.now += 599
    assert await heard(model) == ("second", "two")
    assert len(model_server.requests) == 1
    await model.close()


async def test_a_skipped_model_is_asked_if_no_other_answers(
    model_server: ModelServer, second_server: ModelServer
) -> None:
    model_server.will(refuses(503, "down"), refuses(503, "down"), says("back"))
    second_server.will(says("one"), refuses(503, "down"), refuses(503, "down"))
    model = joined(opened(model_server, "first"), opened(second_server, "second"))
    await heard(model)
    assert await heard(model) == ("first", "back")
    await model.close()


async def test_the_context_window_is_that_of_the_model_that_answers_now(
    model_server: ModelServer, second_server: ModelServer
) -> None:
    model = joined(
        opened(model_server, "first", context_window=100_000),
        opened(second_server, "second", context_window=9_000),
    )
    assert model.context_window == 100_000
    model_server.will(refuses(503, "down"), refuses(503, "down"))
    second_server.will(says("one"))
    await heard(model)
    assert model.context_window == 9_000
    await model.close()


# ---------------------------------------------------------------- a turn


async def test_the_answer_and_the_session_name_the_model_that_answered(
    db: SessionDB, model_server: ModelServer, second_server: ModelServer
) -> None:
    model_server.will(refuses(503, "org-123 is down"), refuses(503, "org-123 is down"))
    second_server.will(
        calls(("c1", "echo", '{"text": "one"}')),
        says("done", used=usage(prompt_tokens=1_000, completion_tokens=100, total_tokens=1_100)),
    )
    model = joined(opened(model_server, "first"), opened(second_server, "second"))
    prices = Prices({"second": {"input": 1.0, "output": 10.0}})
    prices.know(model)
    record = StoredRecord(db)

    async def prompt() -> str:
        return "be kind"

    context = lambda approve, stop: ToolContext(db, "", Path("/"), approve, stop)  # noqa: E731
    turn = Turn(record, model, [Echo()], context, price=prices, prompt=prompt)
    happened = [event async for event in turn.events("hello")]
    await record.close()
    await model.close()
    assert happened[-1] == events.Done("done", "stop")
    notes = [event.text for event in happened if isinstance(event, events.Note)]
    assert notes == ["first is not available just now; second answered."]
    used = db.usage_of(record.session_id)
    assert [line.model for line in used.by_model] == ["second"]
    assert used.total.estimated_cost_usd == pytest.approx(0.002)
    session = db.get_session(record.session_id)
    assert session is not None
    config = session["model_config"]
    assert '"model":"first"' in config.replace(" ", "")


# ---------------------------------------------------------------- settings


def configure(home: Path, text: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(text, encoding="utf-8")


def test_fallbacks_have_the_endpoint_of_the_model_or_their_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIN_KEY", "main-key")
    monkeypatch.setenv("OTHER_KEY", "other-key")
    monkeypatch.setenv("OTHER_HOST", "other.example")
    configure(
        home,
        """
model:
  default: big
  base_url: https://main.example/v1
  key_env: MAIN_KEY
  fallbacks:
    - big
    - small
    - {model: big, base_url: "https://${OTHER_HOST}/v1", key_env: OTHER_KEY, context_window: 5000}
    - {model: free, base_url: "https://third.example/v1"}
""",
    )
    model = open_main_model(read_settings())
    assert isinstance(model, FallbackModel)
    first, *others = model.models
    assert (first.name, first.access) == ("big", ("https://main.example/v1", "main-key"))  # type: ignore[attr-defined]
    assert [(one.name, one.access) for one in others] == [  # type: ignore[attr-defined]
        ("small", ("https://main.example/v1", "main-key")),
        ("big", ("https://other.example/v1", "other-key")),
        ("free", ("https://third.example/v1", None)),
    ]
    assert others[1].context_window == 5000


def test_a_fallback_that_cannot_be_opened_does_not_stop_the_model(home: Path) -> None:
    configure(home, "model: {default: offline, fallbacks: [gpt-5]}")
    assert open_main_model(read_settings()).name == "offline"


@pytest.mark.parametrize(
    "value",
    ["{a: b}", "[{base_url: 'http://x/v1'}]", "[{model: a, url: b}]", "[1]", "[{model: a, key_env: 1-2}]"],
)
def test_a_wrong_list_of_fallbacks_is_refused(home: Path, value: str) -> None:
    configure(home, f"model: {{default: offline, fallbacks: {value}}}")
    with pytest.raises(BadConfig, match=r"model\.fallbacks must be names of models"):
        read_settings()


async def test_titles_and_answers_share_the_cool_down(
    home: Path, db: SessionDB, model_server: ModelServer, second_server: ModelServer
) -> None:
    configure(
        home,
        f"""
model:
  default: first
  base_url: {model_server.base_url}
  max_retries: 0
  fallbacks: [{{model: second, base_url: "{second_server.base_url}"}}]
""",
    )
    factory = StandardFactory()
    model = factory.make_model(NO_CHOICE)
    model_server.will(refuses(503, "down"))
    second_server.will(says("hello"), says("A short title", used=usage(prompt_tokens=9, completion_tokens=3)))
    assert await heard(model) == ("second", "hello")
    session = db.create_session("s1", "cli")
    db.append_message(session, "user", "what is the weather in Lisbon")
    db.append_message(session, "assistant", "hello")
    assert await factory.make_title(db, session) == "A short title"
    assert len(model_server.requests) == 1
    assert [(line.model, line.purpose) for line in db.usage_of(session).by_model] == [("second", "auxiliary")]
    await model.close()
    await factory.close()
