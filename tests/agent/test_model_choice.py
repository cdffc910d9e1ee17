"""How the model, its address and its key are chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.agent.models.choice import choose_endpoint, open_auxiliary_model, open_main_model
from hermes.agent.models.endpoints import find_servers, list_models
from hermes.agent.models.model import BadRequest, ModelError, NotAuthorized, Request, Text, Unreachable
from hermes.config import dotenv
from hermes.config.settings import read_settings
from hermes.config.settings_schema import AuxiliarySettings, ModelSettings, Settings
from tests.agent.openai_server import ModelServer, Reply, refuses, says

HELLO = Request([{"role": "user", "content": "hello"}])


def test_without_a_model_the_error_says_how_to_choose_one() -> None:
    with pytest.raises(ModelError, match="no model is chosen: run `hermes setup`"):
        open_main_model(Settings())
    with pytest.raises(ModelError, match="`hermes setup`"):
        open_auxiliary_model(Settings())
    with pytest.raises(ModelError, match="no key and no address"):
        open_main_model(Settings(model=ModelSettings("gpt-5")))


def test_the_offline_model_needs_no_key_and_no_address() -> None:
    settings = Settings(model=ModelSettings("offline"))
    assert (open_main_model(settings).name, open_main_model(settings).base_url) == ("offline", None)
    assert open_auxiliary_model(settings).name == "offline"


def test_the_available_key_determines_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    dotenv.change("OPENROUTER_API_KEY", "router")
    assert choose_endpoint(None) == ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "router")
    monkeypatch.setenv("OPENAI_API_KEY", "openai")
    assert choose_endpoint(None) == ("https://api.openai.com/v1", "OPENAI_API_KEY", "openai")


def test_a_key_goes_to_its_provider_and_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "openai")
    assert choose_endpoint("https://openrouter.ai/api/v1").key is None
    assert choose_endpoint("https://api.anthropic.com/v1").key is None
    assert choose_endpoint("https://api.openai.com/v1").key == "openai"
    assert choose_endpoint("https://models.example.org/v1").key is None
    assert choose_endpoint("https://models.example.org/v1", "MY_API_KEY") == (
        "https://models.example.org/v1",
        "MY_API_KEY",
        None,
    )


def test_a_key_belongs_to_the_address_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "openai")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://models.example.org/v1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "anthropic")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://proxy.example.org")
    assert choose_endpoint("https://models.example.org/v1/").key == "openai"
    assert choose_endpoint("https://models.example.org:8443/v1").key is None
    assert choose_endpoint("https://api.openai.com/v1").key is None
    assert choose_endpoint(None) == ("https://models.example.org/v1", "OPENAI_API_KEY", "openai")
    assert choose_endpoint("https://proxy.example.org/v1").key == "anthropic"
    assert choose_endpoint("https://api.anthropic.com/v1").key is None
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
    assert choose_endpoint("https://api.anthropic.com/v1").key == "anthropic"


def test_the_key_of_the_file_is_not_used_at_an_address_from_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("model: {base_url: 'https://mine.example.org/v1', key_env: MINE}\n")
    assert read_settings().model.key_env == "MINE"
    assert read_settings({"model.base_url": "https://mine.example.org/v1"}).model.key_env == "MINE"
    assert read_settings({"model.base_url": "https://other.example.org/v1"}).model.key_env is None
    monkeypatch.setenv("OPENAI_BASE_URL", "https://other.example.org/v1")
    assert read_settings().model.key_env is None


async def test_the_main_and_the_auxiliary_model_have_separate_endpoints(model_server: ModelServer) -> None:
    dotenv.change("OPENAI_API_KEY", "one")
    dotenv.change("SMALL_API_KEY", "two")
    settings = Settings(
        model=ModelSettings("large", "http://127.0.0.1:1/v1", context_window=5_000),
        auxiliary=AuxiliarySettings("small", model_server.base_url, "SMALL_API_KEY"),
    )
    main, small = open_main_model(settings), open_auxiliary_model(settings)
    assert (main.name, main.context_window) == ("large", 5_000)
    assert (small.name, small.context_window) == ("small", 128_000)
    model_server.will(says("hi"))
    assert Text("hi") in [piece async for piece in small.stream(HELLO)]
    assert model_server.requests[0].headers["authorization"] == "Bearer two"
    await small.close()


def test_the_size_that_is_set_counts_for_every_kind_of_model_and_every_way_to_it(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(
        "model: {default: usual, base_url: 'http://127.0.0.1:1/v1', context_window: 5000}\n"
        "auxiliary: {model: usual}\n"
    )
    resumed = read_settings({"model.default": "usual"})
    assert open_main_model(resumed).context_window == 5_000
    elsewhere = read_settings({"model.default": "another"})
    assert (open_main_model(elsewhere).name, open_main_model(elsewhere).context_window) == (
        "another",
        128_000,
    )
    assert open_auxiliary_model(elsewhere).context_window == 5_000
    dotenv.change("HERMES_MODEL", "offline")
    assert open_main_model(read_settings()).context_window == 5_000


def test_the_auxiliary_model_is_the_main_one_unless_another_is_chosen() -> None:
    dotenv.change("MY_API_KEY", "mine")
    main = ModelSettings("large", "http://127.0.0.1:1/v1", "MY_API_KEY")
    assert open_auxiliary_model(Settings(model=main)).name == "large"
    other = open_auxiliary_model(Settings(model=main, auxiliary=AuxiliarySettings("small")))
    assert (other.name, other.base_url) == ("small", "http://127.0.0.1:1/v1")


def test_the_models_of_an_endpoint(model_server: ModelServer) -> None:
    assert list_models(model_server.base_url) == ["small-model", "large-model"]
    model_server.listing = refuses(401, "who are you")
    with pytest.raises(NotAuthorized, match="requires a key: name its variable"):
        list_models(model_server.base_url)
    model_server.listing = Reply([b"<html>"], headers={})
    with pytest.raises(BadRequest, match="does not list its models"):
        list_models(model_server.base_url)
    for nothing in (b"[1, 2]", b'{"data": null}', b"null", b"7"):
        model_server.listing = Reply([nothing], headers={})
        assert list_models(model_server.base_url) == []
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1/v1 cannot be reached"):
        list_models("http://127.0.0.1:1/v1")


@pytest.mark.parametrize("told", ["{host}", "http://{host}", "http://{host}/"])
def test_ollama_is_found_at_its_configured_address(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    host = model_server.base_url.removeprefix("http://").removesuffix("/v1")
    monkeypatch.setenv("OLLAMA_HOST", told.format(host=host))
    found = [server for server in find_servers() if server.base_url == model_server.base_url]
    assert [(server.title, server.models) for server in found] == [("Ollama", ("small-model", "large-model"))]
