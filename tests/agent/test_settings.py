"""The settings of the agent: where each value comes from, and which values are valid. The documentation page
is correct.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes import errors
from hermes.agent.models.endpoints import PROVIDERS
from hermes.config import dotenv
from hermes.config.settings import read_settings
from hermes.config.settings_schema import SECTIONS, SETTINGS, Settings, get_default

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


def write(home: Path, text: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(text, encoding="utf-8")


def test_without_a_file_every_value_is_the_default() -> None:
    assert read_settings() == Settings()


def test_every_setting_is_declared_once_and_every_field_is_a_setting() -> None:
    fields = [f"{section}.{name}" for section in SECTIONS for name in SECTIONS[section].__struct_fields__]
    assert sorted(fields) == sorted(SETTINGS)


def test_every_default_is_a_value_that_the_setting_can_have() -> None:
    for key, setting in SETTINGS.items():
        if get_default(key) is not None:
            assert setting.kind.read(get_default(key)) == get_default(key)


def test_arguments_win_over_the_environment_over_the_env_file_over_the_config(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model(**arguments: Any) -> tuple[str | None, str | None]:
        settings = read_settings({"model.default": arguments.get("model")})
        return settings.model.default, settings.origins.get("model.default")

    assert model() == (None, None)
    write(home, "model:\n  default: in-config\n")
    assert model() == ("in-config", str(home / "config.yaml"))
    dotenv.change("HERMES_MODEL", "in-env-file")
    assert model() == ("in-env-file", "HERMES_MODEL")
    monkeypatch.setenv("HERMES_MODEL", "in-environment")
    assert model() == ("in-environment", "HERMES_MODEL")
    assert model(model="told") == ("told", "the command line")


def test_values_are_read_with_their_types(home: Path) -> None:
    write(
        home,
        "model: {default: m, base_url: 'http://127.0.0.1:8080/v1/', context_window: 4096}\n"
        "compression: {enabled: false, threshold: 0.7, target_ratio: 0.99}\nsessions: {retention_days: 7}\n",
    )
    settings = read_settings()
    assert settings.model.base_url == "http://127.0.0.1:8080/v1"
    assert settings.model.context_window == 4096
    assert settings.compression.enabled is False
    assert settings.compression.threshold == 0.7
    assert settings.compression.target_ratio == 0.8  # a larger value has no effect
    assert settings.sessions.retention_days == 7.0


def test_the_size_of_one_model_is_not_taken_for_that_of_another(home: Path) -> None:
    write(home, "model: {default: m, context_window: 4096}")
    assert read_settings().model.context_window == 4096
    assert read_settings({"model.default": "other"}).model.context_window is None
    values = {"model.default": "other", "model.context_window": 9_000}
    assert read_settings(values).model.context_window == 9_000


@pytest.mark.parametrize("file", ["{default: m, context_window: 4096}", "{context_window: 4096}"])
def test_the_size_of_the_usual_model_counts_however_it_is_named(home: Path, file: str) -> None:
    """The configured context window applies to the default model. This includes a resumed conversation or
    HERMES_MODEL that names the default model."""
    write(home, f"model: {file}")
    assert read_settings({"model.default": "m"}).model.context_window == 4096
    dotenv.change("HERMES_MODEL", "named")
    assert read_settings().model.context_window == 4096
    assert read_settings({"model.default": "named"}).model.context_window == 4096
    assert read_settings({"model.default": "other"}).model.context_window is None
    assert read_settings({"model.default": "other"}).windows["named"] == 4096


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("agent: {max_steps: many}", "agent.max_steps must be a whole number from 1 to 10000, not 'many'"),
        ("agent: {max_steps: 0}", "agent.max_steps must be"),
        ("agent: {max_steps: true}", "agent.max_steps must be"),
        ("model: {base_url: localhost}", "model.base_url must be an address such as"),
        *(
            (f"model: {{base_url: '{address}'}}", "model.base_url must be an address such as")
            for address in (
                "http://[::1",
                "http://h:abc/v1",
                "http://h:70000",
                "http://a..b/v1",
                "http://☃.de",
            )
        ),
        ("model: {default: 7}", "model.default must be a text"),
        ("display: {resume_display: loud}", "display.resume_display must be full or minimal"),
        ("sessions: {auto_prune: 1}", "sessions.auto_prune must be true or false"),
        ("model: small", "model must hold settings such as model.default"),
        ("model: {default: '${NOT_SET_ANYWHERE}'}", "uses ${NOT_SET_ANYWHERE}, which is not set"),
        ("prices: {m: {input: 1}}", "prices.m must hold input and output"),
        ("prices: {m: {input: 1, output: dear}}", "prices.m must be dollars per million tokens"),
    ],
)
def test_an_invalid_value_is_reported_with_file_key_and_expectation(home: Path, text: str, told: str) -> None:
    write(home, text)
    with pytest.raises(errors.BadConfig) as problem:
        read_settings()
    assert str(problem.value).startswith(str(home / "config.yaml"))
    assert told in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("address", ["http://[::1]:11434/v1", "http://bücher.de/v1", "http://me:pass@h/v1"])
def test_an_address_may_be_of_any_kind(home: Path, address: str) -> None:
    write(home, f"model: {{base_url: '{address}'}}")
    assert read_settings().model.base_url == address


def test_a_text_may_name_a_variable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, "model:\n  base_url: http://${MODEL_HOST}:${MODEL_PORT}/v1\n")
    monkeypatch.setenv("MODEL_HOST", "10.0.0.7")
    dotenv.change("MODEL_PORT", "8000")
    assert read_settings().model.base_url == "http://10.0.0.7:8000/v1"


def test_an_unknown_setting_is_reported_in_one_line_and_ignored(home: Path) -> None:
    write(home, "model:\n  defualt: x\n")
    settings = read_settings()
    assert settings.model.default is None
    assert (
        settings.warning
        == f"{home / 'config.yaml'}: unknown setting: model.defualt; did you mean model.default?"
    )
    write(home, "model:\n  x: 1\nnonsense: 2\n")
    assert "unknown setting: model.x, nonsense" in (read_settings().warning or "")
    write(home, "model:\nprices:\n")
    assert read_settings().warning is None


def test_a_secret_in_a_wrong_value_is_not_shown(home: Path) -> None:
    secret = "sk-" + "proj-" + "MadeUpForThisTest0123456789"
    write(home, f"agent:\n  max_steps: {secret}\n")
    with pytest.raises(errors.BadConfig) as problem:
        read_settings()
    assert secret not in str(problem.value)


# ---------------------------------------------------------------- the documentation page


def test_the_page_names_every_variable() -> None:
    for name in (
        *(setting.variable for setting in SETTINGS.values() if setting.variable),
        *(provider.key_env for provider in PROVIDERS),
        "OLLAMA_HOST",
    ):
        assert f"`{name}`" in PAGE
