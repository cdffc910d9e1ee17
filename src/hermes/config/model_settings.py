"""The declarations of the settings of models. `settings_schema` includes them."""

from collections.abc import Mapping
from typing import Annotated, Any

from hermes.config.declarations import Section, Setting
from hermes.config.setting_kinds import MODELS, TEXT, URL, VARIABLE, make_integer, make_number


class ModelSettings(Section, frozen=True):
    """Settings of the main model, which answers the person."""

    default: Annotated[
        str | None,
        Setting(
            TEXT,
            "the model of the agent; `offline` and `smollm2-135m` need no network",
            variable="HERMES_MODEL",
        ),
    ] = None
    base_url: Annotated[
        str | None,
        Setting(
            URL,
            "the OpenAI-compatible endpoint of the model; default: OpenAI or OpenRouter, whichever has a key",
            variable="OPENAI_BASE_URL",
        ),
    ] = None
    key_env: Annotated[
        str | None,
        Setting(VARIABLE, "the environment variable that contains the key; default: that of the provider"),
    ] = None
    context_window: Annotated[
        int | None,
        Setting(
            make_integer(1_000, 100_000_000),
            "the context window of `model.default` in tokens; default: the known window of the model",
        ),
    ] = None
    timeout_seconds: Annotated[
        float,
        Setting(
            make_number(1, 86_400), "how long to wait for data from the model before the request is repeated"
        ),
    ] = 300.0
    max_retries: Annotated[
        int,
        Setting(
            make_integer(0, 100), "how often a request is repeated when the endpoint is busy or unreachable"
        ),
    ] = 5
    fallbacks: Annotated[
        tuple[Mapping[str, Any], ...],
        Setting(
            MODELS,
            "the models that answer, in this order, if the provider of the model fails;"
            " without `base_url`, at the endpoint of the model",
        ),
    ] = ()
    cooldown_seconds: Annotated[
        float,
        Setting(
            make_number(0, 86_400),
            "how long a model that failed is tried only after the others; longer if the endpoint asks for it",
        ),
    ] = 60.0


class AuxiliarySettings(Section, frozen=True):
    """Settings of the model for titles and summaries."""

    model: Annotated[
        str | None, Setting(TEXT, "the model for titles and summaries; default: `model.default`")
    ] = None
    base_url: Annotated[
        str | None, Setting(URL, "the endpoint of the auxiliary model; default: `model.base_url`")
    ] = None
    key_env: Annotated[
        str | None,
        Setting(
            VARIABLE,
            "the environment variable that contains the key of the auxiliary model; default: that of the provider",
        ),
    ] = None
