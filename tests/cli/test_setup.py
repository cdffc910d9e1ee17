"""`hermes setup` detects the available models, tests the chosen one and stores working settings."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hermes.agent.models import local
from hermes.config import config_file, dotenv
from tests.agent.openai_server import ModelServer, refuses, says
from tests.cli.conftest import Hermes

KEY = "sk-" + "proj-" + "MadeUpForThisTest0123456789"


def model() -> object:
    return config_file.read()["model"]


def host(server: ModelServer) -> str:
    return server.base_url.removeprefix("http://").removesuffix("/v1")


def test_a_local_server_is_detected_chosen_and_tested(hermes: Hermes, model_server: ModelServer) -> None:
    model_server.will(says("OK"))
    done = hermes("setup", stdin="1\n2\n", OLLAMA_HOST=host(model_server))
    assert (done.returncode, done.stderr) == (0, "")
    assert "1  Ollama on this machine (2 models)" in done.stdout
    assert "Answer: OK" in done.stdout
    assert model() == {"default": "large-model", "base_url": model_server.base_url}
    (asked,) = model_server.requests
    assert asked.body["model"] == "large-model"


def test_another_address_with_a_key(hermes: Hermes, model_server: ModelServer, home: Path) -> None:
    model_server.will(says("OK"))
    place = 9  # after the eight providers
    done = hermes("setup", stdin=f"{place}\nnonsense\n{model_server.base_url}/\n{KEY}\nmy-model\n")
    assert done.returncode == 0, done.stderr
    assert model() == {
        "default": "my-model",
        "base_url": model_server.base_url,
        "key_env": "HERMES_MODEL_API_KEY",
    }
    assert dotenv.read() == {"HERMES_MODEL_API_KEY": KEY}
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    assert model_server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in done.stdout + done.stderr


def test_keys_in_the_environment_are_offered_and_not_copied(hermes: Hermes, home: Path) -> None:
    done = hermes("setup", XAI_API_KEY=KEY)
    assert done.returncode == 1
    assert "1  xAI (there is a key in XAI_API_KEY)" in done.stdout
    assert "cancelled; nothing was changed" in done.stderr
    assert not home.exists() or list(home.iterdir()) == []


def test_the_address_and_key_of_the_environment_are_offered_first(
    hermes: Hermes, model_server: ModelServer
) -> None:
    model_server.will(says("OK"))
    variables = {"OPENAI_BASE_URL": model_server.base_url, "OPENAI_API_KEY": KEY}
    done = hermes("setup", stdin="1\n2\n", **variables)
    assert done.returncode == 0, done.stderr
    assert f"1  {model_server.base_url} (from OPENAI_BASE_URL, with the key in OPENAI_API_KEY)" in done.stdout
    assert "OpenAI (there is a key" not in done.stdout
    assert "OpenAI, with your key" not in done.stdout
    assert model() == {
        "default": "large-model",
        "base_url": model_server.base_url,
        "key_env": "OPENAI_API_KEY",
    }
    assert dotenv.read() == {}
    assert {request.headers["authorization"] for request in model_server.requests} == {f"Bearer {KEY}"}


def test_an_address_of_the_environment_may_need_no_key(hermes: Hermes, model_server: ModelServer) -> None:
    model_server.will(says("OK"))
    done = hermes("setup", stdin="1\n1\n", OPENAI_BASE_URL=model_server.base_url, ANTHROPIC_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert "(from OPENAI_BASE_URL, with no key)" in done.stdout
    assert "Anthropic (there is a key in ANTHROPIC_API_KEY)" in done.stdout
    assert not any(KEY in str(request.headers) for request in model_server.requests)


@pytest.mark.parametrize("key", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HERMES_MODEL_API_KEY"])
def test_a_key_of_the_environment_is_not_sent_to_another_address(
    hermes: Hermes, model_server: ModelServer, key: str
) -> None:
    """The key is not sent to the other address, neither during the setup nor later."""
    model_server.will(says("OK"), says("hello"))
    done = hermes("setup", stdin="1\n1\n", OLLAMA_HOST=host(model_server), **{key: KEY})
    assert done.returncode == 0, done.stderr
    assert hermes("-q", "hello", **{key: KEY}).stdout == "hello\n"
    assert len(model_server.requests) >= 2
    assert not any(KEY in str(request.headers) for request in model_server.requests)


def test_a_model_that_does_not_answer_is_kept_only_if_wanted(
    hermes: Hermes, model_server: ModelServer
) -> None:
    for answer, code in (("n", 1), ("y", 0)):
        model_server.will(refuses(404, "model 'small-model' not found"))
        done = hermes("setup", stdin=f"1\n1\n{answer}\n", OLLAMA_HOST=host(model_server))
        assert done.returncode == code
        assert "has no model 'small-model'" in done.stderr
        assert (config_file.read() == {}) == (code == 1)


def test_the_offline_model(hermes: Hermes) -> None:
    config_file.change("model.base_url", "http://127.0.0.1:1/v1")
    last = 11 if local.format_offer() else 10  # after the eight providers and another address
    done = hermes("setup", stdin=f"{last}\n")
    assert done.returncode == 0
    assert "not a language model" in done.stdout
    assert model() == {"default": "offline"}
    assert hermes("setup", "--offline").returncode == 0
    assert hermes("setup", "--offline", "--model", "x").returncode == 2


def test_without_questions(hermes: Hermes, model_server: ModelServer) -> None:
    model_server.will(says("OK"))
    flags = ("--base-url", model_server.base_url, "--model", "small-model", "--key-env", "MY_API_KEY")
    done = hermes("setup", *flags, MY_API_KEY=KEY)
    assert (done.returncode, done.stderr) == (0, "")
    assert model() == {"default": "small-model", "base_url": model_server.base_url, "key_env": "MY_API_KEY"}
    assert dotenv.read() == {}
    assert model_server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_without_questions_a_choice_that_does_not_work_is_refused(
    hermes: Hermes, model_server: ModelServer
) -> None:
    address = ("--base-url", model_server.base_url)
    done = hermes("setup", *address, "--model", "m", "--key-env", "NOT_SET")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "NOT_SET is not set" in done.stderr
    done = hermes("setup", *address)
    assert (done.returncode, done.stderr) == (
        1,
        "hermes: several models are available; choose one with --model\n  small-model\n  large-model\n",
    )
    assert hermes("setup", "--base-url", "nonsense", "--model", "m").returncode == 2
    assert hermes("setup", "--model", "m").returncode == 1
    model_server.will(refuses(401, "who are you"))
    done = hermes("setup", *address, "--model", "m")
    assert done.returncode == 1
    assert "requires a key: name its variable in model.key_env, or run `hermes setup`" in done.stderr
    assert done.stderr.endswith("; nothing was changed (--no-test keeps it anyway)\n")
    assert done.stderr.count("\n") == 1
    assert config_file.read() == {}
    assert hermes("setup", *address, "--model", "m", "--no-test").returncode == 0


BAD_ADDRESS = "http://[::1"
ADDRESSES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "the command line: model.base_url": (("-q", "hi", "-m", "m", "--base-url", BAD_ADDRESS), {}),
    "OPENAI_BASE_URL: model.base_url": (("-q", "hi", "-m", "m"), {"OPENAI_BASE_URL": BAD_ADDRESS}),
    "OLLAMA_HOST": (("setup",), {"OLLAMA_HOST": BAD_ADDRESS}),
    "--base-url": (("setup", "--base-url", BAD_ADDRESS, "--model", "m"), {}),
    "the command line: auxiliary.base_url": (("config", "set", "auxiliary.base_url", BAD_ADDRESS), {}),
    "homeserver: it": (
        ("gateway", "setup", "--platform", "matrix", "--homeserver", BAD_ADDRESS, "--user-id", "@a:b"),
        {},
    ),
}


@pytest.mark.parametrize("setting", ADDRESSES)
def test_an_invalid_address_is_reported_with_its_setting(hermes: Hermes, setting: str) -> None:
    words, variables = ADDRESSES[setting]
    for address in (BAD_ADDRESS, "http://h:abc/v1"):
        given = dict.fromkeys(variables, address)
        done = hermes(*(address if word == BAD_ADDRESS else word for word in words), **given)
        assert done.returncode in (1, 2)
        assert done.stderr.startswith(f"hermes: {setting} must be an address such as ")
        assert done.stderr.count("\n") == 1
    assert config_file.read() == {}


def test_the_only_model_needs_no_name(hermes: Hermes, model_server: ModelServer) -> None:
    model_server.models = ["the-one"]
    assert hermes("setup", "--base-url", model_server.base_url, "--no-test").returncode == 0
    assert model() == {"default": "the-one", "base_url": model_server.base_url}


def test_settings_that_the_environment_overrides_are_reported(hermes: Hermes) -> None:
    done = hermes("setup", "--offline", HERMES_MODEL="x")
    assert done.stderr == "hermes: HERMES_MODEL is set in the environment, which overrides config.yaml\n"


def test_names_of_models_cannot_act_on_the_terminal(hermes: Hermes, model_server: ModelServer) -> None:
    model_server.models = ["\x1b[31mred", "other"]
    done = hermes("setup", OLLAMA_HOST=host(model_server), stdin="1\n")
    assert "\x1b" not in done.stdout


def test_the_small_model_is_offered_with_its_size_and_how_to_install_it(hermes: Hermes) -> None:
    done = hermes("setup", "--model", local.NAME)
    assert done.returncode == 1
    assert "smollm2-135m is not installed; nothing was changed" in done.stderr
    assert all(command in done.stderr for command in local.HOW_TO_INSTALL)
    assert not config_file.get_path().exists()
